"""Host terms: copies of declared columns, once per read, never stale, counted, and refused where nothing is copied."""

from __future__ import annotations

import pytest
import torch
from core_support import ScriptedEnv, steps, zeros

from unilab_core import (
    CapabilityError,
    ConfigError,
    HostTermRunner,
    ResetRejectedError,
    host_term,
    is_host_term,
)
from unilab_core.host_terms import host_keys
from unisim import TensorExecution
from unisim.testing import FakeBackend, Fault, make_layout

N = 3
runs: list[str] = []


@host_term("qvel", "sensor:imu")
def speed(env, host, gain=1.0):
    """Gain x slider speed + first value of the sensor, (N,)."""
    runs.append("speed")
    assert set(host) == {"qvel", "sensor:imu"}
    assert all(values.device.type == "cpu" for values in host.values())
    return gain * host["qvel"][:, 0] + host["sensor:imu"][:, 0]


class HostEnv(ScriptedEnv):
    """Its reward and its observation are the host term's; `term` may be another."""

    term = staticmethod(speed)
    params: dict = {}

    def __init__(self, num_envs=N, *, execution=TensorExecution.HOST_BRIDGE, faults=(), **options):
        layout = make_layout(sensors={"imu": (3, "velocity")}, sites=("robot/tip",))

        def reads(state):
            return {"sensor:imu": 10.0 * state["qpos"][:, :1].expand(-1, 3)}

        backend = FakeBackend(layout, num_envs, execution=execution, reads=reads, faults=faults)
        super().__init__(num_envs, backend=backend, **options)

    def _build(self) -> None:
        super()._build()
        self.runner = HostTermRunner(self.term, self, "rewards term 'speed'")

    def _rewards(self):
        return self.runner(self, **self.params).clone()

    def _observe(self, ids):
        values = self.runner(self, **self.params)[:, None].expand(-1, 3)
        return {"obs": values if ids is None else values[ids]}


@pytest.fixture
def env():
    with HostEnv() as made:
        made.reset()
        runs.clear()
        yield made


def expected(env):
    qpos, qvel = env._io.column("qpos"), env._io.column("qvel")
    return qvel[:, 0] + 10.0 * qpos[:, 0]


