"""What the explorers of the algorithms have in common: a module, a generator of their own, and a state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch

from unilab_rl.state_parts import check_generator_state

__all__ = ["NoisyExplorer"]


class NoisyExplorer(ABC):
    """Acts with a policy and noise from a generator of its own, whatever else draws random numbers.

    A subclass acts, and names the noise that it keeps from step to step in `held_noise`.
    """

    def __init__(self, module: torch.nn.Module, device: torch.device, seed: int) -> None:
        """Makes an explorer.

        Args:
            module: What acting depends on; shared with the agent, so that updates are followed.
            device: Of the observations and actions.
            seed: Of the noise.
        """
        self._module = module
        self.generator = torch.Generator(device).manual_seed(seed)
        """What every draw comes from."""

    @property
    def module(self) -> torch.nn.Module:
        """What acting depends on: networks and the statistics of their normalisers."""
        return self._module

    @abstractmethod
    def act(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 within the bounds of the environment, for raw observation groups."""

    def episodes_ended(self, done: torch.Tensor) -> None:
        """Is told which rows start a new episode, (N,) bool; noise without memory has nothing to redraw."""

    def held_noise(self) -> dict[str, torch.Tensor]:
        """Returns the very tensors that live from one step to the next, by name; nothing by default."""
        return {}

    def state(self) -> dict[str, Any]:
        """Returns copies of the held noise and of the state of the generator."""
        held = {name: tensor.detach().clone() for name, tensor in self.held_noise().items()}
        return {"generator": self.generator.get_state(), "noise": held}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state` returned.

        Raises:
            ValueError: It doesn't fit; nothing has changed.
        """
        name = type(self).__name__
        if not _has(state, {"generator", "noise"}):
            raise ValueError(f"{name}: a state of {_names(state)}, expected ['generator', 'noise']")
        held, given = self.held_noise(), state["noise"]
        if not _has(given, set(held)):
            raise ValueError(f"{name}: a state with the noise {_names(given)}, expected {sorted(held)}")
        for key, tensor in held.items():
            value = given[key]
            if (
                not isinstance(value, torch.Tensor)
                or value.shape != tensor.shape
                or value.dtype != tensor.dtype
            ):
                raise ValueError(f"{name}: the noise {key!r} is {_shown(value)}, expected {_shown(tensor)}")
        what = f"{name}: the state of the generator"
        self.generator.set_state(check_generator_state(what, self.generator.device, state["generator"]))
        for key, tensor in held.items():
            tensor.copy_(given[key])


def _has(value: object, names: set[str]) -> bool:
    """Whether a value, whatever a file held, is a dict with exactly these names."""
    return isinstance(value, Mapping) and set(value) == names


def _names(value: object) -> list[str] | str:
    """Returns what an error says of the names in a value, which may be of any type."""
    return sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__


def _shown(value: object) -> str:
    """Returns what an error says of a value."""
    if isinstance(value, torch.Tensor):
        return f"a tensor {tuple(value.shape)} {value.dtype}"
    return type(value).__name__
