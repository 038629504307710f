"""TermBench: one term, on a state that a test writes down."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from unilab_core import ConfigError
from unilab_managers import (
    ManagerBasedRlEnv,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    UniformNoiseCfg,
    mdp,
)
from unilab_managers.testing import TermBench
from unisim.testing import make_layout


def probe(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns a sensor, (N, 2)."""
    return env.scene.sensor("probe")


def near(env: ManagerBasedRlEnv, joint: int, std: float) -> torch.Tensor:
    """Returns (N,): 1 where a joint is at 0."""
    return torch.exp(-((env.scene["robot"].data.joint_pos[:, joint] / std) ** 2))


def fast(env: ManagerBasedRlEnv, limit: float) -> torch.Tensor:
    """Returns (N,) bool: the first joint is faster than that."""
    return env.scene["robot"].data.joint_vel[:, 0].abs() > limit


class Air:
    """Counts steps, row by row."""

    def __init__(self, cfg: RewardTermCfg, env: ManagerBasedRlEnv) -> None:
        self.steps = torch.zeros(env.num_envs)

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        self.steps += 1.0
        return self.steps

    def reset(self, env_ids: torch.Tensor) -> None:
        self.steps[env_ids] = 0.0


def test_a_reward_gives_what_its_function_says_of_the_state_times_its_weight() -> None:
    with TermBench(
        RewardTermCfg(func=near, weight=2.0, params={"joint": 1, "std": 0.5}), num_envs=2
    ) as bench:
        values = bench.step({"qpos": [[9.0, 0.0], [9.0, 0.5]]})
        torch.testing.assert_close(values, 2.0 * torch.exp(torch.tensor([0.0, -1.0])))
        assert torch.equal(bench.step(), values)  # what is said stays so


def test_a_termination_gives_flags() -> None:
    with TermBench(TerminationTermCfg(func=fast, params={"limit": 1.0}), num_envs=3) as bench:
        assert bench.step({"qvel": [[0.5, 0.0], [1.5, 0.0], [-1.5, 0.0]]}).tolist() == [False, True, True]
        with pytest.raises(RuntimeError, match=r"rows \[1, 2\] wait for a reset"):
            bench.step()
        bench.reset(1, 2)
        assert bench.step({"qvel": torch.zeros(3, 2)}).tolist() == [False, False, False]


def test_a_termination_with_autoreset_needs_no_reset() -> None:
    term = TerminationTermCfg(func=fast, params={"limit": 1.0})
    with TermBench(term, num_envs=1, autoreset=True) as bench:
        assert bench.step({"qvel": [[2.0, 0.0]]}).tolist() == [True]
        assert bench.step({"qvel": [[0.0, 0.0]]}).tolist() == [False]


def test_an_observation_passes_through_its_whole_pipeline() -> None:
    layout = make_layout(sensors={"probe": (2, "position")})
    term = ObservationTermCfg(
        func=probe, noise=UniformNoiseCfg(n_min=1.0, n_max=1.0), clip=(0.0, 3.0), scale=10.0, history_length=2
    )
    with TermBench(term, layout=layout, num_envs=1) as bench:
        assert bench.step({"sensor:probe": [[0.5, 5.0]]}).tolist() == [[10.0, 10.0, 15.0, 30.0]]
        assert bench.step({"sensor:probe": [[-2.0, 1.0]]}).tolist() == [[15.0, 30.0, 0.0, 20.0]]
        # What was said of the sensor stays; the first frame fills the history.
        assert bench.reset(0).tolist() == [[0.0, 20.0, 0.0, 20.0]]


def test_a_class_term_keeps_the_rows_that_are_not_reset() -> None:
    with TermBench(RewardTermCfg(func=Air, weight=1.0), num_envs=3) as bench:
        bench.step()
        bench.step()
        bench.reset(1)
        assert bench.step().tolist() == [3.0, 1.0, 3.0]


def test_actions_reach_the_term_and_are_zero_where_none_are_given() -> None:
    with TermBench(ObservationTermCfg(func=mdp.last_action), num_envs=2) as bench:
        assert bench.step(actions=[[0.5], [-0.5]]).tolist() == [[0.5], [-0.5]]
        assert bench.step().tolist() == [[0.0], [0.0]]


def test_more_fields_of_the_config_stand_around_the_term() -> None:
    command = mdp.UniformVelocityCommandCfg(
        lin_vel_x=(0.5, 0.5), lin_vel_y=(0.0, 0.0), ang_vel_z=(-1.0, -1.0), resampling_time_range=(1.0, 1.0)
    )
    term = ObservationTermCfg(func=mdp.generated_commands, params={"command_name": "twist"})
    with TermBench(
        term, layout=make_layout(free_root=True), num_envs=1, commands={"twist": command}
    ) as bench:
        assert bench.step().tolist() == [[0.5, 0.0, -1.0]]
        assert bench.env.describe().observations["obs"] == (
            *("term[lin_vel_x]", "term[lin_vel_y]", "term[ang_vel_z]"),
        )


@pytest.mark.parametrize(
    ("term", "more", "words"),
    [
        (mdp.JointEffortActionCfg(), {}, "TermBench: got a JointEffortActionCfg, expected one of"),
        (
            RewardTermCfg(func=Air, weight=1.0),
            {"rewards": {}},
            "rewards is the kind of the term on the bench",
        ),
        (RewardTermCfg(func=probe, weight=1.0), {}, r"unknown sensor 'probe'|no such|probe"),
    ],
)
def test_what_cannot_be_put_on_the_bench_is_refused(term: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        TermBench(term, **more)


def test_helpers_for_tests_are_imported_without_a_test_framework() -> None:
    program = "import sys, unilab_managers.testing; print('pytest' in sys.modules, 'mujoco' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
