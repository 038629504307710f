"""The whole environment on the real engine."""

import pytest
import torch
from manager_support import OFFSETS, build_slider, ids, mujoco_cfg, zeros

from unilab_core import ConfigError, EnvFactory, make_env
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ManagerBasedRlEnvCfg, mdp
from unisim import EntityCfg, SceneCfg


def rollout(cfg: ManagerBasedRlEnvCfg, seed: int, steps: int = 12) -> torch.Tensor:
    """Returns observations, rewards and flags of constant actions, with a partial reset after step 7."""
    frames = []
    with ManagerBasedRlEnv(cfg, seed=seed) as env:
        env.reset()
        for step in range(steps):
            state = env.step(torch.full((env.num_envs, env.num_actions), 0.25))
            flags = torch.stack([state.reward, state.terminated.float(), state.truncated.float()], dim=1)
            frames.append(torch.cat([state.obs["obs"], flags], dim=1))
            if step == 7:
                env.reset(ids(2, 1))
    return torch.stack(frames)


def test_a_force_moves_the_slider_as_newton_says() -> None:
    still = {"position_range": (0.0, 0.0), "velocity_range": (0.0, 0.0)}
    cfg = mujoco_cfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_slider)}),  # the arm upright, in balance
        events={"place": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=still)},
    )
    with ManagerBasedRlEnv(cfg) as env:
        env.reset()
        env.step(torch.tensor([[0.5, 0.0], [-0.5, 0.0], [4.0, 0.0], [0.0, 0.0]]))
        # control = action x 0.5 within +-1, force 10 N per unit. The arm (0.1 kg, a rod of 0.5 m about its end) turns
        # freely, so the cart feels 1 kg + 0.1 kg x (1 - 3/4); the capsule's caps change that by less than 2 %.
        speed = env.scene["robot"].data.joint_vel[:, 0]
        expected = 0.02 / (1.0 + 0.1 / 4)
        assert speed.tolist() == pytest.approx(
            [2.5 * expected, -2.5 * expected, 10 * expected, 0.0], rel=0.02, abs=1e-9
        )


def test_episodes_end_by_time_and_begin_within_the_offsets() -> None:
    with ManagerBasedRlEnv(mujoco_cfg()) as env:
        env.reset()
        for step in range(1, 11):
            state = env.step(zeros(env))
            ended = step % 5 == 0
            assert state.truncated.tolist() == [ended] * 4
            assert not bool(state.terminated.any())
            assert (state.final_observation is not None) == ended
        position, velocity = env.scene["robot"].data.joint_pos, env.scene["robot"].data.joint_vel
        assert bool(((position - torch.tensor([0.0, 2.0])).abs() <= 0.1 + 1e-6).all())
        assert bool((velocity.abs() <= 0.2 + 1e-6).all())
        # joint_pos_rel x (2, 0.5), joint_vel, last_action
        expected = torch.cat(
            [(position - torch.tensor([0.0, 2.0])) * torch.tensor([2.0, 0.5]), velocity], dim=1
        )
        assert torch.equal(state.obs["obs"][:, :4], expected)
        assert state.obs["obs"][:, 4:].tolist() == [[0.0, 0.0]] * 4


def test_the_seed_decides_a_rollout() -> None:
    first = rollout(mujoco_cfg(), seed=3)
    assert torch.equal(rollout(mujoco_cfg(), seed=3), first)
    assert not torch.equal(rollout(mujoco_cfg(), seed=4), first)


def test_a_config_that_went_through_yaml_gives_the_same_rollout() -> None:
    cfg = mujoco_cfg()
    assert torch.equal(rollout(ManagerBasedRlEnvCfg.from_yaml(cfg.to_yaml()), seed=3), rollout(cfg, seed=3))


def test_core_builds_it_from_its_config_with_overrides() -> None:
    overrides = (
        "terminations.time_out=None",
        "rewards.one.weight=2",
        "events.place.params.position_range=[0, 0]",
    )
    with make_env(mujoco_cfg(), num_envs=2, overrides=overrides) as env:
        assert isinstance(env, ManagerBasedRlEnv)
        env.reset()
        assert env.scene["robot"].data.joint_pos.tolist() == [[0.0, 2.0]] * 2
        for _ in range(6):
            state = env.step(torch.zeros(2, 2))
        assert not bool(state.truncated.any())
        assert state.reward.tolist() == pytest.approx([0.04, 0.04])


def test_a_factory_of_the_config_builds_equal_environments() -> None:
    factory = EnvFactory(mujoco_cfg(), seed=5)
    with factory() as first, factory() as second:
        assert torch.equal(first.reset()[0]["obs"], second.reset()[0]["obs"])


def test_a_term_that_does_not_fit_the_model_says_why() -> None:
    cfg = mujoco_cfg(actions={"effort": mdp.JointEffortActionCfg(joint_names=("slidr",))})
    with pytest.raises(ConfigError, match="actions term 'effort': .*did you mean 'slider'"):
        ManagerBasedRlEnv(cfg)


def test_describe_labels_everything() -> None:
    with ManagerBasedRlEnv(mujoco_cfg()) as env:
        description = env.describe().to_data()
    assert description["observations"] == {
        "obs": (
            *("position[slider]", "position[hinge]", "velocity[slider]", "velocity[hinge]"),
            *("action[effort:slider]", "action[effort:hinge]"),
        )
    }
    assert [(a["label"], a["actuator"], a["joint"]) for a in description["actions"]] == [
        ("effort:slider", "robot/slider", "robot/slider"),
        ("effort:hinge", "robot/hinge", "robot/hinge"),
    ]
    assert [joint["name"] for joint in description["joints"]] == ["robot/slider", "robot/hinge"]
    assert description["step_dt"] == pytest.approx(0.02)
    assert {kind: tuple(t["name"] for t in terms) for kind, terms in description["terms"].items()} == {
        "observations": ("obs/position", "obs/velocity", "obs/action"),
        "actions": ("effort",),
        "commands": (),
        "rewards": ("one",),
        "terminations": ("time_out",),
        "events": ("place",),
        "curriculum": (),
        "metrics": (),
        "recorders": (),
    }
    position = description["terms"]["observations"][0]
    assert position["func"] == "unilab_managers.mdp.observations:joint_pos_rel"
    assert position["columns"] == ("position[slider]", "position[hinge]")
    assert position["reads"] == ("qpos",)


def test_one_row_behaves_like_a_row_of_many() -> None:
    event = EventTermCfg(
        func=mdp.reset_joints_by_offset, mode="reset", params=OFFSETS | {"position_range": (0.05, 0.05)}
    )
    still = mujoco_cfg(events={"place": event.with_({"params.velocity_range": (0.0, 0.0)})})
    many, one = rollout(still, seed=0, steps=7), rollout(still.with_({"num_envs": 1}), seed=0, steps=7)
    assert torch.equal(many[:, :1], one)
