"""The state behind a fake and its dynamics, in any precision, on any device."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from unisim.contract import Declared
from unisim.errors import ResetRejectedError
from unisim.model_layout import ModelLayout, find, layout_digest
from unisim.packets import ACCELERATION_FIELDS, STATE_FIELDS
from unisim.randomization import engine_values
from unisim.reset import ResetPayload
from unisim.testing.faults import Fault

__all__ = ["FakeState", "Reads", "Script"]

_ALL_ROWS = slice(None)
"""Instead of the ids of all rows: indexing with it copies nothing."""

Script = Callable[[int, Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor] | None]
"""Called after every substep with the substep's number (1, 2, ...) and the state; returns what to overwrite.

Keys are those of a read packet: `"qpos"`, `"qvel"`, `"qacc"`, `"actuator_force"`, `"sensor:<name>"`, `"body:<name>"`,
`"site:<name>"`.
"""

Reads = Callable[[Mapping[str, torch.Tensor]], Mapping[str, torch.Tensor]]
"""Called with the state whenever it changed; returns what follows from it, by key: sensors, bodies and sites.

So they are as fresh as an engine's: after substeps, resets and, those of the acceleration stage excepted, row writes.
"""


class FakeState:
    """N rows of double integrators.

    In a substep of dt seconds, with gains and masses of the row's own model fields:

        actuator_force = gain * control
        qacc[joint of actuator] = actuator_force
        qacc[j-th velocity of a body's joints] += wrench[j] / mass
        qacc[linear velocity of a free root] += gravity
        qacc -= damping * qvel
        qvel += dt * qacc
        qpos of scalar joints += dt * qvel

    After a reset, accelerations and forces are those of its state and control, without wrenches. Every tensor is made
    once and written in place.

    Attributes:
        values: Read packet key to (N, width); state, accelerations, sensors, bodies and sites.
        model: Model field to (N, *shape).
        history: Substep sensor to (N, T, dim), the last T substeps, oldest first.
    """

    def __init__(
        self,
        layout: ModelLayout,
        num_envs: int,
        *,
        declared: Declared,
        dtype: torch.dtype,
        device: torch.device,
        script: Script | None,
        reads: Reads | None,
        faults: Sequence[Fault],
    ) -> None:
        """Starts every row in the layout's default state."""
        self._layout, self._n = layout, num_envs
        self._dtype, self._device = dtype, device
        self._script, self._reads, self._faults = script, reads, tuple(faults)
        self._counts = dict.fromkeys(("apply_reset", "write_rows", "substep"), 0)
        self._index(layout, declared, device)
        self._defaults = {
            "qpos": torch.tensor(layout.default_qpos, dtype=dtype, device=device),
            "qvel": torch.tensor(layout.default_qvel, dtype=dtype, device=device),
            "ctrl": torch.zeros(layout.nu, dtype=dtype, device=device),
        }
        self.values = {name: row.expand(num_envs, -1).clone() for name, row in self._defaults.items()}
        self.values["qacc"], self.values["actuator_force"] = self._zeros(layout.nv), self._zeros(layout.nu)
        for sensor in layout.sensors:
            self.values[f"sensor:{sensor.name}"] = self._zeros(sensor.dim)
        for key in [f"body:{n}" for n in layout.bodies] + [f"site:{n}" for n in layout.sites]:
            self.values[key] = self._zeros(13)
            self.values[key][:, 3] = 1.0
        self._nominal = {
            name: torch.tensor(field.nominal, dtype=torch.float64, device=device).reshape(field.shape)
            for name, field in layout.fields.items()
        }
        self.model = {n: v.to(dtype).expand(num_envs, *v.shape).clone() for n, v in self._nominal.items()}
        self.history = {
            name: self._zeros(declared.decimation, find(layout.sensors, name, "sensor").dim)
            for name in declared.substep_sensors
        }
        self._inverse_mass = self._zeros(len(layout.bodies))
        self._bad = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self._everyone = torch.arange(num_envs, device=device)
        self._held = {f"sensor:{sensor.name}" for sensor in layout.sensors if sensor.stage == "acceleration"}
        self._held.update(ACCELERATION_FIELDS)
        self.derive(self._everyone)
        self._forward(self._everyone)
        self.refresh(self._everyone)

    def _index(self, layout: ModelLayout, declared: Declared, device: torch.device) -> None:
        def ids(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self._dofs = ids([find(layout.joints, a.joint or "", "joint").qvel_start for a in layout.actuators])
        scalar = [j for j in layout.joints if j.qpos_dim == 1]
        self._scalar_q = ids([j.qpos_start for j in scalar])
        self._scalar_v = ids([j.qvel_start for j in scalar])
        self._free = [j.qvel_start for j in layout.joints if j.kind == "free"]
        self._pushed = []
        for name in declared.wrench_bodies:
            own = [j for j in layout.joints if j.body == name]
            dofs = [v for j in own for v in range(j.qvel_start, j.qvel_start + j.qvel_dim)][:6]
            self._pushed.append((layout.bodies.index(name), ids(dofs), len(dofs)))

    def _zeros(self, *shape: int) -> torch.Tensor:
        with torch.inference_mode(
            False
        ):  # also made in a step, it must stay writable outside of inference mode
            return torch.zeros((self._n, *shape), dtype=self._dtype, device=self._device)

    # ------------------------------------------------------------------ physics

    def resize_history(self, steps: int) -> None:
        """Makes the history as long as the next control step; it is empty afterwards if that changes its length."""
        for name, values in self.history.items():
            if values.shape[1] != steps:
                self.history[name] = self._zeros(steps, values.shape[2])

    def advance(self, ctrl: torch.Tensor, nsteps: int) -> None:
        """Steps all rows under controls and wrenches (N, C)."""
        nu = self._layout.nu
        self.values["ctrl"].copy_(ctrl[:, :nu])
        wrench = ctrl[:, nu:].to(self._dtype).reshape(self._n, len(self._pushed), 6)
        for _ in range(nsteps):
            number = self._counts["substep"]
            if self._fault("step", "substep"):
                raise RuntimeError(f"FakeBackend: injected fault in substep {number}")
            self._integrate(wrench)
            self.refresh(self._everyone)
            if self._script is not None:
                for key, value in (self._script(number + 1, self.values) or {}).items():
                    self.values[key].copy_(value)
            if nan := self._fault("nan", "substep"):
                self.values["qpos"][nan.row or 0] = float("nan")
            for name, values in self.history.items():
                values[:, :-1] = values[:, 1:].clone()
                values[:, -1] = self.values[f"sensor:{name}"]
            self._counts["substep"] += 1

    def neutralise(self, ctrl: torch.Tensor) -> torch.Tensor:
        """Returns controls with every non-finite row at 0, and remembers these rows as bad; nobody waits for it."""
        bad = ~torch.isfinite(ctrl).all(dim=1)
        self._bad |= bad
        return torch.where(bad.unsqueeze(1), torch.zeros_like(ctrl), ctrl)

    def _integrate(self, wrench: torch.Tensor) -> None:
        dt, qvel, qacc = self._layout.timestep, self.values["qvel"], self.values["qacc"]
        force = self._force(_ALL_ROWS)
        self.values["actuator_force"].copy_(force)
        qacc.copy_(self._acceleration(_ALL_ROWS, force))
        for i, (body, dofs, width) in enumerate(self._pushed):
            qacc.index_add_(1, dofs, wrench[:, i, :width] * self._inverse_mass[:, body : body + 1])
        qvel.add_(qacc, alpha=dt)
        self.values["qpos"].index_add_(1, self._scalar_q, dt * qvel[:, self._scalar_v])

    def _forward(self, env_ids: torch.Tensor) -> None:
        """Computes accelerations and forces of rows that nothing pushes."""
        force = self._force(env_ids)
        self.values["actuator_force"][env_ids] = force
        self.values["qacc"][env_ids] = self._acceleration(env_ids, force)

    def _force(self, env_ids: torch.Tensor | slice) -> torch.Tensor:
        force = self.values["ctrl"][env_ids]
        if "actuator_gainprm" in self.model:
            force = force * self.model["actuator_gainprm"][env_ids, :, 0]
        return force

    def _acceleration(self, env_ids: torch.Tensor | slice, force: torch.Tensor) -> torch.Tensor:
        """Returns (k, V): what forces, gravity and damping make of the rows' state, without wrenches."""
        qacc = torch.zeros_like(self.values["qvel"][env_ids])
        qacc.index_add_(1, self._dofs, force)
        if "gravity" in self.model:
            for start in self._free:
                qacc[:, start : start + 3] += self.model["gravity"][env_ids]
        if "dof_damping" in self.model:
            qacc -= self.model["dof_damping"][env_ids] * self.values["qvel"][env_ids]
        return qacc

    def derive(self, env_ids: torch.Tensor) -> None:
        """Computes the constants of rows that derive from model fields: the inverse masses."""
        mass = (
            self.model["body_mass"][env_ids]
            if "body_mass" in self.model
            else torch.ones_like(self._inverse_mass[env_ids])
        )
        self._inverse_mass[env_ids] = torch.where(mass > 0, 1.0 / mass, torch.zeros_like(mass))

    def refresh(self, env_ids: torch.Tensor, *, keep: Collection[str] = ()) -> None:
        """Computes the reads of rows that follow from their state, those in `keep` excepted."""
        if self._reads is not None:
            for key, values in self._reads(self.values).items():
                if key not in keep:
                    self.values[key][env_ids] = values[env_ids].to(self._dtype)

    @property
    def stepped(self) -> bool:
        """Whether physics ever moved."""
        return self._counts["substep"] > 0

    def bad_rows(self) -> torch.Tensor:
        """Returns (N,) bool: a non-finite state, or a non-finite control since the last reset."""
        state = torch.cat([self.values["qpos"], self.values["qvel"]], dim=1)
        return ~torch.isfinite(state).all(dim=1) | self._bad

    # ------------------------------------------------------------------ writes

    def reset(self, payload: ResetPayload) -> None:
        """Restarts the payload's rows."""
        given = dict(payload.parts())
        rows = {name: given.get(name, self._defaults[name]) for name in STATE_FIELDS}
        self._write("apply_reset", payload, {**payload.model, **rows})
        ids = payload.env_ids
        self._bad[ids] = False
        for values in self.history.values():
            values[ids] = 0.0
        self._forward(ids)
        self.refresh(ids)

    def write(self, payload: ResetPayload) -> None:
        """Writes what the payload gives."""
        state = {name: values for name, values in payload.parts() if name in STATE_FIELDS}
        self._write("write_rows", payload, {**payload.model, **state})
        self.refresh(payload.env_ids, keep=self._held)

    def _write(self, call: str, payload: ResetPayload, parts: Mapping[str, torch.Tensor]) -> None:
        number = self._counts[call]
        rejected, broken = self._fault("before_commit", call), self._fault("after_first_write", call)
        self._counts[call] += 1
        name = "reset" if call == "apply_reset" else "row write"
        if rejected:
            raise ResetRejectedError(
                f"FakeBackend: injected rejection of {name} {number}; nothing was written"
            )
        for key, values in parts.items():
            if key in payload.model:
                values = engine_values(key, values, self._nominal[key])
                self.model[key][payload.env_ids] = values.to(self._dtype)
            else:
                self.values[key][payload.env_ids] = values.to(self._dtype)
            if broken:
                raise RuntimeError(f"FakeBackend: injected fault in the middle of {name} {number}")
        if payload.model:
            self.derive(payload.env_ids)

    def _fault(self, kind: str, counter: str) -> Fault | None:
        at = self._counts[counter]
        return next(
            (f for f in self._faults if (f.kind, f.counts, f.at) == (kind, counter, at)),
            None,
        )

    # ------------------------------------------------------------------ snapshots

    def snapshot(self) -> dict[str, torch.Tensor]:
        """Returns copies of everything, the count of calls included, so that scripts and faults go on."""
        state = {f"value:{key}": values for key, values in self.values.items()}
        fields = {f"field:{name}": values for name, values in self.model.items()}
        history = {f"history:{name}": values for name, values in self.history.items()}
        counts = torch.tensor(list(self._counts.values()), dtype=torch.int64)
        own = {
            "bad": self._bad,
            "counts": counts,
            "model": layout_digest(self._layout),
        }
        return {key: values.clone() for key, values in (state | fields | history | own).items()}

    def restore(self, snapshot: Mapping[str, torch.Tensor]) -> None:
        """Puts a checked snapshot back, in place."""
        for key, values in self.values.items():
            values.copy_(snapshot[f"value:{key}"])
        for name, values in self.model.items():
            values.copy_(snapshot[f"field:{name}"])
        for name in self.history:
            self.resize_history(snapshot[f"history:{name}"].shape[1])
            self.history[name].copy_(snapshot[f"history:{name}"])
        self._bad.copy_(snapshot["bad"])
        self._counts = dict(zip(self._counts, snapshot["counts"].tolist(), strict=True))
        self.derive(self._everyone)
