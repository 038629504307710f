"""Pose commands on the real engine, and a command that moves the robot."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from command_support import asked, build_hand, episodes, steps
from manager_support import base_cfg, group, ids

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.env import TorchEnv
from unilab_core.errors import ConfigError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ObservationTermCfg
from unilab_managers.managers.command_manager import CommandTerm, CommandTermCfg
from unilab_managers.mdp.commands import UniformPoseCommand, UniformPoseCommandCfg
from unisim import EntityCfg, SceneCfg, SimCfg

HALF = math.sqrt(0.5)
TRUNK = SceneEntityCfg(body_names=("trunk",))


def pose_cfg(**changes: Any) -> UniformPoseCommandCfg:
    fields: dict[str, Any] = {
        "body_name": "hand",
        "resampling_time_range": (1.0, 1.0),
        "pos_x": (0.3, 0.3),
        "pos_y": (0.4, 0.4),
        "pos_z": (0.0, 0.0),
    }
    return UniformPoseCommandCfg(**(fields | changes))


def turned(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Puts the trunk at (1, 2, 3), turned to face +y."""
    pose = torch.tensor([1.0, 2.0, 3.0, HALF, 0.0, 0.0, HALF]).repeat(env_ids.numel(), 1)
    env.scene["robot"].data.write_root_pose(pose, env_ids)


def root_velocity(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene["robot"].data.root_lin_vel_w.clone()


def trunk_velocity(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene["robot"].data.bodies(TRUNK).lin_vel_w[:, 0]


@contextmanager
def hand_env(command: CommandTermCfg, num_envs: int = 2, **changes: Any) -> Iterator[ManagerBasedRlEnv]:
    cfg = base_cfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_hand)}),
        sim=SimCfg(timestep=0.01, num_threads=1, gravity=(0.0, 0.0, 0.0)),
        decimation=2,
        num_envs=num_envs,
        observations={
            "obs": group(
                root=ObservationTermCfg(func=root_velocity), trunk=ObservationTermCfg(func=trunk_velocity)
            )
        },
        commands={"goal": command},
        **changes,
    )
    with ManagerBasedRlEnv(cfg) as env:
        env.reset()
        yield env


def goal(env: ManagerBasedRlEnv) -> UniformPoseCommand:
    term = env.command_manager.get_term("goal")
    assert isinstance(term, UniformPoseCommand)
    return term


TURN = {"turn": EventTermCfg(func=turned, mode="reset")}


@pytest.mark.parametrize(
    ("frame", "distance", "angle"),
    [
        # In the root's frame the hand is at (0.3, 0, 0), unturned: 0.4 m off, and a quarter turn.
        ("root", 0.4, math.pi / 2),
        # In the world it is at (1, 2.3, 3), turned by a quarter already.
        ("world", math.sqrt(0.7**2 + 1.9**2 + 3.0**2), 0.0),
    ],
)
def test_errors_are_in_the_frame_of_the_command(frame: str, distance: float, angle: float) -> None:
    with hand_env(pose_cfg(frame=frame, yaw=(math.pi / 2, math.pi / 2)), events=TURN) as env:
        steps(env, 3)
        log = env.command_manager.reset()
        assert episodes(log, "Metrics/goal/position_error") == pytest.approx([2 * distance, 2], abs=1e-4)
        assert episodes(log, "Metrics/goal/orientation_error") == pytest.approx([2 * angle, 2], abs=1e-3)


@pytest.mark.parametrize("angle", [0.01, 1.0, 3.0])
def test_the_orientation_error_is_the_angle_between_them_whatever_the_sign(angle: float) -> None:
    with hand_env(pose_cfg(pitch=(-angle, -angle))) as env:
        steps(env, 1)
        log = env.command_manager.reset(ids(0))
        assert episodes(log, "Metrics/goal/orientation_error") == pytest.approx([angle, 1], rel=1e-4)


def test_the_orientation_error_is_never_more_than_half_a_turn() -> None:
    with hand_env(pose_cfg(frame="world", yaw=(-3.0, -3.0)), events=TURN) as env:
        steps(env, 1)
        log = env.command_manager.reset(ids(0))
        # From -3 rad to a quarter turn the shorter way leads across the half turn.
        expected = 2 * math.pi - (math.pi / 2 + 3.0)
        assert episodes(log, "Metrics/goal/orientation_error") == pytest.approx([expected, 1], rel=1e-4)


