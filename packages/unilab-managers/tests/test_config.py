"""Environment configs: overrides, YAML, pickling, and what this version refuses."""

import pickle
from typing import Any

import pytest
from manager_support import NotedTerm, base_cfg, column, group, mujoco_cfg, ones, probe

from unilab_core import ConfigError, SceneEntityCfg, parse_overrides
from unilab_managers import (
    ConstantNoiseCfg,
    EventTermCfg,
    GaussianNoiseCfg,
    ManagerBasedRlEnvCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    UniformNoiseCfg,
    mdp,
)


def tracking(env: Any, sigma: float, command_name: str = "velocity") -> Any:
    return ones(env)


def task() -> ManagerBasedRlEnvCfg:
    return base_cfg(rewards={"tracking": RewardTermCfg(func=tracking, weight=1.0, params=TRACKING)})


TRACKING = {"sigma": 0.25, "command_name": "velocity"}


def full() -> ManagerBasedRlEnvCfg:
    """Every field that a config has, with something in it."""
    noisy = group(
        probe=ObservationTermCfg(
            func=probe, noise=UniformNoiseCfg(n_min=(-0.1, -0.2, 0.0), n_max=0.5), scale=2
        ),
        joints=ObservationTermCfg(
            func=mdp.joint_pos,
            params={"asset_cfg": SceneEntityCfg(joint_names=("b", "a"), preserve_order=True)},
            noise=GaussianNoiseCfg(std=(0.1, 0.2), operation="scale"),
            clip=(-1, 1.5),
            scale=(1.0, 1e-3),
        ),
    )
    clean = group(
        enable_corruption=False, probe=ObservationTermCfg(func=probe, noise=ConstantNoiseCfg(bias=1))
    )
    return mujoco_cfg(
        observations={"obs": noisy, "critic": clean},
        actions={
            "first": mdp.JointEffortActionCfg(joint_names=("slider",), offset=-0.5, clip=(-2.0, 1e3)),
            "second": mdp.JointEffortActionCfg(
                joint_names=("hinge",), scale={"hi.*": 3}, preserve_order=True
            ),
        },
        rewards={
            "class": RewardTermCfg(
                func=NotedTerm, weight=-1.0, params={"value": 2.0, "entity": {"name": "robot"}}
            ),
            "function": RewardTermCfg(func=column, weight=0, params={"index": 1}),
        },
        terminations={"time_out": TerminationTermCfg(func=mdp.time_out, time_out=False)},
        events={
            "place": EventTermCfg(
                func=mdp.reset_joints_by_offset,
                mode="reset",
                params={"position_range": (-1, 1), "velocity_range": [0.0, 0.5]},
                min_step_count_between_reset=7,
            )
        },
        is_finite_horizon=True,
        scale_rewards_by_dt=False,
    )


WRONG_OVERRIDES = [
    ("rewards.trackng.weight=2", ["'rewards.trackng'", "'trackng'", "did you mean 'tracking'"]),
    ("rewards.tracking.wieght=2", ["'rewards.tracking.wieght'", "'wieght'", "did you mean 'weight'"]),
    ("rewards.tracking.params.sgima=1", ["rewards.tracking.params", "'sgima'", "did you mean 'sigma'"]),
    ("rewards.gait.weight=1", ["'rewards.gait'", "'gait'", "valid names: 'tracking'"]),
    ("rewards.gait=None", ["'rewards.gait'", "'gait'", "valid names: 'tracking'"]),
    ("num_evns=4", ["'num_evns'", "did you mean 'num_envs'"]),
    ("rewards.tracking.weight=fast", ["rewards.tracking.weight", "fast"]),
    ("rewards.tracking.weight=.nan", ["rewards.tracking.weight", "finite"]),
    ("num_envs.low=4", ["num_envs"]),
]


@pytest.mark.parametrize(("text", "parts"), WRONG_OVERRIDES, ids=[text for text, _ in WRONG_OVERRIDES])
def test_qa_100_a_wrong_override_names_path_key_and_close_names(text: str, parts: list[str]) -> None:
    cfg = task()
    with pytest.raises(ConfigError) as caught:
        cfg.with_(parse_overrides([text]))
    for part in parts:
        assert part in str(caught.value)


