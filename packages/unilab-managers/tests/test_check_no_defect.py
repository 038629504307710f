"""`unilab check`: what looks like a defect and is none, or is worth a note."""

from __future__ import annotations

from typing import Any

import check_defects as defects
import check_support as support
import pytest
from check_support import event, found_in, observation, reward, with_terms

from unilab_core import SceneEntityCfg
from unilab_managers import CurriculumTermCfg, EventTermCfg, ObservationTermCfg, mdp
from unilab_managers.checking.running import run_checks
from unilab_managers.checking.under_test import TaskUnderTest


@pytest.mark.parametrize(
    "func",
    [defects.fills_in, defects.reads_a_helper, defects.KeepsWhatItNeverLooksAt],
    ids=lambda f: f.__name__,
)
def test_what_is_alike_but_no_defect_is_not_found(func: Any) -> None:
    report = run_checks(
        with_terms("rewards", seeded=reward(func)), only=("purity", "reset-isolation", "transfers")
    )
    assert [finding.in_text() for finding in report.findings] == []


POSITIONS = mdp.DcMotorPositionActionCfg(
    stiffness=4.0,
    damping=0.1,
    saturation_effort=10.0,
    velocity_limit=5.0,
    effort_limit={"slider": 10.0, "hinge": 1.0},
)


@pytest.mark.parametrize("reader", ["observation", "action"])
def test_an_encoder_bias_that_something_reads_is_no_finding(reader: str) -> None:
    cfg = with_terms("events", bias=event(mdp.randomize_encoder_bias, params={"bias_range": (-0.1, 0.1)}))
    if reader == "observation":
        shown = ObservationTermCfg(func=mdp.joint_pos_rel, params={"biased": True})
        cfg = with_terms("observations", cfg=cfg, shown=shown)
    else:
        cfg = with_terms("actions", cfg=cfg, effort=POSITIONS)
    assert run_checks(cfg, only=("randomization",)).is_clean


@pytest.mark.parametrize(
    ("bias_range", "words"), [((0.0, 0.0), "leaves"), ((0.1, 0.1), "by the same in every row")]
)
def test_an_encoder_bias_without_width_is_a_note(bias_range: tuple[float, float], words: str) -> None:
    bias = event(mdp.randomize_encoder_bias, params={"bias_range": bias_range})
    shown = ObservationTermCfg(func=mdp.joint_pos_rel, params={"biased": True})
    cfg = with_terms("observations", cfg=with_terms("events", bias=bias), shown=shown)
    report = run_checks(cfg, only=("randomization",))
    assert report.is_clean
    (note,) = report.notes
    assert (note.term, words in note.what) == ("bias", True)


def test_a_command_whose_range_is_a_point_is_a_note() -> None:
    cfg = with_terms("commands", place=support.PlaceCfg(place=(0.3, 0.3), resampling_time_range=(0.3, 0.5)))
    report = run_checks(cfg, only=("constant-columns",))
    assert report.is_clean
    (note,) = report.notes
    assert (note.manager, note.term) == ("observations", "obs/place")
    assert note.what == "constant, for its command's range has no width: place[place] = 0.3"


@pytest.mark.parametrize(
    ("mass_range", "words"), [((1.0, 1.0), "leaves"), ((1.5, 1.5), "by the same in every row")]
)
def test_a_randomisation_whose_range_is_a_point_is_a_note(
    mass_range: tuple[float, float], words: str
) -> None:
    term = event(mdp.randomize_body_mass_and_inertia, "startup", params={"mass_range": mass_range})
    report = run_checks(with_terms("events", mass=term), only=("randomization",))
    assert report.is_clean
    (note,) = report.notes
    assert (note.manager, note.term) == ("events", "mass")
    assert words in note.what


def test_a_reward_that_a_curriculum_switches_on_late_is_judged_by_what_it_gives_then() -> None:
    stages = ({"step": 10_000, "weight": 1.0},)
    curriculum = {
        "late": CurriculumTermCfg(
            func=mdp.reward_weight, mode="step", params={"reward_name": "late", "stages": stages}
        )
    }
    cfg = with_terms("rewards", late=reward(defects.speed, 0.0), never=reward(defects.speed, 0.0))
    report = run_checks(cfg.model_copy(update={"curriculum": curriculum}), only=("dead-rewards",))
    assert found_in(report) == {("dead-rewards", "rewards", "never")}


@pytest.mark.parametrize("settings", [{"resample_on_reset": False}, {"is_global_time": True}])
def test_a_long_interval_that_runs_on_across_episodes_fires(settings: dict[str, Any]) -> None:
    term = event(support.kick, "interval", interval_range_s=(2.0, 3.0), **settings)
    assert run_checks(with_terms("events", seeded=term), only=("silent-events",)).is_clean


def test_an_interval_as_long_as_the_episode_fires() -> None:
    term = event(support.kick, "interval", interval_range_s=(1.0, 1.0))
    assert run_checks(with_terms("events", seeded=term), only=("silent-events",)).is_clean


@pytest.mark.parametrize(
    ("steps", "findings", "notes"), [(50, 0, 0), (51, 0, 1), (50_000, 0, 1), (50_001, 1, 0)]
)
def test_an_event_that_skips_episodes_is_a_note_until_it_hardly_ever_comes(
    steps: int, findings: int, notes: int
) -> None:
    term = event(support.damping, min_step_count_between_reset=steps)
    report = run_checks(with_terms("events", damping=term), only=("silent-events",))
    assert (len(report.findings), len(report.notes)) == (findings, notes)


def wrench(duration_s: float, cooldown_s: float) -> EventTermCfg:
    """Pushes the arm again and again."""
    params = {
        "asset_cfg": SceneEntityCfg(body_names=("arm",)),
        "force_range": (-1.0, 1.0),
        "torque_range": (0.0, 0.0),
        "duration_range_s": (duration_s, duration_s),
        "cooldown_range_s": (cooldown_s, cooldown_s),
    }
    return event(mdp.apply_body_wrench, "step", params=params)


@pytest.mark.parametrize(("cooldown_s", "clean"), [(0.5, True), (1.5, False)])
def test_a_wrench_whose_cool_down_outlasts_the_episode_never_acts(cooldown_s: float, clean: bool) -> None:
    term = wrench(duration_s=0.1, cooldown_s=cooldown_s)
    report = run_checks(with_terms("events", seeded=term), only=("silent-events",))
    assert report.is_clean is clean
    if not clean:
        (finding,) = report.findings
        assert (finding.term, "never acts in an episode of 50 steps" in finding.what) == ("seeded", True)


def test_a_single_column_needs_a_unit_and_no_name() -> None:
    cfg = with_terms("observations", one=observation(defects.one_column))
    (finding,) = run_checks(cfg, only=("description",)).findings
    assert finding.what == "one_column gives its 1 column no units"


def test_nothing_is_claimed_of_bits_where_a_device_does_not_promise_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TaskUnderTest, "is_exact", False)
    terms = {"seeded": reward(defects.SharesOneNumber), "never_forgets": reward(defects.NeverForgets)}
    checks = ("reset-isolation", "determinism", "randomization")
    report = run_checks(with_terms("rewards", **terms), only=checks)
    assert report.is_clean
    assert tuple(note.check for note in report.notes) == checks
    assert all(note.what.endswith("on cpu: nothing promises the same bits there") for note in report.notes)


def test_a_sustained_wrench_may_look_at_rows_when_it_is_due() -> None:
    term = wrench(duration_s=0.02, cooldown_s=0.02)
    assert run_checks(with_terms("events", wrench=term), only=("transfers",)).is_clean