def test_a_host_term_computes_on_copies_of_its_columns(env):
    state = env.step(torch.tensor([[1.0], [0.5], [0.0]]))
    # 2 substeps of 0.01 s at 1 m/s^2: 0.02 m/s, and 0.0003 m of the slider, ten times in the sensor.
    torch.testing.assert_close(state.reward, torch.tensor([0.023, 0.0115, 0.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(state.reward, expected(env))


def test_it_runs_once_per_read_however_often_it_is_asked(env):
    steps(env, 1)
    assert runs == ["speed"]  # for the reward, and kept for the observations
    assert env.runner(env) is env.runner(env)
    steps(env, 2)
    assert runs == ["speed"] * 3


def test_rows_that_were_reset_see_their_new_state(env):
    def stage(ids):
        data = env.scene["robot"].data
        data.write_joint_state(torch.ones(1, 1), torch.ones(1, 1), ids, slice(0, 1))

    env.inject["_stage_reset"] = stage
    env.terminate[2] = [1]
    steps(env, 1)
    state = env.step(torch.ones(N, 1))
    assert state.obs["obs"][1, 0].item() == pytest.approx(11.0)
    torch.testing.assert_close(state.obs["obs"][:, 0], expected(env))
    assert state.final_observation["obs"][1, 0].item() == pytest.approx(0.023, abs=1e-6)


def test_what_an_event_wrote_is_seen_after_the_flush_and_not_before(env):
    seen = []

    def push():
        if env.step_counter == 1:
            data = env.scene["robot"].data
            data.write_joint_state(torch.ones(1, 2), torch.zeros(1, 2), torch.tensor([2]))
            seen.append(env.runner(env).tolist())

    env.inject["_advance"] = push
    state = env.step(zeros(env))
    assert seen == [[0.0, 0.0, 0.0]]
    assert state.obs["obs"][:, 0].tolist() == [0.0, 0.0, 10.0]
    assert len(runs) == 2


def test_other_parameters_compute_it_anew(env):
    env.step(torch.ones(N, 1))
    base = env._io.column("qvel")[:, 0]
    torch.testing.assert_close(env.runner(env, gain=2.0), expected(env) + base)
    torch.testing.assert_close(env.runner(env, gain=1.0), expected(env))


def test_a_loaded_state_computes_it_anew(env):
    before = env.state_dict()
    env.step(torch.ones(N, 1))
    env.load_state_dict(before)
    assert env.runner(env).tolist() == [0.0, 0.0, 0.0]


def test_its_copies_are_its_own(env):
    @host_term("qvel")
    def scribbling(env, host):
        host["qvel"].fill_(7.0)
        return host["qvel"][:, 0].clone()

    with type("Scribbling", (HostEnv,), {"term": staticmethod(scribbling)})() as other:
        other.reset()
        other.step(zeros(other))
        assert other.runner(other).tolist() == [7.0] * N
        assert other._io.column("qvel").tolist() == [[0.0, 0.0]] * N


def test_its_transfers_are_counted_and_told(env):
    before = env.transfer_stats
    steps(env, 1)
    after = env.transfer_stats
    # qvel (2) and the sensor (3) to the host in one transfer, one value per row back.
    moved = 4 * N * (2 + 3) + 4 * N
    assert after.host.transfers - before.host.transfers == 2
    assert after.host.bytes - before.host.bytes == moved
    assert after.host.synchronizations - before.host.synchronizations == 2
    assert after.read.transfers - before.read.transfers == 1
    line = [packet for packet in env.describe().ledger if packet.kind == "host" and packet.when == "step"]
    assert [(p.when, p.transfers, p.num_bytes(), p.who) for p in line] == [
        ("step", 2, moved, "rewards term 'speed'")
    ]


def test_what_was_moved_while_the_environment_was_built_is_not_counted():
    with HostEnv() as env:
        assert env.transfer_stats.host.transfers == 0


def test_its_columns_are_part_of_every_read(env):
    assert env.describe().reads == ("qpos", "qvel", "ctrl", "sensor:imu")


def test_what_it_keeps_is_no_part_of_the_state(env):
    assert not [path for path in env.state_dict()["values"] if "runner" in path]
    assert env.runner._values.shape == (N,)  # though there is something to keep out


class Counting:
    """Returns how often it ran: a term with a memory."""

    def __init__(self) -> None:
        self.runs = torch.zeros(N)

    @host_term("qvel")
    def __call__(self, env, host):
        self.runs += 1
        return self.runs.clone()


class CountingEnv(HostEnv):
    """The memory is reached through the runner alone; a curriculum asks too, at the end of an episode."""

    def _build(self) -> None:
        self.term = Counting()
        super()._build()
        del self.term

    def _on_episodes_end(self, ids) -> None:
        super()._on_episodes_end(ids)
        self.runner(self)


def test_what_a_class_term_remembers_is_state_and_comes_back():
    with CountingEnv() as env, CountingEnv() as other:
        env.reset()
        steps(env, 2)
        path = "runner._call.runs"
        assert [key for key in env.state_dict()["values"] if "runner" in key] == [path]
        other.load_state_dict(env.state_dict())
        assert torch.equal(other.state_dict()["values"][path], env.state_dict()["values"][path])


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("rejected_by", ["a hook", "the backend"])
def test_a_rejected_reset_leaves_it_to_run_as_often_as_a_twin_that_never_tried(rejected_by, kept):
    # The backend counts resets from 0: the first one is number 0.
    faults = (Fault("before_commit", at=1),) if rejected_by == "the backend" else ()
    with CountingEnv(faults=faults) as env, CountingEnv() as twin:
        for each in (env, twin):
            each.reset()
            steps(each, 1)
            if not kept:
                each.runner._version = -1  # the end of an episode is the first to ask
        if rejected_by == "a hook":
            env.inject["_stage_reset"] = lambda ids: 1 / 0
        with pytest.raises(ResetRejectedError):
            env.reset(torch.tensor([1]))
        env.inject.clear()
        assert env.runner._call.runs.tolist() == twin.runner._call.runs.tolist()
        for each in (env, twin):
            each.reset(torch.tensor([1]))
            steps(each, 1)
        assert env.runner._call.runs.tolist() == twin.runner._call.runs.tolist()


def test_it_works_inside_and_outside_of_inference_mode(env):
    with torch.inference_mode():
        env.step(torch.ones(N, 1))
    env.step(torch.ones(N, 1))
    env.reset(torch.tensor([1]))
    with torch.inference_mode():
        env.reset(torch.tensor([0]))
        assert torch.equal(env.step(zeros(env)).reward, expected(env))


def test_in_a_staged_reset_it_is_refused():
    class Staging(HostEnv):
        def _stage_reset(self, ids):
            self.runner(self)

    with pytest.raises(ConfigError, match="rewards term 'speed' is read while a reset is staged"):
        Staging()


def test_a_resident_backend_refuses_it_at_construction_and_names_the_term():
    with pytest.raises(
        CapabilityError,
        match="rewards term 'speed' is a host term, and the state lives on cpu: nothing is copied to the host",
    ):
        HostEnv(execution=TensorExecution.DEVICE_RESIDENT)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (0.5, "TypeError: rewards term 'speed' returned a float, expected a CPU tensor"),
        (torch.zeros(2), r"ValueError: .* returned \(2,\) on cpu, expected \(3, ...\) on cpu"),
        (torch.zeros(()), r"returned \(\) on cpu"),
        (torch.zeros(3, device="meta"), r"returned \(3,\) on meta, .* core moves its result"),
    ],
)
def test_qa_102_what_it_returns_is_checked_at_construction(value, message):
    @host_term("qpos")
    def wrong(env, host):
        return value

    with pytest.raises(ConfigError, match=message):
        type("Wrong", (HostEnv,), {"term": staticmethod(wrong)})()


def test_a_column_that_the_model_does_not_have_is_named():
    @host_term("sensor:imo")
    def lost(env, host):
        return host["sensor:imo"][:, 0]

    with pytest.raises(ConfigError, match="unknown sensor 'imo'; did you mean 'imu'"):
        type("Lost", (HostEnv,), {"term": staticmethod(lost)})()


@pytest.mark.parametrize("keys", [(), ("qpos", "qpos"), ("position",), ("body:",), ("joint:hip",)])
def test_a_key_of_no_known_form_is_refused_where_it_is_written(keys):
    with pytest.raises(ValueError, match="^host_term: "):
        host_term(*keys)


@pytest.mark.parametrize(
    "key", ["qpos", "qvel", "ctrl", "qacc", "actuator_force", "sensor:a", "body:a", "site:a", "substep:a"]
)
def test_every_column_of_a_packet_can_be_named(key):
    assert host_keys(host_term(key)(lambda env, host: None)) == (key,)


def test_functions_and_class_terms_are_told_from_others():
    class Term:
        @host_term("qpos")
        def __call__(self, env, host):
            return host["qpos"][:, 0]

    class Other:
        def __call__(self, env):
            return None

    assert is_host_term(speed)
    assert is_host_term(Term())
    assert is_host_term(Term.__call__)
    assert not is_host_term(Other())
    assert not is_host_term(len)
    assert not is_host_term(3)
    with type("OfClass", (HostEnv,), {"term": Term()})() as env:
        env.reset()
        assert env.step(zeros(env)).reward.tolist() == [0.0] * N


def test_the_ledger_counts_the_run_that_a_reset_adds_to_an_observed_term(env):
    host = [packet for packet in env.describe().ledger if packet.kind == "host"]
    size = 4 * N * (2 + 3) + 4 * N
    assert [(p.when, p.transfers, p.fixed_bytes, p.who) for p in host] == [
        ("step", 2, size, "rewards term 'speed'"),
        ("reset", 2, size, "rewards term 'speed'"),
    ]
    before = env.transfer_stats.host
    env.step(zeros(env))
    stepped = env.transfer_stats.host
    assert (stepped.transfers - before.transfers, stepped.bytes - before.bytes) == (2, size)
    env.reset(torch.tensor([1]))
    after = env.transfer_stats.host
    assert (after.transfers - stepped.transfers, after.bytes - stepped.bytes) == (2, size)
