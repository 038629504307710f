"""Proof that each randomisation has an effect: what rows hold differs, and so does a rollout of equal controls."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from unilab_core.writes import declared_writes
from unilab_managers.cfg.events import EventTermCfg
from unilab_managers.cfg.term import called
from unilab_managers.checking.findings import Finding
from unilab_managers.checking.places import Place, equal, observed, place_of
from unilab_managers.checking.under_test import TaskUnderTest, draw_actions, stopping
from unilab_managers.checking.variants import is_point, scattered, without_corruption
from unilab_managers.checking.watching import around_terms, generalised_state, global_rng_kept
from unilab_managers.encoders import EncoderBias
from unilab_managers.env import ManagerBasedRlEnv
from unilab_managers.env_cfg import TermsCfg
from unilab_managers.managers.manager_base import BoundTerm

__all__ = ["check_randomization"]

_CHECK = "randomization"
_STEPS = 30


def check_randomization(task: TaskUnderTest) -> list[Finding]:
    """Runs the task with and without what each event makes of the model, all draws and controls being equal."""
    # No curriculum: it may change the event, and its own numbers would change with the physics.
    cfg = without_corruption(task.hurried).model_copy(update={"curriculum": {}})
    found: list[Finding] = []
    biases = _biases(task, cfg)
    for name, event in task.cfg.events.items():
        drawn = _Drawn(_fields(event), biases.get(name, ()))
        if drawn.names:
            found += _judged(task, cfg, name, event, drawn)
    return found


@dataclass(frozen=True)
class _Drawn:
    """What an event draws for each row.

    Attributes:
        fields: Model fields.
        encoders: Entities whose encoders it makes read wrong.
    """

    fields: tuple[str, ...]
    encoders: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Names of what it draws, for people."""
        return (*self.fields, *(f"the encoder bias of {name!r}" for name in self.encoders))

    def held(self, env: ManagerBasedRlEnv) -> dict[str, list[torch.Tensor]]:
        """Returns what the rows hold of it, (N, ...) for each entity, by name."""
        rows = torch.arange(env.num_envs, device=env.device)
        values = {
            field: [entity.data.model_values(field, rows) for entity in env.scene.values()]
            for field in self.fields
        }
        biases = [[env.encoders.make_bias(name).values.clone()] for name in self.encoders]
        return values | dict(zip(self.names[len(self.fields) :], biases, strict=True))


def _fields(event: EventTermCfg) -> tuple[str, ...]:
    parts = (event.func, called(event.func) or event.func)
    return tuple(dict.fromkeys(field for part in parts for field in declared_writes(part)))


def _biases(task: TaskUnderTest, cfg: TermsCfg) -> dict[str, tuple[str, ...]]:
    """Returns which entities' encoders each event can make read wrong: those whose bias it holds."""
    found: dict[str, tuple[str, ...]] = {}
    with task.env(cfg) as env:
        for name in cfg.events:
            instance = env.event_manager._terms[name].instance
            held = [
                item for item in getattr(instance, "__dict__", {}).values() if isinstance(item, EncoderBias)
            ]
            known = env.encoders._biases.items()
            found[name] = tuple(entity for entity, bias in known if any(bias is item for item in held))
    return found


def _judged(
    task: TaskUnderTest, cfg: TermsCfg, name: str, event: EventTermCfg, drawn: _Drawn
) -> Iterator[Finding]:
    place, listed = Place("events", name), ", ".join(drawn.names)
    point = is_point(event.all_params())
    with task.env(cfg) as env:
        with stopping("reset"):
            env.reset()
        values = drawn.held(env)
    with undone(place, drawn), task.env(cfg) as env:
        with stopping("reset"):
            env.reset()
        plain = drawn.held(env)
    changed = [part for part in drawn.names if not equal(values[part], plain[part])]
    if not changed:
        what = f"it leaves {listed} of every row as it is"
        fix = "check what it writes, to which elements, and whether a later event overwrites it"
        fix = "give its ranges a width, or take it out" if point else fix
        yield Finding(_CHECK, *place, what, fix, kind="note" if point else "finding")
        return
    # Each by itself: another one that differs between rows says nothing of it.
    shared = [
        part for part in changed if _is_shared(values[part]) or _is_shared(_less(values[part], plain[part]))
    ]
    if shared:
        what = f"it changes {', '.join(shared)} by the same in every row"
        fix = "nothing, if its ranges are meant to have no width" if point else "draw for each of env_ids"
        yield Finding(_CHECK, *place, what, fix, kind="note" if point else "finding")
    if not task.is_exact:
        yield task.inexact(_CHECK, "whether what events draw moves anything is not checked")
        return
    verdicts = [_parts_ways(task, variant, place, drawn) for variant in (cfg, scattered(cfg))]
    if not any(verdicts):
        yield _without_effect(place, drawn, is_judged=False in verdicts)


