"""A term that does not fit is refused at construction; the message names manager, term and parameter."""

import typing
from typing import Any

import pytest
import torch
from manager_support import MakeEnv, NotedTerm, WithoutCall, base_cfg, calls, fails, group, probe

from unilab_core import CapabilityError, ConfigError, ResetRejectedError, SceneEntityCfg, reads
from unilab_managers import (
    ActionTerm,
    ActionTermCfg,
    EventTermCfg,
    ManagerBasedRlEnv,
    ObservationTermCfg,
    RewardTermCfg,
    TerminationTermCfg,
    mdp,
)


def keyword_only(env: Any, *, std: float, **more: float) -> torch.Tensor:
    return torch.ones(env.num_envs)


def no_arguments() -> torch.Tensor:
    return torch.ones(3)


def only_env(env: Any) -> None:
    return None


def optional_entity(env: Any, asset_cfg: "SceneEntityCfg | None" = None) -> torch.Tensor:
    return torch.ones(env.num_envs)


def union_entity(env: Any, asset_cfg: typing.Optional[SceneEntityCfg] = None) -> torch.Tensor:  # noqa: UP045
    return torch.ones(env.num_envs)


def undeclared(env: Any, table: "NotImportedHere") -> torch.Tensor:  # type: ignore[name-defined] # noqa: F821
    return torch.ones(env.num_envs)


def refuses(env: Any) -> torch.Tensor:
    raise CapabilityError("this backend measures no temperature")


@reads("sensor:probe")
def hidden_read(env: ManagerBasedRlEnv) -> torch.Tensor:
    if env.step_counter == 0:
        return torch.zeros(env.num_envs)
    return env.scene.sensor("probe")[:, 0]


@reads("sensor:prob")
def unknown_read(env: ManagerBasedRlEnv) -> torch.Tensor:
    return torch.zeros(env.num_envs)


class HiddenRead:
    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        pass

    @reads("sensor:probe")
    def __call__(self, env: ManagerBasedRlEnv) -> torch.Tensor:
        return hidden_read(env)


class FailsToStart(NotedTerm):
    def __init__(self, cfg: Any, env: ManagerBasedRlEnv) -> None:
        raise RuntimeError("no table of gaits")


class FailsToReset(NotedTerm):
    def reset(self, env_ids: torch.Tensor) -> None:
        raise RuntimeError("no gait")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"indx": 0}, "rewards.one.params: column has no parameter 'indx'; did you mean 'index'"),
        ({}, "rewards.one.params: column needs parameter 'index'"),
        ({"index": 0, "env": 1}, "rewards.one.params: column has no parameter 'env'"),
    ],
)
def test_a_misspelt_or_missing_parameter_names_manager_term_and_parameter(
    params: dict[str, Any], message: str
) -> None:
    data = base_cfg().to_data()
    data["rewards"]["one"] |= {"func": "manager_support:column", "params": params}
    with pytest.raises(ConfigError, match=message):
        type(base_cfg()).model_validate(data)


def test_a_function_with_keyword_arguments_takes_any_name_and_still_needs_its_own() -> None:
    cfg = RewardTermCfg(func=keyword_only, weight=1.0, params={"std": 0.5, "mean": 1.0})
    assert cfg.params == {"std": 0.5, "mean": 1.0}
    with pytest.raises(ConfigError, match="keyword_only needs parameter 'std'"):
        RewardTermCfg(func=keyword_only, weight=1.0, params={"mean": 1.0})


def test_a_function_that_cannot_take_what_the_manager_passes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no_arguments takes 0 arguments; expected \(env, \*\*params\)"):
        RewardTermCfg(func=no_arguments, weight=1.0)
    with pytest.raises(
        ConfigError, match=r"only_env takes 1 arguments; expected \(env, env_ids, \*\*params\)"
    ):
        EventTermCfg(func=only_env, mode="reset")


def test_a_class_term_without_call_is_refused_with_the_form_it_needs() -> None:
    with pytest.raises(
        ConfigError, match=r"WithoutCall has no __call__; define __call__\(self, env, \*\*params\)"
    ):
        RewardTermCfg(func=WithoutCall, weight=1.0)
    with pytest.raises(ConfigError, match=r"def __call__\(self, env, env_ids, \*\*params\)"):
        EventTermCfg(func=WithoutCall, mode="reset")


def test_a_class_term_is_bound_to_the_signature_of_its_call() -> None:
    with pytest.raises(ConfigError, match="NotedTerm has no parameter 'valeu'; did you mean 'value'"):
        RewardTermCfg(func=NotedTerm, weight=1.0, params={"valeu": 1.0})


def test_a_lambda_is_refused() -> None:
    with pytest.raises(ConfigError, match="lambda or a local function"):
        RewardTermCfg(func=lambda env: torch.ones(3), weight=1.0)


@pytest.mark.parametrize("func", [mdp.joint_pos, optional_entity, union_entity])
def test_a_plain_mapping_becomes_the_config_that_the_parameter_declares(func: Any) -> None:
    cfg = ObservationTermCfg(func=func, params={"asset_cfg": {"joint_names": ["hinge"]}})
    assert cfg.params["asset_cfg"] == SceneEntityCfg(joint_names=("hinge",))


def test_a_plain_mapping_becomes_the_config_that_a_class_term_declares() -> None:
    cfg = RewardTermCfg(func=NotedTerm, weight=1.0, params={"value": 1.0, "entity": {"name": "robot"}})
    assert cfg.params["entity"] == SceneEntityCfg(name="robot")


def test_a_plain_mapping_stays_a_mapping_where_no_config_is_declared() -> None:
    cfg = RewardTermCfg(func=undeclared, weight=1.0, params={"table": {"a": 1}})
    assert cfg.params["table"] == {"a": 1}


