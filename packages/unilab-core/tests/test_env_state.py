"""State out and in: what another process needs to go on, to the bit; and what it refuses."""

from __future__ import annotations

import copy

import pytest
import torch
from core_support import ScriptedEnv, assert_same, steps
from twins import HoardingEnv, assert_same_steps, assert_twins, differences
from velocity import VelocityEnv, mujoco_backend, run

from unilab_core import ResetRejectedError

STEPS = 100


def test_a_new_process_goes_on_where_the_state_was_taken_bit_for_bit(tmp_path, program):
    path = tmp_path / "state.pt"
    with VelocityEnv(mujoco_backend(), seed=3) as env:
        env.reset()
        generator = torch.Generator().manual_seed(0)
        run(env, 40, generator)
        torch.save({"env": env.state_dict(), "actions": generator.get_state()}, path)
        expected = run(env, STEPS, generator)
    code = f"""
import torch
from velocity import resumed
if __name__ == "__main__":
    torch.set_num_threads(1)
    torch.save(resumed({str(path)!r}, {STEPS}), {str(tmp_path / "out.pt")!r})
"""
    done = program(code)
    assert done.returncode == 0, done.stderr
    got = torch.load(tmp_path / "out.pt", weights_only=True)
    for one, two in zip(expected, got, strict=True):
        assert_same(one, two)


def test_saving_loading_and_saving_again_gives_the_same_content(tmp_path):
    with (
        HoardingEnv(3, terminate={4: [1]}, seed=3) as env,
        HoardingEnv(3, terminate={4: [1]}, seed=8) as other,
    ):
        for each in (env, other):
            each.reset()
        steps(env, 6)
        steps(other, 6)
        torch.save(env.state_dict(), tmp_path / "state.pt")
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert_twins(env, other)
        assert other.step_counter == 6
        assert_same_steps(env, other, 20)


