"""Actions: scale, then offset, then clip; which actuators they drive; and the last two raw actions."""

from typing import Any

import pytest
import torch
from action_support import same
from manager_support import Feed, MakeEnv, fake_env, flag, group, ids, layout_of, mujoco_cfg, zeros

from unilab_core import ConfigError, NonFiniteError
from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg, RewardTermCfg, TerminationTermCfg, mdp
from unisim.testing import FakeBackend

Effort = mdp.JointEffortActionCfg


def control(rows: list[list[float]], *joints: str, **terms: Effort) -> list[Any]:
    """Returns the control that the backend got for raw actions of as many rows."""
    from manager_support import base_cfg

    layout = layout_of(*joints)
    backend = FakeBackend(layout, len(rows))
    with ManagerBasedRlEnv(base_cfg(actions=terms or {"effort": Effort()}), backend=backend) as env:
        env.reset()
        env.step(torch.tensor(rows))
        return backend.get_state_views(["ctrl"])["ctrl"].tolist()


def test_scale_comes_before_offset_and_offset_before_clip() -> None:
    term = Effort(scale=2.0, offset=0.25, clip=(-0.5, 0.5))
    # 2 x 0.25 + 0.25 = 0.75 -> 0.5;  2 x -0.125 + 0.25 = 0;  2 x -1 + 0.25 = -1.75 -> -0.5
    assert control([[0.25], [-0.125], [-1.0]], "a", effort=term) == [[0.5], [0.0], [-0.5]]


def test_without_a_clip_the_actuators_own_range_holds() -> None:
    assert control([[3.0, -3.0], [0.5, -0.25]], "a", "b") == [[1.0, -1.0], [0.5, -0.25]]


def test_settings_by_joint_leave_the_others_alone() -> None:
    term = Effort(scale={"left_.*": 0.5}, offset={"right": -0.5}, clip={"left_b": (-0.25, 0.25)})
    assert control([[1.0, 1.0, 1.0]], "left_a", "left_b", "right", effort=term) == [[0.5, 0.25, 0.5]]


def test_a_whole_number_is_a_scale() -> None:
    assert control([[0.25]], "a", effort=Effort(scale=2, offset={"a": 0})) == [[0.5]]


@pytest.mark.parametrize(("preserve_order", "expected"), [(True, [0.2, 0.3, 0.1]), (False, [0.1, 0.2, 0.3])])
def test_qa_040_columns_follow_the_names_only_if_asked(preserve_order: bool, expected: list[float]) -> None:
    term = Effort(joint_names=("c", "a", "b"), preserve_order=preserve_order)
    got = control([[0.1, 0.2, 0.3]], "a", "b", "c", effort=term)
    assert got == [pytest.approx(expected)]


def test_qa_040_settings_by_joint_follow_the_order_of_the_columns() -> None:
    settings: dict[str, Any] = {"scale": {"c": 3.0, "a": 2.0}, "offset": {"b": 0.25}}
    term = Effort(joint_names=("c", "a", "b"), preserve_order=True, **settings)
    assert control([[0.25, 0.125, 0.5]], "a", "b", "c", effort=term) == [[0.25, 0.75, 0.75]]


def test_terms_stand_side_by_side_and_undriven_controls_stay_zero() -> None:
    terms = {"last": Effort(joint_names=("c",)), "first": Effort(joint_names=("a",), scale=0.5)}
    assert control([[0.75, 0.5]], "a", "b", "c", **terms) == [[0.25, 0.0, 0.75]]


