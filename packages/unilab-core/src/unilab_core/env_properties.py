"""What an environment says of itself: sizes, times, counters, names, pictures. Nothing here changes its state."""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Any

import torch

from unilab_core.describing import (
    describe_actions,
    describe_actuators,
    describe_joints,
    describe_ledger,
)
from unilab_core.description import EnvDescription
from unilab_core.ended_episodes import Ended, EndedEpisodes
from unilab_core.env_cfg import TorchEnvCfg
from unilab_core.env_hooks import EnvHooks
from unilab_core.errors import EnvFaultedError
from unilab_core.io import BackendIO, EnvTransferStats
from unilab_core.nan_guard import NanGuard
from unilab_core.recording import Recorded
from unilab_core.state import Observations, TorchEnvState
from unilab_core.timing import seconds_to_steps
from unilab_core.wrenches import Wrenches
from unisim.contract import Declared, SimBackend
from unisim.model_layout import ModelLayout

if TYPE_CHECKING:
    from unisim.render import CameraCfg

__all__ = ["EnvProperties"]


class EnvProperties(EnvHooks, ABC):
    """What can be asked of an environment; see `TorchEnv`."""

    cfg: TorchEnvCfg
    faulted: bool
    _name: str
    _backend: SimBackend
    _io: BackendIO
    _state: TorchEnvState
    _obs: Observations
    _guard: NanGuard
    _recorded: Recorded
    _wrenches: Wrenches
    _closed: bool
    _fault_cause: BaseException | None
    _episode_length: torch.Tensor
    _last_episode_length: torch.Tensor
    _ended: EndedEpisodes

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
        """Returns columns of what a step reads, (N, width) float32: a view that the next step rewrites.

        `key` is `"qpos"`, `"qvel"`, `"ctrl"` or another one of `describe().reads`.
        """
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

    def ended_episodes(self, env_ids: torch.Tensor) -> Ended:
        """Returns which of the rows, (K,) int64, had an episode of at least one step before their current one.

        For what a manager logs of rows that are reset: worked out once for all of them.
        """
        return self._ended.of(env_ids)

    @property
    def timed_out(self) -> torch.Tensor:
        """(N,) bool: episodes that have reached the time limit."""
        return self._episode_length >= self.max_episode_length

    @property
    def transfer_stats(self) -> EnvTransferStats:
        """Transfers, bytes and synchronisations between the backend and the tensors, by kind."""
        return self._io.transfer_stats

    def observations(self) -> Observations:
        """Returns copies of the current observations by group, (N, dim); computes and changes nothing.

        Raises:
            RuntimeError: The environment is closed.
            EnvFaultedError: An earlier failure left no defined state.
        """
        self._check_usable("observations")
        return {group: rows.clone() for group, rows in self._obs.items()}

    def describe(self) -> EnvDescription:
        """Returns names and layouts; a subclass labels columns and terms, and says what drives what."""
        model, groups = self.model_layout, self.obs_groups_spec
        return EnvDescription(
            step_dt=self.step_dt,
            episode_length_s=self.cfg.episode_length_s,
            observations={g: tuple(f"{g}[{i}]" for i in range(d)) for g, d in groups.items()},
            units={g: ("",) * d for g, d in groups.items()},
            actions=describe_actions([f"action[{i}]" for i in range(self.num_actions)], self.action_bounds),
            joints=describe_joints(model),
            actuators=describe_actuators(model),
            control=self._control_labels(),
            reads=self._io.keys,
            ledger=describe_ledger(
                self._io,
                model,
                self.num_envs,
                self.declared,
                self._recorded,
                len(groups),
                self.cfg.decimation,
                self._following(),
            ),
            capabilities=_plain(self._backend.get_tensor_capabilities()),
        )

    def _control_labels(self) -> tuple[str, ...]:
        return (*(actuator.name for actuator in self.model_layout.actuators), *self._wrenches.labels)

    def _labels(self) -> dict[str, tuple[str, ...]]:
        """Returns a name for each column of what may be found not to be finite."""
        control = {"control": self._control_labels(), "wrench": self._wrenches.labels}
        return {**control, **self.describe().observations}

    def render(self, row: int, camera: CameraCfg | None = None) -> torch.Tensor:
        """Returns a new (H, W, 3) uint8 image of one row, in host memory; cold path.

        Args:
            row: Which row.
            camera: Where from and how large; None: what the default camera sees.

        Raises:
            CapabilityError: The backend cannot render.
            KeyError: The camera follows what does not exist; the message lists the nearest.
            IndexError: No such row.
        """
        self._check_usable("render")
        return self._backend.render(row, camera)

    def export_model(self, row: int) -> bytes:
        """Returns the model of one row, its randomised values included, in the engine's own file format; cold path.

        Raises:
            CapabilityError: The backend cannot export a model.
            IndexError: No such row.
        """
        self._check_usable("export_model")
        return self._backend.export_model(row)

    def _check_usable(self, call: str) -> None:
        if self._closed:
            raise RuntimeError(f"{self._name}.{call}: the environment is closed")
        if self.faulted:
            raise EnvFaultedError(
                f"{self._name}.{call}: an earlier failure left the environment in no defined state; "
                f"close() it and make a new one. Cause: {self._fault_cause}"
            ) from self._fault_cause


def _plain(capabilities: Any) -> dict[str, Any]:  # noqa: ANN401 - a dataclass of plain values and one enum
    values = dict(vars(capabilities))
    return values | {"execution": capabilities.execution.value}
