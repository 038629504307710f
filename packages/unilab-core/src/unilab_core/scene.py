"""Entities by name: `env.scene["robot"]`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import torch

from unilab_core.contacts import ContactHandle
from unilab_core.entity_cfg import Index, SceneEntityCfg, column_index, match_names
from unilab_core.entity_data import EntityData
from unilab_core.errors import CapabilityError, UnknownNameError, nearest
from unilab_core.io import BackendIO
from unilab_core.reads import declared_reads
from unilab_core.staging import Staging
from unilab_core.wrenches import Wrenches
from unisim.model_layout import EntityLayout, ModelLayout, find

__all__ = ["ElementKind", "Entity", "EntityScene"]

ElementKind = Literal["body", "geom", "actuator", "dof"]


class Entity:
    """One robot or object of the scene; names are without the entity's prefix.

    Attributes:
        name: Its name in the scene.
        joint_names: Its slide and hinge joints in the model's order, the columns of `data.joint_pos`.
        actuator_names: Its actuators in the model's order.
        body_names: Its bodies in the model's order.
        site_names: Its sites in the model's order.
        geom_names: Its geoms in the model's order.
        sensor_names: Its sensors in the model's order.
        data: Its state.
    """

    def __init__(
        self,
        layout: EntityLayout,
        model: ModelLayout,
        io: BackendIO,
        staging: Staging,
        wrenches: Wrenches,
        device: torch.device,
    ) -> None:
        """Collects the names of the entity's elements; reads nothing."""
        prefix = f"{layout.name}/"
        joints = [j for j in model.joints if j.name.startswith(prefix) and j.qpos_dim == 1]
        self.name = layout.name
        self.joint_names = tuple(j.name.removeprefix(prefix) for j in joints)
        self._actuators = [i for i, a in enumerate(model.actuators) if a.name.startswith(prefix)]
        self.actuator_names = tuple(model.actuators[i].name.removeprefix(prefix) for i in self._actuators)
        self._ranges = [model.actuators[i].ctrl_range for i in self._actuators]
        self.body_names = tuple(n.removeprefix(prefix) for n in model.bodies if n.startswith(prefix))
        self.site_names = tuple(n.removeprefix(prefix) for n in model.sites if n.startswith(prefix))
        self.geom_names = tuple(n.removeprefix(prefix) for n in model.geoms if n.startswith(prefix))
        self.sensor_names = tuple(
            s.name.removeprefix(prefix) for s in model.sensors if s.name.startswith(prefix)
        )
        self._dofs = [
            j.name.removeprefix(prefix)
            for j in model.joints
            if j.name.startswith(prefix)
            for _ in range(j.qvel_dim)
        ]
        self._device = device
        self._joint_cache: dict[SceneEntityCfg, Index] = {}
        self._element_cache: dict[tuple[SceneEntityCfg, ElementKind], Index] = {}
        self.data = EntityData(layout, model, joints, io, staging, wrenches, device, self._names)

    def _names(self, cfg: SceneEntityCfg, kind: str) -> list[str]:
        patterns: tuple[str, ...] | None = getattr(cfg, f"{kind}_names")
        names: tuple[str, ...] = getattr(self, f"{kind}_names")
        ids = match_names(
            patterns, names, preserve_order=cfg.preserve_order, owner=f"{self.name} {kind}_names"
        )
        return [names[i] for i in ids]

    def joint_ids(self, cfg: SceneEntityCfg) -> Index:
        """Returns the columns of `data.joint_pos` that `cfg` means: a slice where they are consecutive.

        Raises:
            ValueError: A name matches no joint of this entity; the message lists the nearest.
        """
        index = self._joint_cache.get(cfg)
        if index is None:
            names = self._names(cfg, "joint")
            index = column_index([self.joint_names.index(n) for n in names], self._device)
            self._joint_cache[cfg] = index
        return index

    def element_ids(self, cfg: SceneEntityCfg, kind: ElementKind) -> Index:
        """Returns which of the entity's own bodies, geoms, actuators or degrees of freedom `cfg` means.

        They are the second dimension of what `data.model_values` returns for `body_*`, `geom_*`, `actuator_*` and
        `dof_*` fields; degrees of freedom are those of `cfg.joint_names`, a free joint's six included where it is None.

        Raises:
            ValueError: A name matches nothing of this entity; the message lists the nearest.
        """
        index = self._element_cache.get((cfg, kind))
        if index is None:
            if kind == "dof" and cfg.joint_names is None:
                index = slice(0, len(self._dofs))
            else:
                all_names = self._dofs if kind == "dof" else list(getattr(self, f"{kind}_names"))
                names = self._names(cfg, "joint" if kind == "dof" else kind)
                index = column_index([all_names.index(name) for name in names], self._device)
            self._element_cache[cfg, kind] = index
        return index

    def control_ranges(self, names: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns (K,) lowest and (K,) highest control of this entity's actuators `names`; may be infinite.

        Raises:
            UnknownNameError: The entity has no such actuator; a KeyError that lists the nearest.
        """
        ranges = torch.tensor([self._ranges[i] for i in self._actuator_ids(names)], device=self._device)
        low, high = ranges.reshape(-1, 2).unbind(dim=1)
        return low, high

    def control_ids(self, names: Sequence[str]) -> Index:
        """Returns the control columns of this entity's actuators `names`, in that order.

        Raises:
            UnknownNameError: The entity has no such actuator; a KeyError that lists the nearest.
        """
        return column_index([self._actuators[i] for i in self._actuator_ids(names)], self._device)

    def _actuator_ids(self, names: Sequence[str]) -> list[int]:
        for name in names:
            if name not in self.actuator_names:
                raise UnknownNameError(
                    f"{self.name}: unknown actuator {name!r}; {nearest(name, self.actuator_names)}"
                )
        return [self.actuator_names.index(name) for name in names]


class EntityScene(Mapping[str, Entity]):
    """The entities of an environment by name: `env.scene["robot"]`."""

    def __init__(
        self, model: ModelLayout, io: BackendIO, staging: Staging, wrenches: Wrenches, device: torch.device
    ) -> None:
        """Makes every entity of the model."""
        self._model = model
        self._io = io
        self._staging = staging
        self._device = device
        self._reads: dict[str, tuple[str, ...]] = {}
        self._entities = {e.name: Entity(e, model, io, staging, wrenches, device) for e in model.entities}

    def __getitem__(self, name: str) -> Entity:
        """Returns an entity.

        Raises:
            UnknownNameError: There is none of that name; a KeyError that lists the nearest.
        """
        if name not in self._entities:
            raise UnknownNameError(f"scene: unknown entity {name!r}; {nearest(name, self._entities)}")
        return self._entities[name]

    def __iter__(self) -> Iterator[str]:
        """Iterates over the names."""
        return iter(self._entities)

    def __len__(self) -> int:
        """Number of entities."""
        return len(self._entities)

    def declare_reads(self, term: Callable[..., Any]) -> None:
        """Adds what `@reads` declares on a term to the read packet; for the construction of terms.

        Raises:
            KeyError: The model has no such sensor, body or site; the message lists the nearest.
            RuntimeError: The reads are frozen already.
        """
        for key in declared_reads(term):
            self._io.column(key)

    @property
    def is_recording(self) -> bool:
        """Whether reads may still be added: while the environment is built."""
        return not self._io.frozen

    @contextmanager
    def note_reads(self, label: str) -> Iterator[None]:
        """Notes whose reads those of the block are: `with env.scene.note_reads("rewards term 'upright'"): term()`.

        For the construction of terms: afterwards the reads are frozen. What a staged reset shows of joints and roots is
        no read.

        Raises:
            ConfigError: The block wrote into what it read; names the label.
            RuntimeError: The reads are frozen already.
        """
        with self._io.noting() as noted:
            try:
                yield
            finally:
                self._reads[label] = tuple(dict.fromkeys((*self._reads.get(label, ()), *noted.keys)))
            noted.check(label)

    def reads_of(self, label: str) -> tuple[str, ...]:
        """Returns the keys that were read under a label, in the order in which they were first read."""
        return self._reads.get(label, ())

    def declare_host_reads(self, keys: Sequence[str], label: str) -> None:
        """Adds the columns of a host term to the read packet; for the construction of terms.

        Raises:
            CapabilityError: The state lives on a device, from which nothing is copied; names the term by `label`.
            KeyError: A key that the model does not have; the message lists the nearest.
            RuntimeError: The reads are frozen already.
        """
        if not self._io.serves_host:
            raise CapabilityError(
                f"{label} is a host term, and the state lives on {self._device}: nothing is copied to the host; "
                "write it in torch, without @host_term"
            )
        for key in keys:
            self._io.column(key)

    def reads_version(self, label: str) -> int:
        """Returns a number that rises whenever columns change: after reads, flushed writes and resets.

        Raises:
            RuntimeError: Inside the staging of a reset, where columns still show the finished transition.
        """
        if self._staging.is_reset:
            raise RuntimeError(f"{label} is read while a reset is staged; it is defined after the commit")
        return self._io.version

    def host_columns(self, keys: Sequence[str], label: str) -> dict[str, torch.Tensor]:
        """Returns copies of columns as last read, in host memory, by key, (N, width) float32; one counted transfer."""
        return self._io.host_columns(keys, label)

    def from_host(self, values: torch.Tensor, label: str) -> torch.Tensor:
        """Returns host values that `label` made on the environment's device; one counted transfer."""
        return self._io.from_host(values, label)

    def sensor(self, name: str) -> torch.Tensor:
        """Returns a sensor's values, (N, dim) float32: a view that the next step rewrites.

        Raises:
            KeyError: The model has no such sensor; the message lists the nearest.
            RuntimeError: Inside the staging of a reset, or outside the frozen reads.
        """
        find(self._model.sensors, name, "sensor")
        return self._after_commit(f"sensor:{name}", f"sensor {name!r}")

    def contact(self, name: str) -> ContactHandle:
        """Returns a handle on a contact sensor of the scene, by its name in the composed model; reads nothing yet.

        Raises:
            KeyError: The model has no such contact sensor; the message lists the nearest.
        """
        contacts = [sensor for sensor in self._model.sensors if sensor.contact is not None]
        layout = find(contacts, name, "contact sensor").contact
        assert layout is not None
        return ContactHandle(
            name, layout, lambda: self._after_commit(f"sensor:{name}", f"contact sensor {name!r}")
        )

    def sensor_history(self, name: str) -> torch.Tensor:
        """Returns a declared sensor after each substep, (N, decimation, dim), oldest first; zero after a reset.

        Raises:
            KeyError: The model has no such sensor; the message lists the nearest.
            CapabilityError: Its history was not declared when the backend was made.
            RuntimeError: Inside the staging of a reset, or outside the frozen reads.
        """
        dim = find(self._model.sensors, name, "sensor").dim
        values = self._after_commit(f"substep:{name}", f"history of {name!r}")
        return values.view(values.shape[0], -1, dim)

    def _after_commit(self, key: str, what: str) -> torch.Tensor:
        """Returns a column that nothing is known about while a reset is staged."""
        if self._staging.is_reset:
            raise RuntimeError(f"{what} is read while a reset is staged; it is defined after the commit")
        return self._io.column(key)
