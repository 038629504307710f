"""Noise models by themselves: what they do to given values."""

from typing import Any

import pytest
import torch

from unilab_core import ConfigError, EnvRng
from unilab_managers import ConstantNoiseCfg, GaussianNoiseCfg, NoiseCfg, UniformNoiseCfg

VALUES = torch.tensor([[1.0, -2.0], [0.5, 4.0]])


def rng() -> EnvRng:
    return EnvRng(7, "cpu")


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
    noise, source = ConstantNoiseCfg(bias=bias, operation=operation), rng()
    before = source.get_state()
    assert noise.apply(VALUES, source).tolist() == expected
    assert torch.equal(source.get_state(), before)  # it draws nothing


@pytest.mark.parametrize("operation", ["add", "scale", "abs"])
@pytest.mark.parametrize(
    "noise", [UniformNoiseCfg(n_min=0.5, n_max=(1.0, 2.0)), GaussianNoiseCfg(mean=(1.0, 2.0))]
)
def test_drawn_noise_is_added_multiplied_or_put_in_place(noise: NoiseCfg, operation: Any) -> None:
    drawn = noise.sample(VALUES, rng())
    expected = {"add": VALUES + drawn, "scale": VALUES * drawn, "abs": drawn}[operation]
    original = VALUES.clone()
    assert torch.equal(noise.model_copy(update={"operation": operation}).apply(VALUES, rng()), expected)
    assert torch.equal(VALUES, original)


def test_uniform_noise_fills_each_columns_own_range() -> None:
    drawn = UniformNoiseCfg(n_min=(-1.0, 2.0), n_max=(1.0, 2.5)).sample(torch.zeros(20_000, 2), rng())
    # 20000 draws: the extremes come within 1/1000 of the range, the mean within 1/100.
    assert drawn.amin(0).tolist() == pytest.approx([-1.0, 2.0], abs=2e-3)
    assert drawn.amax(0).tolist() == pytest.approx([1.0, 2.5], abs=2e-3)
    assert drawn.mean(0).tolist() == pytest.approx([0.0, 2.25], abs=2e-2)


def test_gaussian_noise_has_each_columns_mean_and_deviation() -> None:
    drawn = GaussianNoiseCfg(mean=(0.0, 3.0), std=(0.5, 0.0)).sample(torch.zeros(20_000, 2), rng())
    assert drawn.mean(0).tolist() == pytest.approx([0.0, 3.0], abs=2e-2)
    assert float(drawn[:, 0].std()) == pytest.approx(0.5, abs=2e-2)
    assert bool((drawn[:, 1] == 3.0).all())


def test_no_two_rows_or_columns_share_a_draw() -> None:
    for noise in (UniformNoiseCfg(), GaussianNoiseCfg()):
        assert len(set(noise.sample(torch.zeros(5, 4), rng()).flatten().tolist())) == 20


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: UniformNoiseCfg(n_min=1.0, n_max=0.0), r"n_min 1.0 is above n_max 0.0"),
        (lambda: UniformNoiseCfg(n_min=(0.0, 1.0), n_max=(1.0, 0.5)), r"n_min \(0.0, 1.0\) is above"),
        (lambda: UniformNoiseCfg(n_min=(0.0, 2.0), n_max=1.0), "is above n_max 1.0"),
        (lambda: UniformNoiseCfg(n_min=(0.0, 0.0), n_max=(1.0, 1.0, 1.0)), "n_min has 2 numbers and n_max 3"),
        (lambda: GaussianNoiseCfg(std=-0.1), r"std is -0.1, expected std >= 0"),
        (lambda: GaussianNoiseCfg(std=(0.1, -0.1)), "expected std >= 0"),
        (lambda: ConstantNoiseCfg(bias=float("nan")), "bias"),
        (lambda: ConstantNoiseCfg(operation="plus"), "operation"),  # type: ignore[arg-type]
        (lambda: UniformNoiseCfg(min=0.0), "unknown key 'min'; did you mean 'n_min'"),  # type: ignore[call-arg]
    ],
)
def test_a_wrong_noise_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_a_noise_that_does_not_sample_says_so() -> None:
    with pytest.raises(NotImplementedError, match="NoiseCfg does not implement sample"):
        NoiseCfg().apply(VALUES, rng())


def test_a_range_of_no_width_is_exact() -> None:
    assert UniformNoiseCfg(n_min=0.5, n_max=0.5).apply(VALUES, rng()).tolist() == [[1.5, -1.5], [1.0, 4.5]]
    assert GaussianNoiseCfg(mean=0.5, std=0.0).apply(VALUES, rng()).tolist() == [[1.5, -1.5], [1.0, 4.5]]
