"""What holds for every term of the library."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

from unilab_managers import mdp
from unilab_managers.cfg.term import called

KINDS = ("observations", "rewards", "terminations", "metrics")


def terms() -> Iterator[tuple[str, str, Any]]:
    """Yields the kind, the name and the function or class of every public term."""
    for module in pkgutil.iter_modules(mdp.__path__):
        kind = module.name.split("_")[0]
        if kind in KINDS:
            found = importlib.import_module(f"unilab_managers.mdp.{module.name}")
            for name in found.__all__:
                yield kind, name, getattr(found, name)


TERMS = list(terms())


def test_no_two_terms_have_the_same_name() -> None:
    names = [name for _, name, _ in TERMS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(("kind", "name", "term"), TERMS, ids=[name for _, name, _ in TERMS])
def test_a_term_is_public_and_says_what_it_takes_and_returns(kind: str, name: str, term: Any) -> None:
    assert getattr(mdp, name) is term
    assert name in mdp.__all__
    call = called(term)
    assert call is not None
    shape = "(N, " if kind == "observations" else "(N,"
    text = (inspect.getdoc(term) or "") + (inspect.getdoc(call) or "")
    assert shape in text or "(N)" in text, "its docstrings give no shape"
    parameters = list(inspect.signature(call).parameters.values())[1 + inspect.isclass(term) :]
    for parameter in parameters:
        assert parameter.annotation is not inspect.Parameter.empty, parameter.name
        if "SceneEntityCfg" in str(parameter.annotation):
            assert parameter.name in ("asset_cfg", "frame_cfg")


def test_the_names_are_sorted_and_there() -> None:
    assert list(mdp.__all__) == sorted(mdp.__all__)
