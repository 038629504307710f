"""Categorical critics: two networks in one, the mean of a distribution, and which of two distributions is believed."""

import math

import distributional_oracle as oracle
import pytest
import torch

from unilab_rl.algorithms.distributional import (
    CategoricalCfg,
    CategoricalEnsemble,
    cross_entropy,
    project_each,
)
from unilab_rl.contracts.off_policy import Batch


def critic(*, layer_norm: bool = True, num_critics: int = 2) -> CategoricalEnsemble:
    return CategoricalEnsemble(
        3,
        2,
        (8, 4),
        torch.nn.SiLU,
        CategoricalCfg(num_atoms=5, v_min=-2.0, v_max=2.0),
        torch.Generator().manual_seed(0),
        layer_norm=layer_norm,
        num_critics=num_critics,
    )


def one_critic_in_doubles(network: CategoricalEnsemble, member: int, x: torch.Tensor) -> torch.Tensor:
    """The critic `member` on its own, layer by layer."""
    held = {name: tensor[member] for name, tensor in oracle.doubles(network).items() if name != "support"}
    x = x.double()
    for hidden in (0, 3):
        x = x @ held[f"layers.{hidden}.weight"] + held[f"layers.{hidden}.bias"]
        x = oracle.layer_norm(x, held[f"layers.{hidden + 1}.weight"], held[f"layers.{hidden + 1}.bias"])
        x = x / (1.0 + torch.exp(-x))
    return x @ held["layers.6.weight"] + held["layers.6.bias"]


@pytest.mark.parametrize("rows", [1, 7])
def test_each_critic_of_an_ensemble_is_the_network_that_it_would_be_alone(rows: int) -> None:
    network = critic()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw)
    obs, actions = torch.randn(rows, 3, generator=draw), torch.randn(rows, 2, generator=draw)
    logits = network(obs, actions)
    assert logits.shape == (2, rows, 5)
    for member in (0, 1):
        alone = one_critic_in_doubles(network, member, torch.cat((obs, actions), dim=1))
        assert torch.allclose(logits[member].double(), alone, atol=1e-5)


def test_critics_begin_different_and_a_generator_decides_how() -> None:
    first, again = critic(), critic()
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), again.parameters(), strict=True))
    assert not torch.equal(first.layers[0].weight[0], first.layers[0].weight[1])


def test_without_layer_norm_there_are_only_linear_layers_and_activations() -> None:
    names = [type(layer).__name__ for layer in critic(layer_norm=False).layers]
    assert names == ["EnsembleLinear", "SiLU", "EnsembleLinear", "SiLU", "EnsembleLinear"]


def test_the_value_is_the_mean_of_the_distribution() -> None:
    network = critic()
    logits = torch.log(torch.tensor([[[0.1, 0.2, 0.3, 0.2, 0.2]], [[0.0, 0.0, 0.0, 0.0, 1.0]]]))
    # -2 * .1 - 1 * .2 + 1 * .2 + 2 * .2 = 0.2
    assert network.values(logits).flatten().tolist() == pytest.approx([0.2, 2.0])


def test_the_support_is_even_and_saved_with_the_critic() -> None:
    assert critic().state_dict()["support"].tolist() == [-2.0, -1.0, 0.0, 1.0, 2.0]


def test_targets_of_each_critic_are_those_of_its_own_prediction() -> None:
    distributions = torch.rand(3, 4, 5, generator=torch.Generator().manual_seed(2))
    distributions /= distributions.sum(-1, keepdim=True)
    obs, actions = {"obs": torch.zeros(4, 3)}, torch.zeros(4, 2)
    terminated = torch.tensor([False, True, False, False])
    discounts = torch.tensor([0.9, 0.9, 0.81, 0.0])
    batch = Batch(obs, actions, torch.full((4,), torch.nan), obs, discounts, terminated)
    rewards, bonus = torch.tensor([0.3, -0.7, 5.0, 1.0]), torch.tensor([0.1, 3.0, -0.2, 0.4])
    each = project_each(distributions, batch, rewards, v_min=-2.0, v_max=2.0, next_bonus=bonus)
    support = torch.linspace(-2.0, 2.0, 5)
    for critic_of, projected in zip(distributions, each, strict=True):
        expected = oracle.projected(critic_of, support, rewards, discounts, terminated, -bonus)
        assert torch.allclose(projected.double(), expected, atol=1e-6)


def test_cross_entropy_is_a_mean_over_the_batch_for_each_critic() -> None:
    logits = torch.log(
        torch.tensor([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [[0.25, 0.25, 0.5], [0.5, 0.25, 0.25]]])
    )
    target = torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]])
    ln2 = math.log(2.0)
    expected = [(1.0 * ln2 + 1.5 * ln2) / 2, (2.0 * ln2 + 2.0 * ln2) / 2]
    assert cross_entropy(target, logits).tolist() == pytest.approx(expected)
    each = torch.stack((target, target.flip(0)))
    swapped = [(1.0 * ln2 + 1.5 * ln2) / 2, (1.5 * ln2 + 1.0 * ln2) / 2]
    assert cross_entropy(each, logits).tolist() == pytest.approx(swapped)
