"""What a term reads and writes, found out by running it.

It is put into an environment in which nothing else reads or writes anything. While that is built, reads are noted as
`unilab explain` shows them; what it looks at beside physics, and what it writes, is noted in passing.
"""

from __future__ import annotations

import inspect
import itertools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, ClassVar
from unittest import mock

import torch

from _term_scene import ACTUATORS, BESIDE, NAMED, TYPED, scene_cfg
from _terms import KINDS, REQUIRED, Term, first_paragraph, parameters
from unilab_core import CapabilityError, ConfigError
from unilab_core.entity_data import EntityData
from unilab_managers import (
    CurriculumTermCfg,
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    MetricsTermCfg,
    ObservationGroupCfg,
    ObservationTermCfg,
    RecorderTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)
from unilab_managers.encoders import EncoderBias
from unilab_managers.managers import ManagerBase, RewardManager
from unilab_managers.mdp.commands import UniformRanges

__all__ = ["Shown", "try_term"]

_NAME = "term"
_LOOKED_AT = {
    "action_manager": "action",
    "command_manager": "command",
    "encoders": "encoder bias",
    "episode_length": "episode length",
    "reward_manager": "rewards",
    "state": "outcome of the step",
    "step_counter": "step counter",
    "termination_manager": "terminations",
    "timed_out": "episode length",
}
"""What a term may look at beside physics: attribute of the environment, and what it is called."""


@dataclass
class Shown:
    """What a trial has shown.

    Attributes:
        reads: Keys of the read packet with names left out, then what else the term looks at.
        writes: What it writes.
        units: Of the columns of an observation, each once.
        holds: What a command holds, in words.
    """

    reads: dict[str, None] = field(default_factory=dict)
    writes: dict[str, None] = field(default_factory=dict)
    units: tuple[str, ...] = ()
    holds: str = ""


def try_term(term: Term) -> Shown:
    """Returns what running a term shows.

    Raises:
        LookupError: No environment could be built with it; says why the last one could not.
    """
    problem: Exception | None = None
    with tempfile.TemporaryDirectory() as folder:
        for make in _tasks(term):
            shown = Shown()
            watched = type("Watched", (_Watched,), {"kind": term.kind, "shown": shown})
            here = os.getcwd()
            os.chdir(folder)  # where a recorder's files go
            try:
                with _noting(shown), watched(make(), backend="mujoco") as env:
                    _run(env)
                    _describe(env, term, shown)
                return shown
            except (ConfigError, CapabilityError, ValueError, KeyError) as error:
                problem = error
            finally:
                os.chdir(here)
    raise LookupError(f"{term.name}: no environment could be built with it: {problem}") from problem


def _run(env: ManagerBasedRlEnv) -> None:
    env.reset()
    for _ in range(2):
        env.step(torch.zeros(env.num_envs, env.num_actions))
    env.reset(torch.tensor([0]))


def _describe(env: ManagerBasedRlEnv, term: Term, shown: Shown) -> None:
    owner = "observations.obs" if term.kind == "observation" else KINDS[term.kind]
    keys = [*env.scene.reads_of(f"{owner} term {_NAME!r}"), *env.scene.reads_of(_NAME)]
    if term.kind == "command":
        keys += env.scene.reads_of(f"terminations term {_NAME!r}")
    looks = tuple(shown.reads)
    shown.reads.clear()
    shown.reads |= dict.fromkeys(key.partition(":")[0] for key in keys)
    shown.reads |= dict.fromkeys(looks)
    if term.kind == "observation":
        shown.units = tuple(unit for unit in dict.fromkeys(env.describe().units["obs"]) if unit)
    elif term.kind == "command" and inspect.isclass(term.thing):
        shown.holds = first_paragraph(type(env.command_manager.get_term(_NAME)))


# ---------------------------------------------------------------- the tasks that it is tried in


def _tasks(term: Term) -> Iterator[Callable[[], ManagerBasedRlEnvCfg]]:
    """Yields what makes tasks that hold the term, those first in which it finds little beside it."""
    driven = tuple(ACTUATORS) if term.kind == "action" else ("position",)
    for beside, substeps, actuator in itertools.product(BESIDE, (False, True), driven):
        for params in _candidates(term):
            for place in _PLACES[_place_of(term)]:
                yield partial(_task, term, params, place, actuator, substeps, beside)


def _task(
    term: Term,
    params: Mapping[str, Any],
    place: Place,
    actuator: str,
    substeps: bool,
    beside: Mapping[str, Any],
) -> ManagerBasedRlEnvCfg:
    task = scene_cfg(actuator, substeps, beside)
    field_name, terms = place(term.thing, params)
    if field_name not in ("observations", "actions"):  # of these, others would only be in the way
        terms = {**getattr(task, field_name), **terms}
    return task.model_copy(update={field_name: terms})


