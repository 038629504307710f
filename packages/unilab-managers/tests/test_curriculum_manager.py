"""Curricula: who is called when and with which rows, what it says, and what it may not change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from command_support import asked, floating, place, pose, same, steps, velocity_cfg
from manager_support import DT, Feed, MakeEnv, base_cfg, calls, flag, ids, noted_ones, zeros

from unilab_core.errors import ConfigError, ResetRejectedError
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, RewardTermCfg, TerminationTermCfg, mdp
from unilab_managers.cfg.curriculum import CurriculumTermCfg

ENDS = {"flag": TerminationTermCfg(func=flag, params={"index": 1})}


def noted(env: ManagerBasedRlEnv, env_ids: torch.Tensor, tag: str) -> None:
    calls.append((tag, env_ids.dtype, env_ids.tolist()))


def says(env: ManagerBasedRlEnv, env_ids: torch.Tensor, kind: str) -> Any:
    """Returns one of the things that a term may or must not say."""
    return {
        "float": 0.5 * env.step_counter,
        "int": 3,
        "tensor": env.episode_length.max(),
        "dict": {"low": -1.0, "high": env.episode_length.max(), "nothing": None},
        "none": None,
        "rows": torch.zeros(env.num_envs),
        "nested": {"a": {"b": 1.0}},
        "text": "hard",
        "flag": True,
        "list": [1.0],
    }[kind]


def three(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> float:
    return 3.0


class Level:
    """A class term that hands out what it goes on writing."""

    def __init__(self, cfg: CurriculumTermCfg, env: ManagerBasedRlEnv) -> None:
        self.level = torch.zeros(())

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> torch.Tensor:
        self.level += 1.0
        return self.level


class Remembers:
    """A class term that counts, row by row, how often it was called, and forgets rows that are reset."""

    def __init__(self, cfg: CurriculumTermCfg, env: ManagerBasedRlEnv) -> None:
        self.counts = torch.zeros(env.num_envs, dtype=torch.int64)

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor, fails_at: int = -1) -> torch.Tensor:
        self.counts[env_ids] += 1
        if env.step_counter == fails_at:
            raise KeyError("no such thing")
        return self.counts.max()

    def reset(self, env_ids: torch.Tensor) -> None:
        self.counts[env_ids] = 0


def term(func: Any, mode: str = "step", **params: Any) -> CurriculumTermCfg:
    return CurriculumTermCfg(func=func, mode=mode, params=params)


# ---------------------------------------------------------------- when, and with which rows


def test_a_step_driven_term_runs_once_a_step_for_all_rows_before_rewards(make_env: MakeEnv) -> None:
    env = make_env(
        curriculum={"each": term(noted, tag="each")},
        rewards={"one": RewardTermCfg(func=noted_ones, weight=1.0)},
    )
    calls.clear()
    steps(env, 2)
    assert calls == [("each", torch.int64, [0, 1, 2]), "ones"] * 2
    calls.clear()
    env.reset(ids(1))
    assert calls == []


def test_an_episode_driven_term_runs_for_the_rows_that_are_reset_before_their_events(
    make_env: MakeEnv,
) -> None:
    feed = Feed()
    env = make_env(
        feed=feed,
        terminations=ENDS,
        curriculum={"end": term(noted, "episode", tag="end")},
        events={"begin": EventTermCfg(func=noted, mode="reset", params={"tag": "begin"})},
    )
    calls.clear()
    feed.probe([[0.0, 0.0, 0.0]] * 3)
    steps(env, 1)
    assert calls == []
    feed.probe([[0.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 1.0, 0.0]])
    steps(env, 1)
    assert calls == [("end", torch.int64, [0, 2]), ("begin", torch.int64, [0, 2])]
    calls.clear()
    env.reset(ids(2, 1))
    assert calls == [("end", torch.int64, [1, 2]), ("begin", torch.int64, [1, 2])]


def test_a_term_must_say_when(make_env: MakeEnv) -> None:
    for given in ({}, {"mode": "reset"}):
        with pytest.raises(ConfigError, match="mode"):
            CurriculumTermCfg(func=noted, params={"tag": "a"}, **given)


def test_a_class_term_forgets_rows_that_are_reset(make_env: MakeEnv) -> None:
    env = make_env(curriculum={"counts": term(Remembers)})
    steps(env, 2)
    env.reset(ids(1))
    steps(env, 1)
    assert env.curriculum_manager.row_state_roots()["curriculum.counts"].counts.tolist() == [3, 1, 3]


# ---------------------------------------------------------------- what it says


def test_numbers_tensors_and_dicts_of_them_are_logged(make_env: MakeEnv) -> None:
    kinds = ("float", "int", "tensor", "dict", "none")
    env = make_env(curriculum={kind: term(says, kind=kind) for kind in kinds})
    steps(env, 3)
    log = steps(env, 1).info["log"]
    said = {key: value for key, value in log.items() if key.startswith("Curriculum/")}
    assert {key: float(value) for key, value in said.items()} == {
        "Curriculum/float": 2.0,
        "Curriculum/int": 3.0,
        "Curriculum/tensor": 4.0,
        "Curriculum/dict/low": -1.0,
        "Curriculum/dict/high": 4.0,
    }
    assert all(value.shape == () for value in said.values())


def test_what_an_episode_driven_term_said_is_logged_until_it_says_more(make_env: MakeEnv) -> None:
    env = make_env(curriculum={"counter": term(says, "episode", kind="float")})
    assert float(steps(env, 4).info["log"]["Curriculum/counter"]) == 0.0
    env.reset(ids(1))
    assert float(steps(env, 2).info["log"]["Curriculum/counter"]) == 2.0


def test_a_tensor_that_the_term_goes_on_writing_is_copied(make_env: MakeEnv) -> None:
    env = make_env(curriculum={"level": term(Level)})
    first = steps(env, 1).info["log"]["Curriculum/level"]
    steps(env, 1)
    assert float(first) == 1.0


def test_a_number_that_stays_the_same_costs_nothing(make_env: MakeEnv) -> None:
    env = make_env(curriculum={"three": term(three)})
    steps(env, 1)
    seen = asked(env.curriculum_manager.compute_step)
    assert seen.operators == []
    assert not asked(env.curriculum_manager.log).operators


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("rows", r"returned a tensor \(3,\), expected one number"),
        ("nested", "returned a dict in a dict at 'a'"),
        ("text", "returned a str, expected a float, a 0-d tensor"),
        ("flag", "returned a bool, expected a float"),
        ("list", "returned a list, expected a float"),
    ],
)
@pytest.mark.parametrize("mode", ["step", "episode"])
def test_anything_else_is_refused_by_name_at_construction(
    make_env: MakeEnv, kind: str, message: str, mode: str
) -> None:
    with pytest.raises(ConfigError, match=f"curriculum term 'bad' {message}"):
        make_env(curriculum={"bad": term(says, mode, kind=kind)})


def test_a_misspelt_parameter_is_refused_at_construction() -> None:
    with pytest.raises(ConfigError, match="no parameter 'knd'; did you mean 'kind'"):
        term(says, knd="float")


# ---------------------------------------------------------------- undone with a rejected reset


def test_a_rejected_reset_takes_back_what_a_term_did_and_said(make_env: MakeEnv) -> None:
    env = make_env(curriculum={"counts": term(Remembers, "episode", fails_at=2)})
    steps(env, 2)
    before, said = env.state_dict(), env.curriculum_manager.log()
    with pytest.raises(ResetRejectedError, match="curriculum term 'counts': KeyError"):
        env.reset(ids(0))
    assert same(env.state_dict(), before)
    assert same(env.curriculum_manager.log(), said)
    steps(env, 1)
    env.reset(ids(0))


def test_what_was_said_is_no_part_of_a_state(make_env: MakeEnv) -> None:
    curriculum = {kind: term(says, kind=kind) for kind in ("float", "dict")}
    env, other = make_env(curriculum=curriculum), make_env(curriculum=curriculum, reset=False)
    steps(env, 3)
    state = env.state_dict()
    other.load_state_dict(state)
    assert same(other.state_dict(), state)
    assert float(steps(other, 1).info["log"]["Curriculum/float"]) == 2.0


# ---------------------------------------------------------------- levels that depend on where a row ended


class TerrainLevels:
    """Tiles of 8 m in a row: up after more than 4 m, down after less than half of what was commanded."""

    tile = 8.0

    def __init__(self, cfg: CurriculumTermCfg, env: ManagerBasedRlEnv) -> None:
        self.level = torch.zeros(env.num_envs, dtype=torch.int64)

    def __call__(self, env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> torch.Tensor:
        level = self.level[env_ids]
        x = env.scene["robot"].data.root_pos_w[env_ids, 0]
        travelled = (x - level * self.tile).abs()
        speed = env.command_manager.get_command("twist")[env_ids, 0]
        lived = env.episode_length[env_ids]
        asked_for = speed * lived * env.step_dt
        up = travelled > self.tile / 2
        down = ~up & (travelled < 0.5 * asked_for)
        self.level[env_ids] = torch.where(lived > 0, level + up.long() - down.long(), level).clamp(min=0)
        return self.level.float().mean()


def to_origin(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Puts rows where the tile of their level begins."""
    roots = env.curriculum_manager.row_state_roots()
    levels = roots["curriculum.levels"].level[env_ids]
    there = env.scene["robot"].data.root_pos_w.new_zeros(env_ids.numel(), 7)
    there[:, 0] = levels * TerrainLevels.tile
    there[:, 3] = 1.0
    env.scene["robot"].data.write_root_pose(there, env_ids)


