"""Terms of feet on a scripted robot, with numbers worked out by hand."""

from typing import Any

import pytest
import torch
from action_support import Operators
from feet_support import (
    CONTACTS,
    SENSORS,
    SITES,
    WITH_SITES,
    FeetFeed,
    commands,
    feet_layout,
    made,
    reward,
    walk,
)
from manager_support import DT, group, ids, zeros

from unilab_managers import (
    ManagerBasedRlEnv,
    MetricsTermCfg,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)

HALF = 0.5**0.5
WALK, STAND = (0.5, 0.0, 0.0), (0.03, 0.0, 0.03)


def obs(**terms: tuple[Any, dict[str, Any]]) -> dict[str, Any]:
    found = {name: ObservationTermCfg(func=func, params=params) for name, (func, params) in terms.items()}
    return {"obs": group(**found)}


def close(value: torch.Tensor, rows: Any) -> None:
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, torch.tensor(rows), rtol=0.0, atol=1e-6)


# ---------------------------------------------------------------- contacts and times

TIMES = obs(
    contact=(mdp.foot_contact, CONTACTS),
    air=(mdp.foot_air_time, CONTACTS),
    stance=(mdp.foot_contact_time, CONTACTS),
)


def test_times_count_the_steps_at_whose_end_a_foot_is_in_the_air_or_in_contact() -> None:
    env, feed = made(1, observations=TIMES)
    with env:
        walk(env, feed, ([0], [1]))
        close(env.observations()["obs"], [[0.0, 1.0, DT, 0.0, 0.0, DT]])
        walk(env, feed, ([0], [3]), ([0], [1]))
        close(env.observations()["obs"], [[0.0, 1.0, 3 * DT, 0.0, 0.0, 3 * DT]])
        walk(env, feed, ([2], [0]))
        close(env.observations()["obs"], [[1.0, 0.0, 0.0, DT, DT, 0.0]])
        labels = env.describe()
        assert labels.observations["obs"] == tuple(
            f"{term}[{name}]" for term in ("contact", "air", "stance") for name in SENSORS
        )
        assert labels.units["obs"] == ("", "", "s", "s", "s", "s")


def test_a_row_that_is_reset_starts_from_nothing_and_no_other_row_does() -> None:
    env, feed = made(2, observations=TIMES)
    with env:
        walk(env, feed, ([0, 0], [1, 1]), ([0, 0], [1, 1]))
        env.reset(ids(1))
        # The fake keeps what its sensors showed last: the reset of an engine has computed it for the new pose.
        close(
            env.observations()["obs"], [[0.0, 1.0, 2 * DT, 0.0, 0.0, 2 * DT], [0.0, 1.0, 0.0, 0.0, 0.0, 0.0]]
        )
        walk(env, feed, ([0, 0], [1, 1]))
        close(env.observations()["obs"][:, 2:], [[3 * DT, 0.0, 0.0, 3 * DT], [DT, 0.0, 0.0, DT]])


def test_what_observations_rewards_and_metrics_show_is_one_and_the_same() -> None:
    env, feed = made(
        1,
        observations=TIMES,
        rewards=reward(mdp.feet_air_time, **CONTACTS, threshold=0.0),
        metrics={"swing": MetricsTermCfg(func=mdp.feet_swing_time, params=CONTACTS, reduce="last")},
    )
    with env:
        walk(env, feed, ([1], [1]), ([0], [1]), ([0], [1]), ([1], [1]))
        assert env.state.reward.tolist() == pytest.approx([2 * DT])
        values = env.state_dict()["values"]
        (path,) = [path for path in values if path.endswith("._air")]
        assert path.startswith("trackers.FeetContacts.")
        assert env.metrics_manager._values.flatten().tolist() == pytest.approx([2 * DT])


