"""`unilab bench` times every manager, whatever the phase of the step it is called in, and takes the clock off again."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from manager_support import mujoco_cfg, zeros

from unilab_core import TorchEnv, TorchEnvCfg
from unilab_core.benching.parts import find_parts
from unilab_core.benching.phases import measure_phases
from unilab_managers.profiling import ManagerPhases
from unisim.testing import FakeBackend, make_layout

KINDS = {
    *("actions", "commands", "events", "curriculum", "terminations", "rewards", "metrics", "observations"),
    "recorders",
}


def test_every_manager_is_a_phase_under_its_name_in_the_config():
    with mujoco_cfg().build(backend="mujoco", device="cpu", seed=0, autoreset=True) as env:
        phases = ManagerPhases().phases(env)
        owners = {phase.name: phase.owner for phase in phases if phase.name != "trackers"}
        assert owners == {kind: env.manager(kind) for kind in KINDS}
        assert set(owners.values()) == set(env._managers)
        assert [phase.owner for phase in phases if phase.name == "trackers"] == [env.trackers, env.encoders]


def test_the_package_brings_it_to_the_command():
    assert ManagerPhases in [type(part) for part in find_parts()]


def test_a_step_and_a_reset_ask_every_manager_and_their_classes_come_back():
    with mujoco_cfg(episode_length_s=0.06).build(
        backend="mujoco", device="cpu", seed=0, autoreset=True
    ) as env:
        env.reset()
        before = [type(manager) for manager in env._managers]
        found = measure_phases(env, [zeros(env)] * 3, [ManagerPhases()])  # the third step ends all episodes
        assert [type(manager) for manager in env._managers] == before
        assert type(env).__name__ == "ManagerBasedRlEnv"
    assert {f"reset.{kind}" for kind in KINDS} | KINDS | {"trackers", "reset.trackers"} <= found.keys()
    per_step = {kind: found[kind].calls for kind in KINDS}
    # What the hook calls counts with the hook: two for actions and observations, and timers of events and commands.
    assert per_step["rewards"] == per_step["terminations"] == 2.0
    assert found["reset.rewards"].calls == pytest.approx(1 / 3)


class Bare(TorchEnv):
    """An environment without managers."""

    num_actions = 1
    obs_groups_spec = {"obs": 1}

    @property
    def action_bounds(self) -> Any:
        return -torch.ones(1), torch.ones(1)

    def _control(self, actions: torch.Tensor) -> torch.Tensor:
        return actions

    def _terminations(self) -> Any:
        return self.timed_out, self.timed_out

    def _rewards(self) -> torch.Tensor:
        return torch.ones(self.num_envs)

    def _observe(self, ids: torch.Tensor | None) -> Any:
        return {"obs": torch.zeros(self.num_envs if ids is None else ids.numel(), 1)}

    def _stage_reset(self, ids: torch.Tensor) -> None:
        pass


def test_an_environment_without_managers_has_no_such_phases():
    cfg = TorchEnvCfg.model_validate({"sim": {"timestep": 0.01}})
    with Bare(FakeBackend(make_layout(), 2), cfg) as env:
        assert ManagerPhases().phases(env) == []