def test_roll_comes_first_and_yaw_last() -> None:
    quarter = (math.pi / 2, math.pi / 2)
    with hand_env(pose_cfg(roll=quarter, yaw=quarter)) as env:
        # About x, then about the fixed z: the y axis goes to z and stays, the z axis goes to -y and then to x.
        assert goal(env).command.tolist() == [pytest.approx([0.3, 0.4, 0.0, 0.5, 0.5, 0.5, 0.5])] * 2
    with hand_env(pose_cfg(pitch=quarter)) as env:
        assert goal(env).command[0, 3:].tolist() == pytest.approx([HALF, 0.0, HALF, 0.0])


def test_every_component_is_drawn_from_its_own_range() -> None:
    wide = {
        "pos_x": (1.0, 2.0), "pos_y": (3.0, 4.0), "pos_z": (5.0, 6.0), "yaw": (-0.5, 0.5),
    }  # fmt: skip
    with hand_env(pose_cfg(**wide), 64) as env:
        command = goal(env).command
        for column, low in enumerate((1.0, 3.0, 5.0)):
            assert low <= float(command[:, column].min()) < low + 0.2
            assert low + 0.8 < float(command[:, column].max()) <= low + 1.0
        assert bool((command[:, 6].abs() <= math.sin(0.25)).all())
        assert command[:, 4:6].abs().max() == 0.0
        before = command.clone()
        goal(env).set_ranges(pos_x=(9.0, 9.0))
        env.reset(ids(5))
        assert ((command != before).any(dim=1).nonzero().flatten().tolist(), float(command[5, 0])) == (
            [5],
            9.0,
        )
        assert not asked(env.command_manager.compute).waits
        assert goal(env).labels == ("pos_x", "pos_y", "pos_z", "quat_w", "quat_x", "quat_y", "quat_z")


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("hnad", "commands term 'goal': .*did you mean 'hand'"),
        (".*", r"body_name '\.\*' selects \['trunk', 'hand'\], expected one body"),
    ],
)
def test_the_body_is_one_that_the_entity_has(pattern: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message), hand_env(pose_cfg(body_name=pattern)):
        pass


def test_ranges_and_frames_that_make_no_sense_are_refused() -> None:
    for changes in ({"roll": (1.0, 0.0)}, {"frame": "body"}):
        with pytest.raises(ConfigError, match=next(iter(changes))):
            pose_cfg(**changes)


# ---------------------------------------------------------------- a command that writes state


class LaunchCfg(CommandTermCfg):
    resampling_time_range: tuple[float, float] = (0.1, 0.1)

    def make(self, env: TorchEnv, name: str) -> Launch:
        return Launch(self, env, name)


class Launch(CommandTerm):
    """Starts its rows at 1 m/s along x whenever it is redrawn, and spins them."""

    @property
    def command(self) -> torch.Tensor:
        return torch.ones(self._env.num_envs, 1)

    def _resample_command(self, reset_mask: torch.Tensor) -> None:
        rows = reset_mask.nonzero().flatten()
        velocity = torch.tensor([1.0, 0.0, 0.0]).repeat(rows.numel(), 1)
        spin = torch.tensor([0.0, 0.5, 1.0]).repeat(rows.numel(), 1)
        self.entity.data.write_root_velocity(velocity, spin, rows)


def test_qa_025_a_velocity_that_a_command_writes_in_mid_episode_is_observed_in_that_step() -> None:
    with hand_env(LaunchCfg(), events=TURN) as env:
        for step in range(1, 12):
            if step == 3:
                env.reset(ids(1))  # its next redraw is in step 8
            obs = steps(env, 1).obs["obs"]
            from_qvel, from_body = obs[:, :3], obs[:, 3:]
            assert torch.allclose(from_qvel, from_body, atol=1e-5)
            for row, redrawn in ((0, step in (5, 10)), (1, step == 7)):
                written = torch.allclose(from_qvel[row], torch.tensor([1.0, 0.0, 0.0]), atol=1e-6)
                # The trunk turns about its centre of mass, beside its frame: a step changes the frame's velocity.
                assert written is redrawn
