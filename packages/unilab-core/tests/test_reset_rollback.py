"""A rejected reset leaves everything as it was, to the bit; past the commit nothing can be taken back."""

from __future__ import annotations

import itertools
import random
from array import array

import pytest
import torch
from core_support import ScriptedEnv, steps, zeros
from twins import (
    LATE_PLACES,
    PLACES,
    Helper,
    Hoarder,
    HoardingEnv,
    Tripped,
    assert_same_steps,
    assert_twins,
    differences,
)

from unilab_core import ConfigError, EnvFaultedError, ResetRejectedError
from unisim.testing import Fault

N = 3
ENDS = {6: [1], 9: [0, 2], 20: [0, 1, 2], 33: [1], 47: [0], 60: [2]}
SELECTORS = {"all rows": None, "some rows": [2, 0], "one row": [1]}


def pair(**options):
    env, twin = (HoardingEnv(N, terminate=ENDS, critic=True, seed=3, **options) for _ in range(2))
    for each in (env, twin):
        each.reset()
        steps(each, 3)
    return env, twin


def selected(rows):
    return None if rows is None else torch.tensor(rows)


@pytest.mark.parametrize("rows", SELECTORS.values(), ids=SELECTORS.keys())
@pytest.mark.parametrize("place", [place for place in PLACES if place != "outside"])
def test_a_rejected_reset_leaves_the_environment_as_a_twin_that_never_tried(place, rows):
    env, twin = pair()
    with env, twin:
        env.trip(place)
        with pytest.raises(
            ResetRejectedError, match=r"^HoardingEnv.reset: .*nothing was (committed|written)$"
        ):
            env.reset(selected(rows))
        assert not env.faulted
        env.trip(None)
        assert_twins(env, twin)
        assert torch.equal(env.rng.get_state(), twin.rng.get_state())
        assert env.term.chosen is twin.term.chosen
        assert_same_steps(env, twin, 50)


def test_everything_a_term_remembers_is_put_back_reference_by_reference():
    env = HoardingEnv(N)
    term = env.term
    references = {name: value for name, value in vars(term).items()}
    before = {
        name: repr(value) for name, value in vars(term).items() if not isinstance(value, torch.Generator)
    }

    env.trip("before_commit")
    with pytest.raises(ResetRejectedError):
        env.reset()
    assert vars(term).keys() == references.keys()
    for name, value in references.items():
        assert getattr(term, name) is value, name
    after = {
        name: repr(value) for name, value in vars(term).items() if not isinstance(value, torch.Generator)
    }
    assert {n for n in before if before[n] != after[n] and "helper" not in n} == set()
    assert (term.helper.count, term.helper.inner.count, term.helper.inner.inner.count) == (0, 0, 0)
    assert term.helper.inner.inner.rows.tolist() == [0.0] * N
    env.close()


@pytest.mark.parametrize("rows", SELECTORS.values(), ids=SELECTORS.keys())
def test_a_reset_that_the_backend_rejects_leaves_the_environment_as_a_twin_that_never_tried(rows):
    env, twin = pair(faults=(Fault("before_commit", at=1),))
    with env, twin:
        with pytest.raises(ResetRejectedError, match="injected rejection of reset 1; nothing was written"):
            env.reset(selected(rows))
        assert_twins(env, twin, but=("counts",))  # of calls, which the fake keeps for its script
        with pytest.raises(ResetRejectedError):
            twin.reset(selected(rows))
        assert_same_steps(env, twin, 50)


@pytest.mark.parametrize("place", PLACES)
def test_a_rejected_automatic_reset_hands_over_the_finished_step_and_its_rows_wait(place):
    env, twin = pair()
    with env, twin:
        steps(env, 2)
        steps(twin, 2)
        env.trip(place)
        with pytest.raises(ResetRejectedError) as caught:
            env.step(zeros(env))
        twin.autoreset = False
        finished = twin.step(zeros(twin))
        twin.autoreset = True
        transition = caught.value.transition
        assert transition is env.state
        assert transition.terminated.tolist() == [False, True, False]
        for name in ("obs", "final_observation"):
            assert torch.equal(getattr(transition, name)["obs"], getattr(finished, name)["obs"])
        assert torch.equal(transition.reward, finished.reward)
        env.trip(None)
        assert_twins(env, twin)
        with pytest.raises(RuntimeError, match=r"HoardingEnv.step: rows \[1\] wait for a reset"):
            env.step(zeros(env))
        for each in (env, twin):
            each.reset(torch.tensor([1]))
        assert_same_steps(env, twin, 50)


