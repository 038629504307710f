"""What feet have done since their episodes began: trackers that observations, rewards and metrics share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_managers.mdp.contact_sensors import ContactSensors
from unilab_managers.mdp.frames import frame_names, frames
from unilab_managers.trackers import Tracker

if TYPE_CHECKING:
    from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["FeetContacts", "FeetSwing", "check_feet"]


class FeetContacts(Tracker):
    """When each of F feet touched something. A foot is in contact if it was in the last substep of a control step.

    A time counts the control steps at whose end a foot was in the air (or in contact), so that it is off by less than
    one step either way and right on average. Where a reset puts a foot, it neither lands nor lifts off.

    Attributes:
        contact: (N, F) bool: in contact now; right after a reset, as its forward has it.
        first_contact: (N, F) bool: in contact now, and not at the end of the step before.
        landed: (N, F) bool: as `first_contact`, of a foot that lifted off in this episode; so not one that was dropped.
        lift_off: (N, F) bool: in contact at the end of the step before, and not now.
        touched: (N, F) bool: in contact now or before in this episode.
        swung: (N, F) bool: has landed in this episode, so that there is a last swing to speak of.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("_sensors", "_dt")

    def __init__(self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], entity: str) -> None:
        """Finds the sensors, which must report `found`.

        Args:
            env: The environment.
            sensor_names: Contact sensors, one per foot, of the entity or of the scene.
            entity: Name of the entity.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
            ValueError: A sensor does not report `found`.
        """
        self._env = env
        self._sensors = ContactSensors(env, sensor_names, SceneEntityCfg(name=entity), "found")
        self._dt = env.step_dt
        shape = (env.num_envs, len(sensor_names))
        self.contact = torch.zeros(shape, dtype=torch.bool, device=env.device)
        self.first_contact = torch.zeros_like(self.contact)
        self.landed = torch.zeros_like(self.contact)
        self.lift_off = torch.zeros_like(self.contact)
        self.touched = torch.zeros_like(self.contact)
        self.swung = torch.zeros_like(self.contact)
        # Whole steps: sums of a step's length would drift.
        self._air = torch.zeros(shape, dtype=torch.int64, device=env.device)
        self._stance = torch.zeros_like(self._air)
        self._last_air = torch.zeros_like(self._air)
        self._last_stance = torch.zeros_like(self._air)

    def advance(self) -> None:
        """Takes in the contacts of a step; see `Tracker`."""
        now = self._sensors.touching()
        torch.gt(now, self.contact, out=self.first_contact)
        torch.gt(self.contact, now, out=self.lift_off)
        torch.logical_and(self.first_contact, self.touched, out=self.landed)
        self.swung.logical_or_(self.landed)
        torch.where(self.first_contact, self._air, self._last_air, out=self._last_air)
        torch.where(self.lift_off, self._stance, self._last_stance, out=self._last_stance)
        self._air.add_(1).masked_fill_(now, 0)
        self._stance.add_(1).masked_fill_(~now, 0)
        self.touched.logical_or_(now)
        self.contact.copy_(now)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Begins episodes where the reset has put the feet; see `Tracker`."""
        now = self._sensors.touching()[env_ids]
        for flags, values in ((self.contact, now), (self.touched, now)):
            flags[env_ids] = values
        for flags in (self.first_contact, self.landed, self.lift_off, self.swung):
            flags[env_ids] = False
        for steps in (self._air, self._stance, self._last_air, self._last_stance):
            steps[env_ids] = 0

    def note_reads(self) -> None:
        """While reads are recorded, reads what `advance` will, so that it is known which terms live on it."""
        if self._env.scene.is_recording:
            self._sensors.counts()

    @property
    def contact_before(self) -> torch.Tensor:
        """(N, F) bool: in contact at the end of the step before; of a reset row, as its reset had it."""
        return (self.contact & ~self.first_contact) | self.lift_off

    def _seconds(self, steps: torch.Tensor) -> torch.Tensor:
        """Returns how long so many steps are, float32 s."""
        return steps.float().mul_(self._dt)

    @property
    def air_time(self) -> torch.Tensor:
        """(N, F) s since the foot left the ground, or since the reset that put it into the air; 0 in contact."""
        return self._seconds(self._air)

    @property
    def contact_time(self) -> torch.Tensor:
        """(N, F) s since the foot touched the ground, or since the reset that put it there; 0 in the air."""
        return self._seconds(self._stance)

    @property
    def last_air_time(self) -> torch.Tensor:
        """(N, F) s that the time in the air lasted which ended last; 0 before the first."""
        return self._seconds(self._last_air)

    @property
    def last_contact_time(self) -> torch.Tensor:
        """(N, F) s that the contact lasted which ended last; 0 before the first."""
        return self._seconds(self._last_stance)


class FeetSwing(Tracker):
    """How high each of F feet has been lifted in its swing.

    Attributes:
        contacts: When the same feet touched something.
        peak: (N, F) m: the highest z of a foot's frame in the world at the end of a step since it lifted off; kept in
            contact until the next lift-off; after a reset where the reset has put it.
    """

    def __init__(
        self, env: ManagerBasedRlEnv, sensor_names: tuple[str, ...], asset_cfg: SceneEntityCfg
    ) -> None:
        """Finds the feet.

        Args:
            env: The environment.
            sensor_names: As of `FeetContacts`.
            asset_cfg: The entity, and the sites or bodies that are its feet, in the order of the sensors.

        Raises:
            KeyError: There is no such contact sensor; the message lists the nearest.
            ValueError: A name matches nothing, or there are not as many sensors as feet.
        """
        self.contacts = env.trackers.share(FeetContacts, sensor_names, asset_cfg.name)
        handle = frames(env, asset_cfg)
        self._heights: Callable[[], torch.Tensor] = lambda: handle.pos_w[..., 2]
        check_feet(env, asset_cfg, sensor_names)
        self._env = env
        self.peak = torch.zeros(env.num_envs, len(sensor_names), device=env.device)

    def advance(self) -> None:
        """Takes in the heights of a step; see `Tracker`."""
        heights, contacts = self._heights(), self.contacts
        highest = torch.where(contacts.lift_off, heights, torch.maximum(self.peak, heights))
        torch.where(contacts.contact, self.peak, highest, out=self.peak)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Begins episodes where the reset has put the feet; see `Tracker`."""
        self.peak[env_ids] = self._heights()[env_ids]

    def note_reads(self) -> None:
        """As `FeetContacts.note_reads`."""
        self.contacts.note_reads()
        if self._env.scene.is_recording:
            self._heights()


def check_feet(env: ManagerBasedRlEnv, asset_cfg: SceneEntityCfg, sensor_names: Sequence[str]) -> None:
    """Checks that there is one sensor for each foot, and that the feet keep the order in which they are named.

    Raises:
        ValueError: There are not as many, or the model has the feet in another order than `asset_cfg` names them.
    """
    found = frame_names(env, asset_cfg)
    if len(found) != len(sensor_names):
        raise ValueError(
            f"asset_cfg means {len(found)} feet, sensor_names {len(sensor_names)}; expected one sensor per foot, "
            "in the same order"
        )
    as_named = frame_names(env, asset_cfg.model_copy(update={"preserve_order": True}))
    if found != as_named:
        raise ValueError(
            f"asset_cfg names the feet {as_named}, the model has them as {found}, and each must meet its own of "
            f"sensor_names {tuple(sensor_names)}; set preserve_order=True, or name both in the model's order"
        )
