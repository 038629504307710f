"""Random interleavings of steps and partial resets, against a plain-Python model of one row at a time."""

from dataclasses import dataclass, field

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_support import WIDTH, Feed, column, fake_env, flag, group, ids, probe, zeros

from unilab_managers import ObservationTermCfg, RewardTermCfg, TerminationTermCfg, mdp
from unisim import SimCfg

NUM_ENVS = 3
DT = 0.125  # a power of two, and values in eighths: every sum below is exact in float32
LIMIT = 4
CLIP, SCALE = (-1.0, 0.75), (2.0, -0.5, 4.0)
WEIGHTS = {"plus": (0, 2.0), "minus": (1, -0.5), "off": (2, 0.0)}

Rows = list[list[float]]
eighths = st.integers(-16, 16).map(lambda n: n / 8)
rows_of_values = st.lists(
    st.lists(eighths, min_size=WIDTH, max_size=WIDTH), min_size=NUM_ENVS, max_size=NUM_ENVS
)
subsets = st.lists(st.integers(0, NUM_ENVS - 1), unique=True)
commands = st.lists(
    st.one_of(rows_of_values.map(lambda v: ("step", v)), subsets.map(lambda v: ("reset", v))), max_size=12
)


@dataclass
class Row:
    """One row, as the contract tells it."""

    seen: list[float] = field(default_factory=lambda: [0.0] * WIDTH)
    length: int = 0
    sums: dict[str, float] = field(default_factory=lambda: dict.fromkeys(WEIGHTS, 0.0))
    cause: dict[str, bool] = field(default_factory=dict)

    def observation(self) -> list[float]:
        clipped = [min(max(value, CLIP[0]), CLIP[1]) for value in self.seen]
        return [value * scale for value, scale in zip(clipped, SCALE, strict=True)] + self.seen

    def step(self, values: list[float]) -> float:
        self.seen = values
        self.length += 1
        reward = 0.0
        for name, (index, weight) in WEIGHTS.items():
            self.sums[name] += values[index] * weight * DT
            reward += values[index] * weight * DT
        self.cause = {"fell": values[0] > 0.5, "cut": values[2] > 0.5, "time": self.length >= LIMIT}
        return reward

    def end(self) -> dict[str, float]:
        """Starts anew and returns what the log says of the episode: nothing if there was none."""
        log = {f"Episode_Reward/{name}": value / (LIMIT * DT) for name, value in self.sums.items()}
        log |= {f"Episode_Termination/{name}": float(value) for name, value in self.cause.items()}
        log |= {"length": float(self.length), "return": sum(self.sums.values())}
        log = log if self.length else {}
        self.length, self.cause, self.sums = 0, {}, dict.fromkeys(WEIGHTS, 0.0)
        return log


def check_log(log: dict[str, torch.Tensor], ended: list[dict[str, float]]) -> None:
    episodes = [entry for entry in ended if entry]
    for key in {key.rpartition("/")[0] for key in log}:
        assert int(log[f"{key}/count"]) == len(episodes)
        assert float(log[f"{key}/sum"]) == sum(entry[key] for entry in episodes)


@settings(max_examples=100, derandomize=True, deadline=None, database=None)
@given(commands=commands)
def test_observations_rewards_and_flags_follow_the_model(
    commands: list[tuple[str, Rows | list[int]]],
) -> None:
    feed = Feed()
    rows = [Row() for _ in range(NUM_ENVS)]
    clipped = ObservationTermCfg(func=probe, clip=CLIP, scale=SCALE)
    with fake_env(
        NUM_ENVS,
        feed=feed,
        sim=SimCfg(timestep=DT),
        episode_length_s=LIMIT * DT,
        observations={"obs": group(clipped=clipped, raw=ObservationTermCfg(func=probe))},
        rewards={
            name: RewardTermCfg(func=column, weight=weight, params={"index": index})
            for name, (index, weight) in WEIGHTS.items()
        },
        terminations={
            "fell": TerminationTermCfg(func=flag, params={"index": 0}),
            "cut": TerminationTermCfg(func=flag, params={"index": 2}, time_out=True),
            "time": TerminationTermCfg(func=mdp.time_out),
        },
    ) as env:
        for kind, argument in commands:
            if kind == "reset":
                chosen: list[int] = argument  # type: ignore[assignment]
                observations, info = env.reset(ids(*chosen))
                if chosen:
                    check_log(info["episode"], [rows[i].end() for i in chosen])
                assert observations["obs"].tolist() == [rows[i].observation() for i in chosen]
            else:
                values: Rows = argument  # type: ignore[assignment]
                feed.probe(values)
                state = env.step(zeros(env))
                assert state.reward.tolist() == [
                    row.step(value) for row, value in zip(rows, values, strict=True)
                ]
                assert state.terminated.tolist() == [row.cause["fell"] for row in rows]
                assert state.truncated.tolist() == [row.cause["cut"] or row.cause["time"] for row in rows]
                for name in ("fell", "cut", "time"):
                    assert env.termination_manager.get_term(name).tolist() == [
                        row.cause[name] for row in rows
                    ]
                done = [row for row in rows if any(row.cause.values())]
                assert ("episode" in state.info) == bool(done)
                if done:
                    check_log(state.info["episode"], [row.end() for row in done])
            assert env.observations()["obs"].tolist() == [row.observation() for row in rows]
            assert env.episode_length.tolist() == [row.length for row in rows]