def test_a_rejected_seeded_reset_keeps_the_sequence_of_the_old_seed():
    env, twin = pair()
    with env, twin:
        env.trip("event_2")
        with pytest.raises(ResetRejectedError):
            env.reset(seed=99)
        env.trip(None)
        assert_twins(env, twin)
        assert_same_steps(env, twin, 10)


def test_an_interrupt_before_the_commit_is_passed_on_and_leaves_everything_as_it_was():
    env, twin = pair()

    def interrupt(ids):
        env.term.act(ids)
        raise KeyboardInterrupt

    with env, twin:
        env.inject["_on_episodes_end"] = interrupt
        with pytest.raises(KeyboardInterrupt):
            env.reset(torch.tensor([1]))
        del env.inject["_on_episodes_end"]
        assert_twins(env, twin)
        assert_same_steps(env, twin, 50)


def test_a_rejected_reset_inside_inference_mode_is_taken_back_too():
    env, twin = pair()
    with env, twin:
        env.trip("before_commit")
        with torch.inference_mode(), pytest.raises(ResetRejectedError):
            env.reset(torch.tensor([0]))
        env.trip(None)
        assert_twins(env, twin)
        assert_same_steps(env, twin, 50)


@pytest.mark.parametrize("automatic", [False, True])
@pytest.mark.parametrize("place", [*LATE_PLACES, "mid_commit"])
def test_after_a_failure_past_the_commit_only_close_works(place, automatic):
    faults = (Fault("after_first_write", at=1),) if place == "mid_commit" else ()
    env, twin = pair(faults=faults)
    twin.close()
    steps(env, 2)
    env.trip(place)
    with pytest.raises((Tripped, RuntimeError)) as caught:
        env.step(zeros(env)) if automatic else env.reset(torch.tensor([1]))
    assert not isinstance(caught.value, ResetRejectedError)
    assert env.faulted
    for call in (
        lambda: env.step(zeros(env)),
        env.reset,
        env.observations,
        lambda: env.state,
        env.state_dict,
        lambda: env.load_state_dict({}),
    ):
        with pytest.raises(EnvFaultedError) as fault:
            call()
        assert fault.value.__cause__ is caught.value
    assert env.close() is None


