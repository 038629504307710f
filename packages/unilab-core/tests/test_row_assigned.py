"""Objects of classes that say which of their attributes are assigned: what is looked at, and what is put back."""

from __future__ import annotations

import pytest
import torch
from object_graphs import ROW, Box, N, registry_of


class Sealed:
    """A class that says so."""

    row_assigned = ("count", "rows")

    def __init__(self) -> None:
        self.count = 0
        self.rows = torch.zeros(N)
        self.fixed = torch.zeros(N)
        self.log: dict[str, int] = {}


class Single:
    """One attribute only."""

    row_assigned = ("count",)

    def __init__(self) -> None:
        self.count = 0
        self.other = 0


class Constant:
    """Nothing is assigned, but what it holds may change."""

    row_assigned = ()

    def __init__(self) -> None:
        self.fixed = torch.zeros(N)
        self.log: list[int] = []


class SlottedConstant:
    """Nothing is assigned, and nothing can be added."""

    __slots__ = ("fixed",)
    row_assigned = ()

    def __init__(self) -> None:
        self.fixed = torch.zeros(N)


class Heir(Constant):
    """Says nothing of itself."""


class Unset:
    """Says that it assigns what it does not have at first."""

    row_assigned = ("late",)

    def __init__(self) -> None:
        self.other = 1


@pytest.mark.parametrize("times", [0, 2])
def test_what_is_assigned_is_put_back_and_what_the_others_hold_too(times):
    root, sealed = Box(), Sealed()
    root.a, root.b = sealed, [Constant(), SlottedConstant()]
    constant, slotted = root.b
    registry = registry_of(root)
    for _ in range(times):  # also after a look that found other values in place of those that were walked
        registry.save(ROW)
        sealed.count += 1
        sealed.rows = torch.full((N,), float(sealed.count))
    saved, rows = registry.save(ROW), sealed.rows
    sealed.count, sealed.rows = 9, torch.ones(N)
    rows += 5.0
    sealed.fixed += 1.0
    sealed.log["a"] = 1
    constant.fixed += 1.0
    constant.log.append(1)
    slotted.fixed += 1.0
    registry.restore(saved)
    assert sealed.count == times
    assert sealed.rows is rows
    assert rows.tolist() == [float(times)] * N
    assert sealed.fixed.tolist() == constant.fixed.tolist() == slotted.fixed.tolist() == [0.0] * N
    assert sealed.log == {}
    assert constant.log == []


def test_an_object_with_one_such_attribute_is_put_back():
    root = Box()
    root.a = Single()
    registry = registry_of(root)
    registry.save(ROW)
    root.a.count = 1
    saved = registry.save(ROW)
    root.a.count = 2
    registry.restore(saved)
    assert root.a.count == 1


@pytest.mark.parametrize("make", [Sealed, Constant])
def test_an_attribute_that_its_class_knows_nothing_of_is_noticed(make):
    root = Box()
    root.a = make()
    registry = registry_of(root)
    saved = registry.save(ROW)
    root.a.born = torch.zeros(N)
    registry.restore(saved)
    assert not hasattr(root.a, "born")
    root.a.born = torch.zeros(N)
    saved = registry.save(ROW)
    root.a.born += 1.0
    registry.restore(saved)
    assert root.a.born.tolist() == [0.0] * N


def test_an_attribute_that_went_comes_back():
    root = Box()
    root.a = Sealed()
    registry = registry_of(root)
    saved = registry.save(ROW)
    del root.a.count
    registry.restore(saved)
    assert root.a.count == 0
    del root.a.count
    saved = registry.save(ROW)
    root.a.count = 4
    registry.restore(saved)
    assert not hasattr(root.a, "count")


def test_a_subclass_that_says_nothing_is_looked_at_as_any_other():
    root = Box()
    root.a = Heir()
    registry = registry_of(root)
    saved, fixed = registry.save(ROW), root.a.fixed
    root.a.fixed = torch.ones(N)
    registry.restore(saved)
    assert root.a.fixed is fixed


def test_an_object_that_got_another_class_is_looked_at_anew():
    root = Box()
    root.a = Constant()
    registry = registry_of(root)
    registry.save(ROW)
    root.a.__class__ = Heir
    saved, fixed = registry.save(ROW), root.a.fixed
    root.a.fixed = torch.ones(N)
    registry.restore(saved)
    assert root.a.fixed is fixed


def test_a_class_that_lacks_what_it_says_it_assigns_is_looked_at_as_any_other():
    root = Box()
    root.a = Unset()
    registry = registry_of(root)
    saved = registry.save(ROW)
    root.a.late = 1
    root.a.other = 2
    registry.restore(saved)
    assert vars(root.a) == {"other": 1}


class Spelt:
    """Names that no source has: equal to those of the attributes, and other objects."""

    row_assigned = ("".join(("ro", "ws")), "".join(("co", "unt")))

    def __init__(self) -> None:
        self.rows = torch.zeros(N)
        self.count = 0


def test_a_name_is_what_it_says_whichever_object_it_is():
    root = Box()
    root.a = Spelt()
    registry = registry_of(root)
    registry.save(ROW)
    rows = root.a.rows = torch.zeros(N)
    saved = registry.save(ROW)
    rows += 1.0
    registry.restore(saved)
    assert root.a.rows is rows
    assert not rows.any()
