"""Recorders: when their hooks are called, with which rows, and what is refused."""

from typing import Any

import pytest
import torch
from action_support import Operators
from manager_support import Feed, MakeEnv, calls, flag, ids, mujoco_cfg, zeros

from unilab_core import ConfigError, EnvFaultedError, ResetRejectedError, reads
from unilab_managers import (
    EventTermCfg,
    ManagerBasedRlEnv,
    ManagerBasedRlEnvCfg,
    RecorderTermCfg,
    TerminationTermCfg,
)

END = {"end": TerminationTermCfg(func=flag)}


class Watcher:
    """Implements every hook and notes its calls, with the lengths of the episodes as the hook sees them."""

    def __init__(
        self, cfg: RecorderTermCfg, env: ManagerBasedRlEnv, tag: str = "watcher", fail: str = ""
    ) -> None:
        self.env, self.tag, self.fail = env, tag, fail
        self.frames = torch.zeros(env.num_envs)

    def _note(self, hook: str, *rest: Any) -> None:
        self.frames += 1
        just_reset = (
            self.env.recorder_manager.just_reset.tolist() if hasattr(self.env, "recorder_manager") else []
        )
        calls.append((self.tag, hook, *rest, self.env.episode_length.tolist(), just_reset))
        if self.fail == hook and "fail" in calls:
            raise ArithmeticError(hook)

    def record_pre_reset(self, env_ids: torch.Tensor) -> None:
        self._note("pre_reset", env_ids.tolist())

    def record_post_reset(self, env_ids: torch.Tensor) -> None:
        self._note("post_reset", env_ids.tolist())

    def record_post_step(self) -> None:
        self._note("post_step")

    def close(self) -> None:
        calls.append((self.tag, "close"))
        if self.fail == "close":
            raise ArithmeticError(self.tag)


class OnlySteps:
    """Implements one hook."""

    def __init__(self, cfg: RecorderTermCfg, env: ManagerBasedRlEnv) -> None:
        self.seen = torch.zeros((), dtype=torch.int64)

    def record_post_step(self) -> None:
        self.seen += 1


class Nothing:
    """Implements none."""

    def __init__(self, cfg: RecorderTermCfg, env: ManagerBasedRlEnv) -> None:
        pass


class Misspelt(OnlySteps):
    """Implements one hook, and nearly another."""

    def record_post_rset(self, env_ids: torch.Tensor) -> None:
        pass


class TakesNothing:
    """Has a constructor that does not fit."""

    def __init__(self) -> None:
        pass

    def close(self) -> None:
        pass


class ReadsProbe(OnlySteps):
    """Reads a sensor in a hook, only after a hundred steps, and says so."""

    @reads("sensor:probe")
    def record_post_step(self) -> None:
        if self.seen > 100:
            raise AssertionError


def watcher(**params: Any) -> RecorderTermCfg:
    return RecorderTermCfg(func=Watcher, params=params)


