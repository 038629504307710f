"""How far two environments are apart, column by column, over the steps of a comparison."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import torch

__all__ = ["Column", "ColumnDifference", "Moment", "Place", "Tally", "Tolerance"]

Kind = Literal["observation", "reward", "done"]


@dataclass(frozen=True)
class Tolerance:
    """What counts as equal: |second - first| <= atol + rtol |first|."""

    atol: float
    rtol: float


@dataclass(frozen=True)
class Column:
    """A number that both environments give for every row in every step."""

    kind: Kind
    name: str
    unit: str = ""


@dataclass(frozen=True)
class Moment:
    """When values were compared.

    Attributes:
        step: 0 is the reset at the beginning, 1 the first transition.
        after_reset: Whether they are the observations after a reset, not those of the transition.
    """

    step: int
    after_reset: bool = False


@dataclass(frozen=True)
class Place:
    """Where two values were compared, and what they were."""

    step: int
    after_reset: bool
    row: int
    first: float
    second: float


@dataclass(frozen=True)
class ColumnDifference:
    """How far a column is apart.

    Attributes:
        kind: Of the column.
        name: Of the column.
        unit: Of the column, before an observation is scaled.
        compared: How many pairs of values were compared.
        beyond: How many of them are further apart than the tolerance.
        max_abs: The largest |second - first|.
        mean_abs: The mean of it.
        tolerances: The largest |second - first| / (atol + rtol |first|); `inf` where the tolerance is 0.
        max_at: Where `max_abs` was found, the earliest such place.
        first_beyond: The first place beyond the tolerance; None if there is none.
    """

    kind: Kind
    name: str
    unit: str
    compared: int
    beyond: int
    max_abs: float
    mean_abs: float
    tolerances: float
    max_at: Place
    first_beyond: Place | None

    def to_data(self) -> dict[str, Any]:
        """Returns plain data for JSON, which has no infinity: `tolerances` is then None."""
        data = asdict(self)
        return data | {"tolerances": self.tolerances if math.isfinite(self.tolerances) else None}


class Tally:
    """Adds up differences; reads the device once per call of `add`."""

    def __init__(self, columns: Sequence[Column], tolerance: Tolerance) -> None:
        """Starts with nothing compared."""
        count = len(columns)
        self._columns = tuple(columns)
        self._tolerance = tolerance
        self._compared = torch.zeros(count, dtype=torch.int64)
        self._beyond = torch.zeros(count, dtype=torch.int64)
        self._sum = torch.zeros(count, dtype=torch.float64)
        self._tolerances = torch.zeros(count, dtype=torch.float64)
        self._max = torch.full((count,), -1.0, dtype=torch.float64)
        self._max_at: list[Place | None] = [None] * count
        self._first_beyond: list[Place | None] = [None] * count

    def add(self, first: torch.Tensor, second: torch.Tensor, rows: torch.Tensor, moment: Moment) -> None:
        """Compares values of the first C columns.

        Args:
            first: (K, C) finite values of the one environment.
            second: (K, C) of the other.
            rows: (K,) int64: whose they are.
            moment: When.
        """
        if not rows.numel():
            return
        here, there = (values.to("cpu", torch.float64) for values in (first, second))
        used = slice(here.shape[1])
        apart = (there - here).abs()
        allowed = self._tolerance.atol + self._tolerance.rtol * here.abs()
        beyond = apart > allowed
        ratio = torch.where(apart > 0.0, apart / allowed, 0.0)
        self._compared[used] += here.shape[0]
        self._beyond[used] += beyond.sum(dim=0)
        self._sum[used] += apart.sum(dim=0)
        self._tolerances[used] = torch.maximum(self._tolerances[used], ratio.amax(dim=0))
        largest, where = apart.max(dim=0)

        def place(row: int, column: int) -> Place:
            values = (float(side[row, column]) for side in (here, there))
            return Place(moment.step, moment.after_reset, int(rows[row]), *values)

        for column in (largest > self._max[used]).nonzero().flatten().tolist():
            self._max[column] = largest[column]
            self._max_at[column] = place(int(where[column]), column)
        for column in beyond.any(dim=0).nonzero().flatten().tolist():
            if self._first_beyond[column] is None:
                self._first_beyond[column] = place(int(beyond[:, column].int().argmax()), column)

    def differences(self) -> tuple[ColumnDifference, ...]:
        """Returns the columns that were compared, the worst (in tolerances) first, equal ones in their order."""
        found = [self._difference(i) for i in range(len(self._columns)) if self._compared[i]]
        return tuple(sorted(found, key=lambda difference: -difference.tolerances))

    def _difference(self, index: int) -> ColumnDifference:
        column, compared, max_at = self._columns[index], int(self._compared[index]), self._max_at[index]
        assert max_at is not None
        return ColumnDifference(
            kind=column.kind,
            name=column.name,
            unit=column.unit,
            compared=compared,
            beyond=int(self._beyond[index]),
            max_abs=float(self._max[index]),
            mean_abs=float(self._sum[index]) / compared,
            tolerances=float(self._tolerances[index]),
            max_at=max_at,
            first_beyond=self._first_beyond[index],
        )
