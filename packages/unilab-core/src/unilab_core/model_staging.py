"""Model fields while a reset or the startup is staged: randomised from a baseline, kept where nothing is written."""

from __future__ import annotations

from typing import NamedTuple

import torch

from unilab_core.errors import nearest
from unisim.model_layout import ModelLayout
from unisim.randomization import MODEL_FIELDS

__all__ = ["FieldPart", "ModelStaging"]

Elements = slice | torch.Tensor


class FieldPart(NamedTuple):
    """What of a model field is meant: which elements, and which column of each; None means all columns."""

    elements: Elements
    column: int | None = None

    @classmethod
    def of(cls, own: Elements, chosen: Elements, column: int | None) -> FieldPart:
        """Returns the elements `chosen` among `own`, counted from the first of these.

        Raises:
            IndexError: There is no such element.
        """
        if isinstance(chosen, slice) and chosen == slice(None):
            return cls(own, column)
        if isinstance(own, torch.Tensor):
            return cls(own[chosen], column)
        if isinstance(chosen, slice):
            rest = range(own.start, own.stop)[chosen]
            return cls(slice(rest.start, rest.stop), column)
        return cls(torch.arange(own.start, own.stop, device=chosen.device)[chosen], column)


class ModelStaging:
    """The declared model fields of all rows, (N, ...) float32 each.

    Attributes:
        baseline: What randomisation starts from: the model's own values, or those of startup events.
        current: What the rows hold since their last commit.
    """

    def __init__(
        self, layout: ModelLayout, num_envs: int, device: torch.device, fields: tuple[str, ...]
    ) -> None:
        """Allocates the buffers; every row holds the model's own values."""
        self.baseline: dict[str, torch.Tensor] = {}
        for name in fields:
            nominal = layout.fields[name].nominal_tensor().to(device)
            self.baseline[name] = nominal.expand(num_envs, *nominal.shape).clone()
        self.current = {name: values.clone() for name, values in self.baseline.items()}
        self._staged = {name: values.clone() for name, values in self.baseline.items()}
        self._is_staged = {n: torch.zeros_like(v, dtype=torch.bool) for n, v in self.baseline.items()}
        self._touched: list[str] = []

    @property
    def touched(self) -> tuple[str, ...]:
        """The fields that the current phase, or else the last one, has written."""
        return tuple(self._touched)

    def begin(self) -> None:
        """Starts a phase in which nothing is written yet."""
        for name in self._touched:
            self._is_staged[name].zero_()
        self._touched.clear()

    def check_field(self, field: str, part: FieldPart, owner: str) -> None:
        """Checks that a part of a field may be read and written.

        Raises:
            KeyError: No such field can differ per row; the message lists the nearest.
            RuntimeError: It was not declared.
            ValueError: It has no such column.
        """
        if field not in MODEL_FIELDS:
            raise KeyError(f"{owner}: unknown model field {field!r}; {nearest(field, MODEL_FIELDS)}")
        if field not in self.baseline:
            raise RuntimeError(
                f"{owner}: model field {field!r} was not declared before the backend was made; "
                f"put @writes({field!r}) on the term"
            )
        shape = self.baseline[field].shape[1:]
        if part.column is not None and (len(shape) < 2 or not 0 <= part.column < shape[1]):
            raise ValueError(f"{owner}: {field} has no column {part.column}; a row of it is {tuple(shape)}")

    def values(self, field: str, env_ids: torch.Tensor, part: FieldPart, *, staging: bool) -> torch.Tensor:
        """Returns (K, E, ...) fresh: what this phase staged, else the baseline; outside of a phase, `current`."""
        if not staging:
            return _take(self.current[field], env_ids, part)
        if field not in self._touched:
            return _take(self.baseline[field], env_ids, part)
        baseline, staged = (_take(of[field], env_ids, part) for of in (self.baseline, self._staged))
        return torch.where(_take(self._is_staged[field], env_ids, part), staged, baseline)

    def write(self, field: str, values: object, env_ids: torch.Tensor, part: FieldPart, owner: str) -> None:
        """Stages (K, E, ...) values.

        Raises:
            TypeError: Not a float32 tensor.
            ValueError: Another shape.
        """
        expected = (env_ids.numel(), *_shape(self._staged[field], part))
        if not isinstance(values, torch.Tensor) or values.dtype != torch.float32:
            got = values.dtype if isinstance(values, torch.Tensor) else type(values).__name__
            raise TypeError(f"{owner}: {field} is {got}, expected a float32 tensor")
        if tuple(values.shape) != expected:
            raise ValueError(f"{owner}: {field} has shape {tuple(values.shape)}, expected {expected}")
        if field not in self._touched:
            self._touched.append(field)
        staged, is_staged = (_column(of[field], part) for of in (self._staged, self._is_staged))
        if isinstance(part.elements, torch.Tensor):
            rows = env_ids[:, None], part.elements
            staged[rows] = values
            is_staged[rows] = True
        else:
            staged[:, part.elements].index_copy_(0, env_ids, values)
            is_staged[:, part.elements].index_fill_(0, env_ids, True)

    def payload(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Returns (K, ...) of each field that was written; elements that were not keep what the row holds."""
        rows: dict[str, torch.Tensor] = {}
        for name in self._touched:
            of = (self._is_staged[name], self._staged[name], self.current[name])
            is_staged, staged, current = (values.index_select(0, ids) for values in of)
            rows[name] = torch.where(is_staged, staged, current)
        return rows

    def committed(
        self, ids: torch.Tensor, model: dict[str, torch.Tensor], *, as_baseline: bool = False
    ) -> None:
        """Takes over what was committed; of the startup also as the baseline of all later randomisation."""
        for name, values in model.items():
            self.current[name].index_copy_(0, ids, values)
            if as_baseline:
                self.baseline[name].index_copy_(0, ids, values)


def _column(values: torch.Tensor, part: FieldPart) -> torch.Tensor:
    """Returns the column that is meant of all elements, a view; all columns where none is named."""
    return values if part.column is None else values[..., part.column]


def _shape(values: torch.Tensor, part: FieldPart) -> tuple[int, ...]:
    """Returns the shape of the part that is meant, of one row; gathers nothing."""
    _, elements, *columns = values.shape
    meant = part.elements
    count = meant.numel() if isinstance(meant, torch.Tensor) else len(range(elements)[meant])
    return (count, *(columns if part.column is None else columns[1:]))


def _take(values: torch.Tensor, env_ids: torch.Tensor, part: FieldPart) -> torch.Tensor:
    return _column(values, part).index_select(0, env_ids)[:, part.elements]
