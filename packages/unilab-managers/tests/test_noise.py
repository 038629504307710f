"""Noise without memory by itself: what it does to given values."""

from typing import Any

import pytest
import torch

from unilab_core import ConfigError, EnvRng
from unilab_managers.noise import ConstantNoiseCfg, GaussianNoiseCfg, NoiseCfg, NoiseModelCfg, UniformNoiseCfg

VALUES = torch.tensor([[1.0, -2.0], [0.5, 4.0]])


def rng() -> EnvRng:
    return EnvRng(7, "cpu")


def applied(
    noise: NoiseModelCfg, values: torch.Tensor = VALUES, source: EnvRng | None = None
) -> torch.Tensor:
    """Returns the values with noise."""
    model = noise.make(values.shape[0], values.shape[1], "cpu", source or rng())
    return model.apply(values)


@pytest.mark.parametrize(
    ("operation", "bias", "expected"),
    [
        ("add", 0.5, [[1.5, -1.5], [1.0, 4.5]]),
        ("add", (0.5, -1.0), [[1.5, -3.0], [1.0, 3.0]]),
        ("scale", 0.5, [[0.5, -1.0], [0.25, 2.0]]),
        ("scale", (2.0, 0.0), [[2.0, 0.0], [1.0, 0.0]]),
        ("abs", 0.5, [[0.5, 0.5], [0.5, 0.5]]),
        ("abs", (2.0, 3.0), [[2.0, 3.0], [2.0, 3.0]]),
    ],
)
def test_constant_noise_is_added_multiplied_or_put_in_place(
    operation: Any, bias: float | tuple[float, ...], expected: list[list[float]]
) -> None:
    source = rng()
    before = source.get_state()
    noise = ConstantNoiseCfg(bias=bias, operation=operation)
    assert applied(noise, source=source).tolist() == expected
    assert torch.equal(source.get_state(), before)  # it draws nothing


@pytest.mark.parametrize("operation", ["add", "scale", "abs"])
@pytest.mark.parametrize(
    ("noise", "drawn"),
    [
        # The unit draws of the same seed, stretched and shifted by hand.
        (
            UniformNoiseCfg(n_min=0.5, n_max=(1.0, 2.0)),
            0.5 + rng().uniform(0.0, 1.0, (2, 2)) * torch.tensor([0.5, 1.5]),
        ),
        (
            GaussianNoiseCfg(mean=(1.0, 2.0), std=0.5),
            torch.tensor([1.0, 2.0]) + rng().normal(0.0, 1.0, (2, 2)) * 0.5,
        ),
    ],
)
def test_drawn_noise_is_added_multiplied_or_put_in_place(
    noise: NoiseCfg, drawn: torch.Tensor, operation: Any
) -> None:
    expected = {"add": VALUES + drawn, "scale": VALUES * drawn, "abs": drawn}[operation]
    original = VALUES.clone()
    found = applied(noise.model_copy(update={"operation": operation}))
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)
    assert torch.equal(VALUES, original)


def test_uniform_noise_fills_each_columns_own_range() -> None:
    drawn = applied(UniformNoiseCfg(n_min=(-1.0, 2.0), n_max=(1.0, 2.5)), torch.zeros(20_000, 2))
    # 20000 draws: the extremes come within 1/1000 of the range, the mean within 1/100.
    assert drawn.amin(0).tolist() == pytest.approx([-1.0, 2.0], abs=2e-3)
    assert drawn.amax(0).tolist() == pytest.approx([1.0, 2.5], abs=2e-3)
    assert drawn.mean(0).tolist() == pytest.approx([0.0, 2.25], abs=2e-2)


def test_gaussian_noise_has_each_columns_mean_and_deviation() -> None:
    drawn = applied(GaussianNoiseCfg(mean=(0.0, 3.0), std=(0.5, 0.0)), torch.zeros(20_000, 2))
    assert drawn.mean(0).tolist() == pytest.approx([0.0, 3.0], abs=2e-2)
    assert float(drawn[:, 0].std()) == pytest.approx(0.5, abs=2e-2)
    assert bool((drawn[:, 1] == 3.0).all())


