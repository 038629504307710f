"""The page of the term library as text: units out of docstrings, cells, and sections."""

from __future__ import annotations

import pytest

from _term_page import SECTIONS, Row, page_text, unit_in


@pytest.mark.parametrize(
    ("sentence", "unit"),
    [
        ("Returns joint velocities, (N, J) m/s or rad/s.", "m/s or rad/s"),
        ("How hard: the sum of tau^2, (N,) N^2 or N^2 m^2.", "N^2 or N^2 m^2"),
        ("Returns -log(x), (N,) kg m^2/s, and so on", "kg m^2/s"),
        ("Returns the velocity's worth, (N,) in (0, 1]; `std` in m/s.", ""),
        ("Returns the direction, (N, 3), of length 1 m.", ""),
        ("Returns the share, (N,) mean.", ""),  # no unit, though it begins like one
        ("Sets targets of position actuators, m or rad.", "m or rad"),
        ("Randomises masses, kg, and leaves inertia.", "kg"),
        ("Adds to gravity, whatever it is.", ""),
        ("Pushes, for mode step.", ""),
    ],
)
def test_a_unit_stands_behind_the_shape_or_where_there_is_none_behind_a_comma(sentence, unit):
    assert unit_in(sentence) == unit


def test_a_term_is_one_line_of_the_table_of_its_kind():
    row = Row(
        *("push", "event", "push(by: float | None = None)", "Adds |v| to `a|b`, *twice* in (0, 1]."),
        reads=("qpos", "encoder bias"),
        writes=("`body_mass`",),
        unit="kg",
    )
    text = page_text([row])
    line = (
        r"| `push(by: float \| None = None)` | qpos, encoder bias | `body_mass` "
        r"| Adds \|v\| to `a\|b`, \*twice\* in (0, 1\]. |"
    )
    head = "## Events\n\nEach does something to rows, in the mode that its config says: see [Events](events.md).\n\n"
    assert f"{head}| term | reads | writes | what it does |\n| --- | --- | --- | --- |\n{line}\n" in text
    assert [part for part in text.splitlines() if part.startswith("## ")] == [
        f"## {section.title}" for section in SECTIONS.values()
    ]


def test_a_kind_without_a_section_is_an_error():
    with pytest.raises(ValueError, match="push: no section is for kind 'shove'"):
        page_text([Row("push", "shove", "push()", "Pushes.")])
