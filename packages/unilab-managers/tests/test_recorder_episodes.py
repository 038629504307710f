"""EpisodeRecorder: whole episodes as archives, exactly as they were."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from action_support import Operators
from manager_support import (
    DT,
    MakeEnv,
    column,
    group,
    ids,
    mujoco_cfg,
    ones,
    probe,
    zeros,
)
from recorder_support import files, go, load, made, recorder

from unilab_core import ConfigError
from unilab_managers import (
    ManagerBasedRlEnv,
    ObservationTermCfg,
    RecorderTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)


def test_an_episode_is_recorded_from_its_first_observation_to_its_last(
    make_env: MakeEnv, tmp_path: Path
) -> None:
    folder = tmp_path / "deep" / "episodes"
    env, feed = made(make_env, folder, params={"rows": (1,)})
    assert files(folder) == []
    go(env, feed, 1.0)
    go(env, feed, 2.0)
    go(env, feed, 3.0, fall=0)  # another row
    assert files(folder) == []
    go(env, feed, 4.0, fall=1)
    assert files(folder) == ["episode_000000.npz"]
    got = load(folder, 0)
    assert got["obs"].tolist() == [[0, 0, 0], [101, 0, 0], [102, 0, 0], [103, 0, 0], [104, 0, 1]]
    assert got["actions"].tolist() == [[1, 1], [2, 1], [3, 1], [4, 1]]
    assert got["rewards"].tolist() == [101, 102, 103, 104]
    assert got["terminated"].tolist() == [False, False, False, True]
    assert got["truncated"].tolist() == [False] * 4
    # A fake is a double integrator: the speed of joint a after n steps is 0.02 x (1 + ... + n), and of b 0.02 x n.
    speeds = [[DT * n * (n + 1) / 2, DT * n] for n in range(5)]
    assert got["qvel"].tolist() == pytest.approx(np.array(speeds), rel=1e-5)
    places = np.cumsum(np.array(speeds), axis=0) * DT
    assert got["qpos"].tolist() == pytest.approx(places, rel=1e-5)


def test_the_format_is_as_documented(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path)
    go(env, feed, 1.0)
    go(env, feed, 2.0, cut=0)
    got = load(tmp_path, 0)
    assert {name: (value.dtype.kind, value.shape) for name, value in got.items()} == {
        "format": ("i", ()), "dt": ("f", ()), "row": ("i", ()), "episode": ("i", ()), "complete": ("b", ()),
        "obs": ("f", (3, 3)), "actions": ("f", (2, 2)), "rewards": ("f", (2,)),
        "terminated": ("b", (2,)), "truncated": ("b", (2,)), "qpos": ("f", (3, 2)), "qvel": ("f", (3, 2)),
        "obs_labels": ("U", (3,)), "actions_labels": ("U", (2,)), "joints": ("U", (2,)),
    }  # fmt: skip
    for name in ("obs", "actions", "rewards", "qpos", "qvel"):
        assert got[name].dtype == np.float32
    assert (int(got["format"]), float(got["dt"]), int(got["row"]), int(got["episode"])) == (1, DT, 0, 0)
    assert bool(got["complete"])
    assert got["truncated"].tolist() == [False, True]
    assert got["obs_labels"].tolist() == list(env.describe().observations["obs"])
    assert got["actions_labels"].tolist() == ["drive:a", "drive:b"]
    assert got["joints"].tolist() == ["robot/a", "robot/b"]


def test_every_recorded_row_has_its_own_episodes(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path, 4, params={"rows": (3, 0), "fields": ("obs",)})
    go(env, feed, 1.0)
    go(env, feed, 2.0, fall=3)
    go(env, feed, 3.0, fall=0)
    go(env, feed, 4.0, fall=3)
    assert files(tmp_path) == [f"episode_{n:06d}.npz" for n in range(3)]
    assert [int(load(tmp_path, n)["row"]) for n in range(3)] == [3, 0, 3]
    assert load(tmp_path, 0)["obs"][:, 0].tolist() == [0, 301, 302]
    assert load(tmp_path, 1)["obs"][:, 0].tolist() == [0, 1, 2, 3]
    # What a row shows right after its reset is what a fake's sensor still held.
    assert load(tmp_path, 2)["obs"][:, 0].tolist() == [302, 303, 304]


def test_rows_that_end_together_are_all_written(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path, 3, params={"rows": (0, 1, 2)}, terminations={"t": TIME_OUT})
    for number in range(10):
        go(env, feed, float(number))
    assert [int(load(tmp_path, n)["row"]) for n in range(3)] == [0, 1, 2]
    assert all(load(tmp_path, n)["obs"].shape == (11, 3) for n in range(3))


TIME_OUT = TerminationTermCfg(func=mdp.time_out)


@pytest.mark.parametrize(
    "field", ["obs", "critic", "actions", "rewards", "terminated", "truncated", "qpos", "qvel"]
)
def test_only_what_was_asked_for_is_written(make_env: MakeEnv, tmp_path: Path, field: str) -> None:
    observed = {name: group(probe=ObservationTermCfg(func=probe)) for name in ("obs", "critic")}
    env, feed = made(make_env, tmp_path, params={"fields": (field,)}, observations=observed)
    go(env, feed, 1.0, fall=0)
    always = {"format", "dt", "row", "episode", "complete", "joints"}
    labels = {f"{field}_labels"} if field in ("obs", "critic", "actions") else set()
    got = load(tmp_path, 0)
    assert set(got) == always | labels | {field}
    assert bool(got["complete"])


def test_no_more_files_than_said_and_no_work_after_them(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path, params={"rows": (0, 1), "max_episodes": 2})
    go(env, feed, 1.0, fall=0)
    go(env, feed, 2.0, fall=0)
    assert len(files(tmp_path)) == 2
    go(env, feed, 3.0, fall=1)
    with Operators() as operators:
        env.recorder_manager._recorders["episodes"].record_post_step()
    assert operators.names == []
    env.close()
    assert len(files(tmp_path)) == 2


def test_a_longer_episode_than_there_is_room_for_is_not_written(
    make_env: MakeEnv, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env, feed = made(make_env, tmp_path, params={"max_steps": 3})
    for number in range(3):
        go(env, feed, float(number))
    go(env, feed, 4.0, fall=0)
    assert files(tmp_path) == []
    assert "an episode of row 0 is longer than max_steps=3 and is not recorded" in caplog.text
    go(env, feed, 1.0)
    go(env, feed, 2.0)
    go(env, feed, 3.0, fall=0)  # as long as there is room for
    assert load(tmp_path, 0)["actions"][:, 0].tolist() == [1, 2, 3]
    assert int(load(tmp_path, 0)["episode"]) == 0


def test_a_manual_reset_cuts_an_episode_which_says_so(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path)
    go(env, feed, 1.0)
    env.reset(ids(1, 2))
    assert files(tmp_path) == []
    env.reset(ids(0))
    got = load(tmp_path, 0)
    assert not bool(got["complete"])
    assert got["actions"].tolist() == [[1, 0]]
    env.reset()
    assert len(files(tmp_path)) == 1  # no step, no episode


def test_without_automatic_reset_an_episode_is_written_when_it_is_reset(
    make_env: MakeEnv, tmp_path: Path
) -> None:
    env, feed = made(make_env, tmp_path, autoreset=False)
    go(env, feed, 1.0, fall=0)
    assert files(tmp_path) == []
    env.reset(ids(0))
    got = load(tmp_path, 0)
    assert bool(got["complete"])
    assert got["terminated"].tolist() == [True]


def test_closing_writes_the_open_episodes_as_incomplete(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path, params={"rows": (0, 2)})
    go(env, feed, 1.0)
    go(env, feed, 2.0, fall=2)
    env.close()
    env.close()
    got = [load(tmp_path, n) for n in range(2)]
    assert [(int(g["row"]), bool(g["complete"]), len(g["actions"])) for g in got] == [
        (2, True, 2),
        (0, False, 2),
    ]
    assert len(files(tmp_path)) == 2


def test_a_state_continues_an_episode_in_the_middle(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path / "one")
    other, other_feed = made(make_env, tmp_path / "two", seed=7)
    go(env, feed, 1.0)
    go(env, feed, 2.0)
    go(other, other_feed, 9.0, fall=0)
    other.load_state_dict(env.state_dict())
    for each, its_feed in ((env, feed), (other, other_feed)):
        go(each, its_feed, 3.0, fall=0)
    one, two = load(tmp_path / "one", 0), load(tmp_path / "two", 1)
    assert one["actions"][:, 0].tolist() == [1, 2, 3]
    for name in ("obs", "actions", "rewards", "qpos", "qvel"):
        assert one[name].tolist() == two[name].tolist(), name


def test_the_plan_moves_nothing_more_for_a_recorder(tmp_path: Path) -> None:
    def moved(recorders: dict[str, RecorderTermCfg]) -> Any:
        cfg = mujoco_cfg(recorders=recorders)
        with ManagerBasedRlEnv(cfg) as env:
            env.reset()
            for _ in range(7):
                env.step(zeros(env))
            return env.transfer_stats

    with_it = moved(recorder(tmp_path, rows=(0, 1, 2, 3)))
    assert len(files(tmp_path)) == 8  # four rows ended after five steps, and were open after seven
    assert with_it == moved({})


def test_a_step_costs_five_operators_and_a_few_views(make_env: MakeEnv, tmp_path: Path) -> None:
    env, feed = made(make_env, tmp_path)
    go(env, feed, 1.0)
    with Operators() as operators:
        env.recorder_manager.record_post_step()
    views = {"slice", "unsqueeze", "view", "zero_"}
    assert [name for name in operators.names if name not in views] == [
        "add_",
        "minimum",
        "cat",
        "index_copy_",
    ]


def test_on_a_real_engine_the_files_hold_what_the_environment_said(tmp_path: Path) -> None:
    cfg = mujoco_cfg(recorders=recorder(tmp_path, rows=(2,)))
    with ManagerBasedRlEnv(cfg, seed=3) as env:
        first = env.reset()[0]["obs"][2].clone()
        qpos = [env.state_column("qpos")[2].clone()]
        seen, paid = [first], []
        for number in range(5):
            with torch.inference_mode(number % 2 == 0):
                state = env.step(torch.full((4, 2), 0.5))
            final = state.final_observation or state.obs
            seen.append(final["obs"][2].clone())
            paid.append(float(state.reward[2]))
            if number < 4:
                qpos.append(env.state_column("qpos")[2].clone())
    got = load(tmp_path, 0)
    assert got["obs"].tolist() == torch.stack(seen).tolist()
    assert got["rewards"].tolist() == paid
    assert got["qpos"][:5].tolist() == torch.stack(qpos).tolist()
    assert got["truncated"].tolist() == [False] * 4 + [True]
    assert len(files(tmp_path)) == 1  # closed right after a reset: nothing is open


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"fields": ("observations",)}, "fields: unknown field 'observations'; did you mean"),
        ({"fields": ("rewardz",)}, "unknown field 'rewardz'; did you mean 'rewards'"),
        ({"fields": ("critic",)}, "unknown field 'critic'"),
        ({"rows": ()}, r"rows is \(\), expected at least one"),
        ({"rows": (3,)}, r"rows is \(3,\), expected at least one, each once, 0 <= row < 3"),
        ({"rows": (-1,)}, r"rows is \(-1,\)"),
        ({"rows": (1, 1)}, r"rows is \(1, 1\)"),
        ({"max_episodes": 0}, "max_episodes is 0, expected at least 1"),
        ({"max_steps": 0}, "max_steps is 0, expected at least 1"),
        ({"folder": __file__}, "is a file"),
    ],
)
def test_what_cannot_be_recorded_is_refused(
    make_env: MakeEnv, tmp_path: Path, params: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        made(make_env, tmp_path, params=params)


def test_a_misspelt_parameter_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="EpisodeRecorder has no parameter 'row'; did you mean 'rows'"):
        recorder(tmp_path, row=(1,))
    with pytest.raises(ConfigError, match="EpisodeRecorder needs parameter 'folder'"):
        RecorderTermCfg(func=mdp.EpisodeRecorder)


def test_controls_commands_and_what_each_reward_added_are_recorded_where_asked_for(
    make_env: MakeEnv, tmp_path: Path
) -> None:
    twist = mdp.UniformVelocityCommandCfg(
        lin_vel_x=(0.0, 0.0),
        lin_vel_y=(0.0, 0.0),
        ang_vel_z=(0.0, 0.0),
        resampling_time_range=(9.0, 9.0),
        fixed=((0.5, 0.25, -1.0),),
    )
    rewards = {
        "value": RewardTermCfg(func=column, weight=2.0, params={"index": 0}),
        "one": RewardTermCfg(func=ones, weight=-1.0),
    }
    fields = ("ctrl", "commands", "reward_terms", "rewards")
    env, feed = made(
        make_env,
        tmp_path,
        params={"fields": fields},
        actions={"drive": mdp.JointEffortActionCfg(scale=3.0)},
        commands={"twist": twist},
        rewards=rewards,
    )
    go(env, feed, 1.0)
    go(env, feed, 2.0, fall=0)
    got = load(tmp_path, 0)
    assert got["ctrl"].tolist() == [[3.0, 0.0], [6.0, 0.0]]
    assert got["commands"].tolist() == [[0.5, 0.25, -1.0]] * 3
    assert got["reward_terms"].tolist() == [[2.0, -1.0], [4.0, -1.0]]
    assert got["rewards"].tolist() == [1.0, 3.0]
    assert got["ctrl_labels"].tolist() == ["robot/a", "robot/b"]
    assert got["commands_labels"].tolist() == [
        f"twist[{name}]" for name in ("lin_vel_x", "lin_vel_y", "ang_vel_z")
    ]
    assert got["reward_terms_labels"].tolist() == ["value", "one"]
    assert "actions" not in got


def test_commands_that_there_are_not_cannot_be_recorded(make_env: MakeEnv, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="fields: unknown field 'commands'"):
        made(make_env, tmp_path, params={"fields": ("obs", "commands")})
