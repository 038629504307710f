"""Findings, and the door by which a backend brings its own."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from unisim import doctor
from unisim.doctor import BackendDoctor, Finding, find_doctor


class _Doctor(BackendDoctor):
    def checks(self):
        return {"engine": lambda: Finding("engine", "ok", "version 3")}


@pytest.fixture
def _entries(monkeypatch):
    made = {"good": _Doctor, "wrong": dict}
    points = [
        SimpleNamespace(name=name, value=f"m:{name}", load=lambda of=of: of) for name, of in made.items()
    ]
    monkeypatch.setattr(doctor, "entry_points", lambda group: points if group == "unisim.doctors" else [])


def test_a_state_that_is_none_is_refused():
    message = "Finding 'GL': state is 'fine', expected one of \\('ok', 'missing', 'broken', 'note'\\)"
    with pytest.raises(ValueError, match=message):
        Finding("GL", "fine", "")


@pytest.mark.usefixtures("_entries")
def test_a_doctor_is_found_by_the_name_of_its_backend():
    found = find_doctor("good")
    assert isinstance(found, _Doctor)
    assert found.checks()["engine"]() == Finding("engine", "ok", "version 3", remedy="")


@pytest.mark.usefixtures("_entries")
def test_a_backend_need_not_bring_a_doctor():
    assert find_doctor("other") is None


@pytest.mark.usefixtures("_entries")
def test_something_else_behind_the_entry_point_is_named():
    message = "entry point 'wrong' of 'unisim.doctors': m:wrong makes a dict, expected a BackendDoctor"
    with pytest.raises(TypeError, match=message):
        find_doctor("wrong")


@pytest.mark.parametrize("allow", [False, True])
def test_a_backend_compiles_no_kernels_unless_it_says_so(allow):
    assert _Doctor().kernels("a scene", allow_compiling=allow) is None


def test_looking_for_doctors_imports_neither_torch_nor_an_engine(program):
    finished = program("""
import sys
from unisim.doctor import find_doctor
import unisim.sample_scene
for backend in ("mujoco", "mujoco_warp"):
    assert list(find_doctor(backend).checks())[0] == "engine"
heavy = {"torch", "mujoco", "numpy", "warp", "mujoco_warp"} & set(sys.modules)
assert not heavy, heavy
""")
    assert (finished.returncode, finished.stdout, finished.stderr) == (0, "", "")
