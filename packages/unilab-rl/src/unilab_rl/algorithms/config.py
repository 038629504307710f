"""What the configs of all off-policy algorithms have in common."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveInt

from unilab_core import ConfigError
from unilab_rl.contracts.algorithm import LearnerCfg

__all__ = ["Activation", "OffPolicyCfg"]

Activation = Literal["relu", "elu", "silu", "tanh"]


class OffPolicyCfg(LearnerCfg):
    """Fields of every algorithm that learns from a replay.

    Actors read the group `"obs"`, critics `"critic"` where the environment publishes it, else `"obs"`. A vector step is
    one step of all N rows together.
    """

    iterations: int = Field(default=2000, ge=1)
    """Budget of a run that names none. Default: 1.6 million steps of 16 environments, 50 steps an iteration."""

    num_steps_per_env: PositiveInt = 50
    """Vector steps of one iteration; updates follow each of them, so it only sets how often metrics are read."""

    updates_per_step: PositiveInt = 1
    """Updates after each vector step. Default: SAC's and TD3's, published for one environment."""

    batch_size: PositiveInt = 256
    """Transitions of one update. Default: SAC's (Haarnoja et al. 2018) and TD3's (the authors' code)."""

    buffer_size: PositiveInt = 1_000_000
    """Transitions that the replay holds, all rows together, rounded down to whole vector steps. Default: SAC's and
    TD3's."""

    warmup_steps: int = Field(default=5000, ge=0)
    """Vector steps at the start of a run whose actions are uniform within the bounds and that no update follows.
    Default: CleanRL's SAC, published for one environment."""

    gamma: float = Field(default=0.99, ge=0.0, le=1.0)
    """Discount per step."""

    n_step: PositiveInt = 1
    """Most steps in the window of a transition, whose rewards are summed before the target bootstraps."""

    tau: float = Field(default=0.005, gt=0.0, le=1.0)
    """Share of the way that target networks move to the learned ones in one update. Default: SAC's and TD3's."""

    obs_normalization: bool = False
    """Normalise observations with running mean and deviation, in actor and critic separately."""

    action_limit: float | None = Field(default=None, gt=0.0, allow_inf_nan=False)
    """Half the width of the range of an action that the environment doesn't bound, in units of the action: about 0
    where both bounds are infinite, starting at the finite one where one is. Finite bounds are kept."""

    collectors: Literal[0, 1] = 0
    """Collectors in processes of their own, which step the environment while the learner updates. 0: the learner steps
    it. Default: on a few cores both would only share them. With 1 a resume starts new episodes."""

    save_replay: bool = False
    """Save the replay with every checkpoint, in a file beside it, which is as large as the replay: lower
    `keep_checkpoints` if need be. Without it a resumed run starts with an empty replay, so it goes on learning but not
    bit for bit."""

    def buffer_steps(self, num_envs: int) -> int:
        """Returns how many vector steps of `num_envs` rows the replay holds.

        Raises:
            ConfigError: They don't hold one window of `n_step` steps beside the newest row.
        """
        steps = self.buffer_size // num_envs
        if steps <= self.n_step:
            raise ConfigError(
                f"{type(self).__name__}: buffer_size={self.buffer_size} holds {steps} steps of {num_envs} "
                f"environments, expected more than n_step={self.n_step}; set learner.buffer_size to at least "
                f"{(self.n_step + 1) * num_envs}"
            )
        return steps
