"""Takes the state of networks and optimisers apart into checkpoint parts, and checks parts before they are put back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch

from unilab_core import nearest

__all__ = [
    "check_generator_state",
    "check_mapping",
    "check_names",
    "check_optimizer",
    "copy_to_cpu",
    "join_networks",
    "load_optimizer",
    "split_networks",
]


_RATES = ("lr", "initial_lr")
"""Settings of an optimiser that schedules write; all others are as the config has them."""

_COMPUTING = ("fused", "foreach")
"""Settings that say how a step is computed, not what it is: they are those of the optimiser that goes on."""


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
        ValueError: A part is no dict, or a network, a tensor, a shape or a dtype differs from what `networks` hold.
    """
    joined: dict[str, dict[str, torch.Tensor]] = {}
    for part, held in (("learner", learner), ("normalizer", normalizer)):
        check_names(f"checkpoint part {part!r}", held, networks)
        for network in networks:
            check_mapping(f"checkpoint part {part!r}: network {network!r}", held[network])
    for network, module in networks.items():
        tensors = {**learner[network], **normalizer[network]}
        wanted = module.state_dict()
        check_names(f"network {network!r}", tensors, wanted)
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
    check_names("checkpoint part 'optimizer'", state, ("state", "param_groups"))
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
        check_names(f"the optimiser's state of parameter {index}", statistics, wanted)
        for name, value in statistics.items():
            what = f"optimiser statistic {name!r} of parameter {index}"
            if name == "step":
                _check_step(what, value)
            else:
                _check_tensor(what, value, parameters[index])


def load_optimizer(optimizer: torch.optim.Optimizer, state: Mapping[str, Any]) -> None:
    """Loads a state that `check_optimizer` let pass; how the optimiser computes its steps stays as it was made."""
    groups = [
        {**given, **{name: own[name] for name in _COMPUTING if name in own}}
        for given, own in zip(state["param_groups"], optimizer.param_groups, strict=True)
    ]
    optimizer.load_state_dict({**state, "param_groups": groups})


def _check_groups(optimizer: torch.optim.Optimizer, groups: object) -> None:
    if not isinstance(groups, list) or not all(isinstance(group, Mapping) for group in groups):
        raise ValueError("the optimiser's 'param_groups' is no list of dicts")
    if len(groups) != len(optimizer.param_groups):
        raise ValueError(f"the optimiser has {len(groups)} groups, expected {len(optimizer.param_groups)}")
    first = 0
    for number, (given, own) in enumerate(zip(groups, optimizer.param_groups, strict=True)):
        what = f"the optimiser's group {number}"
        check_names(what, given, own)
        expected = list(range(first, first + len(own["params"])))
        if not _is_same(given["params"], expected):
            raise ValueError(f"{what} has the parameters {given['params']!r:.60}, expected {expected}")
        first += len(expected)
        for name, setting in own.items():
            if name in _RATES:
                if not isinstance(given[name], float) or not 0.0 < given[name] < math.inf:
                    raise ValueError(f"{what} has {name} {given[name]!r:.40}, expected a positive number")
            elif name not in _COMPUTING and name != "params" and not _is_same(given[name], setting):
                raise ValueError(f"{what} has {name} {given[name]!r:.40}, expected {setting!r}")


def _is_same(given: object, expected: object) -> bool:
    """Whether two settings are the same plain data; a file has lists where an optimiser has tuples."""
    if isinstance(expected, list | tuple):
        return (
            isinstance(given, list | tuple)
            and len(given) == len(expected)
            and all(_is_same(*pair) for pair in zip(given, expected, strict=True))
        )
    # Of other types an equality may be anything, that of tensors even an error.
    plain = given is None or isinstance(given, bool | int | float | str)
    return plain and isinstance(given, bool) == isinstance(expected, bool) and given == expected


def _check_step(what: str, given: object) -> None:
    if not isinstance(given, torch.Tensor):
        raise ValueError(f"{what} is a {type(given).__name__}, expected a 0-d tensor of floats")
    if given.ndim or not given.is_floating_point():
        raise ValueError(
            f"{what} is {given.dtype} of shape {tuple(given.shape)}, expected a 0-d tensor of floats"
        )
    if not 0.0 <= float(given) < math.inf:
        raise ValueError(f"{what} is {float(given)}, expected a count")


def _statistics(optimizer: torch.optim.Optimizer) -> set[str]:
    """Returns the names of what such an optimiser keeps for each parameter, by letting a twin step once."""
    probe = torch.nn.Parameter(torch.zeros(1))
    probe.grad = torch.zeros(1)
    settings = {key: value for key, value in optimizer.param_groups[0].items() if key != "params"}
    twin = type(optimizer)([{**settings, "params": [probe]}], lr=1.0)  # type: ignore[call-arg]
    twin.step()
    return set(twin.state[probe])


def check_mapping(what: str, given: object) -> Mapping[Any, Any]:
    """Returns `given`, or raises ValueError where it is no dict; `what` begins the message."""
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} is a {type(given).__name__}, expected a dict")
    return given


def check_names(what: str, given: object, expected: Iterable[str]) -> None:
    """Checks that `given`, whatever a file held, is a dict with exactly the names `expected`.

    Raises:
        ValueError: It isn't; `what` begins the message, and a name that nobody knows comes with the nearest one.
    """
    names, held = set(expected), set(check_mapping(what, given))
    unknown = sorted(held - names, key=str)  # a damaged file may have numbers among its names
    if unknown:
        raise ValueError(f"{what} has the unknown entry {unknown[0]!r}; {nearest(str(unknown[0]), names)}")
    if missing := sorted(names - held):
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


def check_generator_state(what: str, device: torch.device | str | None, state: object) -> torch.Tensor:
    """Checks what a file holds of a generator of random numbers.

    Args:
        what: Begins the message.
        device: That of the generator which is to take it; `None`: any may have given it.
        state: What was found.

    Returns:
        A copy of its own on the CPU, as `torch.Generator.set_state` needs it: of a view into something larger, torch
        would read what the larger begins with.

    Raises:
        ValueError: It is no generator's state, or a generator on `device` doesn't accept it.
    """
    if not isinstance(state, torch.Tensor) or state.dtype != torch.uint8:
        raise ValueError(f"{what} is {state!r:.40}, expected a uint8 tensor")
    copy = state.to("cpu", copy=True)
    if device is not None:
        try:
            torch.Generator(device).set_state(copy)
        except RuntimeError as error:
            raise ValueError(f"{what} can't be used: {error}") from error
    return copy