def test_terms_name_the_reads_they_live_on() -> None:
    env, _ = made(1, observations=TIMES, rewards=reward(mdp.feet_air_time, **CONTACTS, threshold=0.1))
    with env:
        keys = tuple(f"sensor:{name}" for name in SENSORS)
        assert env.describe().terms["rewards"][0].reads == keys
        assert [term.reads for term in env.describe().terms["observations"]] == [keys] * 3


def test_a_reset_leaves_no_landing_and_no_swing_behind() -> None:
    env, feed = made(2, observations=TIMES)
    with env:
        feet = env.trackers.share(mdp.FeetContacts, SENSORS, "robot")
        walk(env, feed, ([1, 1], [1, 1]), ([0, 0], [1, 1]), ([1, 1], [0, 0]))
        events = (feet.first_contact, feet.landed, feet.lift_off, feet.swung)
        before = [[True, False], [True, False], [False, True], [True, False]]
        assert [flags[0].tolist() for flags in events] == before
        env.reset(ids(1))
        assert [flags[0].tolist() for flags in events] == before
        assert [flags[1].tolist() for flags in events] == [[False, False]] * 4
        assert feet.last_air_time.tolist() == [[pytest.approx(DT), 0.0], [0.0, 0.0]]
        assert feet.last_contact_time.tolist() == [[pytest.approx(DT), pytest.approx(2 * DT)], [0.0, 0.0]]


# ---------------------------------------------------------------- air time

AIR = {**CONTACTS, "threshold": 0.05}


def rewards_of(env: ManagerBasedRlEnv, feed: FeetFeed, *steps: Any) -> list[float]:
    found = []
    for step in steps:
        walk(env, feed, step)
        found.append(env.state.reward[0].item())
    return found


def test_a_landing_is_paid_by_its_time_in_the_air_beyond_the_threshold() -> None:
    env, feed = made(1, rewards=reward(mdp.feet_air_time, **AIR))
    with env:
        up, down = ([0], [1]), ([1], [1])
        got = rewards_of(env, feed, down, up, up, up, up, down, down, up, down)
        assert got == pytest.approx([0.0] * 5 + [4 * DT - 0.05, 0.0, 0.0, DT - 0.05])


def test_a_foot_that_is_dropped_or_placed_by_the_reset_is_neither_paid_nor_punished() -> None:
    env, feed = made(1, rewards=reward(mdp.feet_air_time, **AIR))
    with env:
        assert rewards_of(env, feed, ([0], [0]), ([1], [0]), ([0], [0]), ([1], [0])) == pytest.approx(
            [0.0, 0.0, 0.0, DT - 0.05]
        )
        feed.found([0], [1])
        env.step(zeros(env))
        env.reset()  # the left foot in the air, the right one down
        assert rewards_of(env, feed, ([1], [1]), ([1], [0])) == [0.0, 0.0]


def test_a_limit_bounds_what_a_landing_is_worth_either_way() -> None:
    env, feed = made(1, rewards=reward(mdp.feet_air_time, **AIR, limit=0.025))
    with env:
        up, down = ([0], [1]), ([1], [1])
        got = rewards_of(env, feed, down, up, down, up, up, up, up, up, down)
        assert got == pytest.approx([0.0, 0.0, -0.025, *[0.0] * 5, 0.025])


def test_feet_that_land_together_count_both_and_standing_rows_not_at_all() -> None:
    env, feed = made(
        2,
        rewards=reward(mdp.feet_air_time, **AIR, command_name="twist"),
        commands=commands(WALK, STAND),
    )
    with env:
        walk(env, feed, ([1, 1], [1, 1]), ([0, 0], [0, 0]), ([1, 1], [1, 1]))
        assert env.state.reward.tolist() == pytest.approx([2 * (DT - 0.05), 0.0])


def test_one_foot_at_a_time_is_worth_the_shorter_of_the_two_times() -> None:
    env, feed = made(1, rewards=reward(mdp.feet_single_stance, **CONTACTS, limit=0.05))
    with env:
        both, left, none = ([1], [1]), ([1], [0]), ([0], [0])
        got = rewards_of(env, feed, both, left, left, left, none, left)
        # The left foot stands longer than the right one is up; in the end it has just come down.
        assert got == pytest.approx([0.0, DT, 2 * DT, 0.05, 0.0, DT])


