"""A small task on MuJoCo whose rows end, are placed at random and are pushed: what `unilab bench` measures in tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from core_support import ScriptedEnv, robot_spec

from unilab_core import ConfigError, TaskSpec, TorchEnv, TorchEnvCfg
from unilab_core.benching.parts import BenchPart, LearnerCost, Phase
from unisim import EntityCfg, SceneCfg, SimCfg, make_backend

COST = LearnerCost("counting", 24, 10.0, 20.0, 30.0, 4000.0)


class PushedCfg(TorchEnvCfg):
    """Episodes of 10 steps.

    `meddles`: something writes to the engine by another door than a step has. `moved`: the robot stands elsewhere than
    here.
    """

    scene: SceneCfg = SceneCfg(entities={"robot": EntityCfg(spec=robot_spec)})
    sim: SimCfg = SimCfg(timestep=0.01, num_threads=1)
    decimation: int = 2
    episode_length_s: float = 0.2
    num_envs: int = 4
    meddles: bool = False
    moved: bool = False

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> PushedEnv:
        """Builds it on MuJoCo."""
        scene = self.scene
        if self.moved:
            robots = {"robot": scene.entities["robot"].model_copy(update={"joint_pos": {"hip": 0.3}})}
            scene = scene.model_copy(update={"entities": robots})
        rows = make_backend(backend, scene, self.sim, num_envs=self.num_envs, device=device)
        return PushedEnv(
            self.num_envs, backend=rows, cfg=self, device=device, seed=seed, autoreset=autoreset, spread=0.5
        )


class PushedEnv(ScriptedEnv):
    """Pushes one row in every step, each in its turn; looks at a body, so that a step has to bring it up to date."""

    num_actions = 2

    def _rewards(self) -> torch.Tensor:
        self._io.column("body:robot/base")
        return super()._rewards()

    def _advance(self) -> None:
        super()._advance()
        row = torch.tensor([self.step_counter % self.num_envs])
        velocity = self.rng.uniform(-0.5, 0.5, (1, 3))
        self.scene["robot"].data.write_root_velocity(velocity, velocity, row)
        if self.cfg.meddles and self.serves:
            now = self._backend.get_state_views(("qpos", "qvel"))
            self._backend.set_state_tensor(torch.tensor([2]), now["qpos"][2:3], now["qvel"][2:3] + 1e-3)

    @property
    def serves(self) -> bool:
        """Whether it is built: nothing is meddled with while it is tried out."""
        return self._io.serves_step


class CountingPart(BenchPart):
    """Times what the environment calls its episode, and has a learner of one name that needs 8 rows."""

    def phases(self, env: TorchEnv) -> Sequence[Phase]:
        return [Phase("shared", env, ("_hook",))]

    def learner(
        self, env: TorchEnv, task: TaskSpec, algorithm: str | None, overrides: Mapping[str, Any], *, seed: int
    ) -> LearnerCost | None:
        asked = algorithm or task.default_learner
        if asked != "counting":
            raise ConfigError(f"unknown algorithm {asked!r}; did you mean 'counting'?")
        if env.num_envs < overrides.get("rows", 0):
            raise ConfigError(f"{env.num_envs} rows are too few")
        env.step(torch.zeros(env.num_envs, env.num_actions)) if not env._pending else env.reset()
        return COST


def pushed_task() -> PushedCfg:
    """The config of a registered task."""
    return PushedCfg()
