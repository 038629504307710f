"""The gait clock and what is rewarded and shown by it, on a scripted fake with numbers worked out by hand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from unilab_core import ConfigError, SceneEntityCfg
from unilab_managers import (
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RewardTermCfg,
)
from unilab_managers.mdp.actions import JointEffortActionCfg
from unilab_managers.mdp.commands import GaitClock, GaitClockCfg, UniformVelocityCommandCfg
from unilab_managers.mdp.observations import generated_commands
from unilab_managers.mdp.observations_feet import foot_contact, foot_height, gait_phase
from unilab_managers.mdp.rewards_gait import feet_gait, feet_gait_contact
from unisim import SimCfg
from unisim.model_layout import ContactLayout
from unisim.testing import FakeBackend, make_layout

DT = 0.02
FEET = ("left", "right")
SENSORS = ("left_contact", "right_contact")
SITES = SceneEntityCfg(site_names=FEET, preserve_order=True)
RADIUS = 0.023
GAIT: dict[str, Any] = {
    "clock": "clock",
    "offsets": (0.0, 0.5),
    "asset_cfg": SITES,
    "sensor_names": SENSORS,
    "radius": RADIUS,
    "swing_height": 0.07,
    "height_std": 0.035,
    "slip_std": 0.5,
}
WALK, STAND, NEARLY = (0.5, 0.0, 0.25), (0.0, 0.0, 0.0), (0.03, 0.03, 0.02)


class Feed:
    """Puts feet where a test wants them, after every substep."""

    def __init__(self) -> None:
        self.now: dict[str, torch.Tensor] = {}

    def __call__(self, step: int, state: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return self.now

    def foot(self, i: int, rows: Sequence[tuple[float, float, float, bool]]) -> None:
        """Sets (clearance m, vx m/s, vy m/s, contact) of a foot, one for each row."""
        site = torch.zeros(len(rows), 13)
        site[:, 2] = torch.tensor([clearance + RADIUS for clearance, _, _, _ in rows])
        site[:, 7:9] = torch.tensor([[vx, vy] for _, vx, vy, _ in rows])
        site[:, 9] = 99.0  # a vertical velocity is no slip
        self.now[f"site:robot/{FEET[i]}"] = site
        # The engine counts contacts; two of them are as good as one.
        self.now[f"sensor:{SENSORS[i]}"] = torch.tensor([[2.0 if row[3] else 0.0] for row in rows])


@pytest.fixture
def feed() -> Feed:
    return Feed()


Made = list[ManagerBasedRlEnv]


@pytest.fixture
def made() -> Iterator[Made]:
    envs: Made = []
    yield envs
    for env in envs:
        env.close()


def walker(
    made: Made, feed: Feed, commands: Sequence[tuple[float, float, float]], **params: Any
) -> ManagerBasedRlEnv:
    """One row for each command."""
    layout = make_layout(
        joints=("robot/hip",),
        actuated=("robot/hip",),
        sites=tuple(f"robot/{foot}" for foot in FEET),
        contacts={name: ContactLayout(("found",)) for name in SENSORS},
        free_root=True,
    )
    cfg = ManagerBasedRlEnvCfg(
        sim=SimCfg(timestep=DT),
        episode_length_s=100.0,
        observations={
            "obs": ObservationGroupCfg(
                terms={
                    "clock": ObservationTermCfg(func=generated_commands, params={"command_name": "clock"}),
                    "contacts": ObservationTermCfg(func=foot_contact, params={"sensor_names": SENSORS}),
                    "clearances": ObservationTermCfg(
                        func=foot_height, params={"asset_cfg": SITES, "radius": RADIUS}
                    ),
                }
            )
        },
        actions={"effort": JointEffortActionCfg()},
        commands={
            "twist": UniformVelocityCommandCfg(
                lin_vel_x=(0.0, 0.0),
                lin_vel_y=(0.0, 0.0),
                ang_vel_z=(0.0, 0.0),
                resampling_time_range=(100.0, 100.0),
                fixed=tuple(commands),
            ),
            "clock": GaitClockCfg(velocity_command="twist", frequency_hz=2.0),
        },
        rewards={"gait": RewardTermCfg(func=feet_gait, weight=1.0, params={**GAIT, **params})},
        scale_rewards_by_dt=False,
        terminations={},
    )
    env = ManagerBasedRlEnv(
        cfg, backend=FakeBackend(replace(layout, timestep=DT), len(commands), script=feed)
    )
    made.append(env)
    env.reset()
    return env


def clock_of(env: ManagerBasedRlEnv) -> GaitClock:
    term = env.command_manager.get_term("clock")
    assert isinstance(term, GaitClock)
    return term


def set_phase(env: ManagerBasedRlEnv, *phases: float) -> None:
    clock_of(env).phase.copy_(torch.tensor(phases))
    clock_of(env).refresh(torch.arange(len(phases)))


def still(env: ManagerBasedRlEnv) -> torch.Tensor:
    return torch.zeros(env.num_envs, 1)


# ---------------------------------------------------------------- the clock


def test_the_clock_shows_sine_and_cosine_of_its_phase_and_goes_on_by_the_time_of_a_step(
    made: Made, feed: Feed
) -> None:
    env = walker(made, feed, [WALK, WALK])
    set_phase(env, 0.0, 0.97)
    for step in (1, 2):
        env.step(still(env))
        phases = [0.04 * step, (0.97 + 0.04 * step) % 1.0]  # 2 Hz x 0.02 s
        assert clock_of(env).phase.tolist() == pytest.approx(phases, abs=1e-6)
        expected = [[math.sin(2 * math.pi * p), math.cos(2 * math.pi * p)] for p in phases]
        assert clock_of(env).command.tolist() == [pytest.approx(row, abs=1e-5) for row in expected]
        assert env.observations()["obs"][:, :2].tolist() == clock_of(env).command.tolist()


def test_the_clock_is_hidden_where_there_is_nothing_to_walk_for_and_runs_on(made: Made, feed: Feed) -> None:
    env = walker(made, feed, [WALK, STAND, NEARLY, (0.0, 0.0, -0.06)])
    set_phase(env, 0.25, 0.25, 0.25, 0.25)
    assert clock_of(env).moving.flatten().tolist() == [1.0, 0.0, 0.0, 1.0]
    assert clock_of(env).command[:, 0].tolist() == pytest.approx([1.0, 0.0, 0.0, 1.0])
    assert clock_of(env).command[[1, 2], 1].tolist() == [0.0, 0.0]
    env.step(still(env))
    assert clock_of(env).phase.tolist() == pytest.approx([0.29] * 4)


def test_a_reset_draws_the_phase_of_its_rows_and_lets_no_time_pass(made: Made, feed: Feed) -> None:
    env = walker(made, feed, [WALK] * 3)
    set_phase(env, 0.1, 0.2, 0.3)
    state = env.rng.get_state()
    env.reset(torch.tensor([1]))
    twin = torch.Generator()
    twin.set_state(state)
    drawn = torch.rand(3, generator=twin)[1].item()
    assert clock_of(env).phase.tolist() == pytest.approx([0.1, drawn, 0.3])
    assert env.observations()["obs"][1, :2].tolist() == pytest.approx(
        [math.sin(2 * math.pi * drawn), math.cos(2 * math.pi * drawn)], abs=1e-5
    )


def test_phases_fill_the_circle(made: Made, feed: Feed) -> None:
    phases = clock_of(walker(made, feed, [WALK] * 500)).phase
    assert phases.min() < 0.02
    assert phases.max() > 0.98
    assert phases.max() < 1.0


# ---------------------------------------------------------------- the reward


def rewarded(env: ManagerBasedRlEnv, feed: Feed, left: Sequence[Any], right: Sequence[Any]) -> list[float]:
    feed.foot(0, left)
    feed.foot(1, right)
    return env.step(still(env)).reward.tolist()


AIR, GROUND = False, True


def test_the_foot_whose_turn_it_is_shall_be_lifted_and_the_other_stand(made: Made, feed: Feed) -> None:
    env = walker(made, feed, [WALK] * 6)
    set_phase(env, *[0.25] * 6)  # the left foot's sine is 1: all swing, 7 cm high; the right one's is -1
    left = [
        (0.07, 3.0, 4.0, AIR),
        (0.07, 0.0, 0.0, GROUND),
        (0.105, 0.0, 0.0, AIR),
        (0.035, 0.0, 0.0, AIR),
        (0.07, 0.0, 0.0, AIR),
        (0.07, 0.0, 0.0, AIR),
    ]
    right = [
        (0.0, 0.0, 0.0, GROUND),
        (0.0, 0.0, 0.0, GROUND),
        (0.0, 0.0, 0.0, GROUND),
        (0.5, 0.0, 0.0, GROUND),
        (0.0, 0.3, 0.4, GROUND),
        (0.0, 0.0, 0.0, AIR),
    ]
    e = math.exp(-1.0)
    expected = [1.0, 0.5, (e + 1.0) / 2.0, (e + 1.0) / 2.0, (1.0 + e) / 2.0, 0.5]
    assert rewarded(env, feed, left, right) == pytest.approx(expected, abs=1e-5)


UP, DOWN = (0.07, 0.0, 0.0, AIR), (0.0, 0.0, 0.0, GROUND)


def test_half_a_turn_later_it_is_the_other_foots_turn(made: Made, feed: Feed) -> None:
    env = walker(made, feed, [WALK] * 2)
    set_phase(env, 0.75, 0.75)
    assert rewarded(env, feed, [DOWN, UP], [UP, DOWN]) == pytest.approx([1.0, 0.0], abs=1e-5)


def test_between_swing_and_stance_both_count_by_their_shares(made: Made, feed: Feed) -> None:
    env = walker(made, feed, [WALK] * 2)
    phase = math.asin(0.125) / (
        2.0 * math.pi
    )  # sines +-1/8: shares of swing 3/4 and 1/4, height 7/8 cm and 0
    set_phase(env, phase, phase)
    left = [(0.00875, 9.0, 9.0, AIR), (0.0, 0.3, 0.4, GROUND)]
    right = [(0.0, 0.0, 0.0, GROUND), (0.035, 0.0, 0.0, AIR)]
    e = math.exp(-1.0)
    expected = [(0.75 + 0.75) / 2.0, (0.25 * e + 0.25 * e) / 2.0]
    assert rewarded(env, feed, left, right) == pytest.approx(expected, abs=1e-5)


def test_a_robot_that_is_to_stand_shall_keep_all_feet_down(made: Made, feed: Feed) -> None:
    env = walker(made, feed, [STAND] * 2)
    set_phase(env, 0.25, 0.25)
    assert rewarded(env, feed, [DOWN, UP], [DOWN, DOWN]) == pytest.approx([1.0, 0.5], abs=1e-6)


def test_feet_are_shown_as_contacts_and_clearances(made: Made, feed: Feed) -> None:
    env = walker(made, feed, [WALK])
    rewarded(env, feed, [(0.05, 0.0, 0.0, AIR)], [(-0.001, 0.0, 0.0, GROUND)])
    assert env.observations()["obs"][0, 2:].tolist() == pytest.approx([0.0, 1.0, 0.05, -0.001], abs=1e-6)
    labels = env.describe().observations["obs"]
    assert labels == (
        "clock[sin]",
        "clock[cos]",
        "contacts[left_contact]",
        "contacts[right_contact]",
        "clearances[left]",
        "clearances[right]",
    )


def test_feet_that_differ_in_number_are_refused(made: Made, feed: Feed) -> None:
    with pytest.raises(ConfigError, match=r"rewards term 'gait'.*'sensor_names': 1.*'offsets': 2"):
        walker(made, feed, [WALK], sensor_names=("left_contact",))


# ---------------------------------------------------------------- phases and contacts alone


def lone(
    made: Made,
    feed: Feed,
    commands: Sequence[tuple[float, float, float]],
    reward: RewardTermCfg,
    **observations: ObservationTermCfg,
) -> ManagerBasedRlEnv:
    """Returns a walker with another reward, and with these observations if there are any."""
    env = walker(made, feed, commands)
    changes: dict[str, Any] = {"rewards": {"term": reward}}
    if observations:
        changes["observations"] = {"obs": ObservationGroupCfg(terms=observations)}
    backend = FakeBackend(env.model_layout, len(commands), script=feed)
    env = ManagerBasedRlEnv(env.cfg.model_copy(update=changes), backend=backend)
    made.append(env)
    env.reset()
    return env


TOUCH: dict[str, Any] = {"clock": "clock", "offsets": (0.0, 0.5), "sensor_names": SENSORS}


def test_each_foot_is_shown_its_own_phase_and_nothing_where_the_robot_is_to_stand(
    made: Made, feed: Feed
) -> None:
    phases = ObservationTermCfg(func=gait_phase, params={"clock": "clock", "offsets": (0.0, 0.25)})
    touch = RewardTermCfg(func=feet_gait_contact, weight=1.0, params=TOUCH)
    env = lone(made, feed, [WALK, STAND], touch, phase=phases)
    set_phase(env, 0.06, 0.06)
    env.step(still(env))  # 2 Hz x 0.02 s: to 0.1
    sin, cos = math.sin(0.2 * math.pi), math.cos(0.2 * math.pi)
    expected = [[sin, cos, cos, -sin], [0.0] * 4]  # a quarter of a turn ahead
    assert env.observations()["obs"].tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    labels = ("phase[sin(0)]", "phase[sin(0.25)]", "phase[cos(0)]", "phase[cos(0.25)]")
    assert env.describe().observations["obs"] == labels


@pytest.mark.parametrize(
    ("stance_share", "expected"), [(0.5, [1.0, 0.5, 0.5, 0.0, 1.0]), (0.7, [1.0, 0.5, 0.5, 0.0, 1.0])]
)
def test_feet_shall_touch_when_it_is_their_turn(
    made: Made, feed: Feed, stance_share: float, expected: list[float]
) -> None:
    term = RewardTermCfg(func=feet_gait_contact, weight=1.0, params={**TOUCH, "stance_share": stance_share})
    env = lone(made, feed, [WALK] * 4 + [STAND], term)
    set_phase(env, *[0.25] * 5)  # the left foot's swing, the right one's stance
    assert rewarded(env, feed, [UP, UP, DOWN, DOWN, DOWN], [DOWN, UP, DOWN, UP, DOWN]) == expected


def test_a_longer_stance_begins_the_swing_later(made: Made, feed: Feed) -> None:
    phase = 0.08  # a sine of 0.48: between those at which a swing begins at shares of 1/2 (0) and 0.7 (0.59)
    got = []
    for share in (0.5, 0.7):
        params = {**TOUCH, "stance_share": share}
        env = lone(made, feed, [WALK], RewardTermCfg(func=feet_gait_contact, weight=1.0, params=params))
        set_phase(env, phase)
        got.append(rewarded(env, feed, [UP], [DOWN]))
    assert got == [[1.0], [0.5]]


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"clock": "twist"}, "clock 'twist' is a UniformVelocityCommand, expected a GaitClock"),
        ({"clock": "clok"}, "unknown term 'clok'; did you mean 'clock'"),
        ({"offsets": (0.0,)}, r"feet differ in number: \{'sensor_names': 2, 'offsets': 1\}"),
        ({"stance_share": 1.0}, "stance_share is 1.0, expected 0 < stance_share < 1"),
    ],
)
def test_a_gait_that_cannot_be_is_refused(
    made: Made, feed: Feed, params: Mapping[str, Any], message: str
) -> None:
    term = RewardTermCfg(func=feet_gait_contact, weight=1.0, params={**TOUCH, **params})
    with pytest.raises(ConfigError, match=f"rewards term 'term'.*{message}"):
        lone(made, feed, [WALK], term)


def test_a_phase_for_no_foot_is_refused(made: Made, feed: Feed) -> None:
    term = RewardTermCfg(func=feet_gait_contact, weight=1.0, params=TOUCH)
    phases = ObservationTermCfg(func=gait_phase, params={"clock": "clock", "offsets": ()})
    with pytest.raises(
        ConfigError, match="observations.obs term 'phase'.*offsets is empty, expected one per foot"
    ):
        lone(made, feed, [WALK], term, phase=phases)
