"""What must be refused, on a device where a late error would ruin the process: and that all goes on afterwards."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from gpu_checks.reporting import Report
from gpu_checks.scenes import hold, make_quadruped, mask_of, reads_of
from gpu_checks.tasks import CARTPOLE, RESIDENT
from unilab_core import host_term, load_env_cfg, make_env
from unilab_managers import ManagerBasedRlEnvCfg, RewardTermCfg
from unisim import (
    CapabilityError,
    EntityCfg,
    HostBridgeSpec,
    NonFiniteError,
    ResetPayload,
    ResetRejectedError,
    SceneCfg,
    SimBackend,
    SimCfg,
    make_backend,
)

__all__ = ["check_refusals", "delayed", "host_reward"]

_DELAYED = """<mujoco><worldbody><body><joint name="j" axis="0 1 0"/><geom size=".1"/></body></worldbody>
<actuator><motor joint="j" nsample="2" delay=".01"/></actuator></mujoco>"""


def delayed() -> Any:
    """Returns a model with a delay inside the engine, which is not supported."""
    import mujoco

    return mujoco.MjSpec.from_string(_DELAYED)


@host_term("qpos")
def host_reward(env: object, host: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """A reward that is computed on the host."""
    del env
    return host["qpos"].sum(dim=1)


def check_refusals(report: Report) -> None:
    """Devices that are not there, models and terms that are not supported, wrong values: refused before anything."""
    _check_construction(report)
    backend = make_quadruped(report, 8)
    _check_calls(report, backend)
    _check_bad_control(report, backend)
    backend.close()
    _expect_raises(report, RuntimeError, lambda: backend.get_state_views(), "a view after close")
    _check_env(report)


def _expect_raises(report: Report, kind: type[Exception], call: Callable[[], object], what: str) -> None:
    try:
        call()
    except kind as error:
        report.figure(f"refused: {what}", str(error))
    except Exception as error:  # noqa: BLE001 - of any other kind is what this finds
        report.expect(False, f"{what} raised {type(error).__name__}: {error}; expected {kind.__name__}")
    else:
        report.expect(False, f"{what} was accepted, expected {kind.__name__}")


def _check_construction(report: Report) -> None:
    scene = SceneCfg(entities={"robot": EntityCfg(spec=delayed)})
    for device in ("cuda:99", "mps", "cpu:0", "gpu"):
        cfg = load_env_cfg(CARTPOLE)
        _expect_raises(
            report,
            CapabilityError,
            lambda device=device, cfg=cfg: make_backend(  # type: ignore[misc]
                RESIDENT, cfg.scene, cfg.sim, num_envs=2, device=device
            ),
            f"device {device!r}",
        )
    _expect_raises(
        report,
        CapabilityError,
        lambda: make_backend(RESIDENT, scene, SimCfg(), num_envs=2, device=report.device),
        "a model with delays inside the engine",
    )
    cfg = load_env_cfg(CARTPOLE)
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    rewards = {**cfg.rewards, "on_host": RewardTermCfg(func=host_reward, weight=1.0)}
    _expect_raises(
        report,
        CapabilityError,
        lambda: make_env(
            cfg.model_copy(update={"rewards": rewards}), backend=RESIDENT, device=report.device, num_envs=2
        ),
        "a term that computes on the host",
    )


def _check_calls(report: Report, backend: SimBackend) -> None:
    """Wrong arguments change nothing, and leave the device usable."""
    held, n = hold(backend), backend.num_envs
    before = reads_of(backend)
    ids = torch.tensor([1], device=report.device)
    mask = mask_of(ids, n)
    outside = ResetPayload(torch.tensor([n], device=report.device))
    nan = ResetPayload(ids, torch.full((1, backend.model_layout.nq), math.nan, device=report.device))
    cases: list[tuple[type[Exception], Callable[[], object], str]] = [
        (CapabilityError, lambda: backend.compile_host_bridge_io(HostBridgeSpec()), "a host bridge"),
        (ValueError, lambda: backend.step_tensor(held.to("meta"), 1), "a control on another device"),
        (TypeError, lambda: backend.step_tensor(held.double(), 1), "a control of float64"),
        (ResetRejectedError, lambda: backend.apply_reset(mask, outside), "a row that does not exist"),
        (ResetRejectedError, lambda: backend.apply_reset(mask, nan), "a position of NaN"),
        (ResetRejectedError, lambda: backend.apply_reset(~mask, ResetPayload(ids)), "a mask of other rows"),
    ]
    if torch.device(report.device).type == "cuda":
        host = ResetPayload(ids.cpu())
        cases += [
            (ValueError, lambda: backend.step_tensor(held.cpu(), 1), "a control in host memory"),
            (ResetRejectedError, lambda: backend.apply_reset(mask, host), "row ids in host memory"),
        ]
    for kind, call, what in cases:
        _expect_raises(report, kind, call, what)
        for key, values in reads_of(backend).items():
            report.expect(torch.equal(values, before[key]), f"{what} was refused, and changed {key}")
    backend.step_tensor(held, 4)
    report.expect(
        bool(torch.isfinite(backend.get_state_views()["qpos"]).all()), "a step after refusals is not finite"
    )


def _check_bad_control(report: Report, backend: SimBackend) -> None:
    """A control that is not finite is neutralised on the device, and its row is bad until its reset."""
    ctrl = hold(backend)
    ctrl[3, 0] = math.nan
    backend.step_tensor(ctrl, 4)
    wanted = [row == 3 for row in range(backend.num_envs)]
    report.expect(backend.bad_rows().tolist() == wanted, f"bad rows are {backend.bad_rows().tolist()}")
    report.expect(
        bool(torch.isfinite(backend.get_state_views()["qpos"]).all()),
        "a NaN control made a state that is not finite",
    )
    ids = torch.tensor([3], device=report.device)
    backend.apply_reset(mask_of(ids, backend.num_envs), ResetPayload(ids))
    report.expect(not bool(backend.bad_rows().any()), "a reset row is still bad")


def _check_env(report: Report) -> None:
    """An environment refuses what is not finite before physics, and goes on."""
    with make_env(CARTPOLE, backend=RESIDENT, device=report.device, num_envs=4) as env:
        env.reset()
        good = torch.zeros(4, env.num_actions, device=env.device)
        env.step(good)
        before = env.state_column("qpos").clone()
        bad = good.clone()
        bad[2, 0] = math.inf
        _expect_raises(report, NonFiniteError, lambda: env.step(bad), "an action of infinity")
        report.expect(torch.equal(env.state_column("qpos"), before), "a refused action moved physics")
        report.expect(not env.faulted, "a refused action faulted the environment")
        env.step(good)
        stats = env.transfer_stats
        report.expect(stats == type(stats)(), f"a device-resident environment counts transfers: {stats}")
