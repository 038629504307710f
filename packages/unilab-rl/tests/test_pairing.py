"""Sim-to-sim: a policy on two backends, in episodes that begin alike."""

import json
import math

import pytest
import torch
from rl_support import COUNTING

from unilab_core import ConfigError
from unilab_core.cli import main
from unilab_rl import Evaluator, RunFolder, TrainRequest, list_checkpoints, load_checkpoint, train
from unilab_rl.runtime.evaluate import Episodes, half_width_ci95
from unilab_rl.runtime.pairing import Starts, pair

NAMES = ("here", "there")


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    COUNTING.made.clear()
    monkeypatch.setattr(COUNTING, "before_iteration", lambda number: None)


def episodes(*returns):
    values = torch.tensor(returns, dtype=torch.float64)
    ended = torch.zeros(len(returns), dtype=torch.bool)
    return Episodes(values, torch.full((len(returns),), 5), ended, step_dt=0.5, falls=0, metrics={})


def starts(*states, seen=0.0):
    """The starts of one time limit with one position and one velocity, and one observation."""
    noted = Starts()
    for rows in states:
        noted.states.append(torch.tensor(rows))
        noted.observations.append(torch.full((len(rows), 1), seen))
    return noted


def trained(*overrides):
    request = TrainRequest(task="scripted-graded", backend="scripted", seed=7, overrides=overrides)
    return RunFolder(train(request).checkpoint.parent.parent)


# ---------------------------------------------------------------- the numbers


def test_the_ratio_and_the_difference_are_those_of_the_pairs():
    same = starts([[0.0, 1.0]] * 3)
    found = pair(NAMES, (episodes(1.0, 2.0, 3.0), episodes(1.0, 1.5, 2.0)), (same, same))
    assert (found.reference.return_mean, found.other.return_mean) == (2.0, 1.5)
    assert (found.return_ratio, found.return_difference) == (0.75, -0.5)
    # Differences 0, -0.5, -1: deviation 0.5, t(2) = 4.303.
    assert found.return_difference_ci95 == pytest.approx(4.303 * 0.5 / math.sqrt(3))
    # From 0.75 times the reference: 0.25, 0, -0.25: deviation 0.25, over the reference's mean of 2.
    assert found.return_ratio_ci95 == pytest.approx(4.303 * 0.25 / math.sqrt(3) / 2)


def test_pairs_tell_more_than_two_samples_would():
    # The returns of the episodes spread over 20, those of the pairs not at all.
    same = starts([[0.0, 1.0]] * 3)
    found = pair(NAMES, (episodes(10.0, 20.0, 30.0), episodes(9.0, 18.0, 27.0)), (same, same))
    assert found.return_ratio == pytest.approx(0.9)
    assert found.return_ratio_ci95 == pytest.approx(0.0, abs=1e-12)
    assert found.other.return_ci95 > 20.0


def test_a_return_of_nothing_has_no_ratio_and_one_pair_no_interval():
    same = starts([[0.0, 1.0]] * 2)
    found = pair(NAMES, (episodes(-1.0, 1.0), episodes(1.0, 2.0)), (same, same))
    assert (found.return_ratio, found.return_ratio_ci95, found.return_difference) == (None, None, 1.5)
    one = starts([[0.0, 1.0]])
    found = pair(NAMES, (episodes(2.0), episodes(3.0)), (one, one))
    assert (found.return_ratio, found.return_ratio_ci95, found.return_difference_ci95) == (1.5, None, None)


def test_a_negative_reference_has_an_interval_of_a_width():
    same = starts([[0.0, 1.0]] * 2)
    found = pair(NAMES, (episodes(-1.0, -3.0), episodes(-2.0, -3.0)), (same, same))
    assert found.return_ratio == 1.25
    assert found.return_ratio_ci95 == pytest.approx(
        half_width_ci95(torch.tensor([-0.75, 0.75])) / 2, rel=1e-6
    )


@pytest.mark.parametrize(("row", "limit", "column"), [(1, 0, 0), (0, 1, 1)])
def test_episodes_that_begin_elsewhere_are_no_pairs(row, limit, column):
    states = [[[0.0, 1.0], [2.0, 3.0]], [[4.0, 5.0], [6.0, 7.0]]]
    first = starts(*states)
    states[limit][row][column] += 0.25
    with pytest.raises(
        ConfigError,
        match=rf"no pairs: row {row} begins its time limit {limit} in another state on there than on here "
        r"\(a position or velocity differs by 0.25\)",
    ):
        pair(NAMES, (episodes(1.0, 2.0), episodes(1.0, 2.0)), (first, starts(*states)))


def test_what_float32_rounds_is_the_same_state_and_observations_only_count():
    first, second = starts([[0.0, 1.0]]), starts([[5e-6, 1.0]], seen=0.5)
    found = pair(NAMES, (episodes(1.0), episodes(1.0)), (first, second))
    assert found.first_observation_difference == 0.5


