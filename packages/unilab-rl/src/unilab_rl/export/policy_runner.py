"""Runs an exported policy with NumPy and nothing else: `PolicyRunner("folder of the export")`.

This file lies beside the policy that it runs. It reads `policy.json` (names, units, layouts, the operations of the
network) and `policy.npz` (its weights), and can be copied together with them to any machine that has NumPy:

```python
runner = PolicyRunner("exports/model_300")
action, target = runner(observation)  # the raw observation, columns as runner.observation_labels says
```

What a column of the observation is, and its unit, scale and age, is in `runner.metadata["observations"]`. An
observation that holds the last action wants the raw action that this returned, not the target.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["SCHEMA_VERSION", "PolicyRunner"]

SCHEMA_VERSION = 1
"""Of `policy.json`; another one means other names or another meaning."""

Array = Any
"""A NumPy array of float32."""


class PolicyRunner:
    """A policy: from raw observations to raw actions, and from these to the targets of joints.

    Attributes:
        metadata: All that `policy.json` says.
        observation_labels: A label for each of the O columns of an observation, in order.
        action_labels: A label for each of the A columns of an action, in order.
        joint_names: The joint that each column of an action drives; None where nobody said.
        actuator_names: The actuator that each column of an action drives; None where nobody said.
        step_dt: Seconds between two actions.
        has_targets: Whether the targets of joints are known.

    Raises:
        ValueError: A file is damaged, was not exported together with the other, or is of another version.
    """

    def __init__(self, folder: str | Path) -> None:
        folder = Path(folder)
        self.metadata: dict[str, Any] = json.loads((folder / "policy.json").read_text(encoding="utf-8"))
        version = self.metadata.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(
                f"{folder}/policy.json: schema_version is {version!r}, expected {SCHEMA_VERSION}"
            )
        stored = (folder / "policy.npz").read_bytes()
        if hashlib.sha256(stored).hexdigest() != self.metadata["files"]["policy.npz"]:
            raise ValueError(
                f"{folder}/policy.npz: is damaged, or of another export than policy.json; export the policy again"
            )
        with np.load(io.BytesIO(stored), allow_pickle=False) as weights:
            self._weights: dict[str, Array] = {name: weights[name] for name in weights.files}
        columns, actions = self.metadata["observations"]["columns"], self.metadata["actions"]
        self.observation_labels: tuple[str, ...] = tuple(column["label"] for column in columns)
        self.action_labels: tuple[str, ...] = tuple(action["label"] for action in actions)
        self.joint_names: tuple[str | None, ...] = tuple(action["joint"] for action in actions)
        self.actuator_names: tuple[str | None, ...] = tuple(action["actuator"] for action in actions)
        self.step_dt: float = self.metadata["step_dt"]
        self.has_targets: bool = self.metadata["no_targets"] is None
        if self.has_targets:
            self._scale = np.array([action["scale"] for action in actions], np.float32)
            self._offset = np.array([action["offset"] for action in actions], np.float32)
            lows, highs = zip(*(action["clip"] for action in actions), strict=True)
            self._low = np.array([-math.inf if low is None else low for low in lows], np.float32)
            self._high = np.array([math.inf if high is None else high for high in highs], np.float32)

    def __call__(self, observation: Array) -> tuple[Array, Array | None]:
        """Returns the action, and the targets of joints where they are known; see `action` and `target`."""
        action = self.action(observation)
        return action, self.target(action) if self.has_targets else None

    def action(self, observation: Array) -> Array:
        """Returns the raw action, float32 (A,) or (B, A), of raw observations (O,) or (B, O).

        Raises:
            ValueError: The observation has another number of columns.
        """
        given = np.asarray(observation, np.float32)
        width = len(self.observation_labels)
        if given.ndim not in (1, 2) or given.shape[-1] != width:
            raise ValueError(f"the observation has shape {given.shape}, expected ({width},) or (B, {width})")
        values: dict[str, Array] = {"obs": given.reshape(-1, width)}
        for step in self.metadata["network"]["steps"]:
            operands = [
                self._weights[name] if name in self._weights else values[name] for name in step["inputs"]
            ]
            values[step["output"]] = OPERATIONS[step["op"]](*operands, **step.get("settings", {}))
        action: Array = values[self.metadata["network"]["output"]]
        return action[0] if given.ndim == 1 else action

    def target(self, action: Array) -> Array:
        """Returns what the drives of the joints are asked for: clip(action x scale + offset), float32, as `action`.

        A position, a velocity or an effort, as `quantity` of each action in `metadata` says; in the order of the
        columns of the action, which `joint_names` names.

        Raises:
            ValueError: The targets are not known; says why.
        """
        if not self.has_targets:
            raise ValueError(f"the targets of the joints are not known: {self.metadata['no_targets']}")
        wanted = np.asarray(action, np.float32) * self._scale + self._offset
        return np.minimum(np.maximum(wanted, self._low), self._high)


def _elu(x: Array, alpha: float) -> Array:
    return np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))


def _layer_norm(x: Array, weight: Array, bias: Array, eps: float) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.square(centred).mean(axis=-1, keepdims=True)
    return centred / np.sqrt(variance + np.float32(eps)) * weight + bias


def _erf(x: Array) -> Array:
    return np.array([math.erf(value) for value in x.ravel().tolist()], np.float32).reshape(x.shape)


OPERATIONS: dict[str, Callable[..., Array]] = {
    "linear": lambda x, weight, bias: x @ weight.T + bias,
    "layer_norm": _layer_norm,
    "relu": lambda x: np.maximum(x, 0),
    "leaky_relu": lambda x, alpha: np.where(x > 0, x, np.float32(alpha) * x),
    "elu": _elu,
    "tanh": np.tanh,
    "sigmoid": lambda x: np.float32(0.5) * (np.tanh(np.float32(0.5) * x) + np.float32(1)),
    "softplus": lambda x: np.logaddexp(np.float32(0), x),
    "erf": _erf,
    "exp": np.exp,
    "sqrt": np.sqrt,
    "absolute": np.abs,
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "divide": np.divide,
    "minimum": np.minimum,
    "maximum": np.maximum,
    "mean": lambda x: x.mean(axis=-1, keepdims=True),
    "sum": lambda x: x.sum(axis=-1, keepdims=True),
    "concatenate": lambda *parts: np.concatenate(parts, axis=-1),
    "slice": lambda x, start, stop: x[:, start:stop],
}
"""What a step of the network does with rows (B, width) and weights."""
