"""Noise that remembers: the bias of an episode, and models of one's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, group, ids, probe, zeros

from unilab_core import ConfigError, EnvRng
from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg
from unilab_managers.noise import (
    AdditiveBiasNoiseCfg,
    ConstantNoiseCfg,
    GaussianNoiseCfg,
    NoiseModel,
    NoiseModelCfg,
    UniformNoiseCfg,
)

UNIT = UniformNoiseCfg(n_min=0.0, n_max=1.0)


def rng() -> EnvRng:
    return EnvRng(7, "cpu")


def mask(*rows: int, num_envs: int = 3) -> torch.Tensor:
    return torch.tensor([i in rows for i in range(num_envs)])


def test_the_bias_is_drawn_when_a_row_begins_and_stays() -> None:
    model = AdditiveBiasNoiseCfg(bias=UNIT).make(3, 2, "cpu", rng())
    assert model.apply(torch.zeros(3, 2)).tolist() == [[0.0, 0.0]] * 3
    model.reset(mask(0, 1, 2))
    bias = rng().uniform(0.0, 1.0, (3, 2))
    for _ in range(3):
        assert torch.equal(model.apply(torch.ones(3, 2)), 1.0 + bias)
    model.reset(mask(1))
    again = model.apply(torch.zeros(3, 2))
    assert torch.equal(again[[0, 2]], bias[[0, 2]])
    assert not bool((again[1] == bias[1]).any())


def test_rows_that_begin_get_the_bias_of_their_own_row() -> None:
    model = AdditiveBiasNoiseCfg(bias=UNIT).make(3, 2, "cpu", rng())
    model.reset(mask(0, 1, 2))
    bias = rng().uniform(0.0, 1.0, (3, 2))
    assert torch.equal(model.apply(torch.zeros(2, 2), ids(0, 2)), bias[[0, 2]])


def test_the_columns_share_one_bias_if_it_is_not_per_component() -> None:
    model = AdditiveBiasNoiseCfg(bias=UNIT, per_component=False).make(3, 2, "cpu", rng())
    model.reset(mask(0, 1, 2))
    bias = rng().uniform(0.0, 1.0, (3, 1))
    assert torch.equal(model.apply(torch.zeros(3, 2)), bias.expand(3, 2))


def test_the_noise_of_each_step_comes_before_the_bias() -> None:
    cfg = AdditiveBiasNoiseCfg(
        bias=ConstantNoiseCfg(bias=0.5), noise=ConstantNoiseCfg(bias=2.0, operation="scale")
    )
    model = cfg.make(1, 1, "cpu", rng())
    model.reset(mask(0, num_envs=1))
    assert model.apply(torch.tensor([[3.0]])).tolist() == [[6.5]]


def test_a_bias_may_lie_on_top_of_a_noise_with_a_bias() -> None:
    inner = AdditiveBiasNoiseCfg(bias=ConstantNoiseCfg(bias=1.0))
    model = AdditiveBiasNoiseCfg(bias=ConstantNoiseCfg(bias=10.0), noise=inner).make(2, 1, "cpu", rng())
    model.reset(mask(1, num_envs=2))
    assert model.apply(torch.zeros(2, 1)).tolist() == [[0.0], [11.0]]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: AdditiveBiasNoiseCfg(bias=ConstantNoiseCfg(operation="scale")),
            "bias: operation is 'scale', expected 'add'",
        ),
        (lambda: AdditiveBiasNoiseCfg(), "bias"),  # type: ignore[call-arg]
        (lambda: AdditiveBiasNoiseCfg(bias=AdditiveBiasNoiseCfg(bias=UNIT)), "bias"),  # type: ignore[arg-type]
        (lambda: made(bias=UniformNoiseCfg(n_max=(1.0, 1.0, 1.0))), "bias.n_max has 3 numbers, expected 2"),
        (lambda: made(bias=UNIT, noise=GaussianNoiseCfg(std=(1.0,))), "noise.std has 1 numbers, expected 2"),
        (
            lambda: made(bias=ConstantNoiseCfg(bias=(1.0, 1.0)), per_component=False),
            "bias.bias has 2 numbers, expected 1",
        ),
    ],
)
def test_a_wrong_bias_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def made(**settings: Any) -> NoiseModel:
    return AdditiveBiasNoiseCfg(**settings).make(3, 2, "cpu", rng())


def test_every_field_of_an_additive_bias_changes_the_result() -> None:
    base = {"bias": UNIT, "noise": None, "per_component": True}
    changes = {"bias": ConstantNoiseCfg(bias=3.0), "noise": UNIT, "per_component": False}
    assert changes.keys() == AdditiveBiasNoiseCfg.model_fields.keys()

    def shown(**settings: Any) -> torch.Tensor:
        model = made(**settings)
        model.reset(mask(0, 1, 2))
        return model.apply(torch.zeros(3, 2))

    assert torch.equal(shown(**base), shown(**base))
    for name, value in changes.items():
        assert not torch.equal(shown(**(base | {name: value})), shown(**base)), name


# ---------------------------------------------------------------- in an environment


class Wear(NoiseModel):
    """Adds what a row has worn since its episode began, and notes every mask it is given."""

    def __init__(self, num_envs: int, rate: float) -> None:
        self.rate = rate
        self.worn = torch.zeros(num_envs, 1)
        self.masks: list[str] = []

    def reset(self, reset_mask: torch.Tensor) -> None:
        self.masks.append(f"{reset_mask.dtype} {reset_mask.tolist()}")
        self.worn.masked_fill_(reset_mask.unsqueeze(1), 0.0)

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        if env_ids is not None:
            return values + self.worn[env_ids]
        self.worn += self.rate
        return values + self.worn


class WearCfg(NoiseModelCfg):
    """See `Wear`."""

    rate: float = 1.0

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        return Wear(num_envs, self.rate)


def worn(env: ManagerBasedRlEnv) -> list[float]:
    return env.observations()["obs"][:, 0].tolist()


def test_a_model_of_ones_own_gets_the_full_mask_and_advances_once_a_step(make_env: MakeEnv) -> None:
    term = ObservationTermCfg.model_validate(
        {"func": probe, "noise": {"_target_": f"{WearCfg.__module__}:WearCfg", "rate": 2.0}}
    )
    env = make_env(observations={"obs": group(p=term)})
    env.step(zeros(env))
    env.step(zeros(env))
    assert worn(env) == [4.0, 4.0, 4.0]
    env.reset(ids(2, 0))
    assert worn(env) == [0.0, 4.0, 0.0]
    env.step(zeros(env))
    assert worn(env) == [2.0, 6.0, 2.0]
    masks = env.state_dict()["values"]["observations.obs.p.noise.masks"]
    assert masks == ["torch.bool [True, True, True]", "torch.bool [True, False, True]"]


class MuchWearCfg(AdditiveBiasNoiseCfg):
    """A subclass that changes what a bias is drawn from."""

    factor: float = 1.0

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        low, high = 1.0 * self.factor, 2.0 * self.factor
        cfg = AdditiveBiasNoiseCfg(bias=UniformNoiseCfg(n_min=low, n_max=high), noise=self.noise)
        return cfg.make(num_envs, dim, device, rng)


def test_a_subclass_of_the_bias_is_named_in_yaml_and_comes_back(make_env: MakeEnv) -> None:
    target = f"{MuchWearCfg.__module__}:MuchWearCfg"
    text = f"""
