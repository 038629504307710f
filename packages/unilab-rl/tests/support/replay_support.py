"""Scripted streams of transitions, and what a replay must hold of them, told by the raw history."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass
from unittest.mock import patch

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_rl.contracts.off_policy import Batch
from unilab_rl.replay import Replay
from unilab_rl.state_parts import copy_to_cpu

KINDS = ("go", "go", "go", "go", "terminated", "truncated", "both", "refused", "nonfinite", "moved")
"""What happens to one row in one step; after "moved" the next observation isn't the one that was stored."""
GROUPS = {"obs": 2, "critic": 1}


@dataclass(frozen=True)
class Step:
    """One row's transition as it was handed over."""

    env: int
    time: int
    kind: str
    obs: float
    reward: float
    next_obs: float

    @property
    def accepted(self) -> bool:
        return self.kind not in ("refused", "nonfinite")

    @property
    def ended(self) -> bool:
        return self.kind in ("terminated", "truncated", "both")


@dataclass(frozen=True)
class Window:
    """What a batch must hold for one window."""

    env: int
    time: int
    obs: float
    reward: float
    next_obs: float
    num_steps: int
    terminated: bool


class History:
    """Everything that was added, row by row, and what of it a replay of a capacity still holds.

    An environment's transitions share observations as long as they go on from each other; every place where they
    don't costs one observation more. So many of the newest are kept as `capacity + 1` observations allow.
    """

    def __init__(self, num_envs: int, capacity: int) -> None:
        self.steps: list[list[Step]] = [[] for _ in range(num_envs)]
        self.follows: list[list[bool]] = [[] for _ in range(num_envs)]
        self.kept: list[deque[int | None]] = [deque(maxlen=capacity + 1) for _ in range(num_envs)]

    def add(self, step: Step, *, interrupted: bool) -> None:
        steps, kept = self.steps[step.env], self.kept[step.env]
        before = steps[-1] if steps else None
        follows = (
            before is not None
            and before.accepted
            and not before.ended
            and not interrupted
            and before.next_obs == step.obs
        )
        steps.append(step)
        self.follows[step.env].append(follows)
        if not step.accepted:
            return
        if kept:
            # The last observation stands open: this step is there, or it belongs to what lies before.
            last = next(old for old in reversed(steps[:-1]) if old.accepted)
            shares = follows and last is before
            if shares:
                kept.pop()
        kept.append(step.time)
        kept.append(None)

    def held(self) -> list[tuple[int, int]]:
        """Returns (env, time) of every transition that is kept, environment by environment, oldest first."""
        return [(env, time) for env, kept in enumerate(self.kept) for time in kept if time is not None]

    def window(self, env: int, time: int, n_step: int, gamma: float) -> Window:
        """Walks from a step as far as its window goes."""
        steps, follows = self.steps[env], self.follows[env]
        first, reward, count = steps[time], 0.0, 0
        while True:
            step = steps[time + count]
            reward += gamma**count * step.reward
            count += 1
            goes_on = time + count < len(steps) and follows[time + count] and steps[time + count].accepted
            if step.ended or count == n_step or not goes_on:
                terminated = step.kind in ("terminated", "both")
                return Window(env, time, first.obs, reward, step.next_obs, count, terminated)


class Stream:
    """Feeds a replay and a history with the same script.

    Args:
        constant: Whether all observations are equal, so that nothing but flags tells where a stream breaks.
    """

    def __init__(self, replay: Replay, *, constant: bool = False) -> None:
        self.replay = replay
        self.history = History(replay.num_envs, replay.capacity)
        self.constant = constant
        self.time = 0
        self.refused = 0
        self.now = [self._fresh(env, 0) for env in range(replay.num_envs)]
        self.interrupted = False

    def _fresh(self, env: int, part: int) -> float:
        """An observation that no other place has; it is odd or even by `part`."""
        return 7.0 if self.constant else float(1 + env + 10 * (3 * self.time + part))

    def interrupt(self) -> None:
        self.replay.interrupt()
        self.interrupted = True

    def add(self, kinds: Iterable[str]) -> None:
        """Takes one step, in which `kinds` happen to the rows."""
        steps = []
        for env, kind in enumerate(kinds):
            reward = float((7 * self.time + 3 * env) % 11 - 5)
            steps.append(Step(env, self.time, kind, self.now[env], reward, self._fresh(env, 1)))
        self.replay.add(*arguments(steps), refused=torch.tensor([step.kind == "refused" for step in steps]))
        for step in steps:
            self.history.add(step, interrupted=self.interrupted)
            self.refused += not step.accepted
            elsewhere = step.ended or step.kind == "moved"
            self.now[step.env] = self._fresh(step.env, 2) if elsewhere else step.next_obs
        self.interrupted = False
        self.time += 1