# ---------------------------------------------------------------- heights


def test_heights_are_those_of_the_lowest_points_and_carry_the_names_of_the_frames() -> None:
    env, feed = made(2, observations=obs(height=(mdp.foot_height, {"asset_cfg": SITES, "radius": 0.02})))
    with env:
        feed.place(0, [0.12, 0.02])
        feed.place(1, [0.02, 0.52])
        env.step(zeros(env))
        close(env.observations()["obs"], [[0.1, 0.0], [0.0, 0.5]])
        assert env.describe().observations["obs"] == ("height[left]", "height[right]")
        assert env.describe().units["obs"] == ("m", "m")


def swing(env: ManagerBasedRlEnv, feed: FeetFeed, z: float, contact: int) -> float:
    """Steps with the left foot at a height; returns the peak of the left foot."""
    feed.place(0, [z])
    walk(env, feed, ([contact], [1]))
    return env.observations()["obs"][0, 0].item()


def test_the_peak_of_a_swing_rises_with_the_foot_stays_in_stance_and_starts_anew() -> None:
    env, feed = made(1, observations=obs(peak=(mdp.foot_swing_peak, {**WITH_SITES, "radius": 0.02})))
    with env:
        steps = [(0.02, 1), (0.05, 0), (0.12, 0), (0.04, 0), (0.02, 1), (0.30, 1), (0.03, 0), (0.08, 0)]
        got = [swing(env, feed, z, contact) for z, contact in steps]
        # The foot that is down stays at 0, wherever a script carries it; the next swing begins at 1 cm.
        assert got == pytest.approx([-0.02, 0.03, 0.10, 0.10, 0.10, 0.10, 0.01, 0.06])
        swing(env, feed, 0.04, 0)
        env.reset()  # which leaves the foot of a fake where it is, 2 cm high
        assert env.observations()["obs"][0, 0].item() == pytest.approx(0.02)
        assert swing(env, feed, 0.03, 0) == pytest.approx(0.02)  # still in the air since then


def test_a_swing_of_the_wrong_height_costs_when_it_ends() -> None:
    params = {**WITH_SITES, "target_height": 0.1, "radius": 0.02}
    env, feed = made(1, rewards=reward(mdp.feet_swing_height, **params))
    with env:
        costs = []
        for z, contact in [(0.02, 1), (0.07, 0), (0.04, 0), (0.02, 1), (0.02, 1), (0.12, 0), (0.02, 1)]:
            swing(env, feed, z, contact)
            costs.append(env.state.reward.item())
        assert costs == pytest.approx(
            [0.0, 0.0, 0.0, 0.25, 0.0, 0.0, 0.0], abs=1e-6
        )  # 5 cm of 10, then 10 of 10


def test_clearance_counts_the_error_of_height_by_the_horizontal_speed() -> None:
    env, feed = made(
        2,
        rewards=reward(mdp.feet_clearance, asset_cfg=SITES, target_height=0.1, command_name="twist"),
        commands=commands(WALK, STAND),
    )
    with env:
        feed.place(0, [0.2, 0.2], [(3.0, 4.0, 9.0)] * 2)
        feed.place(1, [0.3, 0.3], [(0.0, 0.0, 2.0)] * 2)
        assert env.step(zeros(env)).reward.tolist() == pytest.approx([0.1**2 * 5.0, 0.0])


# ---------------------------------------------------------------- slip and impacts


