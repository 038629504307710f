"""Values derived from what is read: derived once, until what they follow from changes."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from core_support import RobotEnv, ScriptedEnv, zeros

from unilab_core import SceneEntityCfg
from unilab_core.kept_reads import KeptReads
from unilab_core.rotation import quat_apply_inverse
from unilab_core.staging import Staging
from unisim.testing import make_layout

ONE = torch.tensor([1])
BASE = SceneEntityCfg(body_names=("base",))
LYING = torch.tensor([[0.0, 0.0, 1.0, math.sqrt(0.5), math.sqrt(0.5), 0.0, 0.0]])


def rest(k=1):
    return torch.zeros(k, 3)


class Looking(RobotEnv):
    """Notes what `look(data)` returns before events, after them, and after the commit of what they wrote."""

    def __init__(self, look, advance):
        self.parts = lambda: (look, advance)
        self.found = []
        super().__init__(3)

    def _look(self):
        self.found.append(self.parts()[0](self.scene["robot"].data))

    def _rewards(self):
        self._look()
        return super()._rewards()

    def _advance(self):
        self.parts()[1](self.scene["robot"].data)
        self._look()

    def _after_step(self):
        self._look()


def three_looks(look, advance):
    with Looking(look, advance) as env:
        env.reset()
        env.step(zeros(env))
        env.found.clear()
        env.step(zeros(env))
        return env.found


def test_what_follows_from_poses_is_the_same_tensor_after_a_push():
    before, staged, after = three_looks(
        lambda data: (data.projected_gravity_b, data.heading_w),
        lambda data: data.write_root_velocity(torch.tensor([[1.0, 2.0, 3.0]]), rest(), ONE),
    )
    for kept in range(2):
        assert before[kept] is staged[kept] is after[kept]


def test_what_follows_from_poses_is_new_after_a_pose():
    before, staged, after = three_looks(
        lambda data: data.projected_gravity_b, lambda data: data.write_root_pose(LYING, ONE)
    )
    assert staged is not before
    torch.testing.assert_close(staged[1], torch.tensor([0.0, -1.0, 0.0]), atol=1e-6, rtol=0)
    assert after is not staged  # an engine may have brought the quaternion to length 1
    torch.testing.assert_close(after, staged)


def test_what_follows_from_the_state_is_derived_anew_when_a_step_writes_velocities_and_outlasts_their_commit():
    with Looking(
        lambda data: (data.root_lin_vel_b, data.root_ang_vel_w, data.root_quat_w.clone()),
        lambda data: data.write_root_velocity(torch.tensor([[1.0, 2.0, 3.0]]), None, ONE),
    ) as env:
        env.stage = lambda env, ids: env.scene["robot"].data.write_root_pose(LYING.expand(3, 7), ids)
        env.reset()
        env.found.clear()
        env.step(zeros(env))
        before, staged, after = env.found
        for derived in range(2):
            assert before[derived] is not staged[derived]
            assert staged[derived] is after[derived]
        data = env.scene["robot"].data
        fresh = quat_apply_inverse(data.root_quat_w, data.root_lin_vel_w)
        assert torch.equal(after[0], fresh)
        assert torch.equal(
            data.root_lin_vel_w, torch.tensor([[0.0, 0.0, 0.0], [1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
        )
        env.found.clear()
        env.step(zeros(env))
        assert env.found[0][0] is not after[0]


def test_a_second_write_of_a_step_is_seen_after_the_first_was_looked_at():
    seen = []

    def push_twice(data):
        for speed in (1.0, 2.0):
            data.write_root_velocity(torch.tensor([[speed, 0.0, 0.0]]), rest(), ONE)
            seen.append(data.root_lin_vel_b[1].tolist())

    found = three_looks(lambda data: data.root_lin_vel_b[1].tolist(), push_twice)
    assert seen[-2:] == [[1.0, 0.0, 0.0], [2.0, 0.0, 0.0]]
    assert found[1:] == [[2.0, 0.0, 0.0], [2.0, 0.0, 0.0]]


def test_a_body_is_where_the_engine_puts_it_once_it_knows():
    before, staged, after = three_looks(
        lambda data: data.bodies(BASE).pos_w[1, 0].tolist(),
        lambda data: data.write_root_pose(torch.tensor([[4.0, 5.0, 6.0, 1.0, 0.0, 0.0, 0.0]]), ONE),
    )
    assert before == staged
    assert after == [4.0, 5.0, 6.0]


class Scattered(RobotEnv):
    """Reads bodies of the packet in several orders."""

    names = (("foot", "leg", "base"), ("foot", "base", "leg"), ("base", "foot"), ("leg",))

    def fields(self):
        data = self.scene["robot"].data
        for names in self.names:
            handle = data.bodies(SceneEntityCfg(body_names=names, preserve_order=True))
            yield [handle.pos_w, handle.quat_w, handle.lin_vel_w, handle.ang_vel_w]

    def _rewards(self):
        for name in ("leg", "base", "foot"):  # the order of the packet
            _ = self.scene["robot"].data.bodies(SceneEntityCfg(body_names=(name,))).pos_w
        list(self.fields())
        return super()._rewards()


def test_bodies_stand_side_by_side_wherever_their_columns_lie():
    with Scattered(2, gravity=-9.81) as env:
        env.reset()
        for _ in range(3):
            env.step(torch.full((2, 2), 0.5))
            views = env.backend.get_state_views(tuple(f"body:robot/{n}" for n in ("base", "leg", "foot")))
            first, second = list(env.fields()), list(env.fields())
            for names, fields in zip(env.names, first, strict=True):
                expected = torch.stack([views[f"body:robot/{name}"] for name in names], dim=1)
                assert torch.equal(torch.cat(fields, dim=2), expected)
            assert all(
                a is b
                for one, other in zip(first, second, strict=True)
                for a, b in zip(one, other, strict=True)
            )
        # The packet holds leg, base, foot: the first handle goes back and forth in it, the second backwards.
        assert [fields[0]._is_view() for fields in first] == [False, False, True, True]


def test_what_is_kept_of_bodies_is_rewritten_when_they_are_read_again_wherever_their_columns_lie():
    with Scattered(2, gravity=-9.81) as env:
        env.reset()
        env.step(torch.full((2, 2), 0.5))
        kept = list(env.fields())
        env.step(torch.full((2, 2), 0.5))
        for before, now in zip(kept, env.fields(), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(before, now, strict=True))


def kept_reads():
    """What keeps values, and the versions of its columns, with a step open in which row 1 may be written."""
    io = SimpleNamespace(serves_step=True, version=1, pose_version=1)
    staging = Staging(make_layout(), 3, torch.device("cpu"))
    staging.open_step(torch.zeros_like(staging.qpos), torch.zeros_like(staging.qvel))
    return KeptReads(io, staging), io, staging


def write(staging, part):
    staging.check_rows(ONE, "test", part)
    staging.write(part, ONE, slice(0, 1), torch.ones(1, 1))


@pytest.mark.parametrize(
    ("source", "part", "outdated"),
    [
        ("pose", "qpos", True),
        ("pose", "qvel", False),
        ("state", "qpos", True),
        ("state", "qvel", True),
        ("columns", "qpos", True),
        ("columns", "qvel", True),
    ],
)
def test_a_write_outdates_what_follows_from_its_part_and_so_does_dropping_it(source, part, outdated):
    kept, _, staging = kept_reads()
    first = kept.get("value", lambda: torch.zeros(1), source)
    assert kept.get("value", lambda: torch.zeros(1), source) is first
    write(staging, part)
    written = kept.get("value", lambda: torch.zeros(1), source)
    assert (written is not first) == outdated
    assert kept.get("value", lambda: torch.zeros(1), source) is written
    staging.close()
    dropped = kept.get("value", lambda: torch.zeros(1), source)
    assert (dropped is not written) == outdated


@pytest.mark.parametrize(
    ("source", "versions", "outdated"),
    [
        ("pose", {"version": 2}, False),
        ("state", {"version": 2}, False),
        ("columns", {"version": 2}, True),
        ("pose", {"version": 2, "pose_version": 2}, True),
        ("state", {"version": 2, "pose_version": 2}, True),
    ],
)
def test_a_commit_outdates_what_the_written_values_do_not_say(source, versions, outdated):
    kept, io, staging = kept_reads()
    write(staging, "qvel")
    staged = kept.get("value", lambda: torch.zeros(1), source)
    vars(io).update(versions)
    staging.committed()
    assert (kept.get("value", lambda: torch.zeros(1), source) is not staged) == outdated


class OnRails(ScriptedEnv):
    """An entity without a free root, of which a step writes joints."""

    def _advance(self):
        data = self.scene["robot"].data
        data.write_joint_state(torch.ones(1, 2), torch.ones(1, 2), ONE)
        self.looks = [data.root_lin_vel_b, data.root_lin_vel_b]

    def _after_step(self):
        self.looks.append(self.scene["robot"].data.root_lin_vel_b)


def test_what_has_no_free_root_follows_from_its_body_which_moves_with_the_commit():
    with OnRails() as env:
        env.reset()
        env.step(zeros(env))
        first, again, after = env.looks
        assert first is again
        assert after is not first
