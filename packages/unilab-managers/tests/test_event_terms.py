"""Terms that place and push: root resets, scaled joints, pushes."""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from event_support import distinct, interval, robot_cfg, run
from manager_support import DT, MakeEnv, ids, layout_of, with_default

from unilab_core import ConfigError, SceneEntityCfg
from unilab_core.rotation import quat_from_yaw
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    TerminationTermCfg,
    mdp,
)
from unilab_managers.mdp._sampling import quat_from_euler
from unilab_managers.mdp.events import push_root, reset_joints_by_scale, reset_root_state_uniform
from unisim import ModelLayout
from unisim.contract import Declared, SimBackend
from unisim.factory import make_backend
from unisim.testing import make_layout

DEFAULT = (0.5, -2.0)


def scaled(make_env: MakeEnv, position: Any, velocity: Any = (1.0, 1.0), **options: Any) -> ManagerBasedRlEnv:
    params = {"position_range": position, "velocity_range": velocity, **options.pop("params", {})}
    return make_env(
        layout=options.pop("layout", with_default(layout_of(), *DEFAULT)),
        events={"place": EventTermCfg(func=reset_joints_by_scale, mode="reset", params=params)},
        **options,
    )


def free_layout(**options: Any) -> ModelLayout:
    """Returns a free body with one joint, for a fake that is a double integrator of 1 kg."""
    return make_layout(
        free_root=True,
        joints=("robot/hinge",),
        actuated=("robot/hinge",),
        sensors={"probe": (3, "position")},
        timestep=DT,
        **options,
    )


def placed(make_env: MakeEnv, pose: Any, velocity: Any, **options: Any) -> ManagerBasedRlEnv:
    params = {"pose_range": pose, "velocity_range": velocity}
    return make_env(
        layout=options.pop("layout", free_layout()),
        events={"place": EventTermCfg(func=reset_root_state_uniform, mode="reset", params=params)},
        **options,
    )


def root(env: ManagerBasedRlEnv) -> dict[str, torch.Tensor]:
    data = env.scene["robot"].data
    return {
        "pos": data.root_pos_w.clone(),
        "quat": data.root_quat_w.clone(),
        "lin": data.root_lin_vel_w.clone(),
        "ang": data.root_ang_vel_w.clone(),
    }


# ---------------------------------------------------------------- joints by scale


def test_joints_are_scaled_from_their_default_and_do_not_drift(make_env: MakeEnv) -> None:
    env = scaled(make_env, (0.5, 0.5))
    for _ in range(3):
        assert env.scene["robot"].data.joint_pos.tolist() == [[0.25, -1.0]] * 3
        env.step(torch.ones(3, 2))
        env.reset()


def test_a_scale_of_one_gives_the_default_to_the_bit(make_env: MakeEnv) -> None:
    env = scaled(make_env, (1.0, 1.0), layout=with_default(layout_of(), 0.1, -0.7))
    data = env.scene["robot"].data
    assert torch.equal(data.joint_pos, data.default_joint_pos)
    assert torch.equal(data.joint_vel, data.default_joint_vel)


def test_default_velocities_are_scaled_too(make_env: MakeEnv) -> None:
    moving = replace(with_default(layout_of(), *DEFAULT), default_qvel=(0.5, -3.0))
    env = scaled(make_env, (1.0, 1.0), (2.0, 2.0), layout=moving)
    assert env.scene["robot"].data.joint_vel.tolist() == [[1.0, -6.0]] * 3


def test_scaled_positions_are_kept_within_the_limits_and_other_joints_are_left(make_env: MakeEnv) -> None:
    layout = with_default(layout_of(limits={"robot/slider": (-0.25, 0.75)}), *DEFAULT)
    slider = {"asset_cfg": SceneEntityCfg(joint_names=("slider",))}
    env = scaled(make_env, (9.0, 9.0), layout=layout, params=slider)
    assert env.scene["robot"].data.joint_pos.tolist() == [[0.75, -2.0]] * 3


def test_scales_fill_their_range_and_differ_by_joint_and_row(make_env: MakeEnv) -> None:
    env = scaled(make_env, (0.5, 1.5), num_envs=2000)
    factors = env.scene["robot"].data.joint_pos / torch.tensor(DEFAULT)
    assert factors.amin(dim=0).tolist() == pytest.approx([0.5, 0.5], abs=1e-2)
    assert factors.amax(dim=0).tolist() == pytest.approx([1.5, 1.5], abs=1e-2)
    assert distinct(factors) > 3900


@pytest.mark.parametrize("name", ["position", "velocity"])
def test_an_inverted_scale_is_refused_at_construction(make_env: MakeEnv, name: str) -> None:
    ranges = {"position": (1.0, 1.0), "velocity": (1.0, 1.0)} | {name: (1.5, 0.5)}
    with pytest.raises(
        ConfigError, match=rf"events term 'place': ValueError: {name}_range \(1.5, 0.5\) is inverted"
    ):
        scaled(make_env, **ranges)


