"""Pushes by component: what is drawn for each, and that what is not named is not written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from event_support import interval, run
from manager_support import DT, MakeEnv

from unilab_core import EnvRng
from unilab_managers import EventTermCfg, ManagerBasedRlEnv
from unilab_managers.mdp._sampling import sample_components
from unilab_managers.mdp.events import push_root, reset_root_state_uniform
from unisim.testing import make_layout

KEYS = ("x", "y", "z", "roll", "pitch", "yaw")
TURNED = torch.nn.functional.normalize(torch.tensor([1.0, 2.0, 3.0, 4.0]), dim=0).tolist()
LINEAR, SPIN = [0.1, 0.2, 0.3], [0.4, 0.5, 0.6]


def spinning(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Stages a turned root that moves and spins."""
    data, k = env.scene["robot"].data, env_ids.numel()
    data.write_root_pose(torch.tensor([[0.0, 0.0, 1.0, *TURNED]]).expand(k, 7), env_ids)
    data.write_root_velocity(torch.tensor([LINEAR]).expand(k, 3), torch.tensor([SPIN]).expand(k, 3), env_ids)


def made(make_env: MakeEnv, **events: EventTermCfg) -> ManagerBasedRlEnv:
    joints = ("robot/hinge",)
    probe = {"probe": (3, "position")}
    layout = make_layout(free_root=True, joints=joints, actuated=joints, sensors=probe, timestep=DT)
    return make_env(layout=layout, events=events)


def velocity(env: ManagerBasedRlEnv) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns the velocity as the engine keeps it: linear in the world, angular in the body."""
    linear, angular = env.state_column("qvel")[:, :6].clone().split_with_sizes([3, 3], dim=1)
    return linear, angular


@pytest.mark.parametrize(
    ("ranges", "is_linear"),
    [({"x": (1.0, 1.0)}, True), ({"z": (0.5, 2.0), "y": (0.0, 0.0)}, True), ({"yaw": (0.5, 2.0)}, False)],
)
def test_the_part_of_which_nothing_is_named_stays_to_the_bit(
    make_env: MakeEnv, ranges: Any, is_linear: bool
) -> None:
    start = EventTermCfg(func=spinning, mode="reset")
    push = interval(DT, func=push_root, params={"velocity_range": ranges})
    env, twin = made(make_env, start=start, push=push), made(make_env, start=start)
    for each in (env, twin):
        run(each, 1)
    pushed, kept = (0, 1) if is_linear else (1, 0)
    assert torch.equal(velocity(env)[kept], velocity(twin)[kept])
    assert not torch.equal(velocity(env)[pushed], velocity(twin)[pushed])


def test_a_push_of_nothing_writes_nothing(make_env: MakeEnv) -> None:
    env = made(make_env, push=interval(DT, func=push_root, params={"velocity_range": {}}))
    run(env, 2)
    assert env.transfer_stats.write.transfers == 0


@pytest.mark.parametrize(("named", "kept"), [("x", SPIN), ("yaw", LINEAR), (None, SPIN)])
def test_a_reset_that_names_no_component_of_a_part_keeps_it_in_the_world(
    make_env: MakeEnv, named: str | None, kept: list[float]
) -> None:
    ranges = {} if named is None else {named: (1.0, 1.0)}
    place = EventTermCfg(
        func=reset_root_state_uniform,
        mode="reset",
        params={"pose_range": {"roll": (0.3, 0.3), "yaw": (1.0, 1.0)}, "velocity_range": ranges},
    )
    env = made(make_env, start=EventTermCfg(func=spinning, mode="reset"), place=place)
    data = env.scene["robot"].data
    shown = data.root_lin_vel_w if kept is LINEAR else data.root_ang_vel_w
    torch.testing.assert_close(shown, torch.tensor([kept] * 3), atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    "ranges", [{}, {"y": (-0.3, 0.7), "yaw": (0.1, 0.1)}, {key: (-1.5, 0.2) for key in KEYS}]
)
@pytest.mark.parametrize("count", [1, 7])
def test_components_are_drawn_row_by_row_and_brought_into_their_ranges(ranges: Any, count: int) -> None:
    source, twin = EnvRng(3, "cpu"), EnvRng(3, "cpu")
    drawn = sample_components(source, ranges, KEYS, count)
    unit = twin.uniform(0.0, 1.0, (count, len(KEYS)))
    columns = []
    for column, key in enumerate(KEYS):
        low, high = ranges.get(key, (0.0, 0.0))
        columns.append(unit[:, column] * (high - low) + low)
    assert torch.equal(drawn, torch.stack(columns, dim=1))
    assert torch.equal(source.get_state(), twin.get_state())


def test_ranges_that_were_used_in_inference_mode_first_can_be_used_outside_of_it() -> None:
    ranges = {"x": (-0.125, 0.875)}
    with torch.inference_mode():
        first = sample_components(EnvRng(3, "cpu"), ranges, KEYS, 2).tolist()
    factor = torch.ones(2, 6, requires_grad=True)
    again = factor * sample_components(EnvRng(3, "cpu"), ranges, KEYS, 2)
    again.sum().backward()
    assert again.tolist() == first
