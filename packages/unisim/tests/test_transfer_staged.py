"""Packets with storage of their own on both sides, as a device that is not the CPU needs them, made on the CPU.

Each packet crosses once, in one copy that the plan makes; nothing else writes packet storage or moves it.
"""

from __future__ import annotations

import sys
from collections import Counter

import pytest
import torch
from leg_model import leg_backend
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from unisim_support import reset_rows, rows_mask, staged_plan, write_rows

from unisim import HostBridgeSpec, HostBridgeTransferPlan, ResetPayload, ResetRejectedError
from unisim.contract import Declared
from unisim.packets import ReadLayout
from unisim.testing import FakeBackend, make_layout, written_tensors

N = 4
DECLARED = Declared(("body_mass", "gravity"), ("robot/base",), ("robot/touch",), decimation=4)


def spec_of(backend) -> HostBridgeSpec:
    return HostBridgeSpec(
        sensors=tuple(sensor.name for sensor in backend.model_layout.sensors),
        bodies=("robot/base", "robot/shank"),
        sites=("robot/toe",),
        substep_sensors=("robot/touch",),
        decimation=4,
    )


def leg_plan(staged: bool | None):
    backend = leg_backend(N, declared=DECLARED)
    return backend, staged_plan(backend, spec_of(backend), staged)


def script(backend, plan, steps: int = 40):
    """A run with resets that randomise and row writes; yields after each control step."""
    generator = torch.Generator().manual_seed(3)
    mass = backend.model_layout.fields["body_mass"].nominal_tensor()
    for i in range(steps):
        plan.write_control(torch.rand(N, 9, generator=generator) - 0.5)
        plan.step(4)
        plan.read()
        if i % 4 == 1:
            model = {"body_mass": mass.expand(2, -1) * 1.25, "gravity": torch.full((2, 3), -1.0)}
            qvel = torch.rand(2, 8, generator=generator)
            plan.apply_reset(rows_mask([1, 3], N), ResetPayload(torch.tensor([1, 3]), qvel=qvel, model=model))
            plan.read_selected()
        if i % 4 == 2:
            write_rows(plan, [0], qvel=torch.rand(1, 8, generator=generator).tolist())
            plan.read_selected()
        yield i


def test_a_staged_plan_gives_the_bits_and_counts_of_one_that_is_not():
    (one, plain), (other, staged) = leg_plan(False), leg_plan(True)
    for _ in zip(script(one, plain), script(other, staged), strict=True):
        assert torch.equal(plain.packet, staged.packet)
    assert plain.transfer_stats == staged.transfer_stats
    assert torch.equal(one.snapshot()["state"], other.snapshot()["state"])


def test_storage_is_apart_only_where_it_is_asked_for():
    for staged, apart in ((True, True), (False, False), (None, False)):
        _, plan = leg_plan(staged)
        assert set(plan.storage) == {"control", "read", "selected", "rows"}
        for name, (host, device) in plan.storage.items():
            assert (host.data_ptr() != device.data_ptr()) == apart, name


def test_addresses_never_change():
    backend, plan = leg_plan(True)

    def addresses() -> list[int]:
        stored = [part.data_ptr() for pair in plan.storage.values() for part in pair]
        return [*stored, plan.packet.data_ptr()]

    before = addresses()
    assert len(set(before)) == 8  # the read packet is the view that its users have
    for _ in script(backend, plan, 12):
        assert addresses() == before


class Watch(TorchDispatchMode):
    """Sees every operator: which ones write packet storage, from where they were called, and what crosses."""

    def __init__(self, plan: HostBridgeTransferPlan) -> None:
        super().__init__()
        places = {
            name: [part.untyped_storage().data_ptr() for part in pair] for name, pair in plan.storage.items()
        }
        self.host = {host: name for name, (host, _) in places.items()}
        self.device = {device: name for name, (_, device) in places.items()}
        self.crossings: Counter[tuple[str, str]] = Counter()
        self.strangers: list[str] = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        written = written_tensors(func, args, kwargs)
        read = {
            t.untyped_storage().data_ptr()
            for t in tree_leaves((args, kwargs))
            if isinstance(t, torch.Tensor) and not any(t is other for other in written)
        }
        for tensor in written:
            place = tensor.untyped_storage().data_ptr()
            if place in self.host or place in self.device:
                self._seen(func, place, read)
        return func(*args, **kwargs)

    def _seen(self, func, place: int, read: set[int]) -> None:
        if not called_by_the_plan():
            self.strangers.append(str(func))
        crossed = (place in self.host and read & self.device.keys()) or (
            place in self.device and read & self.host.keys()
        )
        if crossed:
            to = "to_host" if place in self.host else "to_device"
            name = self.host.get(place) or self.device[place]
            assert called_by(to), f"{func} moved {name}"
            self.crossings[(name, to)] += 1


