"""ManagerBasedRlEnv: every phase of an environment is carried out by a manager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from unilab_core.description import EnvDescription
from unilab_core.env import TorchEnv
from unilab_core.errors import CapabilityError, UnknownNameError, nearest
from unilab_core.reset_transaction import EpisodeLog
from unilab_core.state import Observations
from unilab_managers.declarations import asked_by, declared_by
from unilab_managers.describing import describe_actions, describe_terms
from unilab_managers.encoders import Encoders
from unilab_managers.env_cfg import TermsCfg
from unilab_managers.managers import (
    ActionManager,
    CommandManager,
    CurriculumManager,
    EventManager,
    ManagerBase,
    MetricsManager,
    ObservationManager,
    RecorderManager,
    RewardManager,
    TerminationManager,
)
from unilab_managers.report import describe_in_text
from unilab_managers.reset_owner import find_owner
from unilab_managers.trackers import Trackers
from unisim.contract import SimBackend
from unisim.factory import make_backend

__all__ = ["ManagerBasedRlEnv", "ManagerBasedRlEnvCfg"]


class ManagerBasedRlEnvCfg(TermsCfg):
    """A task: what is simulated, seen, done, asked for and rewarded, when it ends and how it begins."""

    def build(self, *, backend: str, device: str, seed: int, autoreset: bool) -> ManagerBasedRlEnv:
        """Returns the `ManagerBasedRlEnv` of this config; see `TorchEnvCfg`."""
        return ManagerBasedRlEnv(self, backend=backend, device=device, seed=seed, autoreset=autoreset)


class ManagerBasedRlEnv(TorchEnv):
    """An environment whose task is written as terms.

    Attributes:
        cfg: Its config.
        trackers: What terms of several managers share.
        encoders: What the sensors of joint positions read wrong.
        action_manager: Turns actions into controls.
        command_manager: Says what the robot is asked to do.
        event_manager: Begins episodes, and disturbs them.
        curriculum_manager: Changes the task as training proceeds.
        termination_manager: Ends episodes.
        reward_manager: Sums rewards.
        metrics_manager: Measures what is not rewarded.
        observation_manager: Computes observation groups.
        recorder_manager: Keeps episodes.
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
            CapabilityError: The backend cannot do what the task needs; names every term that asks for it.
        """
        if isinstance(backend, str):
            try:
                backend = make_backend(
                    backend,
                    cfg.scene,
                    cfg.sim,
                    num_envs=cfg.num_envs,
                    device=device,
                    declared=declared_by(cfg),
                )
            except CapabilityError as error:
                raise CapabilityError(f"{error}{_who_asked(cfg, str(error))}") from error
        super().__init__(backend, cfg, device=device, seed=seed, autoreset=autoreset)

    def _asked(self) -> Mapping[str, Sequence[str]]:
        return asked_by(self.cfg)

    def _build(self) -> None:
        cfg = self.cfg
        self.trackers = Trackers(self)
        self.encoders = Encoders(self.scene, self.num_envs, self.device)
        # Actions and commands first: all other terms may look at them.
        self.action_manager = ActionManager(cfg.actions, self, self.model_layout.nu)
        self.command_manager = CommandManager(cfg.commands, self)
        self.event_manager = EventManager(cfg.events, self)
        self.curriculum_manager = CurriculumManager(cfg.curriculum, self)
        self.termination_manager = TerminationManager(cfg.terminations, self)
        self.reward_manager = RewardManager(
            cfg.rewards, self, scale_by_dt=cfg.scale_rewards_by_dt, floor=cfg.reward_floor
        )
        self.metrics_manager = MetricsManager(cfg.metrics, self)
        self.observation_manager = ObservationManager(cfg.observations, self)
        self.recorder_manager = RecorderManager(cfg.recorders, self)
        own = None if cfg.reset_owner is None else cfg.reset_owner.make(self)
        terms = {
            label: term for manager in self._managers for label, term in manager.row_state_roots().items()
        }
        self._reset_owner = find_owner(own, terms)
        self.trackers.seal()

    @property
    def _managers(self) -> tuple[ManagerBase, ...]:
        return (
            self.action_manager,
            self.command_manager,
            self.event_manager,
            self.curriculum_manager,
            self.termination_manager,
            self.reward_manager,
            self.metrics_manager,
            self.observation_manager,
            self.recorder_manager,
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

    def manager(self, kind: str) -> ManagerBase:
        """Returns a manager by what it is called in the config, for example `"rewards"`.

        Raises:
            UnknownNameError: There is none of that name; the message lists the nearest.
        """
        managers = self._by_name()
        if kind not in managers:
            raise UnknownNameError(f"{self._name}: unknown manager {kind!r}; {nearest(kind, managers)}")
        return managers[kind]

    def _by_name(self) -> dict[str, ManagerBase]:
        return {manager.owner: manager for manager in self._managers}

    def describe(self) -> EnvDescription:
        """Returns names and layouts, every column and term labelled."""
        plain = super().describe()
        return replace(
            plain,
            observations=self.observation_manager.labels(),
            units=self.observation_manager.units(),
            actions=describe_actions(self.action_manager, plain.actions, self.model_layout),
            terms=describe_terms(self.cfg, self._by_name(), self.scene),
        )

    def __str__(self) -> str:
        """Every term, the layout of observations, actions and control, and the ledger, at most 100 columns wide."""
        head = f"{self._name}: {self.num_envs} rows on {self.device}"
        return describe_in_text(head, self.cfg, self.describe(), self.num_envs)

    # ------------------------------------------------------------------ a step

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        return self.action_manager.process(actions)

    def _begin_step(self) -> None:
        self.action_manager.accept()

    def _following(self) -> tuple[str, ...]:
        return self.action_manager.following

    def _follow(self, control: torch.Tensor) -> torch.Tensor:
        return self.action_manager.follow(control)

    def _terminations(self) -> tuple[torch.Tensor, torch.Tensor]:
        # The first phase that sees the new state and the new step count.
        self.trackers.advance()
        self.curriculum_manager.compute_step()
        return self.termination_manager.compute()

    def _rewards(self) -> torch.Tensor:
        return self.reward_manager.compute()

    def _advance(self) -> None:
        self.event_manager.apply_step()
        self.command_manager.compute()

    def _measure(self) -> dict[str, torch.Tensor]:
        self.metrics_manager.compute()
        return self.curriculum_manager.log()

    def _observe(self, ids: torch.Tensor | None) -> Observations:
        if ids is None:
            self.observation_manager.update()
        return self.observation_manager.compute(ids)

    def _after_step(self) -> None:
        self.recorder_manager.record_post_step()

    def _timers(self) -> dict[str, torch.Tensor]:
        return self.event_manager.timers() | self.command_manager.timers()

    def _timers_judged(self, due: Mapping[str, bool]) -> None:
        self.event_manager.timers_judged(due)
        self.command_manager.timers_judged(due)

    # ------------------------------------------------------------------ a reset

    def _stage_startup(self, ids: torch.Tensor) -> None:
        self.event_manager.apply_resolved("startup", ids, self.step_counter)

    def _on_episodes_end(self, ids: torch.Tensor) -> None:
        self.curriculum_manager.compute_episode(ids)

    def _stage_reset(self, ids: torch.Tensor) -> None:
        self.event_manager.apply_resolved("reset", ids, self.step_counter)
        if self._reset_owner is not None:
            self._reset_owner.reset_transaction(ids)
        self.command_manager.reset_resolved(ids)

    def _before_commit(self, ids: torch.Tensor) -> None:
        self.recorder_manager.record_pre_reset(ids)

    def _clear_rows(self, ids: torch.Tensor) -> EpisodeLog:
        self.trackers.reset_resolved(ids)
        self.encoders.reset_resolved(ids)
        log: EpisodeLog = self.command_manager.pop_log()  # they were drawn anew with the staged state
        for manager in self._managers:
            if manager is not self.command_manager:
                log |= manager.reset_resolved(ids)
        return log

    def _after_commit(self, ids: torch.Tensor) -> None:
        if self._reset_owner is not None:
            self._reset_owner.reset_committed(ids)
        self.command_manager.refresh(ids)

    def _after_reset(self, ids: torch.Tensor) -> None:
        self.recorder_manager.record_post_reset(ids)

    def _before_close(self) -> None:
        self.recorder_manager.close()

    # ------------------------------------------------------------------ around both

    def _row_state_roots(self) -> dict[str, object]:
        roots = self.trackers.row_state_roots() | self.encoders.row_state_roots()
        for manager in self._managers:
            roots |= manager.row_state_roots()
        if self._reset_owner is not None:
            roots["reset_owner"] = self._reset_owner
        return roots

    def _explain_non_finite(self) -> str:
        terms = self.reward_manager.non_finite_terms()
        return f"; reward terms {list(terms)}" if terms else ""

    def _forget_non_finite(self, ids: torch.Tensor) -> None:
        self.reward_manager.forget_non_finite(ids)
        self.command_manager.forget_non_finite(ids)
        self.metrics_manager.forget_non_finite(ids)

    def _recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        return [
            ("trackers", self.trackers.advance),
            *self.curriculum_manager.recordable_calls(),
            *self.termination_manager.recordable_calls(),
            *self.reward_manager.recordable_calls(),
            *self.event_manager.recordable_calls(),
            ("advance", self.command_manager.compute),
            *self.metrics_manager.recordable_calls(),
            ("observations", lambda: self._observe(None)),
            *self.recorder_manager.recordable_calls(),
        ]


def _who_asked(cfg: ManagerBasedRlEnvCfg, problem: str) -> str:
    """Says which terms asked for what a backend's refusal names."""
    asked = [
        f"{', '.join(who)} ({name})"
        for key, who in asked_by(cfg).items()
        if (name := key.partition(":")[2]) and repr(name) in problem
    ]
    return f"; asked by {', '.join(asked)}" if asked else ""
