"""Networks, normalisers, configs and explorers that the off-policy algorithms share."""

import copy
import math

import pytest
import torch

from unilab_core import ConfigError
from unilab_rl.algorithms.config import OffPolicyCfg
from unilab_rl.algorithms.explorer import NoisyExplorer
from unilab_rl.algorithms.networks import (
    EnsembleMlp,
    TwinQ,
    adam,
    frozen_copy,
    linear,
    mlp,
    normal_like,
    polyak_update,
)
from unilab_rl.algorithms.normalizing import obs_normalizer


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_initial_values_come_from_the_generator_alone():
    before = torch.get_rng_state()
    first = mlp(3, (8, 5), 2, "relu", generator())
    twin = EnsembleMlp(2, 3, (8,), 1, "relu", generator())
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(77)
    for made, again in (
        (first, mlp(3, (8, 5), 2, "relu", generator())),
        (twin, EnsembleMlp(2, 3, (8,), 1, "relu", generator())),
    ):
        for own, other in zip(made.parameters(), again.parameters(), strict=True):
            assert torch.equal(own, other)


def test_initial_values_fill_the_range_of_torchs_linear_layers():
    layer = linear(400, 300, generator())
    for parameter in layer.parameters():
        largest = parameter.abs().max().item()
        assert 0.95 * 0.05 < largest <= 0.05  # 1 / sqrt(400)
        assert parameter.std().item() == pytest.approx(0.05 / math.sqrt(3), rel=0.1)


def test_a_perceptron_is_linear_layers_with_an_activation_between():
    network = mlp(3, (8, 5), 2, "tanh", generator())
    x = torch.randn(7, 3, generator=generator(1))
    weights = [each.detach().double() for each in network.parameters()]
    expected = x.double()
    for index in (0, 2, 4):
        expected = expected @ weights[index].T + weights[index + 1]
        expected = expected.tanh() if index < 4 else expected
    assert torch.allclose(network(x).double(), expected, atol=1e-6)


def test_a_body_ends_in_an_activation_and_normalises_before_it():
    body = mlp(3, (8,), None, "silu", generator(), layer_norm=True)
    x = torch.randn(7, 3, generator=generator(1))
    hidden = x @ body[0].weight.T + body[0].bias
    centred = hidden - hidden.mean(1, keepdim=True)
    normalised = centred / (centred.square().mean(1, keepdim=True) + 1e-5).sqrt()
    assert torch.allclose(body(x), normalised * normalised.sigmoid(), atol=1e-6)


def test_each_member_of_an_ensemble_is_a_network_of_its_own():
    ensemble = EnsembleMlp(3, 4, (8, 6), 2, "elu", generator())
    x = torch.randn(7, 4, generator=generator(1))
    together = ensemble(x)
    assert together.shape == (3, 7, 2)
    weights = [each.detach() for each in ensemble.parameters()]
    for member in range(3):
        expected = x
        for index in (0, 2, 4):
            expected = expected @ weights[index][member] + weights[index + 1][member]
            expected = torch.where(expected > 0, expected, expected.exp() - 1) if index < 4 else expected
        assert torch.allclose(together[member], expected, atol=1e-6)
        assert torch.allclose(ensemble.member(member, x), expected, atol=1e-6)
    assert not torch.allclose(together[0], together[1], atol=1e-2)


def test_the_first_of_twin_values_is_the_first_of_both():
    twin = TwinQ(3, 2, (8,), "relu", generator())
    obs, actions = torch.randn(7, 3, generator=generator(1)), torch.randn(7, 2, generator=generator(2))
    assert twin(obs, actions).shape == (2, 7)
    assert torch.allclose(twin.first(obs, actions), twin(obs, actions)[0], atol=1e-6)


@pytest.mark.parametrize("tau", [0.005, 0.25, 1.0])
def test_a_target_moves_by_tau(tau):
    source = mlp(3, (8,), 1, "relu", generator())
    target = frozen_copy(mlp(3, (8,), 1, "relu", generator(1)))
    before = [each.clone() for each in target.parameters()]
    kept = [each.detach().clone() for each in source.parameters()]
    polyak_update(target, source, tau)
    for old, new, goal, own in zip(before, target.parameters(), kept, source.parameters(), strict=True):
        exact = old.double() + tau * (goal.double() - old.double())
        assert torch.allclose(new.double(), exact, atol=1e-8, rtol=1e-6)
        assert torch.equal(own, goal)


def test_a_frozen_copy_shares_nothing_and_takes_no_gradient():
    source = mlp(3, (8,), 1, "relu", generator())
    target = frozen_copy(source)
    assert all(not each.requires_grad for each in target.parameters())
    assert all(each.requires_grad for each in source.parameters())
    before = copy.deepcopy(target.state_dict())
    with torch.no_grad():
        for parameter in source.parameters():
            parameter.add_(1.0)
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, before[name])


