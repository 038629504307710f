"""Contact sensors side by side, as terms about feet and collisions look at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch

from unilab_core.contacts import ContactHandle, FoundContacts
from unilab_core.entity_cfg import SceneEntityCfg

if TYPE_CHECKING:
    from unilab_managers.cfg.term import TermCfg
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["ContactSensors", "OfContactSensors"]


class ContactSensors:
    """F contact sensors in the order of their names: an entity's own, else those of the scene.

    Making it reads nothing, asking it does. For the constructors of class terms and trackers.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("names", "_histories", "_counting")
    row_assigned: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self, env: ManagerBasedRlEnv, sensor_names: Sequence[str], asset_cfg: SceneEntityCfg, *needed: str
    ) -> None:
        """Finds the sensors.

        Args:
            env: The environment.
            sensor_names: Names of contact sensors, without the entity's prefix if they are its own.
            asset_cfg: The entity.
            *needed: What each must report: `"found"`, `"force"` and so on.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
            ValueError: No names, one given twice, or a sensor does not report what is needed.
        """
        if not sensor_names or isinstance(sensor_names, str):
            raise ValueError(f"sensor_names is {sensor_names!r}, expected a tuple of at least one name")
        if len(set(sensor_names)) < len(sensor_names):
            raise ValueError(f"sensor_names {tuple(sensor_names)} name one twice; expected each once")
        self._env = env
        data = env.scene[asset_cfg.name].data
        self._handles = tuple(data.contact(name) for name in sensor_names)
        self.names = tuple(handle.name for handle in self._handles)
        for handle in self._handles:
            for field in needed:
                if field not in handle.layout.data:
                    raise ValueError(
                        f"contact sensor {handle.name!r} reports {handle.layout.data}, but {field!r} is needed; "
                        "add it to the sensor's data"
                    )
        self._counting = data.found_contacts(sensor_names) if "found" in needed else None
        self._histories = tuple(name in env.declared.substep_sensors for name in self.names)

    def reports(self, field: str) -> bool:
        """Whether all of them report a field of contacts in the world, one contact at a time."""
        return all(
            field in handle.layout.data and handle.layout.reduce != "netforce" for handle in self._handles
        )

    @property
    def _found(self) -> FoundContacts:
        assert self._counting is not None, "`found` was not among what is needed of the sensors"
        return self._counting

    def counts(self) -> torch.Tensor:
        """Returns how many contacts each has found in the last substep, (N, F) float32; to be read only."""
        return self._found.counts

    def flags(self) -> torch.Tensor:
        """Returns 1 for each that has found a contact in the last substep, else 0, (N, F) float32; to be read only."""
        return self._found.derived("flags", _at_most_one)

    def touching(self) -> torch.Tensor:
        """Returns which of them have found a contact in the last substep, (N, F) bool."""
        return self.counts() > 0.0

    def touched(self) -> torch.Tensor:
        """Returns which of them have found a contact in this step, (N, F) bool.

        In any substep of the control step, of sensors that keep their values of all substeps; of others in the last.
        """
        pairs = zip(self._handles, self._histories, strict=True)
        return torch.cat([self._touched(handle, has_history) for handle, has_history in pairs], dim=1)

    def _touched(self, handle: ContactHandle, has_history: bool) -> torch.Tensor:
        if not has_history:
            return handle.found[:, :1] > 0.0  # every slot says the same
        values = self._env.scene.sensor_history(
            handle.name
        )  # (N, T, slots * width); every slot says the same
        return (values[..., handle.layout.columns["found"]] > 0.0).any(dim=1)

    def normals(self) -> torch.Tensor:
        """Returns the unit normal of each one's first contact in the world, (N, F, 3); 0 without contact."""
        return torch.stack([handle.normal[:, 0] for handle in self._handles], dim=1)

    def forces(self) -> torch.Tensor:
        """Returns the strongest force of each in this step, (N, F) N.

        The largest norm over its slots and, of sensors that keep their values of all substeps (`substeps=True`), over
        the substeps of the control step; of others in the last substep.
        """
        pairs = zip(self._handles, self._histories, strict=True)
        return torch.stack([self._force(handle, has_history) for handle, has_history in pairs], dim=1)

    def _force(self, handle: ContactHandle, has_history: bool) -> torch.Tensor:
        if not has_history:
            return _norm(handle.force).amax(dim=1)
        layout = handle.layout
        values = self._env.scene.sensor_history(handle.name)  # (N, T, slots * width)
        slots = values.view(values.shape[0], -1, layout.width)[..., layout.columns["force"]]
        return _norm(slots).amax(dim=1)


def _at_most_one(counts: torch.Tensor) -> torch.Tensor:
    return counts.clamp(max=1.0)


def _norm(vectors: torch.Tensor) -> torch.Tensor:
    norms: torch.Tensor = torch.linalg.vector_norm(vectors, dim=-1)
    return norms


class OfContactSensors:
    """A term that looks at contact sensors, its `sensor_names` of `asset_cfg`.

    Attributes:
        needed: What each of them must report.
    """

    needed: ClassVar[tuple[str, ...]] = ("force",)

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        """Finds the sensors.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
            ValueError: A sensor does not report what is needed.
        """
        params = cfg.all_params()
        self._sensors = ContactSensors(env, params["sensor_names"], params["asset_cfg"], *self.needed)
