"""One error lists everything that a backend cannot do, and who asked for it."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from core_support import ScriptedCfg, ScriptedEnv

from unilab_core import CapabilityError, NanGuardCfg, check_declared
from unisim import Declared, TensorExecution
from unisim.testing import FakeBackend, make_layout

LAYOUT = make_layout(sensors={"imu": (3, "acceleration")})
ABLE = FakeBackend(LAYOUT, 1).get_tensor_capabilities()
ASKED = {
    "model_field:body_mass": ("events term 'mass'", "events term 'payload'"),
    "wrench:robot/base": ("events term 'push'",),
    "substep:imu": ("rewards term 'impact'",),
    "contact:feet": ("terminations term 'fall'",),
    "body:robot/base": ("rewards term 'height'",),
    "acceleration:qacc": ("rewards term 'jerk'",),
    "host_term:lookup": ("observations term 'obs/lookup'",),
    "row_write:events": ("events term 'kick'",),
    "snapshot:cfg.nan_guard": ("cfg.nan_guard",),
}


def unable():
    return replace(
        ABLE,
        execution=TensorExecution.DEVICE_RESIDENT,
        data_plane="views",
        process_topology="learner_process",
        randomizable_fields=(),
        wrenches=False,
        sensors=(),
        contact_reads=False,
        body_reads=False,
        acceleration_fields=(),
        row_writes=False,
        snapshots=False,
    )


def test_what_can_be_done_passes():
    asked = {key: who for key, who in ASKED.items() if not key.startswith("contact")}
    declared = Declared(("body_mass",), ("robot/base",), ("imu",))
    assert check_declared(ABLE, declared, asked, owner="Task") is None


def test_everything_that_cannot_be_done_is_listed_once_with_those_who_asked():
    with pytest.raises(CapabilityError) as caught:
        check_declared(unable(), Declared(model_fields=("body_mass",)), ASKED, owner="Task")
    head, _, rest = str(caught.value).partition("asked: ")
    assert head == "Task: the backend cannot do what is "
    assert rest.split("; ") == [
        "model field 'body_mass' cannot differ per row (asked by events term 'mass', events term 'payload')",
        "body 'robot/base' cannot be pushed: there are no wrenches (asked by events term 'push')",
        "sensor 'imu' is none of its sensors, and has no substep history (asked by rewards term 'impact')",
        "contact sensor 'feet' cannot be read: there are no contact reads (asked by terminations term 'fall')",
        "body 'robot/base' cannot be read: there are no body reads (asked by rewards term 'height')",
        "'qacc' of the last substep cannot be read (asked by rewards term 'jerk')",
        "host term 'lookup' cannot run: the state lives on a device, and nothing is copied to the host "
        "(asked by observations term 'obs/lookup')",
        "events cannot write state in a step: there are no row writes (asked by events term 'kick')",
        "cfg.nan_guard copies the engine's state every step, and there are no snapshots (asked by cfg.nan_guard)",
    ]


def test_what_was_declared_is_checked_also_when_nobody_says_who_asked():
    declared = Declared(("body_mass",), ("robot/base",), ("imu",))
    with pytest.raises(CapabilityError) as caught:
        check_declared(unable(), declared, {}, owner="Task")
    assert str(caught.value).endswith(
        "model field 'body_mass' cannot differ per row; body 'robot/base' cannot be pushed: there are no wrenches; "
        "sensor 'imu' is none of its sensors, and has no substep history"
    )


def test_a_kind_that_nobody_knows_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match="unknown kind in 'wrenches:base'; did you mean 'wrench'"):
        check_declared(ABLE, Declared(), {"wrenches:base": ("x",)}, owner="Task")


def test_an_environment_asks_before_it_is_built():
    built = []

    class Asking(ScriptedEnv):
        def _asked(self):
            return {"contact:feet": ("rewards term 'step'",), "snapshot:replay": ("recorders term 'film'",)}

        def _build(self) -> None:
            built.append(1)
            super()._build()

    class Weak(FakeBackend):
        closed = False

        def get_tensor_capabilities(self):
            return replace(super().get_tensor_capabilities(), snapshots=False)

        def close(self):
            self.closed = True
            super().close()

    backend = Weak(LAYOUT, 3)
    with pytest.raises(CapabilityError) as caught:
        Asking(3, backend=backend, cfg=ScriptedCfg(num_envs=3, nan_guard=NanGuardCfg()))
    for part in ("rewards term 'step'", "recorders term 'film'", "cfg.nan_guard; set it to None"):
        assert part in str(caught.value)
    assert not built
    assert backend.closed


class WritesNoRows(FakeBackend):
    """Cannot write state in a step."""

    def get_tensor_capabilities(self):
        return replace(super().get_tensor_capabilities(), row_writes=False)


class PushingEnv(ScriptedEnv):
    """Its events write velocities in a step."""

    def _advance(self) -> None:
        super()._advance()
        self.scene["robot"].data.write_joint_state(torch.zeros(1, 2), torch.ones(1, 2), torch.tensor([0]))


def test_a_push_that_the_backend_cannot_carry_out_is_refused_at_construction():
    with pytest.raises(
        CapabilityError, match="PushingEnv: .* an event or command cannot write state in a step"
    ):
        PushingEnv(3, backend=WritesNoRows(LAYOUT, 3))
    with ScriptedEnv(3, backend=WritesNoRows(LAYOUT, 3)) as env:  # nobody writes
        env.reset()
