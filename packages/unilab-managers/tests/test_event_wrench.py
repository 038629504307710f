"""`apply_body_wrench`: when it pushes, with what, and what it costs while nothing changes; who declares it."""

from typing import Any

import pytest
import torch
from event_support import operators, run
from manager_support import DT, base_cfg, build_slider, ids, mujoco_cfg

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import EventTermCfg, ManagerBasedRlEnv
from unilab_managers.mdp.events import apply_body_wrench, push_root
from unilab_managers.wrenches import applies_wrench, wrench_bodies
from unisim import EntityCfg, SceneCfg
from unisim.contract import Declared
from unisim.testing import FakeBackend, make_layout

BASE = SceneEntityCfg(body_names=("base",))
ALWAYS = {
    "asset_cfg": BASE,
    "force_range": (1.0, 1.0),
    "torque_range": (0.0, 0.0),
    "duration_range_s": (0.04, 0.04),
    "cooldown_range_s": (0.10, 0.10),
}


def shove(**params: Any) -> EventTermCfg:
    return EventTermCfg(func=apply_body_wrench, mode="step", params=ALWAYS | params)


def shoved(num_envs: int = 2, *, seed: int = 0, reset: bool = True, **params: Any) -> ManagerBasedRlEnv:
    """Returns a free body of 1 kg on a fake, which a force of 1 N makes faster by 0.02 m/s in every step."""
    layout = make_layout(
        free_root=True,
        joints=("robot/hinge",),
        actuated=("robot/hinge",),
        sensors={"probe": (3, "position")},
        timestep=DT,
    )
    backend = FakeBackend(layout, num_envs, declared=Declared(wrench_bodies=("robot/base",)))
    env = ManagerBasedRlEnv(base_cfg(events={"shove": shove(**params)}), backend=backend, seed=seed)
    if reset:
        env.reset()
    return env


def forces(env: ManagerBasedRlEnv, steps: int) -> torch.Tensor:
    """Steps; returns the force along x that acted in each of the steps, (steps, N) N."""
    found = []
    for _ in range(steps):
        before = env.scene["robot"].data.root_lin_vel_w[:, 0].clone()
        run(env, 1)
        found.append((env.scene["robot"].data.root_lin_vel_w[:, 0] - before) / DT)
    return torch.stack(found)


def on(env: ManagerBasedRlEnv, steps: int) -> list[list[int]]:
    """Steps; returns the numbers of the steps in which a wrench acted, for each row."""
    acted = forces(env, steps).abs() > 0.5
    return [(rows.nonzero().flatten() + 1).tolist() for rows in acted.unbind(dim=1)]


def test_qa_033_a_push_starts_with_a_cool_down_and_a_reset_ends_it() -> None:
    with shoved() as env:
        first = on(env, 6)
        assert first == [[6], [6]]  # it starts with the fifth event
        env.reset(ids(1))
        # Steps 7 to 18: row 0 is pushed once more in step 7, and again 5 steps after that push has ended.
        assert on(env, 12) == [[1, 7, 8], [6, 7]]


def test_qa_033_a_reset_before_and_after_a_push_starts_the_cool_down_anew() -> None:
    with shoved(1) as env:
        for _ in range(3):
            assert on(env, 5) == [[]]
            env.reset()
        assert on(env, 8) == [[6, 7]]
        env.reset()
        assert on(env, 8) == [[6, 7]]


def test_pushes_and_cool_downs_of_one_step_alternate() -> None:
    with shoved(duration_range_s=(0.02, 0.02), cooldown_range_s=(0.02, 0.02)) as env:
        assert on(env, 7) == [[2, 4, 6], [2, 4, 6]]
        env.reset(ids(1))
        assert on(env, 4) == [[1, 3], [2, 4]]


def test_a_cool_down_of_one_step_after_a_reset_is_not_overslept() -> None:
    with shoved(1, duration_range_s=(0.08, 0.08), cooldown_range_s=(0.02, 0.02)) as env:
        assert on(env, 2) == [[2]]  # the verdict of step 2 says that nothing changes in the next
        env.reset()
        assert on(env, 6) == [[2, 3, 4, 5]]


@pytest.mark.parametrize(("seconds", "steps"), [(0.14, 7), (0.15, 8), (0.28, 14), (0.58, 29)])
def test_qa_117_times_are_the_whole_steps_that_their_seconds_are(seconds: float, steps: int) -> None:
    with shoved(1, duration_range_s=(seconds, seconds), cooldown_range_s=(seconds, seconds)) as env:
        assert on(env, 3 * steps) == [list(range(steps + 1, 2 * steps + 1))]


def test_times_are_drawn_from_their_ranges_by_row() -> None:
    with shoved(40, duration_range_s=(0.02, 0.06), cooldown_range_s=(0.04, 0.08), seed=1) as env:
        acted = forces(env, 300).abs() > 0.5
    lengths: dict[bool, set[int]] = {True: set(), False: set()}
    for row in acted.unbind(dim=1):
        values, counts = torch.unique_consecutive(row, return_counts=True)
        for value, count in zip(values[1:-1].tolist(), counts[1:-1].tolist(), strict=True):
            lengths[value].add(count)
    assert lengths == {True: {1, 2, 3}, False: {2, 3, 4}}
    assert not torch.equal(acted[:, 0], acted[:, 1])


