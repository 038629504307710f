"""What other processes use is told from what this one uses."""

from __future__ import annotations

import pytest

from unilab_core.benching import load
from unilab_core.benching.load import MachineLoad, OtherLoad

LINES = """cpu  1 2 3
cpu0 {0} 0 {1} 1000 50 0 0 0 7 7
cpu1 {2} 0 0 1000 50 1 1 2 7 7
cpu2 9999 9999 9999 0 0 0 0 0 0 0
intr 12
"""


class Clock:
    """Seconds of the wall, seconds that this process used, and the file of the system."""

    def __init__(self, stat, monkeypatch) -> None:
        self.stat = stat
        self.wall = self.own = 0.0
        monkeypatch.setattr(load.time, "monotonic", lambda: self.wall)
        monkeypatch.setattr(load, "_own_s", lambda: self.own)
        monkeypatch.setattr(load, "usable_cores", lambda: frozenset({0, 1}))
        monkeypatch.setattr(load, "_loadavg", lambda: 1.0 + self.wall)
        monkeypatch.setattr(load.os, "sysconf", lambda name: 100)
        self.ticks(100, 0, 100)

    def ticks(self, *values: int) -> None:
        self.stat.write_text(LINES.format(*values))


@pytest.fixture
def clock(tmp_path, monkeypatch):
    return Clock(tmp_path / "stat", monkeypatch)


def test_others_are_what_is_busy_and_not_ours_on_the_processors_that_we_may_use(clock):
    watched = MachineLoad(clock.stat)
    clock.wall, clock.own = 10.0, 4.0
    clock.ticks(500, 100, 300)  # 4 + 1 + 2 s busy, 3 of which are of others, of 20 s
    assert watched.so_far() == OtherLoad(cores=2, others=pytest.approx(0.15), loadavg=(1.0, 11.0))


def test_nobody_else_is_nothing(clock):
    watched = MachineLoad(clock.stat)
    clock.wall, clock.own = 10.0, 4.0
    clock.ticks(300, 100, 100)  # a tick of the system may be late
    assert watched.so_far().others == 0.0


@pytest.mark.parametrize("text", [None, "cpu 1 2 3\n", "cpu0 0 0 0 0 0 0 0 0\n"])
def test_a_system_that_does_not_say_is_not_taken_for_a_quiet_one(clock, text):
    if text is None:
        clock.stat.unlink()
    else:
        clock.stat.write_text(text)
    watched = MachineLoad(clock.stat)
    clock.wall = 10.0
    assert watched.so_far().others is None
    assert watched.so_far().warning == "what other processes used is not known on this system"


@pytest.mark.parametrize(
    ("others", "warning"),
    [
        (0.0, ""),
        (0.1, ""),
        (0.11, "other processes used 11% of 2 CPU cores: repeat it on a quiet machine"),
    ],
)
def test_more_than_a_tenth_of_the_cores_is_warned_of(others, warning):
    assert OtherLoad(2, others, None).warning == warning


def test_this_machine_can_be_asked():
    found = MachineLoad().so_far()
    assert found.cores >= 1
    assert found.others is None or 0.0 <= found.others <= 1.0
