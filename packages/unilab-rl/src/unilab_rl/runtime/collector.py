"""Steps an environment with an explorer and packs transitions; the same in the learner's process and in another."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch

from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.contracts.env import EnvProtocol
from unilab_rl.contracts.off_policy import Explorer
from unilab_rl.replay import TransitionLayout, true_next_observations
from unilab_rl.state_parts import check_generator_state, check_names, copy_to_cpu
from unilab_rl.tally import RolloutTally, TallyTotals

__all__ = ["Collector", "TransitionSource"]


class TransitionSource(Protocol):
    """Where a learner gets its transitions from: a `Collector`, or one in another process."""

    def step(self) -> torch.Tensor:
        """Returns the next step of all N rows, packed as `TransitionLayout` says: (N, packed_width), fresh."""
        ...

    def publish(self) -> None:
        """Lets the explorer act with the present weights from now on."""
        ...

    def take_totals(self) -> TallyTotals:
        """Returns the sums of logs and finished episodes since the last call."""
        ...

    def take_metrics(self) -> dict[str, float]:
        """Returns what it has to say of itself since the last call, beside the environment's logs."""
        ...

    def state(self) -> dict[str, Any]:
        """Returns a copy of what it needs to continue."""
        ...

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state` returned; the environment's state is restored by its owner.

        Raises:
            ValueError: It doesn't fit; nothing was changed.
        """
        ...

    def episodes_restart(self) -> None:
        """Is told, after `load_state`, that the environment starts new episodes: noise of the old ones is redrawn."""
        ...

    def close(self) -> None:
        """Ends what it began; the environment that it was given stays open."""
        ...


class Collector:
    """Steps N rows, at first with uniformly random actions and then with an explorer.

    What is acted on is always what the environment returned, so after an end the first observation of the next
    episode, never the final one that is stored. A step waits for the device nowhere but inside `env.step`.
    """

    def __init__(
        self,
        env: EnvProtocol,
        explorer: Explorer,
        bounds: ActionBounds,
        generator: torch.Generator,
        *,
        warmup_steps: int,
    ) -> None:
        """Makes a collector on an environment whose rows have all been reset.

        Args:
            env: The environment.
            explorer: Acts after the warm-up.
            bounds: Between which the actions of the warm-up are drawn.
            generator: Draws them; on the environment's device.
            warmup_steps: Vector steps of the warm-up.
        """
        self.layout = TransitionLayout(env.obs_groups_spec, env.num_actions)
        """The columns of what `step` returns."""

        self.explorer = explorer
        """Acts after the warm-up."""

        self.steps = 0
        """Vector steps so far, those before a resume included."""

        self._env = env
        self._bounds = bounds
        self._generator = generator
        self._warmup_steps = warmup_steps
        self._tally = RolloutTally()
        self._obs: dict[str, torch.Tensor] | None = None

    @torch.no_grad()
    def step(self) -> torch.Tensor:
        """Acts once in every row and returns what came of it, (N, packed_width) float32, fresh.

        A row that the environment's NaN guard ended is marked as refused: its numbers are none to learn from.

        Raises:
            NonFiniteError: As the environment raises it, where no guard is configured.
        """
        obs = self._env.observations() if self._obs is None else self._obs
        if self.steps < self._warmup_steps:
            actions = self._bounds.uniform(self._env.num_envs, self._generator)
        else:
            actions = self.explorer.act(obs)
        # A copy, so that an action term which clamps in place can't change what is stored.
        state = self._env.step(actions.clone())
        self.steps += 1
        packed = self.layout.pack(
            obs,
            actions,
            state.reward,
            true_next_observations(state),
            state.terminated,
            state.truncated,
            refused=state.info.get("nonfinite_rows"),
        )
        # Copies, for the next step rewrites the environment's own while these are still to be stored.
        self._obs = {name: group.clone() for name, group in state.obs.items()}
        if state.final_observation is not None:  # known to the host already: an episode ended
            self.explorer.episodes_ended(state.terminated | state.truncated)
        self._tally.add(state.info["log"], state.info.get("episode", {}))
        return packed

    def publish(self) -> None:
        """Does nothing: the explorer acts with the learner's own weights."""

    def take_totals(self) -> TallyTotals:
        """Returns the sums of logs and finished episodes since the last call; waits for the device once."""
        totals, self._tally = self._tally.totals(), RolloutTally()
        return totals

    def take_metrics(self) -> dict[str, float]:
        """Returns nothing: nobody waits for anybody here."""
        return {}

    def state(self) -> dict[str, Any]:
        """Returns copies, on the CPU, of the explorer's state and of the warm-up's; the environment is no part."""
        return {
            "steps": self.steps,
            "explorer": copy_to_cpu(self.explorer.state()),
            "generator": self._generator.get_state(),
        }

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Continues from what `state` returned, with whatever the environment then observes.

        Raises:
            ValueError: It doesn't fit; nothing was changed.
        """
        check_names("the collector's state", state, ("steps", "explorer", "generator"))
        if type(state["steps"]) is not int or state["steps"] < 0:
            raise ValueError(f"the collector's steps are {state['steps']!r:.40}, expected a count")
        drawn = check_generator_state("the collector's generator", self._generator.device, state["generator"])
        self.explorer.load_state(state["explorer"])
        self._generator.set_state(drawn)
        self.steps = state["steps"]
        self._obs = None

    def episodes_restart(self) -> None:
        """Lets the explorer redraw, for every row, the noise that belongs to an episode."""
        rows = torch.ones(self._env.num_envs, dtype=torch.bool, device=self._generator.device)
        self.explorer.episodes_ended(rows)

    def close(self) -> None:
        """Does nothing: the environment belongs to its maker."""
