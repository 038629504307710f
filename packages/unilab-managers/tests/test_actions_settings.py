"""Joint actions: settings by joint, what they say about themselves, what they cost, and the caller's tensor."""

import math
import re
from typing import Any

import pytest
import torch
from action_support import Operators, driven_layout, same, step
from hypothesis import given
from hypothesis import strategies as st
from manager_support import MakeEnv, mujoco_cfg

from unilab_core import ConfigError
from unilab_managers import mdp
from unilab_managers.managers.action_manager import ActionTerm, ActionTermCfg
from unilab_managers.mdp.actions.joint_names import by_joint

Position, Relative = mdp.JointPositionActionCfg, mdp.JointRelativePositionActionCfg
Velocity, Effort = mdp.JointVelocityActionCfg, mdp.JointEffortActionCfg
ABC = ("a", "b", "c")
INF = float("inf")


def test_settings_say_what_each_column_does(make_env: MakeEnv) -> None:
    terms = {
        "arm": Position(
            joint_names=("b", "a"),
            preserve_order=True,
            scale={"a": 0.5},
            clip={"b": (-1.0, 2.0)},
            delay_max_lag=3,
        ),
        "leg": Relative(joint_names=("c",)),
    }
    env = make_env(1, layout=driven_layout(*ABC, default=(0.25, 0.5, 0.0)), actions=terms)
    assert env.action_manager.settings == {
        "arm:b": {"scale": 1.0, "offset": 0.5, "clip": (-1.0, 2.0), "delay": (0, 3)},
        "arm:a": {"scale": 0.5, "offset": 0.25, "clip": (None, None), "delay": (0, 3)},
        "leg:c": {"scale": 1.0, "offset": "joint position", "clip": (None, None), "delay": (0, 0)},
    }


class Doubles(ActionTerm):
    """A term of somebody else: drives the first actuator by twice the action, and notes what was accepted."""

    labels = ("x",)
    control_ids = slice(0, 1)
    bounds = (torch.zeros(1), torch.ones(1))

    def __init__(self) -> None:
        self.accepted: list[float] = []

    def process(self, actions: torch.Tensor) -> torch.Tensor:
        return actions * 2

    def accept(self, actions: torch.Tensor) -> None:
        self.accepted += actions.flatten().tolist()


class DoublesCfg(ActionTermCfg):
    """Makes it."""

    def make(self, env: Any, name: str) -> ActionTerm:
        return Doubles()


def test_a_term_of_somebody_else_is_told_which_actions_were_accepted(make_env: MakeEnv) -> None:
    terms = {"servo": Position(joint_names=("b",)), "double": DoublesCfg()}
    env = make_env(1, layout=driven_layout("a", "b"), actions=terms)
    assert env.action_manager.settings["double:x"] == {}
    term = env.action_manager._action_terms["double"]
    assert isinstance(term, Doubles)
    assert term.accepted == []  # what the dry first reset did is undone
    assert step(env, [1.0, 3.0]) == [[6.0, 1.0]]
    env.action_manager.process(torch.tensor([[5.0, 5.0]]))
    assert term.accepted == [3.0]


def test_one_term_that_drives_all_actuators_costs_two_operators(make_env: MakeEnv) -> None:
    layout = driven_layout(*ABC, ranges=dict.fromkeys(ABC, (-1.0, 1.0)))
    manager = make_env(4, layout=layout, actions={"term": Position(scale=0.5)}).action_manager
    actions = torch.ones(4, 3)
    with Operators() as operators:
        manager.process(actions)
    assert operators.names == ["addcmul", "clamp_"]
    with Operators() as operators:
        manager.accept()
    assert operators.names == ["copy_", "copy_"]


def test_processing_is_pure(make_env: MakeEnv) -> None:
    terms = {"b": Position(joint_names=("b",), delay_max_lag=2), "a": Relative(joint_names=("a",))}
    env = make_env(3, layout=driven_layout(*ABC), actions=terms)
    step(env, *[[1.0, 2.0]] * 3)
    before = env.state_dict()
    first = env.action_manager.process(torch.full((3, 2), 4.0)).clone()
    again = env.action_manager.process(torch.full((3, 2), 4.0))
    assert torch.equal(first, again)
    assert same(env.state_dict(), before)


