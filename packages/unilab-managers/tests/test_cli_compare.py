"""`unilab compare`: what it compares, when two environments are alike, and what it answers to a wrong input."""

from __future__ import annotations

import json
import re
from typing import Any

import compare_support
import pytest
import torch
from compare_support import PUSH
from manager_support import DT, Run

from unilab_core import TaskSpec, registry
from unilab_managers.cli.compare_tally import Column, Moment, Place, Tally, Tolerance
from unisim import factory


@pytest.fixture
def run(unilab: Run, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs the command with the fakes for backends and their tasks."""
    for name in ("cfg", "fast", "drawing", "PlainCfg"):
        task = {"cfg": "pair", "PlainCfg": "plain"}.get(name, name)
        registry.register_task(TaskSpec(task, f"compare_support:{name}"))
    monkeypatch.setattr(factory, "entry_points", compare_support.entry_points)
    return lambda task, backends, *args: unilab(
        "compare", task, "--backends", backends, "--num-envs", "3", *args
    )


def compared(run: Run, task: str, backends: str, *args: str) -> tuple[int, dict[str, Any], dict[str, Any]]:
    """Returns the exit code, the whole JSON and its columns by name."""
    code, out, err = run(task, backends, *args, "--json")
    assert err == ""
    found = json.loads(out)
    return code, found, {column["name"]: column for column in found["columns"]}


# ---------------------------------------------------------------- what is alike


@pytest.mark.parametrize("mode", ["--resync", "--free"])
def test_a_host_bridge_and_a_resident_backend_of_the_same_physics_are_within_tolerance(
    run: Run, mode: str
) -> None:
    code, found, columns = compared(run, "pair", "host,resident", mode, "--steps", "25")
    assert (code, found["within_tolerance"], found["stopped"]) == (0, True, None)
    # Two time limits of 10 steps, 3 rows each.
    assert (found["steps"], found["ended"], found["ended_on_first"]) == (25, 6, 0)
    # Observations: each step, the first reset and the two later ones; others: each step.
    assert columns["obs/velocity[slider]"]["compared"] == 3 * (25 + 3)
    assert columns["rewards/speed"]["compared"] == 3 * 25
    assert all(column["max_abs"] < 1e-6 for column in columns.values())


def test_a_backend_beside_itself_is_equal_to_the_bit(run: Run) -> None:
    code, found, columns = compared(run, "pair", "host,host", "--free", "--steps", "12")
    assert code == 0
    assert {column["max_abs"] for column in columns.values()} == {0.0}
    assert {column["first_beyond"] for column in columns.values()} == {None}
    assert found["unequal_draws"] == []


def test_every_column_of_every_kind_is_there_with_its_unit(run: Run) -> None:
    _, _, columns = compared(run, "pair", "host,host", "--steps", "1")
    assert {name: (column["kind"], column["unit"]) for name, column in columns.items()} == {
        "obs/position[slider]": ("observation", "rad"),
        "obs/position[hinge]": ("observation", "rad"),
        "obs/velocity[slider]": ("observation", "rad/s"),
        "obs/velocity[hinge]": ("observation", "rad/s"),
        "reward": ("reward", ""),
        "rewards/speed": ("reward", ""),
        "terminated": ("done", ""),
        "truncated": ("done", ""),
        "terminations/time_out": ("done", ""),
    }


def test_an_environment_without_managers_has_no_terms_to_compare(run: Run) -> None:
    code, found, columns = compared(
        run, "plain", "host,pushed", "--free", "--actions", "zero", "--steps", "4"
    )
    assert (code, found["steps"]) == (1, 4)
    assert columns.keys() == {"obs/obs[0]", "reward", "terminated", "truncated"}
    assert columns["reward"]["max_abs"] == pytest.approx(4 * PUSH)


# ---------------------------------------------------------------- one step, and many


def test_resynchronised_every_difference_is_that_of_one_step(run: Run) -> None:
    code, found, columns = compared(run, "pair", "host,pushed", "--actions", "zero", "--steps", "9")
    assert (code, found["resync"], found["within_tolerance"]) == (1, True, False)
    velocity = columns["obs/velocity[slider]"]
    # Equal after the reset, and apart by the push after each of the 9 steps; the noise is the same on both.
    assert velocity["max_abs"] == pytest.approx(PUSH, abs=1e-6)
    assert velocity["mean_abs"] == pytest.approx(PUSH * 9 / 10, abs=1e-6)
    assert (velocity["beyond"], velocity["compared"]) == (27, 30)
    assert (velocity["first_beyond"]["step"], velocity["first_beyond"]["row"]) == (1, 0)
    assert columns["obs/position[slider]"]["max_abs"] == pytest.approx(0.0, abs=1e-6)
    assert columns["rewards/speed"]["max_abs"] == pytest.approx(PUSH, abs=1e-6)


def test_in_a_free_rollout_differences_grow(run: Run) -> None:
    _, found, columns = compared(run, "pair", "host,pushed", "--free", "--actions", "zero", "--steps", "9")
    assert found["resync"] is False
    velocity, position = columns["obs/velocity[slider]"], columns["obs/position[slider]"]
    assert velocity["max_abs"] == pytest.approx(9 * PUSH, abs=1e-6)
    assert velocity["mean_abs"] == pytest.approx(sum(range(10)) * PUSH / 10, abs=1e-6)
    assert velocity["max_at"]["step"] == 9
    # The position follows the velocity before the push: after t steps 0.02 * 0.01 * (0 + 1 + ... + t - 1).
    assert position["max_abs"] == pytest.approx(DT * PUSH * sum(range(9)), abs=1e-6)


def test_the_tolerance_is_absolute_plus_relative_to_the_first(run: Run) -> None:
    settings = ("--actions", "zero", "--steps", "9", "--rtol", "0")
    assert compared(run, "pair", "host,pushed", *settings, "--atol", "0.0101")[0] == 0
    code, _, columns = compared(run, "pair", "host,pushed", *settings, "--atol", "0.005")
    assert code == 1
    assert columns["obs/velocity[hinge]"]["tolerances"] == pytest.approx(2.0, abs=1e-3)


def test_a_tolerance_of_nothing_is_infinitely_exceeded_and_still_json(run: Run) -> None:
    code, _, columns = compared(run, "pair", "host,pushed", "--atol", "0", "--rtol", "0", "--steps", "2")
    assert code == 1
    assert columns["rewards/speed"]["tolerances"] in (None, pytest.approx(1e9, rel=1))
    assert columns["truncated"]["tolerances"] == 0.0


# ---------------------------------------------------------------- episodes that end on one only


@pytest.mark.parametrize("mode", ["--resync", "--free"])
def test_an_episode_that_ends_on_one_counts_and_is_reset_on_both(run: Run, mode: str) -> None:
    # Without actions the pushed slider has 0.01 t m/s after t steps of a free rollout: in step 4 above 0.035.
    # Resynchronised it never has more than 0.01.
    code, found, columns = compared(run, "fast", "host,pushed", mode, "--actions", "zero", "--steps", "10")
    early = mode == "--free"
    assert code == 1
    ends = (found["ended"], found["ended_on_first"], found["ended_on_second"])
    assert ends == ((0, 0, 6) if early else (3, 0, 0))
    fast = columns["terminations/fast"]
    assert (fast["beyond"], fast["max_abs"]) == ((6, 1.0) if early else (0, 0.0))
    if early:
        assert fast["first_beyond"] == {
            "step": 4,
            "after_reset": False,
            "row": 0,
            "first": 0.0,
            "second": 1.0,
        }
        # New episodes begin alike: after step 8 nothing is further apart than the push has had four steps for.
        assert columns["obs/velocity[slider]"]["max_abs"] == pytest.approx(4 * PUSH, abs=1e-6)
        assert columns["obs/velocity[slider]"]["compared"] == 3 * (10 + 3)


def test_unequal_draws_stop_a_free_rollout(run: Run) -> None:
    code, found, columns = compared(run, "drawing", "host,pushed", "--free", "--actions", "zero")
    assert (code, found["steps"], found["unequal_draws"]) == (1, 1, [2])  # 0.02 m/s after two steps
    assert "in step 2 a term drew random numbers on one backend" in found["stopped"]
    assert columns["reward"]["compared"] == 3 * 2  # the step itself was compared


def test_unequal_draws_of_a_step_are_said_and_mended_by_the_next(run: Run) -> None:
    # 0.01 m/s more in each step on both, and then the push: 0.01 and 0.02, and from step 2 on both draw.
    settings = ("--set", "actions.effort.offset=0.5", "--actions", "zero", "--steps", "6")
    code, found, columns = compared(run, "drawing", "host,pushed", *settings)
    assert (code, found["steps"], found["stopped"], found["unequal_draws"]) == (1, 6, None, [1])
    # The noise of step 1 differs; that of the other steps, and so the difference, does not.
    velocity = columns["obs/velocity[hinge]"]
    assert velocity["max_at"]["step"] == 1
    assert columns["rewards/luck"]["max_abs"] == 0.0
    _, out, _ = run("drawing", "host,pushed", *settings)
    assert "a term drew random numbers on one backend only in step 1: noise, commands and" in out


def test_alike_in_numbers_but_not_in_draws_is_not_within_tolerance(run: Run) -> None:
    settings = ("--set", "actions.effort.offset=0.5", "--actions", "zero", "--steps", "6")
    code, out, _ = run("drawing", "host,pushed", *settings, "--atol", "9")
    assert (code, out.splitlines()[-1]) == (1, "NOT COMPARABLE")


def test_what_fails_on_one_stops_the_comparison_and_is_named(run: Run) -> None:
    code, found, columns = compared(run, "pair", "host,failing", "--steps", "8")
    assert (code, found["steps"], found["within_tolerance"]) == (1, 3, False)
    assert found["stopped"].startswith("step 4 failed on the second backend, failing: ")
    assert "NaN" in found["stopped"] or "not finite" in found["stopped"]
    assert columns["reward"]["compared"] == 3 * 3


# ---------------------------------------------------------------- the text


def test_the_worst_column_is_seen_first_and_the_verdict_last(run: Run) -> None:
    code, out, err = run("pair", "host,pushed", "--actions", "zero", "--steps", "9", "--top", "3")
    assert (code, err) == (1, "")
    lines = out.splitlines()
    assert lines[:2] == [
        "pair: pushed against host, step by step: 3 rows, 9 steps, zero actions",
        "device cpu, seed 0, tolerance 0.0001 + 0.001 x |host|",
    ]
    assert lines[3].split("  ")[1].strip() == "column"
    # Without noise the reward is 0 on the first, so that its tolerance is the smallest.
    assert lines[4].split()[0] in ("reward", "rewards/speed")
    assert "6 more, none of them worse; --top 0 shows all" in out
    assert lines[-2] == "episodes ended: 0 on both, 0 only on the first, 0 only on the second"
    assert re.fullmatch(r"BEYOND TOLERANCE: 4 of 9 columns, the first \S+ at 1:0", lines[-1])
    assert max(map(len, lines)) <= 100


def test_within_tolerance_the_text_says_so(run: Run) -> None:
    code, out, _ = run("pair", "host,resident", "--steps", "2", "--top", "0")
    assert (code, out.splitlines()[-1]) == (0, "WITHIN TOLERANCE: all 9 columns")
    assert "more, none of them worse" not in out


def test_a_comparison_that_stops_says_why(run: Run) -> None:
    code, out, _ = run("drawing", "host,pushed", "--free", "--actions", "zero")
    assert code == 1
    assert "\nstopped: in step 2 a term drew" in out


# ---------------------------------------------------------------- wrong inputs


@pytest.mark.parametrize(
    ("task", "backends", "args", "message"),
    [
        ("pair", "host", [], "got 'host', expected two names with a comma between them"),
        ("pair", "host,", [], "expected two names"),
        ("pair", "host,pushed,resident", [], "expected two names"),
        ("pair", "host,residnt", [], "unknown backend 'residnt'; did you mean 'resident'"),
        ("pair", "hst,resident", [], "unknown backend 'hst'; did you mean 'host'"),
        ("pair", "host,without_wrenches", [], "NoWrenches: wrenches are not available"),
        ("pairr", "host,host", [], "unknown task 'pairr'; did you mean 'pair'"),
        ("pair", "host,host", ["--device", "cuuda"], "cuuda"),
        ("pair", "host,host", ["--set", "rewards.sped.weight=1"], "did you mean 'speed'"),
        ("pair", "host,host", ["--steps", "0"], "steps"),
        ("pair", "host,host", ["--atol", "nan"], "atol"),
        ("pair", "host,host", ["--rtol", "-1"], "rtol"),
        ("pair", "host,host", ["--actions", "one"], "actions"),
    ],
)
def test_a_wrong_input_is_one_message_and_exit_2(
    run: Run, task: str, backends: str, args: list[str], message: str
) -> None:
    code, out, err = run(task, backends, *args)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


# ---------------------------------------------------------------- the tally


def test_the_tally_against_numbers_by_hand() -> None:
    columns = [Column("observation", "a", "m"), Column("reward", "b"), Column("done", "c")]
    tally = Tally(columns, Tolerance(atol=0.5, rtol=0.1))
    rows = torch.tensor([4, 7])
    tally.add(torch.tensor([[1.0, 10.0]]), torch.tensor([[1.5, 10.0]]), rows[:1], Moment(0, True))
    tally.add(
        torch.tensor([[1.0, 10.0, 0.0], [5.0, -20.0, 1.0]]),
        torch.tensor([[1.0, 13.0, 0.0], [7.0, -20.0, 0.0]]),
        rows,
        Moment(3),
    )
    tally.add(torch.zeros(0, 3), torch.zeros(0, 3), rows[:0], Moment(4))
    b, a, c = sorted(tally.differences(), key=lambda found: "bac".index(found.name))
    # a: 0.5 of 0.6 allowed, 0, and 2 of 1.0 allowed.
    assert (a.compared, a.beyond, a.max_abs, a.tolerances) == (3, 1, 2.0, 2.0)
    assert a.mean_abs == pytest.approx(2.5 / 3)
    assert a.max_at == a.first_beyond == Place(3, False, 7, 5.0, 7.0)
    # b: 3 of 1.5 allowed.
    assert (b.beyond, b.tolerances, b.max_at) == (1, 2.0, Place(3, False, 4, 10.0, 13.0))
    # c, which the first call left out: 1 of 0.6 allowed.
    assert (c.compared, c.beyond, c.mean_abs) == (2, 1, 0.5)
    assert c.tolerances == pytest.approx(1 / 0.6)
    assert [found.name for found in tally.differences()] == ["a", "b", "c"]


def test_the_first_and_the_largest_difference_keep_their_places() -> None:
    tally = Tally([Column("reward", "r")], Tolerance(0.0, 0.5))
    rows = torch.arange(2)
    for step, values in enumerate([[1.0, 1.4], [1.0, 3.0], [4.0, 3.0], [4.0, 1.0]], start=1):
        tally.add(torch.ones(2, 1), torch.tensor(values)[:, None], rows, Moment(step))
    (found,) = tally.differences()
    assert found.first_beyond == Place(2, False, 1, 1.0, 3.0)
    assert found.max_at == Place(3, False, 0, 1.0, 4.0)
    assert (found.beyond, found.compared) == (4, 8)
