"""What an environment says of itself is plain data, and true."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest
import torch
from core_support import ScriptedEnv, zeros
from velocity import VelocityEnv, actions_of, fake_backend, mujoco_backend

from unilab_core import (
    ActionDescription,
    CameraCfg,
    CapabilityError,
    ConfigError,
    EnvDescription,
    TermDescription,
)
from unilab_core.describing import describe_actions, describe_actuators, describe_joints
from unisim import TensorExecution
from unisim.randomization import FieldLayout
from unisim.testing import FakeBackend, make_layout

KINDS = ("control", "read", "reset", "selected_read", "write", "verdict", "host")


def test_joints_tell_where_they_start_and_how_far_they_go():
    layout = make_layout(free_root=True, limits={"robot/hinge": (-1.0, 2.0)})
    layout = replace(layout, default_qpos=(0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0, 0.1, -0.2))
    root, slider, hinge = describe_joints(layout)
    assert (root.name, root.kind, root.limits) == ("robot/root", "free", None)
    assert root.default_pos == (0.0, 0.0, 0.5, 1.0, 0.0, 0.0, 0.0)
    assert (slider.name, slider.default_pos, slider.limits) == ("robot/slider", (0.1,), None)
    assert (hinge.name, hinge.default_pos, hinge.limits) == ("robot/hinge", (-0.2,), (-1.0, 2.0))


def test_a_side_without_a_limit_is_none():
    layout = make_layout(limits={"robot/hinge": (0.0, math.inf)})
    actuator = replace(layout.actuators[0], ctrl_range=(-math.inf, 2.0))
    assert describe_joints(layout)[1].limits == (0.0, None)
    assert describe_actuators(replace(layout, actuators=(actuator,)))[0].ctrl_range == (None, 2.0)


def gains(gain, bias):
    rows = [(*values, *(0.0,) * (10 - len(values))) for values in (*gain, *bias)]
    flat = [v for row in rows for v in row]
    half = len(flat) // 2
    return {
        "actuator_gainprm": FieldLayout((len(gain), 10), tuple(flat[:half])),
        "actuator_biasprm": FieldLayout((len(bias), 10), tuple(flat[half:])),
    }


def test_actuators_tell_their_range_and_gains():
    both = ("robot/slider", "robot/hinge")
    # A position servo of kp 20 and kd 0.5, and a motor of gain 3.
    fields = gains([(20.0,), (3.0,)], [(0.0, -20.0, -0.5), (0.0, 0.0, 0.0)])
    layout = make_layout(actuated=both, fields=fields)
    servo, motor = describe_actuators(layout)
    assert (servo.name, servo.joint, servo.ctrl_range) == ("robot/slider", "robot/slider", (-1.0, 1.0))
    assert (servo.gain, servo.kp, servo.kd) == (20.0, 20.0, 0.5)
    assert (motor.gain, motor.kp, motor.kd) == (3.0, 0.0, 0.0)
    assert math.copysign(1.0, motor.kp) == 1.0
    assert [a.kp for a in describe_actuators(make_layout())] == [None]


def test_unbounded_values_are_none_so_that_everything_is_json():
    low, high = torch.tensor([-1.0, -math.inf]), torch.tensor([math.inf, 2.0])
    assert describe_actions(["a", "b"], (low, high)) == (
        ActionDescription("a", bounds=(-1.0, None)),
        ActionDescription("b", bounds=(None, 2.0)),
    )
    with VelocityEnv(mujoco_backend()) as env:
        data = env.describe().to_data()
    text = json.dumps(data, allow_nan=False)
    assert json.loads(text)["joints"][0]["kind"] == "free"
    assert data["control"] == ("robot/hip", "robot/knee")
    assert data["actuators"][0]["gain"] == 1.0


def test_observations_and_units_go_together():
    with ScriptedEnv(critic=True) as env:
        description = env.describe()
    assert {group: len(labels) for group, labels in description.observations.items()} == {
        "obs": 3,
        "critic": 4,
    }
    assert description.units == {"obs": ("",) * 3, "critic": ("",) * 4}
    assert [action.label for action in description.actions] == ["action[0]"]


def test_a_term_is_plain_data():
    term = TermDescription(
        "upright", "mdp:upright", {"std": 0.5}, {"weight": 1.0}, ("upright",), ("body:robot/base",)
    )
    description = EnvDescription(0.02, 10.0, {"obs": ("x",)}, (), (), terms={"rewards": (term,)})
    assert description.to_data()["terms"] == {
        "rewards": (
            {
                "name": "upright",
                "func": "mdp:upright",
                "params": {"std": 0.5},
                "settings": {"weight": 1.0},
                "columns": ("upright",),
                "reads": ("body:robot/base",),
                "is_affine": False,
            },
        )
    }


@pytest.mark.parametrize("backend", [fake_backend, mujoco_backend], ids=["fake", "mujoco"])
def test_the_ledger_says_what_200_steps_move_to_the_byte(backend):
    with VelocityEnv(backend(), seed=4) as env:
        env.reset()
        ledger = env.describe().ledger
        start = env.transfer_stats
        expected = {kind: [0, 0] for kind in KINDS}
        generator = torch.Generator().manual_seed(0)
        reset_before = 0
        for _ in range(200):
            state = env.step(actions_of(env, generator))
            rows = {
                "step": 0,
                "reset": int((state.terminated | state.truncated).sum()),
                "write": 2 if env.step_counter % env.push_every == 0 else 0,
            }
            for packet in ledger:
                # Observations of a reset are judged by the next step's first verdict.
                judged = packet.kind == "verdict" and packet.when == "reset"
                if packet.when == "step" or (reset_before if judged else rows[packet.when]):
                    expected[packet.kind][0] += packet.transfers
                    expected[packet.kind][1] += packet.num_bytes(rows[packet.when])
            reset_before = rows["reset"]
        stop = env.transfer_stats
        for kind, (transfers, size) in expected.items():
            one, two = getattr(start, kind), getattr(stop, kind)
            assert (two.transfers - one.transfers, two.bytes - one.bytes) == (transfers, size), kind


def test_a_task_that_never_writes_in_a_step_has_no_write_in_its_ledger():
    with ScriptedEnv(3) as env:
        assert {(packet.kind, packet.when) for packet in env.describe().ledger} == {
            ("control", "step"),
            ("read", "step"),
            ("verdict", "step"),
            ("reset", "reset"),
            ("selected_read", "reset"),
            ("verdict", "reset"),
        }


def test_a_resident_environment_has_an_empty_ledger():
    with VelocityEnv(fake_backend(execution=TensorExecution.DEVICE_RESIDENT)) as env:
        assert env.describe().ledger == ()


def test_what_is_not_finite_is_named_by_its_actuator():
    with ScriptedEnv() as env:
        env.reset()
        env.inject["_control"] = lambda actions: 1.0 / actions
        with pytest.raises(
            ValueError, match=r"control is not finite at rows \[0, 1, 2\], columns \['robot/slider'\]"
        ):
            env.step(zeros(env))


@pytest.mark.parametrize("bounds", [(torch.ones(2), torch.ones(1)), (torch.ones(1),), -1.0, (-1.0, 1.0)])
def test_qa_102_bounds_of_another_shape_are_refused_at_construction(bounds):
    wrong = type("Wrong", (ScriptedEnv,), {"action_bounds": property(lambda self: bounds)})
    with pytest.raises(ConfigError, match=r"Wrong.action_bounds is .*, expected two tensors of shape \(1,\)"):
        wrong()


# ---------------------------------------------------------------- pictures and models


class Showing(FakeBackend):
    """Notes what it is asked to show."""

    def render(self, row, camera=None):
        self.shown = (row, camera)
        return torch.zeros(2, 2, 3, dtype=torch.uint8)

    def export_model(self, row):
        return f"model of {row}".encode()


def test_pictures_and_models_are_the_backend_s():
    with ScriptedEnv(backend=Showing(make_layout(), 3)) as env:
        camera = CameraCfg(distance=4.0)
        assert env.render(2, camera).shape == (2, 2, 3)
        assert env.backend.shown == (2, camera)
        env.render(1)
        assert env.backend.shown == (1, None)
        assert env.export_model(1) == b"model of 1"
        env.close()
        for call in (lambda: env.render(0), lambda: env.export_model(0)):
            with pytest.raises(RuntimeError, match="the environment is closed"):
                call()


def test_a_backend_that_cannot_show_says_so():
    with ScriptedEnv() as env:
        with pytest.raises(CapabilityError):
            env.render(0)
        with pytest.raises(CapabilityError):
            env.export_model(0)