def test_slip_is_the_square_of_the_horizontal_speed_of_feet_in_contact() -> None:
    env, feed = made(
        2,
        rewards=reward(mdp.feet_slip, **WITH_SITES),
        metrics={"slip": MetricsTermCfg(func=mdp.feet_slip_speed, params=WITH_SITES, reduce="last")},
    )
    with env:
        feed.place(0, [0.0, 0.0], [(3.0, 4.0, 7.0)] * 2)
        feed.place(1, [0.0, 0.0], [(1.0, 0.0, 0.0)] * 2)
        feed.found([2, 0], [1, 0])
        assert env.step(zeros(env)).reward.tolist() == pytest.approx([26.0, 0.0])
        assert env.metrics_manager._values.flatten().tolist() == pytest.approx([3.0, 0.0])  # (5 + 1) / 2


def test_slip_is_along_the_surface_where_the_sensor_knows_its_normal() -> None:
    layout = feet_layout(("found", "normal"), num=2, reduce="mindist")
    env, feed = made(2, layout=layout, rewards=reward(mdp.feet_slip, **WITH_SITES))
    with env:
        down = (HALF, 0.0, -HALF)  # into a slope of 45 degrees
        feed.place(0, [0.0, 0.0], [(1.0, 0.0, 1.0), (1.0, 0.0, -1.0)])
        feed.place(1, [0.0, 0.0], [(0.0, 2.0, 0.0), (0.0, 2.0, 0.0)])
        feed.contact(0, found=[1, 1], normal=[down, down])
        feed.contact(1, found=[1, 0], normal=[down, (0.0, 0.0, 0.0)])
        # Up along the slope and across it; then straight into it, and a foot in the air.
        assert env.step(zeros(env)).reward.tolist() == pytest.approx([2.0 + 4.0, 0.0], abs=1e-6)


def test_the_normal_of_a_sum_of_contacts_is_none_to_slip_along() -> None:
    layout = feet_layout(("found", "normal"), reduce="netforce")
    env, feed = made(1, layout=layout, rewards=reward(mdp.feet_slip, **WITH_SITES))
    with env:
        feed.place(0, [0.0], [(1.0, 0.0, 5.0)])
        feed.contact(0, found=[1], normal=[(1.0, 0.0, 0.0)])
        assert env.step(zeros(env)).reward.item() == 1.0


def test_a_landing_costs_the_force_of_its_own_step_only() -> None:
    env, feed = made(
        1,
        rewards=reward(mdp.feet_soft_landing, **CONTACTS),
        metrics={"hit": MetricsTermCfg(func=mdp.feet_landing_force, params=CONTACTS, reduce="max")},
    )
    with env:
        got = []
        for found, force in [(0, 0.0), (1, 50.0), (1, 80.0), (0, 0.0), (1, 20.0)]:
            feed.contact(0, found=[found], force=[(0.6 * force, 0.0, -0.8 * force)])
            feed.contact(1, found=[0], force=[(0.0, 0.0, 0.0)])
            env.step(zeros(env))
            got.append(env.state.reward.item())
        assert got == pytest.approx([0.0, 50.0, 0.0, 0.0, 20.0])
        assert env.metrics_manager._values.item() == pytest.approx(50.0)


def test_an_impact_within_a_step_counts_where_the_sensor_keeps_its_substeps() -> None:
    got = []
    for substeps in (False, True):
        env, feed = made(
            1, rewards=reward(mdp.feet_soft_landing, **CONTACTS), substeps=substeps, decimation=4
        )
        with env:
            feed.contact(1, found=[0], force=[(0.0, 0.0, 0.0)])
            feed.contact(0, found=[0], force=[(0.0, 0.0, 0.0)])
            env.step(zeros(env))
            feed.by_substep[6] = {"sensor:left_contact": torch.tensor([[1.0, 0.0, 0.0, 300.0]])}
            feed.contact(0, found=[1], force=[(0.0, 0.0, 40.0)])
            got.append(env.step(zeros(env)).reward.item())
    assert got == [40.0, 300.0]


