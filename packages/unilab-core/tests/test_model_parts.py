"""Parts of model fields: some elements of an entity, one column of each; the rest keeps what the row holds."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv

from unilab_core import ResetRejectedError, SceneEntityCfg
from unisim import Declared
from unisim.randomization import FieldLayout
from unisim.testing import FakeBackend, make_layout

ALL = torch.arange(3)
SIZES = tuple(float(i) for i in range(1, 16))
"""Geom i of five has sizes 3 i + 1, 3 i + 2, 3 i + 3."""


def geom_env():
    """A fake: `other` has geom 0, `robot` geoms a, b, c, d, which are 1 to 4 of the model."""
    layout = make_layout(
        joints=("other/slider", "robot/slider"),
        actuated=("robot/slider",),
        geoms=("other/box", *(f"robot/{name}" for name in "abcd")),
    )
    layout.fields["geom_size"] = FieldLayout((5, 3), SIZES)
    return ScriptedEnv(3, backend=FakeBackend(layout, 3, declared=Declared(model_fields=("geom_size",))))


def sizes_after(operation):
    """What rows hold after a reset that changes everything, and one of rows 0 and 2 in which `operation` does its."""
    with geom_env() as env:
        data = env.scene["robot"].data

        def first(ids):
            data.write_model("geom_size", data.model_values("geom_size", ids) + 100.0, ids)

        env.inject["_stage_reset"] = first
        env.reset()
        env.inject["_stage_reset"] = lambda ids: operation(env.scene["robot"], data, ids)
        env.reset(torch.tensor([0, 2]))
        return env.state_dict()["backend"]["field:geom_size"]


EXPECTED = torch.tensor(SIZES, dtype=torch.float64).reshape(5, 3).repeat(3, 1, 1)
EXPECTED[:, 1:] += 100.0


@pytest.mark.parametrize("names", [("a", "b"), ("b", "c"), ("a", "d"), ("d",), ("a", "b", "c", "d")])
@pytest.mark.parametrize("column", [None, 0, 2])
def test_what_is_not_written_keeps_what_the_row_holds(names, column):
    def operation(robot, data, ids):
        which = robot.element_ids(SceneEntityCfg(geom_names=names), "geom")
        values = data.model_values("geom_size", ids, which, column)
        assert values.shape == ((2, len(names), 3) if column is None else (2, len(names)))
        data.write_model("geom_size", values * 10.0, ids, which, column)
        # What was staged is what a later term starts from; of elements that were not, what is stored.
        again = data.model_values("geom_size", ids)
        stored = torch.tensor(SIZES).reshape(5, 3)[1:].repeat(2, 1, 1)
        own, columns = ["abcd".index(n) for n in names], range(3) if column is None else [column]
        for i in own:
            for c in columns:
                stored[:, i, c] *= 10.0
        assert torch.equal(again, stored)

    expected = EXPECTED.clone()
    for name in names:
        i = 1 + "abcd".index(name)
        part = slice(None) if column is None else column
        expected[0::2, i, part] = (expected[0::2, i, part] - 100.0) * 10.0
    assert torch.equal(sizes_after(operation), expected)


def test_elements_in_another_order_are_written_in_that_order():
    def operation(robot, data, ids):
        cfg = SceneEntityCfg(geom_names=("c", "a"), preserve_order=True)
        which = robot.element_ids(cfg, "geom")
        assert data.model_values("geom_size", ids, which, 0).tolist() == [[10.0, 4.0]] * 2
        data.write_model("geom_size", torch.tensor([[1.0, 2.0]] * 2), ids, which, 0)

    held = sizes_after(operation)
    assert held[0, :, 0].tolist() == [1.0, 2.0, 107.0, 1.0, 113.0]
    assert held[1, :, 0].tolist() == [1.0, 104.0, 107.0, 110.0, 113.0]


@pytest.mark.parametrize(
    ("which", "column", "message"),
    [
        (torch.tensor([4]), None, "element_ids leave what 'robot' has of 'geom_size'"),
        (torch.tensor([0]), 3, "geom_size has no column 3"),
        (torch.tensor([0]), -1, "geom_size has no column -1"),
    ],
)
def test_a_part_that_does_not_exist_is_refused(which, column, message):
    for write in (False, True):

        def operation(robot, data, ids, write=write):
            if write:
                data.write_model("geom_size", torch.ones(2, 1), ids, which, column)
            else:
                data.model_values("geom_size", ids, which, column)

        with pytest.raises(ResetRejectedError, match=message):
            sizes_after(operation)


def test_values_of_another_shape_than_the_part_are_refused():
    def operation(robot, data, ids):
        data.write_model("geom_size", torch.ones(2, 4, 3), ids, slice(0, 2))

    with pytest.raises(ResetRejectedError, match=r"has shape \(2, 4, 3\), expected \(2, 2, 3\)"):
        sizes_after(operation)


def test_names_are_looked_up_once():
    with geom_env() as env:
        robot, cfg = env.scene["robot"], SceneEntityCfg(geom_names=("a", "d"))
        first = robot.element_ids(cfg, "geom")
        assert robot.element_ids(SceneEntityCfg(geom_names=("a", "d")), "geom") is first
        assert robot.element_ids(cfg, "body") is not first