# ---------------------------------------------------------------- the evaluator


def test_both_backends_are_measured_from_the_same_seed_on_environments_of_their_own(made):
    folder = trained()
    checkpoint = load_checkpoint(list_checkpoints(folder.checkpoints)[-1])
    evaluator = Evaluator(folder.config(), episodes=4, backend="mujoco")
    found = evaluator.measure_beside_own_backend(checkpoint)
    assert [env.backend for env in made] == ["mujoco", "scripted"]
    assert [env.seeds for env in made] == [[1_000_007, 1_000_007]] * 2
    assert [env.num_closes for env in made] == [1, 1]
    assert [env.step_counter for env in made] == [6 + 5] * 2  # both follow the curricula of the training
    assert found.reference == found.other == evaluator.measure(checkpoint)
    assert (found.return_ratio, found.first_observation_difference) == (1.0, 0.0)


def test_every_time_limit_of_both_begins_from_its_own_seed(made):
    folder = trained()
    checkpoint = load_checkpoint(list_checkpoints(folder.checkpoints)[-1])
    Evaluator(folder.config(), episodes=1026, backend="mujoco").measure_beside_own_backend(checkpoint)
    assert [env.num_envs for env in made] == [513, 513]
    assert [env.seeds for env in made] == [[1_000_007, 1_000_007, 1_000_008]] * 2


def test_a_backend_on_which_resets_lead_elsewhere_is_no_pair():
    folder = trained("place_on={mujoco: 0.5}")
    checkpoint = load_checkpoint(list_checkpoints(folder.checkpoints)[-1])
    evaluator = Evaluator(folder.config(), episodes=4, backend="mujoco")
    with pytest.raises(
        ConfigError, match="no pairs: row 0 begins its time limit 0 in another state on mujoco"
    ):
        evaluator.measure_beside_own_backend(checkpoint)


# ---------------------------------------------------------------- the command


def run(capsys, *args):
    code = main(list(args))
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_eval_on_another_backend_shows_the_runs_own_beside_it_and_their_ratio(capsys):
    trained("gain_on={mujoco: 1.55}")
    capsys.readouterr()
    code, out, err = run(capsys, "eval", "latest", "--episodes", "4", "--backend", "mujoco", "--json")
    assert (code, err) == (0, "")
    result = json.loads(out)
    # The policy acts as 0.3, so 2 - 0.09 and 1.55 - 0.09 a step; row 0 falls at 2, the others live for 5 steps.
    assert (result["backend"], result["reference"]["backend"]) == ("mujoco", "scripted")
    assert result["policy"]["return_mean"] == pytest.approx(1.46 * 17 / 4)
    assert result["reference"]["policy"]["return_mean"] == pytest.approx(1.91 * 17 / 4)
    assert result["zero_policy"]["return_mean"] == pytest.approx(1.55 * 17 / 4)
    paired = result["paired"]
    assert paired.pop("return_ratio") == pytest.approx(1.46 / 1.91)
    assert paired.pop("return_ratio_ci95") == pytest.approx(0.0, abs=1e-6)
    assert paired.pop("return_difference") == pytest.approx(-0.45 * 17 / 4)
    # Differences of -0.9 and three times -2.25: deviation 0.675, t(3) = 3.182.
    assert paired.pop("return_difference_ci95") == pytest.approx(3.182 * 0.675 / 2, rel=1e-5)
    assert paired == {"first_observation_difference": 0.0}


def test_the_table_has_both_backends_and_the_ratio_below_it(capsys):
    folder = trained("gain_on={mujoco: 1.55}")
    capsys.readouterr()
    code, out, _ = run(capsys, "eval", str(folder.path), "--episodes", "4", "--backend", "mujoco")
    assert code == 0
    lines = out.splitlines()
    assert [cell.strip() for cell in lines[2].strip("┃").split("┃")] == [
        *("measure", "on mujoco", "on scripted", "zero policy"),
    ]
    assert lines[-2:] == [
        "return on mujoco / on scripted: 0.7644 ± 0; difference -1.91 ± 1.1",
        "4 pairs of episodes that begin alike; their first observations differ by at most 0",
    ]


def test_the_runs_own_backend_by_name_is_no_sim_to_sim(capsys):
    trained()
    capsys.readouterr()
    _, out, _ = run(capsys, "eval", "latest", "--episodes", "4", "--backend", "scripted", "--json")
    result = json.loads(out)
    assert not result.keys() & {"reference", "paired"}


def test_no_pairs_is_one_message_and_exit_2(capsys):
    trained("place_on={mujoco: 0.5}")
    capsys.readouterr()
    code, out, err = run(capsys, "eval", "latest", "--episodes", "4", "--backend", "mujoco")
    assert (code, out) == (2, "")
    assert "no pairs: row 0 begins its time limit 0 in another state on mujoco than on scripted" in err
