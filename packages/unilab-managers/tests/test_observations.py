"""Observations: noise, then clip, then scale; columns in the order of declaration; what a reset draws."""

from typing import Any

import pytest
import torch
from manager_support import Feed, MakeEnv, group, ids, layout_of, probe, with_default, zeros

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import (
    ConstantNoiseCfg,
    GaussianNoiseCfg,
    ManagerBasedRlEnv,
    ObservationTermCfg,
    UniformNoiseCfg,
    mdp,
)

ROWS = [[0.9, -0.25, 3.0], [0.0, 0.5, -4.0], [-0.9, 2.0, 1.0]]
NOISY = ObservationTermCfg(func=probe, noise=UniformNoiseCfg(n_min=-0.5, n_max=0.5))


def observed(
    make_env: MakeEnv, term: ObservationTermCfg, rows: list[list[float]] = ROWS, **options: Any
) -> list[Any]:
    """Returns what one term shows of the rows after a step."""
    env = stepped(make_env, {"obs": group(probe=term, **options)}, rows)
    return env.state.obs["obs"].tolist()


def stepped(
    make_env: MakeEnv, groups: dict[str, Any], rows: list[list[float]] = ROWS, **options: Any
) -> ManagerBasedRlEnv:
    feed = Feed()
    env = make_env(len(rows), feed=feed, observations=groups, **options)
    feed.probe(rows)
    env.step(zeros(env))
    return env


def f32(rows: list[list[float]]) -> list[Any]:
    return torch.tensor(rows, dtype=torch.float32).tolist()


def test_a_bare_term_is_shown_as_it_is(make_env: MakeEnv) -> None:
    assert observed(make_env, ObservationTermCfg(func=probe)) == f32(ROWS)


def test_qa_020_noise_comes_before_clip_and_clip_before_scale(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=probe, noise=ConstantNoiseCfg(bias=0.5), clip=(-1.0, 1.0), scale=2.0)
    # 0.9 + 0.5 = 1.4, clipped to 1, doubled. Scale before clip would give 1, noise last 2.5.
    assert observed(make_env, term, [[0.9, -1.75, 0.25]]) == [[2.0, -2.0, 1.5]]


def test_columns_have_their_own_noise_and_scale(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(
        func=probe, noise=ConstantNoiseCfg(bias=(0.0, 0.25, 1.0)), scale=(1.0, 2.0, -0.5)
    )
    assert observed(make_env, term, [[1.0, 1.0, 1.0], [0.0, -0.25, 3.0]]) == [
        [1.0, 2.5, -1.0],
        [0.0, 0.0, -2.0],
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"scale": (1.0, 2.0)}, "observations.obs term 'probe': scale has 2 numbers, expected 3"),
        ({"scale": ()}, "scale has 0 numbers, expected 3"),
        (
            {"noise": ConstantNoiseCfg(bias=(1.0,))},
            "observations.obs term 'probe': noise.bias has 1 numbers, expected 3",
        ),
        ({"noise": UniformNoiseCfg(n_max=(1.0,) * 4)}, "noise.n_max has 4 numbers, expected 3"),
        ({"noise": GaussianNoiseCfg(std=(1.0, 1.0))}, "noise.std has 2 numbers, expected 3"),
    ],
)
@pytest.mark.parametrize("enable_corruption", [True, False])
def test_a_setting_of_the_wrong_length_is_refused(
    make_env: MakeEnv, settings: dict[str, Any], message: str, enable_corruption: bool
) -> None:
    term = ObservationTermCfg(func=probe, **settings)
    with pytest.raises(ConfigError, match=message):
        make_env(observations={"obs": group(probe=term, enable_corruption=enable_corruption)})


def test_without_corruption_only_the_noise_is_missing(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=probe, noise=ConstantNoiseCfg(bias=0.5), clip=(-1.0, 1.0), scale=2.0)
    assert observed(make_env, term, [[0.75, -1.75, 0.25]], enable_corruption=False) == [[1.5, -2.0, 0.5]]


def test_a_group_without_corruption_sees_the_clean_values_beside_a_noisy_one(make_env: MakeEnv) -> None:
    term = ObservationTermCfg(func=probe, noise=ConstantNoiseCfg(bias=0.5))
    env = stepped(
        make_env, {"obs": group(p=term), "critic": group(p=term, enable_corruption=False)}, [[1.0, 2.0, 3.0]]
    )
    assert env.state.obs["obs"].tolist() == [[1.5, 2.5, 3.5]]
    assert env.state.obs["critic"].tolist() == [[1.0, 2.0, 3.0]]
    assert env.obs_groups_spec == {"obs": 3, "critic": 3}


def test_columns_stand_in_the_order_of_declaration(make_env: MakeEnv) -> None:
    joints, sensor = ObservationTermCfg(func=mdp.joint_pos), ObservationTermCfg(func=probe, scale=10.0)
    default = with_default(layout_of(), 1.5, -0.5)
    first = stepped(make_env, {"obs": group(joints=joints, sensor=sensor)}, [[1.0, 2.0, 3.0]], layout=default)
    second = stepped(
        make_env, {"obs": group(sensor=sensor, joints=joints)}, [[1.0, 2.0, 3.0]], layout=default
    )
    assert first.state.obs["obs"].tolist() == [[1.5, -0.5, 10.0, 20.0, 30.0]]
    assert second.state.obs["obs"].tolist() == [[10.0, 20.0, 30.0, 1.5, -0.5]]
    assert first.observation_manager.labels() == {
        "obs": ("joints[slider]", "joints[hinge]", "sensor[0]", "sensor[1]", "sensor[2]")
    }
    assert first.observation_manager.active_terms == ("obs/joints", "obs/sensor")


