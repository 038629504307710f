"""`unilab explain` of the shipped tasks: 100 columns, and enough in `--json` to compute an observation by hand."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from unilab_core import list_tasks, make_env
from unilab_core.cli import main
from unilab_core.factory import load_env_cfg
from unilab_managers import ManagerBasedRlEnv, ManagerBasedRlEnvCfg
from unilab_managers.declarations import declared_by
from unisim import SimBackend, make_backend

TASK = "velocity-flat-quadruped"
CLEAN = "observations.obs.enable_corruption=false"
TASKS = ["cartpole-balance", "cartpole-swingup", TASK]
Explain = Callable[..., str]


@pytest.fixture
def explain(capsys: pytest.CaptureFixture[str]) -> Explain:
    """Runs `unilab explain` and returns what it prints."""

    def run(*args: str) -> str:
        assert main(["explain", *args]) == 0
        return capsys.readouterr().out

    return run


def test_the_tasks_below_are_all_that_are_shipped():
    assert [task.name for task in list_tasks()] == TASKS


@pytest.mark.parametrize("task", TASKS)
def test_every_task_is_explained_in_at_most_100_columns(explain: Explain, task: str):
    lines = explain(task).splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0] == f"{task} on mujoco"


def test_the_quadruped_is_explained_on_one_long_page_without_the_same_words_again(explain: Explain):
    text = explain(TASK)
    assert len(text.splitlines()) < 110
    assert "noise=U(-0.05, 0.05)" in text
    assert "{FR,FL,RR,RL}_{hip,thigh,calf}" in text
    for word in ("UniformNoise", "joint_pos:", "entity=", "preserve_order=false", "1e+06", "name=robot"):
        assert word not in text
    for prefix in ("sensor:", "site:"):
        assert max(line.count(prefix) for line in text.splitlines()) <= 1


# ---------------------------------------------------------------- an observation, by hand


class Raw:
    """The state of one row as it is stored, and what the managers hold; nothing that is derived from it.

    Attributes:
        qpos: (nq,) float32.
        qvel: (nv,) float32.
    """

    def __init__(self, env: ManagerBasedRlEnv, backend: SimBackend, row: int) -> None:
        self._env, self._backend, self._row = env, backend, row
        self.qpos, self.qvel = self.view("qpos"), self.view("qvel")

    def view(self, key: str) -> np.ndarray:
        """Returns columns of the row as the backend has them."""
        return self._backend.get_state_views((key,))[key][self._row].numpy()

    def command(self, name: str) -> np.ndarray:
        return self._env.command_manager.get_command(name)[self._row].numpy()

    def action(self) -> np.ndarray:
        return self._env.action_manager.action[self._row].numpy()


def _places(joints: Sequence[Mapping[str, Any]]) -> tuple[dict[str, int], dict[str, int]]:
    """Returns where each joint begins in qpos and in qvel, as its kind and the order of the joints tell."""
    widths = {"free": (7, 6), "ball": (4, 3), "slide": (1, 1), "hinge": (1, 1)}
    q, v, in_qpos, in_qvel = 0, 0, {}, {}
    for joint in joints:
        in_qpos[joint["name"]], in_qvel[joint["name"]] = q, v
        q, v = q + widths[joint["kind"]][0], v + widths[joint["kind"]][1]
    return in_qpos, in_qvel


def _into_body(quat: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Turns a world vector into the frame of a wxyz quaternion, in double precision, by its rotation matrix."""
    w, x, y, z = quat.astype(np.float64)
    to_world = np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
    return to_world.T @ vector.astype(np.float64)


def _computed(term: Mapping[str, Any], facts: Mapping[str, Any], raw: Raw) -> np.ndarray:
    """Returns what a term computes, from what its description says of its function, parameters and columns."""
    in_qpos, in_qvel = _places(facts["joints"])
    defaults = {joint["name"]: joint["default_pos"] for joint in facts["joints"]}
    (free,) = [joint["name"] for joint in facts["joints"] if joint["kind"] == "free"]
    quat = raw.qpos[in_qpos[free] + 3 :][:4]
    names = [label.partition("[")[2].rstrip("]") for label in term["columns"]]
    joints = [f"robot/{name}" for name in names]
    params = term["params"]
    match term["func"].rpartition(":")[2]:
        case "base_lin_vel":
            return _into_body(quat, raw.qvel[in_qvel[free] :][:3])
        case "base_ang_vel":
            return raw.qvel[in_qvel[free] + 3 :][:3]
        case "projected_gravity":
            return _into_body(quat, np.array([0.0, 0.0, -1.0]))
        case "joint_pos_rel":
            found = [raw.qpos[in_qpos[joint]] - np.float32(defaults[joint][0]) for joint in joints]
            return np.array(found, np.float32)
        case "joint_vel_rel":
            return np.array([raw.qvel[in_qvel[joint]] for joint in joints], np.float32)
        case "generated_commands":
            return raw.command(params["command_name"])
        case "last_action":
            order = [column["label"] for column in facts["actions"]]
            return raw.action()[[order.index(name) for name in names]]
        case "foot_contact":
            return np.array([min(raw.view(f"sensor:{name}")[0], 1.0) for name in params["sensor_names"]])
        case "foot_height":
            heights = np.array([raw.view(key)[2] for key in term["reads"]], np.float32)
            return heights - np.float32(params["radius"])
        case other:
            raise AssertionError(f"nobody told this test how {other!r} is computed")


