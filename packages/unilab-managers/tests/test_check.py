"""`unilab check`: each seeded defect is found by the right check, told of the right term, and nothing else is."""

from __future__ import annotations

from typing import Any

import check_defects as defects
import check_support as support
import pytest
import torch
from check_support import event, found_in, observation, reward, with_terms

from unilab_managers import (
    TerminationTermCfg,
    mdp,
)
from unilab_managers.checking.places import Place
from unilab_managers.checking.running import CHECKS, run_checks
from unilab_managers.checking.watching import GlobalRngWatch, global_rng_kept, global_rng_state
from unilab_managers.testing import CheckReport

# ---------------------------------------------------------------- many defects in one task

SEEDED: dict[str, tuple[str, Any, str, str]] = {
    "half_constant": (
        "observations",
        observation(defects.half_constant),
        "constant-columns",
        "half_constant[b] = 0.25",
    ),
    "reading": (
        "observations",
        observation(defects.CountsWhenMoved),
        "purity",
        "reading it changes observations.obs/reading.count",
    ),
    "env_rng": (
        "observations",
        observation(defects.noisy_from_env),
        "purity",
        "draws from env.rng when it is read",
    ),
    "torch_rng": (
        "observations",
        observation(defects.noisy_from_torch),
        "determinism",
        "torch's global generator",
    ),
    "in_a_global": (
        "observations",
        observation(defects.counts_in_a_global),
        "purity",
        "module global check_defects._steps",
    ),
    "nameless": (
        "observations",
        observation(defects.without_names),
        "description",
        "2 columns no names and no units",
    ),
    "in_a_closure": (
        "rewards",
        reward(defects.counts_in_a_closure),
        "purity",
        "'count' in the closure of check_defects.counts_in_a_closure",
    ),
    "in_its_class": (
        "rewards",
        reward(defects.CountsInItsClass),
        "purity",
        "class attribute check_defects.CountsInItsClass.calls",
    ),
    "zero": ("rewards", reward(defects.zero), "dead-rewards", "it was 0 in all of"),
    "weightless": ("rewards", reward(defects.speed, 0.0), "dead-rewards", "its weight is 0 and stays so"),
    "waits": ("rewards", reward(defects.waits), "transfers", "wait for the device (item())"),
    "puts_values": (
        "rewards",
        reward(defects.puts_values),
        "transfers",
        "wait for the device (values at an index that is a mask)",
    ),
    "goes_home": ("rewards", reward(defects.goes_home), "transfers", "wait for the device (to(cpu))"),
    "asking_event": (
        "events",
        event(defects.asks_in_every_step, "step"),
        "transfers",
        "wait for the device (item())",
    ),
    "asking_command": (
        "commands",
        defects.AskingCfg(place=(-0.5, 0.5), resampling_time_range=(0.3, 0.5)),
        "transfers",
        "wait for the device (item())",
    ),
    "in_a_helper": (
        "rewards",
        reward(defects.counts_in_a_helper),
        "purity",
        "module global check_memory.count",
    ),
    "in_its_own_import": (
        "rewards",
        reward(defects.imports_a_helper),
        "purity",
        "module global check_memory.seen",
    ),
    "never_forgets": (
        "rewards",
        reward(defects.NeverForgets),
        "reset-isolation",
        "rewards.never_forgets.total remembers the episode before: 1 step after a reset",
    ),
    "leaks": (
        "rewards",
        reward(defects.Leaks),
        "reset-isolation",
        "a reset of some rows changes rewards.leaks.total of others",
    ),
    "same_for_all": (
        "events",
        event(defects.same_for_everybody),
        "randomization",
        "dof_armature by the same",
    ),
    "nothing_new": (
        "events",
        event(defects.nothing_new),
        "randomization",
        "leaves dof_damping of every row as it is",
    ),
    "without_effect": (
        "events",
        event(mdp.randomize_geom_friction, params={"friction_range": (0.5, 1.5)}),
        "randomization",
        "changes geom_friction, and no row moves otherwise",
    ),
    "own_seed": ("events", event(defects.OwnSeed), "determinism", "the same for every seed"),
    "silent": (
        "events",
        event(support.kick, "interval", interval_range_s=(1.02, 3.0)),
        "silent-events",
        "takes at least 51 steps, an episode takes 50",
    ),
    "careless": (
        "commands",
        defects.CarelessCfg(place=(-0.5, 0.5), resampling_time_range=(0.3, 0.5)),
        "reset-isolation",
        "commands.careless._command of others",
    ),
}


