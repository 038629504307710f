"""What each operator that Torch traces is in terms of the few that a program knows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from unilab_rl.export.program import Step

__all__ = ["OPERATORS", "SPLITS", "Builder", "Operand", "Unsupported", "split"]

_SELU_ALPHA, _SELU_SCALE = 1.6732632423543772, 1.0507009873554805  # Klambauer et al. 2017
_END = 2**31 - 1  # behind the last column of anything


class Unsupported(ValueError):
    """An operator is used in a way that a program can't express; says how."""


@dataclass(frozen=True)
class Operand:
    """Rows (B, width) that depend on the observation, by name."""

    name: str


Value = Operand | torch.Tensor | float
"""What an operator is applied to: rows, a tensor that depends on no observation, or a number."""


class Builder:
    """Collects the steps of a program, and the weights that they use.

    Attributes:
        steps: The steps so far.
        weights: float32 tensors by name.
    """

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.weights: dict[str, torch.Tensor] = {}

    def do(self, op: str, *inputs: Value, **settings: float) -> Operand:
        """Appends a step and returns its result."""
        names = tuple(self._name(value) for value in inputs)
        output = Operand(f"x{len(self.steps)}")
        self.steps.append(Step(op, names, output.name, settings))
        return output

    def _name(self, value: Value) -> str:
        if isinstance(value, Operand):
            return value.name
        weight = torch.as_tensor(value, dtype=torch.float32).detach().cpu().contiguous()
        if weight.dim() > 2:
            raise Unsupported(
                f"it uses a weight of shape {tuple(weight.shape)}, expected two dimensions at most"
            )
        name = f"w{len(self.weights)}"
        self.weights[name] = weight
        return name


# ---------------------------------------------------------------- layers


def _linear(b: Builder, x: Value, weight: Value, bias: Value | None = None) -> Operand:
    """x W^T + b; W (out, in)."""
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2 or isinstance(bias, Operand):
        raise Unsupported("a product of two things that depend on the observation")
    return b.do("linear", x, weight, torch.zeros(weight.shape[0]) if bias is None else bias)


def _matmul(b: Builder, x: Value, weight: Value) -> Operand:
    if not isinstance(x, Operand) or not isinstance(weight, torch.Tensor):
        raise Unsupported("a product whose second factor is no weight")
    return _linear(b, x, weight.mT)


def _addmm(b: Builder, bias: Value, x: Value, weight: Value, *, beta: float = 1, alpha: float = 1) -> Operand:
    if beta != 1 or alpha != 1:
        raise Unsupported(f"beta {beta} and alpha {alpha}, expected 1")
    if not isinstance(weight, torch.Tensor):
        raise Unsupported("a product whose second factor is no weight")
    return _linear(b, x, weight.mT, bias)


def _layer_norm(
    b: Builder,
    x: Value,
    shape: Sequence[int],
    weight: Value | None = None,
    bias: Value | None = None,
    eps: float = 1e-5,
    *_: object,
) -> Operand:
    if len(shape) != 1:
        raise Unsupported(f"it normalises over {len(shape)} dimensions, expected one")
    scale = torch.ones(*shape) if weight is None else weight
    return b.do("layer_norm", x, scale, torch.zeros(*shape) if bias is None else bias, eps=eps)


def _batch_norm(
    b: Builder,
    x: Value,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    *_: object,
) -> Operand:
    """(x - mean) / sqrt(var + eps) x weight + bias, with the running statistics."""
    if training or mean is None or var is None:
        raise Unsupported("it normalises by the statistics of the batch, and a robot is a batch of one")
    scale = (var + eps).rsqrt() * (1.0 if weight is None else weight)
    scaled = b.do("multiply", b.do("subtract", x, mean), scale)
    return scaled if bias is None else b.do("add", scaled, bias)


# ---------------------------------------------------------------- activations


