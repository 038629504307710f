"""Shuffling a rollout once gives rsl-rl's own mini-batches."""

import pytest
import torch
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict

from unilab_rl.adapters.rsl_rl.storage import ShuffledOnceStorage

ROWS, STEPS = 5, 3
FIELDS = ("actions", "values", "advantages", "returns", "old_actions_log_prob")


def fill(storage):
    """Writes random steps into a storage, the same into each, as PPO does: in inference mode."""
    generator = torch.Generator().manual_seed(4)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    with torch.inference_mode():
        for _ in range(STEPS):
            step = RolloutStorage.Transition()
            step.observations = TensorDict({"obs": draw(ROWS, 4), "critic": draw(ROWS, 6)}, batch_size=[ROWS])
            step.actions, step.rewards, step.values = draw(ROWS, 2), draw(ROWS), draw(ROWS, 1)
            step.dones = torch.zeros(ROWS, dtype=torch.bool)
            step.actions_log_prob, step.distribution_params = draw(ROWS), (draw(ROWS, 2), draw(ROWS, 2))
            storage.add_transition(step)
        storage.returns = draw(STEPS, ROWS, 1)
        storage.advantages = storage.returns - storage.values
    return storage


def make():
    example = TensorDict({"obs": torch.zeros(ROWS, 4), "critic": torch.zeros(ROWS, 6)}, batch_size=[ROWS])
    return RolloutStorage("rl", ROWS, STEPS, example, [2])


def batches(storage, num_mini_batches, num_epochs):
    torch.manual_seed(7)
    return list(storage.mini_batch_generator(num_mini_batches, num_epochs))


@pytest.mark.parametrize("num_mini_batches", [1, 2, 4])  # of 15 samples: one is left over, three are
def test_every_mini_batch_of_every_epoch_is_rsl_rls_bit_for_bit(num_mini_batches):
    stock = batches(fill(make()), num_mini_batches, 3)
    ours = batches(fill(ShuffledOnceStorage.like(make())), num_mini_batches, 3)
    assert len(ours) == len(stock) == 3 * num_mini_batches
    for mine, theirs in zip(ours, stock, strict=True):
        assert mine.observations.batch_size == theirs.observations.batch_size
        for name in ("obs", "critic"):
            assert torch.equal(mine.observations[name], theirs.observations[name])
        for name in FIELDS:
            assert torch.equal(getattr(mine, name), getattr(theirs, name))
        for mean, expected in zip(mine.old_distribution_params, theirs.old_distribution_params, strict=True):
            assert torch.equal(mean, expected)
        assert (mine.hidden_states, mine.masks) == (theirs.hidden_states, theirs.masks)


def test_what_a_batch_holds_can_be_learnt_from_though_it_was_stored_in_inference_mode():
    (batch,) = batches(fill(ShuffledOnceStorage.like(make())), 1, 1)
    weight = torch.ones(4, requires_grad=True)
    ((batch.observations["obs"] * weight).sum(dim=1, keepdim=True) * batch.advantages).sum().backward()
    assert not torch.equal(weight.grad, torch.zeros(4))


def test_epochs_share_the_memory_of_one_copy_and_a_batch_rebinds_for_itself():
    first, second = batches(fill(ShuffledOnceStorage.like(make())), 1, 2)
    assert first.actions.data_ptr() == second.actions.data_ptr()
    first.actions = first.actions + 1.0  # as mirror images and normalised advantages are put in
    assert not torch.equal(first.actions, second.actions)
