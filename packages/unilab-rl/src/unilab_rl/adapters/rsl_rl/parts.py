"""Takes the state of networks and optimisers apart into checkpoint parts, and checks parts before they are put back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from unilab_core import nearest

__all__ = ["check_optimizer", "copy_to_cpu", "join_networks", "split_networks"]

_NORMALIZER = "obs_normalizer."


def copy_to_cpu(value: Any) -> Any:  # noqa: ANN401 - any tree of plain data and tensors
    """Returns `value` with every tensor in its dicts and lists copied to the CPU."""
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, Mapping):
        return {key: copy_to_cpu(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [copy_to_cpu(item) for item in value]
    return value


def split_networks(networks: Mapping[str, torch.nn.Module]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns copies of parameters and of normaliser statistics, each by network name."""
    learner: dict[str, Any] = {}
    normalizer: dict[str, Any] = {}
    for network, module in networks.items():
        tensors = copy_to_cpu(module.state_dict())
        learner[network] = {key: value for key, value in tensors.items() if not key.startswith(_NORMALIZER)}
        normalizer[network] = {key: value for key, value in tensors.items() if key.startswith(_NORMALIZER)}
    return learner, normalizer


def join_networks(
    networks: Mapping[str, torch.nn.Module], learner: Mapping[str, Any], normalizer: Mapping[str, Any]
) -> dict[str, dict[str, torch.Tensor]]:
    """Returns one complete state per network, checked against it.

    Raises:
        ValueError: A network, a tensor, a shape or a dtype differs from what `networks` hold.
    """
    joined: dict[str, dict[str, torch.Tensor]] = {}
    for part, held in (("learner", learner), ("normalizer", normalizer)):
        _check_names(f"checkpoint part {part!r}", set(held), set(networks))
    for network, module in networks.items():
        tensors = {**learner[network], **normalizer[network]}
        wanted = module.state_dict()
        _check_names(f"network {network!r}", set(tensors), set(wanted))
        for name, tensor in wanted.items():
            _check_tensor(f"{network}.{name}", tensors[name], tensor)
        joined[network] = tensors
    return joined


def check_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Checks that `optimizer.load_state_dict(state)` will succeed and fit.

    Raises:
        ValueError: Groups, parameters or the shapes of their statistics differ.
    """
    _check_names("checkpoint part 'optimizer'", set(state), {"state", "param_groups"})
    wanted = [len(group["params"]) for group in optimizer.param_groups]
    given = [len(group["params"]) for group in state["param_groups"]]
    if given != wanted:
        raise ValueError(f"the optimiser has groups of {given} parameters, expected {wanted}")
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for index, statistics in state["state"].items():
        for name, value in statistics.items():
            if isinstance(value, torch.Tensor) and value.dim() > 0:
                _check_tensor(f"optimiser statistic {name!r} of parameter {index}", value, parameters[index])


def _check_names(what: str, given: set[str], expected: set[str]) -> None:
    missing, unknown = sorted(expected - given), sorted(given - expected)
    if unknown:
        raise ValueError(f"{what} has the unknown entry {unknown[0]!r}; {nearest(unknown[0], expected)}")
    if missing:
        raise ValueError(f"{what} lacks {missing}")


def _check_tensor(what: str, given: object, expected: torch.Tensor) -> None:
    if not isinstance(given, torch.Tensor):
        raise ValueError(
            f"{what} is a {type(given).__name__}, expected a tensor of shape {tuple(expected.shape)}"
        )
    if given.shape != expected.shape or given.dtype != expected.dtype:
        raise ValueError(
            f"{what} is {given.dtype} of shape {tuple(given.shape)}, expected {expected.dtype} of shape "
            f"{tuple(expected.shape)}; it was trained with another network or observation"
        )
