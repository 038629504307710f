"""A replay refuses what doesn't fit, copies what it is given, and asks the device nothing on the way."""

from collections import Counter

import pytest
import torch
from replay_support import GROUPS, Stream, WaitCounter, every_window, make_replay
from rl_support import ScriptedEnv

from unilab_core import ConfigError, TorchEnvState
from unilab_rl.contracts.off_policy import Batch
from unilab_rl.replay import Replay, TransitionLayout, true_next_observations
from unilab_rl.replay import memory as memory_module
from unilab_rl.replay.memory import available_bytes, check_memory, readable_bytes


def build(**changes):
    settings = {
        "num_envs": 2,
        "capacity": 8,
        "groups": GROUPS,
        "num_actions": 2,
        "n_step": 1,
        "gamma": 0.99,
        "device": "cpu",
        "seed": 0,
    }
    return Replay(**(settings | changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0, expected at least 1"),
        ({"n_step": 0}, "n_step is 0, expected at least 1"),
        (
            {"capacity": 4, "n_step": 4},
            "capacity is 4 steps of each environment and n_step 4, expected a capacity above",
        ),
        ({"capacity": 1}, "capacity is 1 steps"),
        ({"gamma": 1.01}, "gamma is 1.01, expected 0 <= gamma <= 1"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"groups": {}}, "no observation group"),
        ({"groups": {"obs": 0}}, "'obs' has 0 columns, expected at least 1"),
        ({"num_actions": 0}, "'actions' has 0 columns, expected at least 1"),
    ],
)
def test_settings_that_make_no_replay_are_refused(changes, message):
    with pytest.raises(ConfigError, match=message):
        build(**changes)


def test_what_doesnt_fit_into_memory_is_refused_before_anything_is_allocated():
    with pytest.raises(ConfigError) as caught:
        build(num_envs=4096, capacity=10**9)
    # 4 (2 + 1 observations + 2 actions + 1 reward) + 5 bytes
    assert "Replay: 1000000000 steps x 4096 environments x 29 bytes: needs 110626" in str(caught.value)
    assert "lower the capacity of the replay or the number of environments" in str(caught.value)


def test_a_tenth_of_the_memory_stays_for_others(monkeypatch):
    monkeypatch.setattr(memory_module, "available_bytes", lambda _: 1000)
    check_memory("it", 900, torch.device("cpu"), "lower it")
    with pytest.raises(
        ConfigError,
        match="it: needs 901 bytes on cpu, where 1000 bytes are free and 900 bytes may be used; lower it",
    ):
        check_memory("it", 901, torch.device("cpu"), "lower it")


