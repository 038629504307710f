"""A rollout waits for the device only where an episode ended."""

from collections import Counter

import pytest
import torch
from rl_support import ScriptedEnv, small_ppo
from torch.utils._python_dispatch import TorchDispatchMode

from unilab_rl import PPO_ALGORITHM
from unilab_rl.tally import RolloutTally

WAITING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal"}


class SyncCounter(TorchDispatchMode):
    """Counts the operators that make the host wait for the device, under `inference_mode` as well."""

    def __init__(self):
        super().__init__()
        self.counts = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        result = func(*args, **(kwargs or {}))
        if name in WAITING:
            self.counts[name] += 1
        elif name in ("index", "index_put", "index_put_") and _has_mask(args[1]):
            self.counts["boolean index"] += 1
        elif name in ("copy_", "_to_copy", "to") and _devices(args, result) > 1:
            self.counts["copy to another device"] += 1
        return result


def _has_mask(indices):
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in indices)


def _devices(args, result):
    return len({each.device for each in (*args, result) if isinstance(each, torch.Tensor)})


def rollout(monkeypatch):
    """Counts what a rollout of 12 steps asks the device outside the environment; time-outs at steps 5 and 10."""
    env = ScriptedEnv()
    learner = PPO_ALGORITHM.make_learner(
        env, small_ppo(desynchronize_episodes=False, num_steps_per_env=12), seed=0
    )
    counter = SyncCounter()

    def uncounted(actions, step=env.step):
        before = counter.counts.copy()
        state = step(actions)
        counter.counts = before
        return state

    monkeypatch.setattr(env, "step", uncounted)
    with counter:
        learner._rollout()
    return counter.counts


def test_a_rollout_asks_the_device_once_for_each_step_in_which_an_episode_ended_and_never_else(monkeypatch):
    assert rollout(monkeypatch) == {"nonzero": 2}


def test_a_number_that_is_read_in_every_step_of_the_rollout_would_be_seen(monkeypatch):
    def add(self, log, episode_totals, add=RolloutTally.add):
        float(log["Metrics/step"].sum())
        add(self, log, episode_totals)

    monkeypatch.setattr(RolloutTally, "add", add)
    assert sum(rollout(monkeypatch).values()) == 2 + 12


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad])
@pytest.mark.parametrize(
    "waits",
    [
        lambda x: x.sum().item(),
        lambda x: float(x.sum()),
        lambda x: bool((x > 0).all()),
        lambda x: x[x > 0],
        lambda x: x.masked_select(x > 0),
        lambda x: x.__setitem__(x > 0, torch.zeros(2)),
        lambda x: x.to("meta"),
        lambda x: torch.empty(3, device="meta").copy_(x),
    ],
    ids=[
        *("item", "float", "bool", "boolean index", "masked_select"),
        *("assignment to a boolean index", "to another device", "copy to another device"),
    ],
)
def test_everything_that_waits_is_counted(waits, mode):
    with mode(), SyncCounter() as counter:
        waits(torch.tensor([1.0, 2.0, -1.0]))
    assert sum(counter.counts.values()) == 1


def test_what_does_not_wait_is_not_counted():
    with torch.inference_mode(), SyncCounter() as counter:
        x = torch.arange(3.0)
        x[torch.tensor([0, 2])] = x[torch.tensor([1, 1])] + x.to(torch.float64, copy=True)[:2].float()
    assert not counter.counts
