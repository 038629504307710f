"""All that a learner may know of an environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from unilab_core import CameraCfg, Cfg, EnvDescription, TorchEnvState

__all__ = ["EnvProtocol"]


class EnvProtocol(Protocol):
    """A batch of N environments that step together on one device.

    Tensors handed out by `step` may be rewritten by the next `step`; those of `reset` and `observations` are
    copies. The tensor of actions is never modified.
    """

    @property
    def num_envs(self) -> int:
        """The number of environments, N."""
        ...

    @property
    def num_actions(self) -> int:
        """The width of an action row, A."""
        ...

    @property
    def action_bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Lowest and highest useful action, each (A,) float32; may be infinite."""
        ...

    @property
    def device(self) -> torch.device:
        """Where actions are taken and every tensor lives."""
        ...

    @property
    def obs_groups_spec(self) -> Mapping[str, int]:
        """Width of each published observation group: `"obs"` and, for an asymmetric critic, `"critic"`."""
        ...

    @property
    def step_dt(self) -> float:
        """Seconds of simulated time in one step."""
        ...

    @property
    def max_episode_length(self) -> int:
        """Steps after which an episode times out."""
        ...

    @property
    def episode_length(self) -> torch.Tensor:
        """Steps taken in each row's episode, (N,) int64; assigning to it moves the time-outs."""
        ...

    @episode_length.setter
    def episode_length(self, value: torch.Tensor) -> None: ...

    @property
    def state(self) -> TorchEnvState:
        """What the last `step` or `reset` left: observations, reward, flags, info."""
        ...

    @property
    def cfg(self) -> Cfg:
        """The complete config that the environment was built from."""
        ...

    def step(self, actions: torch.Tensor) -> TorchEnvState:
        """Advances every row by one step.

        Args:
            actions: (N, A) float32, contiguous, on `device`.
        """
        ...

    def reset(
        self, env_ids: torch.Tensor | None = None, *, seed: int | None = None
    ) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
        """Starts new episodes in the rows `env_ids` ((K,) int64; `None`: all) and returns their observations."""
        ...

    def observations(self) -> dict[str, torch.Tensor]:
        """Returns copies of the current observations, each (N, width) float32; reading changes nothing."""
        ...

    def export_training_state(self) -> dict[str, int]:
        """Returns `{"version": 1, "step_counter": n}`, the progress that curricula follow."""
        ...

    def import_training_state(self, payload: Mapping[str, Any]) -> None:
        """Continues from what `export_training_state` returned; anything else is a `ValueError`."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """Returns everything needed to continue bit for bit, or raises `CapabilityError`."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores what `state_dict` returned."""
        ...

    def describe(self) -> EnvDescription:
        """Returns names and layouts of observations, actions and terms."""
        ...

    def render(self, row: int, camera: CameraCfg | None = None) -> torch.Tensor:
        """Returns a picture of one row, (height, width, 3) uint8; `None`: what the default camera sees.

        Raises:
            CapabilityError: The backend can't render, or there is no OpenGL.
        """
        ...

    def close(self) -> None:
        """Frees everything; calling it again does nothing."""
        ...