def test_qa_084_counters_levels_and_plain_lists_are_restored(tmp_path):
    class Staged(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            self.stage, self.past, self.limits = 0, [], {"speed": 0.5}

        def _advance(self) -> None:
            if self.step_counter == 4:
                self.stage, self.past, self.limits["speed"] = 2, [1.0, 2.0, 3.0], 1.5

    with Staged() as env, Staged() as other:
        env.reset()
        steps(env, 5)
        torch.save(env.state_dict(), tmp_path / "state.pt")
        past = other.past
        other.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
        assert (other.step_counter, other.stage, other.past, other.limits) == (
            5,
            2,
            [1.0, 2.0, 3.0],
            {"speed": 1.5},
        )
        assert other.past is past
        assert differences(env.state_dict(), other.state_dict()) == []


def test_rows_that_wait_still_wait_after_loading():
    with ScriptedEnv(terminate={2: [1]}, autoreset=False) as env, ScriptedEnv(autoreset=False) as other:
        env.reset()
        steps(env, 2)
        other.reset()
        other.load_state_dict(env.state_dict())
        with pytest.raises(RuntimeError, match=r"rows \[1\] wait for a reset"):
            steps(other, 1)


def test_a_state_says_nothing_of_how_its_environment_was_made():
    with ScriptedEnv(autoreset=False) as env, ScriptedEnv() as other:
        env.reset()
        other.load_state_dict(env.state_dict())
        assert other.autoreset


def test_loading_forgets_the_outcome_of_the_step_before():
    with ScriptedEnv(terminate={1: [1]}) as env, ScriptedEnv() as other:
        env.reset()
        steps(env, 1)
        other.reset()
        env.load_state_dict(other.state_dict())
        assert env.state.final_observation is None
        assert set(env.state.info) == {"log", "timing"}


def test_a_state_shares_no_memory_with_its_environment():
    with ScriptedEnv() as env:
        env.reset()
        state = env.state_dict()
        kept = copy.deepcopy(state)
        steps(env, 5)
        assert differences(state, kept) == []


NOTHING = object()
"""None in the state, where None as such means that the path is missing."""


def wrong(state, path, value):
    part, _, key = path.partition("/")
    if value is NOTHING:
        return {**state, part: {**state[part], key: None}}
    if not key:
        return {**state, part: value} if value is not None else {k: v for k, v in state.items() if k != part}
    values = (
        {**state[part], key: value}
        if value is not None
        else {k: v for k, v in state[part].items() if k != key}
    )
    return {**state, part: values}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("version", 2, "got version 2; expected version 1"),
        ("version", None, r"got keys \['backend', 'values'\]"),
        ("extra", 1, "got keys .*'extra'"),
        ("values/step_counter", None, r"missing \['step_counter'\]"),
        ("values/unknown", 1, r"unknown \['unknown'\]; not of this task"),
        ("values/_reward", torch.zeros(4), r"_reward is torch.float32 \(4,\), expected torch.float32 \(3,\)"),
        ("values/_reward", torch.zeros(3, dtype=torch.float64), "_reward is torch.float64"),
        ("values/_reward", 1.0, "_reward is float, expected torch.float32"),
        ("values/step_counter", "three", "step_counter is 'three', expected a int"),
        ("values/step_counter", torch.zeros(()), "step_counter is a Tensor, expected a int"),
        ("values/_pending", {"a": 1}, "_pending is a dict, expected a set"),
        ("values/_unjudged", NOTHING, "_unjudged is None, expected a bool"),
        ("values/step_counter", NOTHING, "step_counter is None"),
        ("values/rng.generator", torch.zeros(3, dtype=torch.uint8), r"rng.generator is torch.uint8 \(3,\)"),
        ("backend/value:qpos", None, "'value:qpos' is missing"),
        (
            "backend/value:qpos",
            torch.zeros(4, 2, dtype=torch.float64),
            r"'value:qpos' is torch.float64 \(4, 2\)",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_and_nothing_has_changed(path, value, message):
    with ScriptedEnv(seed=1) as env, ScriptedEnv(seed=1) as twin, ScriptedEnv(seed=5) as source:
        for each in (env, twin, source):
            each.reset()
            steps(each, 2)
        steps(source, 3)
        with pytest.raises(ValueError, match=message):
            env.load_state_dict(wrong(source.state_dict(), path, value))
        assert_twins(env, twin)
        assert_same_steps(env, twin, 5)


@pytest.mark.parametrize("num_envs", [2, 4])
def test_a_state_of_another_number_of_rows_is_refused(num_envs):
    with ScriptedEnv(3) as env, ScriptedEnv(num_envs) as other:
        other.reset()
        with pytest.raises(ValueError, match="expected"):
            env.load_state_dict(other.state_dict())


def test_the_baseline_of_randomisation_is_part_of_the_state():
    with VelocityEnv(mujoco_backend(), seed=3) as env, VelocityEnv(mujoco_backend(), seed=4) as other:
        env.reset()
        other.reset()
        other.load_state_dict(env.state_dict())
        assert_twins(env, other)
        env.reset()
        other.reset()
        assert_twins(env, other)


class Bound:
    """A term as a manager binds it: told how it was made, and parameters that may change."""

    row_settings = ("name", "reset_call", "tags", "scale")
    row_records = ("params",)

    def __init__(self) -> None:
        self.name, self.reset_call, self.tags, self.scale = "push", None, ["a"], torch.ones(2)
        self.params = {"std": 0.5, "range": (0.0, 1.0), "command": "twist", "steps": 3, "clip": None}
        self.calls = 0


class Derived(Bound):
    """Says one thing more."""

    row_settings = ("label",)

    def __init__(self) -> None:
        super().__init__()
        self.label = "x"


class BoundEnv(ScriptedEnv):
    """One such term; `change` is what a reset event does to it."""

    kind = Bound

    def _build(self) -> None:
        super()._build()
        self.term = self.kind()


def test_how_a_term_was_made_is_no_part_of_a_state_and_its_parameters_are():
    class DerivedEnv(BoundEnv):
        kind = Derived

    for env_kind in (BoundEnv, DerivedEnv):
        with env_kind() as env:
            values = env.state_dict()["values"]
            assert {path: values[path] for path in values if path.startswith("term.")} == {
                "term.calls": 0,
                "term.params[std]": 0.5,
                "term.params[range]": [0.0, 1.0],
                "term.params[command]": "twist",
                "term.params[steps]": 3,
                "term.params[clip]": None,
            }


def test_parameters_that_a_curriculum_changed_come_back_and_keep_their_kinds():
    with BoundEnv() as env, BoundEnv() as other:
        env.reset()
        env.term.params.update(std=1, range=(0.5, 2.0))
        other.reset()
        other.load_state_dict(env.state_dict())
        assert other.term.params == {
            "std": 1,
            "range": (0.5, 2.0),
            "command": "twist",
            "steps": 3,
            "clip": None,
        }


def test_a_rejected_reset_puts_back_how_a_term_was_made_too():
    with BoundEnv() as env:
        env.reset()

        def change(ids):
            env.term.name, env.term.reset_call = "pull", len
            env.term.tags.append("b")
            env.term.params["std"] = 9.0
            env.term.scale.add_(1.0)
            raise LookupError

        env.inject["_stage_reset"] = change
        with pytest.raises(ResetRejectedError):
            env.reset()
        term = env.term
        assert (term.name, term.reset_call, term.tags, term.params["std"]) == ("push", None, ["a"], 0.5)
        assert term.scale.tolist() == [1.0, 1.0]


class Held:
    """What a term was made with, and that remembers something of its own."""

    row_settings = ("label",)

    def __init__(self) -> None:
        self.label, self.seen = "held", 0


class Holding(Bound):
    """Told at construction to use an object."""

    row_settings = ("instance",)

    def __init__(self) -> None:
        super().__init__()
        self.instance = Held()


def test_an_object_that_a_term_was_made_with_goes_by_its_own_rules():
    with type("HoldingEnv", (BoundEnv,), {"kind": Holding})() as env:
        values = env.state_dict()["values"]
        assert [path for path in values if "instance" in path] == ["term.instance.seen"]


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("term.name", "pull", r"unknown \['term.name'\]"),
        ("term.reset_call", 3, r"unknown \['term.reset_call'\]"),
        ("term.tags", [], r"unknown \['term.tags'\]"),
        ("term.scale", torch.ones(2), r"unknown \['term.scale'\]"),
        ("term.params", {"std": 0.5}, r"unknown \['term.params'\]"),
        ("term.params[more]", 1.0, r"unknown \['term.params\[more\]'\]"),
        ("term.params[std]", None, r"missing \['term.params\[std\]'\]"),
        ("term.params[std]", NOTHING, r"term.params\[std\] is None, expected the form of 0.5"),
        ("term.params[std]", True, r"term.params\[std\] is True"),
        ("term.params[std]", "much", r"term.params\[std\] is 'much'"),
        ("term.params[clip]", 1.0, r"term.params\[clip\] is 1.0, expected the form of None"),
        ("term.params[range]", [0.0], r"term.params\[range\] is \[0.0\], expected the form of \(0.0, 1.0\)"),
        ("term.params[range]", [0.0, "x"], r"term.params\[range\] is \[0.0, 'x'\]"),
    ],
)
def test_a_state_that_was_edited_by_hand_changes_nothing_of_a_term(path, value, message):
    with BoundEnv() as env:
        env.reset()
        before = env.state_dict()
        with pytest.raises(ValueError, match=message):
            env.load_state_dict(wrong(before, f"values/{path}", value))
        assert differences(before, env.state_dict()) == []
        assert (env.term.name, env.term.reset_call) == ("push", None)


def test_a_named_tuple_of_another_length_is_refused():
    with HoardingEnv(3) as env:
        env.reset()
        state = env.state_dict()
        with pytest.raises(ValueError, match="term.mark has 3 items, Mark has 2"):
            env.load_state_dict(wrong(state, "values/term.mark", [1, "a", 2]))
