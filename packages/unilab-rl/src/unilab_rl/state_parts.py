"""Takes the state of networks and optimisers apart into checkpoint parts, and checks parts before they are put back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch

from unilab_core import nearest

__all__ = [
    "check_generator_state",
    "check_names",
    "check_optimizer",
    "copy_to_cpu",
    "join_networks",
    "split_networks",
]


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
    """Returns copies of parameters and of normaliser statistics, each by network name.

    A tensor belongs to a normaliser if a part of its dotted name, the network's included, ends in `normalizer`.
    """
    learner: dict[str, Any] = {}
    normalizer: dict[str, Any] = {}
    for network, module in networks.items():
        tensors = copy_to_cpu(module.state_dict())
        statistics = {key for key in tensors if _is_normalizer(f"{network}.{key}")}
        learner[network] = {key: value for key, value in tensors.items() if key not in statistics}
        normalizer[network] = {key: value for key, value in tensors.items() if key in statistics}
    return learner, normalizer


def _is_normalizer(name: str) -> bool:
    return any(part.endswith("normalizer") for part in name.split("."))


def join_networks(
    networks: Mapping[str, torch.nn.Module], learner: Mapping[str, Any], normalizer: Mapping[str, Any]
) -> dict[str, dict[str, torch.Tensor]]:
    """Returns one complete state per network, checked against it.

    Raises:
        ValueError: A network, a tensor, a shape or a dtype differs from what `networks` hold.
    """
    joined: dict[str, dict[str, torch.Tensor]] = {}
    for part, held in (("learner", learner), ("normalizer", normalizer)):
        check_names(f"checkpoint part {part!r}", set(held), set(networks))
    for network, module in networks.items():
        tensors = {**learner[network], **normalizer[network]}
        wanted = module.state_dict()
        check_names(f"network {network!r}", set(tensors), set(wanted))
        for name, tensor in wanted.items():
            _check_tensor(f"{network}.{name}", tensors[name], tensor)
        joined[network] = tensors
    return joined


def check_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any], *, trained: bool) -> None:
    """Checks that `optimizer.load_state_dict(state)` will succeed and fit.

    Args:
        optimizer: The optimiser.
        state: What is to be loaded.
        trained: Whether every parameter must have statistics; otherwise none has to.

    Raises:
        ValueError: Groups, their settings, parameters, statistics or the shapes of these differ.
    """
    check_names("checkpoint part 'optimizer'", set(state), {"state", "param_groups"})
    _check_groups(optimizer, state["param_groups"])
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    wanted = _statistics(optimizer)
    held = state["state"]
    if not isinstance(held, Mapping) or not all(isinstance(each, Mapping) for each in held.values()):
        raise ValueError("the optimiser's state is no dict of dicts")
    if set(held) != set(range(len(parameters))) and (held or (trained and wanted)):
        raise ValueError(
            f"the optimiser has statistics of {len(held)} parameters, expected {len(parameters)}"
        )
    for index, statistics in held.items():
        check_names(f"the optimiser's state of parameter {index}", set(statistics), wanted)
        for name, value in statistics.items():
            if name != "step":
                _check_tensor(f"optimiser statistic {name!r} of parameter {index}", value, parameters[index])


def _check_groups(optimizer: torch.optim.Optimizer, groups: object) -> None:
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        raise ValueError("the optimiser's 'param_groups' is no list of dicts")
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"the optimiser has {len(groups)} groups, expected {len(optimizer.param_groups)}")
    first = 0
    for number, (given, own) in enumerate(zip(groups, optimizer.param_groups, strict=True)):
        check_names(f"the optimiser's group {number}", set(given), set(own))
        expected = list(range(first, first + len(own["params"])))
        if given["params"] != expected:
            raise ValueError(
                f"the optimiser's group {number} has the parameters {given['params']!r:.60}, expected {expected}"
            )
        first += len(expected)
        rate = given["lr"]
        if not isinstance(rate, float) or not 0.0 < rate < math.inf:
            raise ValueError(
                f"the optimiser's group {number} has lr {rate!r:.40}, expected a positive number"
            )


def _statistics(optimizer: torch.optim.Optimizer) -> set[str]:
    """Returns the names of what such an optimiser keeps for each parameter, by letting a twin step once."""
    probe = torch.nn.Parameter(torch.zeros(1))
    probe.grad = torch.zeros(1)
    settings = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    twin = type(optimizer)([{**settings, "params": [probe]}], lr=1.0)  # type: ignore[call-arg]
    twin.step()
    return set(twin.state[probe])


def check_names(what: str, given: set[str], expected: set[str]) -> None:
    """Raises ValueError, with the nearest name, where `given` are not `expected`; `what` begins the message."""
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


def check_generator_state(what: str, generator: torch.Generator, state: object) -> None:
    """Checks that a generator of the same device as `generator` accepts `state`; `what` begins the message.

    Raises:
        ValueError: It doesn't.
    """
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
        raise ValueError(f"{what} is {state!r:.40}, expected a uint8 tensor")
    try:
        torch.Generator(generator.device).set_state(state.cpu())
    except RuntimeError as error:
        raise ValueError(f"{what} can't be used: {error}") from error
