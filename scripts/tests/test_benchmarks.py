"""What is measured against a peer is the same work, in turns, and counted right; no peer is needed to show it.

Needs torch and the packages, which `nox -s dag` has not.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
mujoco = pytest.importorskip("mujoco")
pytest.importorskip("unilab_tasks")

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import peer_cartpole  # noqa: E402 - found through the line above
import peer_envs  # noqa: E402
import ppo  # noqa: E402
from pairing import Compared, ask_once, check_alike, compare, started, trace_difference  # noqa: E402
from peer_envs import PeerError  # noqa: E402
from reporting import load_lines  # noqa: E402
from side import model_facts  # noqa: E402

SCRIPTED = """
import torch
from side import serve

class Counting:
    device = torch.device("cpu")
    num_actions = 1

    def __init__(self, request):
        print("what a library prints is no reply")
        self.num_envs = request["num_envs"]
        if self.num_envs > 8:
            raise ValueError("too many")

    def reset(self):
        self.ages = torch.zeros(self.num_envs, dtype=torch.int64)
        return self.ages[:, None].float()

    def set_ages(self, steps):
        self.ages = steps.clone()

    def step(self, actions):
        self.ages += 1
        done = self.ages >= 5
        observation = torch.where(done, 0, self.ages)[:, None].float()
        self.ages[done] = 0
        return observation, actions[:, 0] * 0.0 + 2.0, done

    def facts(self):
        return {"rows": self.num_envs}

