"""Keeps transitions on the learner's device, hands out batches of them, and normalises what learners see."""

from unilab_rl.replay.mark import ReplayMark
from unilab_rl.replay.normalizer import ObservationNormalizer, RewardScaler
from unilab_rl.replay.ring import Replay
from unilab_rl.replay.rows import TransitionLayout, true_next_observations

__all__ = [
    "ObservationNormalizer",
    "Replay",
    "ReplayMark",
    "RewardScaler",
    "TransitionLayout",
    "true_next_observations",
]
