"""YAML 1.2, core schema: what a plain scalar means, and the way back."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from unisim import ConfigError, yaml12


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1e3", 1000.0),
        ("5E+6", 5e6),
        ("1.", 1.0),
        (".5", 0.5),
        (".5e1", 5.0),
        ("-.inf", -math.inf),
        ("012", 12),
        ("+7", 7),
        ("0o14", 12),
        ("0x1F", 31),
        ("on", "on"),
        ("off", "off"),
        ("yes", "yes"),
        ("n", "n"),
        ("3:30", "3:30"),
        ("2001-01-01", "2001-01-01"),
        ("2001-99-99", "2001-99-99"),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("<<", "<<"),
        ("=", "="),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'12'", "12"),
        ("[0, 1.5, on]", [0, 1.5, "on"]),
        ("{a: 1e-3}", {"a": 0.001}),
    ],
)
def test_a_scalar_means_what_the_core_schema_says(text, value):
    found = yaml12.load(text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "text", ["'open", "a: b: c", "[1, 2", "*nobody", "!!python/name:os.system", "--- 1\n--- 2", "a: 1\na: 2"]
)
def test_what_is_no_yaml_is_a_config_error_that_names_its_source(text):
    with pytest.raises(ConfigError, match=r"^run.yaml: not valid YAML 1.2: "):
        yaml12.load(text, source="run.yaml")


def test_a_mapping_keeps_its_order():
    assert list(yaml12.load(yaml12.dump({"z": 1, "a": 2, "m": 3}))) == ["z", "a", "m"]


def test_a_string_that_looks_like_another_kind_stays_a_string():
    strings = ["1e-3", "on", "012", "null", "true", "", "1.0", ".nan", "~", "0x1F", "- a", "a: b", "#no"]
    assert yaml12.load(yaml12.dump(strings)) == strings


LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), st.text()
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(DOCUMENTS)
def test_what_is_written_reads_back_equal(document):
    assert yaml12.load(yaml12.dump(document)) == document


def test_a_long_text_with_spaces_is_not_folded():
    text = "word " * 100
    assert yaml12.load(yaml12.dump({"summary": text})) == {"summary": text}
