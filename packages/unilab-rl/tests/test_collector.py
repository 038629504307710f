"""A collector packs what an environment did, keeps nothing that the next step rewrites, and waits for nothing."""

from collections import Counter

import pytest
import torch
from off_policy_support import EchoExplorer, EchoModule, unpack
from rl_support import ScriptedEnv, ScriptedEnvCfg
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_rl.algorithms.bounds import ActionBounds
from unilab_rl.runtime.collector import Collector

WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal"}


def make(env, *, gain=0.5, noise=0.0, warmup_steps=0, seed=0):
    env.reset()
    module = EchoModule()
    module.gain.data.fill_(gain)
    bounds = ActionBounds(torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 4.0]))
    explorer = EchoExplorer(module, noise=noise)
    return Collector(env, explorer, bounds, torch.Generator().manual_seed(seed), warmup_steps=warmup_steps)


def steps(collector, count):
    return [unpack(collector.layout, collector.step()) for _ in range(count)]


def test_an_end_stores_the_final_observation_and_the_next_action_sees_the_new_episode():
    collector = make(ScriptedEnv(ScriptedEnvCfg(steps=2)))
    first, second, third = steps(collector, 3)
    rows = [0.0, 1.0, 2.0, 3.0]
    assert first["obs.obs"].tolist() == [[0.0, row] for row in rows]
    assert first["next_obs.obs"].tolist() == second["obs.obs"].tolist() == [[1.0, row] for row in rows]
    assert second["next_obs.obs"].tolist() == [[2.0, row] for row in rows]
    assert second["next_obs.critic"].tolist() == [[2.0, row, -1.0] for row in rows]
    assert third["obs.obs"].tolist() == [[100.0, row] for row in rows]
    assert [shown["obs"][0, 0].item() for shown in collector.explorer.shown] == [0.0, 1.0, 100.0]
    assert [step["truncated"].tolist() for step in (first, second, third)] == [
        [False] * 4,
        [True] * 4,
        [False] * 4,
    ]
    assert not any(step["terminated"].any() or step["refused"].any() for step in (first, second, third))


def test_terminated_and_truncated_are_kept_apart():
    def terminate(step, age):
        return torch.tensor([True, False, False, False]) & (age == 2)

    collector = make(ScriptedEnv(ScriptedEnvCfg(steps=2), terminate=terminate))
    _, second = steps(collector, 2)
    assert second["terminated"].tolist() == [True, False, False, False]
    assert second["truncated"].tolist() == [True] * 4


def test_only_ends_are_told_to_the_explorer():
    def terminate(step, age):
        return torch.tensor([False, True, False, False]) & torch.tensor(step == 2)

    collector = make(ScriptedEnv(ScriptedEnvCfg(steps=4), terminate=terminate))
    steps(collector, 4)
    assert collector.explorer.ended == [[False, True, False, False], [True, False, True, True]]


def test_the_action_is_stored_as_it_was_given_though_the_environment_clamps_it():
    env = ScriptedEnv()
    collector = make(env, gain=3.0)
    (step,) = steps(collector, 1)
    assert step["actions"].tolist() == [[3.0, 3.0]] * 4
    assert env.received[0].tolist() == [[1.0, 1.0]] * 4
    assert step["rewards"].tolist() == [[0.0]] * 4  # 1 - mean of the squared clamped action


def test_what_was_handed_out_is_not_rewritten():
    collector = make(ScriptedEnv(ScriptedEnvCfg(steps=2)))
    packed = [collector.step() for _ in range(5)]
    again = make(ScriptedEnv(ScriptedEnvCfg(steps=2)))
    for number, rows in enumerate(packed):
        assert torch.equal(rows, again.step()), number


class Guarded(ScriptedEnv):
    """Its guard ends row 2 in the second step."""

    def step(self, actions):
        state = super().step(actions)
        if self.step_counter == 2:
            state.info["nonfinite_rows"] = torch.tensor([False, False, True, False])
        return state


