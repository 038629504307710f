"""Algorithms are found by name."""

import pytest
from rl_support import COUNTING, CountingAlgorithm

from unilab_core import ConfigError
from unilab_rl import PPO_ALGORITHM, get_algorithm, list_algorithms, register_algorithm


def test_an_algorithm_is_found_whatever_the_case_of_its_name():
    assert get_algorithm("PPO") is PPO_ALGORITHM
    assert get_algorithm("counting") is COUNTING
    assert {"ppo", "counting"} <= set(list_algorithms())


def test_an_unknown_name_is_an_error_with_the_nearest():
    with pytest.raises(ConfigError, match="unknown algorithm 'po'; did you mean 'ppo'"):
        get_algorithm("po")


def test_a_name_belongs_to_one_algorithm():
    register_algorithm(COUNTING)
    with pytest.raises(ValueError, match="algorithm 'counting' is registered already"):
        register_algorithm(CountingAlgorithm())
