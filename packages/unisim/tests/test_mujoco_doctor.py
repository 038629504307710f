"""What the MuJoCo backend finds on a machine, and the scene by which backends are tried."""

from __future__ import annotations

import importlib.util
import subprocess
from types import SimpleNamespace

import mujoco
import pytest
import torch

from unisim import CapabilityError, make_backend
from unisim.backends.mujoco import doctor
from unisim.backends.mujoco.doctor import MuJoCoDoctor
from unisim.doctor import Finding
from unisim.render import GL_REMEDY
from unisim.sample_scene import SAMPLE_SIM, sample_scene

INSTALL = "pip install 'unisim[mujoco]>=2.0'"


def check(name: str) -> Finding:
    return MuJoCoDoctor().checks()[name]()


def test_it_looks_at_the_engine_first():
    assert list(MuJoCoDoctor().checks()) == ["engine", "GL"]


def test_an_engine_that_is_there_is_named_with_its_version():
    assert check("engine") == Finding("engine", "ok", f"MuJoCo {mujoco.__version__}")


def test_an_engine_that_is_not_there_is_missing_with_the_extra_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert check("engine") == Finding("engine", "missing", "MuJoCo is not installed", INSTALL)


def test_a_library_of_another_version_is_broken(monkeypatch):
    monkeypatch.setattr(mujoco, "mj_versionString", lambda: "3.2.1")
    text = f"MuJoCo {mujoco.__version__} is installed and its library is 3.2.1"
    assert check("engine") == Finding(
        "engine", "broken", text, f"pip uninstall mujoco mujoco-core; {INSTALL}"
    )


def test_an_engine_that_cannot_be_imported_is_broken_and_says_with_which_gl(program):
    finished = program("""
import os
os.environ["MUJOCO_GL"] = "crayons"
from unisim.backends.mujoco import doctor
doctor._draws_with = lambda way: way == "osmesa"
found = doctor.MuJoCoDoctor().checks()["engine"]()
assert found.state == "broken", found
assert "cannot be imported with MUJOCO_GL='crayons' (RuntimeError: invalid value" in found.text, found
assert found.remedy == "set MUJOCO_GL=osmesa before Python starts; it draws here", found
""")
    assert (finished.returncode, finished.stderr) == (0, "")


def test_an_image_is_really_drawn():
    found = check("GL")
    if found.state != "ok":
        pytest.skip(f"no OpenGL on this machine: {found.text}")
    assert found.text.startswith("draws offscreen with MUJOCO_GL=")


@pytest.mark.parametrize(("chosen", "state"), [("glfw", "broken"), ("", "missing")])
def test_gl_that_does_not_start_is_broken_only_where_it_was_asked_for(monkeypatch, chosen, state):
    def draw():
        raise CapabilityError(f"no display; {GL_REMEDY}")

    tried = []
    monkeypatch.setenv("MUJOCO_GL", chosen)
    monkeypatch.setattr(doctor, "draw_sample", draw)
    monkeypatch.setattr(doctor, "_draws_with", lambda way: tried.append(way))
    assert check("GL") == Finding("GL", state, "no display", GL_REMEDY)
    assert tried == ["egl", "osmesa"]


def test_the_remedy_names_a_way_that_works_here_and_is_not_the_one_that_failed(monkeypatch):
    def draw():
        raise CapabilityError("no driver")

    monkeypatch.setenv("MUJOCO_GL", "EGL")
    monkeypatch.setattr(doctor, "draw_sample", draw)
    monkeypatch.setattr(doctor, "_draws_with", lambda way: True)
    assert check("GL").remedy == "set MUJOCO_GL=osmesa before Python starts; it draws here"


def test_an_image_of_one_value_is_no_image(monkeypatch):
    class Blind:
        closed = 0

        def render(self, row, camera):
            return torch.full((camera.height, camera.width, 3), 7, dtype=torch.uint8)

        def close(self):
            self.closed += 1

    blind = Blind()
    monkeypatch.setattr("unisim.factory.make_backend", lambda *_, **__: blind)
    with pytest.raises(CapabilityError, match="an image was drawn, and every value of it is 7"):
        doctor.draw_sample()
    assert blind.closed == 1


@pytest.mark.parametrize(("result", "draws"), [(0, True), (1, False), (-11, False), (None, False)])
def test_another_way_is_tried_in_a_process_of_its_own(monkeypatch, result, draws):
    def run(arguments, *, env, **_):
        assert env["MUJOCO_GL"] == "osmesa"
        if result is None:
            raise subprocess.TimeoutExpired(arguments, 60)
        return SimpleNamespace(returncode=result)

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    monkeypatch.setattr(doctor, "draw_sample", lambda: (_ for _ in ()).throw(CapabilityError("no")))
    monkeypatch.setattr(doctor, "_HEADLESS", ("osmesa",))
    assert check("GL").remedy.startswith("set MUJOCO_GL=osmesa") is draws


# ---------------------------------------------------------------- the scene


def test_the_sample_scene_has_what_robots_have_and_lands_on_its_foot():
    backend = make_backend("mujoco", sample_scene(), SAMPLE_SIM, num_envs=2)
    layout = backend.model_layout
    assert [joint.kind for joint in layout.joints] == ["free", "hinge"]
    assert [actuator.name for actuator in layout.actuators] == ["hopper/hip"]
    feet = backend.get_sensor_view("feet")[:, 0]
    assert feet.tolist() == [0.0, 0.0]  # starts above the floor
    backend.step_tensor(torch.zeros(2, 1), nsteps=100)  # 0.5 s; the 0.14 m take 0.17 s
    assert backend.get_sensor_view("feet")[:, 0].tolist() == [1.0, 1.0]
    backend.close()
