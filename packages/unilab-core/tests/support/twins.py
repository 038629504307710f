"""What tests of undoing need: an environment whose term remembers in every way there is, and how to compare twins."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from core_support import ScriptedEnv, zeros

from unilab_core.row_state import RowStateRegistry

LARGE = 20000
"""Columns of float32 that make a tensor of a few rows larger than 64 KiB."""


class Mark(NamedTuple):
    """A tuple of plain values."""

    row: int
    name: str


class Slotted:
    """A helper without a `__dict__`."""

    __slots__ = ("count", "rows")

    def __init__(self, num_envs: int) -> None:
        self.count = 0
        self.rows = torch.zeros(num_envs)


@dataclass
class Helper:
    """A helper inside a helper inside a term."""

    count: int = 0
    rows: torch.Tensor = field(default_factory=lambda: torch.zeros(3))
    inner: Any = None


class Hoarder:
    """A user's class term: whatever it is asked to do, it changes everything that it remembers."""

    def __init__(self, num_envs: int) -> None:
        self.small = torch.zeros(num_envs)
        self.large = torch.zeros(num_envs, LARGE)
        self.replaced = torch.zeros(num_envs)
        self.generator = torch.Generator().manual_seed(5)
        self.number, self.ratio, self.flag, self.name, self.nothing = 0, 0.5, False, "none", None
        self.pair = (1, 2.0)
        self.mark = Mark(0, "a")
        self.numbers = [1, 2]
        self.tensors = [torch.zeros(num_envs), torch.zeros(2)]
        self.held = (torch.zeros(num_envs), 7)
        self.by_name: dict[str, Any] = {"a": torch.zeros(num_envs), "b": 1}
        self.seen: set[int] = {1}
        self.last: deque[int] = deque([1, 2, 3], maxlen=3)
        self.helper = Helper(inner=Helper(inner=Slotted(num_envs)))
        self.chosen: Any = min
        self.gone = 3

    def act(self, ids: torch.Tensor) -> None:
        """Changes everything, at the rows `ids` where there are rows."""
        self.small[ids] += torch.rand(ids.numel(), generator=self.generator)
        self.large[ids] += 1.0
        self.replaced = self.replaced + 1.0
        self.number, self.ratio, self.flag, self.name = self.number + 1, self.ratio * 0.5, True, "some"
        self.nothing = 4
        self.pair = (self.number, 3.0)
        self.mark = Mark(self.number, "b")
        self.numbers.append(self.number)
        self.tensors[0][ids] += 1.0
        self.tensors[1] = self.tensors[1] + 1.0
        self.held[0][ids] += 1.0
        self.by_name["a"] += 1.0
        self.by_name["b"] = self.number
        self.by_name["c"] = 5
        self.seen.add(self.number + 10)
        self.last.append(self.number)
        self.helper.count += 1
        self.helper.rows.add_(1.0)
        self.helper.inner.count += 1
        self.helper.inner.inner.count += 1
        self.helper.inner.inner.rows = self.helper.inner.inner.rows + 1.0
        setattr(self, f"born_{self.number}", torch.ones(2))
        self.helper.__dict__[f"born_{self.number}"] = 1
        self.chosen = max
        if hasattr(self, "gone"):
            del self.gone


PLACES = ("end", "event_1", "event_2", "command", "validation", "outside", "before_commit")
"""Where a reset may fail while it can still be taken back; the backend's own rejection is one more."""
LATE_PLACES = ("clear_rows", "after_commit", "noise", "after_reset")


class Tripped(Exception):
    """What a test's own hook raises."""


