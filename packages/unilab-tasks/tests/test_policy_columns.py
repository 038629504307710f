"""A policy reads the columns of its group in the order in which terms are declared, as the description names them."""

from __future__ import annotations

from contextlib import closing

import pytest
import torch

from unilab_core import make_env
from unilab_managers import ManagerBasedRlEnvCfg
from unilab_rl import PpoCfg, get_algorithm
from unilab_rl.contracts.algorithm import LearnerState
from unilab_tasks.cartpole.env_cfg import cartpole_swingup


def _reversed_terms() -> ManagerBasedRlEnvCfg:
    cfg = cartpole_swingup()
    group = cfg.observations["obs"]
    terms = dict(reversed(group.terms.items()))
    return cfg.model_copy(update={"observations": {"obs": group.model_copy(update={"terms": terms})}})


@pytest.mark.parametrize("normalised", [False, True])
def test_check_13_reordered_terms_permute_the_columns_that_a_policy_reads(normalised: bool):
    ppo = get_algorithm("ppo")
    cfg = PpoCfg(actor_hidden_dims=(8,), critic_hidden_dims=(8,), obs_normalization=normalised)
    with (
        closing(make_env(cartpole_swingup(), backend="mujoco", num_envs=4, seed=5)) as first,
        closing(make_env(_reversed_terms(), backend="mujoco", num_envs=4, seed=5)) as second,
    ):
        names, others = (env.describe().observations["obs"] for env in (first, second))
        order = [names.index(name) for name in others]
        assert sorted(order) == [0, 1, 2, 3, 4] != order
        for env in (first, second):
            env.reset()
            for step in range(5):
                env.step(torch.full((4, 1), 0.1 * step))
        one, two = (env.observations() for env in (first, second))
        assert torch.equal(two["obs"], one["obs"][:, order])
        learner = ppo.make_learner(first, cfg, seed=1)
        learner.iterate()
        state = learner.state()
        actor, normalizer = dict(state.learner["actor"]), dict(state.normalizer["actor"])
        actor["mlp.0.weight"] = actor["mlp.0.weight"][:, order]
        for name, value in normalizer.items():
            normalizer[name] = value[:, order] if value.ndim == 2 else value
        permuted = LearnerState(
            state.learner | {"actor": actor}, state.optimizer, state.normalizer | {"actor": normalizer}
        )
        expected = ppo.make_policy(first, cfg, state)(one)
        torch.testing.assert_close(ppo.make_policy(second, cfg, permuted)(two), expected, rtol=0, atol=1e-6)
        assert not torch.allclose(ppo.make_policy(second, cfg, state)(two), expected, rtol=0, atol=1e-3)
