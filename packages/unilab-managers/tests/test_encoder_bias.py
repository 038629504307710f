"""Encoders that read wrong: what sees it, what is driven by it, and when it changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from action_support import control, driven_layout, same, step
from event_support import distinct, event, robot_cfg, run
from manager_support import Feed, MakeEnv, flag, group, ids

from unilab_core import ConfigError, ResetRejectedError, SceneEntityCfg
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ObservationTermCfg, TerminationTermCfg, mdp
from unilab_managers.mdp import randomize_encoder_bias

Position = mdp.JointPositionActionCfg
B = SceneEntityCfg(joint_names=("b",))
LAYOUT = {"layout": driven_layout("a", "b", default=(0.5, -1.0))}
SHOWN = {
    "obs": group(
        read=ObservationTermCfg(func=mdp.joint_pos, params={"biased": True}),
        relative=ObservationTermCfg(func=mdp.joint_pos_rel, params={"biased": True}),
        true=ObservationTermCfg(func=mdp.joint_pos),
    )
}


def bias(low: float, high: float | None = None, mode: str = "reset", **params: Any) -> EventTermCfg:
    limits = (low, low if high is None else high)
    return event(randomize_encoder_bias, mode, bias_range=limits, **params)


def values(env: ManagerBasedRlEnv) -> torch.Tensor:
    found = env.encoders.bias("robot")
    assert found is not None
    return found.clone()


# ---------------------------------------------------------------- what sees it


def test_observations_that_ask_for_it_see_it_and_others_do_not(make_env: MakeEnv) -> None:
    env = make_env(2, **LAYOUT, observations=SHOWN, events={"bias": bias(0.25, asset_cfg=B)})
    expected = [0.5, -0.75, 0.0, 0.25, 0.5, -1.0]
    assert env.observations()["obs"].tolist() == [expected, expected]


def test_joints_are_chosen_before_and_after_it_alike(make_env: MakeEnv) -> None:
    cfg = SceneEntityCfg(joint_names=("b", "a"), preserve_order=True)
    shown = group(
        read=ObservationTermCfg(func=mdp.joint_pos, params={"biased": True, "asset_cfg": cfg}),
        relative=ObservationTermCfg(func=mdp.joint_pos_rel, params={"biased": True, "asset_cfg": cfg}),
    )
    env = make_env(1, **LAYOUT, observations={"obs": shown}, events={"bias": bias(0.25, asset_cfg=B)})
    assert env.observations()["obs"].tolist() == [[-0.75, 0.5, 0.25, 0.0]]


def test_without_such_an_event_encoders_are_exact(make_env: MakeEnv) -> None:
    env = make_env(1, **LAYOUT, observations=SHOWN)
    assert env.encoders.bias("robot") is None
    assert env.observations()["obs"].tolist() == [[0.5, -1.0, 0.0, 0.0, 0.5, -1.0]]


# ---------------------------------------------------------------- what is driven by it


def test_a_target_is_one_of_the_encoder_so_the_joint_goes_to_the_target_less_the_bias(
    make_env: MakeEnv,
) -> None:
    actions = {"target": Position(scale=0.5, clip=(-1.0, 1.0))}
    env = make_env(1, **LAYOUT, actions=actions, events={"bias": bias(0.25, asset_cfg=B)})
    assert step(env, [0.0, 0.0]) == [[0.5, -1.25]]
    assert step(env, [-0.5, 3.0]) == [[0.25, 0.25]]
    assert step(env, [9.0, 9.0]) == [[1.0, 0.75]]  # the clip is one of targets


def test_on_the_real_engine_the_reading_comes_to_the_target() -> None:
    cfg = robot_cfg(
        {"bias": bias(0.2)},
        actions={"target": Position(offset=0.3)},
        observations=SHOWN,
        num_envs=1,
        episode_length_s=100.0,
    )
    with ManagerBasedRlEnv(cfg) as env, ManagerBasedRlEnv(cfg.model_copy(update={"events": {}})) as exact:
        for each in (env, exact):
            each.reset()
            # Weightless joints would take the target exactly: the same droop stays in both.
            run(each, 200)
        read, sure = env.observations()["obs"][0, :2], exact.observations()["obs"][0, :2]
        assert read.tolist() == pytest.approx(sure.tolist(), abs=0.02)
        true = env.observations()["obs"][0, 4:]
        torch.testing.assert_close(read - true, torch.tensor([0.2, 0.2]), atol=1e-6, rtol=0)


def test_a_relative_target_cancels_it(make_env: MakeEnv) -> None:
    actions = {"target": mdp.JointRelativePositionActionCfg()}
    env = make_env(1, **LAYOUT, actions=actions, events={"bias": bias(0.25)})
    assert step(env, [0.125, -0.5]) == [[0.625, -1.5]]


def test_a_dc_motor_follows_its_encoder_too(make_env: MakeEnv) -> None:
    curve = {"saturation_effort": 20.0, "velocity_limit": 10.0, "effort_limit": 8.0}
    actions = {"motor": mdp.DcMotorPositionActionCfg(**curve, stiffness=4.0, damping=0.0)}
    env = make_env(1, **LAYOUT, actions=actions, events={"bias": bias(0.25, asset_cfg=B)})
    assert step(env, [0.0, 0.0]) == [[0.0, 4.0 * -0.25]]


def test_an_effort_does_not_know_of_it(make_env: MakeEnv) -> None:
    env = make_env(1, **LAYOUT, actions={"push": mdp.JointEffortActionCfg()}, events={"bias": bias(0.25)})
    assert step(env, [1.0, 2.0]) == [[1.0, 2.0]]


# ---------------------------------------------------------------- when it changes


def test_each_row_and_joint_draws_its_own_within_the_range(make_env: MakeEnv) -> None:
    env = make_env(64, **LAYOUT, events={"bias": bias(-0.1, 0.3)})
    drawn = values(env)
    assert distinct(drawn) == 128
    assert drawn.min() >= -0.1
    assert drawn.max() <= 0.3
    assert drawn.min() < -0.08
    assert drawn.max() > 0.28


def test_repeated_resets_do_not_add_up_and_steps_change_nothing(make_env: MakeEnv) -> None:
    env = make_env(2, **LAYOUT, events={"bias": bias(0.25)})
    for _ in range(5):
        run(env, 2)
        env.reset()
        assert values(env).tolist() == [[0.25, 0.25]] * 2


def test_only_the_rows_of_a_reset_draw_anew(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(
        3,
        **LAYOUT,
        feed=feed,
        events={"bias": bias(-1.0, 1.0)},
        terminations={"end": TerminationTermCfg(func=flag)},
    )
    before = values(env)
    env.reset(ids(1))
    after = values(env)
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert (after[1] != before[1]).all()
    feed.probe([[0.0] * 3, [0.0] * 3, [0.0, 0.0, 1.0]])
    run(env, 1)
    assert torch.equal(values(env)[:2], after[:2])
    assert (values(env)[2] != after[2]).all()


def test_a_range_without_width_around_zero_is_exact_to_the_bit(make_env: MakeEnv) -> None:
    actions = {"target": Position(scale=0.3)}
    env = make_env(2, **LAYOUT, actions=actions, observations=SHOWN, events={"none": bias(0.0)})
    plain = make_env(2, **LAYOUT, actions=actions, observations=SHOWN)
    for _ in range(3):
        action = torch.full((2, 2), 0.7)
        assert torch.equal(env.step(action).obs["obs"], plain.step(action).obs["obs"])
        assert control(env) == control(plain)


def test_several_on_one_joint_add_up_in_one_reset(make_env: MakeEnv) -> None:
    events = {"all": bias(0.25), "more": bias(0.5, asset_cfg=B)}
    env = make_env(1, **LAYOUT, events=events)
    for _ in range(3):
        assert values(env).tolist() == [[0.25, 0.75]]
        env.reset()


def test_resets_start_from_what_startup_has_given(make_env: MakeEnv) -> None:
    events = {"made": bias(-1.0, 1.0, mode="startup"), "drawn": bias(0.5, asset_cfg=B)}
    env = make_env(4, **LAYOUT, events=events, reset=False)
    made = values(env)
    assert distinct(made) == 8
    for _ in range(3):
        env.reset()
        assert torch.equal(values(env)[:, 0], made[:, 0])
        assert torch.equal(values(env)[:, 1], made[:, 1] + 0.5)


def test_a_row_that_is_left_out_keeps_what_it_has(make_env: MakeEnv) -> None:
    term = bias(-1.0, 1.0).model_copy(update={"min_step_count_between_reset": 10})
    env = make_env(2, **LAYOUT, events={"rare": term})
    before = values(env)
    run(env, 3)
    env.reset()
    assert torch.equal(values(env), before)
    run(env, 8)
    env.reset()
    assert (values(env) != before).all()


def failing(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if env.step_counter == 3:
        raise ArithmeticError("no")


def test_a_rejected_reset_keeps_it(make_env: MakeEnv) -> None:
    events = {"bias": bias(-1.0, 1.0), "failing": EventTermCfg(func=failing, mode="reset")}
    env = make_env(2, **LAYOUT, events=events)
    run(env, 3)
    before = env.state_dict()
    with pytest.raises(ResetRejectedError):
        env.reset()
    assert same(env.state_dict(), before)


def test_a_state_carries_it(make_env: MakeEnv) -> None:
    def made(seed: int) -> ManagerBasedRlEnv:
        return make_env(2, **LAYOUT, events={"bias": bias(-1.0, 1.0)}, seed=seed)

    env, other = made(1), made(2)
    assert not torch.equal(values(env), values(other))
    other.load_state_dict(env.state_dict())
    assert torch.equal(values(env), values(other))


@pytest.mark.parametrize("mode", ["step", "interval"])
def test_it_is_drawn_with_a_reset_only(make_env: MakeEnv, mode: Any) -> None:
    params = {"bias_range": (0.0, 0.1)}
    timer = {"interval_range_s": (0.1, 0.1)} if mode == "interval" else {}
    term = EventTermCfg(func=randomize_encoder_bias, mode=mode, params=params, **timer)
    with pytest.raises(ConfigError, match=rf"'bias'.*in mode 'reset' or 'startup', not in mode '{mode}'"):
        make_env(1, **LAYOUT, events={"bias": term})


def test_an_inverted_range_is_refused(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match=r"'bias'.*bias_range \(0.5, -0.5\) is inverted"):
        make_env(1, **LAYOUT, events={"bias": bias(0.5, -0.5)})
