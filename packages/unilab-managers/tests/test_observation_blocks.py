"""Terms side by side in a group: who draws when, and that nobody's noise, clip or scale touches another's columns."""

from __future__ import annotations

import math
import struct
from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, group, ids, probe, zeros

from unilab_core import EnvRng
from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg
from unilab_managers.noise import (
    AdditiveBiasNoiseCfg,
    ConstantNoiseCfg,
    GaussianNoiseCfg,
    NoiseModel,
    NoiseModelCfg,
    UniformNoiseCfg,
)

N, WIDTH = 4, 3
HALF = UniformNoiseCfg(n_min=-0.5, n_max=0.5)
Rows = list[list[float]]


def f32(value: float) -> float:
    """Rounds to float32."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded


def drawing(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Draws by itself, one column."""
    return env.rng.uniform(0.0, 1.0, (env.num_envs, 1))


TERMS = {
    "a": ObservationTermCfg(func=probe, noise=UniformNoiseCfg(n_min=(-0.5, 0.0, -0.25), n_max=(0.5, 0.5, 0.25))),
    "plain": ObservationTermCfg(func=probe, scale=(2.0, 0.7, -0.3)),
    "c": ObservationTermCfg(func=probe, noise=GaussianNoiseCfg(std=0.5), clip=(-1.0, 0.9)),
    "own": ObservationTermCfg(func=drawing),
    "d": ObservationTermCfg(func=probe, noise=HALF, clip=(-0.4, 0.4), scale=0.3),
    "factor": ObservationTermCfg(func=probe, noise=UniformNoiseCfg(n_min=0.0, n_max=1.0, operation="scale")),
    "late": ObservationTermCfg(
        func=probe, noise=HALF, scale=0.7, delay_min_lag=1, delay_max_lag=1, history_length=2
    ),
    "constant": ObservationTermCfg(func=probe, noise=ConstantNoiseCfg(bias=(0.1, 0.2, 0.3))),
    "bias": ObservationTermCfg(
        func=probe, noise=AdditiveBiasNoiseCfg(bias=UniformNoiseCfg(n_min=0.0, n_max=1.0), noise=HALF)
    ),
    "seen": ObservationTermCfg(func=probe, history_length=2),
}  # fmt: skip


class Model:
    """The group once more, number by number, from the draws of a generator of its own.

    What is drawn and stretched is exact in float32 for these ranges, so that only sums and products round.
    """

    def __init__(self, env: ManagerBasedRlEnv, values: Rows) -> None:
        self.rng = EnvRng(0, "cpu")
        self.rng.set_state(env.rng.get_state())
        self.values = values
        self.bias: Rows = [[0.0] * WIDTH] * N
        self.late: list[list[list[float]]] = [[] for _ in range(N)]
        self.shown: list[dict[str, list[list[float]]]] = [{} for _ in range(N)]

    def unit(self, rows: int, width: int = WIDTH) -> Rows:
        drawn: Rows = torch.rand(rows, width, generator=self.rng.generator).tolist()
        return drawn

    def normal(self, rows: int) -> Rows:
        drawn: Rows = torch.randn(rows, WIDTH, generator=self.rng.generator).tolist()
        return drawn

    def frames(self, rows: list[int]) -> list[dict[str, list[float]]]:
        """Returns what each term measures of the rows: terms first, then noise, those with a history before others."""
        own = self.unit(N, 1)
        k = len(rows)
        late, uniform, normal = self.unit(k), self.unit(k, 2 * WIDTH), self.normal(k)
        factor, on_top = self.unit(k), self.unit(k)
        frames = []
        for i, row in enumerate(rows):
            seen = self.values[row]
            columns = range(WIDTH)
            noisy = [
                f32(seen[j] + (uniform[i][j] * (1.0, 0.5, 0.5)[j] + (-0.5, 0.0, -0.25)[j])) for j in columns
            ]
            gauss = [f32(seen[j] + 0.5 * normal[i][j]) for j in columns]
            tight = [f32(seen[j] + (uniform[i][WIDTH + j] - 0.5)) for j in columns]
            old = [f32(seen[j] + (late[i][j] - 0.5)) for j in columns]
            biased = [f32(f32(seen[j] + (on_top[i][j] - 0.5)) + self.bias[row][j]) for j in columns]
            frames.append(
                {
                    "a": noisy,
                    "plain": [f32(seen[j] * f32((2.0, 0.7, -0.3)[j])) for j in columns],
                    "c": [min(max(value, -1.0), f32(0.9)) for value in gauss],
                    "own": own[row],
                    "d": [f32(min(max(value, f32(-0.4)), f32(0.4)) * f32(0.3)) for value in tight],
                    "factor": [f32(seen[j] * factor[i][j]) for j in columns],
                    "late": [f32(value * f32(0.7)) for value in old],
                    "constant": [f32(seen[j] + f32((0.1, 0.2, 0.3)[j])) for j in columns],
                    "bias": biased,
                    "seen": seen,
                }
            )
        return frames

    def step(self, values: Rows) -> Rows:
        self.values = values
        for row, frame in enumerate(self.frames(list(range(N)))):
            self.late[row].append(frame["late"])
            frame["late"] = self.late[row][-2]
            self._show(row, frame)
        return self.observations(list(range(N)))

    def begin(self, rows: list[int]) -> Rows:
        drawn = self.unit(N)
        self.bias = [drawn[row] if row in rows else self.bias[row] for row in range(N)]
        for row, frame in zip(rows, self.frames(rows), strict=True):
            self.late[row] = [frame["late"]]
            self.shown[row] = {}
            self._show(row, frame)
        return self.observations(rows)

    def _show(self, row: int, frame: dict[str, list[float]]) -> None:
        for name, values in frame.items():
            length = max(1, TERMS[name].history_length)
            before = self.shown[row].get(name, [values] * length)
            self.shown[row][name] = [*before[1:], values]

    def observations(self, rows: list[int]) -> Rows:
        """Returns the columns in the order of declaration, oldest frames first."""
        return [[v for name in TERMS for frame in self.shown[row][name] for v in frame] for row in rows]


