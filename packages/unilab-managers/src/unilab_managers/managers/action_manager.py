"""Actions: terms side by side turn one raw action into one control."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from unilab_core.errors import ConfigError
from unilab_managers.managers.manager_base import ManagerBase, check_value, named
from unisim.config import Cfg

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["ActionManager", "ActionTerm", "ActionTermCfg"]


class ActionTermCfg(Cfg):
    """Base of action configs; each makes its own term.

    Attributes:
        is_affine: Whether the target of each joint is the action times a number plus a number, within limits, and
            nothing else, so that whoever deploys a policy can work it out. It counts only in the class that says so:
            one that is derived from it may do anything.
    """

    is_affine: ClassVar[bool] = False

    entity: str = "robot"
    """Name of the entity it drives."""

    def make(self, env: TorchEnv, name: str) -> ActionTerm:
        """Returns the term for `env`; `name` is its name in the config.

        Raises:
            ConfigError: A name or setting does not fit the model.
        """
        raise NotImplementedError(f"{type(self).__name__} does not implement make()")


class ActionTerm(ABC):
    """Some columns of the action, and the control columns that they drive.

    Attributes:
        follows: Whether its control follows the state within a step, from substep to substep: a closed loop. Then every
            substep of every term moves one control and one read, where otherwise a whole step does.
    """

    follows: ClassVar[bool] = False

    @property
    @abstractmethod
    def labels(self) -> tuple[str, ...]:
        """A label for each of its columns."""

    @property
    @abstractmethod
    def control_ids(self) -> slice | torch.Tensor:
        """The control columns it writes."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(dim,) lower and upper bounds of raw actions beyond which nothing changes; may be infinite."""

    @abstractmethod
    def process(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the controls, (N, dim) float32, of raw actions (N, dim); changes nothing."""

    @property
    def settings(self) -> tuple[Mapping[str, Any], ...]:
        """What there is to say about each of its columns: plain data, for people to read."""
        return tuple({} for _ in self.labels)

    def accept(self, actions: torch.Tensor) -> None:
        """The raw actions (N, dim), processed just before, are the ones of this step: state may change now."""

    def follow(self) -> torch.Tensor:
        """Returns the controls, (N, dim) float32, of the next substep, at the state now; for terms that follow it.

        The accepted actions are those of the step, and reads are fresh; nothing may change.
        """
        raise NotImplementedError(f"{type(self).__name__} follows the state and does not implement follow()")

    def reset(self, env_ids: torch.Tensor) -> None:
        """Clears the rows' state, if the term has any."""


class ActionManager(ManagerBase):
    """Splits the action among its terms and remembers the last two raw actions.

    The control of an actuator that no term drives is 0: no force of a motor, position 0 of a position servo.

    Attributes:
        control_columns: Which column of the control each column of the action drives.
        action: (N, A) raw action of the current step; zero on reset rows. The same tensor throughout.
        prev_action: (N, A) raw action of the step before; zero on reset rows. The same tensor throughout.
    """

    def __init__(self, terms: Mapping[str, ActionTermCfg], env: TorchEnv, num_controls: int) -> None:
        """Makes the terms.

        Args:
            terms: By name, in the order of their columns.
            env: The environment.
            num_controls: Width of the control.

        Raises:
            ConfigError: No terms, one of them does not fit the model, or two write the same control column.
        """
        super().__init__("actions", env, {})
        self._action_terms: dict[str, ActionTerm] = {}
        for name, cfg in terms.items():
            with named(_label(name)):
                self._action_terms[name] = cfg.make(env, name)
        if not self._action_terms:
            raise ConfigError("actions: there is no term; a policy needs at least one action")
        n, device = env.num_envs, env.device
        self.width = sum(len(term.labels) for term in self._action_terms.values())
        self.action = torch.zeros(n, self.width, device=device)
        self.prev_action = torch.zeros_like(self.action)
        self._pending: Callable[[], object] = _nothing
        self._arrange(num_controls)

    def _arrange(self, num_controls: int) -> None:
        """Works out where the columns of the terms go in the control."""
        driven = list(self._owners(num_controls))
        self.control_columns = tuple(driven)
        idle = [column for column in range(num_controls) if column not in driven]
        n, device = self._env.num_envs, self._env.device
        self._idle = torch.zeros(1, 1, device=device).expand(n, len(idle))
        order = [*driven, *idle]
        self._order: torch.Tensor | None = None
        if order != sorted(order):
            self._order = torch.tensor([order.index(c) for c in range(num_controls)], device=device)

    def _owners(self, num_controls: int) -> dict[int, str]:
        """Returns which term drives each control column, in the order of the terms' columns."""
        owners: dict[int, str] = {}
        columns = torch.arange(num_controls, device=self._env.device)
        for name, term in self._action_terms.items():
            for column in columns[term.control_ids].tolist():
                other = owners.setdefault(column, name)
                if other != name:
                    actuator = self._env.model_layout.actuators[column].name
                    raise ConfigError(
                        f"{_label(name)} drives actuator {actuator!r}, which {other!r} drives already"
                    )
        return owners

    @property
    def active_terms(self) -> tuple[str, ...]:
        """Names of the terms, in the order of their columns."""
        return tuple(self._action_terms)

    @property
    def labels(self) -> tuple[str, ...]:
        """A label for every action column."""
        return tuple(f"{name}:{label}" for name, term in self._action_terms.items() for label in term.labels)

    @property
    def settings(self) -> dict[str, Mapping[str, Any]]:
        """What the terms say about each action column, by its label: plain data, for people to read."""
        said = [settings for term in self._action_terms.values() for settings in term.settings]
        return dict(zip(self.labels, said, strict=True))

    @property
    def bounds(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(A,) lower and (A,) upper bounds of raw actions; may be infinite."""
        lows, highs = zip(*(term.bounds for term in self._action_terms.values()), strict=True)
        return torch.cat(lows), torch.cat(highs)

    def row_state_roots(self) -> dict[str, object]:
        """Returns the manager and its terms by name."""
        return {self.owner: self, **{f"{self.owner}.{n}": term for n, term in self._action_terms.items()}}

    def _split(self, actions: torch.Tensor) -> list[tuple[str, ActionTerm, torch.Tensor]]:
        """Returns every term with its own columns of `actions`, (N, dim) views."""
        terms = self._action_terms
        parts = (
            [actions]
            if len(terms) == 1
            else actions.split_with_sizes([len(t.labels) for t in terms.values()], dim=1)
        )
        return list(zip(terms, terms.values(), parts, strict=True))

    def _controls(self, name: str, term: ActionTerm, actions: torch.Tensor) -> torch.Tensor:
        label = _label(name)
        with named(label):
            controls = term.process(actions)
        check_value(controls, label, torch.float32, self._env.num_envs, columns=True)
        if controls.shape != actions.shape:
            raise ConfigError(f"{label} returned {tuple(controls.shape)}, expected {tuple(actions.shape)}")
        return controls

    def process(self, actions: torch.Tensor) -> torch.Tensor:
        """Returns the control, (N, nu), of raw actions (N, A); `accept` makes them the current ones.

        The control is a fresh tensor, and the actions are remembered where no state looks for them: what is refused
        between the two calls leaves nothing behind.
        """
        controls = [self._controls(*part) for part in self._split(actions)]
        if self._idle.shape[1]:
            controls.append(self._idle)
        control = controls[0] if len(controls) == 1 else torch.cat(controls, dim=1)
        self._pending = partial(self.action.copy_, actions)
        return control if self._order is None else control.index_select(1, self._order)

    def accept(self) -> None:
        """Makes the processed actions the current ones."""
        self.prev_action.copy_(self.action)
        self._pending()
        self._pending = _nothing
        for name, term, actions in self._split(self.action):
            with named(_label(name)):
                term.accept(actions)

    @property
    def following(self) -> tuple[str, ...]:
        """Labels of the terms whose controls follow the state from substep to substep."""
        return tuple(_label(name) for name, term in self._action_terms.items() if term.follows)

    def follow(self, control: torch.Tensor) -> torch.Tensor:
        """Returns the control, (N, nu) fresh, of the next substep, given that of the one before."""
        control = control.clone()
        for name, term in self._action_terms.items():
            if term.follows:
                with named(_label(name)):
                    controls = term.follow()
                check_value(controls, _label(name), torch.float32, self._env.num_envs, columns=True)
                control[:, term.control_ids] = controls
        return control

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        self.action[ids] = 0.0
        self.prev_action[ids] = 0.0
        for name, term in self._action_terms.items():
            with named(_label(name)):
                term.reset(ids)
        return {}


@lru_cache(maxsize=256)
def _label(name: str) -> str:
    return f"actions term {name!r}"


def _nothing() -> None:
    """Stands where no action waits to be accepted."""