def test_forces_and_torques_fill_their_ranges_and_hold_while_they_last() -> None:
    with shoved(2000, force_range=(-2.0, 4.0), torque_range=(0.5, 1.5), cooldown_range_s=(0.02, 0.02)) as env:
        run(env, 1)
        data = env.scene["robot"].data
        run(env, 1)
        linear, angular = data.root_lin_vel_w.clone() / DT, data.root_ang_vel_b.clone() / DT
        run(env, 1)
        assert torch.allclose(data.root_lin_vel_w / DT, 2.0 * linear, atol=1e-3)
        assert torch.allclose(data.root_ang_vel_b / DT, 2.0 * angular, atol=1e-3)
        before = data.root_lin_vel_w.clone(), data.root_ang_vel_b.clone()
        run(env, 1)  # between two pushes
        assert torch.equal(data.root_lin_vel_w, before[0])
        assert torch.equal(data.root_ang_vel_b, before[1])
    assert linear.amin(dim=0).tolist() == pytest.approx([-2.0] * 3, abs=0.02)
    assert linear.amax(dim=0).tolist() == pytest.approx([4.0] * 3, abs=0.02)
    assert angular.amin(dim=0).tolist() == pytest.approx([0.5] * 3, abs=0.02)
    assert angular.amax(dim=0).tolist() == pytest.approx([1.5] * 3, abs=0.02)


def test_a_push_on_the_engine_is_force_times_time_over_mass() -> None:
    cart = SceneEntityCfg(body_names=("cart",))
    cfg = mujoco_cfg(
        scene=SceneCfg(entities={"robot": EntityCfg(spec=build_slider)}),  # the arm upright, in balance
        events={"shove": shove(asset_cfg=cart, force_range=(3.0, 3.0))},
        episode_length_s=9.0,
    )
    with ManagerBasedRlEnv(cfg) as env:  # which tells the backend of the body by itself
        env.reset()
        run(env, 7)
        # The arm (0.1 kg, a rod about its end) turns freely, so the cart feels 1 kg + 0.1 kg x (1 - 3/4).
        speed = env.scene["robot"].data.joint_vel[:, 0]
        assert speed.tolist() == pytest.approx([3.0 * 0.04 / 1.025] * 4, rel=0.02)


def test_a_step_in_which_nothing_changes_costs_one_countdown() -> None:
    with shoved() as env:
        run(env, 2)
        events = env.event_manager
        for step in range(3, 13):
            due = {name: bool(fires.any()) for name, fires in events.timers().items()}
            assert due == {"events/shove": step in (5, 7, 12)}
            if due["events/shove"]:
                run(env, 1)  # it writes, which only a step allows
                continue
            with operators() as names:
                events.apply_step()
            assert names == ["slice", "index_add_"]
            events.timers_judged({name: bool(fires.any()) for name, fires in events.timers().items()})


def test_first_cool_downs_come_from_the_environments_own_seed() -> None:
    left = []
    for seed in (1, 1, 2):
        with shoved(20, cooldown_range_s=(0.02, 9.0), seed=seed, reset=False) as env:
            left.append(env.state_dict()["values"]["events.shove._left"])
    assert torch.equal(left[0], left[1])
    assert not torch.equal(left[0], left[2])


def test_new_parameters_count_from_the_next_draw_on() -> None:
    with shoved(1) as env:
        env.event_manager.set_params("shove", duration_range_s=(0.06, 0.06), cooldown_range_s=(0.04, 0.04))
        assert on(env, 13) == [[6, 7, 8, 11, 12, 13]]
        env.reset()
        assert on(env, 5) == [[3, 4, 5]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"force_range": (1.0, -1.0)}, r"force_range \(1.0, -1.0\) is inverted"),
        ({"torque_range": (1.0, -1.0)}, r"torque_range \(1.0, -1.0\) is inverted"),
        ({"duration_range_s": (0.2, 0.1)}, r"duration_range_s \(0.2, 0.1\) is inverted"),
        ({"duration_range_s": (0.0, 0.1)}, r"duration_range_s is \(0.0, 0.1\), expected positive times in s"),
        (
            {"cooldown_range_s": (-1.0, 0.1)},
            r"cooldown_range_s is \(-1.0, 0.1\), expected positive times in s",
        ),
        ({"asset_cfg": SceneEntityCfg(body_names=("bass",))}, "'bass' matches nothing; .*'base'"),
    ],
)
def test_a_wrong_parameter_is_refused_at_construction(params: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"events term 'shove': .*{message}"):
        shoved(**params)


# ---------------------------------------------------------------- declaration


@applies_wrench
def lift(env: ManagerBasedRlEnv, env_ids: torch.Tensor, left: SceneEntityCfg, right: SceneEntityCfg) -> None:
    """A function that pushes two sets of bodies."""


def test_the_bodies_of_a_marked_term_are_those_its_parameters_name() -> None:
    feet = SceneEntityCfg(name="other", body_names=("foot_.*",))
    term = EventTermCfg(func=lift, mode="step", params={"left": BASE, "right": feet})
    assert wrench_bodies(term) == (BASE, feet)
    assert wrench_bodies(shove()) == (BASE,)
    assert (
        wrench_bodies(
            EventTermCfg(func=push_root, mode="step", params={"velocity_range": {}, "asset_cfg": BASE})
        )
        == ()
    )
    hips = SceneEntityCfg(joint_names=("hip",))
    assert wrench_bodies(EventTermCfg(func=lift, mode="step", params={"left": hips, "right": feet})) == (
        feet,
    )


def test_a_marked_term_that_names_no_body_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"apply_body_wrench pushes bodies, and none of its parameters \['asset_cfg',"
    ):
        wrench_bodies(shove(asset_cfg=SceneEntityCfg()))
    with pytest.raises(
        ConfigError, match=r"lift pushes bodies, and none of its parameters \['left', 'right'\] names"
    ):
        wrench_bodies(
            EventTermCfg(func=lift, mode="step", params={"left": SceneEntityCfg(), "right": SceneEntityCfg()})
        )