def test_rows_that_the_guard_ended_are_refused():
    collector = make(Guarded())
    flags = [step["refused"].tolist() for step in steps(collector, 3)]
    assert flags == [[False] * 4, [False, False, True, False], [False] * 4]


def test_the_warm_up_is_uniform_within_the_bounds_and_then_the_explorer_acts():
    collector = make(ScriptedEnv(), warmup_steps=200)
    actions = torch.cat([step["actions"] for step in steps(collector, 200)])
    assert collector.explorer.shown == []
    low, high = torch.tensor([-1.0, 0.0]), torch.tensor([1.0, 4.0])
    assert ((actions >= low) & (actions <= high)).all()
    assert torch.allclose(actions.mean(0), (low + high) / 2, atol=0.2)
    assert torch.allclose(actions.std(0), (high - low) / 12**0.5, atol=0.1)
    (after,) = steps(collector, 1)
    assert after["actions"].tolist() == [[0.5, 0.5]] * 4
    assert len(collector.explorer.shown) == 1


def test_logs_and_episodes_are_summed_until_they_are_taken():
    collector = make(ScriptedEnv(ScriptedEnvCfg(steps=2)))
    steps(collector, 3)
    means = collector.take_totals().means()
    assert means == {
        "Metrics/step": 2.0,
        "Episode/count": 4.0,
        "Episode/return": 1.5,
        "Episode/length": 2.0,
        "Episode_Reward/gain": 2.0,
    }
    steps(collector, 2)
    assert collector.take_totals().means()["Metrics/step"] == 4.5
    assert collector.take_totals().means() == {"Episode/count": 0.0}


def test_a_collector_that_is_restored_acts_as_the_other_goes_on():
    env = ScriptedEnv(exact=True)
    collector = make(env, noise=1.0, warmup_steps=3)
    steps(collector, 2)
    state, env_state = collector.state(), env.state_dict()
    expected = [collector.step() for _ in range(4)]
    other = ScriptedEnv(exact=True)
    restored = make(other, noise=1.0, warmup_steps=3, seed=9)
    steps(restored, 1)
    restored.load_state(state)
    other.load_state_dict(env_state)
    assert all(torch.equal(restored.step(), rows) for rows in expected)
    assert restored.steps == 6
    assert state["steps"] == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"steps": -1}, "the collector's steps are -1, expected a count"),
        ({"steps": True}, "the collector's steps are True, expected a count"),
        ({"generator": torch.zeros(3)}, "the collector's generator is tensor.*expected a uint8 tensor"),
        ({"generator": torch.zeros(3, dtype=torch.uint8)}, "the collector's generator can't be used"),
        ({"explorer": {"noise": {}}}, "expected .'generator', 'noise'."),
        ({"stps": 1}, "the collector's state has the unknown entry 'stps'.*'steps'"),
    ],
)
def test_a_state_that_does_not_fit_changes_nothing(change, message):
    collector = make(ScriptedEnv(), noise=1.0, warmup_steps=3)
    before = collector.state()
    with pytest.raises(ValueError, match=message):
        collector.load_state({**before, **change})
    after = collector.state()
    assert after["steps"] == 0
    assert torch.equal(after["generator"], before["generator"])
    assert torch.equal(after["explorer"]["generator"], before["explorer"]["generator"])


class SyncCounter(TorchDispatchMode):
    """Counts the operators that make the host wait for the device."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        if name in WAITING:
            self.counts[name] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("warmup_steps", [0, 100])
def test_a_step_waits_for_the_device_only_inside_the_environment(monkeypatch, warmup_steps):
    env = ScriptedEnv()
    collector = make(env, noise=1.0, warmup_steps=warmup_steps)
    monkeypatch.setattr(collector.explorer, "episodes_ended", lambda done: None)  # the fake's reads it
    counter = SyncCounter()

    def uncounted(actions, step=env.step):
        before = counter.counts.copy()
        state = step(actions)
        counter.counts = before
        return state

    monkeypatch.setattr(env, "step", uncounted)
    with counter:
        for _ in range(12):
            collector.step()
    assert not counter.counts