serve(Counting, ("torch", "nobody-has-this"))
"""


@pytest.fixture(scope="module")
def script(tmp_path_factory):
    path = tmp_path_factory.mktemp("sides") / "counting.py"
    path.write_text(SCRIPTED)
    return path


def request(num_envs):
    return {"num_envs": num_envs, "threads": 1}


def test_a_side_answers_in_a_process_of_its_own_whatever_its_library_prints(script):
    with started("counting", Path(sys.executable), script, request(2)) as side:
        assert side.ask("facts") == {"rows": 2}
        assert side.ask("versions")["nobody-has-this"] == "none"
        trace = side.ask("trace", seed=0, steps=6)
        assert trace["observations"] == [[[float(age)]] * 2 for age in (0, 1, 2, 3, 4, 0, 1)]
        assert trace["rewards"] == [[2.0, 2.0]] * 6
        assert trace["ended"] == [[4, 0], [4, 1]]
        side.ask("prepare", seed=0, warmup=3, max_age=1)  # ages begin at 0
        window = side.ask("window", steps=10)
        assert window["ended"] == 4  # of two rows at the ages 5 and 10, three of which passed before
        assert window["seconds"] > 0.0
        assert window["cpu_s"] >= 0.0


def test_a_side_that_ends_early_is_reported_with_its_exit_status(script):
    with (
        started("counting", Path(sys.executable), script, request(1)) as side,
        pytest.raises(PeerError, match="counting ended with 1: it says why above"),
    ):
        side.ask("no such request")
    with pytest.raises(PeerError, match="counting ended with 1: it says why above"):
        ask_once("counting", Path(sys.executable), script, request(9))
    with (
        pytest.raises(PeerError, match="counting ended with 1"),
        started("counting", Path(sys.executable), script, request(9)),
    ):
        pass


class Scripted:
    """A side whose windows take what it is told."""

    def __init__(self, name, seconds, order):
        self.name, self._seconds, self._order = name, iter(seconds), order

    def ask(self, call, **arguments):
        assert (call, arguments) == ("window", {"steps": 10})
        self._order.append(self.name)
        seconds = next(self._seconds)
        return {"seconds": seconds, "cpu_s": 2.0 * seconds, "ended": 3, "idle_cpu_s": 0.5}


def test_sides_take_turns_and_every_other_pair_begins_with_the_other_side():
    order = []
    ours = Scripted("ours", [1.0, 2.0, 1.0, 2.0, 1.0, 2.0], order)
    peer = Scripted("peer", [2.0, 5.0, 2.0, 5.0, 2.0, 5.0], order)
    found = compare([ours, peer], num_envs=4, steps=10, pairs=6)
    assert order == ["ours", "peer", "peer", "ours"] * 3
    assert found.env_steps == 40
    assert found.seconds == ([1.0, 2.0, 1.0, 2.0, 1.0, 2.0], [2.0, 5.0, 2.0, 5.0, 2.0, 5.0])
    assert found.ended == [18, 18]
    assert found.idle_cpu_s == [3.0, 3.0]


def test_ratios_are_those_of_each_pair_and_above_one_where_ours_is_faster():
    found = Compared(env_steps=100, seconds=([1.0] * 7, [1.0, 2.0, 2.0, 2.5, 3.0, 3.0, 4.0]))
    found.cpu_s = ([2.0] * 7, [3.0] * 7)
    assert (found.rate(0).value, found.rate(1).value) == (100.0, 40.0)
    ratio = found.ratio()
    assert (ratio.value, ratio.low, ratio.high) == (2.5, 1.0, 4.0)
    assert found.cpu_ratio().value == 1.5


def test_facts_that_differ_are_all_named():
    ours = {"nv": 2, "timestep": 0.01, "body_mass": [1.0, 0.1], "threads": 2}
    check_alike(ours, ours | {"timestep": 0.01 + 1e-7})
    check_alike(ours, ours | {"threads": 3}, without=["threads"])
    with pytest.raises(PeerError) as caught:
        check_alike(ours, {"nv": 2, "timestep": 0.02, "body_mass": [1.0], "threads": 2, "more": 1})
    assert str(caught.value) == (
        "the two sides would not do the same work; timestep: 0.01 here, 0.02 there; "
        "body_mass: [1.0, 0.1] here, [1.0] there; more: None here, 1 there"
    )


def test_a_trace_differs_by_its_farthest_value():
    ours = {"observations": [[[1.0, 2.0]], [[3.0, 4.0]]], "rewards": [[0.5]], "ended": [[1, 0]]}
    theirs = {"observations": [[[1.0, 2.25]], [[3.0, 3.5]]], "rewards": [[0.5]], "ended": [[1, 0]]}
    assert trace_difference(ours, theirs) == {"observations": 0.5, "rewards": 0.0}
    with pytest.raises(PeerError, match=r"episodes ended at \[\[1, 0\]\] here, at \[\] there"):
        trace_difference(ours, theirs | {"ended": []})
    with pytest.raises(PeerError, match="2 values here, 1 there"):
        trace_difference(ours, theirs | {"observations": [[[1.0, 2.0]]]})


def test_not_a_number_is_no_agreement():
    ours = {"observations": [[1.0]], "rewards": [[0.0]], "ended": []}
    theirs = {"observations": [[float("nan")]], "rewards": [[0.0]], "ended": []}
    assert trace_difference(ours, theirs)["observations"] == float("inf")


@pytest.mark.parametrize("integrator", peer_cartpole.INTEGRATORS)
def test_the_model_for_the_peer_is_ours_to_its_last_number(tmp_path, monkeypatch, integrator):
    file = tmp_path / "cartpole.xml"
    peer_cartpole.write_model(file, integrator, 0.005)
    monkeypatch.syspath_prepend(str(BENCHMARKS / "sides"))
    from ours_cartpole import Ours

    ours = Ours(
        {
            **{"integrator": integrator, "timestep": 0.005, "threads": 1, "decimation": 3, "episode_s": 1.0},
            **{"offsets": peer_cartpole.OFFSETS, "backend": "mujoco", "device": "cpu", "num_envs": 2},
        }
    )
    facts = ours.facts()
    model = model_facts(mujoco.MjModel.from_xml_path(str(file)))
    assert model["timestep"] == 0.005
    check_alike({name: facts[name] for name in model}, model)
    assert {name: value for name, value in facts.items() if name not in model and name != "threads"} == {
        "decimation": 3,
        "episode steps": 67,
        "observation columns": {"obs": 5},
        "observation terms": 3,
        "reward terms": 1,
        "termination terms": 1,
        "reset events": 2,
    }


def test_offsets_of_the_benchmark_are_those_of_the_task():
    from unilab_core.factory import load_env_cfg

    events = load_env_cfg(peer_cartpole.TASK).events
    for name, place in (("cart", "place_cart"), ("pole", "place_pole")):
        for kind in ("position", "velocity"):
            width = peer_cartpole.OFFSETS[f"{name}_{kind}"]
            assert events[place].params[f"{kind}_range"] == (-width, width)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mjlab", "--integrator", "rk4"], "mjlab has no rk4"),
        (["unilab", "--device", "cuda:0"], "UniLab is measured on the CPU"),
        (["mjlab", "--no-body-state"], "leave it out"),
        (["unilab", "--output", "no/such/folder.json"], "there is no folder 'no/such'; make it first"),
        (["unilab", "--pairs", "5"], "at least 6 pairs"),
        (["unilab", "--num-envs", "0"], "positive numbers"),
    ],
)
def test_bad_input_ends_with_2_before_anything_is_installed(capsys, arguments, message):
    with pytest.raises(SystemExit) as caught:
        peer_cartpole.main(arguments)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_iterations_are_read_from_what_rsl_rl_prints():
    printed = (
        "Collection time: 1.167s \n  Learning time: 0.937s \n\nCollection time: 2.0 s\n Learning time: 1.0 s"
    )
    assert ppo.iteration_times(printed) == [(1.167, 0.937), (2.0, 1.0)]


def test_first_iterations_of_every_round_are_not_counted():
    options = argparse.Namespace(num_envs=100, skipped=1)
    found = ppo.summary(options, [[(9.0, 9.0), (1.0, 1.0), (2.0, 2.0)], [(9.0, 9.0), (0.5, 0.5)]])
    assert found == {
        **{"env_steps_per_s": 1200.0, "lowest": 600.0, "highest": 2400.0},
        **{"collect_s": 1.0, "learn_s": 1.0, "iterations": 3},
    }
    with pytest.raises(PeerError, match="no iteration is left after the first 1; give more --iterations"):
        ppo.summary(options, [[(9.0, 9.0)]])


def test_uv_sees_nothing_that_could_change_what_it_installs():
    given = {"UV_INDEX": "x", "PIP_FIND_LINKS": "x", "PYTHONPATH": "x", "VIRTUAL_ENV": "x"}
    kept = {"UV_CACHE_DIR": "c", "PATH": "p", "HOME": "h"}
    assert peer_envs.clean(given | kept) == kept


def test_an_environment_that_is_there_is_left_as_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(peer_envs, "ENVIRONMENTS", tmp_path)
    monkeypatch.setattr(peer_envs.shutil, "which", lambda name: None)
    with pytest.raises(PeerError, match="uv is not on PATH"):
        peer_envs.make_environment("unilab")
    python = tmp_path / "unilab-1.5.2" / "bin" / "python"
    python.parent.mkdir(parents=True)
    (tmp_path / "unilab-1.5.2" / "installed").touch()
    assert peer_envs.make_environment("unilab") == python


def test_the_load_of_others_is_said_and_a_busy_machine_warned_of():
    assert load_lines({"cores": 2, "others": 0.0, "loadavg": None}) == ["other processes used 0% of 2 cores"]
    known, warning = load_lines({"cores": 2, "others": 0.5, "loadavg": None})
    assert known == "other processes used 50% of 2 cores"
    assert warning.startswith("WARNING: other processes used 50%")
