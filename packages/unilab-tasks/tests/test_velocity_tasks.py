"""`velocity-flat-quadruped`: what it shows, how its episodes begin and end, what is randomised, how it is measured."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import torch

from unilab_core import get_task, import_object, make_env
from unilab_managers import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from unilab_tasks.robots.quad12 import FEET, LEGS, quad12
from unilab_tasks.robots.quad12_tables import GO1_LIKE
from unilab_tasks.velocity.env_cfg import evaluation, velocity_flat_quadruped
from unilab_tasks.velocity.learners import quadruped_ppo

TASK = "velocity-flat-quadruped"
JOINTS = [f"{leg}_{kind}" for leg in LEGS for kind in ("hip", "thigh", "calf")]


def columns(term: str, *names: str) -> list[str]:
    return [f"{term}[{name}]" for name in names]


def test_the_policy_sees_the_columns_in_the_order_that_its_documentation_gives():
    with make_env(TASK, num_envs=2) as env:
        description = env.describe()
        assert env.obs_groups_spec == {"obs": 50, "critic": 58}
        assert env.num_actions == 12
    xyz, labels = ("x", "y", "z"), [column.label for column in description.actions]
    actor = [
        *columns("base_ang_vel", *xyz),
        *columns("projected_gravity", *xyz),
        *columns("command", "lin_vel_x", "lin_vel_y", "ang_vel_z"),
        *columns("joint_pos", *JOINTS),
        *columns("joint_vel", *JOINTS),
        *columns("last_action", *labels),
        *columns("gait_clock", "sin", "cos"),
        *columns("base_lin_vel", *xyz),
    ]
    assert list(description.observations["obs"]) == actor
    privileged = [
        *columns("foot_contacts", *(f"{leg}_contact" for leg in LEGS)),
        *columns("foot_clearances", *FEET),
    ]
    assert list(description.observations["critic"]) == actor + privileged
    assert [label.rpartition(":")[2] for label in labels] == JOINTS


def test_only_the_policys_observations_are_noisy():
    with make_env(TASK, num_envs=64, autoreset=False) as env:
        env.reset()
        obs = env.step(torch.zeros(64, 12)).obs
        noise = obs["obs"] - obs["critic"][:, :50]
    limits = [0.2] * 3 + [0.05] * 3 + [0.0] * 3 + [0.01] * 12 + [0.075] * 12 + [0.0] * 14 + [0.1] * 3
    largest = noise.abs().amax(dim=0)
    for column, limit in enumerate(limits):
        assert largest[column] <= limit + 1e-6
        assert largest[column] >= 0.8 * limit  # the largest of 64 draws


def test_an_action_of_zero_stands_at_home_and_earns_what_standing_earns():
    cfg = evaluation(velocity_flat_quadruped())
    with make_env(cfg, num_envs=24) as env:
        env.reset()
        for _ in range(100):
            state = env.step(torch.zeros(24, 12))
            assert not state.terminated.any()
        height = env.scene["robot"].data.root_pos_w[:, 2]
        contacts = state.obs["critic"][:, 50:54]
    assert height.min() > 0.24
    assert contacts.min() == 1.0
    # A command of zero is followed perfectly by standing: all but the tilt's penalty of 5.5 per second.
    standing = [i for i in range(24) if i % 12 == 4]
    assert state.reward[standing].min() > 0.98 * (1.5 + 1.0 + 2.0 + 0.45) * 0.02 - 1e-3
    assert state.reward.max() < (1.5 + 1.0 + 2.0 + 0.5) * 0.02 + 1e-6


def test_a_robot_that_leans_over_or_lies_down_has_fallen():
    upright = {"events.place_robot.params.velocity_range": {}, "events.push": None}
    for pose, reason in (({"roll": (1.1, 1.1)}, "tilted"), ({"z": (-0.2, -0.2)}, "low")):
        overrides: dict[str, Any] = {**upright, "events.place_robot.params.pose_range": pose}
        with make_env(TASK, num_envs=2, overrides=overrides, autoreset=False) as env:
            assert isinstance(env, ManagerBasedRlEnv)
            env.reset()
            state = env.step(torch.zeros(2, 12))
            assert state.terminated.tolist() == [True, True]
            assert env.termination_manager.get_term(reason).tolist() == [True, True]


def test_the_reward_is_never_negative_however_the_robot_flails():
    with make_env(TASK, num_envs=32) as env:
        env.reset()
        lowest, sums = math.inf, math.inf
        for _ in range(30):
            state = env.step(env.rng.normal(0.0, 20.0, (32, 12)))
            lowest = min(lowest, state.reward.min().item())
            sums = min(sums, sum(env.reward_manager.term_values().values()).min().item())
    assert lowest == 0.0
    assert sums < -0.1  # what it would be without the floor


def test_a_thousand_resets_keep_every_randomisation_in_its_range_and_the_nominal_values_as_they_are():
    rows, resets = 50, 20
    with make_env(TASK, num_envs=rows) as env:
        fields = env.model_layout.fields
        nominal = {name: fields[name].nominal for name in ("body_mass", "body_inertia", "geom_friction")}
        robot = env.scene["robot"]
        data, ids = robot.data, torch.arange(rows)
        trunk = robot.body_names.index("trunk")
        feet = [robot.geom_names.index(foot) for foot in FEET]
        others = [i for i in range(len(robot.geom_names)) if i not in feet]
        first_mass = None
        seen: dict[str, list[torch.Tensor]] = {
            "friction": [],
            "yaw": [],
            "joints": [],
            "speeds": [],
            "root": [],
        }
        for _ in range(resets):
            env.reset()
            mass, inertia = data.model_values("body_mass", ids), data.model_values("body_inertia", ids)
            friction = data.model_values("geom_friction", ids)
            first_mass = mass if first_mass is None else first_mass
            assert torch.equal(mass, first_mass)  # drawn once, at startup
            ratio = mass[:, trunk] / GO1_LIKE.trunk_mass
            own = torch.tensor(fields["body_inertia"].nominal).reshape(-1, 3)
            start = len(fields["body_mass"].nominal) - len(robot.body_names)
            assert torch.allclose(inertia[:, trunk], own[start + trunk] * ratio[:, None])
            assert torch.equal(friction[:, others], friction[:1, others].expand(rows, -1, -1))
            assert torch.equal(friction[:, feet, 1:], friction[:1, feet, 1:].expand(rows, -1, -1))
            seen["friction"].append(friction[:, feet, 0].flatten())
            seen["yaw"].append(data.heading_w.clone())
            seen["joints"].append((data.joint_pos - data.default_joint_pos).flatten())
            seen["speeds"].append(data.joint_vel.flatten())
            seen["root"].append(torch.cat([data.root_lin_vel_w, data.root_ang_vel_w], dim=1).flatten())
        after = {name: env.model_layout.fields[name].nominal for name in nominal}
    assert after == nominal
    assert first_mass is not None
    seen["mass"] = [first_mass[:, trunk]]
    ranges = {
        "friction": (0.4, 1.2),
        "yaw": (-math.pi, math.pi),
        "joints": (-0.1, 0.1),
        "speeds": (-0.2, 0.2),
        "root": (-0.2, 0.2),
        "mass": (0.9 * GO1_LIKE.trunk_mass, 1.1 * GO1_LIKE.trunk_mass),
    }
    for name, (low, high) in ranges.items():
        values, margin = torch.cat(seen[name]), 0.05 * (high - low)
        assert values.min() >= low - 1e-5, name
        assert values.max() <= high + 1e-5, name
        assert values.min() < low + margin, name
        assert values.max() > high - margin, name


def test_pushes_change_the_velocity_by_up_to_half_a_metre_per_second_every_few_seconds():
    timer = {"events.push.interval_range_s": (0.02, 0.02)}
    with (
        make_env(TASK, num_envs=64, overrides=timer) as pushed,
        make_env(TASK, num_envs=64, overrides={"events.push.params.velocity_range": {}, **timer}) as free,
    ):
        kicks = []
        for env in (pushed, free):
            env.reset(seed=5)
            env.step(torch.zeros(64, 12))
            kicks.append(env.scene["robot"].data.root_lin_vel_w.clone())
    kick = (kicks[0] - kicks[1]).abs()
    assert kick[:, :2].max() <= 0.5 + 1e-4
    assert kick[:, :2].max() > 0.45
    assert kick[:, 2].max() < 1e-4
    assert velocity_flat_quadruped().events["push"].interval_range_s == (3.0, 7.0)


# ---------------------------------------------------------------- how it is measured


def test_an_evaluation_has_neither_noise_nor_pushes_and_asks_for_a_fixed_grid():
    spec = get_task(TASK)
    measured = import_object(spec.evaluation)(velocity_flat_quadruped())
    grid = {(vx, 0.0, wz) for vx, wz in product((-0.5, 0.0, 0.5, 1.0), (-0.5, 0.0, 0.5))}
    with make_env(measured, num_envs=64, autoreset=False) as env:
        assert isinstance(env, ManagerBasedRlEnv)
        assert env.max_episode_length == 500
        env.reset()
        before = env.command_manager.get_command("twist").clone()
        state = env.step(torch.zeros(64, 12))
        assert torch.equal(state.obs["obs"], state.obs["critic"][:, :50])
        assert torch.equal(env.command_manager.get_command("twist"), before)
    assert {tuple(row) for row in before.tolist()} == grid
    counts = [before.tolist().count(list(command)) for command in grid]
    assert min(counts) == 5  # 64 rows over 12 commands
    assert set(measured.events) == {"place_robot", "place_joints"}
    assert measured.commands["twist"].metrics_start_s == 1.0


def test_an_evaluation_keeps_what_was_overridden():
    changed = velocity_flat_quadruped().with_({"rewards.gait.weight": 3.0, "terminations.low": None})
    measured = evaluation(changed)
    assert measured.rewards["gait"].weight == 3.0
    assert "low" not in measured.terminations


def test_the_yaml_round_trip_is_identity_of_both():
    for cfg in (velocity_flat_quadruped(), evaluation(velocity_flat_quadruped())):
        assert ManagerBasedRlEnvCfg.from_yaml(cfg.to_yaml()) == cfg


def test_the_preset_trains_on_what_the_task_publishes():
    cfg = quadruped_ppo()
    assert cfg.symmetry is not None
    assert 256 * cfg.num_steps_per_env % cfg.num_mini_batches == 0
    assert type(cfg).from_yaml(cfg.to_yaml()) == cfg


def test_another_robot_takes_the_place_of_the_first():
    cfg = evaluation(velocity_flat_quadruped()).with_({"scene.entities.robot": quad12("go2_like")})
    with make_env(cfg, num_envs=2) as env:
        env.reset()
        for _ in range(50):
            state = env.step(torch.zeros(2, 12))
            assert not state.terminated.any()
    assert torch.isfinite(state.obs["obs"]).all()