def terrain_env(make_env: MakeEnv, feed: Feed, episode_s: float) -> ManagerBasedRlEnv:
    return make_env(
        2,
        **floating(
            feed=feed,
            episode_length_s=episode_s,
            terminations={"time_out": TerminationTermCfg(func=mdp.time_out)},
            commands={"twist": velocity_cfg(lin_vel_x=(50.0, 50.0), resampling_time_range=(9.0, 9.0))},
            curriculum={"levels": term(TerrainLevels, "episode")},
            events={"origin": EventTermCfg(func=to_origin, mode="reset")},
        ),
    )


def test_qa_037_a_level_is_judged_by_where_the_row_ended_and_used_in_the_same_reset(
    make_env: MakeEnv,
) -> None:
    feed = Feed()
    env = terrain_env(make_env, feed, episode_s=5 * DT)
    env.episode_length = torch.tensor([0, 3])
    place(feed, [pose(x=1.0), pose(x=3.0)])
    steps(env, 1)
    place(feed, [pose(x=2.0), pose(x=6.0)])
    state = steps(env, 1)  # row 1 times out at 6 m
    levels = env.curriculum_manager.row_state_roots()["curriculum.levels"].level
    assert state.truncated.tolist() == [False, True]
    assert levels.tolist() == [0, 1]
    assert env.scene["robot"].data.root_pos_w[:, 0].tolist() == [2.0, 8.0]
    assert float(env.curriculum_manager.log()["Curriculum/levels"]) == 0.5


def test_qa_037_a_row_that_did_less_than_half_of_what_it_was_asked_for_goes_down(make_env: MakeEnv) -> None:
    feed = Feed()
    env = terrain_env(make_env, feed, episode_s=5 * DT)
    levels = env.curriculum_manager.row_state_roots()["curriculum.levels"].level
    levels.fill_(1)
    # 50 m/s for 0.1 s are 5 m. Row 0 does 2 m of them and goes down; row 1 does 3 m and stays.
    place(feed, [pose(x=10.0), pose(x=11.0)])
    steps(env, 5)
    assert levels.tolist() == [0, 1]
    assert env.scene["robot"].data.root_pos_w[:, 0].tolist() == [0.0, 8.0]


def test_the_config_is_as_it_was_after_a_run(make_env: MakeEnv) -> None:
    curriculum = {"counts": term(Remembers), "end": term(says, "episode", kind="dict")}
    env = make_env(curriculum=curriculum)
    steps(env, 3)
    env.reset(ids(0))
    env.step(zeros(env))
    assert env.cfg == base_cfg(curriculum=curriculum)
