"""Observation terms with state: reading changes nothing, `update` advances once per step, building leaves no trace."""

from __future__ import annotations

import pytest
import torch
from manager_support import MakeEnv, group, ids, mujoco_cfg, zeros
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_core import CapabilityError, ConfigError, EnvRng, SceneEntityCfg, writes
from unilab_managers import EventTermCfg, ManagerBasedRlEnv, ObservationTermCfg, TerminationTermCfg, mdp
from unilab_managers.cfg.term import TermCfg


class Counter:
    """Counts the steps of each row's episode in `update`."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        self.steps = torch.zeros(env.num_envs, 1)

    def update(self, env: ManagerBasedRlEnv) -> None:
        self.steps += 1.0

    def reset(self, env_ids: torch.Tensor) -> None:
        self.steps[env_ids] = 0.0

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        return self.steps.clone()


class Leaky(Counter):
    """Advances where it must not."""

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        self.steps += 1.0
        return self.steps.clone()


def drawing(env: ManagerBasedRlEnv) -> torch.Tensor:
    """Draws from the environment's generator."""
    return env.rng.uniform(0.0, 1.0, (env.num_envs, 1))


def test_a_term_advances_once_per_step_whoever_else_is_reset(make_env: MakeEnv):
    env = make_env(observations={"obs": group(count=ObservationTermCfg(func=Counter))})
    assert env.reset()[0]["obs"].flatten().tolist() == [0.0, 0.0, 0.0]
    env.step(zeros(env))
    env.reset(ids(1))
    assert env.observations()["obs"].flatten().tolist() == [1.0, 0.0, 1.0]
    env.observations()
    assert env.step(zeros(env)).obs["obs"].flatten().tolist() == [2.0, 1.0, 2.0]


def test_a_term_that_changes_itself_when_it_is_read_is_refused(make_env: MakeEnv):
    with pytest.raises(
        ConfigError, match=r"observations.obs term 'count': __call__ changed 'steps'; .* update\(env\)"
    ):
        make_env(observations={"obs": group(count=ObservationTermCfg(func=Leaky))})


def test_construction_draws_nothing_even_where_a_term_draws(make_env: MakeEnv):
    env = make_env(observations={"obs": group(noise=ObservationTermCfg(func=drawing))}, seed=7, reset=False)
    assert torch.equal(env.rng.get_state(), EnvRng(7, "cpu").get_state())


class _Sorts(TorchDispatchMode):
    """Counts how often row ids are checked, which sorts them."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count += func._schema.name in ("aten::sort", "aten::argsort")
        return func(*args, **(kwargs or {}))


def test_a_step_that_resets_rows_checks_their_ids_no_second_time(make_env: MakeEnv):
    env = make_env(episode_length_s=0.02, terminations={"time_out": TerminationTermCfg(func=mdp.time_out)})
    actions = zeros(env)
    with _Sorts() as sorts:
        assert env.step(actions).truncated.all()
    assert sorts.count == 0


class Unseen:
    """Remembers what it has not seen yet as NaN, in a tensor, a number and a list."""

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        self.seen = torch.full((env.num_envs, 1), float("nan"))
        self.last, self.all = float("nan"), [float("nan")]

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        return torch.nan_to_num(self.seen)


def test_a_term_that_remembers_nan_and_changes_nothing_is_accepted(make_env: MakeEnv):
    env = make_env(observations={"obs": group(seen=ObservationTermCfg(func=Unseen))})
    assert env.step(zeros(env)).obs["obs"].flatten().tolist() == [0.0, 0.0, 0.0]


class Hidden:
    """Reads a body only after the first step, and says so as a class of the 1.5 form does."""

    tensor_state_entity = "robot"
    tensor_body_names = ("base",)

    def __init__(self, cfg: TermCfg, env: ManagerBasedRlEnv) -> None:
        pass

    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        if env.step_counter == 0:
            return torch.zeros(env.num_envs, 3)
        return env.scene["robot"].data.bodies(SceneEntityCfg(body_names=("base",))).pos_w[:, 0]


class Misnamed(Hidden):
    """Names a body that the robot does not have."""

    tensor_body_names = ("bsae",)


def test_a_class_term_may_name_the_bodies_that_a_branch_hides(make_env: MakeEnv):
    env = make_env(observations={"obs": group(place=ObservationTermCfg(func=Hidden))})
    assert env.describe().reads[-1] == "body:robot/base"
    env.step(zeros(env))
    env.step(zeros(env))


def test_a_class_term_that_names_an_unknown_body_is_named(make_env: MakeEnv):
    with pytest.raises(
        ConfigError, match="observations.obs term 'place': .*'bsae' matches nothing; did you mean 'base'"
    ):
        make_env(observations={"obs": group(place=ObservationTermCfg(func=Misnamed))})


@writes("body_mass")
def heavier(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    """Declares a model field and writes nothing."""


def test_a_backend_without_the_device_blames_no_term():
    cfg = mujoco_cfg(events={"load": EventTermCfg(func=heavier, mode="reset")})
    with pytest.raises(CapabilityError, match=r"'mps' is not one of") as refused:
        ManagerBasedRlEnv(cfg, device="mps")
    assert "load" not in str(refused.value)


def test_what_a_backend_cannot_do_names_the_terms_that_asked_for_it(monkeypatch: pytest.MonkeyPatch):
    def refuse(*args: object, **options: object) -> None:
        raise CapabilityError("FakeBackend cannot do what is asked: model field 'body_mass' does not exist")

    monkeypatch.setattr("unilab_managers.env.make_backend", refuse)
    cfg = mujoco_cfg(events={"load": EventTermCfg(func=heavier, mode="reset")})
    with pytest.raises(CapabilityError, match=r"'body_mass' .*asked by events term 'load' \(body_mass\)"):
        ManagerBasedRlEnv(cfg)
