"""TermBench: one term on a scripted backend, without an engine and without a task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

import torch

from unilab_core.errors import ConfigError
from unilab_managers.cfg.observations import ObservationGroupCfg, ObservationTermCfg
from unilab_managers.cfg.rewards import RewardTermCfg
from unilab_managers.cfg.terminations import TerminationTermCfg
from unilab_managers.declarations import declared_by
from unilab_managers.env import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from unilab_managers.mdp.actions import JointEffortActionCfg
from unilab_managers.mdp.observations import last_action
from unisim.model_layout import ModelLayout
from unisim.scene import SimCfg
from unisim.testing.fake import FakeBackend
from unisim.testing.layouts import make_layout

__all__ = ["BenchTermCfg", "TermBench"]

BenchTermCfg = ObservationTermCfg | RewardTermCfg | TerminationTermCfg
Rows = torch.Tensor | Sequence[Any]
_KINDS: Mapping[type, str] = {
    ObservationTermCfg: "observations",
    RewardTermCfg: "rewards",
    TerminationTermCfg: "terminations",
}
_LONG_S = 1000.0
"""No episode of a bench ends by its time limit unless asked to."""


class TermBench:
    """An environment of one term, whose state is what a test says it is.

    ```python
    with TermBench(RewardTermCfg(func=upright, weight=1.0, params={"std": 0.5}), num_envs=2) as bench:
        values = bench.step({"qpos": [[0.0, 0.1], [0.0, 0.4]]})
    ```

    The physics is that of `unisim.testing.FakeBackend`: joints move by themselves where a step says nothing of them.

    Attributes:
        env: The environment, reset once; anything of a `ManagerBasedRlEnv` can be asked of it.
    """

    def __init__(
        self,
        term: BenchTermCfg,
        *,
        layout: ModelLayout | None = None,
        num_envs: int = 3,
        seed: int = 0,
        autoreset: bool = False,
        **cfg: Any,  # noqa: ANN401 - fields of ManagerBasedRlEnvCfg, each of its own type
    ) -> None:
        """Builds the environment around the term.

        Args:
            term: Config of an observation, a reward or a termination.
            layout: The model, see `unisim.testing.make_layout`; by default a slider and a hinge of entity `robot`, the
                slider with an actuator. Its timestep becomes that of the config.
            num_envs: N.
            seed: Of the environment.
            autoreset: Whether rows that a termination ends restart within the step; otherwise `reset` must be called.
            **cfg: More fields of `ManagerBasedRlEnvCfg`: commands or events that the term looks at, for example.

        Raises:
            ConfigError: The term is wrong, or not of a kind that returns values.
        """
        self._kind = _KINDS.get(type(term), "")
        if not self._kind:
            kinds = sorted(kind.__name__ for kind in _KINDS)
            raise ConfigError(f"TermBench: got a {type(term).__name__}, expected one of {kinds}")
        layout = layout or make_layout()
        settings = _cfg_around(term, self._kind, layout.timestep, cfg)
        self._script: dict[str, torch.Tensor] = {}
        backend = FakeBackend(
            replace(layout, timestep=settings.sim.timestep),
            num_envs,
            declared=declared_by(settings),
            script=lambda step, state: self._script,
        )
        self.env = ManagerBasedRlEnv(settings, backend=backend, seed=seed, autoreset=autoreset)
        self.env.reset()

    def step(self, state: Mapping[str, Rows] | None = None, actions: Rows | None = None) -> torch.Tensor:
        """Makes the state what is said, lets a step pass, and returns the term's values.

        Args:
            state: Key of the state to its rows, (N, width): `"qpos"`, `"qvel"`, `"sensor:<name>"`, `"body:<name>"`,
                `"site:<name>"` and the like. What is named stays so until it is named again.
            actions: (N, A) raw actions; None: zeros.

        Returns:
            Of an observation (N, dim), with its noise, scale, delay and history; of a reward (N,), with its weight
            and without dt; of a termination (N,) bool. Fresh.
        """
        for key, rows in (state or {}).items():
            self._script[key] = torch.as_tensor(rows, dtype=torch.float64)
        shape = (self.env.num_envs, self.env.num_actions)
        given = torch.zeros(shape) if actions is None else torch.as_tensor(actions, dtype=torch.float32)
        self.env.step(given.contiguous())
        return self._values()

    def reset(self, *rows: int) -> torch.Tensor:
        """Resets rows, all if none is named; returns what an observation term shows of all rows afterwards, (N, dim).

        For other terms the return value is that of their last step.
        """
        self.env.reset(torch.tensor(rows, dtype=torch.int64) if rows else None)
        return self._values()

    def _values(self) -> torch.Tensor:
        env = self.env
        if self._kind == "observations":
            return env.observations()["obs"]
        if self._kind == "rewards":
            return env.reward_manager.term_values()["term"].clone()
        return env.termination_manager.get_term("term").clone()

    def close(self) -> None:
        """Frees everything; idempotent."""
        self.env.close()

    def __enter__(self) -> Self:
        """Returns itself; leaving the block closes it."""
        return self

    def __exit__(self, *error: object) -> None:
        """Closes the environment."""
        self.close()


def _cfg_around(
    term: BenchTermCfg, kind: str, timestep: float, changes: Mapping[str, Any]
) -> ManagerBasedRlEnvCfg:
    fields: dict[str, Any] = {
        "sim": SimCfg(timestep=timestep),
        "episode_length_s": _LONG_S,
        "observations": {"obs": ObservationGroupCfg(terms={"action": ObservationTermCfg(func=last_action)})},
        "actions": {"effort": JointEffortActionCfg()},
        "rewards": {},
        "terminations": {},
        "scale_rewards_by_dt": False,
    }
    shown = (
        {"obs": ObservationGroupCfg(terms={"term": term})}
        if isinstance(term, ObservationTermCfg)
        else {"term": term}
    )
    given = dict(changes)
    if kind in given:
        raise ConfigError(
            f"TermBench: {kind} is the kind of the term on the bench; got it again in {sorted(given)}"
        )
    return ManagerBasedRlEnvCfg(**{**fields, **given, kind: shown})