def test_a_wrong_key_in_a_declared_config_is_named_with_its_term() -> None:
    with pytest.raises(
        ConfigError, match="joint_nams: unknown key 'joint_nams'; did you mean .*'joint_names'"
    ):
        ObservationTermCfg(func=mdp.joint_pos, params={"asset_cfg": {"joint_nams": ["hinge"]}})


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        ({"rewards": {"bad": RewardTermCfg(func=fails, weight=0.0)}}, "rewards term 'bad': KeyError"),
        ({"terminations": {"bad": TerminationTermCfg(func=fails)}}, "terminations term 'bad': KeyError"),
        ({"events": {"bad": EventTermCfg(func=fails, mode="reset")}}, "events term 'bad': KeyError"),
        (
            {
                "observations": {
                    "obs": group(good=ObservationTermCfg(func=probe), bad=ObservationTermCfg(func=fails))
                }
            },
            "observations.obs term 'bad': KeyError",
        ),
        (
            {"rewards": {"bad": RewardTermCfg(func=FailsToStart, weight=1.0, params={"value": 1.0})}},
            "rewards term 'bad': RuntimeError: no table of gaits",
        ),
        (
            {"rewards": {"bad": RewardTermCfg(func=FailsToReset, weight=1.0, params={"value": 1.0})}},
            "rewards term 'bad': RuntimeError: no gait",
        ),
    ],
)
def test_a_term_that_fails_is_named_at_construction(
    make_env: MakeEnv, cfg: dict[str, Any], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(**cfg)


def test_a_term_that_the_backend_cannot_serve_keeps_its_kind_of_error(make_env: MakeEnv) -> None:
    with pytest.raises(CapabilityError, match="measures no temperature"):
        make_env(observations={"obs": group(t=ObservationTermCfg(func=refuses))})


def test_an_unknown_joint_is_named_with_the_term_and_the_nearest_names(make_env: MakeEnv) -> None:
    params = {"asset_cfg": SceneEntityCfg(joint_names=("hing",))}
    with pytest.raises(
        ConfigError, match="observations.obs term 'x': .*'hing' matches nothing; did you mean 'hinge'"
    ):
        make_env(observations={"obs": group(x=ObservationTermCfg(func=mdp.joint_pos, params=params))})


@pytest.mark.parametrize("func", [hidden_read, HiddenRead])
def test_a_declared_read_behind_a_branch_is_served(make_env: MakeEnv, func: Any) -> None:
    env = make_env(
        rewards={"hidden": RewardTermCfg(func=func, weight=1.0)},
        observations={"obs": group(x=ObservationTermCfg(func=mdp.joint_pos))},
    )
    env.step(torch.zeros(3, 2))
    assert "sensor:probe" in env.describe().reads


def test_a_declared_read_that_does_not_exist_names_the_term(make_env: MakeEnv) -> None:
    with pytest.raises(ConfigError, match="rewards term 'bad': KeyError.*'prob'"):
        make_env(rewards={"bad": RewardTermCfg(func=unknown_read, weight=1.0)})


class NoTerm(ActionTermCfg):
    pass


class WideCfg(ActionTermCfg):
    columns: int = 1
    fault: str = ""

    def make(self, env: Any, name: str) -> ActionTerm:
        return Wide(self)


class Wide(ActionTerm):
    """Drives two controls; returns as many columns as its config says."""

    labels = ("a", "b")
    control_ids = slice(0, 2)
    bounds = (-torch.ones(2), torch.ones(2))

    def __init__(self, cfg: WideCfg) -> None:
        self._cfg = cfg

    def process(self, actions: torch.Tensor) -> torch.Tensor:
        if self._cfg.fault == "process":
            raise RuntimeError("no motor table")
        return actions[:, : self._cfg.columns]

    def reset(self, env_ids: torch.Tensor) -> None:
        if self._cfg.fault == "reset":
            raise RuntimeError("no motor state")
        calls.append(("action reset", env_ids.tolist()))


@pytest.mark.parametrize(
    ("cfg", "message"),
    [
        (NoTerm(), "actions term 'drive': NotImplementedError: NoTerm does not implement make"),
        (WideCfg(), r"actions term 'drive' returned \(3, 1\), expected \(3, 2\)"),
        (WideCfg(columns=2, fault="process"), "actions term 'drive': RuntimeError: no motor table"),
        (WideCfg(columns=2, fault="reset"), "actions term 'drive': RuntimeError: no motor state"),
        (mdp.JointEffortActionCfg(entity="robt"), "actions term 'drive': .*'robt'; did you mean 'robot'"),
    ],
)
def test_a_wrong_action_term_is_named_at_construction(
    make_env: MakeEnv, cfg: ActionTermCfg, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        make_env(actions={"drive": cfg})


def test_an_action_terms_own_state_is_reset_with_its_rows(make_env: MakeEnv) -> None:
    env = make_env(actions={"drive": WideCfg(columns=2)})
    calls.clear()
    env.reset(torch.tensor([2, 0]))
    assert calls == [("action reset", [0, 2])]


def test_after_construction_a_failing_reset_event_is_named_and_rejects_the_reset(make_env: MakeEnv) -> None:
    env = make_env(events={"later": EventTermCfg(func=fails_later, mode="reset")})
    calls.append("fail now")
    message = (
        "ManagerBasedRlEnv.reset: events term 'later': ZeroDivisionError: no zero; nothing was committed"
    )
    with pytest.raises(ResetRejectedError, match=message) as caught:
        env.reset(torch.tensor([0]))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert not env.faulted
    calls.clear()
    env.reset(torch.tensor([0]))


def fails_later(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if calls:
        raise ZeroDivisionError("no zero")
