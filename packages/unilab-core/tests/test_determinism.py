"""On the CPU the same seed gives the same bits, whatever the number of physics threads."""

from __future__ import annotations

import pytest
import torch
from core_support import assert_same
from twins import differences
from velocity import VelocityEnv, actions_of, mujoco_backend, run

STEPS = 500


def history(num_threads: int, *, seed: int = 3):
    with VelocityEnv(mujoco_backend(num_threads=num_threads), seed=seed) as env:
        env.reset()
        outcomes = run(env, STEPS, torch.Generator().manual_seed(0))
        return outcomes, env.state_dict()


@pytest.fixture(scope="module")
def one_thread():
    return history(1)


@pytest.mark.parametrize("num_threads", [1, 2, 3])
def test_qa_081_the_number_of_physics_threads_changes_no_bit(one_thread, num_threads):
    outcomes, state = history(num_threads)
    for first, second in zip(one_thread[0], outcomes, strict=True):
        assert_same(first, second)
    assert differences(one_thread[1], state) == []


def test_another_seed_gives_another_history(one_thread):
    _, state = history(1, seed=4)
    assert not torch.equal(state["values"]["_obs[obs]"], one_thread[1]["values"]["_obs[obs]"])


@pytest.mark.parametrize("rows", [[0], [5, 2], [1, 2, 3, 4]])
def test_rows_that_are_not_reset_keep_every_bit_on_mujoco(rows):
    with VelocityEnv(mujoco_backend(num_threads=2), seed=3) as env:
        env.reset()
        run(env, 25, torch.Generator().manual_seed(0))
        others = [row for row in range(6) if row not in rows]
        before = env.state_dict()
        env.reset(torch.tensor(rows))
        after = env.state_dict()
        changed = set()
        for part in ("values", "backend"):
            for key, old in before[part].items():
                new = after[part][key]
                if isinstance(old, torch.Tensor) and old.ndim and old.shape[0] == 6:
                    assert differences(old[others], new[others], key) == []
                    if differences(old[rows], new[rows], key):
                        changed.add(key)
        assert {"state", "field:body_mass", "sensordata", "_obs[obs]", "_obs[critic]"} <= changed


def test_qa_077_startup_and_reset_randomisation_follow_the_seed_alone():
    def masses(seed):
        with VelocityEnv(mujoco_backend(), seed=seed) as env:
            env.reset()
            return {name: values.clone() for name, values in env.state_dict()["backend"].items()}

    torch.manual_seed(1)
    first = masses(42)
    torch.rand(17)
    with VelocityEnv(mujoco_backend(), seed=9) as other:
        other.reset()
        second, third = masses(42), masses(43)
    for name in ("field:body_mass", "field:dof_damping", "state"):
        assert torch.equal(first[name], second[name])
        assert not torch.equal(first[name], third[name])


def test_qa_052_randomisation_starts_from_the_stored_values_so_that_it_does_not_drift():
    with VelocityEnv(mujoco_backend(), seed=3) as env:
        nominal = torch.tensor(env.model_layout.fields["body_mass"].nominal)
        for _ in range(30):
            env.reset()
        ratio = env.state_dict()["backend"]["field:body_mass"][:, 1:] / nominal[1:]
        assert ratio.min() >= 0.8 - 1e-6
        assert ratio.max() <= 1.2 + 1e-6
        data = env.scene["robot"].data
        held = data.model_values("body_mass", torch.arange(6))
        assert torch.equal(held, env.state_dict()["backend"]["field:body_mass"][:, 1:].float())


def test_a_push_leaves_the_positions_of_its_rows_to_the_bit():
    with VelocityEnv(mujoco_backend(), seed=3) as env:
        env.reset()
        generator = torch.Generator().manual_seed(0)
        for _ in range(6):
            env.step(actions_of(env, generator))
        seen = {}
        write = env._io.write_rows

        def spy(mask, payload):
            seen["before"] = env.state_dict()["backend"]["state"].clone()
            write(mask, payload)
            seen["after"] = env.state_dict()["backend"]["state"].clone()
            seen["rows"] = payload.env_ids.tolist()
            seen["parts"] = [name for name, _ in payload.parts()]

        env._io.write_rows = spy
        env.step(actions_of(env, generator))
        assert (seen["rows"], seen["parts"]) == ([0, 3], ["qvel"])
        start = 1  # time, then qpos
        nq = env.model_layout.nq
        assert torch.equal(seen["before"][:, : start + nq], seen["after"][:, : start + nq])
        assert torch.equal(seen["before"][[1, 2, 4, 5]], seen["after"][[1, 2, 4, 5]])
