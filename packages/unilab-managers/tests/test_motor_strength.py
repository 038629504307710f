"""The strength of motors and servos: one factor on all that they give."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from event_support import (
    KD,
    KP,
    distinct,
    env_of,
    event,
    fake_model_env,
    full_layout,
    held,
    nominal,
    robot_cfg,
    run,
)
from manager_support import build_slider, ids, mujoco_cfg

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv, mdp
from unilab_managers.mdp import randomize_actuator_gains, randomize_effort_limits, randomize_motor_strength
from unisim import EntityCfg, SceneCfg

KNEE = SceneEntityCfg(actuator_names=("knee",))
FIELDS = ("actuator_gainprm", "actuator_biasprm")


def strength(low: float, high: float | None = None, **params: Any) -> dict[str, Any]:
    return {"strength_range": (low, low if high is None else high), **params}


def test_gain_and_bias_are_scaled_by_one_factor_and_limits_stay() -> None:
    with env_of(randomize_motor_strength, 1, **strength(0.5, asset_cfg=KNEE)) as env:
        hip, knee = held(env, "actuator_gainprm")[0, :, 0].tolist()
        assert (hip, knee) == (KP, 0.5 * KP)
        assert held(env, "actuator_biasprm")[0, 1, :3].tolist() == [0.0, -0.5 * KP, -0.5 * KD]
        assert held(env, "actuator_biasprm")[0, 0, :3].tolist() == [0.0, -KP, -KD]


def test_every_row_and_actuator_draws_one_factor_for_all_its_numbers() -> None:
    with env_of(randomize_motor_strength, 16, **strength(0.8, 1.2)) as env:
        gain, bias = (held(env, name) for name in FIELDS)
        factors = gain[..., 0] / KP
        assert distinct(factors) == 32
        assert factors.min() >= 0.8
        assert factors.max() <= 1.2
        torch.testing.assert_close(bias[..., 1], -KP * factors, atol=1e-5, rtol=0)
        torch.testing.assert_close(bias[..., 2], -KD * factors, atol=1e-6, rtol=0)


def test_a_row_may_share_one_factor() -> None:
    with env_of(randomize_motor_strength, 8, **strength(0.8, 1.2, sharing="shared")) as env:
        factors = held(env, "actuator_gainprm")[..., 0] / KP
        assert torch.equal(factors[:, 0], factors[:, 1])
        assert distinct(factors[:, 0]) == 8


def test_a_factor_of_one_leaves_the_engines_own_numbers_to_the_bit() -> None:
    with env_of(randomize_motor_strength, 2, **strength(1.0)) as env:
        for name in FIELDS:
            assert torch.equal(held(env, name), nominal(env, name).expand_as(held(env, name)))


def test_repeated_resets_do_not_drift_and_other_rows_keep_theirs() -> None:
    with env_of(randomize_motor_strength, 3, **strength(0.5, 1.5)) as env:
        before = held(env, "actuator_gainprm").clone()
        for _ in range(5):
            env.reset(ids(1))
        after = held(env, "actuator_gainprm")
        assert torch.equal(after[[0, 2]], before[[0, 2]])
        assert (after[1, :, 0] >= 0.5 * KP).all()
        assert (after[1, :, 0] <= 1.5 * KP).all()
        assert (after[1, :, 0] != before[1, :, 0]).all()


@pytest.mark.parametrize("first", ["gains", "strength"])
def test_it_composes_with_gains_in_the_order_of_declaration(first: str) -> None:
    terms = {
        "gains": event(randomize_actuator_gains, kp_range=(30.0, 30.0), operation="abs"),
        "strength": event(randomize_motor_strength, **strength(0.5)),
    }
    order = [first, *(name for name in terms if name != first)]
    with fake_model_env({name: terms[name] for name in order}, 1) as env:
        for _ in range(3):
            env.reset()
            kp = 15.0 if first == "gains" else 30.0  # an absolute gain replaces what came before
            assert held(env, "actuator_gainprm")[0, :, 0].tolist() == [kp, kp]
            assert held(env, "actuator_biasprm")[0, 0, :3].tolist() == [0.0, -kp, -0.5 * KD]


def test_limits_are_scaled_by_their_own_term() -> None:
    terms = {
        "strength": event(randomize_motor_strength, **strength(0.5)),
        "limits": event(randomize_effort_limits, scale_range=(0.5, 0.5)),
    }
    with fake_model_env(terms, 1) as env:
        env.reset()
        assert held(env, "actuator_forcerange")[0].tolist() == [[-5.0, 5.0], [-15.0, 10.0]]


@pytest.mark.parametrize("kind", ["motor", "servo"])
def test_what_is_neither_motor_nor_servo_is_refused(kind: Any) -> None:
    layout = full_layout()
    hip, knee = layout.actuators
    layout = replace(layout, actuators=(replace(hip, kind=kind), replace(knee, kind="other")))
    with pytest.raises(ConfigError, match=r"actuators \['knee'\] are neither motors nor servos"):
        fake_model_env({"change": event(randomize_motor_strength, **strength(0.5))}, 1, layout=layout)
    hip_only = SceneEntityCfg(actuator_names=("hip",))
    term = event(randomize_motor_strength, **strength(0.5, asset_cfg=hip_only))
    with fake_model_env({"change": term}, 1, layout=layout) as env:
        env.reset()
        assert held(env, "actuator_gainprm")[0, :, 0].tolist() == [0.5 * KP, KP]


# ---------------------------------------------------------------- on the real engine


def test_half_a_motor_accelerates_by_half() -> None:
    cfg = mujoco_cfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_slider)}),
        num_envs=2,
        episode_length_s=100.0,
        actions={"push": mdp.JointEffortActionCfg(joint_names=("slider",))},
        events={"weak": event(half_in_row_1)},
    )
    with ManagerBasedRlEnv(cfg) as env:
        env.reset()
        env.step(torch.full((2, 1), 0.5))
        speed = env.state_column("qvel")[:, 0]
        assert speed[1].item() == pytest.approx(0.5 * speed[0].item(), rel=1e-4)


class half_in_row_1(randomize_motor_strength):
    """Scales row 1 only."""

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, factor: float = 0.5) -> None:  # type: ignore[override]
        super().__call__(env, env_ids[env_ids == 1], (factor, factor))


def test_motion_changes_in_the_weakened_row_only() -> None:
    def motion(events: dict[str, Any]) -> torch.Tensor:
        with ManagerBasedRlEnv(robot_cfg(events, num_envs=3, episode_length_s=100.0)) as env:
            env.reset()
            run(env, 5)
            for _ in range(5):
                env.step(torch.full((3, 2), 0.3))
            return torch.cat([env.state_column("qpos"), env.state_column("qvel")], dim=1).clone()

    plain, weak = (
        motion({"none": event(randomize_motor_strength, **strength(1.0))}),
        motion({"w": event(half_in_row_1)}),
    )
    assert torch.equal(weak[[0, 2]], plain[[0, 2]])
    assert (weak[1] - plain[1]).abs().max() > 1e-3
