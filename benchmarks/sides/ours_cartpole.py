"""Our side: the packaged `cartpole-balance` with the physics that was asked for."""

from __future__ import annotations

import tempfile
from typing import Any

import mujoco
import torch
from side import model_facts, running_threads, serve

from unilab_core import make_env


class Ours:
    """`cartpole-balance` as the packages make it."""

    def __init__(self, request: dict[str, Any]) -> None:
        changes = {
            "sim.integrator": request["integrator"],
            "sim.timestep": request["timestep"],
            "sim.num_threads": request["threads"],
            "decimation": request["decimation"],
            "episode_length_s": request["episode_s"],
        }
        for place, name in (("place_cart", "cart"), ("place_pole", "pole")):
            for kind in ("position", "velocity"):
                width = request["offsets"][f"{name}_{kind}"]
                changes[f"events.{place}.params.{kind}_range"] = (-width, width)
        self._env = make_env(
            "cartpole-balance",
            backend=request["backend"],
            device=request["device"],
            num_envs=request["num_envs"],
            overrides=changes,
        )
        self.num_envs, self.num_actions = self._env.num_envs, self._env.num_actions
        self.device = self._env.device

    def reset(self) -> torch.Tensor:
        """See `Side`."""
        return self._env.reset()[0]["obs"]

    def step(self, actions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """See `Side`."""
        state = self._env.step(actions)
        return state.obs["obs"], state.reward, state.terminated | state.truncated

    def set_ages(self, steps: torch.Tensor) -> None:
        """See `Side`."""
        self._env.episode_length = steps

    def facts(self) -> dict[str, Any]:
        """See `Side`."""
        cfg = self._env.cfg
        with tempfile.NamedTemporaryFile(suffix=".mjb") as file:
            file.write(self._env.export_model(0))
            file.flush()
            model = mujoco.MjModel.from_binary_path(file.name)
        return model_facts(model) | {
            "threads": running_threads(),
            "decimation": cfg.decimation,
            "episode steps": self._env.max_episode_length,
            "observation columns": self._env.obs_groups_spec,
            "observation terms": len(cfg.observations["obs"].terms),
            "reward terms": len(cfg.rewards),
            "termination terms": len(cfg.terminations),
            "reset events": len(cfg.events),
        }


if __name__ == "__main__":
    serve(Ours, ("unisim", "unilab-core", "unilab-managers", "mujoco", "mujoco-warp"))
