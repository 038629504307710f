"""The training state, version 1: a closed format, checked before anything changes."""

from __future__ import annotations

import pytest
from core_support import ScriptedEnv, steps

from unilab_core.training_state import export_training_state, parse_training_state


def test_what_is_exported_is_plain_data():
    assert export_training_state(7) == {"version": 1, "step_counter": 7}


def test_what_is_exported_is_parsed():
    assert parse_training_state(export_training_state(7)) == 7


WRONG = [
    ({}, r"missing keys \['step_counter', 'version'\], unknown keys \[\]"),
    ({"version": 1}, r"missing keys \['step_counter'\]"),
    ({"version": 1, "step_counter": 1, "extra": 2}, r"unknown keys \['extra'\]"),
    ({"version": 2, "step_counter": 1}, "version is 2, expected 1"),
    ({"version": True, "step_counter": 1}, "version is True, expected 1"),
    ({"version": "1", "step_counter": 1}, "version is '1', expected 1"),
    ({"version": 1, "step_counter": True}, "step_counter is True, expected an int >= 0"),
    ({"version": 1, "step_counter": -1}, "step_counter is -1, expected an int >= 0"),
    ({"version": 1, "step_counter": 1.0}, "step_counter is 1.0, expected an int >= 0"),
    ({"version": 1, "step_counter": None}, "step_counter is None, expected an int >= 0"),
]


@pytest.mark.parametrize(("payload", "message"), WRONG)
def test_another_payload_is_refused(payload, message):
    with pytest.raises(ValueError, match=f"^training state: .*{message}"):
        parse_training_state(payload)


@pytest.mark.parametrize(("payload", "message"), WRONG)
def test_a_payload_that_is_refused_changes_nothing(payload, message):
    with ScriptedEnv() as env:
        env.reset()
        steps(env, 2)
        with pytest.raises(ValueError, match=message):
            env.import_training_state(payload)
        assert env.step_counter == 2


def test_an_environment_continues_the_step_counter():
    with ScriptedEnv() as env:
        env.import_training_state({"version": 1, "step_counter": 120})
        env.reset()
        steps(env, 3)
        assert env.export_training_state() == {"version": 1, "step_counter": 123}
