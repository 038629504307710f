"""Steps the dump of a NaN guard again, exactly."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from unilab_core.env_cfg import TorchEnvCfg
from unisim.contract import Declared, SimBackend
from unisim.factory import list_backends, make_backend

if TYPE_CHECKING:
    from unilab_core.env_base import EnvBase

__all__ = ["ReplayReport", "describe_dump", "load_dump", "replay_dump"]


def describe_dump(env: EnvBase) -> dict[str, Any]:
    """Returns what a dump says of its environment, so that the simulation can be built again."""
    return {
        "cfg": env.cfg.to_yaml(),
        "num_envs": env.num_envs,
        "step_counter": env.step_counter,
        "declared": asdict(env.declared),
    }


@dataclass(frozen=True)
class ReplayReport:
    """What stepping a dump again gave.

    Attributes:
        message: What the guard found.
        rows: The rows it found it in.
        exact: Whether positions and velocities after the step equal those of the run, NaN included, bit for bit.
        non_finite: Rows whose state is not finite after the step.
        engine_bad: Rows that the engine itself calls bad.
    """

    message: str
    rows: tuple[int, ...]
    exact: bool
    non_finite: tuple[int, ...]
    engine_bad: tuple[int, ...]


def load_dump(path: Path) -> dict[str, Any]:
    """Returns the content of a dump.

    Raises:
        ValueError: The file does not exist, or is no dump of this version.
    """
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ValueError(f"{path} is no NaN dump: {type(error).__name__}: {error}") from error
    if (
        not isinstance(content, dict)
        or content.get("format") != "unilab-nan-dump"
        or content.get("version") != 1
    ):
        raise ValueError(f"{path} is no NaN dump of version 1")
    return content


def _restore(simulation: SimBackend, snapshot: Any, backend: str) -> None:  # noqa: ANN401 - a backend's own
    try:
        simulation.restore(snapshot)
    except ValueError as error:
        others = sorted(set(list_backends()) - {backend})
        raise ValueError(
            f"backend {backend!r} cannot take the dump's state: {error}. If the run had another backend, name it; "
            f"there are also {others}"
        ) from error


def _tupled(value: Any) -> Any:  # noqa: ANN401 - a field of Declared as plain data
    return tuple(value) if isinstance(value, list) else value


def replay_dump(path: Path, *, backend: str = "mujoco", device: str = "cpu") -> ReplayReport:
    """Builds the dump's simulation again, restores the state before the step, and steps it.

    Args:
        path: The dump.
        backend: Name of the physics backend that the run had.
        device: Where a device-resident backend computes.

    Raises:
        ValueError: No dump, of another model, or of another backend.
        CapabilityError: The backend cannot restore it.
    """
    content = load_dump(path)
    cfg = TorchEnvCfg.from_yaml(content["cfg"], source=str(path))
    declared = Declared(**{key: _tupled(value) for key, value in content["declared"].items()})
    simulation = make_backend(
        backend, cfg.scene, cfg.sim, num_envs=content["num_envs"], device=device, declared=declared
    )
    try:
        _restore(simulation, content["snapshot"], backend)
        here = simulation.get_state_views(("qpos",))["qpos"].device
        ctrl = content["ctrl"]  # (N, C) of the whole step, or (T, N, C) of its substeps
        for control in ctrl if ctrl.ndim == 3 else [ctrl]:
            simulation.step_tensor(control.to(here), 1 if ctrl.ndim == 3 else cfg.decimation)
        state = simulation.get_state_views(("qpos", "qvel"))
        bad = simulation.bad_rows()
        exact = all(
            torch.equal(state[name].cpu().view(torch.int32), content["after"][name].view(torch.int32))
            for name in ("qpos", "qvel")
        )
        finite = torch.isfinite(torch.cat([state["qpos"], state["qvel"]], dim=1)).all(dim=1)
        return ReplayReport(
            content["message"],
            tuple(content["rows"]),
            exact,
            tuple((~finite).nonzero().flatten().tolist()),
            tuple(bad.nonzero().flatten().tolist()),
        )
    finally:
        simulation.close()
