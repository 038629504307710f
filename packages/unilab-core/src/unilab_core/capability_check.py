"""What a task asks of a backend, checked at once: one error that lists all that cannot be done, and who asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from unilab_core.errors import CapabilityError, nearest
from unisim.capabilities import TensorCapabilities, TensorExecution
from unisim.contract import Declared

__all__ = ["check_declared"]

_RULES: Mapping[str, tuple[Callable[[TensorCapabilities, str], bool], str]] = {
    "model_field": (
        lambda can, name: name in can.randomizable_fields,
        "model field {!r} cannot differ per row",
    ),
    "wrench": (lambda can, name: can.wrenches, "body {!r} cannot be pushed: there are no wrenches"),
    "substep": (
        lambda can, name: name in can.sensors,
        "sensor {!r} is none of its sensors, and has no substep history",
    ),
    "contact": (
        lambda can, name: can.contact_reads,
        "contact sensor {!r} cannot be read: there are no contact reads",
    ),
    "body": (lambda can, name: can.body_reads, "body {!r} cannot be read: there are no body reads"),
    "acceleration": (
        lambda can, name: name in can.acceleration_fields,
        "{!r} of the last substep cannot be read",
    ),
    "host_term": (
        lambda can, name: can.execution is not TensorExecution.DEVICE_RESIDENT,
        "host term {!r} cannot run: the state lives on a device, and nothing is copied to the host",
    ),
    "row_write": (
        lambda can, name: can.row_writes,
        "{} cannot write state in a step: there are no row writes",
    ),
    "snapshot": (
        lambda can, name: can.snapshots,
        "{} copies the engine's state every step, and there are no snapshots",
    ),
}


def check_declared(
    capabilities: TensorCapabilities,
    declared: Declared,
    askers: Mapping[str, Sequence[str]],
    *,
    owner: str,
) -> None:
    """Checks everything that a task asks of a backend.

    Args:
        capabilities: What the backend can do.
        declared: What will be written or recorded; all of it is checked, whether or not `askers` names it.
        askers: What is asked for to who asks, for example `{"model_field:body_mass": ("events term 'mass'",)}`. Kinds
            are `model_field`, `wrench` (a body), `substep`, `contact` (sensors), `body` (one that is read),
            `acceleration` (`qacc` or `actuator_force`), `host_term`, `row_write` and `snapshot`.
        owner: Of the task, for the error message.

    Raises:
        CapabilityError: Something cannot be done; lists all of it, each with who asked.
        ValueError: A key of another kind.
    """
    written = (
        ("model_field", declared.model_fields),
        ("wrench", declared.wrench_bodies),
        ("substep", declared.substep_sensors),
    )
    problems = []
    for key in dict.fromkeys([*(f"{kind}:{name}" for kind, names in written for name in names), *askers]):
        kind, _, name = key.partition(":")
        if kind not in _RULES:
            raise ValueError(f"check_declared: unknown kind in {key!r}; {nearest(kind, _RULES)}")
        can, problem = _RULES[kind]
        if not can(capabilities, name):
            by = ", ".join(askers.get(key, ()))
            problems.append(problem.format(name) + (f" (asked by {by})" if by else ""))
    if problems:
        raise CapabilityError(f"{owner}: the backend cannot do what is asked: " + "; ".join(problems))
