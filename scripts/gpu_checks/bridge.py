"""The host bridge of MuJoCo with tensors on the device: what it moves, how, and how often anyone waits."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable

import torch

from gpu_checks.reporting import Report
from gpu_checks.scenes import hold, make_quadruped, mask_of, synchronize
from gpu_checks.tasks import HOST, QUADRUPED, RESIDENT
from unilab_core import TorchEnv, make_env
from unisim import HostBridgeSpec, HostBridgeTransferPlan, ResetPayload, SimBackend

__all__ = ["check_bridge", "check_syncs"]

_KINDS = ("control", "read", "reset", "selected_read", "write", "verdict")


def check_bridge(report: Report) -> None:
    """Packets are pinned and stay where they are; counts, bytes and waits are the contract's, and the driver's."""
    n = report.pick(1024, 4)
    backend = make_quadruped(report, n, backend=HOST)
    held = hold(backend).to(report.device)
    layout = backend.model_layout
    spec = HostBridgeSpec(
        sensors=tuple(sensor.name for sensor in layout.sensors),
        bodies=layout.bodies,
        device=report.device,
        decimation=4,
    )
    plan = backend.compile_host_bridge_io(spec)
    _check_storage(report, plan)
    places = {name: (host.data_ptr(), here.data_ptr()) for name, (host, here) in plan.storage.items()}
    _check_values(report, backend, plan, held)
    _check_counts(report, backend, plan, held)
    _check_driver(report, plan, held)
    now = {name: (host.data_ptr(), here.data_ptr()) for name, (host, here) in plan.storage.items()}
    report.expect(now == places, "a packet's storage has moved")
    plan.close()
    backend.close()
    _check_env_counts(report)


def _check_storage(report: Report, plan: HostBridgeTransferPlan) -> None:
    for name, (host, here) in plan.storage.items():
        report.expect(host.device.type == "cpu", f"the host's bytes of {name} are on {host.device}")
        report.expect(here.device.type == torch.device(report.device).type, f"{name} is on {here.device}")
        report.expect_on_gpu(host.is_pinned(), f"the host's bytes of {name} are not pinned")
        report.figure(f"packet_bytes_{name}", host.numel())


def _step(plan: HostBridgeTransferPlan, ctrl: torch.Tensor) -> torch.Tensor:
    plan.write_control(ctrl)
    plan.step(4)
    return plan.read()


def _check_values(
    report: Report, backend: SimBackend, plan: HostBridgeTransferPlan, ctrl: torch.Tensor
) -> None:
    """What arrives is what the backend holds, and what was sent is what it was stepped with."""
    for number in range(report.pick(50, 3)):
        packet = _step(plan, ctrl + 0.001 * number)
    synchronize(report)
    views = backend.get_state_views()
    for key in ("qpos", "qvel", "ctrl"):
        found = packet[:, plan.layout.columns(key)].cpu()
        report.expect(torch.equal(found, views[key]), f"{key} of the packet is not the backend's")


def _moved(plan: HostBridgeTransferPlan, call: Callable[[], object]) -> dict[str, tuple[int, int, int]]:
    before = plan.transfer_stats
    call()
    after = plan.transfer_stats
    found = {}
    for kind in _KINDS:
        old, new = getattr(before, kind), getattr(after, kind)
        if new != old:
            waits = new.synchronizations - old.synchronizations
            found[kind] = (new.transfers - old.transfers, new.bytes - old.bytes, waits)
    return found


def _check_counts(
    report: Report, backend: SimBackend, plan: HostBridgeTransferPlan, ctrl: torch.Tensor
) -> None:
    """Transfers, bytes and waits of a step, a reset and a write of k rows."""
    layout = backend.model_layout
    n, c, w = backend.num_envs, layout.nu, plan.layout.width
    ids = torch.arange(0, n, 2, device=report.device)
    k = ids.numel()
    qpos = torch.tensor(layout.default_qpos, device=report.device).repeat(k, 1)
    qvel = torch.zeros(k, layout.nv, device=report.device)
    mask = mask_of(ids, n)

    def reset() -> None:
        plan.apply_reset(mask, ResetPayload(ids, qpos, qvel))
        plan.read_selected()

    def write() -> None:
        plan.write_rows(mask, ResetPayload(ids, qvel=qvel))
        plan.read_selected()

    selected = (1, 4 * k * w, 0)
    for name, call, wanted in (
        ("step", lambda: _step(plan, ctrl), {"control": (1, 4 * n * c, 1), "read": (1, 4 * n * w, 0)}),
        (
            "reset",
            reset,
            {"reset": (1, 4 * k * (layout.nq + layout.nv) + 8 * k, 1), "selected_read": selected},
        ),
        ("write", write, {"selected_read": selected, "write": (1, 4 * k * layout.nv + 8 * k, 1)}),
    ):
        found = _moved(plan, call)
        report.figure(f"moved_by_a_{name}", found)
        report.expect(found == wanted, f"a {name} moved {found}, expected {wanted} (transfers, bytes, waits)")


def _check_driver(report: Report, plan: HostBridgeTransferPlan, ctrl: torch.Tensor) -> None:
    """The driver copies as often as the plan counts: once down and once up a step."""
    from torch.profiler import ProfilerActivity, profile

    steps = 10
    activities = [ProfilerActivity.CPU]
    if torch.device(report.device).type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    _step(plan, ctrl)
    synchronize(report)
    with profile(activities=activities) as seen:
        for _ in range(steps):
            _step(plan, ctrl)
        synchronize(report)
    copies = Counter(event.name for event in seen.events() or () if event.name.startswith("Memcpy "))
    report.figure("driver_copies_in_10_steps", dict(copies))
    if not copies:
        report.not_shown(
            "the profiler sees no copies on this machine: whether the driver's are those counted"
        )
        return
    for way in ("HtoD", "DtoH"):
        count = sum(number for name, number in copies.items() if way in name)
        report.expect(count == steps, f"{steps} steps made {count} copies {way}: {dict(copies)}")


def _quiet(env: TorchEnv) -> torch.Tensor:
    """Resets an environment, steps it twice, and returns actions that do nothing."""
    env.reset()
    actions = torch.zeros(env.num_envs, env.num_actions, device=env.device)
    for _ in range(2):
        env.step(actions)
    return actions


def _check_env_counts(report: Report) -> None:
    """A step of a whole environment moves one control and one read packet, and no more than two verdicts."""
    n = report.pick(512, 4)
    with make_env(QUADRUPED, backend=HOST, device=report.device, num_envs=n) as env:
        actions = _quiet(env)
        for _ in range(20):
            before = env.transfer_stats
            state = env.step(actions)
            after = env.transfer_stats
            moved = {
                kind: getattr(after, kind).transfers - getattr(before, kind).transfers for kind in _KINDS
            }
            done = state.final_observation is not None
            written = moved["write"]
            wanted = {
                "control": 1,
                "read": 1,
                "reset": int(done),
                "selected_read": int(done) + written,
                "write": written,
            }
            found = {kind: moved[kind] for kind in wanted}
            report.expect(found == wanted, f"a step made {found} transfers, expected {wanted}")
            report.expect(moved["verdict"] <= 2, f"a step made {moved['verdict']} verdict reads")
        report.figure("bytes_per_step_and_row", after.control.bytes // after.control.transfers // n)
        report.figure("read_bytes_per_row", after.read.bytes // after.read.transfers // n)
        expected = 4 * n * (env.model_layout.nu)
        report.expect(
            after.control.bytes == expected * after.control.transfers, "control packets are not 4·N·C bytes"
        )


def check_syncs(report: Report) -> None:
    """A step without resets makes the host wait for two verdicts, and on the host bridge for its control."""
    for backend, allowed in ((RESIDENT, 2), (HOST, 3)):
        n = report.pick(512, 4)
        with make_env(QUADRUPED, backend=backend, device=report.device, num_envs=n) as env:
            actions = _quiet(env)
            waits = []
            for _ in range(20):
                seen, done = _waits(report, lambda env=env, actions=actions: env.step(actions))  # type: ignore[misc]
                if not done:
                    waits.append(seen)
        report.figure(f"waits_of_a_step_{backend}", sorted(set(map(len, waits))))
        report.figure(f"where_{backend}", sorted({place for seen in waits for place in seen}))
        most = max(map(len, waits), default=0)
        report.expect_on_gpu(
            0 < most <= allowed, f"{backend}: a step without resets waits {most} times, expected {allowed}"
        )


def _waits(report: Report, step: Callable[[], object]) -> tuple[list[str], bool]:
    """Returns where torch made the host wait in a step, and whether it reset rows."""
    is_cuda = torch.device(report.device).type == "cuda"
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        if is_cuda:
            torch.cuda.set_sync_debug_mode("warn")
        try:
            state = step()
        finally:
            if is_cuda:
                torch.cuda.set_sync_debug_mode("default")
    places = [f"{item.filename}:{item.lineno}" for item in caught if "synchroniz" in str(item.message)]
    return places, getattr(state, "final_observation", None) is not None