def test_the_limit_of_a_container_counts(tmp_path):
    read = memory_module._container_bytes
    assert read(tmp_path) == 2**63
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("300\n")
    (tmp_path / "memory.stat").write_text("anon 200\ninactive_file 100\n")
    assert read(tmp_path) == 2**63
    (tmp_path / "memory.max").write_text("1000\n")
    assert read(tmp_path) == 800
    (tmp_path / "memory.max").write_text("150\n")
    assert read(tmp_path) == 0
    assert 0 < available_bytes(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(
    ("count", "text"), [(12, "12 bytes"), (1536, "1.50 KiB"), (2**20, "1.00 MiB"), (2**31, "2.00 GiB")]
)
def test_sizes_are_readable(count, text):
    assert readable_bytes(count) == text


def test_a_transition_takes_what_it_says():
    replay = build(num_envs=3, capacity=100)
    assert replay.bytes_per_transition == 4 * (3 + 2 + 1) + 5
    slots = ("rows", "codes", "order")
    held = sum(part.numel() * part.itemsize for name, part in replay._parts().items() if name in slots)
    assert held == 3 * 101 * replay.bytes_per_transition


def test_nothing_can_be_sampled_before_something_is_stored():
    stream = Stream(make_replay())
    with pytest.raises(
        RuntimeError, match="nothing is stored: 0 steps were added and 0 of their rows refused"
    ):
        stream.replay.sample(4)
    stream.add(["refused", "nonfinite"])
    assert not stream.replay.can_sample(1)
    with pytest.raises(
        RuntimeError, match="nothing is stored: 1 steps were added and 2 of their rows refused"
    ):
        stream.replay.sample(4)
    stream.add(["go", "refused"])
    assert stream.replay.can_sample(1)
    assert not stream.replay.can_sample(2)
    assert stream.replay.sample(4).actions[:, 0].eq(0.0).all()
    with pytest.raises(ValueError, match="batch_size is 0, expected at least 1"):
        stream.replay.sample(0)


def test_a_batch_that_was_once_held_stays_one_that_can_be_sampled():
    stream = Stream(make_replay(1, 4))
    for _ in range(4):
        stream.add(["go"])
    assert stream.replay.can_sample(4)
    for _ in range(4):
        stream.add(["terminated"])
    assert len(stream.replay) == 2
    assert stream.replay.can_sample(4)
    assert not stream.replay.can_sample(5)


def test_a_batch_has_the_shapes_and_dtypes_of_its_contract():
    stream = Stream(make_replay(2, 8, n_step=3))
    for _ in range(5):
        stream.add(["go", "truncated"])
    batch = stream.replay.sample(7)
    assert isinstance(batch, Batch)
    shapes = {
        "actions": ((7, 2), torch.float32),
        "rewards": ((7,), torch.float32),
        "discounts": ((7,), torch.float32),
        "terminated": ((7,), torch.bool),
    }
    for name, expected in shapes.items():
        tensor = getattr(batch, name)
        assert (tuple(tensor.shape), tensor.dtype) == expected
    for groups in (batch.obs, batch.next_obs):
        assert {name: (tuple(each.shape), each.dtype) for name, each in groups.items()} == {
            "obs": ((7, 2), torch.float32),
            "critic": ((7, 1), torch.float32),
        }


def test_a_batch_is_not_changed_by_what_is_added_later_nor_the_replay_by_who_has_the_batch():
    stream = Stream(make_replay(1, 4))
    for _ in range(4):
        stream.add(["go"])
    before = every_window(stream.replay)
    batch = stream.replay.sample(8)
    copies = [batch.obs["obs"].clone(), batch.rewards.clone(), batch.next_obs["critic"].clone()]
    for tensor in (batch.actions, batch.obs["critic"], batch.next_obs["obs"]):
        tensor.fill_(99.0)
    assert every_window(stream.replay) == before
    for _ in range(6):
        stream.add(["go"])
    for one, two in zip((batch.obs["obs"], batch.rewards, batch.next_obs["critic"]), copies, strict=True):
        assert torch.equal(one, two)


def test_equal_seeds_draw_equally_and_others_do_not():
    batches = []
    for seed in (3, 3, 4):
        stream = Stream(make_replay(2, 40, seed=seed))
        for _ in range(30):
            stream.add(["go", "go"])
        state = torch.get_rng_state()
        batches.append(stream.replay.sample(32).actions)
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(batches[0], batches[1])
    assert not torch.equal(batches[0], batches[2])


def row(**changes):
    none = torch.zeros(2, dtype=torch.bool)
    parts = {
        "obs": {"obs": torch.zeros(2, 2), "critic": torch.zeros(2, 1)},
        "actions": torch.zeros(2, 2),
        "rewards": torch.zeros(2),
        "next_obs": {"obs": torch.zeros(2, 2), "critic": torch.zeros(2, 1)},
        "terminated": none,
        "truncated": none,
    }
    return parts | changes


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"obs": {"obs": torch.zeros(2, 2)}}, KeyError, r"obs lacks the group 'critic', got \['obs'\]"),
        (
            {"next_obs": {"obs": torch.zeros(2, 2), "critc": torch.zeros(2, 1)}},
            KeyError,
            "next_obs has the unknown group 'critc'; did you mean 'critic'",
        ),
        ({"rewards": torch.zeros(2, 1)}, ValueError, r"rewards has shape \(2, 1\), expected \(2,\)"),
        (
            {"rewards": torch.zeros(2).double()},
            TypeError,
            "rewards has dtype torch.float64, expected torch.float32",
        ),
        ({"actions": torch.zeros(2, 3)}, ValueError, r"actions has shape \(2, 3\), expected \(2, 2\)"),
        (
            {"terminated": torch.zeros(2)},
            TypeError,
            "terminated has dtype torch.float32, expected torch.bool",
        ),
        (
            {"refused": torch.zeros(3, dtype=torch.bool)},
            ValueError,
            r"refused has shape \(3,\), expected \(2,\)",
        ),
        (
            {"obs": {"obs": torch.zeros(2, 3), "critic": torch.zeros(2, 1)}},
            ValueError,
            r"obs\['obs'\] has shape \(2, 3\), expected \(2, 2\)",
        ),
        (
            {"rewards": torch.zeros(2, device="meta")},
            ValueError,
            "rewards is on meta, expected cpu as the actions",
        ),
    ],
)
def test_a_step_that_doesnt_fit_is_refused_by_name_and_changes_nothing(changes, error, message):
    replay = make_replay()
    with pytest.raises(error, match=message):
        replay.add(**row(**changes))
    assert len(replay) == 0
    assert int(replay.refused) == 0


