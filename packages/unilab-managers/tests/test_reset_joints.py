"""`reset_joints_by_offset`: default state plus uniform offsets, within the joint limits."""

from typing import Any

import pytest
import torch
from manager_support import MakeEnv, group, ids, layout_of, mujoco_cfg, with_default, zeros

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ObservationTermCfg, TerminationTermCfg, mdp

BOTH = {"obs": group(pos=ObservationTermCfg(func=mdp.joint_pos), vel=ObservationTermCfg(func=mdp.joint_vel))}
DEFAULT = (0.5, -2.0)


def placed(
    make_env: MakeEnv,
    position: tuple[float, float] = (0.0, 0.0),
    velocity: tuple[float, float] = (0.0, 0.0),
    num_envs: int = 3,
    layout: Any = None,
    **params: Any,
) -> ManagerBasedRlEnv:
    offsets = {"position_range": position, "velocity_range": velocity, **params}
    return make_env(
        num_envs,
        layout=layout or with_default(layout_of(), *DEFAULT),
        observations=BOTH,
        events={"place": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=offsets)},
        terminations={"end": TerminationTermCfg(func=mdp.time_out)},
        episode_length_s=0.04,
    )


def state(env: ManagerBasedRlEnv) -> list[Any]:
    return env.observations()["obs"].tolist()


def test_a_range_of_no_width_is_exact_and_repeated_resets_do_not_drift(make_env: MakeEnv) -> None:
    env = placed(make_env, (0.25, 0.25), (-0.5, -0.5))
    for _ in range(4):
        assert state(env) == [[0.75, -1.75, -0.5, -0.5]] * 3
        env.step(torch.ones(3, 2))
        env.reset()


def test_offsets_start_from_the_default_state_and_not_from_what_an_earlier_event_staged(
    make_env: MakeEnv,
) -> None:
    offsets = {"position_range": (0.25, 0.25), "velocity_range": (0.0, 0.0)}
    place = EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=offsets)
    env = make_env(
        layout=with_default(layout_of(), *DEFAULT), observations=BOTH, events={"one": place, "two": place}
    )
    assert state(env) == [[0.75, -1.75, 0.0, 0.0]] * 3


def test_offsets_are_the_generators_next_numbers_row_by_row(make_env: MakeEnv) -> None:
    env = placed(make_env, (-0.5, 1.5), (0.0, 2.0))
    twin = torch.Generator()
    twin.set_state(env.rng.get_state())
    env.reset(ids(2, 0))
    position = torch.tensor(DEFAULT) + (torch.rand(2, 2, generator=twin) * 2.0 - 0.5)
    velocity = torch.rand(2, 2, generator=twin) * 2.0
    assert torch.equal(env.observations()["obs"][[0, 2]], torch.cat([position, velocity], dim=1))
    assert torch.equal(env.rng.get_state(), twin.get_state())


def test_offsets_fill_their_range(make_env: MakeEnv) -> None:
    env = placed(make_env, (-0.5, 1.5), (3.0, 4.0), num_envs=5000)
    offsets = env.observations()["obs"] - torch.tensor([*DEFAULT, 0.0, 0.0])
    low, high = offsets.amin(dim=0), offsets.amax(dim=0)
    # 5000 draws: the extremes come within 1/200 of the range; float32 sums may miss by an ulp.
    assert low.tolist() == pytest.approx([-0.5, -0.5, 3.0, 3.0], abs=1e-2)
    assert high.tolist() == pytest.approx([1.5, 1.5, 4.0, 4.0], abs=1e-2)
    assert bool((offsets[:, 2:] >= 3.0).all())
    assert bool((offsets[:, 2:] < 4.0).all())


def test_qa_079_every_episode_and_every_row_begins_differently(make_env: MakeEnv) -> None:
    env = placed(make_env, (-1.0, 1.0), num_envs=2)
    begins = []
    for _ in range(10):
        env.step(zeros(env))
        assert bool(env.step(zeros(env)).truncated.all())  # the automatic reset has run
        begins.append(env.observations()["obs"][:, :2])
    assert len(set(torch.cat(begins).flatten().tolist())) == 10 * 2 * 2


def test_limited_joints_are_kept_within_their_limits_and_unlimited_ones_are_not(make_env: MakeEnv) -> None:
    layout = with_default(layout_of(limits={"robot/slider": (-0.25, 0.75)}), *DEFAULT)
    assert state(placed(make_env, (9.0, 9.0), layout=layout))[0][:2] == [0.75, 7.0]
    assert state(placed(make_env, (-9.0, -9.0), layout=layout))[0][:2] == [-0.25, -11.0]


def test_qa_104_an_unlimited_joint_of_the_engine_is_not_clamped() -> None:
    offsets = {"position_range": (3.0, 3.0), "velocity_range": (0.0, 0.0)}
    cfg = mujoco_cfg(
        events={"place": EventTermCfg(func=mdp.reset_joints_by_offset, mode="reset", params=offsets)},
        observations=BOTH,
    )
    with ManagerBasedRlEnv(cfg) as env:
        env.reset()
        data = env.scene["robot"].data
        assert data.joint_pos_limits[0].tolist() == [[-0.5, 0.5], [float("-inf"), float("inf")]]
        assert data.joint_pos[0].tolist() == [0.5, 5.0]  # 0 + 3 clamped to 0.5; 2 + 3


def test_only_the_joints_asked_for_are_written(make_env: MakeEnv) -> None:
    hinge = SceneEntityCfg(joint_names=("hinge",))
    assert state(placed(make_env, (0.25, 0.25), (0.5, 0.5), asset_cfg=hinge)) == [[0.5, -1.75, 0.0, 0.5]] * 3


def test_only_the_rows_being_reset_change(make_env: MakeEnv) -> None:
    env = placed(make_env, (-1.0, 1.0), (-1.0, 1.0))
    env.step(torch.ones(3, 2))
    before = env.observations()["obs"]
    env.reset(ids(1))
    after = env.observations()["obs"]
    assert torch.equal(after[[0, 2]], before[[0, 2]])
    assert not bool((after[1] == before[1]).any())


@pytest.mark.parametrize("name", ["position_range", "velocity_range"])
def test_an_inverted_range_is_refused_at_construction(make_env: MakeEnv, name: str) -> None:
    inverted: dict[str, Any] = {name: (1.0, -1.0)}
    with pytest.raises(
        ConfigError, match=rf"events term 'place': ValueError: {name} \(1.0, -1.0\) is inverted"
    ):
        placed(make_env, **inverted)


def test_an_unknown_joint_or_entity_is_refused_at_construction(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match="events term 'place': .*'hinges'"):
        placed(make_env, asset_cfg=SceneEntityCfg(joint_names=("hinges",)))
    with pytest.raises(ConfigError, match="events term 'place': .*'robots'"):
        placed(make_env, asset_cfg=SceneEntityCfg(name="robots"))


def test_manual_partial_and_automatic_resets_draw_alike(make_env: MakeEnv) -> None:
    manual, automatic = placed(make_env, (-1.0, 1.0)), placed(make_env, (-1.0, 1.0))
    for env in (manual, automatic):
        env.step(zeros(env))
    manual.reset()
    automatic.step(zeros(automatic))  # the second step reaches the limit of 0.04 s
    assert manual.episode_length.tolist() == automatic.episode_length.tolist() == [0, 0, 0]
    assert torch.equal(manual.observations()["obs"], automatic.observations()["obs"])