def _rebuilt(group: str, facts: Mapping[str, Any], raw: Raw) -> dict[str, np.floating]:
    """Returns the value of every column by its label."""
    columns: dict[str, np.floating] = {}
    for term in facts["terms"]["observations"]:
        if term["name"].partition("/")[0] != group:
            continue
        settings = term["settings"]
        assert settings["noise"] is None, "noise cannot be rebuilt"
        assert (settings["delay_max_lag"], settings["history_length"]) == (0, 1), (
            "this row needs earlier ones"
        )
        values = _computed(term, facts, raw).astype(np.float32)
        if settings["clip"] is not None:
            values = values.clip(*(np.float32(bound) for bound in settings["clip"]))
        if settings["scale"] is not None:
            values = values * np.asarray(settings["scale"], np.float32)
        columns |= dict(zip(term["columns"], values, strict=True))
    return columns


@contextmanager
def _walked(rows: int, seed: int) -> Iterator[tuple[ManagerBasedRlEnv, SimBackend]]:
    """Gives the environment and its backend after half a second of random actions, observations without noise."""
    cfg = load_env_cfg(TASK, num_envs=rows, overrides=[CLEAN])
    assert isinstance(cfg, ManagerBasedRlEnvCfg)
    backend = make_backend("mujoco", cfg.scene, cfg.sim, num_envs=rows, declared=declared_by(cfg))
    with ManagerBasedRlEnv(cfg, backend=backend, seed=seed) as env:
        env.reset()
        for _ in range(25):
            env.step(env.rng.normal(0.0, 0.7, (rows, env.num_actions)))
        yield env, backend


@pytest.mark.parametrize("group", ["obs", "critic"])
def test_an_observation_row_is_rebuilt_from_json_and_the_raw_state_alone(explain: Explain, group: str):
    facts = json.loads(explain(TASK, "--json", "--num-envs", "5", "--set", CLEAN))
    with _walked(5, seed=4) as (env, backend):
        for row in range(5):
            observed = env.state.obs[group][row]
            rebuilt = _rebuilt(group, facts, Raw(env, backend, row))
            assert list(rebuilt) == list(facts["observations"][group])
            expected = np.array(list(rebuilt.values()))
            assert observed.numel() == len(expected)
            # Rotated vectors are rounded differently by one float32 or two; all else is the same number.
            rotated = [label.startswith(("base_lin_vel", "projected_gravity")) for label in rebuilt]
            np.testing.assert_array_equal(observed.numpy()[~np.array(rotated)], expected[~np.array(rotated)])
            np.testing.assert_allclose(observed.numpy(), expected, rtol=0.0, atol=5e-7)


def test_the_rows_rebuilt_are_of_a_robot_that_moves_and_differ_in_every_term(explain: Explain):
    facts = json.loads(explain(TASK, "--json", "--num-envs", "5", "--set", CLEAN))
    with _walked(5, seed=4) as (env, _):
        spread = env.state.obs["critic"].std(dim=0)
        labels = facts["observations"]["critic"]
    still = {label for label, value in zip(labels, spread.tolist(), strict=True) if value == 0.0}
    assert still <= {label for label in labels if label.startswith("foot_contacts")}


def test_noise_lies_within_the_bounds_that_json_gives_times_the_scale(explain: Explain):
    facts = json.loads(explain(TASK, "--json"))
    with make_env(TASK, num_envs=64) as env:
        assert isinstance(env, ManagerBasedRlEnv)
        env.reset()
        env.step(torch.zeros(64, env.num_actions))
        obs = dict(zip(facts["observations"]["obs"], env.state.obs["obs"].T, strict=True))
        clean = dict(zip(facts["observations"]["critic"], env.state.obs["critic"].T, strict=True))
    noisy = 0
    for term in facts["terms"]["observations"]:
        owner, _, _ = term["name"].partition("/")
        if owner != "obs":
            continue
        noise, scale = term["settings"]["noise"], term["settings"]["scale"] or 1.0
        low, high = (noise["n_min"] * scale, noise["n_max"] * scale) if noise else (0.0, 0.0)
        for label in term["columns"]:
            difference = obs[label] - clean[label]
            assert difference.min() >= low - 1e-6, label
            assert difference.max() <= high + 1e-6, label
            assert difference.max() - difference.min() >= 0.8 * (high - low), label
            noisy += noise is not None
    assert noisy == 33


def test_json_tells_what_the_actions_drive_and_from_where(explain: Explain):
    facts = json.loads(explain(TASK, "--json", "--num-envs", "2"))
    actuators = [actuator["name"] for actuator in facts["actuators"]]
    (term,) = facts["terms"]["actions"]
    defaults = {joint["name"]: joint["default_pos"][0] for joint in facts["joints"]}
    with _walked(2, seed=1) as (env, backend):
        action = env.rng.normal(0.0, 0.3, (2, 12))
        env.step(action)
        control = backend.get_state_views(("ctrl",))["ctrl"][0]
    for i, column in enumerate(facts["actions"]):
        assert column["label"] == term["columns"][i]
        target = defaults[column["joint"]] + term["settings"]["scale"] * action[0, i].item()
        place = actuators.index(column["actuator"])
        low, high = facts["actuators"][place]["ctrl_range"]
        assert control[place].item() == pytest.approx(min(max(target, low), high), abs=1e-6)
