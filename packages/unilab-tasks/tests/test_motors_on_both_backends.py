"""Motors and encoders on MuJoCo and on MuJoCo-Warp: what is randomised in one row moves that row only."""

from __future__ import annotations

from typing import Any

import mujoco
import pytest
import torch
import warp

from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    mdp,
)
from unisim import EntityCfg, SceneCfg, SimCfg

pytestmark = pytest.mark.timeout(600)  # a model whose kernels were never compiled takes minutes

ARM = """
<mujoco><worldbody><body name="upper" pos="0 0 1"><joint name="shoulder" axis="0 1 0" damping=".1"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".5" contype="0" conaffinity="0"/>
  <body name="lower" pos="0 0 -.3"><joint name="elbow" axis="0 1 0" damping=".1"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.3" size=".03" mass=".3" contype="0" conaffinity="0"/></body>
</body></worldbody>
<actuator><motor name="shoulder" joint="shoulder" gear="2"/><position name="elbow" joint="elbow" kp="8" kv=".4"/>
</actuator></mujoco>"""
ROWS, STEPS, SUBSTEPS, CHANGED = 3, 10, 4, 1
BACKENDS = ("mujoco", "mujoco_warp")


def arm() -> Any:
    """Returns a new spec of two links: a motor at the shoulder, a servo at the elbow."""
    return mujoco.MjSpec.from_string(ARM)


class strength_of_one_row(mdp.randomize_motor_strength):
    """Scales what the actuators of one row give."""

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, factor: float) -> None:  # type: ignore[override]
        super().__call__(env, env_ids[env_ids == CHANGED], (factor, factor))


class bias_of_one_row(mdp.randomize_encoder_bias):
    """Makes the encoders of one row read wrong."""

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, bias: float) -> None:  # type: ignore[override]
        super().__call__(env, env_ids[env_ids == CHANGED], (bias, bias))


def alive(env: ManagerBasedRlEnv) -> torch.Tensor:
    return torch.ones(env.num_envs, device=env.device)


def config(**events: EventTermCfg) -> ManagerBasedRlEnvCfg:
    observed = {
        "pos": ObservationTermCfg(func=mdp.joint_pos, params={"biased": True}),
        "vel": ObservationTermCfg(func=mdp.joint_vel),
    }
    curve = {"saturation_effort": 3.0, "velocity_limit": 2.0, "effort_limit": 2.0}
    return ManagerBasedRlEnvCfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=arm)}),
        sim=SimCfg(timestep=0.005, num_threads=1),
        decimation=SUBSTEPS,
        episode_length_s=10.0,
        num_envs=ROWS,
        observations={"obs": ObservationGroupCfg(terms=observed)},
        actions={
            "motor": mdp.DcMotorEffortActionCfg(joint_names=("shoulder",), **curve),
            "servo": mdp.JointPositionActionCfg(joint_names=("elbow",)),
        },
        rewards={"alive": RewardTermCfg(func=alive, weight=1.0)},
        terminations={},
        events=events,
    )


def motion(backend: str, **events: EventTermCfg) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what the rows did, (STEPS, N, 4), and which controls the last substeps had, (STEPS, N, 2)."""
    states, controls = [], []
    with ManagerBasedRlEnv(config(**events), backend=backend, device="cpu") as env:
        env.reset()
        for number in range(STEPS):
            env.step(torch.tensor([[4.0 if number < 5 else -4.0, 0.5]]).repeat(ROWS, 1))
            states.append(torch.cat([env.state_column("qpos"), env.state_column("qvel")], dim=1).clone())
            controls.append(env.state_column("ctrl").clone())
    return torch.stack(states), torch.stack(controls)


def event(func: Any, **params: float) -> EventTermCfg:
    return EventTermCfg(func=func, mode="reset", params=params)


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture(scope="module")
def plain(backend: str) -> tuple[torch.Tensor, torch.Tensor]:
    """The motion with a strength of 1, whose fields are written all the same."""
    return motion(backend, strength=event(strength_of_one_row, factor=1.0))


@pytest.mark.parametrize(
    "change",
    [
        {"strength": event(strength_of_one_row, factor=0.5)},
        {"strength": event(strength_of_one_row, factor=1.0), "bias": event(bias_of_one_row, bias=0.3)},
    ],
    ids=["strength", "bias"],
)
def test_motion_changes_in_the_row_that_was_changed_and_in_no_other(
    backend: str, plain: tuple[torch.Tensor, torch.Tensor], change: dict[str, EventTermCfg]
) -> None:
    changed, _ = motion(backend, **change)
    others = [row for row in range(ROWS) if row != CHANGED]
    assert torch.equal(changed[:, others], plain[0][:, others])
    assert (changed[:, CHANGED] - plain[0][:, CHANGED]).abs().max() > 1e-2


def test_the_motor_follows_its_curve_on_each_backend(plain: tuple[torch.Tensor, torch.Tensor]) -> None:
    states, controls = plain
    assert controls[0, 0, 0].item() == pytest.approx(1.0)  # the limit of 2 N m, by a gear of 2
    slowest = controls[:5, 0, 0].min()
    assert 0.05 < slowest < 0.95  # the faster, the weaker
    assert states[:, :, 2].abs().max() < 2.0 * (1.0 + 2.0 / 3.0)


def test_both_backends_move_alike() -> None:
    (states, controls), (other_states, other_controls) = (motion(name) for name in BACKENDS)
    torch.testing.assert_close(states, other_states, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(controls, other_controls, atol=1e-4, rtol=1e-4)


def test_a_motor_that_follows_its_speed_has_its_steps_captured_before_the_first_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    captured = []
    capture = warp.ScopedCapture

    def noted(*arguments: Any, **options: Any) -> Any:
        captured.append(arguments)
        return capture(*arguments, **options)

    monkeypatch.setattr(warp, "ScopedCapture", noted)
    with ManagerBasedRlEnv(config(), backend="mujoco_warp", device="cpu") as env:
        assert env.action_manager.following
        assert captured
        captured.clear()
        env.reset()
        for _ in range(2):
            env.step(torch.zeros(ROWS, 2))
        assert captured == []
