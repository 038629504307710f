"""A program and the law of the targets as an ONNX graph: one file, weights inside, any number of rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unilab_rl.export.program import OBS, PolicyProgram, Step
from unilab_rl.export.targets import TargetLaw

if TYPE_CHECKING:
    import onnx
    import torch

__all__ = ["ACTIONS", "TARGETS", "onnx_model"]

ACTIONS, TARGETS = "actions", "targets"
"""What the outputs are called."""

_OPSET = 18
_IR_VERSION = (
    8  # the one that came with this opset, so that every runtime that knows the opset reads the file
)
_OPERATORS = {
    "linear": "Gemm",
    "layer_norm": "LayerNormalization",
    "relu": "Relu",
    "leaky_relu": "LeakyRelu",
    "elu": "Elu",
    "tanh": "Tanh",
    "sigmoid": "Sigmoid",
    "softplus": "Softplus",
    "erf": "Erf",
    "exp": "Exp",
    "sqrt": "Sqrt",
    "absolute": "Abs",
    "add": "Add",
    "subtract": "Sub",
    "multiply": "Mul",
    "divide": "Div",
    "minimum": "Min",
    "maximum": "Max",
    "mean": "ReduceMean",
    "sum": "ReduceSum",
    "concatenate": "Concat",
    "slice": "Slice",
}


class _Graph:
    """Nodes and constants so far."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, op: str, inputs: list[str], output: str, attributes: dict[str, Any] | None = None) -> str:
        from onnx import helper

        self.nodes.append(helper.make_node(op, inputs, [output], name=output, **(attributes or {})))
        return output

    def constant(self, name: str, tensor: torch.Tensor) -> str:
        from onnx import numpy_helper

        self.constants.append(numpy_helper.from_array(tensor.numpy(), name))
        return name


def onnx_model(
    program: PolicyProgram, law: TargetLaw | None, num_obs: int, num_actions: int, properties: dict[str, str]
) -> onnx.ModelProto:
    """Returns the model, checked.

    Its input is `obs`, (batch, O) float32; its outputs are `actions` and, where `law` is known, `targets`, each
    (batch, A) float32.

    Args:
        program: The network.
        law: From actions to targets of joints.
        num_obs: Width of an observation, O.
        num_actions: Width of an action, A.
        properties: What the file says about itself.
    """
    import onnx
    from onnx import TensorProto, helper

    graph = _Graph()
    for name, weight in program.weights.items():
        graph.constant(name, weight)
    for step in program.steps:
        _add(graph, step)
    graph.node("Identity", [program.output], ACTIONS)
    outputs = [ACTIONS]
    if law is not None:
        _add_targets(graph, law)
        outputs.append(TARGETS)
    made = helper.make_graph(
        graph.nodes,
        "policy",
        [helper.make_tensor_value_info(OBS, TensorProto.FLOAT, ["batch", num_obs])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", num_actions]) for name in outputs],
        graph.constants,
    )
    model = helper.make_model(
        made,
        producer_name="unilab-rl",
        opset_imports=[helper.make_opsetid("", _OPSET)],
        ir_version=_IR_VERSION,
    )
    helper.set_model_props(model, properties)
    onnx.checker.check_model(model, full_check=True)
    return model


def _add(graph: _Graph, step: Step) -> None:
    """Appends one step; what ONNX wants in another form than the program says it."""
    import torch

    inputs, attributes = list(step.inputs), dict(step.settings)
    if step.op == "linear":
        attributes = {"transB": 1}
    elif step.op == "layer_norm":
        attributes = {"axis": -1, "epsilon": step.settings["eps"]}
    elif step.op == "concatenate":
        attributes = {"axis": 1}
    elif step.op in ("mean", "sum"):
        inputs.append(graph.constant(f"{step.output}.axes", torch.tensor([1])))
        attributes = {"keepdims": 1}
    elif step.op == "slice":
        numbers = {"start": step.settings["start"], "stop": step.settings["stop"], "axis": 1}
        inputs += [
            graph.constant(f"{step.output}.{key}", torch.tensor([int(n)])) for key, n in numbers.items()
        ]
        attributes = {}
    graph.node(_OPERATORS[step.op], inputs, step.output, attributes)


def _add_targets(graph: _Graph, law: TargetLaw) -> None:
    """Appends clip(action x scale + offset)."""
    last = ACTIONS
    operators = (("Mul", "scale"), ("Add", "offset"), ("Max", "low"), ("Min", "high"))
    for op, name in operators:
        value = graph.constant(f"{TARGETS}.{name}", getattr(law, name))
        last = graph.node(op, [last, value], TARGETS if op == "Min" else f"{TARGETS}.{op}")
