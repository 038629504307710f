"""What a walk of the row-state registry found, and how to tell, without walking, that another would find the same."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import accumulate, chain, compress, count
from operator import attrgetter, is_not, methodcaller
from typing import Any, Literal

from unilab_core.row_attributes import (
    assigned_names,
    attributes_of,
    put_assigned,
    put_attributes,
    slot_names,
)
from unilab_core.row_values import Place
from unilab_core.row_walk import Kind, Kinds, RowWalk, is_read_only

__all__ = ["Found", "RowPlan"]

_VALUES_OF = methodcaller("values")
"""In the order of the keys, also of an `OrderedDict`, which keeps an order of its own."""

Found = Literal["same", "leaves", "walk"]


class RowPlan:
    """Everything that one walk entered, with shallow copies of what it held when it was looked at last.

    Looking compares by identity and at the speed of C, for it happens in every reset: what everything holds is also
    laid end to end: objects and dicts first, then objects whose classes say which of their attributes are assigned,
    then lists. What it compares with is kept alive, for another object could get the address of one that is gone. So
    what was replaced lives until the next look.

    Attributes:
        leaves: Places of tensors and generators.
    """

    def __init__(self, kinds: Kinds, walk: RowWalk) -> None:
        """Sorts what a walk found, and looks at it."""
        self._kinds = kinds
        self._arrays = walk.arrays
        self._met = walk.met
        self._objects: list[Any] = []
        self._slotted: list[Any] = []
        self._dicts: list[Any] = []
        self._sealed: list[Any] = []
        """Objects of which only those attributes are looked at that are assigned, which may be none."""
        self._assigned: list[Any] = []
        """Those of them of which there are any."""
        self._sequences: list[Any] = []
        self._sets: list[Any] = []
        self.leaves: list[Place] = []
        sorted_ids: set[int] = set()
        for place in walk.found:
            value = place.value
            if place.kind != "root" and kinds[type(value)] == "leaf":
                self.leaves.append(place)
            elif id(value) not in sorted_ids:  # what was met again nearer to a root is found twice
                sorted_ids.add(id(value))
                self._sort(value, is_root=place.kind == "root")
        self._copy_all()

    def _sort(self, value: Any, *, is_root: bool = False) -> None:  # noqa: ANN401 - whatever was entered
        kind: Any = type(value)
        treated = "object" if is_root else self._kinds[kind]
        if treated == "object":
            names = assigned_names(kind)
            if names is not None and all(hasattr(value, name) for name in names):
                self._sealed.append(value)
                self._assigned.extend([value] if names else [])
            else:
                is_simple = hasattr(value, "__dict__") and not slot_names(kind)
                (self._objects if is_simple else self._slotted).append(value)
        elif isinstance(value, dict):
            self._dicts.append(value)
        elif treated == "container":
            (self._sets if isinstance(value, set) else self._sequences).append(value)

    def _mappings(self) -> list[dict[Any, Any]]:
        """Returns what objects and dicts hold, not copied where that can be helped."""
        return [*map(vars, self._objects), *map(attributes_of, self._slotted), *self._dicts]

    def _tuples(self) -> list[tuple[Any, ...]]:
        """Returns what objects hold in attributes that are assigned.

        Raises:
            AttributeError: One is gone.
        """
        return [take(owner) for take, owner in self._takers]

    def _copy_all(self) -> None:
        self._takers = [
            (_taker(type(owner)), owner)  # type: ignore[arg-type] # a class is hashable
            for owner in self._assigned
        ]
        mappings, tuples = self._mappings(), self._tuples()
        self._holders = [*self._objects, *self._slotted, *self._dicts, *self._assigned, *self._sequences]
        self._classes = list(map(type, chain(self._holders, self._sealed)))
        self._copies: list[Any] = [held.copy() for held in mappings]
        self._copies += [list(held) for held in tuples]
        self._copies += [held.copy() for held in self._sequences]
        self._set_copies = [held.copy() for held in self._sets]
        self._attributes = [tuple(attributes_of(owner)) for owner in self._sealed]
        self._open = [owner for owner in self._sealed if hasattr(owner, "__dict__")]
        """Those that can get attributes which their class knows nothing of."""
        self._open_sizes = list(map(len, map(vars, self._open)))
        self._sizes = list(map(len, self._copies))
        self._starts = list(accumulate(self._sizes, initial=0))
        self._keys = list(chain.from_iterable(mappings))
        self._keys += [name for owner in self._assigned for name in assigned_names(type(owner)) or ()]
        self._values = list(self._laid_out(mappings, tuples))

    def _laid_out(self, mappings: list[dict[Any, Any]], tuples: list[tuple[Any, ...]]) -> chain[Any]:
        of_mappings = chain.from_iterable(map(_VALUES_OF, mappings))
        return chain(of_mappings, chain.from_iterable(tuples), chain.from_iterable(self._sequences))

    def look(self) -> Found:
        """Looks at what everything holds now, and copies what is not as it was.

        Returns:
            Whether a walk would find the `"same"`; or only other tensors and generators in the same places, which
            `leaves` names now; or perhaps more than that, so that this plan is worth nothing and it takes a `"walk"`.
        """
        mappings = self._mappings()
        try:
            tuples = self._tuples()
        except AttributeError:
            return "walk"
        if (
            any(map(is_not, self._classes, map(type, chain(self._holders, self._sealed))))
            or self._sizes != [*map(len, mappings), *map(len, tuples), *map(len, self._sequences)]
            or self._open_sizes != [*map(len, map(vars, self._open))]
            or any(map(is_not, self._keys, chain.from_iterable(mappings)))
            or not all(map(is_read_only, self._arrays))
        ):
            return "walk"
        differ = list(compress(count(), map(is_not, self._values, self._laid_out(mappings, tuples))))
        self._set_copies = [held.copy() for held in self._sets]
        return self._take(differ, [*mappings, *tuples, *self._sequences]) if differ else "same"

    def _take(self, differ: list[int], held: list[Any]) -> Found:
        """Takes over the values at positions where they differ, out of everything that is held now."""
        found: Found = "same"
        exchanged = []
        for position in differ:
            index = bisect_right(self._starts, position) - 1
            name = self._keys[position] if position < len(self._keys) else None
            key = name if isinstance(held[index], dict) else position - self._starts[index]
            old, new = self._values[position], held[index][key]
            if self._are("leaf", old, new):
                self._replace_leaf(self._holders[index], key if name is None else name, old, new)
                found = "leaves"
            elif self._are("container", old, new) and self._is_simple_exchange(old, new):
                exchanged.append((old, new))
            elif not (self._kinds.is_inert(old) and self._kinds.is_inert(new)):
                return "walk"
            self._values[position] = self._copies[index][key] = new
        if exchanged:
            self._exchange(exchanged)
        return found

    def _are(self, kind: Kind, old: object, new: object) -> bool:
        return self._kinds[type(old)] == kind == self._kinds[type(new)]

    def _replace_leaf(self, holder: object, key: object, old: object, new: object) -> None:
        # Keys of a dict may be anything, tensors too: of those only their identity can be asked for.
        is_plain = isinstance(key, str) or isinstance(holder, list | deque)
        for leaf in self.leaves:
            is_here = leaf.value is old and leaf.owner is holder
            if is_here and (
                leaf.key is key or (is_plain and type(leaf.key) is type(key) and leaf.key == key)
            ):
                leaf.value = new

    def _is_simple_exchange(self, old: Any, new: Any) -> bool:  # noqa: ANN401 - containers
        """Whether a container took another one's only place, such as a log that is handed out; notes that it did.

        Neither may hold anything but plain values, and nothing else that was met holds them.
        """
        if type(old) is not type(new) or self._met.get(id(old)) != 1 or id(new) in self._met:
            return False
        if not isinstance(old, set) and not (self._is_flat(new) and self._is_flat(self._copy_of(old))):
            return False
        del self._met[id(old)]
        self._met[id(new)] = 1
        return True

    def _copy_of(self, container: object) -> Any:  # noqa: ANN401 - dict, list or deque
        return next(copy for held, copy in zip(self._holders, self._copies, strict=True) if held is container)

    def _is_flat(self, container: Any) -> bool:  # noqa: ANN401 - dict, list or deque
        return all(
            map(self._kinds.is_inert, container.values() if isinstance(container, dict) else container)
        )

    def _exchange(self, containers: list[tuple[Any, Any]]) -> None:
        """Follows new containers in the place of old ones, and looks at what they hold."""
        were_empty = all(not isinstance(old, set) and not self._copy_of(old) for old, _ in containers)
        for old, new in containers:
            for held in (self._holders, self._dicts, self._sequences, self._sets):
                held[:] = [new if one is old else one for one in held]
        if not were_empty or any(new for _, new in containers):
            self._copy_all()

    def put_back(self) -> None:
        """Puts references back as they were at the last look; what was born since goes."""
        num_objects = len(self._objects) + len(self._slotted)
        for owner, attributes in zip(self._holders[:num_objects], self._copies, strict=False):
            put_attributes(owner, attributes)
        lists = num_objects + len(self._dicts) + len(self._assigned)
        assigned = {id(owner): held for owner, held in zip(self._holders[:lists], self._copies, strict=False)}
        for owner, known in zip(self._sealed, self._attributes, strict=True):
            names = assigned_names(type(owner)) or ()
            put_assigned(owner, dict(zip(names, assigned.get(id(owner), ()), strict=True)), known)
        containers = [*self._dicts, *self._sequences, *self._sets]
        copies = [*self._copies[num_objects:][: len(self._dicts)], *self._copies[lists:], *self._set_copies]
        for container, items in zip(containers, copies, strict=True):
            container.clear()
            (container.extend if isinstance(container, list | deque) else container.update)(items)


@lru_cache(maxsize=1024)
def _taker(kind: type) -> Callable[[object], tuple[Any, ...]]:
    """Returns what takes the attributes of a class that are assigned, as a tuple."""
    names = assigned_names(kind) or ()
    take: Callable[[object], Any] = attrgetter(*names)
    return take if len(names) > 1 else lambda owner: (take(owner),)
