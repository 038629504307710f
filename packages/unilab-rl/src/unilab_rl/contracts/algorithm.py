"""What the one runner asks of every learner, on-policy or off-policy."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pydantic import Field

from unilab_core import Cfg

if TYPE_CHECKING:
    import torch

    from unilab_core import EnvFactory
    from unilab_rl.contracts.env import EnvProtocol

__all__ = ["Algorithm", "ExportablePolicy", "Iteration", "Learner", "LearnerCfg", "LearnerState", "Policy"]


class LearnerCfg(Cfg):
    """What the runner needs to know of every learner's config."""

    iterations: int = Field(default=300, ge=1)
    """Budget of a run that names none. Default: 0.9 million steps of 128 environments, 24 steps an iteration."""

    num_envs: int | None = Field(default=None, ge=1)
    """Rows that the settings were made for, which a run that names none trains on. `None`: the task's."""

    save_interval: int = Field(default=50, ge=1)
    """Iterations between two checkpoints; the last iteration is always saved."""

    keep_checkpoints: int = Field(default=20, ge=0)
    """The newest checkpoints that stay; 0: all. The one that a run was resumed from stays as well. Default: all of a
    thousand iterations at the default `save_interval`."""

    eval_interval: int = Field(default=0, ge=0)
    """Iterations between two evaluations of the deterministic policy, as `unilab eval` measures it; the last iteration
    is then evaluated too. 0: none. Training goes the same way, bit for bit, whatever it says; only a budget of
    minutes is used up by evaluations too."""

    eval_episodes: int = Field(default=64, ge=1)
    """Rows of the environment that is evaluated on, each one episode, as `unilab eval --episodes`."""


@dataclass(frozen=True)
class Iteration:
    """What one call of `Learner.iterate` did."""

    env_steps: int
    """Environment steps taken, summed over rows."""

    collect_s: float
    """Wall-clock seconds spent acting and stepping."""

    learn_s: float
    """Wall-clock seconds spent updating."""

    metrics: dict[str, float]
    """Finite numbers under namespaced keys: `Loss/value`, `Episode/return`, `Episode_Reward/<term>`, ..."""


@dataclass(frozen=True)
class LearnerState:
    """Everything that a learner needs to continue, as plain data and tensors of its own.

    Each part is what `torch.load(weights_only=True)` can read back: dicts, lists, numbers, strings, tensors. One thing
    may be left where it is: `learner["replay"]` as `ReplayContents`, which a checkpoint keeps in a file of its own.
    Those of a replay in memory belong to the learner that returned them: loading or saving them takes that learner's
    replay back to the state's moment, and its learner can load them once only.
    """

    learner: dict[str, Any]
    """Parameters and buffers, normalisers excepted."""

    optimizer: dict[str, Any]
    """State of every optimiser, learning rates included."""

    normalizer: dict[str, Any]
    """Statistics of observation and reward normalisers."""

    rng: dict[str, Any] = field(default_factory=dict)
    """States of the random generators that the learner draws from."""

    exact: bool = True
    """Whether a learner goes on from it bit for bit where its environment does; otherwise a resume is warm, for
    something was left out: a replay that is not saved, or what another process holds."""


class Policy(Protocol):
    """A deterministic policy."""

    def __call__(self, obs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns fresh actions (N, A) float32 for raw observation groups, each (N, width)."""
        ...


@runtime_checkable
class ExportablePolicy(Policy, Protocol):
    """A deterministic policy that is one network on the group `"obs"` alone, so that `unilab export` can write it."""

    @property
    def module(self) -> torch.nn.Module:
        """The network as it is now: a copy, in evaluation mode, that gives the actions which calling the policy gives.

        Its `forward` takes raw observations (B, O) float32, for any B, and returns actions (B, A) float32, so
        normalisers and whatever squashes or scales the action are inside. It branches on no value and draws nothing.
        """
        ...


class Learner(Protocol):
    """One learner bound to one environment."""

    def iterate(self) -> Iteration:
        """Collects and learns once.

        Raises:
            NonFiniteError: A loss or a parameter is no longer finite.
        """
        ...

    def state(self) -> LearnerState:
        """Returns a copy of everything needed to continue; later iterations don't change it."""
        ...

    def load_state(self, state: LearnerState, *, episodes_continue: bool, trained: bool = True) -> None:
        """Continues from a state that a learner of the same config returned.

        Args:
            state: That state.
            episodes_continue: Whether the environment goes on in the middle of its episodes, or starts new ones.
            trained: Whether iterations lie behind the state, so that it must hold the statistics of optimisers.

        Raises:
            ValueError: Names or shapes differ; nothing was changed.
        """
        ...

    def policy(self) -> Policy:
        """Returns the deterministic policy, which follows later iterations."""
        ...

    def close(self) -> None:
        """Ends the processes and frees the memory that the learner holds; calling it again does nothing.

        The environment stays open. After a failure it works as well.
        """
        ...


class Algorithm(Protocol):
    """A way to learn, found by name through the entry-point group `unilab.algorithms`."""

    @property
    def name(self) -> str:
        """The short lower-case name, for example `"ppo"`."""
        ...

    @property
    def config_type(self) -> type[LearnerCfg]:
        """The class of its config."""
        ...

    def require(self) -> None:
        """Does nothing where everything that the algorithm needs is installed.

        Raises:
            CapabilityError: Something is missing; the message names the extra to install.
        """
        ...

    def make_learner(
        self, env: EnvProtocol, cfg: LearnerCfg, *, seed: int, factory: EnvFactory | None = None
    ) -> Learner:
        """Builds a learner on `env`, whose rows it resets; equal seeds learn equally.

        Args:
            env: The environment.
            cfg: A `config_type`.
            seed: Of networks, exploration and everything else that the learner draws.
            factory: Builds another environment like `env`, for a learner that collects in a process of its own.

        Raises:
            ConfigError: `cfg` is of another type, doesn't fit the environment, or asks for a process without a
                `factory`.
            CapabilityError: As from `require`.
        """
        ...

    def make_policy(self, env: EnvProtocol, cfg: LearnerCfg, state: LearnerState) -> Policy:
        """Builds the deterministic policy of a saved state for `env`, which is neither reset nor stepped.

        Raises:
            ConfigError: `cfg` is of another type.
            ValueError: The state doesn't fit the environment's observations or actions.
            CapabilityError: As from `require`.
        """
        ...
