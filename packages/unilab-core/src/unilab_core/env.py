"""TorchEnv: the order of a step and of a reset, in one place and final."""

from __future__ import annotations

import logging
import time
from abc import ABC
from typing import Any, final

import torch

from unilab_core.env_base import EnvBase
from unilab_core.errors import NonFiniteError, ResetRejectedError
from unilab_core.nan_replay import describe_dump
from unilab_core.recording import check_observations
from unilab_core.reset_selectors import resolve_reset_env_ids
from unilab_core.reset_transaction import EpisodeLog
from unilab_core.rng import EnvRng
from unilab_core.state import Observations, TorchEnvState
from unilab_core.verdict import (
    check_actions,
    check_control,
    check_flags,
    check_rows,
    check_timers,
    describe_non_finite,
    non_finite_rows,
)

__all__ = ["TorchEnv"]

_LOGGER = logging.getLogger(__name__)


class TorchEnv(EnvBase, ABC):
    """N environments in one process. `step` and `reset` are final; a subclass fills in the hooks of `EnvHooks`.

    Attributes:
        cfg: The config it was built from.
        num_envs: N.
        device: Device of every tensor handed out.
        scene: Entities by name.
        rng: The environment's own randomness.
        autoreset: Whether rows that end restart within the same step.
        episode_length: (N,) int64: control steps of the current episodes; settable.
        step_counter: Control steps since construction, all rows together.
        faulted: Whether a failure left it in no defined state.
    """

    @final
    def step(self, actions: torch.Tensor) -> TorchEnvState:
        """Advances every row by one control step.

        Args:
            actions: (N, A) contiguous float32 on `device`; never modified.

        Returns:
            The outcome, the same object every time; its tensors are rewritten by the next step.

        Raises:
            TypeError: `actions` is not a float32 tensor.
            ValueError: Wrong shape, device or layout, or not finite; nothing has changed.
            NonFiniteError: The control, a reward or an observation is not finite; names where.
            RuntimeError: Rows wait for a reset; names them. Or the environment is closed.
            ResetRejectedError: The automatic reset was rejected; `transition` holds the finished step, and its rows
                wait for a reset.
            EnvFaultedError: An earlier failure left no defined state.
        """
        owner = f"{self._name}.step"
        self._check_usable("step")
        self._check_idle("step")
        self._check_pending(owner)
        check_actions(actions, self.num_envs, self.num_actions, self.device, owner)
        # Buffers outlive a step, and must not grow the graph of an action or of a term's module.
        with torch.no_grad(), self._threads:
            return self._checked_step(actions.detach() if actions.requires_grad else actions, owner)

    def _checked_step(self, actions: torch.Tensor, owner: str) -> TorchEnvState:
        started = time.perf_counter()
        ctrl = check_control(self._control(actions), self.num_envs, self.model_layout.nu, self.device, owner)
        self._judge_before_physics({"actions": actions, "control": ctrl}, owner)
        self._stepping = True
        try:
            state, done = self._transition(ctrl, started)
        except BaseException as error:
            self._fault(error)
            raise
        finally:
            self._stepping = False
        if done is not None:
            self._finish_episodes(done, state)
        return state

    def _judge_before_physics(self, watched: dict[str, torch.Tensor], owner: str) -> None:
        """The one read before physics: the action, its control, and observations of rows reset since the last one."""
        if self._unjudged:
            watched = {**watched, **self._obs}
        self._io.count_verdict(len(watched))
        verdict, _ = self._verdicts.take(watched)
        if all(verdict.values()):
            self._unjudged = False
            return
        error = NonFiniteError(describe_non_finite(owner, watched, self._labels()))
        if any(not finite for name, finite in verdict.items() if name in self._obs):
            self._fault(error)  # a reset gave what is not finite, and the rows have nothing to fall back on
        raise error

    def _check_pending(self, owner: str) -> None:
        if self._pending:
            rows = sorted(self._pending)
            raise RuntimeError(
                f"{owner}: rows {rows[:8]}{' ...' if len(rows) > 8 else ''} wait for a reset; "
                "call reset(env_ids) for them, or reset() for all"
            )

    def _transition(self, ctrl: torch.Tensor, started: float) -> tuple[TorchEnvState, torch.Tensor | None]:
        """Everything after the point of no return and before any reset, in the order the contract fixes.

        Args:
            ctrl: (N, nu), wrenches not included.
            started: When the step began.
        """
        state = self._state
        self._guard.begin_step(self._backend)
        self._begin_step()
        physics_done = self._run_physics(ctrl)
        self._guard.after_physics(self._io.column)
        self._episode_length += 1
        self.step_counter += 1
        bad = self._write_verdicts()
        self._reward.copy_(
            check_rows(self._rewards(), torch.float32, self.num_envs, f"{self._name}._rewards")
        )
        self._advance_and_flush()
        log = self._measure()
        self._write_observations(None)
        state.info, state.final_observation = {"log": log, "timing": {}}, None
        any_done = self._judge(state, bad)
        self._episode_return += self._reward
        self._after_step()
        state.info["timing"] = {
            "physics_s": physics_done - started,
            "compute_s": time.perf_counter() - physics_done,
            "reset_s": 0.0,
        }
        if not any_done:
            return state, None
        for group, rows in self._obs.items():
            self._final_obs[group].copy_(rows)
        state.final_observation = self._final_obs
        return state, self._terminated | self._truncated

    def _run_physics(self, ctrl: torch.Tensor) -> float:
        """Physics of one control step and the read of where it led to; returns when physics ended."""
        if self._loop is not None:
            self._loop.run(ctrl, self._follow, self._io, self._wrenches, self._guard, f"{self._name}.step")
            return time.perf_counter()
        packet = self._wrenches.append_to(ctrl)
        self._guard.keep_control(packet)
        self._io.step(packet)
        done = time.perf_counter()
        self._io.read()
        return done

    def _write_verdicts(self) -> torch.Tensor:
        """Writes which rows end; returns (N,) bool: those that end because the engine calls them bad."""
        n, owner = self.num_envs, f"{self._name}._terminations"
        terminated, truncated = check_flags(self._terminations(), n, owner)
        if self.cfg.is_finite_horizon:
            terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
        bad = self._io.bad_rows()
        torch.logical_or(terminated, bad, out=self._terminated)
        self._truncated.copy_(truncated)
        return bad

    def _advance_and_flush(self) -> None:
        """Events and commands; what they wrote is committed once, before anyone observes it."""
        staging = self._staging
        staging.open_step(self._io.column("qpos"), self._io.column("qvel"))
        try:
            self._advance()
            payload = staging.step_payload()
            if payload is not None:
                self._io.write_rows(staging.mask, payload)
                staging.committed()
        except ResetRejectedError as error:
            raise ResetRejectedError(
                f"{self._name}.step: an event or command wrote what is not valid: {error}"
            ) from error
        finally:
            staging.close()

    def _judge(self, state: TorchEnvState, bad: torch.Tensor) -> bool:
        """Reads the one verdict after physics; deals with what is not finite; returns whether any row is done."""
        watched = {"reward": self._reward, **self._obs, **self._wrenches.watched}
        if self._loop is not None:
            watched |= self._loop.watched(bad)
        timers = check_timers(self._timers(), self.num_envs, self.device, f"{self._name}._timers")
        flags = [bad, self._terminated | self._truncated, *timers.values()]
        self._io.count_verdict(len(watched) + len(flags))
        verdict, (any_bad, any_done, *due) = self._verdicts.take(watched, flags)
        self._timers_judged(dict(zip(timers, due, strict=True)))
        if any_bad:
            self._report_bad_rows(bad, state)
        if all(verdict.values()):
            self._guard.remember(self._obs)
            return any_done
        wrong = non_finite_rows(watched)
        message = describe_non_finite(f"{self._name}.step", watched, self._labels())
        message += self._explain_non_finite()
        message += self._guard.dump(message, wrong.nonzero().flatten().tolist(), lambda: describe_dump(self))
        if self._guard.policy == "raise":
            raise NonFiniteError(message)
        _LOGGER.warning("%s", message)
        self._guard.end_rows(wrong, self._obs, self._reward, self._terminated)
        self._guard.remember(self._obs)
        self._forget_non_finite(wrong.nonzero().flatten())
        state.info["nonfinite_rows"] = wrong
        state.info["log"] = {**state.info["log"], "nonfinite_rows": wrong.sum()}
        return True

    def _report_bad_rows(self, bad: torch.Tensor, state: TorchEnvState) -> None:
        """Says which rows end because of the engine: nothing else tells them from other terminated ones."""
        self._io.count_bad_rows()
        rows = bad.nonzero().flatten().tolist()
        _LOGGER.warning("%s.step: the engine calls rows %s bad; they terminate", self._name, rows[:8])
        state.info["log"] = {**state.info["log"], "bad_rows": bad.sum()}

    def _finish_episodes(self, done: torch.Tensor, state: TorchEnvState) -> None:
        """Resets the rows that ended, or lets them wait; a rejected reset leaves them waiting."""
        started = time.perf_counter()
        ids = done.nonzero().flatten()
        if not self.autoreset:
            self._pending.update(ids.tolist())
            return
        try:
            state.info["episode"] = self._transaction.run(ids)
            self._unjudged = True
        except BaseException as error:
            if self._transaction.committed:
                self._fault(error)
            else:
                self._pending.update(ids.tolist())
                if isinstance(error, ResetRejectedError):
                    error.transition = state
            raise
        self._guard.remember(self._obs, ids)
        state.info["timing"]["reset_s"] = time.perf_counter() - started

    @final
    def reset(
        self, env_ids: torch.Tensor | None = None, *, seed: int | None = None
    ) -> tuple[Observations, dict[str, Any]]:
        """Restarts rows.

        Args:
            env_ids: (K,) integer row ids, or None for all rows. All other rows keep everything bit for bit.
            seed: With `env_ids=None` only: restarts the environment's random sequence.

        Returns:
            Copies of the rows' observations by group, (K, dim) in the order of `env_ids`; and the info.

        Raises:
            TypeError: `env_ids` is a mask, a slice, a list or not an integer tensor.
            ValueError: An id out of range or given twice, or `seed` with a subset.
            ResetRejectedError: Staging or validation failed; nothing was committed and everything is as before.
            EnvFaultedError: An earlier failure left no defined state.
        """
        owner = f"{self._name}.reset"
        self._check_usable("reset")
        self._check_idle("reset")
        if isinstance(env_ids, slice):
            raise TypeError(f"{owner}: env_ids is a slice; pass a 1-D integer tensor or None")
        if seed is not None and env_ids is not None:
            raise ValueError(f"{owner}: seed={seed} with env_ids; a seed restarts all rows, drop env_ids")
        ids = resolve_reset_env_ids(env_ids, num_envs=self.num_envs, device=self.device, owner=owner)
        info: dict[str, Any] = {"log": {}, "timing": {}}
        if seed is not None:
            EnvRng(seed, self.device)  # refuses what is no seed before anything changes
        if ids.numel():
            with torch.no_grad(), self._threads:
                info["episode"] = self._reset_rows(ids.sort().values, seed)
        return {group: rows.index_select(0, ids) for group, rows in self._obs.items()}, info

    def _reset_rows(self, ids: torch.Tensor, seed: int | None) -> EpisodeLog:
        before = self.rng.get_state()
        try:
            if seed is not None:
                self.rng.seed(seed)
            log = self._transaction.run(ids)
            self._terminated.index_fill_(0, ids, False)
            self._truncated.index_fill_(0, ids, False)
        except BaseException as error:
            if self._transaction.committed:
                self._fault(error)
            else:
                self.rng.set_state(before)
            raise
        self._check_reset_observations(ids)
        self._guard.remember(self._obs, ids)
        if self._pending:
            self._pending.difference_update(ids.tolist())
        return log

    def _check_reset_observations(self, ids: torch.Tensor) -> None:
        rows = {group: values.index_select(0, ids) for group, values in self._obs.items()}
        self._io.count_verdict(len(rows))
        verdict, _ = self._verdicts.take(rows)
        if not all(verdict.values()):
            message = describe_non_finite(f"{self._name}.reset", self._obs, self._labels())
            error = NonFiniteError(message)
            self._fault(error)
            raise error

    def _clear_counters(self, ids: torch.Tensor) -> EpisodeLog:
        """Core's own part of clearing rows: lengths and returns, and what the log says of them."""
        lengths, returns = (of.index_select(0, ids) for of in (self._episode_length, self._episode_return))
        ended = self._ended.note(ids, lengths)
        self._wrenches.clear(ids)
        self._last_episode_length.index_copy_(0, ids, lengths)
        self._episode_length.index_fill_(0, ids, 0)
        self._episode_return.index_fill_(0, ids, 0.0)
        return {
            "return/sum": ended.sum(returns),
            "return/count": ended.number,
            "length/sum": lengths.sum(),
            "length/count": ended.number,
        }

    def _write_observations(self, ids: torch.Tensor | None) -> None:
        self._ended.forget()
        observed = self._observe(ids)
        widths = {group: rows.shape[1] for group, rows in self._obs.items()}
        check_observations(self._name, widths, observed, self.num_envs if ids is None else ids.numel())
        for group, rows in observed.items():
            if ids is None:
                self._obs[group].copy_(rows)
            else:
                self._obs[group].index_copy_(0, ids, rows)
