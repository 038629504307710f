"""Finds the operations of a policy's network by tracing it once, whatever classes it is made of."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.export.graph_signature import InputKind

from unilab_core import CapabilityError
from unilab_rl.export.lowered_operators import OPERATORS, SPLITS, Builder, Operand, Unsupported, split
from unilab_rl.export.program import OBS, PolicyProgram

__all__ = ["lower"]

_ASSERTION = torch.ops.aten._assert_tensor_metadata.default
"""What a trace puts in front of a conversion, to be sure at run time of what it saw; nothing comes of it."""


def lower(module: torch.nn.Module, num_obs: int, num_actions: int) -> PolicyProgram:
    """Returns the operations of a network.

    What depends on no observation, such as the spread of a normaliser plus its epsilon, is computed here and is a
    weight in the program.

    Args:
        module: From (B, num_obs) float32 to (B, num_actions) float32, on the CPU and in evaluation mode.
        num_obs: Width of an observation, O.
        num_actions: Width of an action, A.

    Raises:
        CapabilityError: It depends on values or does something that can't be exported; names the operation.
    """
    graph = _traced(module, num_obs)
    values = _placeholders(graph)
    builder = Builder()
    results: Any = ()
    for node in graph.graph.nodes:
        if node.op == "call_function" and node.target is not _ASSERTION:
            values[node] = _lowered(builder, node, values)
        elif node.op == "output":
            (results,) = node.args
    return _finished(builder, [values.get(node) for node in results], results, num_actions)


def _traced(module: torch.nn.Module, num_obs: int) -> torch.export.ExportedProgram:
    batch = torch.export.Dim("batch")
    try:
        with torch.no_grad():
            return torch.export.export(module, (torch.zeros(2, num_obs),), dynamic_shapes=({0: batch},))
    except (RuntimeError, ValueError, TypeError, AssertionError) as error:
        reason = str(error).strip().splitlines()
        raise CapabilityError(
            f"the policy's network {type(module).__name__} can't be traced ({reason[0] if reason else error!r}); a "
            f"network can be exported that takes one tensor (B, {num_obs}) of raw observations, any B, and branches on "
            "no value"
        ) from error


def _placeholders(graph: torch.export.ExportedProgram) -> dict[torch.fx.Node, Any]:
    """Returns what the inputs of the graph stand for: the observation, and tensors of the module."""
    specs = {spec.arg.name: spec for spec in graph.graph_signature.input_specs}
    values: dict[torch.fx.Node, Any] = {}
    for node in graph.graph.nodes:
        if node.op != "placeholder":
            continue
        spec = specs[node.name]
        if spec.kind is InputKind.USER_INPUT:
            values[node] = Operand(OBS)
            continue
        held = graph.state_dict if spec.target in graph.state_dict else graph.constants
        values[node] = held[spec.target].detach()
    return values


def _lowered(builder: Builder, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:  # noqa: ANN401
    """Returns what a node results in: an operand, several of them, or a tensor that depends on no observation."""
    mapped: Any = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
    args, kwargs = mapped
    if node.target is operator.getitem:
        return args[0][args[1]]
    assert callable(node.target)
    if not any(isinstance(values[source], Operand | list) for source in node.all_input_nodes):
        with torch.no_grad():
            return node.target(*args, **kwargs)
    name = str(node.target).removeprefix("aten.")
    try:
        if name not in OPERATORS and name not in SPLITS:
            raise Unsupported("there is no translation")
        made = _check_rows(node)
        if name in SPLITS:
            width = node.all_input_nodes[0].meta["val"].shape[1]
            return split(builder, args[0], [value.shape[1] for value in made], width)
        return OPERATORS[name](builder, *args, **kwargs)
    except (Unsupported, TypeError) as error:
        layer = next(reversed((node.meta.get("nn_module_stack") or {"": ("",)}).values()))[0]
        where = f" in {layer.removeprefix('L__self___')!r}" if layer else ""
        raise CapabilityError(
            f"the policy's network does {name!r}{where}, which can't be exported: {error}. Linear layers, the usual "
            "activations, layer, batch and RMS normalisation, sums, products, clamps, slices and concatenations of "
            "columns can"
        ) from error


def _check_rows(node: torch.fx.Node) -> list[torch.Tensor]:
    """Returns stand-ins of what a node makes: rows (B, width), whose number nothing depends on."""
    found = node.meta.get("val")
    made: list[Any] = list(found) if isinstance(found, list | tuple) else [found]
    for value in made:
        if not isinstance(value, torch.Tensor) or value.dim() != 2 or value.dtype != torch.float32:
            got = (
                f"{value.dtype} of {value.dim()} dimensions"
                if isinstance(value, torch.Tensor)
                else f"{value!r}"
            )
            raise Unsupported(f"its result is {got}, expected float32 rows (B, width)")
        rows: object = value.shape[0]
        if not isinstance(rows, torch.SymInt):
            raise Unsupported(f"its result has {rows} rows whatever the number of observations")
    return made


def _finished(builder: Builder, found: list[Any], nodes: Any, num_actions: int) -> PolicyProgram:  # noqa: ANN401
    if len(found) != 1 or not isinstance(found[0], Operand):
        raise CapabilityError(
            f"the policy's network returns {len(found)} results of which "
            f"{sum(isinstance(value, Operand) for value in found)} depend on the observation, expected one: the action"
        )
    width = nodes[0].meta["val"].shape[1]
    if width != num_actions:
        raise CapabilityError(
            f"the policy's network returns {width} columns, expected the {num_actions} of the action"
        )
    return PolicyProgram(tuple(builder.steps), builder.weights, found[0].name)
