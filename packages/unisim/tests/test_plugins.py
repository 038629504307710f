"""A package whose entry points cannot be loaded: named where it is asked for, left out where it is one of many."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import SimpleNamespace

import pytest

import unisim.evidence as evidence
import unisim.factory as factory
from unisim import CapabilityError, ConfigError, SceneCfg, SimCfg, list_backends, make_backend
from unisim.import_strings import import_object
from unisim.plugins import plugin_problem

ABSENT = EntryPoint("absent", "no_such_package_here:create", "unisim.backends")
PROBLEM = (
    "unisim.backends entry point 'absent' (no_such_package_here:create) cannot be loaded: "
    "ModuleNotFoundError: No module named 'no_such_package_here'"
)


def test_a_problem_names_the_package_and_version_that_it_is_of():
    entry = SimpleNamespace(
        name="x", group="g", value="m:f", dist=SimpleNamespace(name="their-package", version="1.2")
    )
    assert plugin_problem(entry, KeyError("k")) == (
        "g entry point 'x' of their-package 1.2 (m:f) cannot be loaded: KeyError: 'k'"
    )


@pytest.mark.parametrize(
    ("raised", "text"),
    [(SystemExit(), "SystemExit"), (SystemExit(3), "SystemExit: 3"), (ValueError(""), "ValueError")],
)
def test_a_backend_whose_package_leaves_is_a_capability_error(raised, text, monkeypatch):
    monkeypatch.setattr(factory, "entry_points", lambda group: [failing(raised)])
    with pytest.raises(CapabilityError) as caught:
        make_backend("failing", SceneCfg(), SimCfg(), num_envs=1)
    assert str(caught.value) == f"backend 'failing': g entry point 'failing' (m:f) cannot be loaded: {text}"


def failing(raised):
    """An entry point whose module raises this."""

    def load():
        raise raised

    return SimpleNamespace(name="failing", group="g", value="m:f", dist=None, load=load)


def test_an_interrupt_is_the_users_and_not_the_packages(monkeypatch):
    for module in (factory, evidence):
        monkeypatch.setattr(module, "entry_points", lambda group: [failing(KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        make_backend("failing", SceneCfg(), SimCfg(), num_envs=1)
    with pytest.raises(KeyboardInterrupt):
        list(evidence.read_recorded("unisim.evidence"))


def test_a_module_that_leaves_when_it_is_imported_is_a_config_error(tmp_path, monkeypatch):
    (tmp_path / "leaves_at_once.py").write_text("raise SystemExit('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match=r"cannot import module 'leaves_at_once' \(no licence\)"):
        import_object("leaves_at_once:f")


def test_a_backend_whose_package_cannot_be_imported_is_listed_and_is_a_capability_error(monkeypatch):
    monkeypatch.setattr(factory, "entry_points", lambda group: [ABSENT])
    assert list_backends() == ("absent",)
    with pytest.raises(CapabilityError) as caught:
        make_backend("absent", SceneCfg(), SimCfg(), num_envs=1)
    assert str(caught.value) == f"backend 'absent': {PROBLEM}"
    assert isinstance(caught.value.__cause__, ModuleNotFoundError)


def test_evidence_of_a_package_that_cannot_be_imported_is_left_out_and_the_others_is_read(
    tmp_path, monkeypatch, caplog
):
    (tmp_path / "theirs.json").write_text('{"schema": 1, "name": "theirs"}')
    theirs = SimpleNamespace(name="theirs", load=lambda: tmp_path)
    leaving = failing(SystemExit(3))
    monkeypatch.setattr(evidence, "entry_points", lambda group: [theirs, leaving, ABSENT])
    assert list(evidence.read_recorded("unisim.evidence")) == [
        ("evidence theirs.json of 'theirs'", {"schema": 1, "name": "theirs"})
    ]
    assert caplog.messages == [
        f"{PROBLEM}; its evidence is left out",
        "g entry point 'failing' (m:f) cannot be loaded: SystemExit: 3; its evidence is left out",
    ]
