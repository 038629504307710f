"""Graphs of objects, containers and tensors for a registry to put back, and random changes of them."""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any

import torch
from hypothesis import strategies as st
from twins import Mark, Slotted

from unilab_core.row_state import RowStateRegistry

N = 3
ROW = torch.tensor([1])
REACH = 3
"""How many objects deep things are put back."""


class Box:
    """An object that holds whatever a test puts into it."""


def registry_of(root: object) -> RowStateRegistry:
    return RowStateRegistry({"term": root}, N)


def held_by(thing: Any) -> list[tuple[Any, Any]]:
    if isinstance(thing, dict):
        return list(thing.items())
    if isinstance(thing, list | tuple | deque):
        return list(enumerate(thing))
    if isinstance(thing, Slotted):
        return [(name, getattr(thing, name)) for name in ("count", "rows") if hasattr(thing, name)]
    return sorted(vars(thing).items()) if isinstance(thing, Box) else []


def reachable(root: Box) -> list[Any]:
    """Returns what is put back, by a plain search: whatever is at most so many objects away."""
    found, distance = {id(root): root}, {id(root): 0}
    frontier = [root]
    while frontier:
        thing = frontier.pop(0)
        for _, value in held_by(thing):
            far = distance[id(thing)] + isinstance(value, Box | Slotted)
            enters = isinstance(value, Box | Slotted | dict | list | tuple | deque | set | torch.Tensor)
            if enters and far <= REACH and far < distance.get(id(value), REACH + 1):
                found[id(value)], distance[id(value)] = value, far
                frontier.append(value)
    return list(found.values())


def picture(root: Box) -> dict[int, Any]:
    """Returns what everything reachable holds: references by identity, plain values and tensors by value."""
    content: dict[int, Any] = {}
    for thing in reachable(root):
        if isinstance(thing, torch.Tensor):
            content[id(thing)] = (tuple(thing.shape), thing.tolist())
        elif isinstance(thing, set):
            content[id(thing)] = sorted(thing)
        else:
            content[id(thing)] = [(k, v if isinstance(v, int) else id(v)) for k, v in held_by(thing)]
    return content


class Play:
    """Random changes of a graph of objects, containers and tensors; everything it ever held stays alive."""

    MAKES = (
        lambda: 7,
        lambda: None,
        lambda: Mark(1, "a"),
        lambda: torch.zeros(N),
        lambda: torch.zeros(2, N).t(),
        lambda: torch.zeros(6)[::2],
        lambda: torch.zeros(N, 20000),
        lambda: torch.zeros(()),
        dict,
        list,
        lambda: {1},
        lambda: deque([1, 2], maxlen=2),
        lambda: {"a": torch.zeros(2)},
        lambda: OrderedDict(a=1, b=torch.zeros(2)),
        lambda: [torch.zeros(2), {}],
        lambda: (torch.zeros(2), [1]),
        Box,
        lambda: Slotted(N),
    )

    def __init__(self, root: Box, draw: Any) -> None:
        self.root, self.draw = root, draw
        self.alive: list[Any] = []

    def pick(self, things: Any) -> Any:
        return self.draw(st.sampled_from(things))

    def act(self, *, moves_memory: bool = True) -> None:
        things = reachable(self.root)
        self.alive.extend(things)
        holder = self.pick(things)
        value = self.pick(things) if self.draw(st.booleans()) else self.pick(self.MAKES)()
        self.alive.append(value)
        if isinstance(holder, torch.Tensor):
            self.change(holder, moves_memory)
        elif isinstance(holder, dict):
            if holder and self.draw(st.booleans()):
                del holder[self.pick(sorted(holder))]
            elif len(holder) > 1 and isinstance(holder, OrderedDict) and self.draw(st.booleans()):
                holder.move_to_end(self.pick(sorted(holder)))
            else:
                holder[self.pick("abc")] = value
        elif isinstance(holder, list | deque):
            if holder and self.draw(st.booleans()):
                holder[-1] = value
            elif len(holder) > 2:
                holder.pop()
            else:
                holder.append(value)
        elif isinstance(holder, set):
            holder.symmetric_difference_update({self.draw(st.integers(0, 2))})
        elif isinstance(holder, Box | Slotted):
            names = ("count", "rows") if isinstance(holder, Slotted) else tuple("abcd")
            name = self.pick(names)
            if hasattr(holder, name) and self.draw(st.booleans()):
                delattr(holder, name)
            else:
                setattr(holder, name, value)

    def change(self, tensor: torch.Tensor, moves_memory: bool) -> None:
        if tensor.nbytes > 1000:  # of which only the rows that are saved may change
            tensor[ROW] += 1.0
        elif moves_memory and self.draw(st.booleans()):
            tensor.data = torch.full((2,), 5.0)  # and another shape
        else:
            tensor.add_(1.0)