def test_a_group_of_all_kinds_follows_a_model_of_its_draws_and_numbers(make_env: MakeEnv) -> None:
    numbers, feed = torch.Generator().manual_seed(11), Feed()
    env = make_env(N, feed=feed, observations={"obs": group(**TERMS)}, reset=False)
    model = Model(env, [[0.0] * WIDTH] * N)
    assert env.reset()[0]["obs"].tolist() == model.begin([0, 1, 2, 3])
    for rows in ([], [1], [], [0, 3], [2], [0, 1, 2, 3], []):
        values: Rows = (torch.randint(-8, 9, (N, WIDTH), generator=numbers) / 8).tolist()
        feed.probe(values)
        assert env.step(zeros(env)).obs["obs"].tolist() == model.step(values)
        if rows:
            assert env.reset(ids(*rows))[0]["obs"].tolist() == model.begin(rows)
        assert env.observations()["obs"].tolist() == model.observations([0, 1, 2, 3])
        assert torch.equal(env.rng.get_state(), model.rng.get_state())


def test_what_a_neighbour_is_given_changes_no_bit_of_a_term_without_it(make_env: MakeEnv) -> None:
    feed = Feed()
    busy = ObservationTermCfg(func=probe, noise=HALF, clip=(0.25, 0.5), scale=3.0)
    terms = {"left": busy, "plain": ObservationTermCfg(func=probe), "right": busy}
    env = make_env(1, feed=feed, observations={"obs": group(**terms)})
    feed.probe([[-0.0, 1e30, 1e-42]])
    shown = env.step(zeros(env)).obs["obs"][0, 3:6].tolist()
    assert shown == [0.0, f32(1e30), f32(1e-42)]
    assert math.copysign(1.0, shown[0]) == -1.0


class OwnDrawsCfg(NoiseModelCfg):
    """Uniform noise from a generator of its own."""

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        return HALF.make(num_envs, dim, device, EnvRng(5, device))


def test_noise_of_one_kind_but_of_another_generator_draws_from_that(make_env: MakeEnv) -> None:
    terms = {
        "ours": ObservationTermCfg(func=probe, noise=HALF),
        "own": ObservationTermCfg(func=probe, noise=OwnDrawsCfg()),
        "ours_too": ObservationTermCfg(func=probe, noise=HALF),
    }
    env = make_env(N, observations={"obs": group(**terms)}, reset=False)
    twin, own = EnvRng(0, "cpu"), EnvRng(5, "cpu")
    twin.set_state(env.rng.get_state())
    for shown in (env.reset()[0]["obs"], env.step(zeros(env)).obs["obs"]):
        ours = twin.uniform(-0.5, 0.5, (N, 2 * WIDTH))
        assert torch.equal(shown[:, [0, 1, 2, 6, 7, 8]], ours)
        assert torch.equal(shown[:, 3:6], own.uniform(-0.5, 0.5, (N, WIDTH)))


class Notes(NoiseModel):
    """Notes what it is given, and adds one."""

    def __init__(self) -> None:
        self.given: list[str] = []

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        self.given.append(f"{values.tolist()} {env_ids if env_ids is None else env_ids.tolist()}")
        return values + 1.0


class NotesCfg(NoiseModelCfg):
    """See `Notes`."""

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        return Notes()


@pytest.mark.parametrize("history", [0, 2])
def test_a_model_of_ones_own_is_given_its_own_columns_as_they_were_computed(
    make_env: MakeEnv, history: int
) -> None:
    options: dict[str, Any] = {"func": probe, "clip": (-9.0, 9.0), "scale": 2.0, "history_length": history}
    terms = {
        "before": ObservationTermCfg(noise=HALF, **options),
        "own": ObservationTermCfg(noise=NotesCfg(), **options),
        "after": ObservationTermCfg(noise=HALF, **options),
    }
    feed = Feed()
    env = make_env(2, feed=feed, observations={"obs": group(**terms)})
    feed.probe([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    env.step(zeros(env))
    env.reset(ids(1))
    nothing = [0.0] * WIDTH
    assert env.state_dict()["values"]["observations.obs.own.noise.given"] == [
        f"{[nothing, nothing]} [0, 1]",
        f"{[[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]} None",
        f"{[[4.0, 5.0, 6.0]]} [1]",
    ]
    length = max(1, history)
    own = env.observations()["obs"][:, WIDTH * length :][:, : WIDTH * length]
    newest = own[:, -WIDTH:].tolist()
    assert newest == [[4.0, 6.0, 8.0], [10.0, 12.0, 14.0]]
