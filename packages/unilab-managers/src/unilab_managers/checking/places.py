"""Whose a value is: from labels, columns and paths of a state to manager and term."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from unilab_managers.env import ManagerBasedRlEnv

__all__ = ["NOBODY", "Place", "differing", "equal", "labelled", "observed", "owner_of", "place_of"]

_LABEL = re.compile(r"(?P<manager>\w+)(?:\.(?P<group>\w+))? term '(?P<term>[^']+)'")


class Place(NamedTuple):
    """A manager and a term of it; both empty: nobody's."""

    manager: str
    term: str


NOBODY = Place("", "")


def place_of(text: str) -> Place:
    """Returns the term that a label, or an error message with a label in it, is about."""
    found = _LABEL.search(text)
    if found is None:
        return NOBODY
    group = found["group"]
    return Place(found["manager"], f"{group}/{found['term']}" if group else found["term"])


def owner_of(env: ManagerBasedRlEnv, path: str) -> Place:
    """Returns the term that a path of `env.state_dict()["values"]` belongs to; only its manager if it is no term's."""
    for manager, terms in _terms(env).items():
        for term in sorted(terms, key=len, reverse=True):
            # An observation's own state lies under its group and name, that of its noise and delay under both.
            for prefix in {f"{manager}.{term}", f"{manager}.{term.replace('/', '.')}"}:
                if path == prefix or path.startswith((f"{prefix}.", f"{prefix}[")):
                    return Place(manager, term)
        if path.startswith(f"{manager}."):
            return Place(manager, "")
    return NOBODY


def _terms(env: ManagerBasedRlEnv) -> Mapping[str, tuple[str, ...]]:
    kinds = ("actions", "commands", "events", "curriculum", "terminations", "rewards", "metrics")
    found = {kind: env.manager(kind).active_terms for kind in kinds}
    return found | {"observations": tuple(env.observation_manager.active_terms)}


def labelled(env: ManagerBasedRlEnv) -> list[tuple[Place, str]]:
    """Returns the term and the label of each column of `observed`, groups side by side."""
    return [
        (Place("observations", f"{group}/{label.partition('[')[0]}"), label)
        for group, labels in env.observation_manager.labels().items()
        for label in labels
    ]


def observed(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Returns all groups of the present observations side by side, (N, C); fresh."""
    groups = env.observations()
    return torch.cat([groups[name] for name in env.observation_manager.labels()], dim=1)


def equal(a: Any, b: Any) -> bool:  # noqa: ANN401 - values of a state
    """Whether two values are the same to the bit; NaN is the same as NaN."""
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        return torch.equal(a, b) or bool(((a == b) | ((a != a) & (b != b))).all())
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(equal(x, y) for x, y in zip(a, b, strict=True))
    return bool(a == b or (a != a and b != b))


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[str]:
    """Yields the keys at which two mappings differ, or that only one has, in the order of the first."""
    for key in dict.fromkeys((*a, *b)):
        if key not in a or key not in b or not equal(a[key], b[key]):
            yield key
