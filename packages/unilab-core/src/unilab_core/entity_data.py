"""State of one entity as tensors: views for reading, and writes in a reset or a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from unilab_core.contacts import ContactHandle, FoundContacts
from unilab_core.entity_cfg import Index, SceneEntityCfg, chosen_columns, column_index, own_elements
from unilab_core.field_parts import FieldParts
from unilab_core.io import BackendIO
from unilab_core.joint_start import JointStarts
from unilab_core.kept_reads import KeptReads, Source
from unilab_core.reads import BodyHandle
from unilab_core.root_state import RootState, free_joint
from unilab_core.rotation import quat_apply, quat_apply_inverse
from unilab_core.staging import Part, Staging
from unilab_core.wrenches import Wrenches
from unisim.model_layout import EntityLayout, JointLayout, ModelLayout, find

__all__ = ["EntityData"]


class EntityData:
    """State of one entity. J is the number of its slide and hinge joints, in the model's order.

    What is returned is to be read only: all terms of a step share it, and it may be a view that the next step rewrites.
    A term reads it in every call and keeps none, for one taken while the environment is built shows nothing of later
    steps. While a reset is staged, joint and root values of the selected rows are the staged ones; bodies, sites,
    sensors, accelerations and forces raise RuntimeError.
    """

    def __init__(
        self,
        layout: EntityLayout,
        model: ModelLayout,
        joints: Sequence[JointLayout],
        io: BackendIO,
        staging: Staging,
        wrenches: Wrenches,
        device: torch.device,
        names: Callable[[SceneEntityCfg, str], list[str]],
    ) -> None:
        """Works out the columns of the entity's joints and root."""
        self._layout = layout
        self._io = io
        self._staging = staging
        self._wrenches = wrenches
        self._names = names
        self._sensors = model.sensors
        self._contacts = [sensor for sensor in model.sensors if sensor.contact is not None]
        n, starts = len(staging.qpos), ([j.qpos_start for j in joints], [j.qvel_start for j in joints])
        self._joint_q, self._joint_v = (torch.tensor(s, dtype=torch.int64, device=device) for s in starts)
        self._read_q, self._read_v = (column_index(s, device) for s in starts)
        self._own = own_elements(layout, model, device)
        self._parts = FieldParts(self._own, layout.name)
        self._kept = KeptReads(io, staging)
        self._handles: dict[tuple[str, SceneEntityCfg], BodyHandle] = {}
        body = BodyHandle(self._derived, [f"body:{layout.root_body}"], self._kept)
        down = torch.tensor([0.0, 0.0, -1.0], device=device).expand(n, -1)
        self._root = RootState(free_joint(layout, model), self._columns_of, body, self._kept, down)
        self.joint_starts = JointStarts(model, joints, device)
        self.default_joint_pos = self.joint_starts.all.pos.expand(n, -1)
        """(N, J) m or rad: the positions every reset starts from."""
        self.default_joint_vel = self.joint_starts.all.vel.expand(n, -1)
        """(N, J) m/s or rad/s: the velocities every reset starts from."""
        self.joint_pos_limits = self.joint_starts.limits.expand(n, -1, -1)
        """(N, J, 2) m or rad: lower and upper limits, infinite for unlimited joints."""

    def _state(self, part: Part) -> torch.Tensor:
        staged = self._staging.qpos if part == "qpos" else self._staging.qvel
        return staged if self._staging.shows(part) else self._io.column(part)

    def _columns_of(self, part: Part, name: str, columns: Index) -> torch.Tensor:
        """Returns columns of the state: a view that lasts where they are consecutive, else a copy of the moment."""
        if isinstance(columns, slice):
            if self._staging.is_reset:
                return self._kept.staged(name, lambda: self._state(part)[:, columns])
            return self._kept.view((name, self._staging.shows(part)), lambda: self._state(part)[:, columns])
        source: Source = "pose" if part == "qpos" else "state"
        return self._kept.get(name, lambda: self._state(part)[:, columns], source)

    @property
    def joint_pos(self) -> torch.Tensor:
        """(N, J) joint positions, m or rad."""
        return self._columns_of("qpos", "joint_pos", self._read_q)

    @property
    def joint_vel(self) -> torch.Tensor:
        """(N, J) joint velocities, m/s or rad/s."""
        return self._columns_of("qvel", "joint_vel", self._read_v)

    @property
    def joint_acc(self) -> torch.Tensor:
        """(N, J) joint accelerations in the row's last integrated substep, m/s^2 or rad/s^2."""
        return self._derived("qacc")[:, self._read_v]

    @property
    def actuator_force(self) -> torch.Tensor:
        """(N, U) forces of the entity's own U actuators in the row's last integrated substep, N or N m.

        In the model's order, that of `Entity.actuator_names`; after a reset those under the reset control.
        """
        return self._derived("actuator_force")[:, self._own["actuator"]]

    @property
    def root_pos_w(self) -> torch.Tensor:
        """(N, 3) position of the root body's frame in the world, m."""
        return self._root.pos_w

    @property
    def root_quat_w(self) -> torch.Tensor:
        """(N, 4) orientation of the root body in the world, wxyz."""
        return self._root.quat_w

    @property
    def root_lin_vel_w(self) -> torch.Tensor:
        """(N, 3) velocity of the root frame's origin in the world, m/s."""
        return self._root.lin_vel_w

    @property
    def root_ang_vel_b(self) -> torch.Tensor:
        """(N, 3) angular velocity in the root body's frame, rad/s."""
        return self._root.ang_vel_b

    @property
    def root_lin_vel_b(self) -> torch.Tensor:
        """(N, 3) velocity of the root frame's origin in the root body's frame, m/s."""
        return self._root.lin_vel_b

    @property
    def root_ang_vel_w(self) -> torch.Tensor:
        """(N, 3) angular velocity in the world, rad/s."""
        return self._root.ang_vel_w

    @property
    def projected_gravity_b(self) -> torch.Tensor:
        """(N, 3) direction of gravity in the root body's frame; (0, 0, -1) when upright."""
        return self._root.gravity_b

    @property
    def heading_w(self) -> torch.Tensor:
        """(N,) yaw of the root body in the world, rad."""
        return self._root.heading_w

    def _derived(self, key: str) -> torch.Tensor:
        if self._staging.is_reset:
            raise RuntimeError(f"{key!r} is read while a reset is staged; it is defined after the commit")
        return self._io.column(key)

    def bodies(self, cfg: SceneEntityCfg) -> BodyHandle:
        """Returns a handle on the bodies that `cfg.body_names` means, the same for the same `cfg`.

        Raises:
            ValueError: A name matches no body of this entity; the message lists the nearest.
        """
        return self._handle("body", cfg)

    def sites(self, cfg: SceneEntityCfg) -> BodyHandle:
        """Returns a handle on the sites that `cfg.site_names` means, the same for the same `cfg`.

        Raises:
            ValueError: A name matches no site of this entity; the message lists the nearest.
        """
        return self._handle("site", cfg)

    def _handle(self, kind: str, cfg: SceneEntityCfg) -> BodyHandle:
        """Returns a handle, made once: a term asks in every call, and finding names takes longer than reading them."""
        handle = self._handles.get((kind, cfg))
        if handle is None:
            keys = [f"{kind}:{self._layout.name}/{name}" for name in self._names(cfg, kind)]
            handle = self._handles[kind, cfg] = BodyHandle(self._derived, keys, self._kept)
        return handle

    def sensor(self, name: str) -> torch.Tensor:
        """Returns a sensor of this entity, (N, dim) float32: a view that the next step rewrites.

        Raises:
            KeyError: The entity has no such sensor; the message lists the nearest.
            RuntimeError: Inside the staging of a reset, or outside the frozen reads.
        """
        key = f"{self._layout.name}/{name}"
        find(self._sensors, key, "sensor")
        return self._derived(f"sensor:{key}")

    def contact(self, name: str) -> ContactHandle:
        """Returns a handle on a contact sensor of this entity, else on that of the scene of this name; reads nothing.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
        """
        own = f"{self._layout.name}/{name}"
        names = [sensor.name for sensor in self._contacts]
        found = find(self._contacts, own if own in names else name, "contact sensor")
        assert found.contact is not None
        return ContactHandle(found.name, found.contact, lambda: self._derived(f"sensor:{found.name}"))

    def found_contacts(self, names: Sequence[str]) -> FoundContacts:
        """Returns what several contact sensors have found, side by side; each is looked for as by `contact`.

        Raises:
            KeyError: There is no such contact sensor, or it does not report `found`; the message lists the nearest.
        """
        return FoundContacts([self.contact(name) for name in names], self._kept)

    def write_joint_state(
        self,
        pos: torch.Tensor,
        vel: torch.Tensor,
        env_ids: torch.Tensor,
        joint_ids: slice | torch.Tensor = slice(None),
    ) -> None:
        """Stages joint positions and velocities of rows, in a reset event or an event or command of a step.

        Args:
            pos: (K, J') m or rad.
            vel: (K, J') m/s or rad/s.
            env_ids: (K,) int64; in a reset a subset of the rows being reset.
            joint_ids: Columns of `joint_pos`, as `Entity.joint_ids` returns them.

        Raises:
            RuntimeError: Neither a reset is being staged nor may events of a step write now.
            TypeError: `env_ids` is no int64 tensor, or a value is no float32 tensor.
            ValueError: A row, a joint or a shape is wrong.
        """
        owner = f"{self._layout.name}.write_joint_state"
        self._staging.check_rows(env_ids, owner, "qpos", "qvel")
        try:
            columns_q, count = chosen_columns(self._joint_q, self._read_q, joint_ids)
            columns_v, _ = chosen_columns(self._joint_v, self._read_v, joint_ids)
        except IndexError as error:
            raise ValueError(
                f"{owner}: joint_ids leave the {self._joint_q.numel()} joints of {self._layout.name!r}; "
                "take them from Entity.joint_ids"
            ) from error
        shape = (env_ids.numel(), count)
        self._staging.check_values(pos, shape, f"{owner}: pos")
        self._staging.check_values(vel, shape, f"{owner}: vel")
        self._staging.write("qpos", env_ids, columns_q, pos)
        self._staging.write("qvel", env_ids, columns_v, vel)

    def write_root_pose(self, pose: torch.Tensor, env_ids: torch.Tensor) -> None:
        """Stages the root pose, (K, 7) position (m) and orientation (wxyz) in the world; keeps its world velocity.

        Raises:
            RuntimeError: Nothing may be written now, or the root is fixed to the world.
        """
        start, v_start = self._free_root("write_root_pose", env_ids, "qpos", "qvel")
        self._staging.check_values(pose, (env_ids.numel(), 7), f"{self._layout.name}.write_root_pose: pose")
        spin_w = quat_apply(self.root_quat_w[env_ids], self.root_ang_vel_b[env_ids])
        spin = quat_apply_inverse(pose[:, 3:7], spin_w)
        self._staging.write("qpos", env_ids, slice(start, start + 7), pose)
        self._staging.write("qvel", env_ids, slice(v_start + 3, v_start + 6), spin)

    def write_root_velocity(
        self, lin_vel_w: torch.Tensor | None, ang_vel_w: torch.Tensor | None, env_ids: torch.Tensor
    ) -> None:
        """Stages the root velocity, (K, 3) m/s and (K, 3) rad/s, both in the world; a part that is None stays.

        The engine keeps the angular part in the body frame: that of the staged pose, whichever is written first. So a
        part that shall stay is better not written: turned into the world and back, it is rounded.

        Raises:
            RuntimeError: Nothing may be written now, or the root is fixed to the world.
            TypeError: `env_ids` is no int64 tensor, or a value is no float32 tensor.
            ValueError: A row or a shape is wrong, or both parts are None.
        """
        owner, shape = f"{self._layout.name}.write_root_velocity", (env_ids.numel(), 3)
        if lin_vel_w is None and ang_vel_w is None:
            raise ValueError(f"{owner}: lin_vel_w and ang_vel_w are both None; give what is to be written")
        _, start = self._free_root("write_root_velocity", env_ids, "qvel")
        for name, values in (("lin_vel_w", lin_vel_w), ("ang_vel_w", ang_vel_w)):
            if values is not None:
                self._staging.check_values(values, shape, f"{owner}: {name}")
        if lin_vel_w is not None:
            self._staging.write("qvel", env_ids, slice(start, start + 3), lin_vel_w)
        if ang_vel_w is not None:
            ang_vel_b = quat_apply_inverse(self.root_quat_w[env_ids], ang_vel_w)
            self._staging.write("qvel", env_ids, slice(start + 3, start + 6), ang_vel_b)

    def write_root_state(
        self, pose: torch.Tensor, lin_vel_w: torch.Tensor, ang_vel_w: torch.Tensor, env_ids: torch.Tensor
    ) -> None:
        """Stages what `write_root_pose` and then `write_root_velocity` would, and raises what they do; in one go."""
        start, v_start = self._free_root("write_root_state", env_ids, "qpos", "qvel")
        owner = f"{self._layout.name}.write_root_state"
        for name, given, width in (
            ("pose", pose, 7),
            ("lin_vel_w", lin_vel_w, 3),
            ("ang_vel_w", ang_vel_w, 3),
        ):
            self._staging.check_values(given, (env_ids.numel(), width), f"{owner}: {name}")
        velocity = torch.cat([lin_vel_w, quat_apply_inverse(pose[:, 3:], ang_vel_w)], dim=1)
        self._staging.write("qpos", env_ids, slice(start, start + 7), pose)
        self._staging.write("qvel", env_ids, slice(v_start, v_start + 6), velocity)

    def write_wrench(
        self,
        force_w: torch.Tensor,
        torque_w: torch.Tensor,
        env_ids: torch.Tensor,
        bodies: SceneEntityCfg,
    ) -> None:
        """Pushes bodies from the next physics step on, until it is written again or the row is reset.

        For events and commands of a step. World frame; the force acts at the body's centre of mass: one that acts
        elsewhere is this force and the torque r x F.

        Args:
            force_w: (K, B, 3) N.
            torque_w: (K, B, 3) N m.
            env_ids: (K,) int64, each row once; of one given twice, which values count is nowhere promised.
            bodies: Which B bodies of this entity, in the order that it says.

        Raises:
            RuntimeError: A body was not declared before the backend was made, or nothing may be pushed now.
            TypeError: `env_ids` is no int64 tensor, or a value is no float32 tensor.
            ValueError: A name matches no body, or a row or a shape is wrong.
        """
        owner = f"{self._layout.name}.write_wrench"
        self._staging.check_wrench(env_ids, owner)
        names = tuple(f"{self._layout.name}/{name}" for name in self._names(bodies, "body"))
        columns = self._wrenches.columns(names, owner)
        shape = (env_ids.numel(), len(names), 3)
        self._staging.check_values(force_w, shape, f"{owner}: force_w")
        self._staging.check_values(torque_w, shape, f"{owner}: torque_w")
        self._wrenches.write(columns, env_ids, force_w, torque_w)

    def _free_root(self, call: str, env_ids: torch.Tensor, *parts: Part) -> tuple[int, int]:
        owner = f"{self._layout.name}.{call}"
        if self._root.joint is None:
            raise RuntimeError(f"{owner}: {self._layout.name!r} is fixed to the world; it has no root state")
        self._staging.check_rows(env_ids, owner, *parts)
        return self._root.joint

    def model_values(
        self,
        field: str,
        env_ids: torch.Tensor,
        element_ids: Index = slice(None),
        column: int | None = None,
    ) -> torch.Tensor:
        """Returns this entity's own elements of a model field; fresh tensor.

        While a reset or the startup is staged: what an earlier term staged, else what randomisation starts from (the
        model's own values, or those of startup events), so that repeated resets do not drift. Otherwise: what the rows
        hold.

        Args:
            field: A declared field; `body_*`, `geom_*`, `dof_*` and `actuator_*` give the entity's own elements in the
                model's order, `gravity` the whole.
            env_ids: (K,) int64.
            element_ids: Which E of the entity's own elements, as `Entity.element_ids` returns them.
            column: Which column of fields that have several per element; None means all.

        Returns:
            (K, E, ...) float32, for `gravity` (K, 3); (K, E) of one column.

        Raises:
            KeyError: No such field can differ per row; the message lists the nearest.
            RuntimeError: The field was not declared by any term.
            ValueError: There is no such element or column.
        """
        owner = f"{self._layout.name}.model_values"
        part = self._parts.find(field, element_ids, column, owner)
        return self._staging.model_values(field, env_ids, part, owner)

    def write_model(
        self,
        field: str,
        values: torch.Tensor,
        env_ids: torch.Tensor,
        element_ids: Index = slice(None),
        column: int | None = None,
    ) -> None:
        """Stages this entity's own elements of a model field, for reset and startup events.

        What is not written keeps what the row holds: write only what is changed, for another term may have changed the
        rest in an earlier reset and be left out of this one.

        Args:
            field: A field declared with `@writes`.
            values: (K, E, ...) float32, as `model_values` returns it for the same elements and column.
            env_ids: (K,) int64, a subset of the rows being reset.
            element_ids: As of `model_values`.
            column: As of `model_values`.

        Raises:
            KeyError: No such field can differ per row; the message lists the nearest.
            RuntimeError: The field was not declared by any term, or no reset is being staged.
            TypeError: `values` is no float32 tensor.
            ValueError: `values` has another shape, or there is no such element or column.
        """
        owner = f"{self._layout.name}.write_model"
        part = self._parts.find(field, element_ids, column, owner)
        self._staging.write_model(field, values, env_ids, part, owner)
