"""What all managers share: terms bound to an environment, their reset, and their checks."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import torch

from unilab_core.entity_cfg import SceneEntityCfg
from unilab_core.errors import ConfigError, UnknownNameError, nearest
from unilab_core.host_terms import HostTermRunner, is_host_term
from unilab_core.reset_selectors import resolve_reset_env_ids
from unilab_managers.cfg.term import TermCfg

if TYPE_CHECKING:
    from unilab_core.env import TorchEnv

__all__ = ["BoundTerm", "ManagerBase", "Selector", "bind_terms", "check_value", "clearing", "named"]

Selector = torch.Tensor | slice | None


class named:
    """Notes on a failure whose it is, before what is noted already; core puts the notes into its message in order."""

    # A class, for a step enters it some forty times: it takes a quarter of the time of a generator.
    __slots__ = ("_label",)
    row_assigned: ClassVar[tuple[str, ...]] = ()

    def __init__(self, label: str) -> None:
        """Remembers whose it is."""
        self._label = label

    def __enter__(self) -> None:
        """Notes nothing yet."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        """Adds the note, once."""
        if isinstance(error, Exception) and self._label not in getattr(error, "__notes__", ()):
            error.add_note(self._label)
            error.__notes__.insert(0, error.__notes__.pop())  # a term is told before what failed in it


class BoundTerm:
    """A term ready to be called: a function, or an instance of a class term.

    Attributes:
        name: Its name in the config.
        cfg: Its config.
        instance: The object of a class term; None for a function.
        label: Whose it is, for error messages.
        named: Notes `label` on what fails in its block: `with term.named:`.
    """

    row_settings: ClassVar[tuple[str, ...]] = (
        *("name", "label", "named", "cfg", "instance"),
        *("_call", "_bound", "_reset", "_update", "_params", "_applied", "_is_recording"),
    )
    row_assigned: ClassVar[tuple[str, ...]] = ("_params", "_bound", "_changes", "_applied", "_is_recording")

    def __init__(self, name: str, cfg: TermCfg, env: TorchEnv, owner: str) -> None:
        """Instantiates a class term and declares the reads that it names.

        Raises:
            ConfigError: The class cannot be instantiated, or a read does not exist; names manager and term.
        """
        self.name = name
        self.cfg = cfg
        self.label = f"{owner} term {name!r}"
        self.named = named(self.label)
        self._env = env
        self._params = cfg.all_params()  # no read-only view: a default may be what a reset has to undo
        self._changes = self._applied = "{}"
        """JSON of what `set_params` has changed since, and of what of it `_params` shows. A text is state of one form,
        whatever a parameter holds: numbers, mappings, configs. A loaded state brings another one."""
        self._call: Any = cfg.func
        self.instance: object | None = None
        self._reset: Callable[[torch.Tensor], None] | None = None
        self._update: Callable[[TorchEnv], None] | None = None
        with named(self.label):
            if inspect.isclass(cfg.func):
                self._call = self.instance = self._call(cfg, env)
                self._reset = getattr(self._call, "reset", None)
                self._update = getattr(self._call, "update", None)
            for part in (cfg.func, self._call.__call__):  # `@reads` on a function, a class or its `__call__`
                env.scene.declare_reads(part)
            self._declare_class_reads()
            if is_host_term(self._call):
                self._call = HostTermRunner(self._call, env, self.label)
        self._bound = partial(self._call, env, **self._params)
        self._is_recording = True  # until it is called when the reads are frozen, which they stay

    def _declare_class_reads(self) -> None:
        """Reads once what a class term names by `tensor_state_entity` and `tensor_body_names`.

        Raises:
            UnknownNameError: No such entity.
            ValueError: A name matches no body of the entity; the message lists the nearest.
        """
        bodies: Sequence[str] | None = getattr(self.instance, "tensor_body_names", None)
        if bodies:
            name: str = getattr(self.instance, "tensor_state_entity", None) or "robot"
            cfg = SceneEntityCfg(name=name, body_names=tuple(bodies))
            _ = self._env.scene[name].data.bodies(cfg).pos_w  # reading one field registers all of a body

    @property
    def params(self) -> dict[str, Any]:
        """The parameters it is called with: the config's and defaults, as `set_params` has changed them since."""
        return dict(self._params_now())

    def cfg_now(self) -> TermCfg:
        """Returns its config with the parameters it is called with now, without defaults that no config can hold."""
        params = self._params_now()
        try:
            return self.cfg.model_copy(update={"params": params})
        except ConfigError:
            return self._changed_cfg({name: params[name] for name in json.loads(self._changes)})

    def has_changes_of(self, other: BoundTerm) -> bool:
        """Whether `set_params` has changed the same of both, to the same."""
        return self._changes == other._changes

    def _params_now(self) -> dict[str, Any]:
        if self._changes != self._applied:
            self._apply(self._changes, json.loads(self._changes))
        return self._params

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Replaces some of its parameters from the next call on; the others, and the config, stay as they are.

        Raises:
            ConfigError: The term has no such parameter, or it does not take such a value; nothing has changed.
        """
        data = self._changed_cfg(params).to_data()["params"]
        changes = json.loads(self._changes) | {name: data[name] for name in params}
        self._apply(json.dumps(changes), changes)

    def _changed_cfg(self, params: Mapping[str, Any]) -> TermCfg:
        try:
            return self.cfg.model_copy(update={"params": {**self.cfg.params, **params}})
        except ConfigError as error:
            raise ConfigError(f"{self.label}: {error}") from error

    def _apply(self, text: str, changes: Mapping[str, Any]) -> None:
        self._params = self._changed_cfg(changes).all_params()
        self._bound = partial(self._call, self._env, **self._params)
        self._changes = self._applied = text

    def __call__(self, *leading: torch.Tensor) -> Any:  # noqa: ANN401 - each manager checks its own kind
        """Calls the term with the environment, `leading` and its parameters."""
        if self._changes != self._applied:
            self._params_now()
        if self._is_recording:
            scene = self._env.scene
            self._is_recording = scene.is_recording
            if self._is_recording:
                with scene.note_reads(self.label):
                    return self._bound(*leading)
        return self._bound(*leading)

    @property
    def advances(self) -> bool:
        """Whether it is a class term with an `update(env)` to be called in every step."""
        return self._update is not None

    @property
    def clears(self) -> bool:
        """Whether it is a class term with a `reset(env_ids)` to be called for rows that are reset."""
        return self._reset is not None

    def update(self) -> None:
        """Advances a class term that has `update(env)`; a function has nothing to advance."""
        if self._update is not None:
            self._update(self._env)

    def reset(self, env_ids: torch.Tensor) -> None:
        """Clears a class term's rows; a function has none."""
        if self._reset is not None:
            self._reset(env_ids)


