"""The environment and its engine alone, one after the other, over the same states, controls and resets."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from unilab_core.benching.instruments import recorded, waiter
from unilab_core.benching.intervals import Median, median_of
from unilab_core.env import TorchEnv
from unisim.bare import BareEngine, EngineCall, Freshness, RowsCall

__all__ = ["NotTheSameWorkError", "Pairs", "measure_pairs"]


class NotTheSameWorkError(RuntimeError):
    """The engine alone did not come to the state that the environment came to: the two cannot be compared."""


@dataclass
class Pairs:
    """Seconds per step, pair by pair. The intervals of their medians presume that pairs do not depend on each other.

    Attributes:
        env_s: Of the environment, the copies included by which its calls are recorded.
        engine_s: Of the engine alone, by what it leaves current.
        steps: Steps of one window.
        rows_reset: Rows that were reset, in all windows.
        rows_written: Rows that a step wrote mid-episode, in all windows.
    """

    steps: int
    env_s: list[float] = field(default_factory=list)
    engine_s: dict[Freshness, list[float]] = field(default_factory=dict)
    rows_reset: int = 0
    rows_written: int = 0

    @property
    def step_us(self) -> Median:
        """A step of the environment, µs."""
        return median_of([1e6 * s for s in self.env_s])

    def engine_us(self, freshness: Freshness) -> Median:
        """A step of the engine alone, µs."""
        return median_of([1e6 * s for s in self.engine_s[freshness]])

    def ratio(self, freshness: Freshness) -> Median:
        """The environment over the engine alone, of each pair."""
        return median_of([a / b for a, b in zip(self.env_s, self.engine_s[freshness], strict=True)])

    def above_us(self, freshness: Freshness) -> Median:
        """The environment less the engine alone, of each pair, µs per step."""
        return median_of([1e6 * (a - b) for a, b in zip(self.env_s, self.engine_s[freshness], strict=True)])

    def per_step(self, rows: int) -> float:
        """Returns a number of rows in all windows as one per step."""
        return rows / (self.steps * len(self.env_s))


def measure_pairs(
    env: TorchEnv,
    engines: Mapping[Freshness, BareEngine],
    draw: Callable[[], Sequence[torch.Tensor]],
    *,
    pairs: int,
    watch: Callable[[int], None] = lambda pair: None,
) -> Pairs:
    """Steps the environment through a window and each engine through what its backend was told there, `pairs` times.

    The environment goes on from window to window, and so do the engines: each begins where the environment began,
    and is compared with it after every window. One whose engine gives other bits from run to run cannot be: it begins
    every window anew where the environment does. The engines take turns in which of them is first; the environment is
    always before them, for they repeat what it did. A first window is not counted.

    Args:
        env: It has been reset.
        engines: The engine of its backend alone, by what it leaves current.
        draw: Returns the actions of one window, (N, A) each.
        pairs: How many windows.
        watch: Is told how many are done.

    Raises:
        NotTheSameWorkError: An engine came to another state; nothing that was measured is comparable.
    """
    start = env._backend.snapshot()
    for engine in engines.values():
        _load(engine, start)
    found = Pairs(steps=0, engine_s={freshness: [] for freshness in engines})
    order = list(engines.items())
    wanders = any(not engine.exact for engine in engines.values())
    for pair in range(pairs + 1):
        watch(pair)
        actions, calls = draw(), list[EngineCall]()
        found.steps = len(actions)
        before = env._backend.snapshot() if wanders else None
        spent = _step(env, actions, calls)
        after = env._backend.snapshot()
        for freshness, engine in order:
            if not engine.exact:
                engine.load(before)
            replayed = _run(engine.prepare(calls), env.device) / len(actions)
            if engine.exact and (problem := engine.difference(after)):
                raise NotTheSameWorkError(
                    f"window {pair}: the engine alone ({engine.label}) did not come to the state of the environment: "
                    f"{problem}; what writes to the engine beside step_tensor, apply_reset and write_rows?"
                )
            if pair:
                found.engine_s[freshness].append(replayed)
        if pair:
            found.env_s.append(spent / len(actions))
            found.rows_reset += _rows(calls, "reset")
            found.rows_written += _rows(calls, "write")
        order.append(order.pop(0))
    return found


def _load(engine: BareEngine, snapshot: object) -> None:
    try:
        engine.load(snapshot)
    except ValueError as error:
        raise NotTheSameWorkError(
            f"{error}; an environment that is measured must be built of the scene and sim of its config"
        ) from error


def _step(env: TorchEnv, actions: Sequence[torch.Tensor], calls: list[EngineCall]) -> float:
    wait = waiter(env.device)
    with torch.inference_mode(), recorded(env._backend, calls):
        wait()
        began = time.perf_counter()
        for action in actions:
            env.step(action)
        wait()
        return time.perf_counter() - began


def _run(replay: Callable[[], None], device: torch.device) -> float:
    wait = waiter(device)
    wait()
    began = time.perf_counter()
    replay()
    wait()
    return time.perf_counter() - began


def _rows(calls: Sequence[EngineCall], kind: str) -> int:
    written = [call for call in calls if isinstance(call, RowsCall) and call.kind == kind]
    return sum(call.payload.env_ids.numel() for call in written)