def test_labels_name_term_and_joint(make_env: MakeEnv) -> None:
    terms = {"last": Effort(joint_names=("b", "c")), "first": Effort(joint_names=("a",))}
    env = make_env(layout=layout_of("a", "b", "c"), actions=terms)
    assert env.num_actions == 3
    assert env.action_manager.labels == ("last:b", "last:c", "first:a")
    assert env.action_manager.active_terms == ("last", "first")


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({}, "actions: there is no term"),
        (
            {"e": Effort(joint_names=("slidr",))},
            "actions term 'e': .*'slidr' matches nothing; did you mean 'slider'",
        ),
        (
            {"e": Effort(joint_names=())},
            r"actions term 'e': joint_names \(\) selects no joint of 'robot' with an actuator",
        ),
        (
            {"e": Effort(scale={"hing": 2.0})},
            "actions term 'e': scale: 'hing' matches nothing; did you mean 'hinge'",
        ),
        ({"e": Effort(offset={"arm": 2.0})}, "actions term 'e': offset: 'arm' matches nothing; valid names"),
        (
            {"e": Effort(clip={"hing": (0.0, 1.0)})},
            "actions term 'e': clip: 'hing' matches nothing; did you mean 'hinge'",
        ),
        (
            {"e": Effort(scale={"h.*": 2.0, "hinge": 3.0})},
            "actions term 'e': scale: 'hinge' is matched by two of",
        ),
        (
            {"e": Effort(joint_names=("slider",), offset={"hinge": 2.0})},
            "actions term 'e': offset: 'hinge' matches nothing; valid names: 'slider'",
        ),
        ({"e": Effort(scale=0.0)}, "actions term 'e': a scale of 0"),
        ({"e": Effort(scale={"hinge": 0.0})}, "actions term 'e': a scale of 0"),
        (
            {"one": Effort(), "two": Effort(joint_names=("hinge",))},
            "actions term 'two' drives actuator 'robot/hinge', which 'one' drives already",
        ),
        ({"e": Effort(joint_names=("hinge", "h.*"))}, "actions term 'e': .*'hinge' is matched by two"),
        ({"e": Effort(joint_names=("(",))}, "actions term 'e': .*not a regular expression"),
        ({"e": Effort(scale={"(": 2.0})}, "actions term 'e': .*not a regular expression"),
    ],
)
def test_actions_that_do_not_fit_the_model_are_refused(
    make_env: MakeEnv, terms: dict[str, Effort], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(actions=terms)


def test_an_entity_without_actuators_is_refused(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match="selects no joint of 'robot' with an actuator"):
        make_env(layout=layout_of("a", actuated=[]))


def test_bounds_are_the_raw_actions_that_reach_the_bounds_of_the_control(make_env: MakeEnv) -> None:
    terms = {
        "own": Effort(joint_names=("a",), scale=0.5),
        "turned": Effort(joint_names=("b",), scale=-2.0, offset=0.5, clip=(-0.5, 1.5)),
    }
    low, high = make_env(layout=layout_of("a", "b"), actions=terms).action_bounds
    assert low.tolist() == [-2.0, -0.5]
    assert high.tolist() == [2.0, 0.5]


def test_the_bounds_of_an_unlimited_motor_are_infinite() -> None:
    with mujoco_cfg(actions={"effort": Effort(scale=-2.0)}).build(
        backend="mujoco", device="cpu", seed=0, autoreset=True
    ) as env:
        low, high = env.action_bounds
    assert low.tolist() == [-0.5, float("-inf")]
    assert high.tolist() == [0.5, float("inf")]


def test_action_and_prev_action_are_raw(make_env: MakeEnv) -> None:
    env = make_env(1, actions={"effort": Effort(scale=0.5, offset=0.25)})
    manager = env.action_manager
    for step in (1.0, 2.0, 3.0):
        env.step(torch.tensor([[step, -step]]))
    assert manager.action.tolist() == [[3.0, -3.0]]
    assert manager.prev_action.tolist() == [[2.0, -2.0]]


def test_the_callers_tensor_is_neither_kept_nor_changed(make_env: MakeEnv) -> None:
    env = make_env(1)
    actions = torch.tensor([[3.0, -3.0]])
    env.step(actions)
    assert actions.tolist() == [[3.0, -3.0]]
    actions.zero_()
    assert env.action_manager.action.tolist() == [[3.0, -3.0]]


def action_rate(env: ManagerBasedRlEnv) -> torch.Tensor:
    manager = env.action_manager
    return -(manager.action - manager.prev_action).square().sum(dim=1)


def test_qa_042_a_reset_row_starts_from_actions_of_zero(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(
        2,
        feed=feed,
        observations={"obs": group(last=ObservationTermCfg(func=mdp.last_action))},
        rewards={"rate": RewardTermCfg(func=action_rate, weight=1.0)},
        terminations={"end": TerminationTermCfg(func=flag)},
        scale_rewards_by_dt=False,
    )
    one = torch.ones(2, 2)
    for _ in range(3):
        env.step(one)
    feed.probe([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    state = env.step(one)
    assert state.reward.tolist() == [0.0, 0.0]
    assert state.obs["obs"].tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert state.final_observation is not None
    assert state.final_observation["obs"].tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert env.action_manager.prev_action.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    feed.probe([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    assert env.step(one).reward.tolist() == [0.0, -2.0]  # dim 2, from zeros


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_rejected_action_leaves_the_buffers_and_the_environment_as_they_were(
    make_env: MakeEnv, bad: float
) -> None:
    env, twin = make_env(2), make_env(2)
    good, better = torch.full((2, 2), 0.5), torch.full((2, 2), 0.25)
    wrong = good.clone()
    wrong[1, 0] = bad
    for each in (env, twin):
        each.step(good)
    before = env.state_dict()
    for _ in range(2):
        with pytest.raises(NonFiniteError, match=r"actions is not finite at rows \[1\], columns \[0\]"):
            env.step(wrong)
        assert same(env.state_dict(), before)
        assert env.action_manager.action.tolist() == good.tolist()
        assert env.action_manager.prev_action.tolist() == [[0.0, 0.0]] * 2
    for each in (env, twin):
        each.step(better)
    assert torch.equal(env.scene["robot"].data.joint_vel, twin.scene["robot"].data.joint_vel)
    assert torch.equal(env.action_manager.prev_action, twin.action_manager.prev_action)
    assert env.episode_length.tolist() == [2, 2]


def test_a_partial_reset_clears_its_rows_only(make_env: MakeEnv) -> None:
    env = make_env(3)
    env.step(torch.full((3, 2), 0.5))
    env.step(torch.full((3, 2), 0.25))
    env.reset(ids(2, 0))
    assert env.action_manager.action.tolist() == [[0.0, 0.0], [0.25, 0.25], [0.0, 0.0]]
    assert env.action_manager.prev_action.tolist() == [[0.0, 0.0], [0.5, 0.5], [0.0, 0.0]]


def test_steps_inside_and_outside_inference_mode_agree() -> None:
    def run(inference: bool) -> torch.Tensor:
        with fake_env(2) as env:
            for step in range(4):
                with torch.inference_mode(inference and step % 2 == 0):
                    env.step(torch.full((2, 2), 0.125))
                    env.reset(ids(1))
            env.step(zeros(env))
            return env.scene["robot"].data.joint_pos.clone()

    assert torch.equal(run(True), run(False))