@pytest.mark.parametrize(
    ("packed", "error", "message"),
    [
        (torch.zeros(2, 12).double(), TypeError, "the rows have dtype torch.float64, expected torch.float32"),
        (torch.zeros(3, 12), ValueError, r"the rows have shape \(3, 12\), expected \(2, 12\)"),
        (torch.zeros(2, 12, device="meta"), ValueError, "the rows are on meta, expected cpu"),
    ],
)
def test_packed_rows_that_dont_fit_are_refused(packed, error, message):
    with pytest.raises(error, match=message):
        make_replay().add_rows(packed)


def test_packed_rows_have_the_columns_that_the_layout_says():
    layout = TransitionLayout(GROUPS, 2)
    packed = layout.pack(
        {"critic": torch.tensor([[3.0]]), "obs": torch.tensor([[1.0, 2.0]])},
        torch.tensor([[4.0, 5.0]]),
        torch.tensor([6.0]),
        {"obs": torch.tensor([[7.0, 8.0]]), "critic": torch.tensor([[9.0]])},
        torch.tensor([True]),
        torch.tensor([False]),
        refused=torch.tensor([True]),
    )
    assert packed.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, 1]]
    assert packed.shape[1] == layout.packed_width
    assert {name: view.tolist() for name, view in layout.split_obs(packed).items()} == {
        "obs": [[1, 2]],
        "critic": [[3]],
    }


def test_the_stored_next_observation_is_the_final_one_where_an_episode_ended():
    env = ScriptedEnv()
    replay = Replay(
        env.num_envs, 16, env.obs_groups_spec, env.num_actions, n_step=1, gamma=0.5, device="cpu", seed=0
    )
    env.reset()
    for _ in range(7):
        obs = env.observations()
        actions = torch.zeros(env.num_envs, env.num_actions)
        state = env.step(actions)
        replay.add(
            obs,
            actions,
            state.reward,
            true_next_observations(state),
            state.terminated,
            state.truncated,
            refused=state.info.get("nonfinite_rows"),
        )
    # Observations count the age, 100 more in each episode; it ends at age 5.
    batch = replay.sample(400)
    pairs = set(zip(batch.obs["obs"][:, 0].tolist(), batch.next_obs["obs"][:, 0].tolist(), strict=True))
    ages = sorted(pairs)
    assert [(one % 100, two % 100) for one, two in ages] == [
        (0, 1),
        (1, 2),
        (2, 3),
        (3, 4),
        (4, 5),
        (0, 1),
        (1, 2),
    ]
    assert all(one // 100 == two // 100 for one, two in ages)
    assert not batch.terminated.any()


def test_true_next_observations_are_those_of_the_state_where_no_episode_ended():
    state = TorchEnvState(
        obs={"obs": torch.ones(1, 1)},
        reward=torch.zeros(1),
        terminated=torch.zeros(1, dtype=torch.bool),
        truncated=torch.zeros(1, dtype=torch.bool),
        info={},
    )
    assert true_next_observations(state)["obs"] is state.obs["obs"]
    state.final_observation = {"obs": torch.zeros(1, 1)}
    assert true_next_observations(state)["obs"] is state.final_observation["obs"]


def test_neither_adding_nor_sampling_waits_for_the_device_but_for_the_first_sample():
    flag = torch.tensor([True, False])
    steps = [row(), row(terminated=flag), row(truncated=flag, refused=~flag), row(rewards=torch.rand(2))]
    replay = make_replay(2, 3, n_step=2)
    first = WaitCounter()
    with first:
        replay.add(**steps[0])
        replay.sample(4)
    assert first.counts == Counter({"_local_scalar_dense": 1})
    later = WaitCounter()
    with later:
        for step in steps * 2:
            replay.add(**step)
            replay.sample(16)
        assert replay.can_sample(1)
        replay.interrupt()
        replay.refused + 1
    assert not later.counts


def test_steps_in_and_outside_of_inference_mode_go_together():
    with torch.inference_mode():
        stream = Stream(make_replay(1, 4, n_step=2))
        stream.add(["go"])
    stream.add(["go"])
    with torch.inference_mode():
        stream.add(["truncated"])
    history = stream.history
    assert every_window(stream.replay) == [history.window(*at, 2, 0.5) for at in history.held()]
    weights = torch.ones(2, 1, requires_grad=True)
    (stream.replay.sample(4).obs["obs"] @ weights).sum().backward()
    assert weights.grad is not None


def test_actions_that_still_have_a_graph_leave_none_in_the_replay():
    replay = make_replay()
    replay.add(**row(actions=torch.zeros(2, 2, requires_grad=True) * 2))
    batch = replay.sample(2)
    assert not batch.actions.requires_grad
    assert not batch.obs["obs"].requires_grad
