"""rsl-rl's rollout, shuffled once an update instead of once an epoch."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict

__all__ = ["ShuffledOnceStorage"]


class ShuffledOnceStorage(RolloutStorage):  # type: ignore[misc]  # rsl-rl ships no types
    """A rollout whose mini-batches are views of one shuffled copy.

    rsl-rl draws one permutation an update and gathers every mini-batch anew in each epoch, an eighth of an update on a
    CPU. The mini-batches are the same here, bit for bit; the copy takes as much memory as the rollout while it lasts.
    """

    @classmethod
    def like(cls, storage: RolloutStorage) -> ShuffledOnceStorage:
        """Returns an empty one for the steps, rows, observations and actions of `storage`."""
        observations = storage.observations[0]
        steps, shape = storage.num_transitions_per_env, storage.actions_shape
        return cls(storage.training_type, storage.num_envs, steps, observations, shape, storage.device)

    def mini_batch_generator(
        self, num_mini_batches: int, num_epochs: int = 8
    ) -> Iterator[RolloutStorage.Batch]:
        """Yields the mini-batches of every epoch; an update may rebind what a batch holds, and must not write into it.

        Args:
            num_mini_batches: Of an epoch, each of N x T // `num_mini_batches` samples; what is left over is not seen.
            num_epochs: How often each mini-batch comes, in the same order.
        """
        size = self.num_envs * self.num_transitions_per_env // num_mini_batches
        order = torch.randperm(num_mini_batches * size, device=self.device)

        def shuffled(values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.split(values.flatten(0, 1).index_select(0, order), size)

        observations = {name: shuffled(group) for name, group in self.observations.items()}
        fields = {
            "actions": shuffled(self.actions),
            "values": shuffled(self.values),
            "advantages": shuffled(self.advantages),
            "returns": shuffled(self.returns),
            "old_actions_log_prob": shuffled(self.actions_log_prob),
        }
        parameters = [shuffled(values) for values in self.distribution_params]
        for _ in range(num_epochs):
            for i in range(num_mini_batches):
                groups = {name: parts[i] for name, parts in observations.items()}
                yield RolloutStorage.Batch(
                    observations=TensorDict(groups, batch_size=[size], device=self.device),
                    old_distribution_params=tuple(parts[i] for parts in parameters),
                    **{name: parts[i] for name, parts in fields.items()},
                )