@pytest.fixture(scope="module")
def seeded() -> CheckReport:
    """Returns what is found in one task that has all of these defects."""
    cfg = support.sound()
    for name, (kind, term, _, _) in SEEDED.items():
        cfg = with_terms(kind, cfg=cfg, **{name: term})
    return run_checks(cfg)


@pytest.mark.parametrize("name", SEEDED)
def test_each_seeded_defect_is_found_once_by_the_right_check(seeded: CheckReport, name: str) -> None:
    kind, _, check, words = SEEDED[name]
    term = f"obs/{name}" if kind == "observations" else name
    (finding,) = [item for item in seeded.findings if (item.manager, item.term) == (kind, term)]
    assert finding.check == check
    assert words in finding.what
    assert finding.fix


def test_nothing_else_is_found_in_the_task_with_all_defects(seeded: CheckReport) -> None:
    expected = {
        (check, kind, f"obs/{name}" if kind == "observations" else name)
        for name, (kind, _, check, _) in SEEDED.items()
    }
    assert found_in(seeded) == expected
    assert len(seeded.findings) == len(SEEDED)


def test_checks_that_see_the_same_thing_are_told_with_the_finding(seeded: CheckReport) -> None:
    by_term = {finding.term: finding for finding in seeded.findings}
    assert "determinism" in by_term["obs/in_a_global"].also
    assert "purity" in by_term["obs/torch_rng"].also


def test_a_task_without_a_fault_has_no_findings() -> None:
    cfg = with_terms("rewards", air_time=reward(support.AirTime))
    cfg = with_terms("observations", cfg=cfg, filtered=observation(support.Filtered))
    report = run_checks(cfg)
    assert [finding.in_text() for finding in report.findings] == []
    assert report.notes == ()
    assert report.checks == tuple(CHECKS)


# ---------------------------------------------------------------- defects that stop a task


def test_a_reward_that_overflows_is_named_with_the_step() -> None:
    report = run_checks(with_terms("rewards", seeded=reward(defects.overflows)))
    (finding,) = report.findings
    assert (finding.check, finding.manager, finding.term) == ("rollout", "rewards", "seeded")
    assert finding.what.startswith("step 3, random actions: NonFiniteError")
    assert {"purity", "determinism", "transfers"} <= set(finding.also)


def test_a_reset_event_that_writes_all_rows_is_named_though_the_whole_reset_is_refused() -> None:
    report = run_checks(
        with_terms("events", seeded=event(defects.kicks_everybody)), only=("rollout", "reset-isolation")
    )
    (finding,) = report.findings
    assert (finding.check, finding.manager, finding.term) == ("reset-isolation", "events", "seeded")
    assert "it writes rows that it was not called for" in finding.what
    assert "ResetRejectedError" in finding.what
    assert finding.also == ("rollout",)


def test_an_interval_event_that_writes_all_rows_is_named() -> None:
    term = event(defects.kicks_everybody, "interval", interval_range_s=(0.2, 0.4))
    report = run_checks(with_terms("events", seeded=term), only=("reset-isolation",))
    assert found_in(report) == {("reset-isolation", "events", "seeded")}


def test_one_number_for_all_rows_is_found_by_what_becomes_of_the_others() -> None:
    cfg = with_terms("rewards", seeded=reward(defects.SharesOneNumber))
    (finding,) = run_checks(cfg, only=("purity", "reset-isolation", "determinism")).findings
    assert (finding.check, finding.manager, finding.term) == ("reset-isolation", "rewards", "seeded")
    assert finding.what == "1 step after a reset of some rows, others have another reward"


def test_what_an_event_draws_from_a_global_generator_is_told_of_the_event_alone() -> None:
    cfg = with_terms("events", seeded=event(defects.draws_from_numpy))
    report = run_checks(cfg, only=("purity", "reset-isolation", "determinism"))
    assert found_in(report) == {("determinism", "events", "seeded")}
    assert "NumPy's global generator" in report.findings[0].what


def test_an_attribute_that_is_born_late_is_named() -> None:
    report = run_checks(with_terms("rewards", seeded=reward(defects.BornLate)), only=("determinism",))
    (finding,) = report.findings
    assert (finding.check, finding.manager, finding.term) == ("determinism", "rewards", "seeded")
    assert "rewards.seeded.last" in finding.what


def test_a_termination_that_always_holds_is_named() -> None:
    report = run_checks(
        with_terms("terminations", seeded=TerminationTermCfg(func=defects.always)),
        only=("rollout", "randomization"),
    )
    assert found_in(report) == {("rollout", "terminations", "seeded")}


