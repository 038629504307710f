"""Promises about what a backend says of itself and how it is read."""

from __future__ import annotations

import dataclasses
import pickle

import torch

from unisim.capabilities import Diagnostic, TensorCapabilities, TensorExecution
from unisim.contract import SimBackend
from unisim.errors import CapabilityError
from unisim.testing.conformance.base import ConformanceBase
from unisim.testing.conformance.evidence import expect, expect_raises, promise

__all__ = ["ReadPromises"]


class ReadPromises(ConformanceBase):
    """Capabilities, diagnostics, layout and views."""

    @promise
    def test_execution_is_one_of_two_kinds_and_agrees_with_the_capabilities(self) -> None:
        """tensor_execution() -> HOST_BRIDGE or DEVICE_RESIDENT."""
        backend = self.make()
        kind = backend.tensor_execution()
        expect(isinstance(kind, TensorExecution), f"tensor_execution() returned {kind!r}")
        said = backend.get_tensor_capabilities().execution
        expect(said is kind, f"the capabilities say {said}, tensor_execution() says {kind}")

    @promise
    def test_capabilities_are_frozen_and_do_not_contradict_themselves(self) -> None:
        """get_tensor_capabilities() -> frozen and self-consistent."""
        backend = self.make()
        can = backend.get_tensor_capabilities()
        expect(isinstance(can, TensorCapabilities), f"they are a {type(can).__name__}")
        values = {field.name: getattr(can, field.name) for field in dataclasses.fields(TensorCapabilities)}
        TensorCapabilities(**values)  # raises ValueError if they contradict themselves
        expect_raises(dataclasses.FrozenInstanceError, lambda: setattr(can, "wrenches", True), "assignment")
        expect(backend.get_tensor_capabilities() == can, "two calls gave different capabilities")

    @promise
    def test_what_the_capabilities_name_is_there(self) -> None:
        """Nobody decides anything from a backend's name: only from capabilities."""
        backend = self.make()
        can, layout = backend.get_tensor_capabilities(), backend.model_layout
        expect(set(can.sensors) <= {s.name for s in layout.sensors}, "sensors are named that do not exist")
        expect(set(can.randomizable_fields) <= set(layout.fields), "fields are named that do not exist")
        expect(set(self.declared_fields) <= set(can.randomizable_fields), "a declared field is not named")
        expect(can.wrenches or not self.declared_wrench_bodies, "wrenches are declared but not named")
        backend.get_state_views((*can.state_fields, *can.acceleration_fields))
        for name in can.sensors:
            backend.get_sensor_view(name)
        self.reads(backend)

    @promise
    def test_what_the_capabilities_deny_is_a_capability_error(self) -> None:
        """CapabilityError (NotImplementedError): a backend cannot do what was asked."""
        backend = self.make()
        can = backend.get_tensor_capabilities()
        denied = [
            (not can.snapshots, "snapshot()", lambda: backend.snapshot()),
            (not can.snapshots, "restore()", lambda: backend.restore(None)),
            (not can.rendering, "render(0)", lambda: backend.render(0)),
        ]
        self.require(
            any(applies for applies, _, _ in denied), "the capabilities deny nothing that can be asked"
        )
        for applies, what, call in denied:
            if applies:
                expect_raises(CapabilityError, call, what)

    @promise
    def test_every_optimisation_that_is_off_says_why(self) -> None:
        """get_runtime_diagnostics(): each optimisation: requested, enabled, else why not."""
        found = self.make().get_runtime_diagnostics()
        for diagnostic in found:
            expect(isinstance(diagnostic, Diagnostic), f"{diagnostic!r} is no Diagnostic")
            expect(
                diagnostic.enabled or bool(diagnostic.reason), f"{diagnostic.name!r} is off without a reason"
            )

    @promise
    def test_the_layout_is_plain_data_that_never_changes(self) -> None:
        """model_layout: names, indices, ranges, defaults: stable copies, no live engine objects."""
        backend = self.make()
        layout = backend.model_layout
        expect(pickle.loads(pickle.dumps(layout)) == layout, "a pickled copy differs")
        before = repr(layout)
        self.run(backend, 2)
        self.reset(backend, [0])
        expect(repr(backend.model_layout) == before, "a step or a reset changed it")

    @promise
    def test_every_read_is_float32_with_a_row_per_environment(self) -> None:
        """Floating tensors are float32; (N, ...)."""
        backend = self.make()
        layout = backend.model_layout
        widths = {"qpos": layout.nq, "qvel": layout.nv, "ctrl": layout.nu}
        widths |= {"qacc": layout.nv, "actuator_force": layout.nu}
        widths |= {f"sensor:{sensor.name}": sensor.dim for sensor in layout.sensors}
        self.run(backend, 1)
        for key, values in self.reads(backend).items():
            expect(values.dtype == torch.float32, f"{key} is {values.dtype}")
            width = widths.get(key)
            if width is None and not key.startswith("substep:"):
                width = 13
            if width is None:
                name = key.removeprefix("substep:")
                width = self.decimation * widths[f"sensor:{name}"]
            expected = (backend.num_envs, width)
            expect(tuple(values.shape) == expected, f"{key} is {tuple(values.shape)}, expected {expected}")

    @promise
    def test_every_row_starts_in_the_default_state(self) -> None:
        """model_layout: names, indices, ranges, defaults: stable copies, no live engine objects."""
        backend = self.make()
        views, layout = backend.get_state_views(), backend.model_layout
        for name, default in (("qpos", layout.default_qpos), ("qvel", layout.default_qvel)):
            wanted = torch.tensor(default).expand(backend.num_envs, -1)
            expect(torch.equal(views[name].cpu(), wanted), f"{name} of a new backend is not the default")

    @promise
    def test_host_views_are_copies(self) -> None:
        """get_state_views(), get_sensor_view(): HOST_BRIDGE: copies, never aliases that a later step rewrites."""
        backend = self.make()
        self.require(self.is_host(backend), "DEVICE_RESIDENT views are live")
        self.run(backend, 2)
        views, before = self._views(backend), self.reads(backend)
        self.run(backend, 2, seed=5)
        now = self.reads(backend)
        self.expect_same(views, before, "a later step or read rewrote a view", exact=True)
        for values in self._views(backend).values():
            values.fill_(7.0)
        self.expect_same(self.reads(backend), now, "writing to a view wrote to the backend", exact=True)

    @promise
    def test_resident_views_are_live_and_stay_where_they_are(self) -> None:
        """get_state_views(), get_sensor_view(): DEVICE_RESIDENT: stable live tensors on the declared device."""
        backend = self.make()
        self.require(not self.is_host(backend), "HOST_BRIDGE views are copies")
        views, accepted = self._views(backend), backend.get_tensor_capabilities().accepted_devices
        addresses = {key: values.data_ptr() for key, values in views.items()}
        self.run(backend, 2)
        self.reset(backend, [1])
        for key, values in self._views(backend).items():
            expect(values.device.type in accepted, f"{key} is on {values.device}, not on one of {accepted}")
            expect(values.data_ptr() == addresses[key], f"{key} moved to another address")
            expect(torch.equal(values, views[key]), f"{key}: the tensor handed out first is not live")
        moved = backend.get_state_views()["qpos"].clone()
        self.run(backend, 2, seed=5)
        expect(not torch.equal(views["qpos"], moved), "qpos does not follow a step")

    def _views(self, backend: SimBackend) -> dict[str, torch.Tensor]:
        """Returns what the backend hands out, not copied."""
        views = dict(backend.get_state_views(self.keys(backend)))
        names = backend.get_tensor_capabilities().sensors
        return views | {f"sensor:{name}": backend.get_sensor_view(name) for name in names}

    @promise
    def test_an_unknown_name_is_answered_with_the_nearest(self) -> None:
        """KeyError: unknown name of a field or sensor (lists the nearest)."""
        backend = self.make()
        error = expect_raises(KeyError, lambda: backend.get_state_views(["qps"]), "get_state_views(['qps'])")
        expect("qpos" in str(error), f"the message {error} does not name 'qpos'")
        names = backend.get_tensor_capabilities().sensors
        wrong = f"{names[0]}x" if names else "imu"
        error = expect_raises(KeyError, lambda: backend.get_sensor_view(wrong), f"get_sensor_view({wrong!r})")
        expect(not names or names[0] in str(error), f"the message {error} does not name {names[:1]}")
