"""An environment that is recorded, and what is in its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from action_support import driven_layout
from manager_support import (
    Feed,
    MakeEnv,
    column,
    flag,
)

from unilab_managers import ManagerBasedRlEnv, RecorderTermCfg, RewardTermCfg, TerminationTermCfg, mdp

ENDS = {
    "fall": TerminationTermCfg(func=flag),
    "cut": TerminationTermCfg(func=flag, params={"index": 1}, time_out=True),
}


def recorder(where: Path, **params: Any) -> dict[str, RecorderTermCfg]:
    return {"episodes": RecorderTermCfg(func=mdp.EpisodeRecorder, params={"folder": str(where), **params})}


def made(
    make_env: MakeEnv, folder: Path, num_envs: int = 3, **options: Any
) -> tuple[ManagerBasedRlEnv, Feed]:
    """Returns an environment whose observation is the sensor, whose reward its first column, and its feed."""
    feed = Feed()
    params = options.pop("params", {})
    fields: dict[str, Any] = {
        "layout": driven_layout("a", "b"),
        "actions": {"drive": mdp.JointEffortActionCfg()},
        "rewards": {"value": RewardTermCfg(func=column, weight=1.0, params={"index": 0})},
        "scale_rewards_by_dt": False,
        "terminations": ENDS,
        "episode_length_s": 0.2,
        "recorders": recorder(folder, **params),
    }
    return make_env(num_envs, feed=feed, **(fields | options)), feed


def go(
    env: ManagerBasedRlEnv, feed: Feed, value: float, *, fall: int | None = None, cut: int | None = None
) -> None:
    """Steps all rows with action (value, row) and the sensor at value + 100 x row."""
    rows = range(env.num_envs)
    feed.probe([[value + 100 * r, float(r == cut), float(r == fall)] for r in rows])
    env.step(torch.tensor([[value, float(r)] for r in rows]))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def load(folder: Path, number: int) -> dict[str, Any]:
    with np.load(folder / f"episode_{number:06d}.npz", allow_pickle=False) as archive:
        return {name: archive[name] for name in archive.files}
