"""What a step asks of Torch: operators, waits for a device, allocations, transfers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from unilab_core.benching.instruments import Function, replaced
from unilab_core.env import TorchEnv
from unisim.capabilities import TensorExecution

__all__ = ["StepCounts", "TorchWork", "counting", "measure_counts"]

_UNIQUE = ("_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive")
_WAITING = frozenset(
    {"_local_scalar_dense", "nonzero", "masked_select", "equal", "allclose", "bincount", *_UNIQUE}
)
_COPYING = frozenset({"copy_", "_to_copy"})
_INDEXING = frozenset({"index", "index_put", "index_put_"})
_HOST_READS: Mapping[Function, str] = {torch.Tensor.tolist: "tolist", torch.Tensor.numpy: "numpy"}
_AT_WORK = ("step_tensor", "pack_rows", "apply_reset", "write_rows", "bad_rows")


@dataclass
class TorchWork:
    """What was asked of Torch.

    Attributes:
        operators: Calls by operator; those inside a backend included, what an engine does without Torch is not seen.
        waits: What makes the host wait for a device, by kind; on the CPU it would. A host-bridge backend's own work is
            in host memory and waits for nobody.
        allocations: Operators' results that lie in new storage; temporaries inside an operator are not seen.
        allocated_bytes: Size of that storage.
    """

    operators: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    allocations: int = 0
    allocated_bytes: int = 0


@dataclass(frozen=True)
class StepCounts:
    """Means over steps of one kind.

    Attributes:
        steps: How many there were.
        operators: Per step.
        waits: Per step.
        allocations: Per step.
        allocated_bytes: Per step.
        most_frequent: The operators that are called most, calls per step.
        waiting: What waits, per step.
    """

    steps: int
    operators: float
    waits: float
    allocations: float
    allocated_bytes: float
    most_frequent: dict[str, float]
    waiting: dict[str, float]


class _Operators(TorchDispatchMode):  # type: ignore[no-untyped-call] # Torch does not type its modes
    """Counts what is dispatched; views and writes in place allocate nothing.

    In inference mode operators made of others arrive whole: `item` and `to` hide what they wait for. They are taken
    apart, so that the counts are the same in both modes.
    """

    def __init__(self, work: TorchWork, inside: list[int]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._work, self._inside = work, inside

    def __torch_dispatch__(
        self,
        func: Any,  # noqa: ANN401 - an operator
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the operator returns
        kwargs = kwargs or {}
        with self:
            parts = func.decompose(*args, **kwargs)
        if parts is not NotImplemented:
            return parts
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        known = {tensor.untyped_storage()._cdata for tensor in given}
        result = func(*args, **kwargs)
        made = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
        work = self._work
        name = func.name().removeprefix("aten::").split(".")[0]
        work.operators[name] += 1
        for tensor in made:
            storage = tensor.untyped_storage()
            if storage._cdata not in known:
                known.add(storage._cdata)
                work.allocations += 1
                work.allocated_bytes += storage.nbytes()
        if self._inside[0] == 0 and (kind := _wait(name, args, kwargs, given, made)):
            work.waits[kind] += 1
        return result


def _wait(
    name: str,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    given: Sequence[torch.Tensor],
    made: Sequence[torch.Tensor],
) -> str | None:
    """Returns how an operator makes the host wait, or None."""
    if name in _WAITING:
        return name
    if name in _INDEXING and any(
        getattr(index, "dtype", None) in (torch.bool, torch.uint8) for index in args[1]
    ):
        return "boolean index"
    if name == "repeat_interleave" and kwargs.get("output_size") is None:
        return name
    if name in _COPYING and len({tensor.device for tensor in (*given, *made)}) > 1:
        return "copy between devices"
    return None


class _HostReads(TorchFunctionMode):
    """Counts what reads a tensor's memory without an operator."""

    def __init__(self, work: TorchWork, inside: list[int]) -> None:
        super().__init__()
        self._work, self._inside = work, inside

    def __torch_function__(
        self,
        func: Function,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401 - what the function returns
        if self._inside[0] == 0 and func in _HOST_READS:
            self._work.waits[_HOST_READS[func]] += 1
        return func(*args, **(kwargs or {}))


@contextmanager
def counting(env: TorchEnv) -> Iterator[Callable[[], TorchWork]]:
    """Counts what is asked of Torch while the block lasts; the function returns what was since it was last called."""
    inside = [0]

    def at_work(method: Function) -> Function:
        def call(owner: object, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - those of the method
            inside[0] += 1
            try:
                return method(owner, *args, **kwargs)
            finally:
                inside[0] -= 1

        return call

    backend = env._backend
    bridged = backend.tensor_execution() is TensorExecution.HOST_BRIDGE
    names = [name for name in _AT_WORK if bridged and hasattr(backend, name)]
    work = TorchWork()

    def take() -> TorchWork:
        done = TorchWork(Counter(work.operators), Counter(work.waits), work.allocations, work.allocated_bytes)
        work.operators.clear()
        work.waits.clear()
        work.allocations = work.allocated_bytes = 0
        return done

    with replaced(backend, dict.fromkeys(names, at_work)), _HostReads(work, inside), _Operators(work, inside):
        yield take


def measure_counts(
    env: TorchEnv, actions: Sequence[torch.Tensor]
) -> tuple[dict[str, StepCounts], dict[str, dict[str, float]]]:
    """Steps once with each of `actions`, (N, A), and returns what that takes.

    Returns:
        Counts of steps in which no row ended (`"quiet"`) and of those with a reset (`"with_reset"`), where there were
        any; and per kind of packet the mean `transfers`, `bytes` and `synchronizations` of a step.
    """
    works: dict[str, list[TorchWork]] = {"quiet": [], "with_reset": []}
    before = env.transfer_stats
    with torch.inference_mode(), counting(env) as take:
        for action in actions:
            state = env.step(action)
            works["quiet" if state.final_observation is None else "with_reset"].append(take())
    after, steps = vars(env.transfer_stats), len(actions)
    transfers = {
        kind: {name: (getattr(after[kind], name) - value) / steps for name, value in vars(count).items()}
        for kind, count in vars(before).items()
    }
    return {kind: _means(found) for kind, found in works.items() if found}, transfers


def _means(works: Sequence[TorchWork]) -> StepCounts:
    n = len(works)
    operators = sum((work.operators for work in works), Counter())
    waits = sum((work.waits for work in works), Counter())
    return StepCounts(
        steps=n,
        operators=operators.total() / n,
        waits=waits.total() / n,
        allocations=sum(work.allocations for work in works) / n,
        allocated_bytes=sum(work.allocated_bytes for work in works) / n,
        most_frequent={name: count / n for name, count in operators.most_common(10)},
        waiting={name: count / n for name, count in waits.most_common()},
    )
