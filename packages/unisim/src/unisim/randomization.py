"""Which model fields may differ per row, and which values of them are physical.

Engines accept negative masses, impossible inertias and NaN without a word, so every value is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch

__all__ = ["MODEL_FIELDS", "FieldLayout", "check_model_values", "engine_values"]

INERTIA_TOLERANCE = 1e-4
"""Relative slack of the triangle inequality of principal moments: a flat plate sits exactly on it."""

UNIT_EPSILON = 1e-14
"""Within it the compiler of a model leaves a quaternion as it is."""


@dataclass(frozen=True)
class FieldLayout:
    """One randomisable field of a compiled model.

    Attributes:
        shape: Shape of one row's values, for example (nbody,) or (ngeom, 3).
        nominal: The model's own values, flattened in row-major order.
    """

    shape: tuple[int, ...]
    nominal: tuple[float, ...]

    def nominal_tensor(self) -> torch.Tensor:
        """Returns the nominal values as a new float32 tensor of `shape`."""
        return self._nominal_tensor.clone()

    @cached_property
    def _nominal_tensor(self) -> torch.Tensor:
        # Every reset compares with it, and a tensor of some hundred numbers takes long to make.
        with torch.inference_mode(False):
            return torch.tensor(self.nominal, dtype=torch.float32).reshape(self.shape)


Check = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""`(values (k, ...), nominal (...)) -> (k, ...) bool`: which values are not physical, or which values together."""


def _any(wrong: torch.Tensor) -> torch.Tensor:
    """Returns (k,) bool: whether anything of a row is true."""
    return wrong.reshape(wrong.shape[0], -1).any(dim=1)


def _negative(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    return values < 0


def _massless(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    # A body without mass (the world, a frame) stays without; any other must keep some.
    return torch.where(nominal > 0, values <= 0, values != 0)


def _impossible_inertia(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    has = (nominal > 0).all(dim=-1)
    largest = values.amax(dim=-1)
    others = values.sum(dim=-1) - largest
    wrong = (values <= 0).any(dim=-1) | (largest > others * (1.0 + INERTIA_TOLERANCE))
    return torch.where(has, wrong, (values != 0).any(dim=-1))


def _not_unit(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    off: torch.Tensor = (values.norm(dim=-1) - 1.0).abs()
    return off > 1e-3


def _not_positive(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    return torch.where(nominal > 0, values <= 0, values != nominal)


def _inverted(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    return values[..., 0] > values[..., 1]


def _never(values: torch.Tensor, nominal: torch.Tensor) -> torch.Tensor:
    """Marks fields of which every finite value is physical."""
    return torch.zeros(values.shape[0], dtype=torch.bool, device=values.device)


MODEL_FIELDS: Mapping[str, tuple[Check, str]] = {
    "body_mass": (_massless, "a mass must be positive, kg"),
    "body_ipos": (_never, ""),
    "body_iquat": (_not_unit, "an orientation must be a unit quaternion"),
    "body_inertia": (
        _impossible_inertia,
        "principal moments must be positive and obey the triangle inequality",
    ),
    "geom_friction": (_negative, "friction must not be negative"),
    "geom_size": (_not_positive, "a size must be positive, m"),
    "dof_armature": (_negative, "armature must not be negative"),
    "dof_damping": (_negative, "damping must not be negative"),
    "dof_frictionloss": (_negative, "friction loss must not be negative"),
    "actuator_gainprm": (_never, ""),
    "actuator_biasprm": (_never, ""),
    "actuator_forcerange": (_inverted, "a range must be (low, high)"),
    "gravity": (_never, ""),
}
"""Field name to its check and what the check demands; shapes are MuJoCo's, `gravity` is (3,) m/s^2."""


def check_model_values(name: str, values: torch.Tensor, field: FieldLayout) -> tuple[int, str] | None:
    """Returns the first row whose values are not physical and what they violate, or None.

    Args:
        name: A key of `MODEL_FIELDS`.
        values: (k, *shape) float32, finite.
        field: The field's shape and nominal values.
    """
    check, demand = MODEL_FIELDS[name]
    if check is _never:
        return None
    wrong = check(values, field._nominal_tensor.to(values.device))
    if not wrong.any().item():
        return None
    return int(_any(wrong).nonzero()[0]), demand


def engine_values(
    name: str, values: torch.Tensor, nominal: torch.Tensor, rounded: torch.Tensor | None = None
) -> torch.Tensor:
    """Returns float64 values to write: the stored nominal wherever float32 cannot tell the value from it.

    So an identity range is exact to the bit of the engine's precision. Orientations are brought to unit length, as the
    compiler of a model does: the engine would take a longer quaternion for a larger inertia.

    Args:
        name: A key of `MODEL_FIELDS`.
        values: (k, ...) float32, physical.
        nominal: (...) float64.
        rounded: The same in float32, where it is known.
    """
    if rounded is None:
        rounded = nominal.float()
    written = torch.where(values == rounded, nominal, values.double())
    if name != "body_iquat":
        return written
    w, x, y, z = written.unbind(dim=-1)
    norm = torch.sqrt(w * w + x * x + y * y + z * z).unsqueeze(-1)
    return torch.where((norm - 1.0).abs() > UNIT_EPSILON, written / norm, written)