func: {probe.__module__}:probe
noise:
  _target_: {target}
  factor: 100
  bias: {{_target_: unilab_managers.noise:UniformNoiseCfg}}
"""
    term = ObservationTermCfg.from_yaml(text)
    assert isinstance(term.noise, MuchWearCfg)
    assert ObservationTermCfg.from_yaml(term.to_yaml()) == term
    env = make_env(observations={"obs": group(p=term)})
    assert all(100.0 <= value < 200.0 for value in env.observations()["obs"].flatten().tolist())
    with pytest.raises(ConfigError, match="is not a subclass of NoiseModelCfg"):
        ObservationTermCfg.model_validate({"func": probe, "noise": {"_target_": "unisim.config:Cfg"}})


def test_a_bias_is_drawn_anew_for_the_rows_that_begin_and_not_without_corruption(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=probe, noise=AdditiveBiasNoiseCfg(bias=UNIT))
    env = make_env(observations={"obs": group(p=term), "critic": group(p=term, enable_corruption=False)})
    first = env.observations()["obs"]
    env.step(zeros(env))
    assert torch.equal(env.observations()["obs"], first)
    env.reset(ids(1))
    after = env.observations()["obs"]
    assert torch.equal(after[[0, 2]], first[[0, 2]])
    assert not bool((after[1] == first[1]).any())
    assert not bool(env.observations()["critic"].any())


class Odd(NoiseModel):
    """Returns what it must not."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> Any:
        return {"flat": values[:, 0], "double": values.double(), "none": None}[self.kind]


class OddCfg(NoiseModelCfg):
    """See `Odd`."""

    kind: str

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        return NoiseModel() if self.kind == "nothing" else Odd(self.kind)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("flat", r"Odd.apply returned torch.float32 \(3,\), expected torch.float32 \(3, 3\)"),
        ("double", r"Odd.apply returned torch.float64 \(3, 3\), expected torch.float32 \(3, 3\)"),
        ("none", r"Odd.apply returned NoneType, expected torch.float32 \(3, 3\)"),
        ("nothing", "NoiseModel does not implement apply"),
    ],
)
def test_a_model_that_returns_what_is_no_observation_is_named(
    make_env: MakeEnv, kind: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=f"observations.obs term 'p': .*{message}"):
        make_env(observations={"obs": group(p=ObservationTermCfg(func=probe, noise=OddCfg(kind=kind)))})


def test_a_noise_of_another_episode_does_not_outlive_it(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(feed=feed, observations={"obs": group(p=ObservationTermCfg(func=probe, noise=WearCfg()))})
    feed.probe([[10.0, 0.0, 0.0], [20.0, 0.0, 0.0], [30.0, 0.0, 0.0]])
    env.step(zeros(env))
    assert worn(env) == [11.0, 21.0, 31.0]
    env.reset()
    assert worn(env) == [10.0, 20.0, 30.0]
