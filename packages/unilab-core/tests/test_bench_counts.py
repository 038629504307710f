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


WAITS = pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda x: x[0].item(), "_local_scalar_dense"),
        (lambda x: 1 if (x > 0).any() else 0, "_local_scalar_dense"),
        (lambda x: torch.where(x > 0), "nonzero"),
        (lambda x: torch.unique(x), "_unique2"),
        (lambda x: torch.allclose(x, x), "allclose"),
        (lambda x: torch.repeat_interleave(x, torch.tensor([1, 2, 1])), "repeat_interleave"),
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
MODES = pytest.mark.parametrize("inference", [False, True], ids=["normal", "inference"])


@WAITS
@MODES
def test_everything_that_waits_for_a_device_is_counted_by_its_kind(call, kind, inference):
    with torch.inference_mode(inference):
        assert counted(lambda: call(torch.tensor([1.0, 2.0, -1.0]))).waits == {kind: 1}


@WAITS
def test_what_a_term_waits_for_in_a_step_is_in_the_counts(call, kind, monkeypatch):
    rewards = ScriptedEnv._rewards

    def waiting(self):
        call(torch.tensor([1.0, 2.0, -1.0]))
        return rewards(self)

    monkeypatch.setattr(ScriptedEnv, "_rewards", waiting)
    env = ScriptedEnv(2)
    env.reset()
    counts, _ = measure_counts(env, [zeros(env)] * 3)
    own = {"tolist": 2.0}  # the two verdicts
    assert counts["quiet"].waiting == own | {kind: own.get(kind, 0.0) + 1.0}


@MODES
def test_what_does_not_wait_is_not_counted(inference):
    with torch.inference_mode(inference):
        x = torch.arange(3.0)
        twice = torch.tensor([2, 2, 2])

        def call() -> None:
            x[torch.tensor([0, 2])] = x[torch.tensor([1, 1])] + x.to(torch.float64)[:2].float()
            torch.repeat_interleave(x, twice, output_size=6)

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