def bind_terms(cfgs: Mapping[str, TermCfg], env: TorchEnv, owner: str) -> dict[str, BoundTerm]:
    """Returns the terms of a manager, in the order of declaration."""
    return {name: BoundTerm(name, cfg, env, owner) for name, cfg in cfgs.items()}


def clearing(terms: Mapping[str, BoundTerm]) -> tuple[BoundTerm, ...]:
    """Returns the terms that have something to clear of rows that are reset."""
    return tuple(term for term in terms.values() if term.clears)


def check_value(
    value: object, label: str, dtype: torch.dtype, num_envs: int, *, columns: bool
) -> torch.Tensor:
    """Returns `value` if it is what a manager can use.

    Args:
        value: What a term returned.
        label: Whose, for the error message.
        dtype: The dtype it must have.
        num_envs: N.
        columns: Whether (N, dim) is expected instead of (N,).

    Raises:
        ConfigError: Not a tensor, or of another dtype or shape: `(N, 1)` would broadcast against `(N,)` in silence.
    """
    if (
        isinstance(value, torch.Tensor)
        and value.dtype == dtype
        and value.ndim == (2 if columns else 1)
        and value.size(0) == num_envs
    ):
        return value
    expected = f"({num_envs}, dim)" if columns else f"({num_envs},)"
    if not isinstance(value, torch.Tensor):
        raise ConfigError(f"{label} returned a {type(value).__name__}, expected a tensor {expected}")
    raise ConfigError(f"{label} returned {value.dtype} {tuple(value.shape)}, expected {dtype} {expected}")


class ManagerBase:
    """One kind of terms of one environment.

    Attributes:
        owner: Its name in error messages, for example `"rewards"`.
    """

    row_settings: ClassVar[tuple[str, ...]] = ("_clearing",)

    def __init__(self, owner: str, env: TorchEnv, terms: Mapping[str, TermCfg]) -> None:
        """Binds the terms."""
        self.owner = owner
        self._env = env
        self._terms = bind_terms(terms, env, owner)
        self._clearing = clearing(self._terms)

    @property
    def active_terms(self) -> tuple[str, ...]:
        """Names of the terms, in the order of declaration."""
        return tuple(self._terms)

    def get_params(self, name: str) -> dict[str, Any]:
        """Returns the parameters that a term is called with now; changing the dict changes nothing.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
        """
        return self._term(name).params

    def set_params(self, name: str, **params: Any) -> None:  # noqa: ANN401 - a term's own types
        """Replaces parameters of a term from its next call on; what is not named stays, and so does the config.

        A curriculum's way to change a task. What it sets is state: undone with a rejected reset, kept in checkpoints.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
            ConfigError: The term has no such parameter, or it does not take such a value; nothing has changed.
        """
        self._term(name).set_params(params)

    def cfg_now(self, name: str) -> TermCfg:
        """Returns the config of a term with the parameters that it is called with now.

        Raises:
            UnknownNameError: No such term; the message lists the nearest.
        """
        return self._term(name).cfg_now()

    def _term(self, name: str) -> BoundTerm:
        if name not in self._terms:
            raise UnknownNameError(f"{self.owner}: unknown term {name!r}; {nearest(name, self._terms)}")
        return self._terms[name]

    def row_state_roots(self) -> dict[str, object]:
        """Returns the manager and its class terms by name: where to look for what a rejected reset puts back."""
        instances = {name: term.instance for name, term in self._terms.items() if term.instance is not None}
        return {self.owner: self, **{f"{self.owner}.{name}": item for name, item in instances.items()}}

    def recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        """Returns one labelled call per term that reads what the term reads; checks its result."""
        return []

    def reset(self, env_ids: Selector = None) -> dict[str, torch.Tensor]:
        """Clears rows of all terms.

        Args:
            env_ids: (K,) integer row ids, a slice of the rows, or None for all.

        Returns:
            What there is to say about the rows' episodes: `<key>/sum` and `<key>/count`, 0-d tensors.

        Raises:
            TypeError: A bool mask, or not an integer tensor.
            ValueError: An id out of range or given twice.
        """
        return self.reset_resolved(self._resolve(env_ids, "reset"))

    def reset_resolved(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        """Does what `reset` does for row ids that were resolved before, (K,) int64; asks the device nothing."""
        for term in self._clearing:
            with term.named:
                term.reset(ids)
        return self._reset_rows(ids)

    def _resolve(self, env_ids: Selector, call: str) -> torch.Tensor:
        return resolve_reset_env_ids(
            env_ids, num_envs=self._env.num_envs, device=self._env.device, owner=f"{self.owner}.{call}"
        )

    def _reset_rows(self, ids: torch.Tensor) -> dict[str, torch.Tensor]:
        return {}
