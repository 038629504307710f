"""`unilab check` finds nothing on the tasks that are shipped, and what is done to one of them is found."""

from __future__ import annotations

import pytest

from unilab_managers.checking.running import CHECKS, run_checks
from unilab_managers.testing import check_task


@pytest.mark.parametrize("task", ["cartpole-balance", "cartpole-swingup", "velocity-flat-quadruped"])
def test_a_shipped_task_has_no_findings_and_no_notes(task: str) -> None:
    report = check_task(task)
    assert report.checks == tuple(CHECKS)
    assert report.notes == ()


def test_a_sideward_command_without_width_is_a_note_for_both_groups_that_show_it() -> None:
    report = run_checks(
        "velocity-flat-quadruped",
        overrides=["commands.twist.lin_vel_y=[0.0, 0.0]"],
        only=("constant-columns", "dead-rewards"),
    )
    assert report.is_clean
    assert [(note.term, note.what.partition(": ")[2]) for note in report.notes] == [
        ("obs/command", "command[lin_vel_y] = 0"),
        ("critic/command", "command[lin_vel_y] = 0"),
    ]


def test_a_push_that_never_comes_and_a_friction_that_no_contact_uses_are_found() -> None:
    """The feet's contacts have three dimensions: there is no friction against rolling in them."""
    report = run_checks(
        "velocity-flat-quadruped",
        overrides=["events.push.interval_range_s=[20.02, 30.0]", "events.foot_friction.params.axes=['roll']"],
        only=("silent-events", "randomization"),
    )
    assert {(f.check, f.term) for f in report.findings} == {
        ("silent-events", "push"),
        ("randomization", "foot_friction"),
    }


def test_the_command_line_says_so(cli) -> None:
    done = cli("check", "cartpole-balance", "--only", "rollout", "--only", "description")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("CLEAN: no findings\n")
