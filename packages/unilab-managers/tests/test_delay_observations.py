"""The delay of an observation term in an environment: what is served, when, and at which lag."""

from __future__ import annotations

import pytest
import torch
from manager_support import Feed, MakeEnv, ids, probe, zeros

from unilab_core import ConfigError
from unilab_managers import ManagerBasedRlEnv, ObservationGroupCfg, ObservationTermCfg
from unilab_managers.noise import ConstantNoiseCfg, NoiseModel, NoiseModelCfg, UniformNoiseCfg


class Sampled(NoiseModel):
    """Uniform noise that notes every frame it has made."""

    def __init__(self, model: NoiseModel) -> None:
        self.model = model
        self.frames: list[torch.Tensor] = []

    def apply(self, values: torch.Tensor, env_ids: torch.Tensor | None = None) -> torch.Tensor:
        noisy = self.model.apply(values, env_ids)
        self.frames.append(noisy)
        return noisy


class SampledCfg(NoiseModelCfg):
    """See `Sampled`."""

    def make(self, num_envs, dim, device, rng) -> NoiseModel:
        sampled.clear()
        sampled.append(Sampled(UniformNoiseCfg(n_min=-0.5, n_max=0.5).make(num_envs, dim, device, rng)))
        return sampled[0]


sampled: list[Sampled] = []


def delayed(make_env: MakeEnv, num_envs: int = 3, **settings: object) -> ManagerBasedRlEnv:
    term = ObservationTermCfg(func=probe, **settings)
    return make_env(num_envs, feed=Feed(), observations={"obs": ObservationGroupCfg(terms={"p": term})})


def test_qa_020_a_delayed_frame_shows_the_noise_it_was_measured_with(make_env: MakeEnv) -> None:
    env = delayed(make_env, noise=SampledCfg(), delay_min_lag=2, delay_max_lag=2, history_length=1)
    emitted = [env.observations()["obs"]]
    for _ in range(8):
        emitted.append(env.step(zeros(env)).obs["obs"].clone())
    frames = sampled[0].frames
    assert len(frames) == len(emitted) == 9
    for step in range(2, 9):
        assert torch.equal(emitted[step], frames[step - 2])
    assert torch.equal(emitted[1], frames[0])
    assert not torch.equal(frames[2], frames[3])


def test_qa_020_noise_clip_and_scale_come_before_the_delay_in_this_order(make_env: MakeEnv) -> None:
    feed = Feed()
    settings = {"noise": ConstantNoiseCfg(bias=0.5), "clip": (-1.0, 1.0), "scale": 2.0}
    term = ObservationTermCfg(func=probe, **settings, delay_min_lag=2, delay_max_lag=2)
    env = make_env(1, feed=feed, observations={"obs": ObservationGroupCfg(terms={"p": term})})
    shown = []
    for raw in (0.9, -1.75, 0.25, 0.0, 0.0):
        feed.probe([[raw] * 3])
        shown.append(env.step(zeros(env)).obs["obs"][0, 0].item())
    # 0.9 + 0.5 = 1.4, clipped to 1, doubled; clipped last it would be 1. The first frame, 0 + 0.5 doubled, comes first.
    assert shown == [1.0, 1.0, 2.0, -2.0, 1.5]


def lags(env: ManagerBasedRlEnv) -> list[int]:
    return env.state_dict()["values"]["observations.obs.p._delay.lags.values"].tolist()


def test_a_lag_is_never_below_the_smallest_once_there_are_frames_as_old(make_env: MakeEnv) -> None:
    feed = Feed()
    settings = {"delay_min_lag": 2, "delay_max_lag": 4, "delay_hold_prob": 0.5, "delay_update_period": 2}
    term = ObservationTermCfg(func=probe, **settings)
    env = make_env(3, feed=feed, observations={"obs": ObservationGroupCfg(terms={"p": term})})
    ages, began = set(), [0, 0, 0]
    for step in range(1, 60):
        feed.probe([[float(step)] * 3] * 3)
        row = env.step(zeros(env)).obs["obs"][:, 0].tolist()
        for i in range(3):
            age, oldest = step - row[i], step - began[i]
            assert age == min(lags(env)[i], oldest)
            assert age >= min(2, oldest)
            assert row[i] >= began[i]
            ages.add(age)
        if step % 13 == 0:
            env.reset(ids(1))
            began[1] = step  # the sensor still shows this step: it is the first frame of the episode
            assert env.observations()["obs"][1, 0].item() == float(step)
    assert ages == {0.0, 1.0, 2.0, 3.0, 4.0} - {0.0}


