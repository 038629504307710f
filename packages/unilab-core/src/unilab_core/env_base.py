"""What `TorchEnv` is made of: construction, properties, description, state in and out, close."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import torch

from unilab_core.description import EnvDescription
from unilab_core.entity_data import EntityData
from unilab_core.env_cfg import TorchEnvCfg
from unilab_core.env_hooks import EnvHooks
from unilab_core.env_state import check_state, pack_state
from unilab_core.errors import CapabilityError, ConfigError, EnvFaultedError
from unilab_core.io import BackendIO, make_io
from unilab_core.nan_guard import NanGuard
from unilab_core.process_device import resolve_device
from unilab_core.reads import BodyHandle
from unilab_core.recording import check_groups, check_observations, record_reads, with_label
from unilab_core.reset_transaction import EpisodeLog, ResetTransaction
from unilab_core.rng import EnvRng
from unilab_core.row_state import RowStateRegistry
from unilab_core.scene import Entity, EntityScene
from unilab_core.staging import Staging
from unilab_core.state import Observations, TorchEnvState
from unilab_core.timing import seconds_to_steps
from unilab_core.training_state import export_training_state, parse_training_state
from unisim.contract import Declared, SimBackend
from unisim.model_layout import ModelLayout
from unisim.reset import ResetPayload, validate_payload
from unisim.transfer import TransferStats

__all__ = ["EnvBase"]

_SETTINGS = (
    *("num_envs", "autoreset", "device", "rng.device", "faulted", "_fault_cause", "_closed", "_stepping"),
    *("_name", "_control_width"),
)
"""What an environment is told when it is made or torn down: no part of its state."""


class EnvBase(EnvHooks, ABC):
    """Everything of an environment but its step and reset; see `TorchEnv`."""

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
        self._stepping = False
        self._name = type(self).__name__
        self._backend = backend
        try:
            self.device = resolve_device(device)
            # A buffer born in inference mode could never be written in place outside it.
            with torch.inference_mode(False), torch.no_grad():
                self._construct(seed)
        except BaseException:
            backend.close()
            raise

    def _construct(self, seed: int) -> None:
        n, device, model = self.num_envs, self.device, self._backend.model_layout
        self._check_timestep(model)
        self._check_capabilities()
        # First, for it refuses a device that the backend cannot reach.
        self._io = make_io(self._backend, device=device, decimation=self.cfg.decimation)
        self.rng = EnvRng(seed, device)
        self.step_counter = 0
        self._episode_length = torch.zeros(n, dtype=torch.int64, device=device)
        self._last_episode_length = torch.zeros_like(self._episode_length)
        self._episode_return = torch.zeros(n, dtype=torch.float32, device=device)
        declared = self._backend.declared
        self._control_width = model.nu + 6 * len(declared.wrench_bodies)
        self._staging = Staging(model, n, device, declared.model_fields)
        # Here for the registry to find: what randomisation starts from, and what the rows hold.
        self._model_baseline, self._model_current = self._staging.model.baseline, self._staging.model.current
        self.scene = EntityScene(model, self._io, self._staging, device)
        with_label(self._name, self._build)
        groups = check_groups(self._name, self.obs_groups_spec)
        self._obs = {g: torch.zeros(n, d, device=device) for g, d in groups.items()}
        self._final_obs = {g: torch.zeros_like(rows) for g, rows in self._obs.items()}
        self._reward = torch.zeros(n, device=device)
        self._terminated = torch.zeros(n, dtype=torch.bool, device=device)
        self._truncated = torch.zeros(n, dtype=torch.bool, device=device)
        self._pending: set[int] = set(range(n))  # host memory: the device need not be asked
        self._unjudged = False
        """Whether rows were reset whose observations no verdict has seen yet."""
        self._guard = NanGuard(self.cfg.nan_guard, self._obs)
        registry = self._make_registry(())
        record_reads(
            self,
            self._io,
            self._staging,
            registry,
            self._control_width,
            self._validate_payload,
            lambda observed: check_observations(self._name, groups, observed, n),
        )
        self._io.freeze()
        self._registry = self._make_registry([self._io.column(key) for key in self._io.keys])
        self._transaction = ResetTransaction(
            self,
            self._io,
            self._staging,
            self._registry,
            validate=self._validate_payload,
            owner=f"{self._name}.reset",
        )
        self._state = TorchEnvState(
            self._obs, self._reward, self._terminated, self._truncated, {"log": {}, "timing": {}}
        )
        self._commit_startup(torch.arange(n, device=device))

    def _validate_payload(self, payload: ResetPayload) -> None:
        """Checks what a reset or the startup staged, before any of it is written."""
        validate_payload(
            payload,
            self.model_layout,
            num_envs=self.num_envs,
            owner=f"{self._name}.reset",
            declared=self.declared.model_fields,
        )

    @abstractmethod
    def _clear_counters(self, ids: torch.Tensor) -> EpisodeLog:
        """Clears the counters of rows that were reset; returns what the log says of their episodes."""

    @abstractmethod
    def _write_observations(self, ids: torch.Tensor | None) -> None:
        """Computes the observations of all rows, or of `ids`, and writes them into the buffers."""

    def _check_timestep(self, model: ModelLayout) -> None:
        if abs(model.timestep - self.cfg.sim.timestep) > 1e-9:
            raise ConfigError(
                f"{self._name}: cfg.sim.timestep is {self.cfg.sim.timestep}, the backend's model has {model.timestep}; "
                "every duration would be wrong"
            )

    def _check_capabilities(self) -> None:
        if self.cfg.nan_guard is not None and not self._backend.get_tensor_capabilities().snapshots:
            raise CapabilityError(
                f"{self._name}: cfg.nan_guard copies the engine's state every step, and the backend has no snapshots; "
                "set nan_guard to None"
            )

    def _make_registry(self, packets: Any) -> RowStateRegistry:  # noqa: ANN401 - a sequence of tensors
        stop = (
            *(EnvBase, SimBackend, BackendIO, EntityScene, Entity, EntityData, BodyHandle, Staging),
            *(ResetTransaction, RowStateRegistry, TorchEnvState, NanGuard, BaseException),
        )
        roots = {"": self, **self._row_state_roots()}
        return RowStateRegistry(roots, self.num_envs, stop=stop, skip_storage=packets, settings=_SETTINGS)

    def _commit_startup(self, ids: torch.Tensor) -> None:
        """One commit for all startup randomisation; nothing if no hook stages any."""
        staging = self._staging
        staging.open_reset(ids, self._io.column("qpos"), self._io.column("qvel"), startup=True)
        try:
            with_label("startup", lambda: self._stage_startup(ids))
            payload = staging.reset_payload()
            if payload.model:
                with_label("startup", lambda: self._io.apply_reset(staging.mask, payload))
                staging.model.committed(ids, dict(payload.model), as_baseline=True)
        finally:
            staging.close()

    @property
    def state(self) -> TorchEnvState:
        """The outcome of the last step; its tensors are rewritten by the next.

        Raises:
            RuntimeError: The environment is closed.
            EnvFaultedError: An earlier failure left no defined state.
        """
        self._check_usable("state")
        return self._state

    @property
    def declared(self) -> Declared:
        """What was declared to be written or recorded beyond state when the backend was made."""
        return self._backend.declared

    def state_column(self, key: str) -> torch.Tensor:
        """Returns `"qpos"`, `"qvel"` or `"ctrl"`, (N, width) float32: a view that the next step rewrites."""
        return self._io.column(key)

    @property
    def nonfinite_count(self) -> int:
        """Rows ended so far because a number was not finite; see `NanGuardCfg`."""
        return self._guard.count

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
        self._check_usable("episode_length")
        given: object = values
        expected = f"expected torch.int64 ({self.num_envs},)"
        if not isinstance(given, torch.Tensor):
            raise TypeError(f"{self._name}.episode_length: got {type(given).__name__}, {expected}")
        got = f"{self._name}.episode_length: got {given.dtype} {tuple(given.shape)}, {expected}"
        if given.dtype != torch.int64:
            raise TypeError(got)
        if tuple(given.shape) != (self.num_envs,):
            raise ValueError(got)
        if bool((given < 0).any()):
            raise ValueError(
                f"{self._name}.episode_length: got {int(given.min())}, expected no negative length"
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

    def _check_idle(self, call: str) -> None:
        resetting = (
            call == "step" and self._transaction.is_running
        )  # a reset inside a reset is the transaction's word
        if self._stepping or resetting:
            raise RuntimeError(
                f"{self._name}.{call}: a {'reset' if resetting else 'step'} is running; "
                f"its hooks, terms and events must not call {call}()"
            )

    def _fault(self, error: BaseException) -> None:
        self.faulted = True
        self._fault_cause = error

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
            reads=self._io.keys,
            capabilities=_plain(self._backend.get_tensor_capabilities()),
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

    def state_dict(self) -> dict[str, Any]:
        """Returns everything that the next step depends on: equal for twins, loadable with `weights_only=True`.

        Raises:
            CapabilityError: The backend has no snapshots.
            EnvFaultedError: An earlier failure left no defined state.
        """
        self._check_usable("state_dict")
        return pack_state(self._backend, self._registry)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned, bit for bit.

        Raises:
            ValueError: Not of this task, number of rows or version; nothing has changed.
            EnvFaultedError: An earlier failure left no defined state.
        """
        self._check_usable("load_state_dict")
        check_state(state, self._registry, self.num_envs)
        try:
            self._backend.restore(state["backend"])
        except (TypeError, ValueError):
            raise  # the backend checks before it writes
        except BaseException as error:
            self._fault(error)
            raise
        try:
            self._registry.load_state_dict(state["values"])
            self._io.read()
        except BaseException as error:
            self._fault(error)
            raise
        self._guard.remember(self._obs)
        self._state.final_observation = None
        self._state.info = {"log": {}, "timing": {}}

    def close(self) -> None:
        """Frees everything; idempotent, valid after a fault and in an exception handler."""
        if not self._closed:
            self._closed = True
            self._fault_cause = None  # its traceback may hold what the engine must free
            try:
                self._before_close()
            finally:
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


def _plain(capabilities: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of plain values and one enum
    values = dict(vars(capabilities))
    return values | {"execution": capabilities.execution.value}