# ---------------------------------------------------------------- root


def test_root_offsets_are_added_to_the_default_state(make_env: MakeEnv) -> None:
    pose = {"x": (1.0, 1.0), "z": (0.5, 0.5), "yaw": (math.pi / 2, math.pi / 2)}
    velocity = {"y": (2.0, 2.0), "yaw": (-3.0, -3.0), "roll": (0.5, 0.5)}
    env = placed(make_env, pose, velocity, num_envs=2)
    for _ in range(3):  # and no drift
        now = root(env)
        assert now["pos"].tolist() == [[1.0, 0.0, 0.5]] * 2
        torch.testing.assert_close(now["quat"], quat_from_yaw(torch.tensor([math.pi / 2] * 2)))
        torch.testing.assert_close(now["lin"], torch.tensor([[0.0, 2.0, 0.0]] * 2))
        # About the world's axes, although the body has turned by a quarter.
        torch.testing.assert_close(now["ang"], torch.tensor([[0.5, 0.0, -3.0]] * 2))
        run(env, 1)
        env.reset()


def test_a_root_that_is_not_moved_holds_its_default_to_the_bit(make_env: MakeEnv) -> None:
    env = placed(make_env, {}, {})
    assert root(env)["pos"].tolist() == [[0.0] * 3] * 3
    assert root(env)["quat"].tolist() == [[1.0, 0.0, 0.0, 0.0]] * 3
    assert root(env)["lin"].tolist() == root(env)["ang"].tolist() == [[0.0] * 3] * 3


def test_a_default_velocity_keeps_its_direction_in_the_world_when_the_root_is_turned(
    make_env: MakeEnv,
) -> None:
    layout = replace(free_layout(), default_qvel=(1.0, 2.0, 3.0, 0.5, 0.0, 0.25, 0.0))
    env = placed(make_env, {"yaw": (1.0, 1.0)}, {"x": (0.5, 0.5)}, layout=layout)
    torch.testing.assert_close(root(env)["lin"], torch.tensor([[1.5, 2.0, 3.0]] * 3))
    torch.testing.assert_close(root(env)["ang"], torch.tensor([[0.5, 0.0, 0.25]] * 3))


def test_roll_pitch_and_yaw_turn_about_the_roots_own_axes(make_env: MakeEnv) -> None:
    upside = (0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0)  # turned by pi about x, then the joint
    layout = with_default(free_layout(), *upside)
    env = placed(make_env, {"yaw": (math.pi / 2, math.pi / 2)}, {}, layout=layout)
    # Its own z points down: the same turn is one by -pi/2 about the world's z. q = q_x(pi) q_z(pi/2).
    half = math.sqrt(0.5)
    torch.testing.assert_close(root(env)["quat"], torch.tensor([[0.0, half, -half, 0.0]] * 3))


def test_euler_angles_are_applied_about_x_then_y_then_z() -> None:
    quarter = math.pi / 2
    half = math.sqrt(0.5)
    for angles, expected in (
        ((quarter, 0.0, 0.0), (half, half, 0.0, 0.0)),
        ((0.0, quarter, 0.0), (half, 0.0, half, 0.0)),
        ((0.0, 0.0, quarter), (half, 0.0, 0.0, half)),
        # About x, then y: the z axis goes to -y and stays there; (w, x, y, z) of q_y q_x.
        ((quarter, quarter, 0.0), (0.5, 0.5, 0.5, -0.5)),
        ((quarter, 0.0, quarter), (0.5, 0.5, 0.5, 0.5)),
        ((0.0, quarter, quarter), (0.5, -0.5, 0.5, 0.5)),
    ):
        torch.testing.assert_close(quat_from_euler(torch.tensor([angles])), torch.tensor([expected]))
    assert quat_from_euler(torch.zeros(1, 3)).tolist() == [[1.0, 0.0, 0.0, 0.0]]


def test_root_offsets_are_added_to_what_an_earlier_event_put_there(make_env: MakeEnv) -> None:
    def event(**pose: Any) -> EventTermCfg:
        params = {"pose_range": pose, "velocity_range": {}}
        return EventTermCfg(func=reset_root_state_uniform, mode="reset", params=params)

    env = make_env(layout=free_layout(), events={"far": event(x=(5.0, 5.0)), "near": event(x=(0.25, 0.25))})
    assert root(env)["pos"].tolist() == [[5.25, 0.0, 0.0]] * 3


