"""The digest of a layout, by which a snapshot knows its model."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from unisim.model_layout import layout_digest
from unisim.testing import make_layout


def test_equal_layouts_share_it_whatever_the_order_of_their_fields():
    layout = make_layout()
    other = dataclasses.replace(make_layout(), fields=dict(reversed(layout.fields.items())))
    assert torch.equal(layout_digest(layout), layout_digest(other))
    assert (layout_digest(layout).dtype, layout_digest(layout).shape) == (torch.uint8, (32,))


@pytest.mark.parametrize(
    "change",
    [
        {"timestep": 0.02},
        {"sites": ("robot/tip",)},
        {"limits": {"robot/hinge": (-1.0, 1.0)}},
        {"sensors": {"imu": (3, "velocity")}},
        {"fields": {"body_mass": dataclasses.replace(make_layout().fields["body_mass"], nominal=(0.0, 1.5))}},
    ],
)
def test_whatever_differs_changes_it(change):
    assert not torch.equal(layout_digest(make_layout()), layout_digest(make_layout(**change)))