def test_adam_is_fused_on_the_cpu():
    optimizer = adam(mlp(3, (8,), 1, "relu", generator()).parameters(), 0.5)
    assert optimizer.param_groups[0]["fused"] is True
    assert optimizer.param_groups[0]["lr"] == 0.5


def test_noise_takes_shape_and_dtype_from_what_it_is_for():
    noise = normal_like(torch.zeros(4, 3, dtype=torch.float64), generator())
    assert noise.dtype == torch.float64
    assert torch.equal(noise, torch.randn(4, 3, dtype=torch.float64, generator=generator()))


def test_a_normaliser_is_there_only_where_it_is_enabled():
    x = 5 + 3 * torch.randn(1000, 2, generator=generator())
    enabled, disabled = obs_normalizer(2, enabled=True), obs_normalizer(2, enabled=False)
    for each in (enabled, disabled):
        each.update(x)
    assert torch.equal(disabled(x), x)
    assert disabled.state_dict() == {}
    assert enabled(x).mean(0).tolist() == pytest.approx([0.0, 0.0], abs=1e-5)
    assert enabled(x).std(0).tolist() == pytest.approx([1.0, 1.0], abs=0.01)


@pytest.mark.parametrize(
    ("size", "num_envs", "n_step", "steps"), [(1000, 16, 1, 62), (32, 16, 1, 2), (64, 16, 3, 4)]
)
def test_the_buffer_holds_whole_vector_steps(size, num_envs, n_step, steps):
    assert OffPolicyCfg(buffer_size=size, n_step=n_step).buffer_steps(num_envs) == steps


@pytest.mark.parametrize(("size", "n_step", "needed"), [(31, 1, 32), (63, 3, 64), (5, 1, 32)])
def test_a_buffer_smaller_than_a_window_is_refused(size, n_step, needed):
    with pytest.raises(
        ConfigError, match=rf"buffer_size={size} holds .* 16 environments.*at least {needed}$"
    ):
        OffPolicyCfg(buffer_size=size, n_step=n_step).buffer_steps(16)


@pytest.mark.parametrize(
    "change",
    [
        {"gamma": 1.1},
        {"tau": 0.0},
        {"n_step": 0},
        {"batch_size": 0},
        {"action_limit": math.inf},
        {"action_limit": 0.0},
    ],
)
def test_settings_out_of_range_are_refused(change):
    with pytest.raises(ConfigError, match=f"OffPolicyCfg: {next(iter(change))}: "):
        OffPolicyCfg(**change)


class Wanderer(NoisyExplorer):
    """Adds to a position per row, from step to step."""

    def __init__(self, seed, num_envs=3):
        super().__init__(torch.nn.Linear(2, 1), torch.device("cpu"), seed)
        self.position = torch.zeros(num_envs, 1)

    def held_noise(self):
        return {"position": self.position}

    def act(self, obs):
        self.position += torch.randn(self.position.shape, generator=self.generator)
        return self.position.clone()


def test_an_explorer_continues_from_its_state():
    explorer = Wanderer(0)
    explorer.act({})
    state = explorer.state()
    expected = [explorer.act({}) for _ in range(2)]
    other = Wanderer(1)
    other.load_state(state)
    assert [each.tolist() for each in (other.act({}), other.act({}))] == [each.tolist() for each in expected]
    # The state was a copy: what came after it has not changed it.
    other.load_state(state)
    assert torch.equal(other.act({}), expected[0])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"generator": torch.zeros(3)},
            r"state of the generator is tensor\(\[0., 0., 0.\]\), expected a uint8 tensor",
        ),
        ({"generator": None}, "state of the generator is None, expected a uint8 tensor"),
        ({"noise": {}}, r"noise \[\], expected \['position'\]"),
        ({"noise": 3}, "noise int, expected"),
        (
            {"noise": {"position": torch.zeros(4, 1)}},
            r"'position' is a tensor \(4, 1\).*expected a tensor \(3, 1\)",
        ),
        (
            {"noise": {"position": torch.zeros(3, 1).double()}},
            r"float64, expected a tensor \(3, 1\) torch\.float32",
        ),
        ({"more": 1}, r"a state of \['generator', 'more', 'noise'\]"),
    ],
)
def test_a_state_that_does_not_fit_an_explorer_changes_nothing(change, words):
    explorer = Wanderer(0)
    explorer.act({})
    before = explorer.state()
    foreign = Wanderer(1)
    foreign.act({})
    with pytest.raises(ValueError, match=words):
        explorer.load_state(foreign.state() | change)
    after = explorer.state()
    assert torch.equal(after["generator"], before["generator"])
    assert torch.equal(after["noise"]["position"], before["noise"]["position"])
