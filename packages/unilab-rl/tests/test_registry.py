"""Algorithms are found by name."""

from importlib.metadata import EntryPoint, EntryPoints

import pytest
from rl_support import COUNTING, CountingAlgorithm

from unilab_core import ConfigError
from unilab_rl import PPO_ALGORITHM, get_algorithm, list_algorithms, register_algorithm, registry


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


def test_an_algorithm_whose_package_cannot_be_imported_is_named_with_the_cause(monkeypatch):
    absent = EntryPoint("absent", "no_such_package_here:ALGORITHM", "unilab.algorithms")
    monkeypatch.setattr(registry, "entry_points", lambda **select: EntryPoints([absent]).select(**select))
    assert "absent" in list_algorithms()
    with pytest.raises(ConfigError) as caught:
        get_algorithm("absent")
    assert str(caught.value) == (
        "algorithm 'absent': unilab.algorithms entry point 'absent' (no_such_package_here:ALGORITHM) cannot be loaded: "
        "ModuleNotFoundError: No module named 'no_such_package_here'"
    )


def test_an_algorithm_whose_package_leaves_is_named_with_the_cause_and_an_interrupt_is_not(monkeypatch):
    raised = SystemExit(3)

    def load(entry):
        raise raised

    monkeypatch.setattr(EntryPoint, "load", load)
    leaving = EntryPoint("leaving", "m:ALGORITHM", "unilab.algorithms")
    monkeypatch.setattr(registry, "entry_points", lambda **select: EntryPoints([leaving]).select(**select))
    with pytest.raises(ConfigError, match="'leaving' \\(m:ALGORITHM\\) cannot be loaded: SystemExit: 3$"):
        get_algorithm("leaving")
    raised = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        get_algorithm("leaving")
