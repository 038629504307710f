"""Around the checks of a task: `check_task`, how findings are told, and the command `unilab check`."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import Any

import check_defects as defects
import check_support as support
import pytest
import torch
from check_support import observation, reward, with_terms
from manager_support import Run

from unilab_core import CapabilityError, ConfigError, TaskSpec, registry
from unilab_managers.checking.findings import Finding, merge
from unilab_managers.checking.running import CHECKS, run_checks
from unilab_managers.managers.manager_base import BoundTerm
from unilab_managers.testing import check_task


def test_the_global_generators_are_as_before() -> None:
    torch.manual_seed(5)
    random.seed(5)
    before = torch.get_rng_state(), random.getstate()
    run_checks(
        with_terms("observations", seeded=observation(defects.noisy_from_torch)), only=("determinism",)
    )
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1] == random.getstate()


def test_terms_are_called_as_before_when_checks_are_done() -> None:
    before = BoundTerm.__call__
    run_checks(with_terms("rewards", seeded=reward(defects.overflows)), only=("rollout", "determinism"))
    assert BoundTerm.__call__ is before


def test_check_task_raises_with_every_finding_on_a_line() -> None:
    cfg = with_terms("rewards", zero=reward(defects.zero), none=reward(defects.speed, 0.0))
    with pytest.raises(AssertionError) as caught:
        check_task(cfg, only=("dead-rewards",))
    head, *lines = str(caught.value).splitlines()
    assert head == "ManagerBasedRlEnvCfg: 2 findings"
    assert [line.split(": ")[:2] for line in lines] == [
        ["  dead-rewards", "rewards/zero"],
        ["  dead-rewards", "rewards/none"],
    ]


def test_check_task_returns_the_report_of_a_clean_task() -> None:
    report = check_task(support.sound(), only=("spaces", "description"), overrides=["decimation=1"])
    assert report.checks == ("spaces", "description")
    assert report.is_clean


def test_the_seed_is_the_first_seed() -> None:
    assert run_checks(support.sound(), seed=7, only=("spaces",)).seed == 7


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"only": ("purty",)}, ConfigError, "unknown check 'purty'; did you mean 'purity'?"),
        ({"skip": tuple(CHECKS)}, ConfigError, "every check is left out"),
        ({"num_envs": 2}, ConfigError, "num_envs is 2; expected at least 3"),
        ({"overrides": ["rewards.neer.weight=2"]}, ConfigError, "neer"),
        ({"backend": "nonsense"}, CapabilityError, "nonsense"),
    ],
)
def test_wrong_arguments_are_refused_before_anything_is_built(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words.replace("?", r"\?")):
        run_checks(support.sound(), **arguments)


def test_what_the_backend_cannot_do_is_no_finding() -> None:
    with pytest.raises(CapabilityError):
        run_checks(support.sound(), device="meta", only=("spaces",))


def test_a_symptom_is_told_with_the_finding_about_its_term_and_stands_alone_without_one() -> None:
    root = Finding("purity", "rewards", "a", "w", "f")
    same = Finding("determinism", "rewards", "a", "x", "f", "symptom")
    other = Finding("determinism", "rewards", "b", "x", "f", "symptom")
    nobodys = Finding("transfers", "", "", "x", "f", "symptom")
    note = Finding("transfers", "", "", "n", "f", "note")
    findings, notes = merge([same, other, root, root, nobodys, note])
    assert [(item.check, item.term, item.also) for item in findings] == [
        ("purity", "a", ("determinism", "transfers")),
        ("determinism", "b", ()),
    ]
    assert notes == (note,)


def test_an_echo_is_told_with_what_can_cause_it_and_the_first_without_a_cause_stands_for_all() -> None:
    name = Finding("description", "observations", "obs/a", "w", "f")
    cause = Finding("purity", "events", "e", "w", "f")
    echoes = [
        Finding("determinism", "observations", term, "x", "f", "echo") for term in ("obs/a", "obs/b", "obs/c")
    ]
    findings, _ = merge([*echoes, name, cause])
    assert [(item.check, item.term, item.also) for item in findings] == [
        ("description", "obs/a", ("determinism",)),
        ("purity", "e", ("determinism at observations/obs/b", "determinism at observations/obs/c")),
    ]
    findings, _ = merge(echoes)
    assert [(item.term, item.also) for item in findings] == [
        ("obs/a", ("determinism at observations/obs/b", "determinism at observations/obs/c"))
    ]


# ---------------------------------------------------------------- the command line


@pytest.fixture
def run(unilab: Run) -> Run:
    """Runs the command with two tasks."""
    registry.register_task(TaskSpec("sound", "check_support:sound"))
    registry.register_task(TaskSpec("defective", "check_defects:defective"))
    return partial(unilab, "check")


def test_the_command_says_that_a_task_is_clean(run: Run) -> None:
    code, out, err = run("Sound", "--only", "spaces")
    assert (code, err) == (0, "")
    assert out.splitlines() == ["sound on mujoco, cpu: 11 rows, seed 0; 1 checks", "", "CLEAN: no findings"]


def test_the_command_shows_findings_in_a_table_and_exits_with_1(run: Run) -> None:
    code, out, err = run("defective", "--only", "dead-rewards", "--num-envs", "5")
    assert (code, err) == (1, "")
    assert "Findings" in out
    assert "dead-rewards  rewards/zero" in out
    assert out.splitlines()[-1] == "1 finding"
    assert max(map(len, out.splitlines())) <= 100


def test_json_holds_the_findings_and_how_it_was_checked(run: Run) -> None:
    code, out, err = run("defective", "--only", "dead-rewards", "--seed", "3", "--json")
    data = json.loads(out)
    assert (code, err, data["is_clean"]) == (1, "", False)
    assert [data[name] for name in ("task", "backend", "device", "num_envs", "seed", "checks")] == [
        *("defective", "mujoco", "cpu", 11, 3),
        ["dead-rewards"],
    ]
    (finding,) = data["findings"]
    assert sorted(finding) == ["also", "check", "fix", "manager", "term", "what"]
    assert (finding["manager"], finding["term"], data["notes"]) == ("rewards", "zero", [])


def test_an_override_can_mend_what_was_found(run: Run) -> None:
    code, _, _ = run("defective", "--only", "dead-rewards", "--set", "rewards.zero.func=check_defects:speed")
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("sund",), "did you mean 'sound'?"),
        (("sound", "--only", "purty"), "did you mean 'purity'?"),
        (("sound", "--skip", "nothing-of-the-sort"), "unknown check"),
        (("sound", "--num-envs", "2"), "2 is not in the range"),
        (("sound", "--set", "rewards.near.wieght=1"), "did you mean 'weight'?"),
    ],
)
def test_wrong_input_is_one_message_and_exit_code_2(run: Run, arguments: tuple[str, ...], words: str) -> None:
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Traceback" not in err
