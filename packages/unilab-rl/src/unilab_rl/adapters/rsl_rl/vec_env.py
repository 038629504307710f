"""An environment as rsl-rl wants to see it."""

from __future__ import annotations

from typing import Any

import torch
from rsl_rl.env import VecEnv
from tensordict import TensorDict

from unilab_rl.contracts.env import EnvProtocol

__all__ = ["RslRlVecEnv"]


class RslRlVecEnv(VecEnv):  # type: ignore[misc]  # rsl-rl ships no types
    """Turns an `EnvProtocol` into rsl-rl's `VecEnv`.

    Everything handed out is a fresh copy: rsl-rl keeps references to observations across the next step, and
    environments may rewrite theirs. All rows are reset at construction, because rsl-rl never resets.
    """

    def __init__(self, env: EnvProtocol) -> None:
        self.unwrapped = env
        self.num_envs: int = env.num_envs
        self.num_actions: int = env.num_actions
        self.max_episode_length: int = int(env.max_episode_length)
        self.device: torch.device = env.device
        self.cfg: dict[str, Any] = env.cfg.to_data()
        env.reset()

    @property
    def episode_length_buf(self) -> torch.Tensor:
        """The environment's own counter of steps in the episode, (N,) int64."""
        return self.unwrapped.episode_length

    @episode_length_buf.setter
    def episode_length_buf(self, value: torch.Tensor) -> None:
        self.unwrapped.episode_length = value

    def get_observations(self) -> TensorDict:
        """Returns the current observations, (N, width) float32 in each group; reading changes nothing."""
        return self._pack(self.unwrapped.observations())

    def step(self, actions: torch.Tensor) -> tuple[TensorDict, torch.Tensor, torch.Tensor, dict[str, Any]]:
        """Advances every row by one step.

        Args:
            actions: (N, A), of any floating dtype, device and layout; never modified.

        Returns:
            Observations; reward (N,) float32; done (N,) bool; and extras: `"time_outs"` (N,) bool, rows that were
            truncated and not terminated; `"log"`, the step's 0-d tensors; and on steps where an episode ended
            `"final_observation"`, a TensorDict of full width, and `"episode_totals"`, `<key>/sum` and `<key>/count`.

        Raises:
            ValueError: The shape is not (N, A).
        """
        expected = (self.num_envs, self.num_actions)
        if tuple(actions.shape) != expected:
            raise ValueError(
                f"RslRlVecEnv.step: actions have shape {tuple(actions.shape)}, expected {expected}"
            )
        # A copy, so that an action term which clamps in place can't change what PPO stored.
        own = torch.empty(expected, dtype=torch.float32, device=self.device).copy_(actions)
        state = self.unwrapped.step(own)
        extras: dict[str, Any] = {
            "time_outs": state.truncated & ~state.terminated,
            "log": {key: value.clone() for key, value in state.info["log"].items()},
        }
        if "episode" in state.info:
            extras["episode_totals"] = {key: value.clone() for key, value in state.info["episode"].items()}
        if state.final_observation is not None:
            extras["final_observation"] = self._pack(state.final_observation)
        reward = state.reward.to(torch.float32, copy=True)
        return self._pack(state.obs), reward, state.terminated | state.truncated, extras

    def close(self) -> None:
        """Closes the environment."""
        self.unwrapped.close()

    def _pack(self, groups: dict[str, torch.Tensor]) -> TensorDict:
        """Copies observation groups into a TensorDict of batch size (N,), cast to float32 once."""
        return TensorDict(
            {name: group.to(torch.float32, copy=True) for name, group in groups.items()},
            batch_size=[self.num_envs],
            device=self.device,
        )
