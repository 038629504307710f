"""The mirror tables say what physics does: mirrored states and actions lead to mirrored observations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from unilab_core import ConfigError, make_env, rotation
from unilab_managers import EventTermCfg, ManagerBasedRlEnv
from unilab_rl.contracts.mirror import Mirror, Reflection
from unilab_tasks.robots.quad12 import build_quad12
from unilab_tasks.velocity.env_cfg import evaluation, velocity_flat_quadruped
from unilab_tasks.velocity.symmetry import quadruped_mirror

PAIRS = 6
LEFT_OF = (3, 4, 5, 0, 1, 2, 9, 10, 11, 6, 7, 8)
"""For each joint in the order FR, FL, RR, RL x hip, thigh, calf the one on the other side."""
HIPS = (-1.0, 1.0, 1.0) * 4
COMMANDS = ((0.5, 0.25, -0.5), (0.5, -0.25, 0.5), (0.0, 0.0, 0.0), (0.0, 0.0, 0.0))
"""Rows take them in turn: each is followed by its mirror image."""


def build_symmetric(**options: Any) -> Any:
    """The robot with its trunk's centre of mass in the middle, which is 2 mm off in the table."""
    spec = build_quad12(**options)
    spec.body("trunk").ipos[1] = 0.0
    return spec


