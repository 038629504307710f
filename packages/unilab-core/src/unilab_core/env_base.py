"""What `TorchEnv` is made of: construction, state in and out, close."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, ClassVar, Self

import torch

from unilab_core.capability_check import check_declared
from unilab_core.compute_threads import ComputeThreads
from unilab_core.contacts import ContactHandle, FoundContacts
from unilab_core.ended_episodes import EndedEpisodes
from unilab_core.entity_data import EntityData
from unilab_core.env_cfg import TorchEnvCfg
from unilab_core.env_properties import EnvProperties
from unilab_core.env_state import check_state, pack_state
from unilab_core.errors import ConfigError, ResetRejectedError
from unilab_core.io import BackendIO
from unilab_core.kept_reads import KeptReads
from unilab_core.make_io import make_io
from unilab_core.nan_guard import NanGuard
from unilab_core.process_device import resolve_device
from unilab_core.reads import BodyHandle
from unilab_core.recording import (
    Recorded,
    check_bounds,
    check_groups,
    check_observations,
    record_reads,
    with_label,
)
from unilab_core.reset_transaction import EpisodeLog, ResetTransaction
from unilab_core.rng import EnvRng
from unilab_core.row_state import RowStateRegistry
from unilab_core.scene import Entity, EntityScene
from unilab_core.staging import Staging
from unilab_core.state import TorchEnvState
from unilab_core.substeps import SubstepLoop
from unilab_core.training_state import export_training_state, parse_training_state
from unilab_core.verdict import Verdicts
from unilab_core.wrenches import Wrenches
from unisim.contract import SimBackend
from unisim.model_layout import ModelLayout
from unisim.reset import ResetPayload, validate_payload

__all__ = ["EnvBase"]


class EnvBase(EnvProperties, ABC):
    """Everything of an environment but its step and reset; see `TorchEnv`."""

    row_settings: ClassVar[tuple[str, ...]] = (
        *("num_envs", "autoreset", "device", "faulted", "_fault_cause", "_closed", "_stepping", "_name"),
        *("_loop", "_threads"),
    )
    """What an environment is told when it is made or torn down: no part of its state."""

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
        self._threads = ComputeThreads(n, device)
        self.rng = EnvRng(seed, device)
        self.step_counter = 0
        self._episode_length = torch.zeros(n, dtype=torch.int64, device=device)
        self._last_episode_length = torch.zeros_like(self._episode_length)
        self._episode_return = torch.zeros(n, dtype=torch.float32, device=device)
        self._ended = EndedEpisodes(self._last_episode_length)
        declared = self._backend.declared
        self._staging = Staging(model, n, device, declared.model_fields)
        self._wrenches = Wrenches(declared.wrench_bodies, model.nu, n, device)
        # Here for the registry to find: what randomisation starts from, what the rows hold, and what pushes them.
        self._model_baseline, self._model_current = self._staging.model.baseline, self._staging.model.current
        self._wrench_values = self._wrenches.values
        self.scene = EntityScene(model, self._io, self._staging, self._wrenches, device)
        with_label(self._name, self._build)
        check_bounds(self._name, self.action_bounds, self.num_actions)
        follows = bool(self._following())
        self._loop = SubstepLoop(self.cfg.decimation, n, model.nu, device) if follows else None
        groups = check_groups(self._name, self.obs_groups_spec)
        self._obs = {g: torch.zeros(n, d, device=device) for g, d in groups.items()}
        self._final_obs = {g: torch.zeros_like(rows) for g, rows in self._obs.items()}
        self._reward = torch.zeros(n, device=device)
        self._terminated = torch.zeros(n, dtype=torch.bool, device=device)
        self._truncated = torch.zeros(n, dtype=torch.bool, device=device)
        self._pending: set[int] = set(range(n))  # host memory: the device need not be asked
        self._unjudged = False
        """Whether rows were reset whose observations no verdict has seen yet."""
        self._state = TorchEnvState(
            self._obs, self._reward, self._terminated, self._truncated, {"log": {}, "timing": {}}
        )
        self._guard = NanGuard(self.cfg.nan_guard, self._obs)
        self._verdicts = Verdicts(device)
        registry = self._make_registry(())
        self._recorded = record_reads(
            self,
            self._io,
            self._staging,
            registry,
            model.nu,
            self._validate_payload,
            lambda observed: check_observations(self._name, groups, observed, n),
        )
        self._prepare_verdicts()
        if self._recorded.step_parts:
            self._check_asked({"row_write:an event or command": ()})
        self._io.freeze(by_substep=follows)
        self._registry = self._make_registry([self._io.column(key) for key in self._io.keys])
        self._transaction = ResetTransaction(
            self,
            self._io,
            self._staging,
            self._registry,
            validate=self._validate_payload,
            owner=f"{self._name}.reset",
        )
        self._commit_startup(torch.arange(n, device=device))

    def _prepare_verdicts(self) -> None:
        """Makes what verdicts are written to, so that the first step is as cheap as any other."""
        before, groups, timers = 2, len(self._obs), self._recorded.timers
        self._verdicts.prepare(before)
        self._verdicts.prepare(before + groups)
        after = 1 + groups + len(self._wrenches.watched) + (self._loop is not None)
        by_row = sum(timers.values())
        self._verdicts.prepare(after, 2 + by_row, len(timers) - by_row)

    def _validate_payload(self, payload: ResetPayload) -> None:
        """Checks what a reset or the startup staged, before any of it is written."""
        validate_payload(
            payload,
            self.model_layout,
            num_envs=self.num_envs,
            owner=f"{self._name}.reset",
            declared=self.declared.model_fields,
            rows_are_valid=True,  # those of the transaction; a backend compares them with its mask
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
        askers = dict(self._asked())
        if self.cfg.nan_guard is not None:
            askers["snapshot:cfg.nan_guard"] = ("cfg.nan_guard; set it to None",)
        self._check_asked(askers)

    def _check_asked(self, askers: Mapping[str, Sequence[str]]) -> None:
        check_declared(self._backend.get_tensor_capabilities(), self.declared, askers, owner=self._name)

    def _make_registry(self, packets: Any) -> RowStateRegistry:  # noqa: ANN401 - a sequence of tensors
        stop = (
            *(
                EnvBase,
                SimBackend,
                BackendIO,
                EntityScene,
                Entity,
                EntityData,
                BodyHandle,
                ContactHandle,
                FoundContacts,
                KeptReads,
                Staging,
            ),
            *(
                ResetTransaction,
                RowStateRegistry,
                TorchEnvState,
                NanGuard,
                BaseException,
                Wrenches,
                *(Recorded, Verdicts, ComputeThreads, EndedEpisodes),
            ),
        )
        roots = {"": self, **self._row_state_roots()}
        return RowStateRegistry(roots, self.num_envs, stop=stop, skip_storage=packets)

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

    def _check_idle(self, call: str) -> None:
        # A reset inside a reset is the transaction's word.
        resetting = call != "reset" and self._transaction.is_running
        if self._stepping or resetting:
            raise RuntimeError(
                f"{self._name}.{call}: a {'reset' if resetting else 'step'} is running; "
                f"its hooks, terms and events must not call {call}()"
            )

    def _fault(self, error: BaseException) -> None:
        self.faulted = True
        self._fault_cause = error

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
        return pack_state(self._backend, self._registry, self._io.histories)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state_dict` returned, bit for bit.

        Raises:
            ValueError: Not of this task, number of rows or version; nothing has changed.
            RuntimeError: A step or a reset is running, or the environment is closed; nothing has changed.
            EnvFaultedError: An earlier failure left no defined state.
        """
        self._check_usable("load_state_dict")
        self._check_idle("load_state_dict")
        check_state(state, self._registry, self.num_envs, self._io.histories)
        try:
            self._backend.restore(state["backend"])
        except (TypeError, ValueError):
            raise  # the backend checks before it writes
        except BaseException as error:
            self._fault(error)
            raise
        try:
            self._registry.load_state_dict(state["values"])
            self._io.load(state.get("histories", {}))
        except BaseException as error:
            self._fault(error)
            raise
        self._forget_last_step()

    def copy_state_from(self, other: EnvBase) -> None:
        """Continues from where another environment of the same config is, whichever backend that one runs on.

        Its own values (buffers, commands, timers, counters, the generator) are copied as they are; of physics,
        positions, velocities and the declared model fields, in float32. What only an engine remembers (warm start,
        actuator states, accelerations until the next step) stays this one's own. `other` is not changed.

        Raises:
            ValueError: It lives on another device, or is not of this task or number of rows; nothing has changed.
            ResetRejectedError: Its positions or velocities are not valid; nothing has changed.
            RuntimeError: A step or a reset of one of them is running, or one is closed; nothing has changed.
            EnvFaultedError: An earlier failure left one of them in no defined state.
        """
        owner = f"{self._name}.copy_state_from"
        for env in (self, other):
            env._check_usable("copy_state_from")
            env._check_idle("copy_state_from")
        if other.device != self.device:  # draws differ between devices, and so would all that follows
            raise ValueError(f"{owner}: got an environment on {other.device}, expected {self.device}")
        values = other._registry.state_dict()
        self._registry.check_state_dict(values)
        held, wanted = self._staging.model.current, other._staging.model.current
        changed = {name: wanted[name].clone() for name in held if not torch.equal(held[name], wanted[name])}
        qpos, qvel = (other.state_column(name).clone() for name in ("qpos", "qvel"))
        rows = torch.arange(self.num_envs, device=self.device)
        try:
            self._io.write_rows(
                torch.ones_like(rows, dtype=torch.bool), ResetPayload(rows, qpos, qvel, model=changed)
            )
            self._registry.load_state_dict(values)
        except ResetRejectedError:
            raise  # nothing was written
        except BaseException as error:
            self._fault(error)
            raise
        self._forget_last_step()

    def _forget_last_step(self) -> None:
        """A state was put in place of the one that the last step led to."""
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
