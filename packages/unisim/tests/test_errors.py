"""The error vocabulary and the hints that messages end with."""

from __future__ import annotations

import pytest

from unisim import CapabilityError, ConfigError, NonFiniteError, ResetRejectedError, nearest


@pytest.mark.parametrize(
    ("error", "base"),
    [
        (CapabilityError, NotImplementedError),
        (ConfigError, ValueError),
        (ResetRejectedError, ValueError),
        (NonFiniteError, ValueError),
    ],
)
def test_each_error_can_be_caught_by_its_python_meaning(error, base):
    assert issubclass(error, base)


def test_a_close_name_is_suggested():
    assert nearest("trackng", ["tracking", "alive"]) == "did you mean 'tracking'?"


def test_several_close_names_are_all_suggested():
    assert nearest("hip", ["hip1", "hip2", "elbow"]) == "did you mean 'hip1' or 'hip2'?"


def test_the_closest_name_comes_first():
    assert nearest("robot/imo", ["robot/foot", "robot/imu"]) == "did you mean 'robot/imu' or 'robot/foot'?"


def test_case_does_not_hide_a_close_name():
    assert nearest("CARTPOLE", ["Cartpole"]) == "did you mean 'Cartpole'?"


def test_without_a_close_name_the_valid_ones_are_listed_in_order():
    assert nearest("zzz", ["beta", "alpha"]) == "valid names: 'alpha', 'beta'"


def test_a_long_list_of_names_is_cut_after_twelve():
    hint = nearest("zzz", [f"name{i:02d}" for i in range(13)])
    assert hint.endswith("'name11', ...")


def test_no_valid_names_at_all_is_said():
    assert nearest("anything", []) == "there are none"
