"""TorchEnv: the order of a step and of a reset, in one place and final."""

from __future__ import annotations

import time
from abc import ABC
from collections.abc import Mapping
from types import TracebackType
from typing import Any, NoReturn, Self, final

import torch

from unilab_core.description import EnvDescription
from unilab_core.env_cfg import TorchEnvCfg
from unilab_core.env_hooks import EnvHooks
from unilab_core.errors import CapabilityError, EnvFaultedError
from unilab_core.io import BackendIO
from unilab_core.recording import check_groups, check_observations, record_reads
from unilab_core.reset_selectors import resolve_reset_env_ids
from unilab_core.reset_transaction import EpisodeLog, ResetTransaction
from unilab_core.rng import EnvRng
from unilab_core.scene import EntityScene
from unilab_core.staging import Staging
from unilab_core.state import Observations, TorchEnvState
from unilab_core.timing import seconds_to_steps
from unilab_core.training_state import export_training_state, parse_training_state
from unilab_core.verdict import check_actions, check_transition
from unisim.contract import SimBackend
from unisim.model_layout import ModelLayout
from unisim.transfer import TransferStats

__all__ = ["TorchEnv"]


class TorchEnv(EnvHooks, ABC):
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

    def __init__(
        self,
        backend: SimBackend,
        cfg: TorchEnvCfg,
        *,
        device: str | torch.device = "cpu",
        seed: int = 0,
        autoreset: bool = True,
    ) -> None:
        """Builds the environment on `backend`, which it owns and closes, also when construction fails.

        Afterwards every row is pending: `step` raises RuntimeError until each was reset once.

        Raises:
            CapabilityError: The backend cannot do what the environment needs.
            ConfigError: A term fails, or an observation group is not as declared; names the term.
        """
        self.cfg = cfg
        self.num_envs = backend.num_envs
        self.autoreset = autoreset
        self.faulted = False
        self._fault_cause: BaseException | None = None
        self._closed = False
        self._name = type(self).__name__
        self._backend = backend
        try:
            self.device = torch.device(device)
            self._construct(seed)
        except BaseException:
            backend.close()
            raise

    def _construct(self, seed: int) -> None:
        n, device, model = self.num_envs, self.device, self._backend.model_layout
        # First, for it refuses a device that the backend cannot reach.
        self._io = BackendIO(self._backend, device=device, decimation=self.cfg.decimation)
        self.rng = EnvRng(seed, device)
        self.step_counter = 0
        self._episode_length = torch.zeros(n, dtype=torch.int64, device=device)
        self._last_episode_length = torch.zeros_like(self._episode_length)
        self._episode_return = torch.zeros(n, dtype=torch.float32, device=device)
        self._staging = Staging(model, n, device)
        self.scene = EntityScene(model, self._io, self._staging, device)
        self._transaction = ResetTransaction(self, model, self._io, self._staging, f"{self._name}.reset")
        self._build()
        groups = check_groups(self._name, self.obs_groups_spec)
        record_reads(self, self._io, self._staging, self.rng)
        self._io.freeze()
        self._obs = {g: torch.zeros(n, d, device=device) for g, d in groups.items()}
        check_observations(self._name, self._obs, self._observe(None), n)
        self._final_obs = {g: torch.zeros_like(rows) for g, rows in self._obs.items()}
        self._state = TorchEnvState(
            obs=self._obs,
            reward=torch.zeros(n, device=device),
            terminated=torch.zeros(n, dtype=torch.bool, device=device),
            truncated=torch.zeros(n, dtype=torch.bool, device=device),
            info={"log": {}, "timing": {}},
        )
        self._pending: set[int] = set(range(n))  # host memory: the device need not be asked

    @property
    def state(self) -> TorchEnvState:
        """The outcome of the last step; its tensors are rewritten by the next."""
        return self._state

    @property
    def model_layout(self) -> ModelLayout:
        """Names, indices, ranges and defaults of the model."""
        return self._backend.model_layout

    @property
    def step_dt(self) -> float:
        """Length of a control step, s."""
        return self.cfg.step_dt

    @property
    def max_episode_length(self) -> int:
        """Time limit of an episode in control steps."""
        return seconds_to_steps(self.cfg.episode_length_s, self.step_dt)

    @property
    def episode_length(self) -> torch.Tensor:
        """(N,) int64: control steps of the current episodes; assigning copies the values in."""
        return self._episode_length

    @episode_length.setter
    def episode_length(self, values: torch.Tensor) -> None:
        if values.dtype != torch.int64 or tuple(values.shape) != (self.num_envs,):
            raise ValueError(
                f"{self._name}.episode_length: got {values.dtype} {tuple(values.shape)}, "
                f"expected torch.int64 ({self.num_envs},)"
            )
        self._episode_length.copy_(values)

    @property
    def last_episode_length(self) -> torch.Tensor:
        """(N,) int64: control steps of the episodes before the current ones; 0 if there was none."""
        return self._last_episode_length

    @property
    def timed_out(self) -> torch.Tensor:
        """(N,) bool: episodes that have reached the time limit."""
        return self._episode_length >= self.max_episode_length

    @property
    def transfer_stats(self) -> TransferStats:
        """Transfers, bytes and synchronisations between the backend and the tensors, by packet kind."""
        return self._io.transfer_stats

    def _check_usable(self, call: str) -> None:
        if self._closed:
            raise RuntimeError(f"{self._name}.{call}: the environment is closed")
        if self.faulted:
            raise EnvFaultedError(
                f"{self._name}.{call}: an earlier failure left the environment in no defined state; "
                f"close() it and make a new one. Cause: {self._fault_cause}"
            ) from self._fault_cause

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
            EnvFaultedError: An earlier failure left no defined state.
        """
        self._check_usable("step")
        if self._pending:
            rows = sorted(self._pending)
            raise RuntimeError(
                f"{self._name}.step: rows {rows[:8]}{' ...' if len(rows) > 8 else ''} wait for a reset; "
                "call reset(env_ids) for them, or reset() for all"
            )
        check_actions(actions, self.num_envs, self.num_actions, self.device, f"{self._name}.step")
        actions = actions.detach()  # buffers that outlive a step must not grow its autograd graph
        started = time.perf_counter()
        ctrl = self._control(actions)
        check_transition(f"{self._name}.step", {"actions": actions, "control": ctrl})
        try:
            return self._step(ctrl, started)
        except BaseException as error:
            self._fault(error)
            raise

    def _step(self, ctrl: torch.Tensor, started: float) -> TorchEnvState:
        """Everything after the point of no return, in the order the contract fixes."""
        state = self._state
        self._begin_step()
        self._io.step(ctrl)
        physics_done = time.perf_counter()
        self._io.read()
        self._episode_length += 1
        self.step_counter += 1
        self._write_verdicts()
        state.reward.copy_(self._rewards())
        self._episode_return += state.reward
        self._advance()
        log = self._measure()
        self._write_observations(None)
        done = state.terminated | state.truncated
        any_done = check_transition(f"{self._name}.step", {"reward": state.reward, **self._obs}, flag=done)
        self._after_step()
        state.final_observation = None
        state.info = {"log": log, "timing": {}}
        computed = time.perf_counter()
        if any_done:
            self._finish_episodes(done)
        finished = time.perf_counter()
        state.info["timing"] = {
            "physics_s": physics_done - started,
            "compute_s": computed - physics_done,
            "reset_s": finished - computed,
        }
        return state

    def _write_verdicts(self) -> None:
        state = self._state
        terminated, truncated = self._terminations()
        if self.cfg.is_finite_horizon:
            terminated, truncated = terminated | truncated, torch.zeros_like(truncated)
        state.terminated.copy_(terminated)
        state.terminated |= self._io.bad_rows()
        state.truncated.copy_(truncated)

    def _finish_episodes(self, done: torch.Tensor) -> None:
        state = self._state
        for group, rows in self._obs.items():
            self._final_obs[group].copy_(rows)
        state.final_observation = self._final_obs
        ids = done.nonzero().flatten()
        if self.autoreset:
            state.info["episode"] = self._transaction.run(ids)
        else:
            self._pending.update(ids.tolist())

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
            ResetRejectedError: A staged value is not valid; nothing was committed.
            EnvFaultedError: An earlier failure left no defined state.
        """
        owner = f"{self._name}.reset"
        self._check_usable("reset")
        if isinstance(env_ids, slice):
            raise TypeError(f"{owner}: env_ids is a slice; pass a 1-D integer tensor or None")
        if seed is not None and env_ids is not None:
            raise ValueError(f"{owner}: seed={seed} with env_ids; a seed restarts all rows, drop env_ids")
        ids = resolve_reset_env_ids(env_ids, num_envs=self.num_envs, device=self.device, owner=owner)
        if seed is not None:
            self.rng.seed(seed)
        info: dict[str, Any] = {"log": {}, "timing": {}}
        if ids.numel():
            ordered = ids.sort().values
            try:
                log = self._transaction.run(ordered)
                self._state.terminated[ordered] = False
                self._state.truncated[ordered] = False
            except BaseException as error:
                self._fault(error)
                raise
            info["episode"] = log
            self._pending.difference_update(ordered.tolist())
        return {group: rows[ids] for group, rows in self._obs.items()}, info

    def _fault(self, error: BaseException) -> None:
        self.faulted = True
        self._fault_cause = error

    def _clear_counters(self, ids: torch.Tensor) -> EpisodeLog:
        """Core's own part of clearing rows: lengths and returns, and what the log says of them."""
        lengths, returns = self._episode_length[ids], self._episode_return[ids]
        ended = lengths > 0
        count = ended.sum()
        self._last_episode_length[ids] = lengths
        self._episode_length[ids] = 0
        self._episode_return[ids] = 0.0
        return {
            "return/sum": torch.where(ended, returns, 0.0).sum(),
            "return/count": count,
            "length/sum": lengths.sum(),
            "length/count": count,
        }

    def _write_observations(self, ids: torch.Tensor | None) -> None:
        observed = self._observe(ids)
        check_observations(self._name, self._obs, observed, self.num_envs if ids is None else ids.numel())
        for group, rows in observed.items():
            if ids is None:
                self._obs[group].copy_(rows)
            else:
                self._obs[group][ids] = rows

    def observations(self) -> Observations:
        """Returns copies of the current observations by group, (N, dim); computes and changes nothing.

        Raises:
            RuntimeError: The environment is closed.
            EnvFaultedError: An earlier failure left no defined state.
        """
        self._check_usable("observations")
        return {group: rows.clone() for group, rows in self._obs.items()}

    def describe(self) -> EnvDescription:
        """Returns names and layouts; a subclass labels columns and terms."""
        return EnvDescription(
            step_dt=self.step_dt,
            episode_length_s=self.cfg.episode_length_s,
            observations={g: tuple(f"{g}[{i}]" for i in range(d)) for g, d in self.obs_groups_spec.items()},
            actions=tuple(f"action[{i}]" for i in range(self.num_actions)),
            joints=tuple(joint.name for joint in self._backend.model_layout.joints),
            reads=tuple(block.key for block in self._io.plan.layout.blocks),
        )

    def render(self, row: int) -> torch.Tensor:
        """Returns an (H, W, 3) uint8 image of one row; cold path.

        Raises:
            CapabilityError: The backend cannot render.
        """
        self._check_usable("render")
        return self._backend.render(row)

    def export_training_state(self) -> dict[str, int]:
        """Returns the training state, version 1: plain data."""
        return export_training_state(self.step_counter)

    def import_training_state(self, payload: Mapping[str, Any]) -> None:
        """Continues the step counter of a training state.

        Raises:
            ValueError: Not a valid payload; nothing has changed.
        """
        self.step_counter = parse_training_state(payload)

    def state_dict(self) -> NoReturn:
        """Not available in this version: a resumed training restarts its episodes.

        Raises:
            CapabilityError: Always.
        """
        raise CapabilityError(f"{self._name}.state_dict is not available in unilab-core 0.1")

    def load_state_dict(self, state: Mapping[str, Any]) -> NoReturn:
        """Not available in this version.

        Raises:
            CapabilityError: Always.
        """
        raise CapabilityError(f"{self._name}.load_state_dict is not available in unilab-core 0.1")

    def close(self) -> None:
        """Frees everything; idempotent, valid after a fault and in an exception handler."""
        if not self._closed:
            self._closed = True
            self._fault_cause = None  # its traceback may hold what the engine must free
            self._io.close()

    def __enter__(self) -> Self:
        """Returns itself; leaving the block closes it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Closes the environment."""
        self.close()
