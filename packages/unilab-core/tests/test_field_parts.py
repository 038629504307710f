"""Which part of a model field a choice of elements means, found once for the same choice."""

from __future__ import annotations

import pytest
import torch

from unilab_core.field_parts import FieldParts

OWN = {"geom": slice(3, 9), "body": torch.tensor([1, 4, 6])}


def parts() -> FieldParts:
    return FieldParts(OWN, "robot")


def test_elements_are_counted_from_the_first_of_the_entity():
    found = parts()
    assert found.find("geom_size", torch.tensor([0, 5]), None, "x").elements.tolist() == [3, 8]
    assert found.find("geom_size", slice(1, 3), None, "x").elements == slice(4, 6)
    assert found.find("body_mass", torch.tensor([2, 0]), None, "x").elements.tolist() == [6, 1]
    assert found.find("gravity", slice(None), None, "x").elements == slice(None)


def test_the_same_choice_is_looked_up_once_for_all_fields_of_its_kind():
    found, feet = parts(), torch.tensor([2, 3])
    first = found.find("geom_size", feet, None, "x")
    assert found.find("geom_friction", feet, None, "x") is first
    slide = found.find("geom_friction", feet, 0, "x")
    assert (slide.elements.tolist(), slide.column) == ([5, 6], 0)
    assert found.find("body_mass", feet[:1], None, "x").elements.tolist() == [6]


def test_a_choice_that_was_changed_in_place_is_looked_up_anew():
    found, feet = parts(), torch.tensor([2, 3])
    assert found.find("geom_size", feet, None, "x").elements.tolist() == [5, 6]
    feet[0] = 0
    assert found.find("geom_size", feet, None, "x").elements.tolist() == [3, 6]


def test_a_choice_that_cannot_tell_whether_it_was_changed_is_looked_up_every_time():
    found = parts()
    with torch.inference_mode():
        feet = torch.tensor([2, 3])
        assert found.find("geom_size", feet, None, "x").elements.tolist() == [5, 6]
        feet[0] = 0
        assert found.find("geom_size", feet, None, "x").elements.tolist() == [3, 6]


def test_choices_that_are_made_anew_for_every_call_do_not_pile_up():
    found = parts()
    kept = [torch.tensor([i % 6]) for i in range(300)]
    for choice in kept:
        assert found.find("geom_size", choice, None, "x").elements.tolist() == [3 + int(choice[0])]
    assert len(found._kept) <= 64


def test_an_element_that_the_entity_does_not_have_is_refused_every_time():
    found, wrong = parts(), torch.tensor([6])
    for _ in range(2):
        with pytest.raises(ValueError, match="x: element_ids leave what 'robot' has of 'geom_size'"):
            found.find("geom_size", wrong, None, "x")
