"""A complete description: every observation column has a name and a unit."""

from __future__ import annotations

from unilab_managers.checking.findings import Finding
from unilab_managers.checking.under_test import TaskUnderTest
from unilab_managers.mdp.labels import column_names, column_unit

__all__ = ["check_description"]

_CHECK = "description"
_FIX = "decorate it: @mdp.columns(unit='rad/s', names=mdp.fixed_columns('x', 'y')); unit '' says that there is none"


def check_description(task: TaskUnderTest) -> list[Finding]:
    """Looks for observation terms that do not say what their columns are called, or what unit they have."""
    found: dict[object, Finding] = {}
    with task.env() as env:
        for group, cfg in task.cfg.observations.items():
            for name, term in cfg.terms.items():
                width = env.observation_manager.settings(group, name)["width"]
                # One column needs no name but that of its term.
                lacks = [] if column_names(term.func) is not None or width == 1 else ["names"]
                lacks += [] if column_unit(term.func) is not None else ["units"]
                if lacks and term.func not in found:
                    count = f"{width} column{'s'[: width != 1]}"
                    what = f"{term.func.__name__} gives its {count} no {' and no '.join(lacks)}"
                    found[term.func] = Finding(_CHECK, "observations", f"{group}/{name}", what, _FIX)
    return list(found.values())