def test_qa_079_every_episode_and_every_row_begins_at_another_place(make_env: MakeEnv) -> None:
    env = placed(
        make_env,
        {"x": (-1.0, 1.0)},
        {},
        num_envs=2,
        terminations={"end": TerminationTermCfg(func=mdp.time_out)},
        episode_length_s=0.02,
    )
    places = []
    for _ in range(10):
        run(env, 1)
        places.append(root(env)["pos"][:, 0])
    values = torch.stack(places)
    assert distinct(values) == 20
    assert bool((values.abs() <= 1.0).all())


def test_only_rows_being_reset_are_placed(make_env: MakeEnv) -> None:
    env = placed(make_env, {"x": (-1.0, 1.0), "yaw": (-1.0, 1.0)}, {"x": (-1.0, 1.0)})
    before = root(env)
    env.reset(ids(1))
    for name, values in root(env).items():
        assert torch.equal(values[[0, 2]], before[name][[0, 2]]), name
    assert not torch.equal(root(env)["pos"][1], before["pos"][1])


@pytest.mark.parametrize(
    ("pose", "velocity", "message"),
    [
        ({"x": (1.0, -1.0)}, {}, r"pose_range\['x'\] \(1.0, -1.0\) is inverted"),
        ({"yew": (0.0, 1.0)}, {}, "pose_range has no component 'yew'; did you mean 'yaw'"),
        ({}, {"rol": (0.0, 1.0)}, "velocity_range has no component 'rol'; did you mean 'roll'"),
        ({"x": (1.0,)}, {}, r"pose_range\['x'\] is \(1.0,\), expected \(low, high\)"),
        ({"x": 1.0}, {}, r"pose_range\['x'\] is 1.0, expected \(low, high\)"),
    ],
)
def test_a_wrong_component_is_refused_at_construction(
    make_env: MakeEnv, pose: Any, velocity: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"events term 'place': ValueError: {message}"):
        placed(make_env, pose, velocity)


def test_a_fixed_root_is_refused_at_construction(make_env: MakeEnv) -> None:
    with pytest.raises(
        ConfigError, match="events term 'place': ValueError: entity 'robot' is fixed to the world"
    ):
        placed(make_env, {}, {}, layout=layout_of())


# ---------------------------------------------------------------- pushes


def push(**components: Any) -> dict[str, Any]:
    return {"velocity_range": components}


def test_qa_056_a_push_of_one_row_adds_to_its_velocity_and_touches_no_other() -> None:
    event = interval(0.2, func=push_one_row, params=push(x=(1.0, 1.0)))
    cfg = robot_cfg({"push": event}, episode_length_s=10.0)
    calm = cfg.with_({"events.push.params.rows": ()})
    with engine(cfg) as (env, pushed), engine(calm) as (twin, still):
        for each in (env, twin):
            each.reset()
            run(each, 10)  # falling and turning; the timer fires at the end of the tenth step
        fields = {
            "qvel": (env.state_column("qvel"), pushed.get_state_views(("qvel",))["qvel"]),
            "qpos": (env.state_column("qpos"), pushed.get_state_views(("qpos",))["qpos"]),
        }
        before = {name: still.get_state_views((name,))[name] for name in fields}
        for name, (cached, held) in fields.items():
            assert torch.equal(cached, held), name
            assert torch.equal(held[[0, 1, 3]], before[name][[0, 1, 3]]), name
        change = fields["qvel"][1][2] - before["qvel"][2]
        torch.testing.assert_close(change, torch.tensor([1.0, *[0.0] * 7]), rtol=0.0, atol=1e-6)
        assert torch.equal(fields["qpos"][1][2], before["qpos"][2])


@contextmanager
def engine(cfg: ManagerBasedRlEnvCfg) -> Iterator[tuple[ManagerBasedRlEnv, SimBackend]]:
    """Makes an environment and shows the engine behind it."""
    backend = make_backend(
        "mujoco", cfg.scene, cfg.sim, num_envs=cfg.num_envs, declared=Declared(decimation=2)
    )
    with ManagerBasedRlEnv(cfg, backend=backend) as env:
        yield env, backend


def push_one_row(
    env: ManagerBasedRlEnv, env_ids: torch.Tensor, velocity_range: Any, rows: tuple[int, ...] = (2,)
) -> None:
    push_root(env, env_ids[torch.tensor([int(i) in rows for i in env_ids], dtype=torch.bool)], velocity_range)


def test_pushes_add_up_and_are_along_the_worlds_axes(make_env: MakeEnv) -> None:
    layout = with_default(free_layout(), 0.0, 0.0, 0.0, math.sqrt(0.5), 0.0, 0.0, math.sqrt(0.5), 0.0)
    events = {
        "push": interval(0.02, func=push_root, params=push(x=(1.0, 1.0), yaw=(0.5, 0.5), pitch=(0.25, 0.25)))
    }
    env = make_env(layout=layout, events=events)
    for number in (1.0, 2.0):
        run(env, 1)
        torch.testing.assert_close(root(env)["lin"], torch.tensor([[number, 0.0, 0.0]] * 3))
    # Turning after the first push moves the axes of the body, not those of the second.
    events = {"push": interval(0.02, func=push_root, params=push(pitch=(0.25, 0.25)))}
    env = make_env(layout=layout, events=events)
    run(env, 1)
    torch.testing.assert_close(root(env)["ang"], torch.tensor([[0.0, 0.25, 0.0]] * 3))


