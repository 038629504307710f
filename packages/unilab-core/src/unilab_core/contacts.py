"""Handles on contact sensors: what touched, how hard and where, in the last integrated substep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

import torch

from unilab_core.errors import nearest
from unilab_core.kept_reads import KeptReads
from unisim.model_layout import ContactLayout

__all__ = ["ContactHandle", "FoundContacts"]


class ContactHandle:
    """What a contact sensor reports of its S slots, one contact each; slots without a contact hold zeros.

    Numbers per slot are (N, S), vectors (N, S, 3), also where S is one. Everything describes the row's last integrated
    substep. Making the handle reads nothing, reading a field does; what is returned is a view that the next step
    rewrites. Which fields there are is what the sensor was configured to report (`ContactSensorCfg.data`); any other is
    a KeyError that lists them. While a reset is staged every field is a RuntimeError.

    Attributes:
        name: The sensor's name in the composed model.
        layout: Which fields it reports, how many slots it has and how they are chosen.
    """

    def __init__(self, name: str, layout: ContactLayout, values: Callable[[], torch.Tensor]) -> None:
        """Remembers where the values come from: `values()` returns them, (N, S * width)."""
        self.name = name
        self.layout = layout
        self._values = values

    def check(self, name: str) -> slice:
        """Returns which columns of a slot are a field.

        Raises:
            KeyError: The sensor does not report it; the message lists what it does report.
        """
        columns = self.layout.columns.get(name)
        if columns is None:
            raise KeyError(
                f"contact sensor {self.name!r} does not report {name!r}; {nearest(name, self.layout.data)} "
                "(add it to the sensor's data)"
            )
        return columns

    def _field(self, name: str) -> torch.Tensor:
        columns, values = self.check(name), self._values()
        fields = values.view(values.shape[0], self.layout.num, self.layout.width)[..., columns]
        return fields[..., 0] if fields.shape[-1] == 1 else fields

    @property
    def found(self) -> torch.Tensor:
        """(N, S) how many contacts match, as float, the same number in every slot; above 0 there is contact."""
        return self._field("found")

    @property
    def force(self) -> torch.Tensor:
        """(N, S, 3) N, exerted by the watched element on the other.

        Along normal, tangent and their product; of a `"netforce"` sensor along the axes of the world.
        """
        return self._field("force")

    @property
    def torque(self) -> torch.Tensor:
        """(N, S, 3) N m, exerted by the watched element on the other; axes as those of `force`."""
        return self._field("torque")

    @property
    def dist(self) -> torch.Tensor:
        """(N, S) m, negative where the two penetrate."""
        return self._field("dist")

    @property
    def pos(self) -> torch.Tensor:
        """(N, S, 3) position of the contact in the world, m."""
        return self._field("pos")

    @property
    def normal(self) -> torch.Tensor:
        """(N, S, 3) unit normal in the world, from the watched element to the other."""
        return self._field("normal")

    @property
    def tangent(self) -> torch.Tensor:
        """(N, S, 3) first unit tangent in the world."""
        return self._field("tangent")


class FoundContacts:
    """What F contact sensors have found, side by side; making it reads nothing, reading a field does.

    What a field returned is rewritten with later values, at the latest when it is read again: clone what a later step
    needs.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("_handles", "_names", "_kept")
    """Where to look, and views of it: it has no state of its own."""

    def __init__(self, handles: Sequence[ContactHandle], kept: KeptReads) -> None:
        """Remembers where the values come from.

        Args:
            handles: The sensors, each of which reports `found`.
            kept: Keeps what is derived from columns until they change.

        Raises:
            KeyError: A sensor does not report `found`; the message lists what it does report.
        """
        for handle in handles:
            handle.check("found")
        self._handles = tuple(handles)
        self._names = tuple(handle.name for handle in handles)
        self._kept = kept

    @property
    def counts(self) -> torch.Tensor:
        """(N, F) float32: how many contacts match; to be read only."""
        # Every slot says the same: the first one's will do.
        return self._kept.side_by_side(("found", self._names), self._columns, 0, "columns")

    def derived(self, name: str, compute: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
        """Returns what `compute` makes of the counts, once for all who ask by that name; to be read only."""
        return self._kept.get((name, self._names), lambda: compute(self.counts))

    def _columns(self) -> list[torch.Tensor]:
        return [handle.found for handle in self._handles]
