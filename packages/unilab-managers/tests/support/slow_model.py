"""What managers do, once more: one row at a time, in plain Python, from the contract and not from the code.

Integers, booleans and timers are exact; values are rounded to float32 after every operation, but the terms of a reward,
added in the order of declaration, only when all are.
Where a manager draws a number, the model takes the drawn one over after checking that it was allowed, and that it was
drawn only where one was due.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

DT = 0.125
LIMIT = 9
"""Time limit of an episode, steps."""
NOISE, CLIP, SCALE = 0.3, (-1.0, 0.9), (2.0, -0.7, 4.1)
FIXED_LAG, LAGS, PERIOD = 2, (1, 3), 2
WEIGHTS = {"plus": (0, 1.7), "minus": (1, -0.3), "off": (2, 0.0)}
STAGES = ((40, "minus", -1.1), (90, "off", 0.9), (140, "minus", 0.0))
FLOOR = -1.3
TIMERS = {"push": (2, 4), "drift": (3, 5)}
RESAMPLED_ON_RESET = {"push": True, "drift": False}
GLOBAL_STEPS = 4
MIN_STEPS_BETWEEN_RESETS = 5
COMMAND_STEPS = (2, 5)
METRICS_START = 2
WIDTH = 3

Values = list[float]


def f32(value: float) -> float:
    """Rounds to float32."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


class Frames:
    """What one term of one row is shown: a delay, then a history, of frames of one episode."""

    def __init__(self, history: int) -> None:
        self.history = history
        self.measured: list[Values] = []
        self.shown: list[Values] = []

    def begin(self, frame: Values) -> None:
        self.measured = [frame]
        self.shown = [frame] * self.history

    def push(self, frame: Values, lag: int) -> None:
        self.measured.append(frame)
        oldest_first = len(self.measured) - 1 - lag
        self.shown = [*self.shown[1:], self.measured[max(0, oldest_first)]]

    def flat(self) -> Values:
        return [value for frame in self.shown for value in frame]


def corrupted(values: Values) -> Values:
    """Noise, then clip, then scale."""
    noisy = [f32(value + f32(NOISE)) for value in values]
    clipped = [min(max(value, f32(CLIP[0])), f32(CLIP[1])) for value in noisy]
    return [f32(value * f32(scale)) for value, scale in zip(clipped, SCALE, strict=True)]


@dataclass
class Row:
    """One environment."""

    seen: Values = field(default_factory=lambda: [0.0] * WIDTH)
    length: int = 0
    lag: int = LAGS[0]
    lag_age: int = 0
    timers: dict[str, int] = field(default_factory=dict)
    last_begin: int | None = None
    command: int = 0
    ticks: int = 0
    command_steps: int = 0
    age: int = 0
    error: float = 0.0
    level: int = 0
    rewards: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WEIGHTS, 0.0))
    cause: dict[str, bool] = field(default_factory=dict)
    measured: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.terms = {"late": Frames(3), "wander": Frames(2), "frame_a": Frames(2), "frame_b": Frames(2)}

    # ------------------------------------------------------------------ observations

    def begin_observations(self) -> None:
        for name, frames in self.terms.items():
            frames.begin(corrupted(self.seen) if name == "late" else list(self.frame(name)))

    def frame(self, name: str) -> Values:
        if name == "frame_b":
            return [float(self.command), float(self.ticks)]
        return self.seen

    def push_observations(self) -> None:
        self.terms["late"].push(corrupted(self.seen), FIXED_LAG)
        self.terms["wander"].push(self.seen, self.lag)
        self.terms["frame_a"].push(self.seen, 0)
        self.terms["frame_b"].push(self.frame("frame_b"), 0)

    def observations(self) -> dict[str, Values]:
        a, b = self.terms["frame_a"].shown, self.terms["frame_b"].shown
        return {
            "obs": [*corrupted(self.seen), *self.terms["late"].flat(), *self.terms["wander"].flat()],
            "critic": [
                value for frame_a, frame_b in zip(a, b, strict=True) for value in (*frame_a, *frame_b)
            ],
        }

    # ------------------------------------------------------------------ a step

    def judge(self, values: Values, weights: dict[str, float]) -> float:
        """Terminations and rewards of a step that showed `values`."""
        self.seen = values
        self.length += 1
        self.cause = {"fell": values[0] > 1.75, "cut": values[2] > 1.75, "time": self.length == LIMIT}
        total = 0.0
        for name, (index, _) in WEIGHTS.items():
            if weights[name] != 0.0:
                value = f32(f32(values[index]) * f32(weights[name] * DT))
                self.rewards[name] = f32(self.rewards[name] + value)
                total += value
        return max(f32(total), f32(FLOOR * DT))

    @property
    def done(self) -> bool:
        return any(self.cause.values())

    def fired(self, name: str) -> bool:
        """Lets a step pass for an interval timer."""
        self.timers[name] -= 1
        return self.timers[name] <= 0

    def step_command(self) -> bool:
        """Metrics, then timers, then the update; returns whether the command was redrawn."""
        self.age += 1
        if self.age > METRICS_START:
            self.error = f32(self.error + self.command)
        self.command_steps -= 1
        redrawn = self.command_steps <= 0 or self.seen[1] > 1.75
        if redrawn:
            self.command += 1
        self.ticks += 1
        return redrawn

    # ------------------------------------------------------------------ a reset

    def end(self, weights: dict[str, float]) -> dict[str, float]:
        """Ends the episode, if there was one, and returns what the log says of it."""
        log: dict[str, float] = {}
        if self.length:
            log = {f"Episode_Reward/{name}": f32(v / (LIMIT * DT)) for name, v in self.rewards.items()}
            log |= {f"Episode_Termination/{name}": float(value) for name, value in self.cause.items()}
            log |= {"length": float(self.length)}
            log |= {
                "Metrics/mean": f32(sum(self.measured) / self.length),
                "Metrics/sum": sum(self.measured),
                "Metrics/last": self.measured[-1],
                "Metrics/max": max(self.measured),
                "Metrics/min": min(self.measured),
            }
        counted = self.age - METRICS_START
        if counted > 0:
            log["Metrics/count/error"] = f32(self.error / counted)
        self.length, self.age, self.error, self.ticks = 0, 0, 0.0, 0
        self.cause, self.measured = {}, []
        self.rewards = dict.fromkeys(WEIGHTS, 0.0)
        self.command += 1
        return log

    def may_begin(self, now: int) -> bool:
        """Whether the reset event is admitted, which is remembered."""
        if self.last_begin is not None and now - self.last_begin < MIN_STEPS_BETWEEN_RESETS:
            return False
        self.last_begin = now
        return True
