"""The curriculum terms of the library: stages by the step counter, and ranges by tracking."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from command_support import BareCfg, asked, floating, same, steps, velocity_cfg
from manager_support import Feed, MakeEnv, base_cfg, calls, column, flag, ids, noted_event, ones, zeros

from unilab_core.errors import ConfigError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, RewardTermCfg, TerminationTermCfg, mdp
from unilab_managers.cfg.curriculum import CurriculumTermCfg
from unilab_managers.mdp import curriculum as terms

TIME_OUT = {"time_out": TerminationTermCfg(func=mdp.time_out)}


def stages(func: Any, *given: dict[str, Any], mode: str = "step", **params: Any) -> CurriculumTermCfg:
    return CurriculumTermCfg(func=func, mode=mode, params={"stages": given, **params})


def weight(*given: dict[str, Any], **params: Any) -> CurriculumTermCfg:
    return stages(terms.reward_weight, *given, **{"reward_name": "one", **params})


def ranges(env: ManagerBasedRlEnv) -> dict[str, tuple[float, float]]:
    read: dict[str, tuple[float, float]] = env.command_manager.get_term("twist").ranges.read()
    return read


# ---------------------------------------------------------------- weights and parameters by stages


def test_a_weight_changes_in_the_very_step_that_its_stage_names(make_env: MakeEnv) -> None:
    curriculum = {"gain": weight({"step": 3, "weight": 2.0}, {"step": 5, "weight": 0.0})}
    env = make_env(1, curriculum=curriculum)
    rewards, said = [], []
    for _ in range(6):
        state = steps(env, 1)
        rewards.append(float(state.reward))
        said.append(float(state.info["log"]["Curriculum/gain"]))
    assert rewards == pytest.approx([0.02, 0.02, 0.04, 0.04, 0.0, 0.0])
    assert said == [1.0, 1.0, 2.0, 2.0, 0.0, 0.0]
    assert env.cfg == base_cfg(curriculum=curriculum)
    assert env.cfg.rewards["one"].weight == 1.0


def test_parameters_of_a_reward_change_by_stages_and_the_others_stay(make_env: MakeEnv) -> None:
    feed = Feed()
    curriculum = {
        "column": stages(terms.reward_params, {"step": 2, "params": {"index": 1}}, reward_name="shown")
    }
    rewards = {"shown": RewardTermCfg(func=column, weight=1.0, params={"index": 0})}
    env = make_env(1, feed=feed, rewards=rewards, curriculum=curriculum)
    feed.probe([[1.0, 5.0, 0.0]])
    assert [float(steps(env, 1).reward) for _ in range(3)] == pytest.approx([0.02, 0.1, 0.1])
    assert env.cfg == base_cfg(rewards=rewards, curriculum=curriculum)


def test_parameters_of_an_event_change_by_stages(make_env: MakeEnv) -> None:
    curriculum = {
        "tag": stages(terms.event_params, {"step": 2, "params": {"tag": "later"}}, event_name="note")
    }
    events = {"note": EventTermCfg(func=noted_event, mode="reset", params={"tag": "first"})}
    env = make_env(1, events=events, curriculum=curriculum)
    calls.clear()
    for count in (1, 1):
        steps(env, count)
        env.reset()
    assert [call[0] for call in calls] == ["first", "later"]
    assert env.cfg == base_cfg(events=events, curriculum=curriculum)


def test_parameters_of_a_termination_change_by_stages(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(
        2,
        feed=feed,
        autoreset=False,
        terminations={"end": TerminationTermCfg(func=flag, params={"index": 0})},
        curriculum={
            "column": stages(
                terms.termination_params, {"step": 3, "params": {"index": 1}}, termination_name="end"
            )
        },
    )
    feed.probe([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    ended = [env.step(zeros(env)).terminated.tolist() for _ in range(3)]
    assert ended == [[False, False], [False, False], [True, False]]


def test_a_stage_that_holds_already_costs_nothing(make_env: MakeEnv, monkeypatch: pytest.MonkeyPatch) -> None:
    curriculum = {
        "gain": weight({"step": 0, "weight": 2.0}),
        "column": stages(terms.reward_params, {"step": 0, "params": {"index": 1}}, reward_name="shown"),
        "speed": stages(
            terms.command_velocity_ranges, {"step": 0, "lin_vel_x": (0.0, 2.0)}, command_name="twist"
        ),
    }
    rewards = {
        "one": RewardTermCfg(func=ones, weight=1.0),
        "shown": RewardTermCfg(func=column, weight=1.0, params={"index": 0}),
    }
    env = make_env(**floating(rewards=rewards, curriculum=curriculum, commands={"twist": velocity_cfg()}))
    steps(env, 1)
    for setter in ("set_weight", "set_params"):
        monkeypatch.setattr(env.reward_manager, setter, None)
    assert asked(env.curriculum_manager.compute_step).operators == []


# ---------------------------------------------------------------- ranges by stages


def speed(*given: dict[str, Any], mode: str, command_name: str = "twist") -> CurriculumTermCfg:
    return stages(terms.command_velocity_ranges, *given, mode=mode, command_name=command_name)


def test_ranges_change_by_stages_and_those_not_named_stay(make_env: MakeEnv) -> None:
    curriculum = {
        "speed": speed(
            {"step": 2, "lin_vel_x": (0.0, 0.75)},
            {"step": 4, "ang_vel_z": (-1.0, 1.0), "lin_vel_x": (-1.0, 2.0)},
            mode="step",
        )
    }
    commands = {"twist": velocity_cfg()}
    env = make_env(2, **floating(commands=commands, curriculum=curriculum))
    at_first = {"lin_vel_x": (0.5, 0.5), "lin_vel_y": (-0.25, -0.25), "ang_vel_z": (0.125, 0.125)}
    steps(env, 1)
    assert ranges(env) == at_first
    log = steps(env, 1).info["log"]
    assert ranges(env) == at_first | {"lin_vel_x": (0.0, 0.75)}
    assert {key: float(value) for key, value in log.items() if key.startswith("Curriculum")} == {
        "Curriculum/speed/lin_vel_x_min": 0.0,
        "Curriculum/speed/lin_vel_x_max": 0.75,
    }
    steps(env, 2)
    assert ranges(env) == at_first | {"lin_vel_x": (-1.0, 2.0), "ang_vel_z": (-1.0, 1.0)}
    assert env.cfg == base_cfg(commands=commands, curriculum=curriculum)


def test_episode_driven_ranges_hold_for_the_reset_that_sets_them(make_env: MakeEnv) -> None:
    curriculum = {"speed": speed({"step": 2, "lin_vel_x": (3.0, 3.0)}, mode="episode")}
    env = make_env(2, **floating(commands={"twist": velocity_cfg()}, curriculum=curriculum))
    steps(env, 2)
    assert ranges(env)["lin_vel_x"] == (0.5, 0.5)
    env.reset(ids(1))
    assert env.command_manager.get_command("twist")[:, 0].tolist() == [0.5, 3.0]


# ---------------------------------------------------------------- resuming


def test_qa_084_stages_follow_from_the_counter_of_a_resumed_training(make_env: MakeEnv) -> None:
    settings = floating(
        commands={"twist": velocity_cfg()},
        curriculum={
            "gain": weight({"step": 0, "weight": 1.0}, {"step": 100, "weight": 0.5}),
            "speed": speed({"step": 100, "lin_vel_x": (2.0, 2.0)}, mode="episode"),
        },
    )
    env = make_env(1, **settings)
    steps(env, 120)
    saved = env.export_training_state()
    assert saved == {"version": 1, "step_counter": 120}
    resumed = make_env(1, reset=False, **settings)
    resumed.import_training_state(saved)
    resumed.reset()
    assert resumed.step_counter == 120
    assert resumed.command_manager.get_command("twist")[0, 0] == 2.0  # drawn in the first reset
    assert float(steps(resumed, 1).reward) == pytest.approx(0.5 * 0.02)  # the first step
    assert resumed.export_training_state() == {"version": 1, "step_counter": 121}


def test_qa_084_a_whole_state_brings_ranges_and_weights_back(make_env: MakeEnv) -> None:
    settings = floating(
        commands={"twist": velocity_cfg()},
        curriculum={
            "gain": weight({"step": 2, "weight": 0.5}),
            "speed": speed({"step": 2, "lin_vel_x": (2.0, 2.0)}, mode="step"),
        },
    )
    env, other = make_env(1, **settings), make_env(1, reset=False, **settings)
    steps(env, 3)
    state = env.state_dict()
    other.load_state_dict(state)
    assert same(other.state_dict(), state)
    assert ranges(other)["lin_vel_x"] == (2.0, 2.0)
    assert other.reward_manager.get_weight("one") == 0.5
    steps(env, 4)
    steps(other, 4)
    assert same(other.state_dict(), env.state_dict())


# ---------------------------------------------------------------- ranges by tracking


def tracking(**changes: Any) -> CurriculumTermCfg:
    params: dict[str, Any] = {
        "command_name": "twist",
        "reward_name": "track",
        "widen": {"lin_vel_x": 0.5},
        "limits": {"lin_vel_x": (-0.25, 2.0)},
    }
    return CurriculumTermCfg(func=terms.command_ranges_by_tracking, mode="episode", params=params | changes)


def tracking_env(
    make_env: MakeEnv, feed: Feed | None = None, num_envs: int = 1, episode_length_s: float = 0.1, **cfg: Any
) -> ManagerBasedRlEnv:
    track = RewardTermCfg(func=column, weight=2.0, params={"index": 0})
    settings: dict[str, Any] = {
        "rewards": {"track": track},
        "terminations": TIME_OUT,
        "commands": {"twist": velocity_cfg()},
        "curriculum": {"widen": tracking()},
        "episode_length_s": episode_length_s,
    }
    return make_env(num_envs, feed=feed, **floating(**(settings | cfg)))


@pytest.mark.parametrize("scale_rewards_by_dt", [True, False])
def test_qa_039_an_episode_that_tracked_fully_has_earned_the_weight(
    make_env: MakeEnv, scale_rewards_by_dt: bool
) -> None:
    env = tracking_env(
        make_env,
        episode_length_s=20.0,
        rewards={"track": RewardTermCfg(func=ones, weight=1.0)},
        scale_rewards_by_dt=scale_rewards_by_dt,
    )
    state = steps(env, 1000)
    # 1000 steps x 1 x 1 x 0.02 s = 20, over 20 s: 1.0 > 0.8. Over 1000 steps it would be 0.02.
    assert ranges(env)["lin_vel_x"] == (0.0, 1.0)
    assert float(state.info["episode"]["Episode_Reward/track/sum"]) == pytest.approx(1.0, rel=1e-4)
    assert float(env.curriculum_manager.log()["Curriculum/widen/lin_vel_x_max"]) == 1.0


@pytest.mark.parametrize("scale_rewards_by_dt", [True, False])
@pytest.mark.parametrize(("value", "high"), [(0.79, 0.5), (0.81, 1.0)])
def test_qa_039_the_threshold_is_a_share_of_the_weight(
    make_env: MakeEnv, value: float, high: float, scale_rewards_by_dt: bool
) -> None:
    feed = Feed()
    env = tracking_env(make_env, feed, scale_rewards_by_dt=scale_rewards_by_dt)  # weight 2
    feed.probe([[value, 0.0, 0.0]])
    steps(env, 5)
    assert ranges(env)["lin_vel_x"][1] == high


def test_ranges_are_widened_up_to_their_limits_and_never_narrowed(make_env: MakeEnv) -> None:
    feed = Feed()
    env = tracking_env(make_env, feed)
    feed.probe([[1.0, 0.0, 0.0]])
    seen = []
    for _ in range(4):
        steps(env, 5)
        seen.append(ranges(env)["lin_vel_x"])
    assert seen == [(0.0, 1.0), (-0.25, 1.5), (-0.25, 2.0), (-0.25, 2.0)]
    env.command_manager.get_term("twist").set_ranges(lin_vel_x=(-3.0, 4.0))
    steps(env, 5)
    assert ranges(env)["lin_vel_x"] == (-3.0, 4.0)
    assert ranges(env)["lin_vel_y"] == (-0.25, -0.25)
    # What was widened can be set to what it was set to before.
    env.command_manager.get_term("twist").set_ranges(lin_vel_x=(0.0, 0.0))
    steps(env, 5)
    env.command_manager.get_term("twist").set_ranges(lin_vel_x=(0.0, 0.0))
    assert ranges(env)["lin_vel_x"] == (0.0, 0.0)


def test_rows_that_have_lived_through_no_episode_decide_nothing(make_env: MakeEnv) -> None:
    feed = Feed()
    env = tracking_env(make_env, feed, 2, curriculum={"widen": tracking(threshold=-1.0)})
    assert ranges(env)["lin_vel_x"] == (0.5, 0.5)  # after the first reset
    feed.probe([[1.0, 0.0, 0.0]] * 2)
    steps(env, 5)
    assert ranges(env)["lin_vel_x"] == (0.0, 1.0)
    env.reset(ids(1))
    assert ranges(env)["lin_vel_x"] == (0.0, 1.0)


def test_the_mean_is_over_the_episodes_that_end(make_env: MakeEnv) -> None:
    feed = Feed()
    env = tracking_env(make_env, feed, 3, curriculum={"widen": tracking(threshold=0.75)})
    feed.probe([[1.0, 0.0, 0.0], [0.6, 0.0, 0.0], [0.0, 0.0, 0.0]])
    env.episode_length = torch.tensor([0, 0, 4])
    steps(env, 1)  # row 2 ends, having earned nothing
    assert ranges(env)["lin_vel_x"] == (0.5, 0.5)
    steps(env, 4)  # rows 0 and 1 end: (1.0 + 0.6) / 2 = 0.8
    assert ranges(env)["lin_vel_x"] == (0.0, 1.0)


def test_a_decision_by_tracking_makes_no_host_wait(make_env: MakeEnv) -> None:
    env = tracking_env(make_env, num_envs=3)
    steps(env, 2)
    rows = ids(0, 2)
    assert not asked(lambda: env.curriculum_manager.compute_episode(rows)).waits


# ---------------------------------------------------------------- what is refused, at construction


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((), "stages is empty"),
        (({"step": 5, "weight": 1.0}, {"step": 5, "weight": 2.0}), r"stages\[1\] .* int 'step' above 5"),
        (({"step": -1, "weight": 1.0},), r"stages\[0\] .* int 'step' above -1"),
        (({"step": True, "weight": 1.0},), r"stages\[0\]"),
        (({"step": 1.5, "weight": 1.0},), r"stages\[0\]"),
        (({"weight": 1.0},), r"stages\[0\]"),
        ((3,), r"stages\[0\] is 3; expected a mapping"),
        (
            ({"step": 1, "wieght": 1.0},),
            r"stages\[0\] has keys \['step', 'wieght'\], expected \['step', 'weight'\]",
        ),
        (({"step": 0, "weight": "high"},), "weight"),
    ],
)
def test_stages_of_another_form_are_refused(make_env: MakeEnv, given: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(curriculum={"gain": weight(*given)})


@pytest.mark.parametrize(
    ("curriculum", "message"),
    [
        (
            weight({"step": 0, "weight": 1.0}, reward_name="noe"),
            "rewards: unknown term 'noe'; did you mean 'one'",
        ),
        (
            stages(terms.reward_params, {"step": 0, "params": {"std": 1.0}}, reward_name="one"),
            "rewards term 'one': .*no parameter 'std'",
        ),
        (
            stages(terms.event_params, {"step": 0, "params": {}}, event_name="push"),
            "events: unknown term 'push'",
        ),
        (speed({"step": 0}, mode="step", command_name="twits"), "did you mean 'twist'"),
        (speed({"step": 0, "lin_vel_z": (0.0, 1.0)}, mode="step"), "unknown range 'lin_vel_z'"),
        (speed({"step": 0, "lin_vel_x": (1.0, 0.0)}, mode="step"), "inverted"),
        (speed({"step": 0}, mode="step", command_name="bare"), "commands term 'bare' has no ranges"),
        (tracking(reward_name="one", limits={"lin_vel_y": (0.0, 1.0)}), "limits has no 'lin_vel_x'"),
        (tracking(), "rewards: unknown term 'track'"),
    ],
)
def test_names_that_do_not_exist_are_refused(
    make_env: MakeEnv, curriculum: CurriculumTermCfg, message: str
) -> None:
    commands = {"twist": velocity_cfg(), "bare": BareCfg()}
    with pytest.raises(ConfigError, match=message):
        make_env(**floating(commands=commands, curriculum={"bad": curriculum}))


def test_tracking_is_judged_when_episodes_end() -> None:
    with pytest.raises(ConfigError, match="mode is 'step', but command_ranges_by_tracking .* mode 'episode'"):
        CurriculumTermCfg(func=terms.command_ranges_by_tracking, mode="step", params=dict(tracking().params))


def test_a_curriculum_goes_through_yaml() -> None:
    cfg = base_cfg(
        commands={"twist": velocity_cfg(heading=(-1.0, 1.0), fixed=((1.0, 0.0, 0.0),))},
        curriculum={"gain": weight({"step": 3, "weight": 2.0}), "widen": tracking()},
    )
    assert type(cfg).from_yaml(cfg.to_yaml()) == cfg