def test_hooks_are_called_around_steps_and_resets(make_env: MakeEnv) -> None:
    feed = Feed()
    env = make_env(3, feed=feed, terminations=END, recorders={"w": watcher()}, reset=False)
    calls.clear()
    env.reset()
    env.step(zeros(env))
    feed.probe([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    env.step(zeros(env))
    feed.probe([[0.0, 0.0, 0.0]] * 3)
    env.step(zeros(env))
    env.reset(ids(2, 0))
    no = [False] * 3
    assert [call[1:] for call in calls] == [
        ("pre_reset", [0, 1, 2], [0, 0, 0], no),
        ("post_reset", [0, 1, 2], [0, 0, 0], [True] * 3),
        ("post_step", [1, 1, 1], [True] * 3),
        ("post_step", [2, 2, 2], no),  # the row that ends here is not reset yet
        ("pre_reset", [1], [2, 2, 2], no),
        ("post_reset", [1], [2, 0, 2], [False, True, False]),
        ("post_step", [3, 1, 3], [False, True, False]),
        ("pre_reset", [0, 2], [3, 1, 3], no),
        ("post_reset", [0, 2], [0, 1, 0], [True, False, True]),
    ]


def test_recorders_are_called_in_order_and_only_with_the_hooks_they_have(make_env: MakeEnv) -> None:
    recorders = {
        "second": watcher(tag="second"),
        "few": RecorderTermCfg(func=OnlySteps),
        "first": watcher(tag="first"),
    }
    env = make_env(1, recorders=recorders)
    calls.clear()
    env.step(zeros(env))
    env.close()
    assert [call[:2] for call in calls] == [
        ("second", "post_step"), ("first", "post_step"), ("second", "close"), ("first", "close"),
    ]  # fmt: skip
    assert env.recorder_manager.active_terms == ("second", "few", "first")


def test_without_recorders_nothing_is_done(make_env: MakeEnv) -> None:
    env, rows = make_env(2), ids(0)
    with Operators() as operators:
        env.recorder_manager.record_pre_reset(rows)
        env.recorder_manager.record_post_reset(rows)
        env.recorder_manager.record_post_step()
    assert operators.names == []
    assert env.recorder_manager.just_reset.tolist() == [False, False]


@pytest.mark.parametrize("hook", ["pre_reset", "post_reset", "post_step"])
def test_a_recorder_that_fails_is_named(make_env: MakeEnv, hook: str) -> None:
    env = make_env(2, recorders={"w": watcher(fail=hook)})
    calls.append("fail")
    if hook == "pre_reset":  # before the commit: nothing has happened
        with pytest.raises(ResetRejectedError, match="recorders term 'w': ArithmeticError: pre_reset"):
            env.reset(ids(0))
        calls.clear()
        env.step(zeros(env))
        return
    with pytest.raises(ArithmeticError) as raised:
        env.reset(ids(0)) if hook == "post_reset" else env.step(zeros(env))
    assert "recorders term 'w'" in raised.value.__notes__
    with pytest.raises(EnvFaultedError):
        env.step(zeros(env))


def rejecting(env: ManagerBasedRlEnv, env_ids: torch.Tensor) -> None:
    if "reject" in calls:
        raise ArithmeticError("no")


def test_a_rejected_reset_is_no_reset_for_a_recorder(make_env: MakeEnv) -> None:
    event = {"rejecting": EventTermCfg(func=rejecting, mode="reset")}
    env = make_env(2, events=event, recorders={"w": watcher()})
    env.step(zeros(env))
    frames = env.recorder_manager._recorders["w"].frames.tolist()
    calls.append("reject")
    with pytest.raises(ResetRejectedError):
        env.reset(ids(1))
    assert env.recorder_manager.just_reset.tolist() == [False, False]
    assert env.recorder_manager._recorders["w"].frames.tolist() == frames


def test_closing_reaches_every_recorder_once_and_raises_the_first_failure(make_env: MakeEnv) -> None:
    recorders = {
        "one": watcher(tag="one", fail="close"), "two": watcher(tag="two", fail="close"), "three": watcher(tag="three")
    }  # fmt: skip
    env = make_env(1, recorders=recorders)
    calls.clear()
    with pytest.raises(ArithmeticError, match="one"):
        env.close()
    assert [call[0] for call in calls] == ["one", "two", "three"]
    env.close()
    assert len(calls) == 3


def test_a_reset_of_the_manager_clears_no_recorder(make_env: MakeEnv) -> None:
    env = make_env(2, recorders={"w": watcher()})
    calls.clear()
    assert env.recorder_manager.reset(slice(None)) == {}
    assert calls == []
    with pytest.raises(TypeError, match="recorders.reset"):
        env.recorder_manager.reset(torch.tensor([True, False]))


def test_what_the_hooks_read_may_be_declared(make_env: MakeEnv) -> None:
    plain = make_env(
        1, observations={"obs": _last_action()}, recorders={"r": RecorderTermCfg(func=OnlySteps)}
    )
    assert "sensor:probe" not in plain.describe().reads
    env = make_env(1, observations={"obs": _last_action()}, recorders={"r": RecorderTermCfg(func=ReadsProbe)})
    assert "sensor:probe" in env.describe().reads


def _last_action() -> Any:
    from manager_support import group

    from unilab_managers import ObservationTermCfg, mdp

    return group(action=ObservationTermCfg(func=mdp.last_action))


def helper(cfg: Any, env: Any) -> None:
    """No class."""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"func": Nothing}, "Nothing implements none of .*record_pre_reset"),
        ({"func": helper}, "helper is no class; a recorder is a class with at least one of"),
        (
            {"func": Misspelt},
            "Misspelt.record_post_rset would never be called; did you mean 'record_post_reset'",
        ),
        ({"func": TakesNothing}, r"takes no \(cfg, env\)"),
        ({"func": Watcher, "params": {"tga": "x"}}, "Watcher has no parameter 'tga'; did you mean 'tag'"),
        ({"func": Watcher, "params": {"env": 1}}, "Watcher has no parameter 'env'"),
        ({"func": OnlySteps, "weight": 1.0}, "unknown key 'weight'"),
    ],
)
def test_recorders_that_cannot_be_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        RecorderTermCfg(**fields)


def test_a_recorder_survives_yaml_and_overrides() -> None:
    cfg = mujoco_cfg(recorders={"w": watcher(tag="mine")})
    assert ManagerBasedRlEnvCfg.from_yaml(cfg.to_yaml()) == cfg
    assert cfg.with_({"recorders.w.params.tag": "yours"}).recorders["w"].params["tag"] == "yours"
    assert cfg.with_({"recorders.w": None}).recorders == {}
    with pytest.raises(ConfigError, match="Watcher has no parameter 'tug'"):
        cfg.with_({"recorders.w.params.tug": "yours"})
