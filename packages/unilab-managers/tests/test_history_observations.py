"""Delay and history in an environment: what each row is shown, step by step, and what a reset leaves of it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, calls, ids, probe, zeros

from unilab_core import NanGuardCfg, ResetRejectedError
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    ObservationGroupCfg,
    ObservationTermCfg,
    TerminationTermCfg,
)
from unilab_managers.cfg.term import TermCfg
from unilab_managers.noise import AdditiveBiasNoiseCfg, GaussianNoiseCfg, UniformNoiseCfg

TWO_AGO = {"delay_min_lag": 2, "delay_max_lag": 2}


class Count:
    """Counts the steps of each row: 0, 1, 2, ... in its first episode, 100, 101, ... in its second, and so on."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv, width: int = 1) -> None:
        self.episode = torch.full((env.num_envs, 1), -1.0)
        self.steps = torch.zeros(env.num_envs, 1)

    def update(self, env: ManagerBasedRlEnv) -> None:
        self.steps += 1.0

    def reset(self, env_ids: torch.Tensor) -> None:
        self.episode[env_ids] += 1.0
        self.steps[env_ids] = 100.0 * self.episode[env_ids]

    def __call__(self, env: ManagerBasedRlEnv, columns: int = 1) -> torch.Tensor:
        """Returns the count, then the count and a half, and so on."""
        return self.steps + torch.arange(columns) / 2


