"""Random steps, partial and automatic resets: the whole pipeline against a plain-Python model of one row at a time."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from manager_support import WIDTH, Feed, fake_env, flag, ids, probe, zeros

from unilab_managers import ObservationGroupCfg, ObservationTermCfg, TerminationTermCfg
from unilab_managers.noise import ConstantNoiseCfg

NUM_ENVS = 3
BIAS, CLIP, SCALE = 0.5, (-1.0, 0.75), (2.0, -0.5, 4.0)

Rows = list[list[float]]
eighths = st.integers(-16, 16).map(lambda n: n / 8)
values_of_rows = st.lists(
    st.lists(eighths, min_size=WIDTH, max_size=WIDTH), min_size=NUM_ENVS, max_size=NUM_ENVS
)
subsets = st.lists(st.integers(0, NUM_ENVS - 1), unique=True)
commands = st.lists(
    st.one_of(values_of_rows.map(lambda v: ("step", v)), subsets.map(lambda v: ("reset", v))), max_size=20
)
term_settings = st.fixed_dictionaries(
    {"noise": st.booleans(), "clip": st.booleans(), "scale": st.booleans(), "lag": st.integers(0, 3)}
)
lengths = st.integers(0, 4)


def processed(values: list[float], setting: dict[str, Any]) -> list[float]:
    """Returns a measured frame after noise, clip and scale; all sums and products are exact in float32."""
    out = []
    for value, scale in zip(values, SCALE, strict=True):
        value = value + BIAS if setting["noise"] else value
        value = min(max(value, CLIP[0]), CLIP[1]) if setting["clip"] else value
        out.append(value * scale if setting["scale"] else value)
    return out


@dataclass
class Row:
    """One row: what its sensor shows, and everything measured in its episode, the first frame first."""

    seen: list[float] = field(default_factory=lambda: [0.0] * WIDTH)
    episode: Rows = field(default_factory=list)

    def begin(self) -> None:
        self.episode = [self.seen]

    def step(self, values: list[float]) -> None:
        self.seen = values
        self.episode.append(values)

    def frame(self, age: int, setting: dict[str, Any]) -> list[float]:
        """Returns what a term showed some steps ago; before the episode began, what it showed first."""
        return processed(self.episode[max(0, len(self.episode) - 1 - age - setting["lag"])], setting)

    def shown(self, terms: list[dict[str, Any]], by_frame: bool) -> list[float]:
        if by_frame:
            ages = range(max(1, terms[0]["frames"]) - 1, -1, -1)
            return [x for age in ages for setting in terms for x in self.frame(age, setting)]
        return [
            x
            for setting in terms
            for age in range(max(1, setting["frames"]) - 1, -1, -1)
            for x in self.frame(age, setting)
        ]


@settings(max_examples=120, derandomize=True, deadline=None, database=None)
@given(
    terms=st.lists(st.tuples(term_settings, lengths), min_size=1, max_size=3),
    group_length=st.none() | lengths,
    by_frame=st.booleans(),
    commands=commands,
)
def test_the_pipeline_follows_the_model(terms, group_length, by_frame, commands) -> None:
    chosen = [s | {"frames": n if group_length is None else group_length} for s, n in terms]
    by_frame = by_frame and len({max(1, setting["frames"]) for setting in chosen}) == 1
    cfgs = {
        f"t{i}": ObservationTermCfg(
            func=probe,
            noise=ConstantNoiseCfg(bias=BIAS) if setting["noise"] else None,
            clip=CLIP if setting["clip"] else None,
            scale=SCALE if setting["scale"] else None,
            delay_min_lag=setting["lag"],
            delay_max_lag=setting["lag"],
            history_length=length,
        )
        for i, (setting, length) in enumerate(terms)
    }
    group = ObservationGroupCfg(terms=cfgs, history_length=group_length, flatten_history_dim=not by_frame)
    feed = Feed()
    rows = [Row() for _ in range(NUM_ENVS)]
    for row in rows:
        row.begin()
    with fake_env(
        NUM_ENVS,
        feed=feed,
        observations={"obs": group},
        terminations={"high": TerminationTermCfg(func=flag, params={"index": 0})},
    ) as env:
        for kind, argument in commands:
            if kind == "reset":
                observations, _ = env.reset(ids(*argument))
                for i in argument:
                    rows[i].begin()
                assert observations["obs"].tolist() == [rows[i].shown(chosen, by_frame) for i in argument]
            else:
                feed.probe(argument)
                state = env.step(zeros(env))
                for row, values in zip(rows, argument, strict=True):
                    row.step(values)
                ended = [row for row in rows if row.seen[0] > 0.5]
                if ended:
                    assert state.final_observation["obs"].tolist() == [
                        r.shown(chosen, by_frame) for r in rows
                    ]
                for row in ended:
                    row.begin()
            assert env.observations()["obs"].tolist() == [row.shown(chosen, by_frame) for row in rows]
            assert torch.equal(env.observation_manager.compute(None)["obs"], env.observations()["obs"])
