"""Non-finite values: raised by name, or met by ending the row; and a dump that steps again exactly."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from core_support import ScriptedCfg, ScriptedEnv, assert_same, copied, steps, zeros
from twins import assert_twins
from velocity import VelocityCfg, VelocityEnv, actions_of, mujoco_backend

from unilab_core import ConfigError, NanGuardCfg, NonFiniteError
from unilab_core.cli import dispatcher, main
from unilab_core.cli.replay import command
from unilab_core.nan_replay import load_dump, replay_dump
from unisim.testing import Fault

N = 3


def guarded(policy="reset_row", *, max_dumps=0, dump_dir="nan_dumps", **options):
    guard = NanGuardCfg(policy=policy, max_dumps=max_dumps, dump_dir=str(dump_dir))
    cfg = ScriptedCfg(num_envs=N, nan_guard=guard, episode_length_s=20.0)
    return ScriptedEnv(N, cfg=cfg, **options)


def spoil(env, row=1, column=1, value=math.nan, at=None):
    """Makes one observation not finite, in step `at` or in every one."""

    def observe(ids):
        del env.inject["_observe"]
        groups = env._observe(ids)
        env.inject["_observe"] = observe
        if ids is None and at in (None, env.step_counter):
            groups["obs"][row, column] = value
        return groups

    env.inject["_observe"] = observe


# ---------------------------------------------------------------- the default


@pytest.mark.parametrize("guard", [None, NanGuardCfg(max_dumps=0)])
def test_qa_070_a_value_that_is_not_finite_names_group_column_and_row_in_that_very_step(guard):
    env = ScriptedEnv(N, cfg=ScriptedCfg(num_envs=N, nan_guard=guard))
    env.reset()
    spoil(env, at=2)
    steps(env, 1)
    with pytest.raises(
        NonFiniteError, match=r"ScriptedEnv.step: obs is not finite at rows \[1\], columns \['obs\[1\]'\]"
    ):
        env.step(zeros(env))
    assert env.faulted
    env.close()


def test_a_reward_that_is_not_finite_carries_what_the_environment_can_explain():
    env = ScriptedEnv(N)
    env.reset()
    env.inject["_rewards"] = lambda: torch.tensor([0.0, math.nan, 0.0])
    env._explain_non_finite = lambda: "; reward terms ['upright']"
    with pytest.raises(
        NonFiniteError, match=r"reward is not finite at rows \[1\]; reward terms \['upright'\]"
    ):
        env.step(zeros(env))
    env.close()


# ---------------------------------------------------------------- ending the row


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("autoreset", [True, False])
def test_qa_068_a_bad_row_ends_with_reward_zero_and_its_last_finite_observation(value, autoreset):
    with (
        guarded(spread=1.0, seed=3, autoreset=autoreset) as env,
        guarded(spread=1.0, seed=3, autoreset=autoreset, terminate={3: [1]}) as twin,
    ):
        for each in (env, twin):
            each.reset()
        spoil(env, value=value, at=3)
        before = copied(steps(env, 2))
        steps(twin, 2)
        state, other = env.step(zeros(env)), twin.step(zeros(twin))
        assert state.terminated.tolist() == [False, True, False]
        assert state.reward.tolist() == [3.0, 0.0, 3.0]
        assert state.info["nonfinite_rows"].tolist() == [False, True, False]
        assert state.info["log"]["nonfinite_rows"] == 1
        assert "nonfinite_rows" not in other.info
        assert "nonfinite_rows" not in other.info["log"]
        final = state.final_observation["obs"]
        assert torch.equal(final[1], before["obs.obs"][1])
        assert torch.isfinite(state.obs["obs"]).all()
        assert env.nonfinite_count == 1
        rows = [0, 2]
        for name, values in copied(other).items():
            assert torch.equal(copied(state)[name][rows], values[rows]), name
        if autoreset:  # the very same reset follows
            assert torch.equal(state.obs["obs"], other.obs["obs"])
            assert torch.isfinite(state.info["episode"]["return/sum"])
            assert state.info["episode"]["return/sum"].item() == 1.0 + 2.0
        else:
            assert torch.equal(state.obs["obs"][1], final[1])
            for each in (env, twin):
                each.reset(torch.tensor([1]))
        for _ in range(5):
            assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))
        assert "nonfinite_rows" not in env.state.info


def test_qa_068_a_state_that_is_not_finite_ends_its_row_only():
    with guarded(faults=(Fault("nan", at=5, row=1),)) as env, guarded() as twin:
        for each in (env, twin):
            each.reset()
        steps(env, 2)
        steps(twin, 2)
        state, other = env.step(zeros(env)), twin.step(zeros(twin))
        assert state.terminated.tolist() == [False, True, False]
        assert state.reward[1] == 0.0
        for values in (state.obs["obs"], state.final_observation["obs"], state.reward):
            assert torch.isfinite(values).all()
        assert torch.equal(state.obs["obs"][[0, 2]], other.obs["obs"][[0, 2]])
        for _ in range(5):
            state, other = env.step(zeros(env)), twin.step(zeros(twin))
            assert torch.equal(state.obs["obs"][[0, 2]], other.obs["obs"][[0, 2]])
            assert torch.isfinite(state.obs["obs"]).all()


def test_a_reward_alone_that_is_not_finite_is_zero_and_ends_its_row():
    with guarded() as env:
        env.reset()
        env.inject["_rewards"] = lambda: torch.tensor([1.0, 1.0, math.inf])
        state = env.step(zeros(env))
        assert state.reward.tolist() == [1.0, 1.0, 0.0]
        assert state.terminated.tolist() == [False, False, True]


def test_a_row_that_is_bad_twice_in_a_row_still_shows_its_last_finite_observation():
    with guarded(autoreset=False) as env:
        env.reset()
        steps(env, 3)
        last = env.observations()["obs"][1]
        spoil(env)
        assert torch.equal(env.step(zeros(env)).final_observation["obs"][1], last)
        first, _ = env.reset(torch.tensor([1]))
        assert torch.equal(env.step(zeros(env)).final_observation["obs"][1], first["obs"][0])
        assert env.nonfinite_count == 2


@pytest.mark.parametrize("policy", ["raise", "reset_row"])
@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_qa_066_an_action_that_is_not_finite_is_refused_before_physics_naming_its_row(policy, value):
    with guarded(policy) as env, guarded(policy) as twin:
        for each in (env, twin):
            each.reset()
            steps(each, 2)
        actions = zeros(env)
        actions[1] = value
        with pytest.raises(NonFiniteError, match=r"ScriptedEnv.step: actions is not finite at rows \[1\]"):
            env.step(actions)
        assert not env.faulted
        assert_twins(env, twin, but=("_action",))  # what the scripted control was given last
        assert_same(copied(env.step(zeros(env))), copied(twin.step(zeros(twin))))


# ---------------------------------------------------------------- dumps


def exploding(tmp_path, policy="raise", **options):
    """A robot on MuJoCo whose gyro reads NaN in row 2 in step 9, two steps after a push; state stays finite."""
    guard = NanGuardCfg(policy=policy, dump_dir=str(tmp_path / "dumps"), **options)

    class Exploding(VelocityEnv):
        def _observe(self, ids):
            groups = super()._observe(ids)
            if ids is None and self.step_counter in (7, 9):
                groups["obs"][2, 9] = math.nan
            return groups

    env = Exploding(mujoco_backend(4), cfg=VelocityCfg(num_envs=4, nan_guard=guard), seed=3)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    for _ in range(6):
        env.step(actions_of(env, generator))
    return env, generator


def test_qa_070_the_state_before_the_step_is_dumped_once_and_replays_exactly(tmp_path):
    env, generator = exploding(tmp_path)
    with pytest.raises(
        NonFiniteError, match=r"rows \[2\], columns \['obs\[9\]'\]; dump written to .*nan_000000007.pt"
    ):
        env.step(actions_of(env, generator))  # step 7 also pushes rows: the dump is of physics, not of events
    env.close()
    (path,) = (tmp_path / "dumps").iterdir()
    report = replay_dump(path)
    assert report.exact
    assert report.rows == (2,)
    assert report.non_finite == ()
    assert "obs is not finite at rows [2]" in report.message
    assert path.stat().st_size < 50_000
    assert set(load_dump(path)) >= {"snapshot", "ctrl", "after", "cfg", "declared", "num_envs"}


@pytest.mark.parametrize(("max_dumps", "expected"), [(0, 0), (1, 1), (5, 2)])
def test_dumps_are_bounded(tmp_path, max_dumps, expected):
    env, generator = exploding(tmp_path, "reset_row", max_dumps=max_dumps)
    with env:
        for _ in range(6):
            env.step(actions_of(env, generator))
        assert env.nonfinite_count == 2
    found = list((tmp_path / "dumps").glob("*")) if (tmp_path / "dumps").exists() else []
    assert len(found) == expected
    assert all(replay_dump(path).exact for path in found)


def test_two_environments_never_overwrite_each_others_dump(tmp_path):
    for _ in range(2):
        env, generator = exploding(tmp_path)
        with pytest.raises(NonFiniteError):
            env.step(actions_of(env, generator))
        env.close()
    assert sorted(p.name for p in (tmp_path / "dumps").iterdir()) == [
        "nan_000000007-1.pt",
        "nan_000000007.pt",
    ]


def test_a_dump_that_cannot_be_written_hides_no_finding(tmp_path):
    (tmp_path / "dumps").write_text("a file where the folder should be")
    env, generator = exploding(tmp_path)
    with pytest.raises(
        NonFiniteError, match=r"obs is not finite at rows \[2\].*; no dump written: FileExistsError"
    ):
        env.step(actions_of(env, generator))
    env.close()


@pytest.fixture
def unilab(monkeypatch):
    """The command line with the one command, whatever is installed."""
    entry = SimpleNamespace(name="replay", load=lambda: command)
    monkeypatch.setattr(dispatcher, "entry_points", lambda group: [entry])
    return main


def test_the_command_replays_a_dump(tmp_path, capsys, unilab):
    env, generator = exploding(tmp_path)
    with pytest.raises(NonFiniteError):
        env.step(actions_of(env, generator))
    env.close()
    (path,) = (tmp_path / "dumps").iterdir()
    assert unilab(["replay", str(path)]) == 0
    out = capsys.readouterr().out
    assert "rows: [2]" in out
    assert "replayed exactly" in out


def test_the_command_fails_when_the_step_comes_out_otherwise(tmp_path, capsys, unilab):
    env, generator = exploding(tmp_path)
    with pytest.raises(NonFiniteError):
        env.step(actions_of(env, generator))
    env.close()
    (path,) = (tmp_path / "dumps").iterdir()
    content = load_dump(path)
    content["after"]["qpos"][0, 0] += 1.0
    torch.save(content, path)
    assert unilab(["replay", str(path)]) == 1
    assert "NOT the same as in the run" in capsys.readouterr().out


@pytest.mark.parametrize("kind", ["missing", "garbage", "foreign", "empty", "other_model"])
def test_the_command_calls_a_bad_file_bad_input(kind, tmp_path, capsys, unilab):
    path = tmp_path / "bad.pt"
    if kind == "garbage":
        path.write_bytes(b"not a dump")
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "foreign":
        torch.save({"format": "else"}, path)
    elif kind == "other_model":
        env, generator = exploding(tmp_path)
        with pytest.raises(NonFiniteError):
            env.step(actions_of(env, generator))
        env.close()
        (dump,) = (tmp_path / "dumps").iterdir()
        content = load_dump(dump)
        torch.save({**content, "num_envs": 5}, path)
    assert unilab(["replay", str(path)]) == 2
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert err.startswith(("Error", "Usage"))


def test_a_policy_that_does_not_exist_is_a_config_error():
    with pytest.raises(ConfigError, match="policy"):
        NanGuardCfg(policy="ignore")