def _elu(b: Builder, x: Value, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Operand:
    if input_scale != 1:
        raise Unsupported(f"input_scale {input_scale}, expected 1")
    made = b.do("elu", x, alpha=float(alpha))
    return made if scale == 1 else b.do("multiply", made, scale)


def _selu(b: Builder, x: Value) -> Operand:
    return _elu(b, x, _SELU_ALPHA, _SELU_SCALE)


def _celu(b: Builder, x: Value, alpha: float = 1.0) -> Operand:
    """max(0, x) + min(0, alpha (exp(x / alpha) - 1)) = alpha elu(x / alpha)."""
    return _elu(b, x) if alpha == 1 else _elu(b, b.do("divide", x, alpha), 1.0, alpha)


def _silu(b: Builder, x: Value) -> Operand:
    return b.do("multiply", x, b.do("sigmoid", x))


def _softplus(b: Builder, x: Value, beta: float = 1.0, threshold: float = 20.0) -> Operand:
    """log(1 + exp(beta x)) / beta; beyond a threshold of 20, where Torch returns x, both are x in float32."""
    if threshold < 17.0:
        raise Unsupported(f"threshold {threshold}, expected at least 17")
    return (
        b.do("softplus", x)
        if beta == 1
        else b.do("divide", b.do("softplus", b.do("multiply", x, beta)), beta)
    )


def _mish(b: Builder, x: Value) -> Operand:
    return b.do("multiply", x, b.do("tanh", b.do("softplus", x)))


def _gelu(b: Builder, x: Value, *, approximate: str = "none") -> Operand:
    """x Phi(x), with the error function or its approximation by a hyperbolic tangent (Hendrycks and Gimpel 2016)."""
    if approximate == "none":
        inner = b.do("erf", b.do("multiply", x, math.sqrt(0.5)))
    else:
        cubic = b.do("multiply", b.do("multiply", b.do("multiply", x, x), x), 0.044715)
        inner = b.do("tanh", b.do("multiply", b.do("add", x, cubic), math.sqrt(2.0 / math.pi)))
    return b.do("multiply", b.do("multiply", x, 0.5), b.do("add", inner, 1.0))


def _leaky_relu(b: Builder, x: Value, slope: float = 0.01) -> Operand:
    return b.do("leaky_relu", x, alpha=float(slope))


# ---------------------------------------------------------------- arithmetic


def _plus_or_minus(op: str, b: Builder, x: Value, y: Value, *, alpha: float = 1) -> Operand:
    return b.do(op, x, y if alpha == 1 else _scaled(b, y, alpha))


def _scaled(b: Builder, x: Value, factor: float) -> Value:
    return b.do("multiply", x, factor) if isinstance(x, Operand) else x * factor


def _rsub(b: Builder, x: Value, y: Value, alpha: float = 1) -> Operand:
    return b.do("subtract", y, _scaled(b, x, alpha))


def _addcmul(b: Builder, x: Value, y: Value, z: Value, *, value: float = 1) -> Operand:
    return b.do("add", x, _scaled(b, b.do("multiply", y, z), value) if value != 1 else b.do("multiply", y, z))


def _clamp(b: Builder, x: Value, low: Value | None = None, high: Value | None = None) -> Operand:
    """min(max(x, low), high), in this order."""
    assert isinstance(x, Operand)
    x = x if low is None else b.do("maximum", x, low)
    return x if high is None else b.do("minimum", x, high)


def _pow(b: Builder, x: Value, exponent: float) -> Operand:
    if exponent != 2:
        raise Unsupported(f"the power {exponent}, expected 2")
    return b.do("multiply", x, x)


def _rsqrt(b: Builder, x: Value) -> Operand:
    return b.do("divide", 1.0, b.do("sqrt", x))


def _norm(
    b: Builder,
    x: Value,
    order: float = 2,
    dims: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> Operand:
    if order != 2 or dtype is not None:
        raise Unsupported(f"a norm of order {order} and type {dtype}, expected 2 and none")
    return b.do("sqrt", _over_columns("sum", b, b.do("multiply", x, x), dims, keepdim))


def _over_columns(
    op: str, b: Builder, x: Value, dims: Sequence[int] | None = None, keepdim: bool = False, **_: object
) -> Operand:
    if list(dims or ()) not in ([-1], [1]) or not keepdim:
        raise Unsupported(f"a {op} over dimensions {dims}, keepdim={keepdim}; expected [-1] and True")
    return b.do(op, x)


# ---------------------------------------------------------------- columns


def _columns(dim: int) -> None:
    if dim not in (-1, 1):
        raise Unsupported(f"along dimension {dim}, expected the columns")


def _cat(b: Builder, parts: Sequence[Value], dim: int = 0) -> Operand:
    _columns(dim)
    if not all(isinstance(part, Operand) for part in parts):
        raise Unsupported("a concatenation with something that doesn't depend on the observation")
    return b.do("concatenate", *parts)


def _slice(
    b: Builder, x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> Value:
    start, end = start or 0, _END if end is None else min(end, _END)
    if (dim, start, end, step) == (0, 0, _END, 1):  # x[:, ...] takes all rows first
        return x
    _columns(dim)
    if step != 1 or start < 0:
        raise Unsupported(
            f"from {start} in steps of {step}, expected a start that is counted from 0 and steps of 1"
        )
    return b.do("slice", x, start=start, stop=end)


def split(b: Builder, x: Value, widths: Sequence[int], width: int) -> list[Operand]:
    """Returns the columns of `x`, `width` of them, in parts of these widths."""
    if sum(widths) != width:
        raise Unsupported("it splits something else than the columns")
    ends = [sum(widths[: i + 1]) for i in range(len(widths))]
    return [b.do("slice", x, start=end - part, stop=end) for part, end in zip(widths, ends, strict=True)]


def _same(b: Builder, x: Value, *_: object, **__: object) -> Value:
    """Changes nothing: a copy, a dropout in evaluation mode, or a broadcast, which every operation does by itself."""
    return x


def _dropout(b: Builder, x: Value, p: float, train: bool) -> Value:
    if train:
        raise Unsupported("it drops values at random; put the network into evaluation mode")
    return x


def _plain(op: str, b: Builder, *values: Value) -> Operand:
    return b.do(op, *values)


SPLITS = ("chunk.default", "split.Tensor", "split_with_sizes.default")
"""Operators with several results, whose widths tell everything."""

OPERATORS: dict[str, Callable[..., Any]] = {
    "linear.default": _linear,
    "matmul.default": _matmul,
    "mm.default": _matmul,
    "addmm.default": _addmm,
    "layer_norm.default": _layer_norm,
    "batch_norm.default": _batch_norm,
    "elu.default": _elu,
    "selu.default": _selu,
    "celu.default": _celu,
    "silu.default": _silu,
    "softplus.default": _softplus,
    "mish.default": _mish,
    "gelu.default": _gelu,
    "leaky_relu.default": _leaky_relu,
    "add.Tensor": partial(_plus_or_minus, "add"),
    "sub.Tensor": partial(_plus_or_minus, "subtract"),
    "rsub.Scalar": _rsub,
    "addcmul.default": _addcmul,
    "clamp.default": _clamp,
    "clamp.Tensor": _clamp,
    "clamp_min.default": _clamp,
    "clamp_max.default": lambda b, x, high: _clamp(b, x, None, high),
    "hardtanh.default": lambda b, x, low=-1.0, high=1.0: _clamp(b, x, low, high),
    "pow.Tensor_Scalar": _pow,
    "square.default": lambda b, x: _pow(b, x, 2),
    "rsqrt.default": _rsqrt,
    "reciprocal.default": lambda b, x: b.do("divide", 1.0, x),
    "neg.default": lambda b, x: b.do("subtract", 0.0, x),
    "linalg_vector_norm.default": _norm,
    "mean.dim": partial(_over_columns, "mean"),
    "sum.dim_IntList": partial(_over_columns, "sum"),
    "cat.default": _cat,
    "slice.Tensor": _slice,
    "dropout.default": _dropout,
    "to.dtype": _same,  # to float32, for nothing else is let through
    **{
        f"{name}.default": _same for name in ("alias", "clone", "contiguous", "detach", "expand", "expand_as")
    },
    **{f"{name}.Tensor": partial(_plain, op) for name, op in (("mul", "multiply"), ("div", "divide"))},
    **{
        f"{name}.default": partial(_plain, name) for name in ("relu", "tanh", "sigmoid", "erf", "exp", "sqrt")
    },
    **{f"{name}.default": partial(_plain, name) for name in ("maximum", "minimum")},
    "abs.default": partial(_plain, "absolute"),
}