def test_a_task_that_cannot_be_built_has_one_finding_that_names_the_term() -> None:
    report = run_checks(with_terms("terminations", seeded=TerminationTermCfg(func=defects.refuses)))
    (finding,) = report.findings
    assert (finding.check, finding.manager, finding.term) == ("construction", "terminations", "seeded")
    assert "KeyError: 'no such thing'" in finding.what


@pytest.mark.parametrize("mode", ["reset", "startup"])
def test_an_event_that_stages_an_impossible_model_value_is_named(mode: str) -> None:
    terms = {
        "before": event(defects.unharmed, mode),
        "seeded": event(defects.below_zero, mode),
        "after": event(defects.unharmed, mode),
    }
    (finding,) = run_checks(with_terms("events", **terms)).findings
    assert (finding.check, finding.manager, finding.term) == ("construction", "events", "seeded")
    assert "model field 'body_mass' of row 0: a mass must be positive, kg" in finding.what
    assert finding.fix == "stage only what is valid, whatever is drawn"


def test_an_event_that_stages_an_impossible_model_value_in_a_later_reset_is_named() -> None:
    report = run_checks(
        with_terms("events", seeded=event(defects.below_zero_later)), only=("rollout", "determinism")
    )
    (finding,) = report.findings
    assert (finding.check, finding.manager, finding.term) == ("rollout", "events", "seeded")
    assert "model field 'body_mass' of row 0: a mass must be positive, kg" in finding.what
    assert finding.also == ("determinism",)


def test_an_event_that_stages_an_impossible_model_value_in_a_variant_is_named_once() -> None:
    report = run_checks(
        with_terms("events", seeded=event(defects.below_zero_without_noise)),
        only=("constant-columns", "randomization"),
    )
    (finding,) = report.findings
    assert (finding.check, finding.manager, finding.term) == ("construction", "events", "seeded")
    assert "model field 'body_mass' of row 0: a mass must be positive, kg" in finding.what


def test_an_action_that_asks_the_device_is_named() -> None:
    cfg = with_terms("actions", effort=defects.AskingEffortCfg())
    (finding,) = run_checks(cfg, only=("transfers",)).findings
    assert (finding.check, finding.manager, finding.term) == ("transfers", "actions", "effort")
    assert finding.what == "it makes every step wait for the device (item())"
    assert defects.AskingEffort.process.__qualname__ == "AskingEffort.process"  # nobody looks on any more
    assert "accept" not in vars(defects.AskingEffort)


def test_an_encoder_bias_that_nothing_reads_is_found() -> None:
    cfg = with_terms("events", bias=event(mdp.randomize_encoder_bias, params={"bias_range": (-0.1, 0.1)}))
    (finding,) = run_checks(cfg, only=("randomization",)).findings
    assert (finding.manager, finding.term) == ("events", "bias")
    assert finding.what == (
        "it changes the encoder bias of 'robot', and no row moves otherwise or observes anything else in 30 steps of "
        "equal controls"
    )


def test_a_field_that_all_rows_share_is_named_though_another_one_differs() -> None:
    cfg = with_terms("events", damping=event(defects.half_the_same))
    (finding,) = run_checks(cfg, only=("randomization",)).findings
    assert (finding.manager, finding.term) == ("events", "damping")
    assert finding.what == "it changes dof_armature by the same in every row"


def test_a_task_that_takes_no_shorter_times_is_checked_as_it_is_and_a_note_says_so() -> None:
    cfg = with_terms("events", picky=event(defects.Picky, "interval", interval_range_s=(0.9, 0.9)))
    report = run_checks(cfg, only=("rollout",))
    assert report.is_clean
    (note,) = report.notes
    assert (note.check, note.manager, note.term) == ("construction", "events", "picky")
    assert note.what.startswith("episodes and timers are the task's own, so that fewer resets")
    assert "an interval of less than 0.5 s" in note.what


def test_a_draw_from_the_generator_of_a_cuda_device_is_noted_and_put_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    states = [torch.tensor([1, 2], dtype=torch.uint8)]
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: list(states))
    monkeypatch.setattr(torch.cuda, "set_rng_state_all", lambda given: states.__setitem__(slice(None), given))
    watch, place = GlobalRngWatch(), Place("rewards", "one")
    with global_rng_kept():
        before = global_rng_state()
        watch.note(place, before)
        assert watch.drew == {}
        states[0] = torch.tensor([1, 3], dtype=torch.uint8)
        watch.note(place, before)
    assert watch.drew == {place: "torch's CUDA"}
    assert states[0].tolist() == [1, 2]
