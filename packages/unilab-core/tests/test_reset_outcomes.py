"""What a reset says of itself: whether it runs, whether it went too far to be taken back, and why it was rejected."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, zeros

from unilab_core import ResetRejectedError

PHASES = (
    *("_on_episodes_end", "_stage_reset", "_before_commit"),
    *("_clear_rows", "_after_commit", "_after_reset"),
)


class Stopped(Exception):
    """What the hooks of these tests raise."""


def stop(ids: torch.Tensor) -> None:
    raise Stopped("no")


def test_a_reset_runs_from_its_first_hook_to_its_last_and_at_no_other_time():
    with ScriptedEnv(2) as env:
        reset = env._transaction
        seen = []
        assert reset.is_running is False
        for phase in ("_on_episodes_end", "_after_reset"):
            env.inject[phase] = lambda ids: seen.append(reset.is_running)
        env.reset()
        assert seen == [True, True]
        assert reset.is_running is False
        env.step(zeros(env))
        assert reset.is_running is False


@pytest.mark.parametrize("phase", PHASES)
def test_only_a_reset_that_failed_past_its_commit_says_that_it_committed(phase):
    env = ScriptedEnv(2)
    reset = env._transaction
    committed = [reset.committed]
    env.inject["_stage_reset"] = lambda ids: committed.append(reset.committed)
    env.reset()
    committed.append(reset.committed)
    assert [value is False for value in committed] == [True] * 3
    env.inject[phase] = stop
    late = PHASES.index(phase) > 2
    with pytest.raises(Stopped if late else ResetRejectedError):
        env.reset(torch.tensor([1]))
    assert reset.committed is late
    assert reset.is_running is False
    assert env.faulted is late
    env.close()


def test_a_rejection_tells_whose_fault_it_is_from_the_inside_to_the_outside():
    def fail(ids):
        error = Stopped("no")
        error.add_note("its part")
        error.add_note("the whole")
        raise error

    with ScriptedEnv(2) as env:
        env.inject["_stage_reset"] = fail
        with pytest.raises(ResetRejectedError) as rejected:
            env.reset()
    assert str(rejected.value) == "ScriptedEnv.reset: its part: the whole: Stopped: no; nothing was committed"
    assert isinstance(rejected.value.__cause__, Stopped)