def test_action_and_prev_action_stay_the_same_tensors(make_env: MakeEnv) -> None:
    env = make_env(1)
    action, prev_action = env.action_manager.action, env.action_manager.prev_action
    step(env, [1.0, 2.0])
    step(env, [3.0, 4.0])
    assert (action.tolist(), prev_action.tolist()) == ([[3.0, 4.0]], [[1.0, 2.0]])


# ---------------------------------------------------------------- layouts of the caller's tensor


@pytest.mark.parametrize("kind", ["slice", "transposed", "expanded"])
def test_qa_046_a_strided_action_is_read_by_its_strides(make_env: MakeEnv, kind: str) -> None:
    strided = {
        "slice": torch.arange(32.0).reshape(4, 8)[:, 3:6],
        "transposed": torch.arange(12.0).reshape(3, 4).t(),
        "expanded": torch.tensor([1.0, 2.0, 3.0]).expand(4, 3),
    }[kind]
    if kind == "transposed":
        assert strided[0].tolist() == [0.0, 4.0, 8.0]
    terms = {"ca": Position(joint_names=("c", "a"), preserve_order=True), "b": Relative(joint_names=("b",))}
    manager = make_env(4, layout=driven_layout(*ABC), actions=terms).action_manager
    before = strided.clone()
    got = manager.process(strided).clone()
    assert torch.equal(got, manager.process(strided.contiguous()))
    assert got[0].tolist() == [strided[0, 1], strided[0, 2], strided[0, 0]]
    manager.process(strided)
    manager.accept()
    assert torch.equal(manager.action, before)
    assert torch.equal(strided, before)


# ---------------------------------------------------------------- settings by joint

NAMES = st.lists(st.sampled_from(["aa", "ab", "ba", "bb", "c"]), min_size=1, unique=True)
PATTERNS = st.dictionaries(
    st.sampled_from(["a.", ".b", "b.*", "c", "aa", "[ab]b", "zz"]), st.integers(2, 9).map(float), max_size=3
)


@given(names=NAMES, values=PATTERNS)
def test_every_joint_gets_the_value_of_the_one_expression_that_matches_it(
    names: list[str], values: dict[str, float]
) -> None:
    matching = {n: [p for p in values if re.fullmatch(p, n)] for n in names}
    idle = [p for p in values if not any(p in found for found in matching.values())]
    if idle or any(len(found) > 1 for found in matching.values()):
        with pytest.raises(ConfigError, match=r"scale: .* (matches nothing|is matched by two)"):
            by_joint(values, names, [0.0] * len(names), "scale")
        return
    got = by_joint(values, names, [-float(i) for i in range(len(names))], "scale")
    assert got == [values[m[0]] if (m := matching[n]) else -float(i) for i, n in enumerate(names)]


@given(names=NAMES, value=st.floats(allow_nan=False))
def test_one_value_is_every_joints(names: list[str], value: float) -> None:
    assert by_joint(value, names, [0.0] * len(names), "scale") == [value] * len(names)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"clip": {"a": (1.0, -1.0)}}, r"clip \(1.0, -1.0\) is inverted"),
        ({"delay_min_lag": 3, "delay_max_lag": 2}, "delay_min_lag 3 is above delay_max_lag 2"),
        ({"delay_min_lag": -1}, "delay_min_lag"),
        ({"delay_max_lag": 1.5}, "delay_max_lag"),
        ({"scale": "big"}, "scale"),
        ({"scale": {"a": math.nan}}, "scale"),
        ({"offset": "home"}, "offset"),
    ],
)
def test_settings_that_make_no_sense_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Position(**fields)


def test_every_kind_survives_yaml() -> None:
    cfg = mujoco_cfg(
        actions={
            "a": Position(scale={"sl.*": 2.0}, clip={"slider": (-1.0, 1.0)}, joint_names=("slider",)),
            "b": Relative(joint_names=("hinge",), delay_min_lag=1, delay_max_lag=2),
        }
    )
    assert type(cfg).from_yaml(cfg.to_yaml()) == cfg
    assert cfg.with_({"actions.a.offset": 0.5}).actions["a"] == Position(
        scale={"sl.*": 2.0}, clip={"slider": (-1.0, 1.0)}, joint_names=("slider",), offset=0.5
    )


def test_a_relative_action_takes_no_offset() -> None:
    with pytest.raises(ConfigError, match="unknown key 'offset'"):
        Relative(offset=0.5)  # type: ignore[call-arg]