def test_a_delay_without_a_choice_draws_nothing(make_env: MakeEnv) -> None:
    env = delayed(make_env, delay_min_lag=3, delay_max_lag=3, delay_hold_prob=0.5, delay_update_period=2)
    before = env.rng.get_state()
    for _ in range(5):
        env.step(zeros(env))
    env.reset(ids(1))
    assert torch.equal(env.rng.get_state(), before)


def test_a_partial_reset_draws_lags_for_its_rows_only_and_in_row_order(make_env: MakeEnv) -> None:
    first, second = (delayed(make_env, 4, delay_max_lag=10**3, delay_hold_prob=1.0) for _ in range(2))
    before = lags(first)
    twin = torch.Generator()
    twin.set_state(first.rng.get_state())
    first.reset(ids(3, 1))
    second.reset(ids(1, 3))
    drawn = torch.randint(0, 10**3 + 1, (2,), generator=twin).tolist()
    assert lags(first) == lags(second) == [before[0], drawn[0], before[2], drawn[1]]
    assert torch.equal(first.rng.get_state(), twin.get_state())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"delay_min_lag": 3, "delay_max_lag": 2}, "delay_min_lag 3 is above delay_max_lag 2"),
        ({"delay_min_lag": 1}, "delay_min_lag 1 is above delay_max_lag 0"),
        ({"delay_min_lag": -1}, "delay_min_lag: .*greater than or equal to 0"),
        ({"delay_max_lag": -1}, "delay_max_lag: .*greater than or equal to 0"),
        ({"delay_max_lag": 1.5}, "delay_max_lag: .*valid integer"),
        ({"delay_max_lag": float("nan")}, "delay_max_lag"),
        ({"delay_max_lag": True}, "delay_max_lag"),
        ({"delay_hold_prob": -0.1}, "delay_hold_prob: .*greater than or equal to 0"),
        ({"delay_hold_prob": 1.1}, "delay_hold_prob: .*less than or equal to 1"),
        ({"delay_hold_prob": float("nan")}, "delay_hold_prob"),
        ({"delay_update_period": -1}, "delay_update_period: .*greater than or equal to 0"),
        ({"delay_per_env": 1}, "delay_per_env"),
        ({"history_length": -1}, "history_length: .*greater than or equal to 0"),
        ({"history_length": 2.0}, "history_length"),
        ({"delay_max_lags": 1}, "unknown key 'delay_max_lags'; did you mean 'delay_max_lag'"),
    ],
)
def test_qa_018_a_wrong_delay_or_history_of_a_term_is_refused(
    settings: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ObservationTermCfg(func=probe, **settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"history_length": -1}, "history_length"),
        ({"history_length": float("nan")}, "history_length"),
        ({"flatten_history_dim": 0}, "flatten_history_dim"),
        (
            {"flatten_history_dim": False},
            r"flatten_history_dim=False shows whole frames, but the terms have {'a': 3, 'b': 1} .*history_length",
        ),
    ],
)  # fmt: skip
def test_a_wrong_history_of_a_group_is_refused(settings: dict[str, object], message: str) -> None:
    terms = {"a": ObservationTermCfg(func=probe, history_length=3), "b": ObservationTermCfg(func=probe)}
    with pytest.raises(ConfigError, match=message):
        ObservationGroupCfg(terms=terms, **settings)


def test_a_group_history_makes_frames_whole(make_env: MakeEnv) -> None:
    terms = {"a": ObservationTermCfg(func=probe, history_length=3), "b": ObservationTermCfg(func=probe)}
    cfg = ObservationGroupCfg(terms=terms, history_length=2, flatten_history_dim=False)
    assert make_env(observations={"obs": cfg}).obs_groups_spec == {"obs": 12}