def _candidates(term: Term) -> Iterator[dict[str, Any]]:
    """Yields values for the parameters that a term cannot do without, then also for those that may be None.

    Raises:
        LookupError: Nobody has said what a parameter could be.
    """
    choices: dict[str, tuple[Any, ...]] = {}
    may_be_none: dict[str, Any] = {}
    for name, (annotation, default) in parameters(term.thing).items():
        plain = annotation.removeprefix("Annotated[").partition(", Field(")[0]
        found = NAMED.get(name) or TYPED.get(plain.removesuffix(" | None"))
        if default is None and found is not None:
            may_be_none[name] = found[0]
        if default is not REQUIRED:
            continue
        if found is None:
            raise LookupError(
                f"{term.name}: nobody has said what its parameter {name!r}: {annotation} could be; add it to NAMED or "
                "TYPED in scripts/_term_scene.py"
            )
        choices[name] = found
    for others in ({}, *([may_be_none] if may_be_none else [])):
        for values in itertools.product(*choices.values()):
            yield {**others, **dict(zip(choices, values, strict=True))}


Place = Callable[[Any, Mapping[str, Any]], tuple[str, dict[str, Any]]]
"""Field of a task, and its terms, that hold a term with its parameters."""


def _made(field_name: str, thing: Any, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    return field_name, {_NAME: thing(**params)}


def _observed(thing: Any, params: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    term = ObservationTermCfg(func=thing, params=params)
    return "observations", {"obs": ObservationGroupCfg(terms={_NAME: term})}


def _bound(field_name: str, config: Callable[..., Any], thing: Any, params: Mapping[str, Any]) -> Any:
    return field_name, {_NAME: config(func=thing, params=params)}


_PLACES: Mapping[str, tuple[Place, ...]] = {
    "observation": (_observed,),
    "action": (partial(_made, "actions"),),
    "command": (partial(_made, "commands"),),
    "condition": (partial(_bound, "terminations", TerminationTermCfg),),
    "reward": (partial(_bound, "rewards", partial(RewardTermCfg, weight=1.0)),),
    "termination": (partial(_bound, "terminations", TerminationTermCfg),),
    **dict.fromkeys(
        ("event", "randomization"),
        tuple(partial(_bound, "events", partial(EventTermCfg, mode=mode)) for mode in ("step", "reset")),
    ),
    "curriculum": tuple(
        partial(_bound, "curriculum", partial(CurriculumTermCfg, mode=mode)) for mode in ("step", "episode")
    ),
    "metric": (partial(_bound, "metrics", MetricsTermCfg),),
    "recorder": (partial(_bound, "recorders", RecorderTermCfg),),
}


def _place_of(term: Term) -> str:
    # What says when a command is replaced may end an episode as well.
    return "condition" if term.kind == "command" and not inspect.isclass(term.thing) else term.kind


# ---------------------------------------------------------------- what is noted in passing


class _Watched(ManagerBasedRlEnv):
    """An environment that also notes what its actions, commands or recorders read, and what its term looks at."""

    kind: ClassVar[str]
    shown: ClassVar[Shown]

    def __getattribute__(self, name: str) -> Any:
        if name in _LOOKED_AT:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            # The commands beside the term look at what is no concern of the term.
            if caller.startswith(mdp.__name__) and (self.kind == "command" or ".commands." not in caller):
                self.shown.reads[_LOOKED_AT[name]] = None
        return super().__getattribute__(name)

    def _noted(self, kind: str, call: Callable[..., Any], *args: object) -> Any:
        if kind != self.kind or not self.scene.is_recording:
            return call(*args)
        with self.scene.note_reads(_NAME):
            return call(*args)

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        control: torch.Tensor = self._noted("action", super()._control, actions)
        return control

    def _follow(self, control: torch.Tensor) -> torch.Tensor:
        following: torch.Tensor = self._noted("action", super()._follow, control)
        return following

    def _after_step(self) -> None:
        self._noted("recorder", super()._after_step)

    def _after_reset(self, ids: torch.Tensor) -> None:
        self._noted("recorder", super()._after_reset, ids)

    def _recordable_calls(self) -> list[tuple[str, Callable[[], object]]]:
        commands = self.command_manager.compute
        return [
            (label, partial(self._noted, "command", commands) if call == commands else call)
            for label, call in super()._recordable_calls()
        ]


def _entity_write(name: str) -> Callable[..., str]:
    if name == "write_model":
        return lambda data, field, *args, **options: f"`{field}`"
    return lambda *args, **options: name.removeprefix("write_").replace("_", " ")


_WRITERS: Mapping[tuple[type, str], Callable[..., str]] = {
    **{(EntityData, name): _entity_write(name) for name in vars(EntityData) if name.startswith("write_")},
    (ManagerBase, "set_params"): lambda manager, *args, **options: f"parameters of {manager.owner}",
    (RewardManager, "set_weight"): lambda *args, **options: "weights of rewards",
    (UniformRanges, "set"): lambda *args, **options: "ranges of commands",
    (UniformRanges, "widen"): lambda *args, **options: "ranges of commands",
    (EncoderBias, "add"): lambda *args, **options: "encoder bias",
}
"""By class and method: what a call of it writes, in words."""


@contextmanager
def _noting(shown: Shown) -> Iterator[None]:
    """Notes what is written while the block lasts."""
    with ExitStack() as stack:
        for (owner, name), words in _WRITERS.items():
            noting = _note(getattr(owner, name), words, shown)
            stack.enter_context(mock.patch.object(owner, name, noting))
        yield


def _note(call: Callable[..., Any], words: Callable[..., str], shown: Shown) -> Callable[..., Any]:
    @wraps(call)
    def noting(*args: Any, **options: Any) -> Any:
        shown.writes[words(*args, **options)] = None
        return call(*args, **options)

    return noting