@pytest.mark.parametrize(("preserve_order", "expected"), [(True, [3.0, 1.0, 2.0]), (False, [1.0, 2.0, 3.0])])
def test_qa_040_joint_columns_follow_the_names_only_if_asked(
    make_env: MakeEnv, preserve_order: bool, expected: list[float]
) -> None:
    entity = SceneEntityCfg(joint_names=("c", "a", "b"), preserve_order=preserve_order)
    params = {"asset_cfg": entity}
    terms = group(
        pos=ObservationTermCfg(func=mdp.joint_pos, params=params),
        rel=ObservationTermCfg(func=mdp.joint_pos_rel, params=params),
        vel=ObservationTermCfg(func=mdp.joint_vel, params=params),
    )
    feed = Feed()
    env = make_env(
        1,
        feed=feed,
        layout=with_default(layout_of("a", "b", "c"), 0.5, 1.0, 1.5),
        observations={"obs": terms},
    )
    feed.now = {"qpos": torch.tensor([[1.0, 2.0, 3.0]]), "qvel": torch.tensor([[10.0, 20.0, 30.0]])}
    env.step(zeros(env))
    order = [int(value) - 1 for value in expected]
    shown = env.state.obs["obs"][0]
    assert shown[:3].tolist() == expected
    assert shown[3:6].tolist() == [[0.5, 1.0, 1.5][i] for i in order]
    assert shown[6:].tolist() == [10.0 * value for value in expected]


def test_qa_014_reading_observations_again_changes_nothing(make_env: MakeEnv) -> None:
    env = stepped(make_env, {"obs": group(p=NOISY)})
    shown, draws = env.state.obs["obs"].clone(), env.rng.get_state()
    for _ in range(3):
        assert torch.equal(env.observations()["obs"], shown)
    env.observations()["obs"].zero_()
    assert torch.equal(env.state.obs["obs"], shown)
    assert torch.equal(env.rng.get_state(), draws)


def test_a_partial_reset_draws_noise_for_its_rows_only(make_env: MakeEnv) -> None:
    env = stepped(make_env, {"obs": group(p=NOISY)})
    before, twin = env.observations()["obs"], torch.Generator()
    twin.set_state(env.rng.get_state())
    observations, _ = env.reset(ids(1))
    drawn = torch.rand(1, 3, generator=twin) - 0.5
    assert torch.equal(observations["obs"], torch.tensor(ROWS)[[1]] + drawn)
    assert torch.equal(env.rng.get_state(), twin.get_state())
    after = env.observations()["obs"]
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert not torch.equal(after[1], before[1])


def test_a_partial_reset_draws_in_row_order_and_answers_in_the_order_asked(make_env: MakeEnv) -> None:
    first, second = (stepped(make_env, {"obs": group(p=NOISY)}) for _ in range(2))
    forwards, _ = first.reset(ids(0, 2))
    backwards, _ = second.reset(ids(2, 0))
    assert torch.equal(forwards["obs"], backwards["obs"].flip(0))
    assert torch.equal(first.observations()["obs"], second.observations()["obs"])


def test_an_empty_reset_draws_nothing(make_env: MakeEnv) -> None:
    env = stepped(make_env, {"obs": group(p=NOISY)})
    before, draws = env.observations()["obs"], env.rng.get_state()
    observations, _ = env.reset(ids())
    assert observations["obs"].shape == (0, 3)
    assert torch.equal(env.observations()["obs"], before)
    assert torch.equal(env.rng.get_state(), draws)


def run(make_env: MakeEnv, seed: int) -> torch.Tensor:
    gauss = ObservationTermCfg(func=probe, noise=GaussianNoiseCfg(std=0.1))
    env = make_env(seed=seed, observations={"obs": group(u=NOISY, g=gauss)})
    frames = [env.observations()["obs"]]
    for _ in range(4):
        frames.append(env.step(zeros(env)).obs["obs"].clone())
    frames.append(env.reset(ids(1))[0]["obs"])
    frames.append(env.reset(seed=seed)[0]["obs"])
    return torch.cat(frames)


def test_the_seed_decides_every_draw_and_the_global_generator_none(make_env: MakeEnv) -> None:
    torch.manual_seed(0)
    first = run(make_env, 5)
    torch.manual_seed(1)
    untouched = torch.random.get_rng_state()
    assert torch.equal(run(make_env, 5), first)
    assert not torch.equal(run(make_env, 6), first)
    assert torch.equal(torch.random.get_rng_state(), untouched)


def test_noise_is_drawn_anew_in_every_step(make_env: MakeEnv) -> None:
    env = stepped(make_env, {"obs": group(p=NOISY)})
    first = env.observations()["obs"]
    env.step(zeros(env))
    assert not bool((env.observations()["obs"] == first).any())
    assert bool(((env.observations()["obs"] - torch.tensor(ROWS)).abs() <= 0.5).all())


def test_a_term_cannot_be_changed_through_the_observation(make_env: MakeEnv) -> None:
    env = make_env(observations={"obs": group(a=ObservationTermCfg(func=mdp.last_action))})
    env.step(torch.full((3, 2), 0.5))
    env.state.obs["obs"].zero_()
    assert env.action_manager.action.tolist() == [[0.5, 0.5]] * 3
