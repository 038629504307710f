"""A mirror is a permutation and signs that undo themselves, and fits what it mirrors."""

import pytest

from unilab_core import ConfigError
from unilab_rl import Mirror, Reflection


def test_columns_that_change_places_and_signs_are_accepted():
    reflection = Reflection((1, 0, 2, 3), (-1.0, -1.0, 1.0, -1.0))
    assert reflection.width == 4


@pytest.mark.parametrize(
    ("permutation", "signs", "message"),
    [
        ((0, 1), (1.0,), "2 columns in permutation and 1 signs"),
        ((0, 0), (1.0, 1.0), r"permutation is \(0, 0\), expected each of 0 to 1 once"),
        ((0, 2), (1.0, 1.0), r"permutation is \(0, 2\), expected each of 0 to 1 once"),
        ((0, 1), (1.0, 0.5), r"the sign of column 1 is 0.5, expected 1 or -1"),
        ((1, 2, 0), (1.0, 1.0, 1.0), r"column 0 comes from \+1 x column 1, and column 1 from \+1 x column 2"),
        ((1, 0), (1.0, -1.0), r"column 1 from -1 x column 0; expected \+1 x column 0"),
    ],
)
def test_what_does_not_undo_itself_is_refused(permutation, signs, message):
    with pytest.raises(ConfigError, match=message):
        Reflection(permutation, signs)


def image(label):
    swapped = label.replace("left", "*").replace("right", "left").replace("*", "right")
    return swapped, -1.0 if label.endswith("roll") else 1.0


def test_a_reflection_is_built_from_labels():
    labels = ("left_roll", "height", "right_pitch", "right_roll", "left_pitch")
    assert Reflection.of_labels(labels, image) == Reflection((3, 1, 4, 0, 2), (-1.0, 1.0, 1.0, -1.0, 1.0))


def test_an_image_that_is_no_label_is_named_with_the_nearest():
    with pytest.raises(
        ConfigError, match="image of 'left_roll' is 'right_roll', which is no label; did you mean 'right_rol'"
    ):
        Reflection.of_labels(("left_roll", "right_rol"), image)


def test_a_label_that_occurs_twice_is_named():
    with pytest.raises(ConfigError, match="the label 'height' occurs twice"):
        Reflection.of_labels(("height", "height"), image)


def same(width):
    return Reflection(tuple(range(width)), (1.0,) * width)


@pytest.mark.parametrize(
    ("observations", "actions", "message"),
    [
        ({"obs": 2}, 2, r"the observation group 'critic' is missing, got \['obs'\]"),
        ({"obs": 2, "critc": 3}, 2, "no observation group 'critc'; did you mean 'critic'"),
        ({"obs": 3, "critic": 3}, 2, "group 'obs' has 3 columns in the mirror, expected 2"),
        ({"obs": 2, "critic": 3}, 1, "actions have 1 columns in the mirror, expected 2"),
    ],
)
def test_a_mirror_of_another_environment_is_refused_with_names(observations, actions, message):
    mirror = Mirror({name: same(width) for name, width in observations.items()}, same(actions))
    with pytest.raises(ConfigError, match=message):
        mirror.check_fits({"obs": 2, "critic": 3}, 2)


def test_a_mirror_that_fits_is_accepted():
    Mirror({"obs": same(2), "critic": same(3)}, same(2)).check_fits({"obs": 2, "critic": 3}, 2)
