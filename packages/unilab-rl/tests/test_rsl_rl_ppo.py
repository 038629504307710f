"""PPO bootstraps a time-out from the observation that the episode ended on."""

import pytest
import torch
from rsl_rl.algorithms import PPO
from rsl_rl.models import MLPModel
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict

from unilab_rl.adapters.rsl_rl import FinalObservationPpo

GROUPS = {"actor": ["obs"], "critic": ["obs"]}


class TableCritic(MLPModel):
    """V(observation) = observation."""

    def forward(self, obs, masks=None, hidden_state=None, stochastic_output=False):
        return obs["obs"].clone()


def observation(*values):
    return TensorDict({"obs": torch.tensor(values).reshape(-1, 1)}, batch_size=[len(values)])


def make(kind, steps, rows=1):
    example = observation(*[0.0] * rows)
    actor = MLPModel(
        example, GROUPS, "actor", 1, (4,), distribution_cfg={"class_name": "GaussianDistribution"}
    )
    critic = TableCritic(example, GROUPS, "critic", 1, (4,))
    storage = RolloutStorage("rl", rows, steps, example, [1])
    # Raw advantages can be read only where they are not normalised over the whole batch.
    return kind(actor, critic, storage, gamma=0.99, lam=0.95, normalize_advantage_per_mini_batch=True)


def rollout(kind, *, flag="time_outs"):
    """Values 1, 2, 3, then 4; rewards 1; the episode ends after the second step on a state of value 10."""
    algorithm = make(kind, 3)
    with torch.inference_mode():
        obs = observation(1.0)
        for ended, following in ((False, 2.0), (True, 3.0), (False, 4.0)):
            algorithm.act(obs)
            obs = observation(following)
            done = torch.tensor([ended])
            extras = {"time_outs": done if flag == "time_outs" else torch.zeros_like(done), "log": {}}
            if ended:
                extras["final_observation"] = observation(10.0)
            rewards = torch.ones(1)
            algorithm.process_env_step(obs, rewards, done, extras)
            assert rewards.tolist() == [1.0]
            assert "time_outs" in extras
        algorithm.compute_returns(obs)
    return algorithm.storage.advantages.flatten(), algorithm.storage.returns.flatten()


def test_check_8_qa_001_a_time_out_is_bootstrapped_from_the_value_of_the_final_observation():
    # By hand: delta_1 = 1 + 0.99 * 10 - 2 = 8.9, and nothing passes from step 2 to step 1.
    # delta_0 = 1 + 0.99 * 2 - 1 = 1.98, advantage_0 = 1.98 + 0.99 * 0.95 * 8.9 = 10.35045.
    advantages, returns = rollout(FinalObservationPpo)
    torch.testing.assert_close(advantages, torch.tensor([10.35045, 8.9, 1.96]), rtol=0, atol=1e-5)
    torch.testing.assert_close(returns, torch.tensor([11.35045, 10.9, 4.96]), rtol=0, atol=1e-5)


def test_check_8_stock_ppo_differs_by_the_discounted_difference_of_the_two_values():
    stock, _ = rollout(PPO)
    ours, _ = rollout(FinalObservationPpo)
    assert float(ours[1] - stock[1]) == pytest.approx(0.99 * (10.0 - 2.0), abs=1e-5)
    assert float(stock[1]) == pytest.approx(0.98, abs=1e-5)


def test_a_termination_is_not_bootstrapped_though_there_is_a_final_observation():
    advantages, _ = rollout(FinalObservationPpo, flag="terminated")
    assert float(advantages[1]) == pytest.approx(1.0 - 2.0, abs=1e-6)


def test_only_timed_out_rows_are_bootstrapped_each_from_its_own_final_observation():
    algorithm = make(FinalObservationPpo, 1, rows=4)
    with torch.inference_mode():
        algorithm.act(observation(1.0, 1.0, 1.0, 1.0))
        done = torch.tensor([True, False, True, True])
        extras = {
            "time_outs": torch.tensor([True, False, False, True]),
            "final_observation": observation(10.0, 20.0, 30.0, 40.0),
        }
        algorithm.process_env_step(observation(0.0, 0.0, 0.0, 0.0), torch.ones(4), done, extras)
    expected = torch.tensor([1 + 9.9, 1.0, 1.0, 1 + 39.6])
    torch.testing.assert_close(algorithm.storage.rewards.flatten(), expected)
