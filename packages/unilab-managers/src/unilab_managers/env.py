"""ManagerBasedRlEnv and its config: every phase of an environment is carried out by a manager."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from unilab_core.description import EnvDescription
from unilab_core.env import TorchEnv
from unilab_core.env_cfg import TorchEnvCfg
from unilab_core.errors import CapabilityError
from unilab_core.reset_transaction import EpisodeLog
from unilab_core.state import Observations
from unilab_core.writes import declared_writes
from unilab_managers.cfg.events import EventTermCfg
from unilab_managers.cfg.observations import ObservationGroupCfg
from unilab_managers.cfg.rewards import RewardTermCfg
from unilab_managers.cfg.terminations import TerminationTermCfg
from unilab_managers.managers import (
    ActionManager,
    ActionTermCfg,
    EventManager,
    ManagerBase,
    ObservationManager,
    RewardManager,
    TerminationManager,
)
from unisim.contract import Declared, SimBackend
from unisim.factory import make_backend

__all__ = ["ManagerBasedRlEnv", "ManagerBasedRlEnvCfg"]


class ManagerBasedRlEnvCfg(TorchEnvCfg):
    """A task: what is simulated, seen, done and rewarded, when it ends and how it begins."""

    observations: dict[str, ObservationGroupCfg]
    """Group `"obs"` for the policy, and optionally `"critic"`."""
    actions: dict[str, ActionTermCfg]
    rewards: dict[str, RewardTermCfg]
    terminations: dict[str, TerminationTermCfg]
    events: dict[str, EventTermCfg] = {}
    scale_rewards_by_dt: bool = True
    """Whether reward weights are per second: each step adds value x weight x dt."""

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> ManagerBasedRlEnv:
        """Returns the `ManagerBasedRlEnv` of this config; see `TorchEnvCfg`."""
        return ManagerBasedRlEnv(self, backend=backend, device=device, seed=seed, autoreset=autoreset)


class ManagerBasedRlEnv(TorchEnv):
    """An environment whose task is written as terms.

    Attributes:
        cfg: Its config.
        action_manager: Turns actions into controls.
        observation_manager: Computes observation groups.
        reward_manager: Sums rewards.
        termination_manager: Ends episodes.
        event_manager: Begins episodes.
    """

    cfg: ManagerBasedRlEnvCfg

    def __init__(
        self,
        cfg: ManagerBasedRlEnvCfg,
        *,
        backend: str | SimBackend = "mujoco",
        device: str = "cpu",
        seed: int = 0,
        autoreset: bool = True,
    ) -> None:
        """Composes the scene on `backend` and binds all terms.

        Args:
            cfg: The task.
            backend: Name of a physics backend, or one that is made already (its rows then replace `cfg.num_envs`).
            device: Torch device of every tensor the environment hands out.
            seed: Of the environment's own generator.
            autoreset: Whether rows that end restart within the same step.

        Raises:
            ConfigError: The scene does not compile, or a term is wrong; names manager, term and parameter.
            CapabilityError: The backend cannot do what the task needs.
        """
        if isinstance(backend, str):
            try:
                backend = make_backend(
                    backend,
                    cfg.scene,
                    cfg.sim,
                    num_envs=cfg.num_envs,
                    device=device,
                    declared=_declared(cfg),
                )
            except CapabilityError as error:
                raise CapabilityError(f"{error}{_who_declared(cfg)}") from error
        super().__init__(backend, cfg, device=device, seed=seed, autoreset=autoreset)

    def _build(self) -> None:
        cfg = self.cfg
        # Actions first: observations and rewards may look at them.
        self.action_manager = ActionManager(cfg.actions, self, self.model_layout.nu)
        self.event_manager = EventManager(cfg.events, self)
        self.termination_manager = TerminationManager(cfg.terminations, self)
        self.reward_manager = RewardManager(cfg.rewards, self, scale_by_dt=cfg.scale_rewards_by_dt)
        self.observation_manager = ObservationManager(cfg.observations, self)

    @property
    def _managers(self) -> tuple[ManagerBase, ...]:
        return (
            self.observation_manager,
            self.action_manager,
            self.reward_manager,
            self.termination_manager,
            self.event_manager,
        )

    @property
    def num_actions(self) -> int:
        """A, the width of an action."""
        return self.action_manager.width

    @property
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(A,) lower and (A,) upper bounds of raw actions; may be infinite."""
        return self.action_manager.bounds

    @property
    def obs_groups_spec(self) -> dict[str, int]:
        """Width of each observation group."""
        return self.observation_manager.groups_spec

    def describe(self) -> EnvDescription:
        """Returns names and layouts, every column and term labelled."""
        return replace(
            super().describe(),
            observations=self.observation_manager.labels(),
            actions=self.action_manager.labels,
            terms={manager.owner: manager.active_terms for manager in self._managers},
        )

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        return self.action_manager.process(actions)

    def _begin_step(self) -> None:
        self.action_manager.accept()

    def _terminations(self) -> tuple[torch.Tensor, torch.Tensor]:
        return self.termination_manager.compute()

    def _rewards(self) -> torch.Tensor:
        return self.reward_manager.compute()

    def _observe(self, ids: torch.Tensor | None) -> Observations:
        if ids is None:
            self.observation_manager.update()
        return self.observation_manager.compute(ids)

    def _stage_reset(self, ids: torch.Tensor) -> None:
        self.event_manager.apply_resolved("reset", ids, self.step_counter)

    def _clear_rows(self, ids: torch.Tensor) -> EpisodeLog:
        log: EpisodeLog = {}
        for manager in self._managers:
            log |= manager.reset_resolved(ids)
        return log

    def _row_state_roots(self) -> dict[str, object]:
        roots: dict[str, object] = {}
        for manager in self._managers:
            roots |= manager.row_state_roots()
        return roots

    def _explain_non_finite(self) -> str:
        terms = self.reward_manager.non_finite_terms()
        return f"; reward terms {list(terms)}" if terms else ""

    def _forget_non_finite(self, ids: torch.Tensor) -> None:
        self.reward_manager.forget_non_finite(ids)

    def _recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        return [
            *self.termination_manager.recordable_calls(),
            *self.reward_manager.recordable_calls(),
            ("advance", self._advance),
            ("measure", self._measure),
            ("observations", lambda: self._observe(None)),
        ]


def _declared(cfg: ManagerBasedRlEnvCfg) -> Declared:
    """Collects what the terms write, which the backend must know before the model is compiled."""
    fields = dict.fromkeys(field for fields in _writes(cfg).values() for field in fields)
    return Declared(model_fields=tuple(fields), decimation=cfg.decimation)


def _writes(cfg: ManagerBasedRlEnvCfg) -> dict[str, tuple[str, ...]]:
    """Returns which model fields each event term declares by `@writes` on a function, a class or its `__call__`."""
    funcs: dict[str, Any] = {name: term.func for name, term in cfg.events.items()}
    return {name: (*declared_writes(func), *declared_writes(func.__call__)) for name, func in funcs.items()}


def _who_declared(cfg: ManagerBasedRlEnvCfg) -> str:
    """Says which terms asked for what the backend must be able to do."""
    terms = [f"events term {name!r} ({', '.join(fields)})" for name, fields in _writes(cfg).items() if fields]
    return f"; model fields are written by {', '.join(terms)}" if terms else ""
