"""The one registry of what an environment remembers: it undoes a rejected reset, fills checkpoints, compares twins.

It walks the objects it is given (the environment, its managers, class terms and their helpers) and finds tensors,
plain Python values, containers and generators by their path, for example `"rewards._sums[upright]"`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from unilab_core.row_plan import RowPlan
from unilab_core.row_tensors import ConstantChangedError, RowTensors, SavedTensors
from unilab_core.row_values import Place, check_fixed, check_like, is_flat, load_place, plain
from unilab_core.row_walk import CONTAINERS, Kinds, RowWalk, is_value_tuple

__all__ = ["ConstantChangedError", "RowStateRegistry", "SavedRows"]


@dataclass
class SavedRows:
    """What `RowStateRegistry.save` remembers; opaque to others, and good until the next `save`.

    Attributes:
        number: Which save of the registry it is.
        tensors: Values of tensors.
        generators: Generator, its state.
    """

    number: int
    tensors: SavedTensors
    generators: list[tuple[torch.Generator, torch.Tensor]]


class RowStateRegistry:
    """Finds, saves and restores everything that a reset may change outside the engine.

    Rules: tensors under 64 KiB are saved whole, larger ones with leading size N by rows, any other large tensor counts
    as a constant; Python numbers, strings and tuples by value; lists, dicts, sets and deques by their items; generators
    by state; objects of other classes attribute by attribute, to a depth of three. It stops at the classes it is told
    to (environment, scene, backend, handles), at configs, at code, and skips packet storage and expanded tensors. A
    class may say more of its attributes: see `row_attributes.rules_of`. What only a closure or a module global
    remembers is not found; what is found and could not be put back (foreign random generators, iterators, byte
    buffers, writable NumPy arrays) is refused.

    What a walk found serves the saves after it, for as long as nothing was put where it looked that it had not seen.

    Attributes:
        walks: How often everything was walked in order to save it.
    """

    def __init__(
        self,
        roots: Mapping[str, object],
        num_envs: int,
        *,
        stop: tuple[type, ...] = (),
        skip_storage: Sequence[torch.Tensor] = (),
    ) -> None:
        """Remembers where to start.

        Args:
            roots: Path prefix to object; attributes of these are visited even if their class is in `stop`.
            num_envs: N.
            stop: Classes whose instances are not entered.
            skip_storage: Tensors whose storage belongs to the packets.
        """
        self._roots = dict(roots)
        self._kinds = Kinds(stop)
        self._tensors = RowTensors(num_envs, skip_storage)
        self._plan: RowPlan | None = None
        self._generators: dict[int, torch.Generator] = {}
        self._saves = 0
        self.walks = 0

    # ------------------------------------------------------------------ undo

    def save(self, ids: torch.Tensor) -> SavedRows:
        """Remembers everything that staging a reset of the rows `ids`, (K,) int64, may change.

        Raises:
            ConfigError: A term holds a generator that cannot be put back.
        """
        self._bring_up_to_date()
        self._saves += 1
        states = [(generator, generator.get_state()) for generator in self._generators.values()]
        return SavedRows(self._saves, self._tensors.save(ids), states)

    def _bring_up_to_date(self) -> None:
        """Makes the plan one that has looked at everything as it is now."""
        plan, found = self._plan, "walk"
        if plan is not None:
            found = plan.look()
        if plan is None or found == "walk":
            self._plan = None  # a walk may fail, and half a plan is none
            self.walks += 1
            plan = self._plan = RowPlan(self._kinds, RowWalk(self._kinds, self._roots, values=False))
        if found != "same" or not self._tensors.are_in_place:
            tensors = [place for place in plan.leaves if isinstance(place.value, torch.Tensor)]
            self._tensors.follow(tensors)
            self._generators = {
                id(place.value): place.value
                for place in plan.leaves
                if isinstance(place.value, torch.Generator)
            }

    def check_constants(self, saved: SavedRows) -> None:
        """Checks that no large tensor without rows was changed while a reset was staged.

        Raises:
            ConstantChangedError: One was, and names it; unless only replaced, it cannot be taken back.
        """
        self._tensors.check_constants(saved.tensors)

    def restore(self, saved: SavedRows) -> None:
        """Puts back what the last `save` remembered: references, then values in place; what was born inside goes.

        Raises:
            RuntimeError: There was another `save` since.
        """
        if self._plan is None or saved.number != self._saves:
            raise RuntimeError(f"restore: got save {saved.number}, expected the last one, {self._saves}")
        self._plan.put_back()
        self._tensors.restore(saved.tensors)
        for generator, state in saved.generators:
            generator.set_state(state)

    # ------------------------------------------------------------------ checkpoints and twins

    def _kept(self) -> dict[str, Place]:
        """Returns every place whose value is part of a state, by path; a container of plain values is one place."""
        kept: dict[str, Place] = {}
        inside: set[int] = set()
        for place in RowWalk(self._kinds, self._roots).found:
            value = place.value
            if id(place.owner) in inside or place.rule == "setting":
                continue
            if isinstance(value, CONTAINERS):
                if place.rule == "record" or not is_flat(value):
                    continue
                inside.add(id(value))
            elif isinstance(value, torch.Tensor):
                if self._tensors.is_skipped(value):
                    continue
            elif place.kind == "root" or not (
                isinstance(value, bool | int | float | str | type(None) | torch.Generator)
                or is_value_tuple(value)
            ):
                continue
            kept[place.path] = place
        return kept

    def state_dict(self) -> dict[str, Any]:
        """Returns every value by its path: copies of tensors, generator states, plain values.

        Only what `torch.load(weights_only=True)` reads back: tensors, numbers, strings, None, lists and dicts of them.
        """
        return {path: plain(place.value) for path, place in self._kept().items()}

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Checks that `state` fits, path by path, without writing anything.

        Raises:
            ValueError: Missing or unknown paths, a tensor of another shape or dtype, or a value of another kind.
        """
        kept = self._kept()
        missing, unknown = sorted(set(kept) - set(state)), sorted(set(state) - set(kept))
        if missing or unknown:
            raise ValueError(
                f"environment state: missing {missing[:6]}, unknown {unknown[:6]}; not of this task, or made by terms "
                "whose attributes are born after construction: make them in __init__"
            )
        for path, place in kept.items():
            check = check_fixed if place.rule == "field" else check_like
            check(path, place.value, state[path])

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Writes a state that `state_dict` returned.

        Raises:
            ValueError: As `check_state_dict`; nothing has changed.
        """
        self.check_state_dict(state)
        kept = self._kept()
        with torch.inference_mode():
            for path, value in state.items():
                load_place(kept[path], value)
