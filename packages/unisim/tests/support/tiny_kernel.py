"""One kernel, in a module that Warp can read; run in a process of its own by the tests of the kernel cache."""

from __future__ import annotations

from typing import Any

import warp as wp


@wp.kernel
def double(values: wp.array(dtype=float)):  # type: ignore[valid-type]  # Warp's way to say the type
    """Doubles every value."""
    i = wp.tid()
    values[i] = values[i] * 2.0


def doubled() -> Any:
    """Returns [2, 2], computed by the kernel on the CPU."""
    values = wp.ones(2, dtype=float, device="cpu")
    wp.launch(double, dim=2, inputs=[values], device="cpu")
    return values.list()