def fell(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns where the second column of the sensor is set, (N,)."""
    return env.scene.sensor("probe")[:, 1] > 0.5


def observations(**terms: ObservationTermCfg) -> dict[str, ObservationGroupCfg]:
    return {"obs": ObservationGroupCfg(terms=terms)}


def counted(**settings: Any) -> dict[str, ObservationGroupCfg]:
    return observations(count=ObservationTermCfg(func=Count, **settings))


class Run:
    """An environment whose rows end when told to."""

    def __init__(self, make_env: MakeEnv, num_envs: int = 3, **options: Any) -> None:
        self.feed = Feed()
        fields: dict[str, Any] = {"terminations": {"fell": TerminationTermCfg(func=fell)}}
        self.env = make_env(num_envs, feed=self.feed, **(fields | options))

    def step(self, *ending: int) -> Any:
        """Steps; the rows named end with this step. Returns the state."""
        self.feed.probe([[0.0, float(i in ending), 0.0] for i in range(self.env.num_envs)])
        return self.env.step(zeros(self.env))

    def steps(self, count: int) -> Any:
        for _ in range(count):
            state = self.step()
        return state

    def shown(self) -> list[list[float]]:
        return self.env.observations()["obs"].tolist()


def test_qa_014_asking_again_in_the_same_step_pushes_no_frame_a_second_time(make_env: MakeEnv) -> None:
    run = Run(make_env, 1, observations=counted(**TWO_AGO, history_length=3))
    for _ in range(5):
        answer = run.step().obs["obs"].clone()
        assert torch.equal(run.env.observations()["obs"], answer)
        again = run.env.observation_manager.compute(None)["obs"]  # as a recorder might
        assert torch.equal(again, answer)
    assert run.shown() == [[1.0, 2.0, 3.0]]  # pushed twice it would be [3, 4, 4]


def test_qa_016_history_and_delay_hold_nothing_of_the_episode_before(make_env: MakeEnv) -> None:
    run = Run(make_env, observations=counted(**TWO_AGO, history_length=3))
    run.steps(4)
    state = run.step(1)
    assert state.final_observation["obs"].tolist() == [[1.0, 2.0, 3.0]] * 3
    assert run.shown() == [[1.0, 2.0, 3.0], [100.0, 100.0, 100.0], [1.0, 2.0, 3.0]]
    expected = [[100.0, 100.0, 100.0], [100.0, 100.0, 100.0], [100.0, 100.0, 101.0], [100.0, 101.0, 102.0]]
    for step, row in enumerate(expected):
        run.step()
        other = [step + 2.0, step + 3.0, step + 4.0]
        assert run.shown() == [other, row, other]


def test_the_first_frame_of_an_episode_is_shown_undelayed_and_fills_the_history(make_env: MakeEnv) -> None:
    run = Run(make_env, observations=counted(delay_min_lag=1, delay_max_lag=1, history_length=2))
    assert run.shown() == [[0.0, 0.0]] * 3
    run.steps(3)
    assert run.env.reset(ids(2, 0))[0]["obs"].tolist() == [[100.0, 100.0]] * 2
    assert run.shown() == [[100.0, 100.0], [1.0, 2.0], [100.0, 100.0]]
    assert run.env.observation_manager.compute(None)["obs"].tolist() == run.shown()
    run.step()
    assert run.shown() == [[100.0, 100.0], [2.0, 3.0], [100.0, 100.0]]


def test_a_history_without_a_delay_ends_with_the_frame_of_now(make_env: MakeEnv) -> None:
    run = Run(make_env, 1, observations=counted(history_length=3))
    assert [run.shown()[0], *(run.step().obs["obs"][0].tolist() for _ in range(4))] == [
        [0.0, 0.0, 0.0],
        [0.0, 0.0, 1.0],
        [0.0, 1.0, 2.0],
        [1.0, 2.0, 3.0],
        [2.0, 3.0, 4.0],
    ]


TWO = {"func": Count, "params": {"columns": 2}}


def mixed(**group: Any) -> dict[str, ObservationGroupCfg]:
    """Three terms: two columns and three frames, one column without a history, one column and two frames."""
    terms = {
        "a": ObservationTermCfg(**TWO, history_length=3),
        "b": ObservationTermCfg(func=Count, scale=10.0),
        "c": ObservationTermCfg(func=Count, scale=-1.0, history_length=2),
    }
    return {"obs": ObservationGroupCfg(terms=terms, **group)}


def test_columns_go_term_by_term_each_from_its_oldest_frame_to_its_newest(make_env: MakeEnv) -> None:
    run = Run(make_env, 2, observations=mixed())
    run.steps(5)
    row = [3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 50.0, -4.0, -5.0]
    assert run.shown() == [row, row]
    run.env.reset(ids(1))
    assert run.shown() == [row, [100.0, 100.5] * 3 + [1000.0, -100.0, -100.0]]
    run.step()
    assert run.shown()[1] == [100.0, 100.5, 100.0, 100.5, 101.0, 101.5, 1010.0, -100.0, -101.0]
    assert run.env.obs_groups_spec == {"obs": 9}
    assert run.env.observation_manager.labels()["obs"] == (
        "a[0][t-2]", "a[1][t-2]", "a[0][t-1]", "a[1][t-1]", "a[0][t-0]", "a[1][t-0]", "b[0]", "c[0][t-1]", "c[0][t-0]",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("length", "expected"),
    [
        (0, [5.0, 5.5, 50.0, -5.0]),
        (1, [5.0, 5.5, 50.0, -5.0]),
        (2, [4.0, 4.5, 5.0, 5.5, 40.0, 50.0, -4.0, -5.0]),
    ],
)
def test_the_groups_history_replaces_that_of_every_term(
    make_env: MakeEnv, length: int, expected: list[float]
) -> None:
    run = Run(make_env, 1, observations=mixed(history_length=length))
    run.steps(5)
    assert run.shown() == [expected]


def test_qa_104_an_unset_group_history_changes_nothing_and_an_explicit_zero_does(make_env: MakeEnv) -> None:
    assert Run(make_env, observations=mixed(history_length=None)).env.obs_groups_spec == {"obs": 9}
    assert Run(make_env, observations=mixed(history_length=0)).env.obs_groups_spec == {"obs": 4}


def test_whole_frames_stand_side_by_side_if_the_history_is_not_flattened(make_env: MakeEnv) -> None:
    run = Run(make_env, 2, observations=mixed(history_length=3, flatten_history_dim=False))
    run.steps(5)
    frames = [[3.0, 3.5, 30.0, -3.0], [4.0, 4.5, 40.0, -4.0], [5.0, 5.5, 50.0, -5.0]]
    assert run.env.state.obs["obs"].shape == (2, 12)
    assert run.env.observations()["obs"].reshape(2, 3, 4).tolist() == [frames, frames]
    run.env.reset(ids(0))
    assert run.env.observations()["obs"].reshape(2, 3, 4).tolist() == [
        [[100.0, 100.5, 1000.0, -100.0]] * 3,
        frames,
    ]
    assert run.env.observation_manager.labels()["obs"][:5] == (
        "a[0][t-2]", "a[1][t-2]", "b[0][t-2]", "c[0][t-2]", "a[0][t-1]",
    )  # fmt: skip


def test_a_group_without_a_history_is_one_frame_either_way(make_env: MakeEnv) -> None:
    for flatten in (True, False):
        run = Run(make_env, 1, observations=mixed(history_length=0, flatten_history_dim=flatten))
        run.step()
        assert run.shown() == [[1.0, 1.5, 10.0, -1.0]]


def test_each_group_remembers_for_itself(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=Count, **TWO_AGO)
    groups = {
        "obs": ObservationGroupCfg(terms={"count": term}, history_length=2),
        "critic": ObservationGroupCfg(terms={"count": ObservationTermCfg(func=Count)}),
    }
    run = Run(make_env, 1, observations=groups)
    state = run.steps(4)
    assert state.obs["obs"].tolist() == [[1.0, 2.0]]
    assert state.obs["critic"].tolist() == [[4.0]]


# ---------------------------------------------------------------- equal ways to the same state

NOISY = {
    "drawn": ObservationTermCfg(
        **TWO, noise=UniformNoiseCfg(n_min=-0.5, n_max=0.5), delay_max_lag=3, delay_hold_prob=0.4, history_length=3
    ),
    "biased": ObservationTermCfg(
        **TWO, noise=AdditiveBiasNoiseCfg(bias=UniformNoiseCfg(), noise=GaussianNoiseCfg(std=0.1)), scale=2.0
    ),
    "shared": ObservationTermCfg(func=Count, delay_min_lag=1, delay_max_lag=4, delay_per_env=False),
    "slow": ObservationTermCfg(func=Count, delay_min_lag=1, delay_max_lag=4, delay_update_period=3, history_length=2),
}  # fmt: skip


def remembered(env: ManagerBasedRlEnv) -> dict[str, Any]:
    """Returns what the observations and the generator hold."""
    values = env.state_dict()["values"]
    return {key: value for key, value in values.items() if key.startswith(("observations", "rng", "_obs"))}


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    assert a.keys() == b.keys()
    return all(torch.equal(a[k], b[k]) if isinstance(a[k], torch.Tensor) else bool(a[k] == b[k]) for k in a)


def test_an_automatic_and_a_manual_reset_leave_the_same(make_env: MakeEnv) -> None:
    automatic = Run(make_env, observations=observations(**NOISY), seed=5)
    manual = Run(make_env, observations=observations(**NOISY), seed=5, autoreset=False)
    for run in (automatic, manual):
        run.steps(4)
        run.step(1, 2)
    manual.env.reset(ids(2, 1))
    assert same(remembered(automatic.env), remembered(manual.env))
    for _ in range(6):
        assert torch.equal(automatic.step().obs["obs"], manual.step().obs["obs"])
    assert same(remembered(automatic.env), remembered(manual.env))


def test_rows_that_go_on_do_not_notice_that_others_begin(make_env: MakeEnv) -> None:
    # Without draws of a step a reset of one row cannot shift those of another.
    term = ObservationTermCfg(func=Count, delay_max_lag=3, delay_hold_prob=1.0, history_length=3)
    run, twin = (Run(make_env, observations=observations(count=term), seed=2) for _ in range(2))
    for each in (run, twin):
        each.steps(4)
    run.env.reset(ids(1))
    for _ in range(6):
        ours, theirs = run.step().obs["obs"], twin.step().obs["obs"]
        assert torch.equal(ours[[0, 2]], theirs[[0, 2]])
        assert not torch.equal(ours[1], theirs[1])


def test_a_state_taken_in_the_middle_of_a_history_goes_on_the_same(make_env: MakeEnv) -> None:
    run = Run(make_env, observations=observations(**NOISY), seed=5)
    run.steps(4)
    run.step(1)
    run.step()
    state = run.env.state_dict()
    shown = [run.step(*ending).obs["obs"].clone() for ending in ((), (), (0,), (), ())]
    other = Run(make_env, observations=observations(**NOISY), seed=99)
    other.steps(3)
    other.env.load_state_dict(state)
    for frame, ending in zip(shown, ((), (), (0,), (), ()), strict=True):
        assert torch.equal(other.step(*ending).obs["obs"], frame)
    assert same(remembered(run.env), remembered(other.env))


def meddles(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Begins the rows' observations before anything is committed, and may then fail."""
    if calls:
        env.observation_manager.reset(env_ids)
        env.observation_manager.compute(env_ids)
        env.observation_manager.update()
        env.observation_manager.compute(None)
        raise ArithmeticError("too late")


@pytest.mark.parametrize("num_envs", [3, 300])  # 300 rows make rings too large to be saved whole
def test_a_rejected_reset_leaves_every_frame_lag_and_bias_as_it_was(make_env: MakeEnv, num_envs: int) -> None:
    wide = {"wide": ObservationTermCfg(func=Count, params={"columns": 9}, delay_max_lag=3, history_length=4)}
    events = {"meddles": EventTermCfg(func=meddles, mode="reset")}
    run, twin = (
        Run(make_env, num_envs, observations=observations(**NOISY, **wide), events=events, seed=4) for _ in range(2)
    )  # fmt: skip
    for each in (run, twin):
        each.steps(5)
    calls.append("fail")
    with pytest.raises(ResetRejectedError, match="too late"):
        run.env.reset()
    calls.clear()
    assert same(remembered(run.env), remembered(twin.env))
    for _ in range(4):
        assert torch.equal(run.step().obs["obs"], twin.step().obs["obs"])


def test_an_empty_reset_leaves_every_frame_and_lag_as_it_was(make_env: MakeEnv) -> None:
    run = Run(make_env, observations=observations(**NOISY))
    run.steps(3)
    before = remembered(run.env)
    run.env.reset(ids())
    assert same(remembered(run.env), before)


def test_building_an_environment_pushes_no_frame_and_draws_nothing(make_env: MakeEnv) -> None:
    run = Run(make_env, observations=observations(**NOISY), reset=False)
    values = remembered(run.env)
    rings = [value for key, value in values.items() if key.endswith("_cells")]
    assert len(rings) == 4
    assert not any(bool(ring.any()) for ring in rings)
    assert torch.equal(values["rng.generator"], torch.Generator().manual_seed(0).get_state())


def test_steps_inside_and_outside_inference_mode_take_turns(make_env: MakeEnv) -> None:
    run, twin = (Run(make_env, observations=observations(**NOISY), seed=1) for _ in range(2))
    for step in range(8):
        with torch.inference_mode(step % 2 == 0):
            found = run.step(*([1] if step == 4 else [])).obs["obs"].clone()
        assert torch.equal(found, twin.step(*([1] if step == 4 else [])).obs["obs"])


# ---------------------------------------------------------------- what is not finite


def test_qa_068_a_value_that_is_not_finite_does_not_outlive_its_episode(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(
        func=probe, clip=(-1.0, 1.0), delay_min_lag=1, delay_max_lag=1, history_length=3
    )
    run = Run(
        make_env,
        observations=observations(probe=term),
        terminations={},
        nan_guard=NanGuardCfg(policy="reset_row", max_dumps=0),
    )
    run.steps(2)
    run.feed.probe([[0.5, 0.5, 0.5], [0.5, float("nan"), 0.5], [0.5, 0.5, 0.5]])
    run.env.step(zeros(run.env))
    assert run.env.nonfinite_count == 0  # one step later it is shown, clip or not
    run.feed.probe([[0.25] * 3] * 3)
    state = run.env.step(zeros(run.env))
    assert state.terminated.tolist() == [False, True, False]
    assert bool(torch.isfinite(state.final_observation["obs"]).all())
    assert run.shown()[1] == [0.25] * 9
    for _ in range(4):
        assert bool(torch.isfinite(run.env.step(zeros(run.env)).obs["obs"]).all())
    assert run.env.nonfinite_count == 1
