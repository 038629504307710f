"""What a step costs: packets, bytes and moments at which the host waits for the device."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, steps, zeros
from torch.utils._python_dispatch import TorchDispatchMode
from waiting import CountedBackend, HostWork, waits

from unisim.testing import make_layout, written_tensors

KINDS = ("control", "read", "reset", "selected_read", "write")
N, WIDTH = 3, 2 + 2 + 1  # qpos, qvel, ctrl


def moved(env, call) -> dict[str, tuple[int, int]]:
    before = env.transfer_stats
    call()
    after = env.transfer_stats
    counts = {
        kind: (
            getattr(after, kind).transfers - getattr(before, kind).transfers,
            getattr(after, kind).bytes - getattr(before, kind).bytes,
        )
        for kind in KINDS
    }
    return {kind: count for kind, count in counts.items() if count != (0, 0)}


def test_a_step_in_which_nobody_resets_moves_one_control_and_one_read():
    with ScriptedEnv(N) as env:
        env.reset()
        assert moved(env, lambda: steps(env, 1)) == {"control": (1, 4 * N * 1), "read": (1, 4 * N * WIDTH)}


@pytest.mark.parametrize("rows", [[1], [0, 2], [0, 1, 2]])
def test_a_step_with_resets_adds_one_reset_and_one_selected_read_however_many_rows(rows):
    k = len(rows)
    with ScriptedEnv(N, terminate={1: rows}, spread=1.0) as env:
        env.reset()
        assert moved(env, lambda: steps(env, 1)) == {
            "control": (1, 4 * N),
            "read": (1, 4 * N * WIDTH),
            "reset": (1, 4 * k * 4 + 8 * k),
            "selected_read": (1, 4 * k * WIDTH),
        }


def test_an_explicit_reset_moves_one_reset_and_one_selected_read():
    with ScriptedEnv(N) as env:
        env.reset()
        counts = moved(env, lambda: env.reset(torch.tensor([2, 0])))
    assert counts == {"reset": (1, 4 * 2 * 4 + 8 * 2), "selected_read": (1, 4 * 2 * WIDTH)}


def test_a_reset_of_no_rows_moves_nothing():
    with ScriptedEnv(N) as env:
        env.reset()
        assert moved(env, lambda: env.reset(torch.zeros(0, dtype=torch.int64))) == {}


def test_refused_actions_move_nothing():
    with ScriptedEnv(N) as env:
        env.reset()

        def refused():
            with pytest.raises(ValueError, match="not finite"):
                env.step(torch.full((N, 1), float("nan")))

        assert moved(env, refused) == {}


def test_reading_observations_and_state_moves_nothing():
    with ScriptedEnv(N) as env:
        env.reset()
        assert (
            moved(env, lambda: (env.observations(), env.state.obs, env.episode_length, env.describe())) == {}
        )


def counted_env(**options) -> ScriptedEnv:
    return ScriptedEnv(N, backend=CountedBackend(make_layout(), N), **options)


def test_a_step_in_which_nobody_is_done_waits_twice_for_the_two_verdicts():
    with counted_env(critic=True) as env:
        env.reset()
        actions = zeros(env)
        assert waits(lambda: env.step(actions)) == {"tolist": 2}


def test_without_automatic_reset_a_step_waits_twice_too():
    with counted_env(autoreset=False) as env:
        env.reset()
        actions = zeros(env)
        assert waits(lambda: env.step(actions)) == {"tolist": 2}


def test_a_step_with_done_rows_selects_their_ids_once():
    with counted_env(terminate={1: [0, 2]}) as env:
        env.inject["_stage_reset"] = env.inject["_on_episodes_end"] = lambda ids: None
        env.reset()
        actions = zeros(env)
        # The scripted hooks note their rows, once each.
        hooks = 7
        counts = waits(lambda: env.step(actions))
        assert counts["nonzero"] == 1
        assert counts["tolist"] <= 2 + hooks
        assert counts["masked_select"] == counts["boolean index"] == 0


def test_no_operator_outside_the_plan_writes_the_read_packet():
    with counted_env(terminate={2: [1]}) as env:
        env.reset()
        steps(env, 1)
        column = env.scene["robot"].data.joint_pos
        storage = column.untyped_storage().data_ptr()
        writers: list[str] = []

        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                kwargs = kwargs or {}
                for target in written_tensors(func, args, kwargs) if HostWork.depth == 0 else ():
                    if target.untyped_storage().data_ptr() == storage:
                        writers.append(func.name())
                return func(*args, **kwargs)

        with Watch():
            steps(env, 1)
        assert writers == ["aten::index_copy_"]  # the plan's own selected read
        writers.clear()
        with Watch():  # which sees other writers too
            torch.mul(column, 1.0, out=column)
            torch._foreach_mul_([torch.zeros(1), column], 1.0)
        assert writers == ["aten::mul.out", "aten::_foreach_mul_.Scalar"]
