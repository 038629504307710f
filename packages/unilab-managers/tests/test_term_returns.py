"""What a term returns is checked at construction: the error names manager, term, shapes and dtypes."""

import pytest
import torch
from manager_support import Feed, MakeEnv, group, probe, returns, zeros

from unilab_core import ConfigError, EnvRng
from unilab_managers import (
    ManagerBasedRlEnv,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
)
from unilab_managers.noise import NoiseModel, NoiseModelCfg

REWARDS = [
    ("column", r"torch.float32 \(3, 1\)"),
    ("row", r"torch.float32 \(1, 3\)"),
    ("scalar", r"torch.float32 \(\)"),
    ("number", "a int"),
    ("none", "a NoneType"),
    ("double", r"torch.float64 \(3,\)"),
    ("int", r"torch.int64 \(3,\)"),
    ("wrong_n", r"torch.float32 \(2, 2\)"),
]
TERMINATIONS = [
    ("float", r"torch.float32 \(3,\)"),
    ("int", r"torch.int64 \(3,\)"),
    ("number", "a int"),
    ("bool_columns", r"torch.bool \(3, 2\)"),
]
OBSERVATIONS = [
    ("float", r"torch.float32 \(3,\)"),
    ("wrong_n", r"torch.float32 \(2, 2\)"),
    ("three_d", r"torch.float32 \(3, 1, 1\)"),
    ("bool_columns", r"torch.bool \(3, 2\)"),
    ("number", "a int"),
]


@pytest.mark.parametrize("weight", [1.0, 0.0])
@pytest.mark.parametrize(("kind", "got"), REWARDS, ids=[kind for kind, _ in REWARDS])
def test_qa_102_a_wrong_reward_is_refused(make_env: MakeEnv, kind: str, got: str, weight: float) -> None:
    cfg = RewardTermCfg(func=returns, weight=weight, params={"kind": kind})
    with pytest.raises(ConfigError, match=rf"rewards term 'bad' returned {got}, expected .*\(3,\)"):
        make_env(rewards={"bad": cfg})


@pytest.mark.parametrize(("kind", "got"), TERMINATIONS, ids=[kind for kind, _ in TERMINATIONS])
def test_qa_102_a_wrong_termination_is_refused(make_env: MakeEnv, kind: str, got: str) -> None:
    cfg = TerminationTermCfg(func=returns, params={"kind": kind})
    with pytest.raises(ConfigError, match=rf"terminations term 'bad' returned {got}, expected .*\(3,\)"):
        make_env(terminations={"bad": cfg})


@pytest.mark.parametrize(("kind", "got"), OBSERVATIONS, ids=[kind for kind, _ in OBSERVATIONS])
@pytest.mark.parametrize("name", ["obs", "critic"])
def test_qa_102_a_wrong_observation_is_refused(make_env: MakeEnv, kind: str, got: str, name: str) -> None:
    bad = ObservationTermCfg(func=returns, params={"kind": kind})
    good = ObservationTermCfg(func=returns, params={"kind": "column"})
    groups = {"obs": group(good=good)} | {name: group(good=good, bad=bad)}
    with pytest.raises(
        ConfigError, match=rf"observations.{name} term 'bad' returned {got}, expected .*\(3, dim\)"
    ):
        make_env(observations=groups)


def test_an_observation_without_columns_is_refused(make_env: MakeEnv) -> None:
    cfg = ObservationTermCfg(func=returns, params={"kind": "no_columns"})
    with pytest.raises(ConfigError, match="observations.obs term 'bad' returned no columns"):
        make_env(observations={"obs": group(bad=cfg)})


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({}, "observation groups are"),
        ({"critic": ["column"]}, "expected 'obs'"),
        ({"obs": ["column"], "student": ["column"]}, "student"),
        ({"obs": []}, "group 'obs' is empty"),
    ],
)
def test_groups_other_than_obs_and_critic_or_empty_ones_are_refused(
    make_env: MakeEnv, groups: dict[str, list[str]], message: str
) -> None:
    terms = {
        name: ObservationGroupCfg(
            terms={k: ObservationTermCfg(func=returns, params={"kind": k}) for k in kinds}
        )
        for name, kinds in groups.items()
    }
    with pytest.raises(ConfigError, match=message):
        make_env(observations=terms)


def writes_into_a_column(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns a column of the sensor, (N,), after writing into it."""
    return env.scene.sensor("probe")[:, 0].add_(1.0)


def writes_into_a_velocity(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns the joint velocities, (N, J), after writing into them."""
    return env.scene["robot"].data.joint_vel.clamp_(max=1.0)


class OwnNoise(NoiseModel):
    """Adds 1, in place."""

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        return values.add_(1.0)


class OwnNoiseCfg(NoiseModelCfg):
    """Makes `OwnNoise`."""

    def make(self, num_envs: int, dim: int, device: torch.device | str, rng: EnvRng) -> NoiseModel:
        return OwnNoise()


@pytest.mark.parametrize("weight", [1.0, 0.0])
def test_a_reward_that_writes_into_what_it_reads_is_refused(make_env: MakeEnv, weight: float) -> None:
    cfg = RewardTermCfg(func=writes_into_a_column, weight=weight)
    with pytest.raises(ConfigError, match="rewards term 'bad' wrote into 'sensor:probe', which it shares"):
        make_env(rewards={"bad": cfg})


def test_an_observation_that_writes_into_what_it_reads_is_refused(make_env: MakeEnv) -> None:
    bad = ObservationTermCfg(func=writes_into_a_velocity)
    with pytest.raises(ConfigError, match="observations.obs term 'bad' wrote into 'qvel', which it shares"):
        make_env(observations={"obs": group(bad=bad)})


def test_a_noise_that_writes_into_what_it_is_given_changes_nothing_that_terms_share(
    make_env: MakeEnv,
) -> None:
    feed = Feed()
    noisy = ObservationTermCfg(func=probe, noise=OwnNoiseCfg())
    env = make_env(
        1, feed=feed, observations={"obs": group(noisy=noisy, plain=ObservationTermCfg(func=probe))}
    )
    feed.probe([[1.0, 2.0, 3.0]])
    assert env.step(zeros(env)).obs["obs"].tolist() == [[2.0, 3.0, 4.0, 1.0, 2.0, 3.0]]
    assert env.scene.sensor("probe").tolist() == [[1.0, 2.0, 3.0]]
