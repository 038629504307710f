"""Puts instruments on objects and takes them off again, without a trace in what an object holds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import new_class
from typing import Any

import torch

from unilab_core.benching.parts import Phase
from unisim.bare import EngineCall, RowsCall, StepCall
from unisim.contract import SimBackend
from unisim.reset import ResetPayload

__all__ = ["PhaseClock", "recorded", "replaced", "timed", "waiter"]

Function = Callable[..., Any]


@contextmanager
def replaced(owner: object, methods: Mapping[str, Callable[[Function], Function]]) -> Iterator[None]:
    """Gives one object other methods while the block lasts.

    Its class is exchanged for a subclass of the same name. Attributes of the object stay as they are, so that nothing
    that walks over them, as the row-state registry does, meets an instrument.

    Args:
        owner: Any object whose class has a `__dict__`.
        methods: Name of a method to a function that takes the method and returns what is called instead, with the
            object as its first argument.

    Raises:
        AttributeError: Its class has no such method.
    """
    kind = type(owner)
    body: dict[str, Any] = {name: change(getattr(kind, name)) for name, change in methods.items()}
    body["__module__"] = kind.__module__
    owner.__class__ = new_class(kind.__name__, (kind,), exec_body=lambda space: space.update(body))
    try:
        yield
    finally:
        owner.__class__ = kind


@contextmanager
def recorded(backend: SimBackend, calls: list[EngineCall]) -> Iterator[None]:
    """Appends to `calls` what a backend is told while the block lasts; each is copied before it is carried out."""

    def step(call: Function) -> Function:
        def step_tensor(self: SimBackend, ctrl: torch.Tensor, nsteps: int = 1) -> None:
            calls.append(StepCall(ctrl.clone(), nsteps))
            call(self, ctrl, nsteps)

        return step_tensor

    def reset(call: Function) -> Function:
        def apply_reset(self: SimBackend, reset_mask: torch.Tensor, payload: ResetPayload) -> None:
            calls.append(RowsCall("reset", reset_mask.clone(), _copied(payload)))
            call(self, reset_mask, payload)

        return apply_reset

    def write(call: Function) -> Function:
        def write_rows(self: SimBackend, row_mask: torch.Tensor, payload: ResetPayload) -> None:
            calls.append(RowsCall("write", row_mask.clone(), _copied(payload)))
            call(self, row_mask, payload)

        return write_rows

    with replaced(backend, {"step_tensor": step, "apply_reset": reset, "write_rows": write}):
        yield


def _copied(payload: ResetPayload) -> ResetPayload:
    state = {
        name: None if values is None else values.clone()
        for name in ("qpos", "qvel", "ctrl")
        for values in (getattr(payload, name),)
    }
    model = {name: values.clone() for name, values in payload.model.items()}
    return ResetPayload(payload.env_ids.clone(), **state, model=model)


def waiter(device: torch.device) -> Callable[[], None]:
    """Returns what waits for everything that a device was told to do; nothing on the CPU."""
    if device.type == "cpu":
        return lambda: None
    return lambda: torch.accelerator.synchronize(device)


class PhaseClock:
    """Sums times by phase. Each moment counts once: what a phase calls that is one itself is not in its time.

    Attributes:
        ns: Nanoseconds by name of the phase.
        calls: Calls by name of the phase.
    """

    def __init__(self, wait: Callable[[], None]) -> None:
        """Begins at zero.

        Args:
            wait: Waits for the device, at the beginning and at the end of every phase.
        """
        self.ns: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self._wait = wait
        self._inner = 0
        self._prefix = ""

    def measure(self, phase: Phase) -> Callable[[Function], Function]:
        """Returns what makes a timed function of a method."""
        now, wait = time.perf_counter_ns, self._wait

        def change(method: Function) -> Function:
            def call(owner: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the method
                name, before = self._prefix + phase.name, self._prefix
                if phase.scope:
                    self._prefix = f"{name}."
                outer, self._inner = self._inner, 0
                wait()
                began = now()
                try:
                    return method(owner, *args, **kwargs)
                finally:
                    wait()
                    spent = now() - began
                    self.ns[name] += spent - self._inner
                    self.calls[name] += 1
                    self._inner = outer + spent
                    self._prefix = before

            return call

        return change


@contextmanager
def timed(phases: Sequence[Phase], clock: PhaseClock) -> Iterator[None]:
    """Measures phases by `clock` while the block lasts."""
    with ExitStack() as stack:
        for phase in phases:
            stack.enter_context(replaced(phase.owner, dict.fromkeys(phase.methods, clock.measure(phase))))
        yield