@pytest.mark.parametrize("noise", [UniformNoiseCfg(), GaussianNoiseCfg()])
def test_no_two_rows_columns_or_calls_share_a_draw(noise: NoiseCfg) -> None:
    model = noise.make(5, 4, "cpu", rng())
    drawn = [model.apply(torch.zeros(5, 4)), model.apply(torch.zeros(5, 4))]
    assert len(set(torch.cat(drawn).flatten().tolist())) == 40


def test_rows_that_begin_draw_for_themselves_only() -> None:
    source, twin = rng(), rng()
    model = UniformNoiseCfg(n_min=0.0, n_max=1.0).make(5, 2, "cpu", source)
    drawn = model.apply(torch.zeros(3, 2), torch.tensor([0, 2, 4]))
    assert torch.equal(drawn, twin.uniform(0.0, 1.0, (3, 2)))
    assert torch.equal(source.get_state(), twin.get_state())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformNoiseCfg(n_min=1.0, n_max=0.0), r"n_min 1.0 is above n_max 0.0"),
        (lambda: UniformNoiseCfg(n_min=(0.0, 1.0), n_max=(1.0, 0.5)), r"n_min \(0.0, 1.0\) is above"),
        (lambda: UniformNoiseCfg(n_min=(0.0, 2.0), n_max=1.0), "is above n_max 1.0"),
        (lambda: UniformNoiseCfg(n_min=(0.0, 0.0), n_max=(1.0, 1.0, 1.0)), "n_min has 2 numbers and n_max 3"),
        (lambda: UniformNoiseCfg(n_max=float("nan")), "n_max"),
        (lambda: UniformNoiseCfg(n_max=float("inf")), "n_max"),
        (lambda: GaussianNoiseCfg(std=-0.1), r"std is -0.1, expected std >= 0"),
        (lambda: GaussianNoiseCfg(std=(0.1, -0.1)), "expected std >= 0"),
        (lambda: GaussianNoiseCfg(mean=(0.0, float("nan"))), "mean"),
        (lambda: ConstantNoiseCfg(bias=float("nan")), "bias"),
        (lambda: ConstantNoiseCfg(operation="plus"), "operation"),  # type: ignore[arg-type]
        (lambda: UniformNoiseCfg(min=0.0), "unknown key 'min'; did you mean 'n_min'"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_noise_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_number_per_column_fits_the_columns_only() -> None:
    with pytest.raises(ConfigError, match="std has 3 numbers, expected 2"):
        GaussianNoiseCfg(std=(1.0, 1.0, 1.0)).make(4, 2, "cpu", rng())


def test_a_noise_that_makes_no_model_says_so() -> None:
    with pytest.raises(NotImplementedError, match="NoiseCfg does not implement make"):
        NoiseCfg().make(1, 1, "cpu", rng())


def test_a_range_of_no_width_is_exact() -> None:
    assert applied(UniformNoiseCfg(n_min=0.5, n_max=0.5)).tolist() == [[1.5, -1.5], [1.0, 4.5]]
    assert applied(GaussianNoiseCfg(mean=0.5, std=0.0)).tolist() == [[1.5, -1.5], [1.0, 4.5]]


FIELDS = [
    (UniformNoiseCfg, {}, {"n_min": -0.5, "n_max": 2.0, "operation": "scale"}),
    (GaussianNoiseCfg, {}, {"mean": 0.5, "std": 2.0, "operation": "scale"}),
    (ConstantNoiseCfg, {"bias": 0.5}, {"bias": 1.0, "operation": "scale"}),
]


@pytest.mark.parametrize(("kind", "base", "changes"), FIELDS)
def test_every_field_of_a_noise_changes_the_result(
    kind: type[NoiseCfg], base: dict[str, Any], changes: dict[str, Any]
) -> None:
    assert changes.keys() == kind.model_fields.keys()
    cfg = kind(**base)
    assert torch.equal(applied(cfg), applied(cfg))
    for name, value in changes.items():
        assert not torch.equal(applied(cfg.model_copy(update={name: value})), applied(cfg)), name
