"""What moves between host and device: counts, bytes and stable addresses.

The plan of these tests has N = 3 rows, C = 1 control column, W = 8 read columns (2 + 2 + 1 state, 3 sensor).
"""

from __future__ import annotations

import pytest
import torch
from unisim_support import fake_plan, reset_rows, write_rows

from unisim import ResetPayload
from unisim.transfer import PacketCount

KINDS = ("control", "read", "reset", "selected_read", "write")


class Ledger:
    """What a plan counted since the last look."""

    def __init__(self, plan) -> None:
        self.plan = plan
        self.seen = plan.transfer_stats

    def look(self) -> dict[str, tuple[int, int, int]]:
        """Kinds that moved, with the increase of transfers, bytes and synchronisations."""
        now, before = self.plan.transfer_stats, self.seen
        self.seen = now
        moved = {}
        for kind in KINDS:
            new, old = getattr(now, kind), getattr(before, kind)
            counts = (
                new.transfers - old.transfers,
                new.bytes - old.bytes,
                new.synchronizations - old.synchronizations,
            )
            if counts != (0, 0, 0):
                moved[kind] = counts
        return moved


@pytest.fixture
def plan():
    return fake_plan()[1]


def step(plan, value: float = 0.0):
    plan.write_control(torch.full((3, 1), value))
    plan.step(2)
    return plan.read()


def test_a_new_plan_has_moved_nothing(plan):
    assert all(getattr(plan.transfer_stats, kind) == PacketCount(0, 0, 0) for kind in KINDS)


def test_a_step_moves_one_control_and_one_read(plan):
    ledger = Ledger(plan)
    step(plan)
    assert ledger.look() == {"control": (1, 4 * 3 * 1, 1), "read": (1, 4 * 3 * 8, 0)}


@pytest.mark.parametrize("ids", [[1], [0, 2], [0, 1, 2]])
def test_a_reset_adds_one_reset_and_one_selected_read(plan, ids):
    k = len(ids)
    ledger = Ledger(plan)
    reset_rows(plan, ids, qpos=[[0.0, 0.0]] * k, qvel=[[0.0, 0.0]] * k)
    plan.read_selected()
    width = 2 + 2
    assert ledger.look() == {
        "reset": (1, 4 * k * width + 8 * k, 1),
        "selected_read": (1, 4 * k * 8, 0),
    }


def test_a_reset_moves_the_control_only_if_it_is_given(plan):
    ledger = Ledger(plan)
    reset_rows(plan, [1], qpos=[[0.0, 0.0]], qvel=[[0.0, 0.0]], ctrl=[[0.5]])
    plan.read_selected()
    assert ledger.look()["reset"] == (1, 4 * 5 + 8, 1)


def test_a_row_write_adds_one_write_and_one_selected_read(plan):
    ledger = Ledger(plan)
    write_rows(plan, [0, 2], qvel=[[1.0, 0.0], [2.0, 0.0]])
    plan.read_selected()
    assert ledger.look() == {"write": (1, 4 * 2 * 2 + 8 * 2, 1), "selected_read": (1, 4 * 2 * 8, 0)}


def test_statistics_are_a_value_that_does_not_change_later(plan):
    before = plan.transfer_stats
    step(plan)
    assert before.control.transfers == 0


def test_the_read_packet_keeps_its_address(plan):
    packet = plan.read()
    address = packet.data_ptr()
    for _ in range(3):
        assert step(plan, 1.0).data_ptr() == address
        reset_rows(plan, [1])
        plan.read_selected()
    assert plan.packet.data_ptr() == address
    assert packet[:, 0].tolist() == plan.packet[:, 0].tolist()


def test_the_selected_packet_keeps_its_address(plan):
    addresses = set()
    for ids in ([0], [1, 2], [0, 1, 2]):
        reset_rows(plan, ids)
        addresses.add(plan.read_selected().data_ptr())
    assert len(addresses) == 1


def test_a_selected_read_refreshes_its_rows_in_the_packet_and_no_other(plan):
    packet = step(plan, 1.0)
    before = packet.clone()
    reset_rows(plan, [0, 2], qpos=[[7.0, 8.0], [9.0, 10.0]])
    assert torch.equal(packet, before)  # nothing moves before the selected read
    rows = plan.read_selected()
    assert rows[:, 0:2].tolist() == [[7.0, 8.0], [9.0, 10.0]]
    assert torch.equal(packet[[0, 2]], rows)
    assert torch.equal(packet[1], before[1])


def test_a_reset_leaves_other_rows_bit_for_bit():
    plan = fake_plan()[1]
    twin = fake_plan()[1]
    for each in (plan, twin):
        step(each, 0.3)
    reset_rows(plan, [1], qpos=[[5.0, 5.0]])
    plan.read_selected()
    assert torch.equal(plan.read()[[0, 2]], twin.read()[[0, 2]])
    for each in (plan, twin):
        step(each, -0.7)
    assert torch.equal(plan.packet[[0, 2]], twin.packet[[0, 2]])


def test_a_reset_of_no_rows_moves_no_bytes_and_changes_nothing(plan):
    before = plan.read().clone()
    ledger = Ledger(plan)
    plan.apply_reset(torch.zeros(3, dtype=torch.bool), ResetPayload(torch.zeros(0, dtype=torch.int64)))
    assert plan.read_selected().shape == (0, 8)
    assert {kind: counts[1] for kind, counts in ledger.look().items()} == {"reset": 0, "selected_read": 0}
    assert torch.equal(plan.read(), before)


def test_a_reset_brings_back_the_defaults_of_what_is_not_given(plan):
    step(plan, 1.0)
    reset_rows(plan, [1], qpos=[[3.0, 4.0]])
    plan.read_selected()
    assert plan.packet[1, 0:5].tolist() == [3.0, 4.0, 0.0, 0.0, 0.0]


def test_a_row_write_keeps_what_is_not_given(plan):
    packet = step(plan, 1.0)
    before = packet.clone()
    write_rows(plan, [1], qvel=[[9.0, 9.0]])
    plan.read_selected()
    assert packet[1, 2:4].tolist() == [9.0, 9.0]
    assert torch.equal(packet[1, [0, 1, 4]], before[1, [0, 1, 4]])
