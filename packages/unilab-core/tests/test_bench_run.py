"""A whole measurement: every row complete, plain data of fixed keys, tables that fit a screen."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from statistics import median
from types import SimpleNamespace

import pytest
import torch
from bench_support import COST, CountingPart

from unilab_core import CapabilityError, ConfigError, TaskSpec, UnknownNameError, register_task, registry
from unilab_core.benching import bench, parts
from unilab_core.benching.bench import BenchCfg, BenchStoppedError, run_bench
from unilab_core.benching.intervals import Line
from unilab_core.benching.load import OtherLoad
from unilab_core.benching.pairs import NotTheSameWorkError, Pairs, measure_pairs
from unilab_core.benching.parts import BenchPart, find_parts
from unilab_core.benching.report import in_text, to_data
from unilab_core.benching.resets import ResetCost

TINY = BenchCfg(task="pushed", num_envs=(4, 8), pairs=6, steps=3, warmup=2, threads=1)
KEYS = {
    *("version", "task", "backend", "device", "action_std", "pairs", "warmup", "seed", "overrides"),
    *(
        "engine_threads",
        "machine",
        "references",
        "exact",
        "rows",
        "above_physics",
        "load",
        "notes",
        "failure",
    ),
}
ROW_KEYS = {
    *("num_envs", "steps_per_window", "env_steps_per_s", "step_us", "step_us_ci95", "physics_us"),
    *("physics_us_ci95", "plain_us", "plain_us_ci95", "step_over_physics", "step_over_physics_ci95"),
    *("step_over_plain", "step_over_plain_ci95", "above_physics_us", "above_physics_us_ci95"),
    *(
        "rows_reset_per_step",
        "rows_written_per_step",
        "breakdown",
        "counts",
        "transfers",
        "reset",
        "learner",
        "windows_us",
    ),
}
PHASES = {
    *(
        "actions",
        "backend step",
        "read and pack",
        "terminations",
        "rewards",
        "events and commands",
        "metrics",
    ),
    *("observations", "recorders", "timers", "verdict", "writes", "control and packets", "the step itself"),
}


def with_parts(monkeypatch, *made: object) -> None:
    entries = [
        SimpleNamespace(
            name=str(i), group=parts.GROUP, value="m:P", dist=None, load=lambda part=part: lambda: part
        )
        for i, part in enumerate(made)
    ]
    monkeypatch.setattr(parts, "entry_points", lambda group: entries if group == parts.GROUP else [])


@pytest.fixture(autouse=True)
def _task(monkeypatch):
    monkeypatch.setattr(registry, "_REGISTRY", registry._Registry())
    monkeypatch.setattr(registry, "entry_points", lambda group: [])
    register_task(TaskSpec("pushed", "bench_support:pushed_task", {"counting": "m:f"}, "counting"))
    with_parts(monkeypatch)


@pytest.fixture(scope="module")
def report():
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(registry, "_REGISTRY", registry._Registry())
        monkeypatch.setattr(registry, "entry_points", lambda group: [])
        register_task(TaskSpec("pushed", "bench_support:pushed_task", {"counting": "m:f"}, "counting"))
        with_parts(monkeypatch, CountingPart())
        return run_bench(TINY)


def test_the_data_have_these_keys_and_no_others(report):
    data = json.loads(json.dumps(to_data(report), allow_nan=False))
    assert data.keys() == KEYS
    assert all(row.keys() == ROW_KEYS for row in data["rows"])
    assert (data["task"], data["backend"], data["version"]) == ("pushed", "mujoco", 1)
    assert (data["engine_threads"], data["machine"]["torch_threads"]) == (1, 1)
    assert data["machine"]["versions"].keys() >= {"python", "torch", "unisim", "unilab-core", "mujoco"}
    assert (data["machine"]["gpu"], data["failure"]) == (None, None)
    assert data["references"] == {
        "fresh": "mujoco.batch.Batch, stage=mjSTAGE_VEL",
        "plain": "mujoco.batch.Batch, no fresh stage",
    }
    assert data["exact"] is True
    assert data["above_physics"].keys() == {"fixed_us", "per_env_us"}
    assert data["notes"] == []


def test_every_row_is_complete_and_agrees_with_itself(report):
    for row, num_envs in zip(to_data(report)["rows"], (4, 8), strict=True):
        assert (row["num_envs"], row["steps_per_window"]) == (num_envs, 3)
        assert row["env_steps_per_s"] == pytest.approx(num_envs * 1e6 / row["step_us"])
        for name in ("step_us", "physics_us", "plain_us", "step_over_physics", "step_over_plain"):
            low, high = row[f"{name}_ci95"]
            assert 0.0 < low <= row[name] <= high
        windows = row["windows_us"]
        assert {name: len(times) for name, times in windows.items()} == {"env": 6, "fresh": 6, "plain": 6}
        assert row["step_us"] == pytest.approx(median(windows["env"]))
        assert row["physics_us"] == pytest.approx(median(windows["fresh"]))
        assert row["rows_written_per_step"] == 1.0
        assert row["breakdown"].keys() >= PHASES
        assert sum(phase["share"] for phase in row["breakdown"].values()) == pytest.approx(1.0)
        assert row["breakdown"]["backend step"]["calls"] == 1.0
        assert row["breakdown"]["shared"]["calls"] > 0.0  # what another package knows of
        assert row["counts"]["quiet"].keys() == {
            *("steps", "operators", "waits", "allocations", "allocated_bytes", "most_frequent", "waiting"),
        }
        assert row["transfers"]["control"] == {
            "transfers": 1.0,
            "bytes": 4.0 * num_envs * 2,
            "synchronizations": 1.0,
        }
        assert row["reset"]["us"].keys() == {"1", "4"}
        assert row["reset"]["line"].keys() == {"intercept_us", "per_row_us"}
        assert row["learner"] == vars(COST)


def test_phases_inside_a_reset_are_told_apart(report):
    for row in report.rows:  # of 20 steps, at least one ends every row's episode
        resets = {name for name in row.phases if name.startswith("reset")}
        assert {"reset", "reset.commit", "reset.observations", "reset.shared"} <= resets
        assert resets <= {"reset", *(f"reset.{name}" for name in (*PHASES, "commit", "shared"))}
        assert "commit" not in row.phases  # nothing is committed elsewhere
        assert row.phases["reset"].calls == row.phases["reset.commit"].calls


def test_the_screen_shows_everything_within_100_columns(report):
    text = in_text(report)
    assert max(map(len, text.splitlines())) <= 100
    for shown in (
        "pushed on mujoco, cpu: 6 pairs of windows, actions of standard deviation 0.2",
        "engine threads: 1, Torch threads: 1",
        "engine: mujoco.batch.Batch, stage=mjSTAGE_VEL",
        "all came to the environment's states, to the bit",
        "step/engine",
        "above the engine: ",
        "backend step",
        "operators, no reset",
        "bytes transferred",
        "reset of k rows of",
        "policy alone, µs per step",
        "4,000",
    ):
        assert shown in text, shown


def test_large_numbers_fit_too(report):
    slow = Pairs(steps=20, env_s=[1.2345678] * 6, engine_s=dict.fromkeys(("fresh", "plain"), [0.1] * 6))
    reset = ResetCost({4**i: 1e6 for i in range(7)}, Line(1234567.0, 12345.67), 0.5, 0.1)
    row = replace(report.rows[0], num_envs=131072, pairs=slow, reset=reset)
    text = in_text(replace(report, rows=[row] * 7))
    assert max(map(len, text.splitlines())) <= 100
    assert text.count("131,072 envs") == 4 * 7  # phases, counts, resets, learner
    assert text.count("1,234,568") >= 7


def test_a_busy_machine_is_warned_of(report):
    busy = replace(report, load=OtherLoad(2, 0.5, (1.0, 3.0)))
    assert in_text(busy).splitlines()[-2:] == [
        "other processes used 50% of 2 CPU cores, load average 1.00 to 3.00",
        "WARNING: other processes used 50% of 2 CPU cores: repeat it on a quiet machine",
    ]
    assert to_data(busy)["load"]["warning"].startswith("other processes used 50%")


def test_a_single_number_of_rows_has_no_line_and_a_single_row_no_line_of_resets():
    report = run_bench(BenchCfg(task="pushed", num_envs=(1,), pairs=6, steps=1, warmup=0, learner="none"))
    data = to_data(report)
    assert data["above_physics"] is None
    assert data["rows"][0]["reset"]["line"] is None
    assert data["rows"][0]["learner"] is None
    assert data["notes"] == []
    assert "above the engine" not in in_text(report)


def test_the_number_of_threads_is_put_back():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        report = run_bench(
            BenchCfg(task="pushed", num_envs=(2,), pairs=6, steps=1, warmup=0, threads=1, learner="none")
        )
        assert (report.machine.torch_threads, torch.get_num_threads()) == (1, 2)
    finally:
        torch.set_num_threads(before)


def test_all_cores_are_those_that_may_be_used(monkeypatch):
    monkeypatch.setattr(bench, "usable_cores", lambda: frozenset({5}))
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        report = run_bench(small(threads=0, learner="none"))
    finally:
        torch.set_num_threads(before)
    assert (report.engine_threads, report.machine.torch_threads) == (1, 1)


def test_threads_that_the_engine_chooses_are_shown_as_such(report):
    assert "engine threads: as many as cores, Torch threads: 1" in in_text(replace(report, engine_threads=0))


# ---------------------------------------------------------------- what is asked for wrongly, or is not there


def small(**changes) -> BenchCfg:
    return BenchCfg(**({"task": "pushed", "num_envs": (4,), "pairs": 6, "steps": 1, "warmup": 0} | changes))


def test_without_a_package_of_learners_the_report_says_so():
    report = run_bench(small())
    assert report.rows[0].learner is None
    assert report.notes == [
        "learner: no installed package measures learners; install 'unilab-rl[cli,rsl-rl]>=2.0,<3'"
    ]
    assert report.notes[0] in in_text(report)


def test_a_task_without_a_learner_is_told_from_a_package_that_is_not_there():
    register_task(TaskSpec("idle", "bench_support:pushed_task"))
    assert run_bench(small(task="idle")).notes == ["learner: the task 'idle' has no learner"]
    with pytest.raises(ConfigError, match="--set learner.rate: the task 'idle' has no learner"):
        run_bench(small(task="idle", overrides=("learner.rate=1",)))
    with pytest.raises(CapabilityError, match="--set learner.rate: no installed package measures learners"):
        run_bench(small(overrides=("learner.rate=1",)))


def test_a_learner_that_was_asked_for_must_be_there():
    with pytest.raises(
        CapabilityError, match="--learner sac: no installed package measures learners; install"
    ):
        run_bench(small(learner="sac"))


def test_a_learner_of_another_name_is_refused_before_anything_is_measured(monkeypatch):
    with_parts(monkeypatch, BenchPart(), CountingPart())
    monkeypatch.setattr(bench, "measure_pairs", lambda *arguments, **options: pytest.fail("it was measured"))
    with pytest.raises(ConfigError, match="unknown algorithm 'sac'; did you mean 'counting'"):
        run_bench(small(learner="sac"))


def test_a_learner_that_does_not_fit_is_named_and_all_else_is_measured(monkeypatch):
    class Picky(CountingPart):
        def learner(self, env, task, algorithm, overrides, *, seed):
            return super().learner(env, task, algorithm, {"rows": 8}, seed=seed)

    with_parts(monkeypatch, Picky())
    report = run_bench(small(num_envs=(4, 8)))
    assert report.notes == ["learner at 4 envs: 4 rows are too few"]
    assert [row.learner for row in report.rows] == [None, COST]
    assert "counting" in in_text(report)


def test_learners_of_all_sizes_come_before_anything_else_is_measured(monkeypatch):
    class Picky(CountingPart):
        def learner(self, env, task, algorithm, overrides, *, seed):
            if env.num_envs == 8:
                raise ConfigError("8 rows are too many")
            return super().learner(env, task, algorithm, {}, seed=seed)

    with_parts(monkeypatch, Picky())
    monkeypatch.setattr(bench, "measure_pairs", lambda *arguments, **options: pytest.fail("it was measured"))
    with pytest.raises(ConfigError, match="8 rows are too many"):
        run_bench(small(num_envs=(4, 8), learner="counting"))


def test_the_learner_does_not_change_which_episodes_are_measured(monkeypatch):
    def work(**changes):
        states = []

        def watched(env, engines, draw, **options):
            states.append(env._backend.snapshot()["state"])
            return measure_pairs(env, engines, draw, **options)

        monkeypatch.setattr(bench, "measure_pairs", watched)
        run_bench(small(warmup=3, **changes))
        return states[0]

    with_parts(monkeypatch, CountingPart())
    assert torch.equal(work(), work(learner="none"))


def failing_at(num_envs, error, monkeypatch):
    def fails(env, engines, draw, **options):
        if env.num_envs == num_envs:
            raise error
        return measure_pairs(env, engines, draw, **options)

    monkeypatch.setattr(bench, "measure_pairs", fails)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NotTheSameWorkError("elsewhere"), "8 envs: elsewhere"),
        (RuntimeError("out of memory"), "8 envs: out of memory"),
        (KeyboardInterrupt(), "8 envs: KeyboardInterrupt"),
    ],
)
def test_a_failure_at_a_later_number_of_rows_keeps_those_before_it(error, text, monkeypatch):
    failing_at(8, error, monkeypatch)
    with pytest.raises(BenchStoppedError, match=text) as caught:
        run_bench(small(num_envs=(4, 8), learner="none"))
    report = caught.value.report
    assert caught.value.__cause__ is error
    assert [row.num_envs for row in report.rows] == [4]
    assert to_data(report)["failure"] == text
    assert in_text(report).splitlines()[-1] == f"STOPPED at {text}"


def test_a_failure_at_the_first_number_of_rows_has_nothing_to_keep(monkeypatch):
    failing_at(4, NotTheSameWorkError("elsewhere"), monkeypatch)
    with pytest.raises(NotTheSameWorkError, match="elsewhere"):
        run_bench(small(num_envs=(4, 8), learner="none"))


def test_overrides_reach_the_environment_and_the_learner(monkeypatch):
    with_parts(monkeypatch, CountingPart())
    with pytest.raises(ConfigError, match="4 rows are too few"):
        run_bench(small(overrides=("learner.rows=5", "episode_length_s=0.4")))
    report = run_bench(small(overrides=("learner.rows=3", "decimation=1")))
    assert to_data(report)["overrides"] == ["learner.rows=3", "decimation=1"]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"pairs": 5}, "pairs: .* greater than or equal to 6 .got 5"),
        ({"steps": 0}, "steps: .* greater than or equal to 1 .got 0"),
        ({"num_envs": ()}, "num_envs: .* at least 1 item"),
        ({"num_envs": (4, 0)}, "num_envs.1: .* greater than 0 .got 0"),
        ({"action_std": float("nan")}, "action_std: .* finite number .got nan"),
        ({"threads": -1}, "threads: "),
        ({"overrides": ("num_envs=2",)}, "--num-envs says the numbers of rows; leave --set num_envs out"),
        (
            {"threads": 1, "overrides": ("sim.num_threads=2",)},
            "--threads 1 and --set sim.num_threads=2: both say the threads of the engine; leave one",
        ),
        (
            {"learner": "none", "overrides": ("learner.foo=1",)},
            "--learner none and --set learner.foo: no learner is measured; leave one of them out",
        ),
    ],
)
def test_a_config_that_cannot_be_measured_cannot_be_made(changes, text):
    with pytest.raises(ConfigError, match=text):
        small(**changes)


@pytest.mark.parametrize(
    ("changes", "error", "text"),
    [
        ({"task": "pusht"}, UnknownNameError, "unknown task 'pusht'; did you mean 'pushed'"),
        ({"overrides": ("decimatio=3",)}, ConfigError, "decimatio"),
        ({"device": "gpu"}, CapabilityError, "gpu"),
        ({"device": "cuda:63"}, CapabilityError, "cuda:63"),
        ({"backend": "mujco"}, CapabilityError, "unknown backend 'mujco'; did you mean 'mujoco'"),
    ],
)
def test_bad_input_is_named(changes, error, text):
    with pytest.raises(error, match=text):
        run_bench(small(**changes))


def test_a_package_that_cannot_be_loaded_is_left_out_and_named(monkeypatch, caplog):
    with_parts(monkeypatch, CountingPart(), "nothing of the kind")
    with caplog.at_level(logging.WARNING):
        assert [type(part) for part in find_parts()] == [CountingPart]
    assert "it makes a str, expected a BenchPart; it is left out" in caplog.text