PLAN = ("unisim.transfer", "unisim.packet_storage")
"""Where the plan is, and its packets."""


def called_by(function: str) -> bool:
    frame = sys._getframe()
    while frame is not None:
        if frame.f_code.co_name == function and frame.f_globals.get("__name__") in PLAN:
            return True
        frame = frame.f_back
    return False


def called_by_the_plan() -> bool:
    return any(
        called_by(name)
        for name in (
            "write_control",
            "read",
            "apply_reset",
            "write_rows",
            "read_selected",
            "to_host",
            "to_device",
        )
    )


def watched(act) -> Watch:
    backend, plan = leg_plan(True)
    for _ in script(backend, plan, 2):
        pass
    with Watch(plan) as watch:
        act(backend, plan)
    return watch


def control_step(backend, plan):
    plan.write_control(torch.zeros(N, 9))
    plan.step(4)
    return plan.read()


def test_a_step_crosses_once_each_way():
    watch = watched(control_step)
    assert watch.crossings == {("control", "to_host"): 1, ("read", "to_device"): 1}
    assert not watch.strangers


@pytest.mark.parametrize("rows", [[1], [0, 2, 3]])
def test_a_reset_crosses_once_each_way_however_much_it_carries(rows):
    def reset(backend, plan):
        fields = backend.model_layout.fields
        k = len(rows)
        model = {
            name: fields[name].nominal_tensor().expand(k, *fields[name].shape)
            for name in DECLARED.model_fields
        }
        payload = ResetPayload(
            torch.tensor(rows),
            qpos=torch.tensor(backend.model_layout.default_qpos).expand(k, -1),
            qvel=torch.zeros(k, 8),
            ctrl=torch.zeros(k, 3),
            model=model,
        )
        plan.apply_reset(rows_mask(rows, N), payload)
        plan.read_selected()

    watch = watched(reset)
    assert watch.crossings == {("rows", "to_host"): 1, ("selected", "to_device"): 1}
    assert not watch.strangers


def test_a_row_write_crosses_once_each_way():
    def write(backend, plan):
        write_rows(plan, [2], qvel=[[1.0] * 8])
        plan.read_selected()

    watch = watched(write)
    assert watch.crossings == {("rows", "to_host"): 1, ("selected", "to_device"): 1}
    assert not watch.strangers


def test_no_operator_outside_the_plan_writes_packet_storage_in_a_whole_run():
    def run(backend, plan):
        for _ in script(backend, plan, 8):
            # What a user does with a packet: terms that read it.
            (plan.packet[:, :9] - plan.packet[:, :9].mean(dim=0)).square().sum()

    watch = watched(run)
    assert not watch.strangers
    assert watch.crossings == {
        ("control", "to_host"): 8,
        ("read", "to_device"): 8,
        ("rows", "to_host"): 4,
        ("selected", "to_device"): 4,
    }


SCRIBBLES = {
    "in place": lambda packet: packet[:, 0].add_(1.0),
    "out": lambda packet: torch.add(packet, 1.0, out=packet),
    "out of two": lambda packet: torch.max(
        torch.ones(N, 2), dim=1, out=(packet[:, 0], torch.zeros(N, dtype=torch.int64))
    ),
    "a list in place": lambda packet: torch._foreach_add_([torch.zeros(1), packet], 1.0),
    "a list of outs": lambda packet: torch.unbind_copy(torch.ones(2, N), out=[packet[:, 0], packet[:, 1]]),
}


@pytest.mark.parametrize("scribble", SCRIBBLES.values(), ids=SCRIBBLES.keys())
def test_the_watch_sees_a_user_that_writes_into_a_packet(scribble):
    strangers = watched(lambda backend, plan: scribble(plan.packet)).strangers
    assert len(set(strangers)) == 1


def test_the_watch_sees_a_packet_that_somebody_else_moves():
    def move(backend, plan):
        host, device = plan.storage["read"]
        torch.add(host, 0, out=device)

    with pytest.raises(AssertionError, match="aten.add.out moved read"):
        watched(move)


def test_the_watch_takes_a_reader_that_writes_elsewhere_for_no_writer():
    watch = watched(lambda backend, plan: torch.add(plan.packet, 1.0, out=torch.zeros_like(plan.packet)))
    assert not watch.strangers
    assert not watch.crossings


