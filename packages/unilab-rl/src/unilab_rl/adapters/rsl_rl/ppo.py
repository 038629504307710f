"""PPO that bootstraps a time-out from the observation that the episode ended on."""

from __future__ import annotations

from typing import Any

import torch
from rsl_rl.algorithms import PPO
from rsl_rl.models import MLPModel
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict

from unilab_rl.adapters.rsl_rl.storage import ShuffledOnceStorage
from unilab_rl.adapters.rsl_rl.symmetry import AugmentedSymmetry

__all__ = ["FinalObservationPpo"]


class FinalObservationPpo(PPO):  # type: ignore[misc]  # rsl-rl ships no types
    """rsl-rl's PPO with one correction, and cheaper: `AugmentedSymmetry`, `ShuffledOnceStorage`, a fused Adam.

    Where an episode times out after the step from `s_t`, the value that the reward lacks is that of the state it
    reached, `V(final_observation)`. rsl-rl adds `V(s_t)`, because it knows no other; on a steep value function the
    last reward then counts twice in effect.
    """

    optimizer: torch.optim.Optimizer

    def __init__(  # what rsl-rl's PPO takes
        self,
        actor: MLPModel,
        critic: MLPModel,
        storage: RolloutStorage,
        *,
        symmetry_cfg: dict[str, Any] | None = None,
        **settings: Any,  # noqa: ANN401
    ) -> None:
        storage = ShuffledOnceStorage.like(storage)
        super().__init__(actor, critic, storage, symmetry_cfg=symmetry_cfg, **settings)
        if symmetry_cfg is not None:
            self.symmetry = AugmentedSymmetry(**symmetry_cfg)
        if isinstance(self.optimizer, torch.optim.Adam):  # AdamW is one
            # One call for all parameters: the loop over them takes a tenth of an update.
            (group,) = self.optimizer.param_groups
            self.optimizer = type(self.optimizer)(group["params"], lr=group["lr"], fused=True)

    def process_env_step(
        self, obs: TensorDict, rewards: torch.Tensor, dones: torch.Tensor, extras: dict[str, Any]
    ) -> None:
        """Records one step.

        Args:
            obs: Observations after the step (of the next episode in finished rows), batch size (N,).
            rewards: (N,) float32; left as it is.
            dones: (N,) bool, rows whose episode ended.
            extras: `"time_outs"` (N,) bool and, on steps where an episode ended, `"final_observation"`, a
                full-width TensorDict like `obs`. Without it no row can have timed out.
        """
        extras = dict(extras)
        time_outs = extras.pop("time_outs", None)
        final = extras.get("final_observation")
        if time_outs is not None and final is not None:
            rows = time_outs.nonzero().flatten()
            if rows.numel():
                with torch.no_grad():
                    values = self.critic(final[rows]).squeeze(-1)
                rewards = rewards.index_add(0, rows, values, alpha=self.gamma)
        super().process_env_step(obs, rewards, dones, extras)
