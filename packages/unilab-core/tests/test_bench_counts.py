"""Operators, waits and allocations are counted exactly; those of a backend's own work wait for nobody."""

from __future__ import annotations

import pytest
import torch
from bench_support import PushedCfg
from core_support import ScriptedEnv, zeros

from unilab_core.benching.counts import counting, measure_counts


def counted(call):
    env = ScriptedEnv(2)
    kind = type(env.backend)
    with counting(env) as take:
        take()
        call()
        work = take()
    assert type(env.backend) is kind
    return work


def test_results_in_new_storage_are_allocations_and_views_and_writes_in_place_are_none():
    x = torch.ones(4, 8)

    def call() -> None:
        y = x + 1.0  # 128 bytes
        y.view(32).mul_(2.0)
        y[:, 0].copy_(x[:, 1])
        torch.add(x, y, out=y)
        torch.zeros(3, dtype=torch.float64)  # 24 bytes

    work = counted(call)
    assert (work.allocations, work.allocated_bytes) == (2, 152)
    assert work.operators == {"add": 2, "view": 1, "mul_": 1, "select": 2, "copy_": 1, "zeros": 1}
    assert not work.waits


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: float(x.sum()), "_local_scalar_dense"),
        (lambda x: bool((x > 0).all()), "_local_scalar_dense"),
        (lambda x: x.nonzero(), "nonzero"),
        (lambda x: x[x > 0], "boolean index"),
        (lambda x: x.__setitem__(x > 0, torch.zeros(2)), "boolean index"),
        (lambda x: x.masked_select(x > 0), "masked_select"),
        (lambda x: torch.equal(x, x + 1), "equal"),
        (lambda x: x.tolist(), "tolist"),
        (lambda x: x.numpy(), "numpy"),
        (lambda x: x.to("meta"), "copy between devices"),
    ],
)
def test_everything_that_waits_for_a_device_is_counted_by_its_kind(call, kind):
    assert counted(lambda: call(torch.tensor([1.0, 2.0, -1.0]))).waits == {kind: 1}


def test_what_does_not_wait_is_not_counted():
    x = torch.arange(3.0)

    def call() -> None:
        x[torch.tensor([0, 2])] = x[torch.tensor([1, 1])] + x.to(torch.float64)[:2].float()

    assert not counted(call).waits


def test_the_work_of_a_host_bridge_backend_waits_for_nobody_and_its_operators_count():
    env = ScriptedEnv(2)
    env.reset()
    with counting(env) as take:
        env.backend.step_tensor(zeros(env))
        work = take()
        assert work.operators
        assert not work.waits


def test_steps_with_a_reset_are_told_from_those_without():
    with PushedCfg(num_envs=4).build(backend="mujoco", device="cpu", seed=0, autoreset=True) as env:
        env.reset()
        counts, transfers = measure_counts(env, [torch.zeros(4, 2)] * 12)  # all rows end in step 10
    assert {kind: found.steps for kind, found in counts.items()} == {"quiet": 11, "with_reset": 1}
    quiet, reset = counts["quiet"], counts["with_reset"]
    assert quiet.waiting["tolist"] == 2.0  # the two verdicts
    assert quiet.waits == sum(quiet.waiting.values())
    assert reset.operators > quiet.operators > 0.0
    assert reset.allocated_bytes > quiet.allocated_bytes > 0.0
    assert len(quiet.most_frequent) == 10
    assert {kind: packet["transfers"] for kind, packet in transfers.items()} == {
        "control": 1.0,
        "read": 1.0,
        "write": 1.0,
        "selected_read": 1.0 + 1 / 12,
        "reset": 1 / 12,
        "verdict": 2.0,
        "host": 0.0,
    }
    assert transfers["control"]["bytes"] == 4 * 4 * 2
    assert transfers["control"]["synchronizations"] == 1.0


def test_steps_of_one_kind_only_are_shown_as_such():
    env = ScriptedEnv(2)
    env.reset()
    counts, _ = measure_counts(env, [zeros(env)] * 3)
    assert list(counts) == ["quiet"]
    assert (counts["quiet"].waits, counts["quiet"].waiting) == (2.0, {"tolist": 2.0})
