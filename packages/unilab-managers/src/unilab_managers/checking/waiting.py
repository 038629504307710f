"""Who waits for the device: terms, commands and actions whose calls need a number on the host before they go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from unilab_core.host_terms import is_host_term
from unilab_managers.cfg.term import called
from unilab_managers.checking.places import Place, place_of
from unilab_managers.checking.watching import around_commands, around_terms
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.managers.action_manager import ActionTerm
from unilab_managers.managers.command_manager import CommandTerm
from unilab_managers.managers.event_manager import TimedTerm
from unilab_managers.managers.manager_base import BoundTerm

__all__ = ["WaitWatch"]

_WAITS = {
    *("item", "tolist", "numpy", "cpu", "nonzero", "argwhere", "masked_select", "unique"),
    *("unique_consecutive", "bincount", "equal", "allclose", "is_nonzero"),
    *(
        "__array__",
        "__bool__",
        "__complex__",
        "__float__",
        "__format__",
        "__index__",
        "__int__",
        "__contains__",
    ),
}
_PUTS = {"index_put", "index_put_", "_index_put_impl_"}
_MASKS = (torch.bool, torch.uint8)


class _Waits(TorchFunctionMode):
    """Notes the calls that make a program wait for a device."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - torch's own signature
        what = _wait(getattr(func, "__name__", ""), args, kwargs or {})
        if what is not None:
            self.found.append(what)
        return func(*args, **(kwargs or {}))


def _wait(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Returns what a call waits with, for people; None if it does not wait."""
    if name in _WAITS:
        return f"{name.strip('_')}()"
    if name == "__getitem__" and _has_mask(args[1]):
        return "an index that is a mask"
    if name == "__setitem__" and _has_mask(args[1]) and not _fills(args[1], args[2]):
        return "values at an index that is a mask"
    if name in _PUTS and len(args) > 1 and _has_mask(tuple(args[1])):
        return "values at an index that is a mask"
    if name == "where" and len(args) == 1 and not kwargs:
        return "where(mask)"
    if name == "to" and _leads_to_host(args[0], (*args[1:], *kwargs.values())):
        return "to(cpu)"
    if name == "copy_" and len(args) > 1 and args[0].device.type == "cpu" != args[1].device.type:
        return "copy_() to the host"
    return None


def _parts(index: object) -> tuple[object, ...]:
    return index if isinstance(index, tuple) else (index,)


def _has_mask(index: object) -> bool:
    return any(isinstance(part, torch.Tensor) and part.dtype in _MASKS for part in _parts(index))


def _fills(index: object, value: object) -> bool:
    """Whether an assignment is a `masked_fill_`, which needs no count of rows: a number, and one mask alone."""
    return not isinstance(value, torch.Tensor) and sum(torch.is_tensor(part) for part in _parts(index)) == 1


def _leads_to_host(tensor: torch.Tensor, arguments: tuple[Any, ...]) -> bool:
    """Whether `to(...)` brings a tensor to the host, or would on a device.

    On the CPU only a text says so: `env.device` and devices of tensors are the CPU there and something else elsewhere.
    """
    if tensor.device.type == "cpu":
        return any(isinstance(item, str) and item.partition(":")[0] == "cpu" for item in arguments)
    wanted = [item.device if isinstance(item, torch.Tensor) else item for item in arguments]
    return any(isinstance(item, str | torch.device) and torch.device(item).type == "cpu" for item in wanted)


class WaitWatch:
    """Notes which terms of a step make it wait for a device: terms, step events, commands and actions.

    What runs only when something is due is left out: other events, a step event that counts down by itself while it
    is due, curricula. So are host terms, which are on the host by design.

    Attributes:
        waits: Term to the calls that wait; whoever looks clears it.
    """

    _KINDS = ("observations", "rewards", "terminations", "metrics")

    def __init__(self) -> None:
        """Starts with nobody."""
        self.waits: dict[Place, list[str]] = {}
        self._open: list[_Waits] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watches terms and commands while the block lasts; actions by `watching_actions`, once there are any."""
        with around_terms(self._term), around_commands(self._command):
            yield

    @contextmanager
    def watching_actions(self, env: ManagerBasedRlEnv) -> Iterator[None]:
        """Watches the actions of an environment while the block lasts."""
        terms = env.action_manager._action_terms
        names = {id(term): name for name, term in terms.items()}
        with ExitStack() as stack:
            for kind in dict.fromkeys(type(term) for term in terms.values()):
                for method in ("process", "accept", "follow"):
                    stack.enter_context(self._exchanged(kind, method, names))
            yield

    @contextmanager
    def _exchanged(self, kind: type[ActionTerm], method: str, names: dict[int, str]) -> Iterator[None]:
        original, is_own = getattr(kind, method), method in vars(kind)

        def call(term: ActionTerm, *args: torch.Tensor) -> Any:  # noqa: ANN401 - as the original
            place = Place("actions", names.get(id(term), ""))
            return self._watch(place, lambda: original(term, *args))

        setattr(kind, method, call)
        try:
            yield
        finally:
            if is_own:
                setattr(kind, method, original)
            else:
                delattr(kind, method)

    def _term(self, bound: BoundTerm, leading: tuple[torch.Tensor, ...], call: Callable[[], Any]) -> Any:  # noqa: ANN401
        place = place_of(bound.label)
        if is_host_term(called(bound.cfg.func) or bound.cfg.func):
            return self._unseen(call)
        if place.manager == "events":
            if bound.cfg.mode != "step" or _is_due(bound):  # type: ignore[attr-defined] # an event has a mode
                return call()
        elif place.manager not in self._KINDS:
            return call()
        return self._watch(place, call)

    def _command(self, term: CommandTerm, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        return self._watch(place_of(term.label), call)

    def _unseen(self, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        """Calls what waits by design, perhaps for somebody who is being watched, as a command's condition."""
        before = [len(seen.found) for seen in self._open]
        result = call()
        for seen, count in zip(self._open, before, strict=True):
            del seen.found[count:]
        return result

    def _watch(self, place: Place, call: Callable[[], Any]) -> Any:  # noqa: ANN401
        with _Waits() as seen:
            self._open.append(seen)
            try:
                result = call()
            finally:
                self._open.pop()
        if seen.found:
            self.waits.setdefault(place, []).extend(seen.found)
        return result


def _is_due(bound: BoundTerm) -> bool:
    """Whether a step event that counts down by itself has something to do for a row."""
    timed = bound.instance
    return isinstance(timed, TimedTerm) and bool(timed.fires_next().any())