def place_pairs(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Stages random states, in contact and in the air; every second row is the mirror image of the one before."""
    data, rng = env.scene["robot"].data, env.rng
    k = env_ids.numel() // 2
    pos = torch.cat([rng.uniform(-1.0, 1.0, (k, 2)), rng.uniform(0.25, 0.32, (k, 1))], dim=1)
    axis = torch.nn.functional.normalize(rng.normal(0.0, 1.0, (k, 3)), dim=-1)
    angle = rng.uniform(-0.4, 0.4, (k, 1))
    quat = torch.cat([(angle / 2).cos(), axis * (angle / 2).sin()], dim=1)
    linear, angular = rng.uniform(-0.5, 0.5, (k, 3)), rng.uniform(-1.0, 1.0, (k, 3))
    joints = data.default_joint_pos[:k] + rng.uniform(-0.2, 0.2, (k, 12))
    speeds = rng.uniform(-1.0, 1.0, (k, 12))

    def both(values: torch.Tensor, *signs: float) -> torch.Tensor:
        return torch.stack([values, values * torch.tensor(signs)], dim=1).flatten(0, 1)

    def both_sides(values: torch.Tensor) -> torch.Tensor:
        return torch.stack([values, values[:, LEFT_OF] * torch.tensor(HIPS)], dim=1).flatten(0, 1)

    # Of a rotation about (x, y, z), the mirror image turns about (-x, y, -z).
    pose = torch.cat([both(pos, 1.0, -1.0, 1.0), both(quat, 1.0, -1.0, 1.0, -1.0)], dim=1)
    data.write_root_pose(pose, env_ids)
    data.write_root_velocity(both(linear, 1.0, -1.0, 1.0), both(angular, -1.0, 1.0, -1.0), env_ids)
    data.write_joint_state(both_sides(joints), both_sides(speeds), env_ids)


def make_pairs() -> ManagerBasedRlEnv:
    cfg = evaluation(velocity_flat_quadruped())
    robot = cfg.scene.entities["robot"].model_copy(update={"spec": build_symmetric})
    return make_env(
        cfg.model_copy(
            update={
                "scene": cfg.scene.model_copy(update={"entities": {**cfg.scene.entities, "robot": robot}}),
                "events": {"place": EventTermCfg(func=place_pairs, mode="reset")},
                "commands": {
                    **cfg.commands,
                    "twist": cfg.commands["twist"].model_copy(update={"fixed": COMMANDS}),
                },
                "terminations": {"time_out": cfg.terminations["time_out"]},
                "num_envs": 2 * PAIRS,
            }
        ),
        autoreset=False,
    )


def mirrored(reflection: Reflection, values: torch.Tensor) -> torch.Tensor:
    return values[:, reflection.permutation] * torch.tensor(reflection.signs)


def test_a_mirrored_robot_that_does_the_mirrored_thing_sees_the_mirrored_world():
    with make_pairs() as env:
        env.reset()
        mirror = quadruped_mirror(env.describe())
        mirror.check_fits(env.obs_groups_spec, env.num_actions)
        clock = env.command_manager.get_term("gait")
        clock.phase[1::2] = (clock.phase[0::2] + 0.5) % 1.0  # what is left in one gait is right in the other
        clock.refresh(torch.arange(2 * PAIRS))
        contacts = 0.0
        for _ in range(10):
            actions = env.rng.uniform(-1.0, 1.0, (PAIRS, 12))
            pairs = torch.stack([actions, mirrored(mirror.actions, actions)], dim=1).flatten(0, 1)
            state = env.step(pairs)
            for group, values in state.obs.items():
                image = mirrored(mirror.observations[group], values[0::2])
                assert torch.allclose(image, values[1::2], atol=2e-4), group
                assert not torch.allclose(values[0::2], values[1::2], atol=1e-2)
            assert torch.allclose(state.reward[0::2], state.reward[1::2], atol=1e-4)
            contacts += state.obs["critic"][:, 50:54].sum().item()
        assert contacts > 50  # feet were on the ground, left and right


def test_every_column_is_known_by_its_label():
    with make_env("velocity-flat-quadruped", num_envs=2) as env:
        description = env.describe()
        mirror = quadruped_mirror(description)
    labels = description.observations["obs"]
    reflection = mirror.observations["obs"]
    image = {
        label: (labels[source], sign)
        for label, source, sign in zip(labels, reflection.permutation, reflection.signs, strict=True)
    }
    assert image["base_ang_vel[x]"] == ("base_ang_vel[x]", -1.0)
    assert image["base_lin_vel[y]"] == ("base_lin_vel[y]", -1.0)
    assert image["command[lin_vel_x]"] == ("command[lin_vel_x]", 1.0)
    assert image["joint_pos[FR_hip]"] == ("joint_pos[FL_hip]", -1.0)
    assert image["joint_vel[RL_calf]"] == ("joint_vel[RR_calf]", 1.0)
    assert mirror.actions == Reflection(LEFT_OF, HIPS)
    assert isinstance(mirror, Mirror)


def test_each_frame_of_a_history_is_its_own_mirror_image():
    frames = {"observations.obs.history_length": 2}
    with make_env("velocity-flat-quadruped", num_envs=2, overrides=frames) as env:
        description = env.describe()
        mirror = quadruped_mirror(description)
    labels = description.observations["obs"]
    permutation = mirror.observations["obs"].permutation
    image = {label: labels[source] for label, source in zip(labels, permutation, strict=True)}
    assert len(image) == 100
    assert image["base_ang_vel[x][t-1]"] == "base_ang_vel[x][t-1]"
    assert image["joint_pos[FR_hip][t-1]"] == "joint_pos[FL_hip][t-1]"
    assert image["joint_pos[FR_hip][t-0]"] == "joint_pos[FL_hip][t-0]"


def test_an_unknown_column_is_refused_by_its_label():
    with make_env("velocity-flat-quadruped", num_envs=2) as env:
        description = env.describe()
    changed = replace(description, observations={"obs": ("base_mass[kg]",)})
    with pytest.raises(ConfigError, match=r"nothing is known of column 'base_mass\[kg\]'"):
        quadruped_mirror(changed)


def test_the_rotation_of_the_pairs_is_a_mirror_image():
    """The test's own formula, against a vector rotated by hand: a yaw to the left becomes one to the right."""
    yaw = rotation.quat_from_yaw(torch.tensor([0.3]))
    flipped = yaw * torch.tensor([1.0, -1.0, 1.0, -1.0])
    assert rotation.quat_yaw(flipped).item() == pytest.approx(-0.3)