class HoardingEnv(ScriptedEnv):
    """A scripted environment in which every phase of a reset changes a term's memory and draws; it fails on request."""

    def _build(self) -> None:
        super()._build()
        self.term = Hoarder(self.num_envs)
        self.level = torch.zeros(self.num_envs)
        trip: list[str] = []
        self._trip = lambda: trip  # in a closure, which nothing puts back
        self.noise = torch.zeros(self.num_envs, 3)

    def _row_state_roots(self) -> dict[str, object]:
        return {"term": self.term}

    def trip(self, place: str | None) -> None:
        """Makes the next resets fail at a place, or nowhere."""
        self._trip()[:] = [place] if place else []

    def _passes(self, place: str, ids: torch.Tensor) -> None:
        self.term.act(ids)
        self.rng.uniform(0.0, 1.0, 3)
        if place in self._trip():
            raise Tripped(place)

    def _on_episodes_end(self, ids: torch.Tensor) -> None:
        super()._on_episodes_end(ids)
        self.level[ids] += 1.0
        self._passes("end", ids)

    def _stage_reset(self, ids: torch.Tensor) -> None:
        data = self.scene["robot"].data
        for place in ("event_1", "event_2", "command"):
            position = self.rng.uniform(-1.0, 1.0, (ids.numel(), 1))
            data.write_joint_state(position, position, ids, slice(0, 1))
            self._passes(place, ids)
        if "validation" in self._trip():
            data.write_joint_state(position * float("nan"), position, ids, slice(0, 1))
        if "outside" in self._trip():
            everyone = torch.arange(self.num_envs + 1) % self.num_envs
            data.write_joint_state(
                torch.ones(len(everyone), 1), torch.ones(len(everyone), 1), everyone, slice(0, 1)
            )

    def _before_commit(self, ids: torch.Tensor) -> None:
        self._passes("before_commit", ids)

    def _clear_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self._passes("clear_rows", ids)
        return super()._clear_rows(ids)

    def _after_commit(self, ids: torch.Tensor) -> None:
        self._passes("after_commit", ids)

    def _after_reset(self, ids: torch.Tensor) -> None:
        self._passes("after_reset", ids)

    def _observe(self, ids: torch.Tensor | None) -> dict[str, torch.Tensor]:
        if ids is not None:
            self._passes("noise", ids)
        self.noise.copy_(self.rng.normal(0.0, 0.01, (self.num_envs, 3)))
        noise = self.noise if ids is None else self.noise[ids]
        return {group: rows + noise[:, :1] for group, rows in super()._observe(ids).items()}


def differences(a: Any, b: Any, path: str = "") -> list[str]:
    """Returns the paths at which two states differ: other keys, types, or bits."""
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        odd = [f"{path}/{key}" for key in a.keys() ^ b.keys()]
        return odd + [d for key in a.keys() & b.keys() for d in differences(a[key], b[key], f"{path}/{key}")]
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        same = a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))
        return [] if same else [path]
    return [] if type(a) is type(b) and a == b else [path]


def _bits(values: torch.Tensor) -> torch.Tensor:
    kinds = {torch.float32: torch.int32, torch.float64: torch.int64}
    return values.contiguous().view(kinds[values.dtype]) if values.dtype in kinds else values


def assert_twins(env: Any, twin: Any, *, but: tuple[str, ...] = ()) -> None:
    """Both environments are in the same state, to the bit; `but` names parts that may differ."""
    found = differences(env.state_dict(), twin.state_dict())
    assert [d for d in found if not d.endswith(but or ("\0",))] == []


def assert_same_steps(env: Any, twin: Any, number: int, *, but: tuple[str, ...] = ()) -> None:
    """Both environments return the same, to the bit, for so many steps of the same actions, and end alike."""
    generator = torch.Generator().manual_seed(1)
    for _ in range(number):
        actions = torch.rand(zeros(env).shape, generator=generator) * 2.0 - 1.0
        one, two = env.step(actions), twin.step(actions)
        for name in ("obs", "reward", "terminated", "truncated", "final_observation"):
            assert differences(getattr(one, name), getattr(two, name), name) == []
        assert differences(one.info.get("episode"), two.info.get("episode"), "episode") == []
    assert_twins(env, twin, but=but)


def plain_state(term: object) -> dict[str, Any]:
    """Returns all that an object remembers as plain data, by path."""
    return RowStateRegistry({"term": term}, 3).state_dict()
