"""How docs/terms.md comes about: which terms there are, and what running one shows of its reads and writes."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch
from term_scripts import terms, trial

from unilab_managers import ManagerBasedRlEnv, mdp

Term, kind_of, public_terms = terms.Term, terms.kind_of, terms.public_terms
signature, unit, try_term = terms.signature, terms.unit, trial.try_term
TERMS = {term.name: term for term in public_terms()}


def seen(name: str) -> tuple[list[str], list[str]]:
    """Returns what a term of the library reads and writes."""
    shown = try_term(TERMS[name])
    return list(shown.reads), list(shown.writes)


@pytest.mark.parametrize(
    ("name", "reads", "writes"),
    [
        ("base_lin_vel", ["qpos", "qvel"], []),
        ("last_action", ["action"], []),
        ("generated_commands", ["command"], []),
        ("JointRelativePositionActionCfg", ["qpos"], []),
        ("UniformVelocityCommandCfg", ["qpos", "qvel"], []),
        ("track_ang_vel_z_exp", ["qvel", "command"], []),
        ("is_alive", ["outcome of the step"], []),
        ("time_out", ["episode length"], []),
        ("push_root", ["qvel", "qpos"], ["root velocity"]),
        ("apply_body_wrench", [], ["wrench"]),
        ("randomize_body_mass_and_inertia", [], ["`body_mass`", "`body_inertia`"]),
        ("reward_weight", ["rewards", "step counter"], ["weights of rewards"]),
    ],
)
def test_what_a_term_reads_and_writes_is_found_by_running_it(name, reads, writes):
    assert seen(name) == (reads, writes)


def test_what_a_recorder_reads_is_found_though_no_manager_calls_it_as_a_term():
    reads, _ = seen("EpisodeRecorder")
    assert {"qpos", "qvel", "action", "outcome of the step"} <= set(reads)


def test_settings_that_may_be_left_out_are_given_where_a_term_needs_one_of_them():
    assert seen("randomize_actuator_gains") == ([], ["`actuator_gainprm`", "`actuator_biasprm`"])


# ---------------------------------------------------------------- terms of a test


def lonely(env: ManagerBasedRlEnv, asset_cfg: object, riddle: complex) -> torch.Tensor:
    """Returns nothing that anybody could compute, (N,) m^2/s."""
    raise AssertionError("nobody knows what to call it with")


def failing(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the wrong shape."""
    return torch.zeros(1, 1)


def test_a_parameter_of_which_nothing_is_known_is_named_with_the_place_to_add_it():
    message = (
        "lonely: nobody has said what its parameter 'riddle': complex could be; add it to NAMED or TYPED"
    )
    with pytest.raises(LookupError, match=message):
        try_term(Term("lonely", "reward", lonely))


def test_a_term_that_works_in_no_environment_says_why():
    with pytest.raises(LookupError, match=r"failing: no environment could be built with it: .*\(1, 1\)"):
        try_term(Term("failing", "reward", failing))


def test_a_signature_leaves_out_what_a_manager_passes():
    assert signature(Term("lonely", "reward", lonely)) == "lonely(asset_cfg: object, riddle: complex)"
    assert signature(TERMS["joint_pos_limits"]) == (
        "joint_pos_limits(soft_factor: float, asset_cfg: SceneEntityCfg = SceneEntityCfg())"
    )
    assert unit(Term("lonely", "reward", lonely)) == "m^2/s"
    assert unit(TERMS["joint_vel"]) == "m/s or rad/s"


# ---------------------------------------------------------------- which terms there are


def test_a_module_says_by_its_name_of_which_kind_its_terms_are():
    kinds = {
        "observations_feet": "observation",
        "actions.dc_motor": "action",
        "joint_randomization": "randomization",
        "rewards": "reward",
        "labels": None,
        "action_history": "action",
        "feet": None,
    }
    assert {module: kind_of(module) for module in kinds} == kinds


def test_what_helps_to_write_terms_is_no_term():
    helpers = {"columns", "joint_units", "Range", "UniformRanges", "JointActionCfg", "JointActionTerm"}
    assert helpers <= set(mdp.__all__)
    assert helpers.isdisjoint(TERMS)
    assert "UniformVelocityCommand" not in TERMS  # which its config makes


def test_every_callable_of_the_library_is_a_term_or_known_to_be_none():
    """A new module whose name says no kind would leave its terms out without a word."""
    others = {name: getattr(mdp, name).__module__ for name in mdp.__all__ if name not in TERMS}
    outside = {name for name, module in others.items() if kind_of(module.rpartition(".mdp.")[2]) is None}
    assert {others[name].rpartition(".")[2] for name in outside} <= {
        "builtins",
        "contact_sensors",
        "feet",
        "labels",
    }


def test_a_library_of_nobody_has_no_terms():
    empty = ModuleType("nobody")
    empty.__all__ = ["lonely"]  # type: ignore[attr-defined]
    empty.lonely = lonely  # type: ignore[attr-defined]
    assert list(public_terms(empty)) == []