def test_what_is_met_far_away_first_is_put_back_where_it_is_near():
    class Chained(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            near = Helper(inner=Helper(inner=Helper(count=1)))
            self.far = Helper(
                inner=Helper(inner=near)
            )  # reached here at the depth where nothing more is entered
            self.near = near

    with Chained(N) as env:
        env.reset()

        def fail(ids):
            env.near.inner.inner.count = 2
            env.near.inner.inner.rows.add_(1.0)
            raise Tripped

        env.inject["_stage_reset"] = fail
        with pytest.raises(ResetRejectedError):
            env.reset()
        assert env.near.inner.inner.count == 1
        assert not env.near.inner.inner.rows.any()


def test_a_network_and_tensors_born_in_inference_mode_are_put_back():
    class Learned(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            self.network = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Linear(2, 1))

    with Learned(N) as env:
        env.reset()
        with torch.inference_mode():
            env.born = torch.zeros(N)
            env.table = torch.zeros(200, 200)
        before = env.state_dict()
        assert "network._modules[0]._parameters[weight]" in before["values"]

        def fail(ids):
            with torch.inference_mode():
                env.network[0].weight.add_(1.0)
                env.born.add_(1.0)
            env.network.train(False)
            raise Tripped

        env.inject["_stage_reset"] = fail
        with pytest.raises(ResetRejectedError):
            env.reset()
        assert differences(before, env.state_dict()) == []
        assert env.network.training
        assert env.network[0].weight.requires_grad
        env.load_state_dict(before)
        env.inject["_stage_reset"] = lambda ids: changes()

        def changes():
            with torch.inference_mode():
                env.table.add_(1.0)

        with pytest.raises(ConfigError, match="table, a tensor of shape"):
            env.reset()


# ---------------------------------------------------------------- what cannot be taken back


@pytest.mark.parametrize(
    "change",
    [lambda t: t.add_(1.0), lambda t: t[0].zero_()],
    ids=["in place", "through a view"],
)
@pytest.mark.parametrize("fails", [False, True], ids=["staging succeeds", "staging fails"])
def test_a_large_tensor_without_rows_that_staging_changes_is_a_config_error(change, fails):
    env = ScriptedEnv(N)
    env.table = torch.zeros(200, 200)
    env.reset()

    def event(ids):
        change(env.table)
        if fails:
            raise Tripped

    env.inject["_stage_reset"] = event
    message = (
        r"table, a tensor of shape \(200, 200\), was changed .* put the 3 environments in its first dimension"
    )
    with pytest.raises(ConfigError, match=message):
        env.reset(torch.tensor([1]))
    assert env.faulted
    env.close()


def test_a_large_tensor_without_rows_that_is_only_replaced_is_put_back():
    with ScriptedEnv(N) as env:
        env.table = table = torch.zeros(200, 200)
        env.reset()
        env.inject["_stage_reset"] = lambda ids: setattr(env, "table", torch.ones(200, 200))
        with pytest.raises(ConfigError, match=r"table, a tensor of shape \(200, 200\), was changed"):
            env.reset(torch.tensor([1]))
        assert not env.faulted
        assert env.table is table


def test_a_large_tensor_without_rows_may_change_outside_of_staging():
    with ScriptedEnv(N) as env:
        env.table = torch.zeros(200, 200)
        env.inject["_after_commit"] = lambda ids: env.table.add_(1.0)
        env.reset()
        env.reset(torch.tensor([1]))
        assert env.table[0, 0] == 2.0


def test_a_tensor_of_exactly_64_kib_counts_as_large():
    env = ScriptedEnv(N)
    env.table = torch.zeros(16384)
    env.less = torch.zeros(16383)
    env.reset()
    env.inject["_stage_reset"] = lambda ids: env.less.add_(1.0)
    env.reset(torch.tensor([1]))
    env.inject["_stage_reset"] = lambda ids: env.table.add_(1.0)
    with pytest.raises(ConfigError, match="table, a tensor of shape"):
        env.reset(torch.tensor([1]))
    env.close()


@pytest.mark.parametrize(
    ("kind", "make"),
    [
        ("count", lambda: itertools.count()),
        ("generator", lambda: (i for i in range(3))),
        ("bytearray", lambda: bytearray(3)),
        ("array", lambda: array("d", [0.0])),
        ("ndarray", lambda: pytest.importorskip("numpy").zeros(3)),
    ],
)
def test_what_could_not_be_put_back_is_a_config_error_at_construction(kind, make):
    class Holding(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            self.term = Hoarder(3)
            self.term.held = make()

    with pytest.raises(
        ConfigError, match=f"term.held is a {kind}, whose content .* keep state in torch tensors"
    ):
        Holding()


def test_a_read_only_array_may_stay():
    table = pytest.importorskip("numpy").zeros(3)
    table.flags.writeable = False

    class Holding(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            self.term = Hoarder(3)
            self.term.held = table

    with Holding() as env:
        env.reset()
        assert env.term.held is table


@pytest.mark.parametrize("kind", ["Random", "Generator", "RandomState"])
def test_a_generator_that_cannot_be_put_back_is_a_config_error_at_construction(kind):
    if kind == "Random":
        generator = random.Random(1)
    else:
        numpy = pytest.importorskip("numpy")
        generator = numpy.random.default_rng(1) if kind == "Generator" else numpy.random.RandomState(1)

    class Drawing(ScriptedEnv):
        def _build(self) -> None:
            super()._build()
            self.term = Hoarder(3)
            self.term.random = generator

    with pytest.raises(
        ConfigError, match=f"term.random is a {kind}, whose draws .* draw from env.rng instead"
    ):
        Drawing()