def _without_effect(place: Place, drawn: _Drawn, *, is_judged: bool) -> Finding:
    listed = ", ".join(drawn.names)
    seen = "no row moves otherwise or observes anything else" if drawn.encoders else "no row moves otherwise"
    what = f"it changes {listed}, and {seen} in {_STEPS} steps of equal controls"
    fix = "check whether physics uses it: of two frictions a contact takes the larger, or that of higher priority"
    if drawn.encoders:
        fix = "show what encoders read, as mdp.joint_pos with biased=True, or drive the joints to positions"
    if not is_judged:
        what = (
            f"it changes {listed}; whether that moves anything is not to be seen: every step ends every row"
        )
        fix = "let episodes last"
    return Finding(_CHECK, *place, what, fix, kind="finding" if is_judged else "note")


def _less(values: list[torch.Tensor], plain: list[torch.Tensor]) -> list[torch.Tensor]:
    return [a - b for a, b in zip(values, plain, strict=True)]


def _is_shared(parts: list[torch.Tensor]) -> bool:
    return all(bool((rows == rows[:1]).all()) for rows in parts)


def _parts_ways(task: TaskUnderTest, cfg: TermsCfg, place: Place, drawn: _Drawn) -> bool | None:
    """Returns whether a rollout with the event differs from one without; None if no row ever outlives a step.

    Up to the first difference both draw the same, so that whatever differs first does so because of the event.
    """
    states, lasts = _rollout(task, cfg, is_observed=bool(drawn.encoders))
    with undone(place, drawn):
        plain, _ = _rollout(task, cfg, is_observed=bool(drawn.encoders))
    return not equal(states, plain) if lasts else None


def _rollout(task: TaskUnderTest, cfg: TermsCfg, *, is_observed: bool) -> tuple[list[torch.Tensor], bool]:
    """Returns the state after each step, with observations if wanted, and whether any episode went on after it."""
    states: list[torch.Tensor] = []
    lasts = False
    with global_rng_kept(), task.env(cfg) as env:
        act = draw_actions(env, "random", task.seed)
        with stopping("reset"):
            env.reset()
        for step in range(1, _STEPS + 1):
            with stopping(f"step {step}"):
                state = env.step(act())
            lasts |= not bool((state.terminated | state.truncated).all())
            states += [generalised_state(env), *([observed(env)] if is_observed else [])]
    return states, lasts


def undone(place: Place, drawn: _Drawn) -> Any:  # noqa: ANN401 - a context manager
    """Lets one event run, with all its draws, and puts what it draws for back to what it was before."""

    def around(bound: BoundTerm, leading: tuple[torch.Tensor, ...], call: Callable[[], Any]) -> Any:  # noqa: ANN401
        if place_of(bound.label) != place:
            return call()
        env, ids = bound._env, leading[0]
        assert isinstance(env, ManagerBasedRlEnv)
        parts = [(entity.data, field) for field in drawn.fields for entity in env.scene.values()]
        before = [data.model_values(field, ids) for data, field in parts]
        # Also what it adds to, and whether a later event of the reset adds to what it has drawn.
        biases = [env.encoders.make_bias(name) for name in drawn.encoders]
        tensors = [tensor for bias in biases for tensor in (bias.values, bias._baseline, bias._is_staged)]
        copies = [tensor.clone() for tensor in tensors]
        result = call()
        for (data, field), values in zip(parts, before, strict=True):
            data.write_model(field, values, ids)
        for tensor, copy in zip(tensors, copies, strict=True):
            tensor.copy_(copy)
        return result

    return around_terms(around)