# ---------------------------------------------------------------- the packets themselves


def fake(staged: bool = True):
    backend = FakeBackend(make_layout(), 3)
    return backend, staged_plan(backend, HostBridgeSpec(), staged)


def test_what_is_not_read_yet_is_not_on_the_device():
    _, plan = fake()
    reset_rows(plan, [1], qpos=[[1.0, 2.0]])
    assert not plan.packet.any()
    plan.read_selected()
    assert plan.packet[1, :2].tolist() == [1.0, 2.0]
    assert not plan.packet[[0, 2]].any()


def test_a_control_that_changes_after_it_was_written_is_the_one_that_was_written():
    backend, plan = fake()
    ctrl = torch.ones(3, 1)
    plan.write_control(ctrl)
    ctrl.fill_(7.0)
    plan._ctrl.fill_(9.0)  # not even the device's own storage is read again
    plan.step(1)
    assert backend.get_state_views()["ctrl"].tolist() == [[1.0]] * 3


def test_verdicts_are_counted_as_their_users_say():
    _, plan = fake()
    plan.count_verdict(3)
    plan.count_verdict(4)
    verdict = plan.transfer_stats.verdict
    assert (verdict.transfers, verdict.bytes, verdict.synchronizations) == (2, 7, 2)
    plan.close()
    with pytest.raises(RuntimeError, match="HostBridgeTransferPlan.count_verdict: the plan is closed"):
        plan.count_verdict(1)


@pytest.mark.parametrize("staged", [True, False])
@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"env_ids": torch.tensor([1.0])}, r"env_ids is torch.float32 \(1,\), expected 1-D torch.int64"),
        ({"env_ids": torch.tensor([1], dtype=torch.int32)}, r"env_ids is torch.int32"),
        ({"env_ids": torch.tensor([[1]])}, r"env_ids is torch.int64 \(1, 1\), expected 1-D"),
        ({"env_ids": torch.tensor([1], device="meta")}, "env_ids is on meta, expected cpu"),
        ({"qpos": torch.zeros(1, 2, device="meta")}, "qpos is on meta, expected cpu"),
    ],
)
def test_what_a_copy_would_convert_or_move_unseen_is_rejected(staged, parts, message):
    backend, plan = fake(staged)
    before = backend.snapshot()
    payload = ResetPayload(**{"env_ids": torch.tensor([1]), **parts})
    for call in (plan.apply_reset, plan.write_rows):
        with pytest.raises(ResetRejectedError, match=f"{message}.*; nothing was written$"):
            call(rows_mask([1], 3), payload)
    assert all(torch.equal(values, before[key]) for key, values in backend.snapshot().items())
    assert plan.transfer_stats.reset.transfers == 0


def test_another_device_cannot_do_without_storage_of_its_own():
    backend = FakeBackend(make_layout(), 3)
    spec = HostBridgeSpec(device="meta")
    with pytest.raises(ValueError, match="packets on meta cannot be unstaged"):
        HostBridgeTransferPlan(
            backend, spec, ReadLayout(spec, backend.model_layout), ctrl_width=1, row_width=5, staged=False
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_cuda_the_bits_and_counts_are_those_of_the_cpu():
    (one, plain), other = leg_plan(False), leg_backend(N, declared=DECLARED)
    cuda = other.compile_host_bridge_io(
        HostBridgeSpec(
            **{**{f: getattr(spec_of(other), f) for f in ("sensors", "bodies", "sites", "substep_sensors")}},
            device="cuda",
            decimation=4,
        )
    )
    assert cuda._read.host_bytes.is_pinned()
    generator = torch.Generator().manual_seed(3)
    for _ in range(20):
        ctrl = torch.rand(N, 9, generator=generator)
        for plan in (plain, cuda):
            plan.write_control(ctrl.to(plan.device))
            plan.step(4)
            plan.read()
            ids = torch.tensor([1, 3], device=plan.packet.device)
            mask = torch.zeros(N, dtype=torch.bool, device=plan.packet.device)
            mask[ids] = True
            plan.apply_reset(mask, ResetPayload(ids, qvel=torch.ones(2, 8, device=plan.packet.device)))
            plan.read_selected()
        assert torch.equal(plain.packet, cuda.packet.cpu())
    assert plain.transfer_stats == cuda.transfer_stats
    assert torch.equal(one.snapshot()["state"], other.snapshot()["state"])
