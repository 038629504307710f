"""DC motors: what they give at which speed, in every substep, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import mujoco
import numpy as np
import pytest
import torch
from action_support import control, driven_layout, same, step
from event_support import robot_cfg
from manager_support import MakeEnv, base_cfg, build_slider, group, ids, mujoco_cfg, zeros

from unilab_core import ConfigError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ObservationTermCfg, mdp
from unisim import EntityCfg, SceneCfg, SimCfg, TensorExecution
from unisim.testing import FakeBackend

Effort, Position = mdp.DcMotorEffortActionCfg, mdp.DcMotorPositionActionCfg
CURVE = {"saturation_effort": 20.0, "velocity_limit": 10.0, "effort_limit": 8.0}
SUBSTEPS, DT = 4, 0.005

# At 20 N m x (1 - v / 10): 20 at rest, 10 at 5 rad/s, 4 at 8, 0 at 10, -4 at 12, -8 at 14; never beyond +-8.
QUADRANTS = [
    (50.0, 0.0, 8.0),
    (50.0, 5.0, 8.0),  # the line is at 10, the limit binds
    (50.0, 6.0, 8.0),  # where they meet
    (50.0, 8.0, 4.0),  # first quadrant: drives forward, weaker the faster
    (3.0, 8.0, 3.0),  # what is asked for is within
    (50.0, 10.0, 0.0),  # no-load speed
    (50.0, 12.0, -4.0),  # beyond it the motor can but brake
    (0.0, 12.0, -4.0),
    (50.0, 14.0, -8.0),
    (50.0, 40.0, -8.0),  # no more than the limit
    (-50.0, 40.0, -8.0),
    (-50.0, 8.0, -8.0),  # fourth quadrant: brakes at full effort
    (-3.0, 8.0, -3.0),
    (-50.0, 0.0, -8.0),
    (-50.0, -5.0, -8.0),
    (-50.0, -8.0, -4.0),  # third quadrant: drives backward
    (-50.0, -10.0, 0.0),
    (-50.0, -12.0, 4.0),
    (-50.0, -14.0, 8.0),
    (50.0, -8.0, 8.0),  # second quadrant: brakes
    (50.0, -40.0, 8.0),
]


def motor_env(
    num_envs: int = 1, *, joints: tuple[str, ...] = ("a",), speeds: Any = None, **cfg: Any
) -> ManagerBasedRlEnv:
    """Returns an environment of 4 substeps on a fake; after substep k (from 0) the joints move at `speeds[k]`."""
    pace = list(speeds or [])

    def script(number: int, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        if not pace:
            return {}
        now = torch.tensor(pace[min(number - 1, len(pace) - 1)], dtype=state["qvel"].dtype)
        return {"qvel": now.expand_as(state["qvel"]), "qpos": torch.zeros_like(state["qpos"])}

    settings = base_cfg(**{"sim": SimCfg(timestep=DT), "decimation": SUBSTEPS, **cfg})
    backend = FakeBackend(driven_layout(*joints, timestep=DT), num_envs, script=script)
    env = ManagerBasedRlEnv(settings, backend=backend)
    env.reset()
    return env


# ---------------------------------------------------------------- the curve


@pytest.mark.parametrize(("asked", "velocity", "given"), QUADRANTS)
def test_a_motor_gives_what_its_curve_allows(asked: float, velocity: float, given: float) -> None:
    curve = (torch.tensor([value]) for value in CURVE.values())
    effort = mdp.dc_motor_effort(torch.tensor([[asked]]), torch.tensor([[velocity]]), *curve)
    assert effort.tolist() == [[pytest.approx(given, abs=1e-6)]]


def test_motors_have_curves_of_their_own() -> None:
    effort = mdp.dc_motor_effort(
        torch.full((1, 2), 9.0),
        torch.full((1, 2), 5.0),
        torch.tensor([10.0, 20.0]),
        torch.tensor([10.0, 10.0]),
        torch.tensor([9.0, 6.0]),
    )
    assert effort.tolist() == [[5.0, 6.0]]


@pytest.mark.parametrize(("asked", "velocity", "given"), QUADRANTS)
def test_an_effort_action_asks_its_motor(asked: float, velocity: float, given: float) -> None:
    with motor_env(actions={"motor": Effort(**CURVE)}, speeds=[velocity]) as env:
        step(env, [0.0])
        assert step(env, [asked]) == [[pytest.approx(given, abs=1e-6)]]


def test_a_position_action_is_a_spring_and_a_damper_behind_the_curve() -> None:
    cfg = Position(**CURVE, stiffness=2.0, damping=0.5, scale=0.5, offset=1.0)
    with motor_env(actions={"motor": cfg}, speeds=[4.0]) as env:
        step(env, [0.0])
        assert step(env, [2.0]) == [[2.0 * 2.0 - 0.5 * 4.0]]
        assert step(env, [9.0]) == [[8.0]]  # 2 x 5.5 - 2 = 9, over the limit
        assert step(env, [-20.0]) == [[-8.0]]


def test_an_action_of_zero_holds_the_default_position(make_env: MakeEnv) -> None:
    layout = driven_layout("a", default=(0.5,))
    env = make_env(1, layout=layout, actions={"motor": Position(**CURVE, stiffness=20.0, damping=1.0)})
    assert step(env, [0.0]) == [[0.0]]
    assert env.scene["robot"].data.joint_pos.tolist() == [[0.5]]


# ---------------------------------------------------------------- substeps


def test_the_effort_is_computed_anew_in_every_substep() -> None:
    seen: list[float] = []

    class Watched(FakeBackend):
        def step_tensor(self, ctrl: torch.Tensor, nsteps: int = 1) -> None:
            assert nsteps == 1
            seen.append(ctrl.item())
            super().step_tensor(ctrl, nsteps)

    speeds = [0.0, 6.0, 8.0, 9.0, 10.0, 12.0, 0.0, 0.0]

    def script(number: int, state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        return {"qvel": torch.full_like(state["qvel"], speeds[number - 1])}

    cfg = base_cfg(sim=SimCfg(timestep=DT), decimation=SUBSTEPS, actions={"motor": Effort(**CURVE)})
    with ManagerBasedRlEnv(cfg, backend=Watched(driven_layout("a", timestep=DT), 1, script=script)) as env:
        env.reset()
        env.step(torch.tensor([[50.0]]))
        env.step(torch.tensor([[50.0]]))
    # Each substep at the speed that the one before it has left.
    assert seen == pytest.approx([8.0, 8.0, 8.0, 4.0, 2.0, 0.0, -4.0, 8.0], abs=1e-5)


def test_a_plain_action_beside_it_holds_its_control() -> None:
    actions = {
        "motor": Effort(**CURVE, joint_names=("b",)),
        "plain": mdp.JointEffortActionCfg(joint_names=("c", "a")),
    }
    with motor_env(joints=("a", "b", "c"), actions=actions, speeds=[8.0]) as env:
        step(env, [0.0, 0.0, 0.0])
        assert step(env, [50.0, 3.0, 5.0]) == [[3.0, pytest.approx(4.0), 5.0]]


def test_delayed_actions_reach_the_motor_late_and_a_reset_drops_them() -> None:
    cfg = Effort(**CURVE, delay_min_lag=2, delay_max_lag=2)
    with motor_env(2, actions={"motor": cfg}) as env:
        assert [step(env, [1.0], [2.0]) for _ in range(3)] == [[[0.0], [0.0]], [[0.0], [0.0]], [[1.0], [2.0]]]
        env.reset(ids(1))
        assert [step(env, [3.0], [4.0]) for _ in range(3)] == [[[1.0], [0.0]], [[1.0], [0.0]], [[3.0], [4.0]]]


def test_a_refused_step_changes_no_target() -> None:
    with motor_env(actions={"motor": Effort(**CURVE)}) as env:
        step(env, [1.0])
        before = env.state_dict()
        with pytest.raises(ValueError, match="not finite"):
            step(env, [float("nan")])
        assert same(env.state_dict(), before)


# ---------------------------------------------------------------- what it costs


def test_each_substep_moves_one_control_and_one_read_and_explain_says_so() -> None:
    with motor_env(3, actions={"legs": Effort(**CURVE)}) as env:
        before = env.transfer_stats
        env.step(zeros(env))
        after = env.transfer_stats
        assert after.control.transfers - before.control.transfers == SUBSTEPS
        assert after.control.bytes - before.control.bytes == SUBSTEPS * 4 * 3 * 1
        assert after.read.transfers - before.read.transfers == SUBSTEPS
        assert after.write == before.write
        text = str(env).replace("\n", " ")
        assert " ".join(text.split()).count("(each substep, for actions term 'legs')") == 2
        assert f" {SUBSTEPS} " in text


def test_an_open_loop_action_pays_once_and_explain_is_silent() -> None:
    with motor_env(3, actions={"legs": mdp.JointEffortActionCfg()}) as env:
        before = env.transfer_stats
        env.step(zeros(env))
        assert env.transfer_stats.control.transfers - before.control.transfers == 1
        assert env.transfer_stats.read.transfers - before.read.transfers == 1
        assert "each substep" not in str(env)


def test_on_a_resident_backend_nothing_moves() -> None:
    layout = driven_layout("a", timestep=DT)
    backend = FakeBackend(layout, 2, execution=TensorExecution.DEVICE_RESIDENT)
    cfg = base_cfg(sim=SimCfg(timestep=DT), decimation=SUBSTEPS, actions={"motor": Effort(**CURVE)})
    with ManagerBasedRlEnv(cfg, backend=backend) as env:
        env.reset()
        assert step(env, [5.0], [50.0]) == [[5.0], [8.0]]
        assert env.transfer_stats == type(env.transfer_stats)()


# ---------------------------------------------------------------- settings


def test_settings_say_what_the_motors_are() -> None:
    cfg = Position(
        joint_names=("a", "b"),
        saturation_effort={"a": 20.0, "b": 30.0},
        velocity_limit=10.0,
        effort_limit=8.0,
        stiffness={"a": 2.0, "b": 3.0},
        damping=0.5,
    )
    with motor_env(joints=("a", "b"), actions={"motor": cfg}) as env:
        said = env.action_manager.settings["motor:b"]
        assert said == {
            "scale": 1.0,
            "offset": 0.0,
            "clip": (None, None),
            "delay": (0, 0),
            "saturation_effort": 30.0,
            "velocity_limit": 10.0,
            "effort_limit": 8.0,
            "stiffness": 3.0,
            "damping": 0.5,
        }


def test_no_more_than_the_limit_is_worth_asking_for() -> None:
    with motor_env(actions={"motor": Effort(**CURVE, scale=2.0)}) as env:
        low, high = env.action_bounds
        assert (low.tolist(), high.tolist()) == ([-4.0], [4.0])
    with motor_env(actions={"motor": Position(**CURVE, stiffness=1.0, damping=0.0)}) as env:
        assert env.action_bounds[1].tolist() == [float("inf")]


@pytest.mark.parametrize("field", ["saturation_effort", "velocity_limit", "effort_limit"])
@pytest.mark.parametrize("value", [0.0, -1.0, {"a": 0.0}])
def test_a_motor_without_strength_is_none(field: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"{field}.*is not positive"):
        Effort(**(CURVE | {field: value}))


def test_negative_gains_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"stiffness.*-1.0 is negative"):
        Position(**CURVE, stiffness=-1.0, damping=0.0)


def test_every_joint_must_have_its_numbers() -> None:
    cfg = Effort(**(CURVE | {"effort_limit": {"b": 1.0}}))
    with pytest.raises(
        ConfigError, match=r"'motor'.*effort_limit \{'b': 1.0\} leaves out the joints \['a'\]"
    ):
        motor_env(joints=("a", "b"), actions={"motor": cfg})


def test_a_servo_is_no_motor() -> None:
    cfg = robot_cfg({}, actions={"motor": Effort(**CURVE)}, num_envs=1)
    with pytest.raises(ConfigError, match=r"actuator 'robot/hip' is no motor.*kind 'servo', gain 20, gear 1"):
        ManagerBasedRlEnv(cfg)


def test_an_actuator_that_takes_less_than_the_limit_is_refused() -> None:
    scene = SceneCfg(entities={"robot": EntityCfg(spec=build_slider)})
    curve = {"saturation_effort": 20.0, "velocity_limit": 10.0, "effort_limit": 12.0}
    cfg = mujoco_cfg(scene=scene, actions={"motor": Effort(**curve)}, num_envs=1)
    # The slider's motor takes +-1 and has a gear of 10.
    with pytest.raises(
        ConfigError, match=r"joint 'slider' is a control of \+-1.2, and its actuator takes -1 to 1"
    ):
        ManagerBasedRlEnv(cfg)


# ---------------------------------------------------------------- on the real engine

REAL = {
    "saturation_effort": {"slider": 20.0, "hinge": 3.0},
    "velocity_limit": {"slider": 2.0, "hinge": 8.0},
    "effort_limit": {"slider": 9.0, "hinge": 2.5},
}
STIFFNESS, DAMPING = np.array([60.0, 12.0]), np.array([4.0, 0.3])


def by_hand(wanted: np.ndarray[Any, Any], qvel: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The motors once more, in double precision, written out joint by joint."""
    given = np.empty(2)
    for i, name in enumerate(("slider", "hinge")):
        stall, fastest, limit = (REAL[field][name] for field in CURVE)
        share = qvel[i] / fastest
        highest = min(max(stall * (1.0 - share), -limit), limit)
        lowest = min(max(stall * (-1.0 - share), -limit), limit)
        given[i] = min(max(wanted[i], lowest), highest)
    return given


