"""The config of PPO, and its translation to what rsl-rl reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, PositiveInt, model_validator

from unilab_core import ConfigError, Func
from unilab_rl.contracts.algorithm import LearnerCfg
from unilab_rl.contracts.groups import network_groups

__all__ = ["PpoCfg"]

_Activation = Literal[
    "elu", "selu", "relu", "crelu", "lrelu", "tanh", "sigmoid", "softplus", "gelu", "swish", "mish"
]


class PpoCfg(LearnerCfg):
    """Proximal policy optimisation with rsl-rl's networks, storage and update.

    Defaults are rsl-rl's own unless a field says otherwise. The actor reads the group `"obs"`, the critic
    `"critic"` where the environment publishes it, else `"obs"`.
    """

    num_steps_per_env: PositiveInt = 24
    """Steps collected from each environment in one iteration, T. Default: legged_gym's."""

    desynchronize_episodes: bool = True
    """Give the first episodes random ages, so that time-outs don't come all in one iteration (rsl-rl's
    `init_at_random_ep_len`, which its scripts switch on). The lengths reported for these
    first episodes count the ages."""

    actor_hidden_dims: tuple[PositiveInt, ...] = Field(default=(128, 128), min_length=1)
    """Widths of the actor's hidden layers. Default: smaller than rsl-rl's 3 x 256, whose update takes 2.7 times
    as long on two cores."""

    critic_hidden_dims: tuple[PositiveInt, ...] = Field(default=(128, 128), min_length=1)
    """Widths of the critic's hidden layers."""

    activation: _Activation = "elu"
    """Activation of the hidden layers."""

    obs_normalization: bool = False
    """Normalise observations with running mean and deviation, in actor and critic separately."""

    init_std: float = Field(default=1.0, gt=0.0)
    """Standard deviation of the actions at the start, in action units."""

    std_type: Literal["scalar", "log"] = "scalar"
    """Whether the deviation itself or its logarithm is learned; `"log"` keeps it positive."""

    num_learning_epochs: PositiveInt = 5
    """Passes over the collected data in one iteration."""

    num_mini_batches: PositiveInt = 4
    """Mini-batches in one pass; the data that doesn't divide evenly is left out of the pass."""

    learning_rate: float = Field(default=1e-3, gt=0.0)
    """Step size of the optimiser; where `schedule` is `"adaptive"`, the first one."""

    schedule: Literal["adaptive", "fixed"] = "adaptive"
    """`"adaptive"` divides or multiplies the step size by 1.5 to keep the policy's change near `desired_kl`."""

    desired_kl: float = Field(default=0.01, gt=0.0)
    """Wanted Kullback-Leibler divergence of old and new policy, in nats; used by `"adaptive"` only."""

    optimizer: Literal["adam", "adamw", "sgd", "rmsprop"] = "adam"
    """The optimiser of actor and critic together."""

    gamma: float = Field(default=0.99, ge=0.0, le=1.0)
    """Discount per step."""

    lam: float = Field(default=0.95, ge=0.0, le=1.0)
    """Decay of generalised advantage estimation (Schulman et al. 2016)."""

    clip_param: float = Field(default=0.2, gt=0.0)
    """How far the probability ratio may leave 1 (Schulman et al. 2017), and the value its old prediction."""

    use_clipped_value_loss: bool = True
    """Whether the value loss is clipped as well."""

    value_loss_coef: float = Field(default=1.0, ge=0.0)
    """Weight of the value loss."""

    entropy_coef: float = Field(default=0.01, ge=0.0)
    """Weight of the entropy bonus."""

    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Largest norm of a gradient, for actor and critic separately."""

    normalize_advantage_per_mini_batch: bool = False
    """Whether advantages are normalised in each mini-batch instead of once for all data."""

    symmetry: Func | None = None
    """A function from the `EnvDescription` to the `Mirror` of a symmetric robot; its mirror image is then learned from
    beside each sample (Mittal et al. 2024). Only the update sees it: the actor stays an ordinary network."""

    mirror_loss_coef: float = Field(default=0.0, ge=0.0)
    """Weight of the squared difference between the action in the mirror and the mirrored action; needs `symmetry`."""

    @model_validator(mode="after")
    def _mirror_loss_has_a_mirror(self) -> PpoCfg:
        if self.mirror_loss_coef > 0.0 and self.symmetry is None:
            raise ValueError(
                f"mirror_loss_coef is {self.mirror_loss_coef:g} without a mirror; set symmetry to the function that "
                "returns it"
            )
        return self

    def check_batch(self, num_envs: int) -> None:
        """Checks that one iteration's data fills the mini-batches.

        Raises:
            ConfigError: It doesn't: an advantage needs at least two samples to be normalised.
        """
        samples = num_envs * self.num_steps_per_env
        needed = self.num_mini_batches * (2 if self.normalize_advantage_per_mini_batch else 1)
        if samples < max(needed, 2):
            raise ConfigError(
                f"PpoCfg: {num_envs} environments x num_steps_per_env={self.num_steps_per_env} give {samples} samples, "
                f"expected at least {max(needed, 2)} for num_mini_batches={self.num_mini_batches}; raise --num-envs or "
                "learner.num_steps_per_env"
            )

    def to_rsl_rl(self, obs_groups_spec: Mapping[str, int]) -> dict[str, Any]:
        """Returns the dict that rsl-rl's `construct_algorithm` reads, fresh because rsl-rl writes into it.

        Args:
            obs_groups_spec: Width of each observation group that the environment publishes.

        Raises:
            ConfigError: There is no group `"obs"`, or a group that is read has no columns.
        """
        actor_group, critic_group = network_groups("PpoCfg", obs_groups_spec)
        shared = {
            "class_name": "MLPModel",
            "activation": self.activation,
            "obs_normalization": self.obs_normalization,
        }
        distribution = {
            "class_name": "GaussianDistribution",
            "init_std": self.init_std,
            "std_type": self.std_type,
        }
        algorithm = {
            name: getattr(self, name)
            for name in (
                *("num_learning_epochs", "num_mini_batches", "learning_rate", "schedule", "desired_kl"),
                *("optimizer", "gamma", "lam", "clip_param", "use_clipped_value_loss", "value_loss_coef"),
                *("entropy_coef", "max_grad_norm", "normalize_advantage_per_mini_batch"),
            )
        }
        return {
            "num_steps_per_env": self.num_steps_per_env,
            "obs_groups": {"actor": [actor_group], "critic": [critic_group]},
            "actor": {**shared, "hidden_dims": self.actor_hidden_dims, "distribution_cfg": distribution},
            "critic": {**shared, "hidden_dims": self.critic_hidden_dims},
            "algorithm": algorithm,
            "multi_gpu": None,
        }