def test_pushes_fill_their_range_and_differ_by_row(make_env: MakeEnv) -> None:
    events = {"push": interval(0.02, func=push_root, params=push(x=(-0.5, 1.5), y=(2.0, 3.0)))}
    env = make_env(4000, layout=free_layout(), events=events)
    run(env, 1)
    speed = root(env)["lin"]
    assert speed.amin(dim=0).tolist() == pytest.approx([-0.5, 2.0, 0.0], abs=1e-2)
    assert speed.amax(dim=0).tolist() == pytest.approx([1.5, 3.0, 0.0], abs=1e-2)
    assert distinct(speed[:, 0]) > 3900
    assert float(torch.corrcoef(speed[:, :2].T)[0, 1].abs()) < 0.06


def test_what_one_component_says_does_not_change_the_draws_of_another(make_env: MakeEnv) -> None:
    speeds = []
    for more in ({}, {"x": (-1.0, 1.0)}):
        events = {"push": interval(0.02, func=push_root, params=push(y=(-1.0, 1.0), **more))}
        env = make_env(layout=free_layout(), events=events, seed=9)
        run(env, 1)
        speeds.append(root(env)["lin"][:, 1])
    assert torch.equal(*speeds)


def test_a_wrong_push_is_refused_at_construction(make_env: MakeEnv) -> None:
    events = {"push": interval(9.0, func=push_root, params=push(vx=(0.0, 1.0)))}
    with pytest.raises(
        ConfigError, match="events term 'push': ValueError: velocity_range has no component 'vx'"
    ):
        make_env(layout=free_layout(), events=events)


# ---------------------------------------------------------------- the default state


def shoved(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Puts everything elsewhere, moving."""
    data, n = env.scene["robot"].data, env_ids.numel()
    data.write_root_pose(torch.tensor([[4.0, 5.0, 6.0, 0.0, 1.0, 0.0, 0.0]]).expand(n, 7), env_ids)
    data.write_root_velocity(torch.ones(n, 3), torch.full((n, 3), 2.0), env_ids)
    data.write_joint_state(torch.full((n, 1), 0.75), torch.full((n, 1), 3.0), env_ids)


def whole(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the whole state, (N, 8 + 7)."""
    return torch.cat([env.state_column("qpos"), env.state_column("qvel")], dim=1).clone()


HOME = (1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 1.0, 0.25)


def test_what_an_earlier_event_put_elsewhere_goes_back_to_the_default_state(make_env: MakeEnv) -> None:
    events = {
        "shoved": EventTermCfg(func=shoved, mode="reset"),
        "back": EventTermCfg(func=mdp.reset_to_default, mode="reset"),
    }
    env = make_env(2, layout=with_default(free_layout(), *HOME), events=events)
    assert whole(env).tolist() == [[*HOME, *[0.0] * 7]] * 2


def test_in_mid_episode_only_the_rows_of_the_timer_go_back(make_env: MakeEnv) -> None:
    events = {
        "shoved": EventTermCfg(func=shoved, mode="reset"),
        "back": EventTermCfg(func=mdp.reset_to_default, mode="interval", interval_range_s=(3 * DT, 3 * DT)),
    }
    env = make_env(2, layout=with_default(free_layout(), *HOME), events=events)
    run(env, 1)
    env.reset(ids(1))
    run(env, 2)  # the third step of row 0
    assert whole(env)[0].tolist() == [*HOME, *[0.0] * 7]
    assert whole(env)[1, 8].item() == 1.0
    assert env.episode_length.tolist() == [3, 2]


def moved(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    both = torch.full((env_ids.numel(), 2), 0.75)
    env.scene["robot"].data.write_joint_state(both, both, env_ids)


def test_joints_that_are_not_named_stay(make_env: MakeEnv) -> None:
    params = {"asset_cfg": SceneEntityCfg(joint_names=("hinge",))}
    events = {
        "moved": EventTermCfg(func=moved, mode="reset"),
        "back": EventTermCfg(func=mdp.reset_to_default, mode="reset", params=params),
    }
    env = make_env(1, layout=with_default(layout_of(), *DEFAULT), events=events)
    assert env.state_column("qpos").tolist() == [[0.75, DEFAULT[1]]]
    assert env.state_column("qvel").tolist() == [[0.75, 0.0]]