def test_motion_is_that_of_the_motor_model_stepped_in_a_python_loop(tmp_path: Path) -> None:
    scene = SceneCfg(entities={"robot": EntityCfg(spec=build_slider, joint_pos={"hinge": 2.0})})
    gains = {
        "stiffness": dict(zip(("slider", "hinge"), STIFFNESS.tolist(), strict=True)),
        "damping": dict(zip(("slider", "hinge"), DAMPING.tolist(), strict=True)),
    }
    cfg = mujoco_cfg(
        scene=scene,
        sim=SimCfg(timestep=DT, num_threads=1),
        decimation=SUBSTEPS,
        num_envs=2,
        episode_length_s=100.0,
        actions={"motor": Position(**REAL, **gains, scale=0.4)},
    )
    clipped = 0
    with ManagerBasedRlEnv(cfg, seed=3) as env:
        env.reset()
        path = tmp_path / "model.mjb"
        path.write_bytes(env.export_model(0))
        model = mujoco.MjModel.from_binary_path(str(path))
        rows = [mujoco.MjData(model) for _ in range(2)]
        for row, data in enumerate(rows):
            data.qpos[:] = env.state_column("qpos")[row].numpy()
            data.qvel[:] = env.state_column("qvel")[row].numpy()
        generator = torch.Generator().manual_seed(1)
        for _ in range(60):
            action = torch.empty(2, 2).uniform_(-1.5, 1.5, generator=generator)
            env.step(action)
            for row, data in enumerate(rows):
                target = np.array([0.0, 2.0]) + 0.4 * action[row].double().numpy()
                for _ in range(SUBSTEPS):
                    wanted = STIFFNESS * (target - data.qpos) - DAMPING * data.qvel
                    given = by_hand(wanted, data.qvel)
                    clipped += int((given != wanted).sum())
                    data.ctrl[:] = given / np.array([10.0, 1.0])  # the gears
                    mujoco.mj_step(model, data)
                assert env.state_column("qpos")[row].tolist() == pytest.approx(data.qpos.tolist(), abs=1e-5)
                assert env.state_column("qvel")[row].tolist() == pytest.approx(data.qvel.tolist(), abs=1e-5)
    assert clipped > 100  # the curve mattered


def efforts(env: ManagerBasedRlEnv) -> torch.Tensor:
    return env.scene["robot"].data.actuator_force


def test_a_motor_of_half_its_strength_gives_half_of_what_the_curve_allows() -> None:
    weak = EventTermCfg(
        func=mdp.randomize_motor_strength, mode="reset", params={"strength_range": (0.5, 0.5)}
    )
    scene = SceneCfg(entities={"robot": EntityCfg(spec=build_slider)})
    cfg = mujoco_cfg(
        scene=scene,
        num_envs=1,
        actions={"motor": Effort(**REAL)},
        events={"weak": weak},
        episode_length_s=10.0,
        observations={"obs": group(force=ObservationTermCfg(func=efforts))},
    )
    with ManagerBasedRlEnv(cfg) as env:
        env.reset()
        env.step(torch.tensor([[100.0, 0.0]]))
        # The control is what a nominal motor would need for the effort.
        assert control(env)[0][0] == pytest.approx(0.9, abs=1e-6)
        assert efforts(env)[0, 0].item() == pytest.approx(0.45, abs=1e-6)