@pytest.mark.parametrize("substeps", [False, True])
def test_an_impact_that_has_rebounded_counts_where_the_sensor_keeps_its_substeps(substeps: bool) -> None:
    metrics = {"force": MetricsTermCfg(func=mdp.feet_landing_force, params=CONTACTS, reduce="max")}
    env, feed = made(
        1, rewards=reward(mdp.feet_soft_landing, **CONTACTS), metrics=metrics, substeps=substeps, decimation=4
    )
    with env:
        for foot in (0, 1):
            feed.contact(foot, found=[0], force=[(0.0, 0.0, 0.0)])
        env.step(zeros(env))
        feed.by_substep[6] = {"sensor:left_contact": torch.tensor([[1.0, 0.0, 0.0, 300.0]])}
        rebounded = env.step(zeros(env)).reward.item()
        feed.contact(0, found=[1], force=[(0.0, 0.0, 40.0)])
        settled, standing = (env.step(zeros(env)).reward.item() for _ in range(2))
    assert (rebounded, settled, standing) == (300.0 if substeps else 0.0, 40.0, 0.0)


# ---------------------------------------------------------------- metrics


def test_metrics_of_a_gait() -> None:
    env, feed = made(
        1,
        metrics={
            "duty": MetricsTermCfg(func=mdp.feet_duty_factor, params=CONTACTS),
            "peak": MetricsTermCfg(
                func=mdp.feet_swing_peak_height, params={**WITH_SITES, "radius": 0.02}, reduce="last"
            ),
            "time": MetricsTermCfg(func=mdp.feet_swing_time, params=CONTACTS, reduce="last"),
        },
    )
    with env:
        feed.place(1, [0.02])
        for z, contact in [(0.02, 1), (0.07, 0), (0.10, 0), (0.02, 1)]:
            feed.place(0, [z])
            walk(env, feed, ([contact], [1]))
        _, info = env.reset()
        log = info["episode"]
        assert log["Metrics/duty/sum"].item() == pytest.approx((1.0 + 0.5 + 0.5 + 1.0) / 4)
        assert log["Metrics/peak/sum"].item() == pytest.approx(0.08)  # the right foot has not landed
        assert log["Metrics/time/sum"].item() == pytest.approx(2 * DT)


def test_no_term_of_feet_waits_for_the_device() -> None:
    waits = {"_local_scalar_dense", "nonzero", "masked_select", "item"}
    rewards = {
        "air": (mdp.feet_air_time, {**CONTACTS, "threshold": 0.1, "limit": 0.2}),
        "single": (mdp.feet_single_stance, {**CONTACTS, "limit": 0.1}),
        "clearance": (mdp.feet_clearance, {"asset_cfg": SITES, "target_height": 0.1}),
        "swing": (mdp.feet_swing_height, {**WITH_SITES, "target_height": 0.1}),
        "slip": (mdp.feet_slip, WITH_SITES),
        "soft": (mdp.feet_soft_landing, CONTACTS),
        "jerk": (mdp.action_acc_l2, {}),
    }
    metrics = {
        "time": (mdp.feet_swing_time, CONTACTS),
        "peak": (mdp.feet_swing_peak_height, WITH_SITES),
        "speed": (mdp.feet_slip_speed, WITH_SITES),
        "force": (mdp.feet_landing_force, CONTACTS),
    }
    with_terms = {
        "rewards": {n: RewardTermCfg(func=f, weight=1.0, params=p) for n, (f, p) in rewards.items()},
        "metrics": {n: MetricsTermCfg(func=f, params=p) for n, (f, p) in metrics.items()},
        "terminations": {"hit": TerminationTermCfg(func=mdp.illegal_contact, params=CONTACTS)},
    }
    counts = []
    for cfg in ({"rewards": {}}, with_terms):
        env, feed = made(2, **cfg)
        with env:
            feed.found([1, 0], [1, 1])
            env.step(zeros(env))
            actions = zeros(env)
            with Operators() as operators:
                env.step(actions)
            counts.append([sum(name == wait for name in operators.names) for wait in sorted(waits)])
    assert counts[1] == counts[0]