def arguments(steps: list[Step]) -> tuple[object, ...]:
    """What `Replay.add` gets: actions are (env, time)."""
    rewards = torch.tensor([float("inf") if step.kind == "nonfinite" else step.reward for step in steps])
    return (
        observations([step.obs for step in steps]),
        torch.tensor([[float(step.env), float(step.time)] for step in steps]),
        rewards,
        observations([step.next_obs for step in steps]),
        torch.tensor([step.kind in ("terminated", "both") for step in steps]),
        torch.tensor([step.kind in ("truncated", "both") for step in steps]),
    )


def observations(values: list[float]) -> dict[str, torch.Tensor]:
    """Both groups, told apart by sign and place."""
    column = torch.tensor(values).unsqueeze(1)
    return {"obs": torch.cat((column, column + 0.25), dim=1), "critic": -column}


def make_replay(
    num_envs: int = 2, capacity: int = 8, *, n_step: int = 1, gamma: float = 0.5, seed: int = 0
) -> Replay:
    return Replay(num_envs, capacity, GROUPS, 2, n_step=n_step, gamma=gamma, device="cpu", seed=seed)


def contents(replay: Replay) -> dict[str, object]:
    """Copies of everything that a replay holds now."""
    return copy_to_cpu(replay.mark().restore())


def every_window(replay: Replay) -> list[Window]:
    """Draws every number that there is a window for, once."""
    total = len(replay)
    with patch("torch.randint", lambda *_, **__: torch.arange(total)):
        return windows(replay, replay.sample(total))


def windows(replay: Replay, batch: Batch) -> list[Window]:
    """Takes a batch apart; both groups must tell the same observation."""
    for groups in (batch.obs, batch.next_obs):
        assert list(groups) == list(GROUPS)
        assert torch.equal(groups["obs"][:, :1], -groups["critic"])
        assert torch.equal(groups["obs"][:, 1], groups["obs"][:, 0] + 0.25)
    powers = [replay.gamma**count for count in range(replay.n_step + 1)]
    return [
        Window(int(env), int(time), obs, reward, next_obs, powers.index(discount), terminated)
        for (env, time), obs, reward, next_obs, discount, terminated in zip(
            batch.actions.tolist(),
            batch.obs["obs"][:, 0].tolist(),
            batch.rewards.tolist(),
            batch.next_obs["obs"][:, 0].tolist(),
            batch.discounts.tolist(),
            batch.terminated.tolist(),
            strict=True,
        )
    ]


class WaitCounter(TorchDispatchMode):
    """Counts the operators that make the host wait for the device, or whose result has a size that only it knows."""

    WAITING = (
        "_local_scalar_dense",
        "item",
        "nonzero",
        "masked_select",
        "is_nonzero",
        "equal",
        "unique",
        "bincount",
    )

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        if name in self.WAITING:
            self.counts[name] += 1
        elif name in ("index", "index_put", "index_put_") and any(
            index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1]
        ):
            self.counts["boolean index"] += 1
        elif name in ("_to_copy", "lift_fresh", "repeat_interleave"):
            # A copy to another device, or a number or list from the host, would be one of these; a cast is none.
            device = (kwargs or {}).get("device")
            if name != "_to_copy" or (device is not None and device != args[0].device):
                self.counts[name] += 1
        return func(*args, **(kwargs or {}))


def same(one, two):
    return all(
        torch.equal(getattr(left, name), getattr(right, name))
        for left, right in zip(one, two, strict=True)
        for name in ("actions", "rewards", "discounts", "terminated")
    ) and all(
        torch.equal(getattr(left, name)[group], getattr(right, name)[group])
        for left, right in zip(one, two, strict=True)
        for name in ("obs", "next_obs")
        for group in ("obs", "critic")
    )


def equal(one, two):
    if isinstance(one, torch.Tensor):
        return torch.equal(one, two) and one.dtype == two.dtype
    if isinstance(one, dict):
        return one.keys() == two.keys() and all(equal(one[key], two[key]) for key in one)
    return one == two
