"""What 1,000 steps of a task with resets and pushes move: exactly the counts and bytes of the rule."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from core_support import zeros
from torch.utils._python_dispatch import TorchDispatchMode
from velocity import VelocityEnv, actions_of, fake_backend, mujoco_backend

from unisim import TensorExecution
from unisim.testing import written_tensors

N, STEPS = 6, 1000
KINDS = ("control", "read", "reset", "selected_read", "write", "verdict", "host")
BACKENDS = {"fake": fake_backend, "mujoco": mujoco_backend}


def model_width(env) -> int:
    """R beyond the state: body_mass, the only field that resets write."""
    return len(env.model_layout.bodies)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
def test_a_thousand_steps_move_exactly_what_the_rule_says(backend):
    with VelocityEnv(backend(N), seed=4) as env:
        env.reset()
        model = env.model_layout
        read_width = model.nq + model.nv + model.nu + 3 * 3 + 13  # state, three sensors, one body
        reset_width = model.nq + model.nv + model_width(env)
        generator = torch.Generator().manual_seed(0)
        start, expected, reset_before = env.transfer_stats, Counter(), False
        for _ in range(STEPS):
            state = env.step(actions_of(env, generator))
            expected["control", "n"] += 1
            expected["control", "bytes"] += 4 * N * model.nu
            expected["read", "n"] += 1
            expected["read", "bytes"] += 4 * N * read_width
            expected["verdict", "n"] += 2
            # actions and control before physics, and both groups if rows were reset just before; reward, two groups,
            # "any bad" and "any done" after the observations
            expected["verdict", "bytes"] += 2 + 2 * reset_before + 5
            pushed = 2 if env.step_counter % env.push_every == 0 else 0
            if pushed:
                expected["write", "n"] += 1
                expected["write", "bytes"] += 4 * pushed * model.nv + 8 * pushed
                expected["selected_read", "n"] += 1
                expected["selected_read", "bytes"] += 4 * pushed * read_width
            k = int((state.terminated | state.truncated).sum())
            reset_before = bool(k)
            if k:
                expected["reset", "n"] += 1
                expected["reset", "bytes"] += 4 * k * reset_width + 8 * k
                expected["selected_read", "n"] += 1
                expected["selected_read", "bytes"] += 4 * k * read_width
        stop = env.transfer_stats
        for kind in KINDS:
            one, two = getattr(start, kind), getattr(stop, kind)
            assert two.transfers - one.transfers == expected[kind, "n"], kind
            assert two.bytes - one.bytes == expected[kind, "bytes"], kind
        assert env.pushes.tolist() == [STEPS // 7, 0, 0, STEPS // 7, 0, 0]
        assert expected["reset", "n"] > 300


def test_a_resident_backend_moves_nothing():
    with VelocityEnv(fake_backend(N, execution=TensorExecution.DEVICE_RESIDENT), seed=4) as env:
        env.reset()
        generator = torch.Generator().manual_seed(0)
        for _ in range(100):
            env.step(actions_of(env, generator))
        assert env.pushes.sum() > 0
        for kind in KINDS:
            counts = getattr(env.transfer_stats, kind)
            assert (counts.transfers, counts.bytes, counts.synchronizations) == (0, 0, 0)


class Watch(TorchDispatchMode):
    """Notes every operator that writes the storage of the packets, with whether the plan is at work."""

    def __init__(self, storages: set[int]) -> None:
        super().__init__()
        self.storages, self.depth = storages, 0
        self.inside: Counter[str] = Counter()
        self.outside: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        for tensor in written_tensors(func, args, kwargs):
            if tensor.untyped_storage().data_ptr() in self.storages:
                (self.inside if self.depth else self.outside)[func.name()] += 1
        return func(*args, **kwargs)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS.keys())
def test_packet_storage_is_written_inside_the_plans_methods_only(backend):
    with VelocityEnv(backend(N), seed=4) as env:
        env.reset()
        plan = env._io.plan
        parts = [
            part for part in vars(plan).values() if part is not env.backend and hasattr(part, "__dict__")
        ]
        owned = [*vars(plan).values(), *(value for part in parts for value in vars(part).values())]
        storages = {
            t.untyped_storage().data_ptr() for t in owned if isinstance(t, torch.Tensor) and t.is_contiguous()
        }
        assert len(storages) >= 4  # control, read, selected read, rows
        watch = Watch(storages)

        def at_work(method):
            def call(*arguments):
                watch.depth += 1
                try:
                    return method(*arguments)
                finally:
                    watch.depth -= 1

            return call

        for name in ("write_control", "step", "read", "apply_reset", "write_rows", "read_selected"):
            setattr(plan, name, at_work(getattr(plan, name)))
        versions = plan.packet._version
        with watch:
            for _ in range(30):
                env.step(zeros(env))
            env.reset(torch.tensor([2, 1]))
        assert watch.outside == {}
        assert watch.inside["aten::copy_"] > 30
        assert plan.packet._version > versions
        with watch:  # it sees whoever else writes, whatever the writer looks like
            plan.packet.mul_(1.0)
            torch.mul(plan.packet, 1.0, out=plan.packet)
            torch._foreach_mul_([torch.zeros(1), plan.packet], 1.0)
        assert watch.outside == {"aten::mul_.Tensor": 1, "aten::mul.out": 1, "aten::_foreach_mul_.Scalar": 1}
