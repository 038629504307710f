"""The deterministic policy of a PPO actor."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from rsl_rl.models import MLPModel
from tensordict import TensorDict

from unilab_rl.adapters.rsl_rl.config import PpoCfg
from unilab_rl.adapters.rsl_rl.global_rng import BorrowedGlobalRng
from unilab_rl.contracts.algorithm import LearnerState
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.state_parts import join_networks

__all__ = ["PpoPolicy", "load_policy"]


class PpoPolicy:
    """The actor's mean action for raw observation groups."""

    def __init__(self, actor: MLPModel) -> None:
        self._actor = actor

    @property
    def module(self) -> torch.nn.Module:
        """A copy of normaliser, network and mean action, from (B, O) to (B, A); see `ExportablePolicy`."""
        module: torch.nn.Module = self._actor.as_jit()
        return module.eval()

    def __call__(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32; `obs` holds (N, width) tensors by group."""
        num_rows = obs["obs"].shape[0]
        with torch.no_grad():
            actions: torch.Tensor = self._actor(TensorDict(dict(obs), batch_size=[num_rows]))
        return actions


def load_policy(env: EnvProtocol, cfg: PpoCfg, state: LearnerState) -> PpoPolicy:
    """Builds the actor that `state` holds, for the observations and actions of `env`.

    Raises:
        ValueError: The state doesn't fit them.
    """
    settings = cfg.to_rsl_rl(env.obs_groups_spec)
    example = TensorDict(
        {name: torch.zeros(1, width, device=env.device) for name, width in env.obs_groups_spec.items()},
        batch_size=[1],
    )
    model_cfg = {key: value for key, value in settings["actor"].items() if key != "class_name"}
    # The initial weights are replaced below, but drawing them must not disturb anybody's random numbers.
    with BorrowedGlobalRng(0, env.device).borrowed():
        actor = MLPModel(example, settings["obs_groups"], "actor", env.num_actions, **model_cfg).to(
            env.device
        )
    learner, normalizer = ({"actor": part.get("actor")} for part in (state.learner, state.normalizer))
    actor.load_state_dict(join_networks({"actor": actor}, learner, normalizer)["actor"])
    actor.eval()
    return PpoPolicy(actor)