def test_qa_100_nothing_is_applied_when_one_override_is_wrong() -> None:
    cfg = task()
    with pytest.raises(ConfigError):
        cfg.with_(parse_overrides(["rewards.tracking.weight=2", "num_evns=4"]))
    assert cfg == task()


def test_qa_100_an_override_of_a_parameter_keeps_its_siblings() -> None:
    changed = task().with_(parse_overrides(["rewards.tracking.params.sigma=1e-1"]))
    assert changed.rewards["tracking"].params == {"sigma": 0.1, "command_name": "velocity"}
    assert changed.rewards["tracking"].weight == 1.0


def test_qa_100_none_disables_a_term() -> None:
    changed = task().with_(parse_overrides(["rewards.tracking=None"]))
    assert changed.rewards == {}


def test_a_parameter_of_a_parameter_can_be_overridden() -> None:
    changed = full().with_(
        parse_overrides(["observations.obs.terms.joints.params.asset_cfg.joint_names=[a]"])
    )
    expected = SceneEntityCfg(joint_names=("a",), preserve_order=True)
    assert changed.observations["obs"].terms["joints"].params["asset_cfg"] == expected


def test_an_override_reaches_the_config_of_an_action_or_a_noise() -> None:
    changed = full().with_({"actions.first.scale": 4.0, "observations.obs.terms.probe.noise.n_max": 1.0})
    first, noise = changed.actions["first"], changed.observations["obs"].terms["probe"].noise
    assert isinstance(first, mdp.JointEffortActionCfg)
    assert first.scale == 4.0
    assert noise == UniformNoiseCfg(n_min=(-0.1, -0.2, 0.0), n_max=1.0)


def test_yaml_gives_an_equal_config_back() -> None:
    cfg = full()
    text = cfg.to_yaml()
    again = ManagerBasedRlEnvCfg.from_yaml(text)
    assert again == cfg
    assert again.to_yaml() == text
    assert list(again.rewards) == ["class", "function"]
    assert again.rewards["class"].func is NotedTerm
    assert isinstance(again.observations["obs"].terms["joints"].noise, GaussianNoiseCfg)
    assert isinstance(again.actions["second"], mdp.JointEffortActionCfg)


def test_a_config_can_be_pickled() -> None:
    cfg = full()
    again = pickle.loads(pickle.dumps(cfg))
    assert again == cfg
    with pytest.raises(TypeError, match="frozen"):
        again.rewards["new"] = cfg.rewards["class"]


def test_a_config_is_frozen_down_to_the_parameters() -> None:
    cfg = task()
    with pytest.raises(ValueError, match="frozen"):
        cfg.rewards["tracking"].weight = 2.0  # type: ignore[misc]
    with pytest.raises(TypeError, match="frozen"):
        cfg.rewards["tracking"].params["sigma"] = 2.0  # type: ignore[index]


OFFSETS = {"position_range": (0.0, 0.0), "velocity_range": (0.0, 0.0)}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ObservationTermCfg(func=probe, clip=(1.0, -1.0)), r"clip \(1.0, -1.0\) is inverted"),
        (lambda: mdp.JointEffortActionCfg(clip=(1.0, -1.0)), r"clip \(1.0, -1.0\) is inverted"),
        (lambda: RewardTermCfg(func=ones, weight=float("nan")), "weight"),
        (lambda: RewardTermCfg(func=ones, weight="1"), "weight"),  # type: ignore[arg-type]
        (lambda: RewardTermCfg(func=ones), "weight"),  # type: ignore[call-arg]
        (
            lambda: EventTermCfg(func=fine_event, mode="reset", min_step_count_between_reset=-1),
            "min_step_count",
        ),
        (lambda: TerminationTermCfg(func=ones, time_out=1), "time_out"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_value_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def fine_event(env: Any, env_ids: Any) -> None:
    return None
