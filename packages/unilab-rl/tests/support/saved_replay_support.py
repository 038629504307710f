"""Checkpoints with small replays, and what such a replay must hold after loading."""

from __future__ import annotations

from pathlib import Path

import torch
from checkpoint_support import checkpoint
from replay_support import Stream, contents, make_replay

from unilab_rl import Checkpoint, save_checkpoint
from unilab_rl.replay import Replay


def played(iteration: int) -> Replay:
    """A replay after so many steps."""
    stream = Stream(make_replay(2, 6))
    for _ in range(iteration):
        stream.add(("go", "truncated"))
    return stream.replay


def save(folder: Path, *iterations: int) -> None:
    """Saves checkpoints, each with the replay after as many steps."""
    for iteration in iterations:
        learner = {"weight": torch.zeros(2), "replay": played(iteration).mark()}
        save_checkpoint(folder / f"model_{iteration}.pt", checkpoint(iteration, learner=learner))


def loaded(held: Checkpoint) -> dict[str, object]:
    """What a replay holds after it was loaded from a checkpoint."""
    replay = make_replay(2, 6)
    replay.load_state(held.learner["replay"].restore())
    return contents(replay)
