"""A robot with two feet on a fake backend: what each foot touches, where it is and how it moves is scripted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from manager_support import DT, base_cfg, group, zeros

from unilab_core import SceneEntityCfg
from unilab_managers import ManagerBasedRlEnv, ObservationTermCfg, RewardTermCfg, mdp
from unilab_managers.mdp.commands import UniformVelocityCommandCfg
from unisim import Declared, SimCfg
from unisim.model_layout import ContactLayout, ModelLayout
from unisim.testing import FakeBackend, make_layout

FEET = ("left", "right")
SENSORS = ("left_contact", "right_contact")
SITES = SceneEntityCfg(site_names=FEET, preserve_order=True)
CONTACTS: dict[str, Any] = {"sensor_names": SENSORS}
WITH_SITES: dict[str, Any] = {**CONTACTS, "asset_cfg": SITES}


def feet_layout(
    data: Sequence[str] = ("found", "force"), num: int = 1, reduce: Any = "netforce"
) -> ModelLayout:
    """Returns the layout: free root, joints `hip` and `knee`, a site and a contact sensor of the scene per foot."""
    layout = make_layout(
        joints=("robot/hip", "robot/knee"),
        actuated=("robot/hip", "robot/knee"),
        sites=tuple(f"robot/{foot}" for foot in FEET),
        contacts={name: ContactLayout(tuple(data), num, reduce) for name in SENSORS},
        free_root=True,
    )
    return replace(layout, timestep=DT)


class FeetFeed:
    """The script: each foot's values as they are after every substep from now on; `None` leaves them.

    Attributes:
        now: What is copied into the state.
        by_substep: Values of single substeps, by their number from the start, instead of `now`.
    """

    def __init__(self, layout: ModelLayout) -> None:
        self._contact = {s.name: s.contact for s in layout.sensors if s.contact is not None}
        self.now: dict[str, torch.Tensor] = {}
        self.by_substep: dict[int, dict[str, torch.Tensor]] = {}

    def __call__(self, step: int, state: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        return {**self.now, **self.by_substep.get(step, {})}

    def contact(self, foot: int, **fields: Sequence[Any]) -> torch.Tensor:
        """Sets what a foot's sensor reports in its first slot, one value per row and field; others are 0."""
        layout = self._contact[SENSORS[foot]]
        assert layout is not None
        rows = len(next(iter(fields.values())))
        values = torch.zeros(rows, layout.num, layout.width)
        for name, given in fields.items():
            if name == "found":
                values[..., layout.columns[name]] = torch.tensor(given, dtype=torch.float32)[:, None, None]
            else:
                values[:, 0, layout.columns[name]] = torch.tensor(given, dtype=torch.float32)
        self.now[f"sensor:{SENSORS[foot]}"] = values.flatten(1)
        return self.now[f"sensor:{SENSORS[foot]}"]

    def found(self, left: Sequence[int], right: Sequence[int]) -> None:
        """Sets how many contacts each foot has, one number per row."""
        self.contact(0, found=left)
        self.contact(1, found=right)

    def place(
        self,
        foot: int,
        z: Sequence[float],
        velocity: Sequence[Sequence[float]] = (),
        quat: Sequence[float] = (),
    ) -> None:
        """Sets height, velocity in the world and orientation of a foot's site."""
        site = torch.zeros(len(z), 13)
        site[:, 2] = torch.tensor(z)
        site[:, 3:7] = torch.tensor(quat or (1.0, 0.0, 0.0, 0.0))
        if velocity:
            site[:, 7:10] = torch.tensor(velocity)
        self.now[f"site:robot/{FEET[foot]}"] = site


def feet_env(
    num_envs: int,
    *,
    feed: FeetFeed,
    layout: ModelLayout,
    substeps: bool = False,
    decimation: int = 1,
    autoreset: bool = True,
    **cfg: Any,
) -> ManagerBasedRlEnv:
    """Returns an environment of that robot, reset; `substeps` records both sensors after every substep."""
    declared = Declared(substep_sensors=SENSORS, decimation=decimation) if substeps else Declared()
    settings: dict[str, Any] = {
        "sim": SimCfg(timestep=DT),
        "decimation": decimation,
        "observations": {"obs": _height_group()},
        "scale_rewards_by_dt": False,
    }
    backend = FakeBackend(layout, num_envs, script=feed, declared=declared)
    env = ManagerBasedRlEnv(base_cfg(**(settings | cfg)), backend=backend, autoreset=autoreset)
    env.reset()
    return env


def _height_group() -> Any:
    return group(height=ObservationTermCfg(func=mdp.base_height))


def walk(env: ManagerBasedRlEnv, feed: FeetFeed, *steps: tuple[Sequence[int], Sequence[int]]) -> None:
    """Steps once for each pair of contact counts, (left of each row, right of each row)."""
    for left, right in steps:
        feed.found(left, right)
        env.step(zeros(env))


def made(num_envs: int, **options: Any) -> tuple[ManagerBasedRlEnv, FeetFeed]:
    """Returns an environment as `feet_env` makes it, and its script."""
    layout = options.pop("layout", None) or feet_layout()
    feed = FeetFeed(layout)
    return feet_env(num_envs, feed=feed, layout=layout, **options), feed


def reward(func: Any, **params: Any) -> dict[str, RewardTermCfg]:
    """Returns one reward term, `term`, of weight 1."""
    return {"term": RewardTermCfg(func=func, weight=1.0, params=params)}


def commands(*rows: tuple[float, float, float]) -> dict[str, Any]:
    """Returns one velocity command, `twist`, that each row holds throughout."""
    still = (0.0, 0.0)
    twist = UniformVelocityCommandCfg(
        lin_vel_x=still, lin_vel_y=still, ang_vel_z=still, resampling_time_range=(100.0, 100.0), fixed=rows
    )
    return {"twist": twist}
