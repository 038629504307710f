"""`unilab export`, through the dispatcher, as a person types it, on real PPO checkpoints."""

import json
import shutil
import sys

import numpy as np
import onnxruntime
import pytest
import torch
from export_support import DESCRIPTION, files_in
from rl_support import ScriptedEnv

from unilab_core.cli import main
from unilab_rl import RunFolder, load_checkpoint
from unilab_rl.export import exporter
from unilab_rl.export.parity import ParityError
from unilab_rl.export.policy_runner import PolicyRunner
from unilab_rl.export.torchscript import load_torchscript
from unilab_rl.runtime.evaluator import load_policy

ALL = ["policy.json", "policy.npz", "policy.onnx", "policy.pt", "policy_runner.py"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with the run of two iterations of PPO with normalised observations: checkpoints 1 and 2."""
    root = tmp_path_factory.mktemp("trained") / "model_runs"  # a name that could be taken for a checkpoint's
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ScriptedEnv, "describe", lambda _: DESCRIPTION)
        settings = ("--set", "learner.obs_normalization=true", "--set", "learner.save_interval=1")
        args = ("--algo", "ppo", "--backend", "scripted", "--iterations", "2", "--runs", str(root))
        assert main(["train", "scripted", *args, *settings]) == 0
    return root


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path, monkeypatch, trained):
    shutil.copytree(trained, tmp_path / "model_runs")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ScriptedEnv, "describe", lambda _: DESCRIPTION)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.delenv("UNILAB_COMMAND", raising=False)


def run(capsys, *args):
    code = main(["export", *args, "--runs", "model_runs"])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def run_folder(tmp_path):
    (path,) = (tmp_path / "model_runs" / "scripted").iterdir()
    return RunFolder(path.relative_to(tmp_path))


def policy_of(folder, iteration):
    path = folder.checkpoints / f"model_{iteration}.pt"
    return load_policy(ScriptedEnv(), folder.config(), path, load_checkpoint(path))


def test_a_trained_policy_is_exported_beside_its_checkpoints_and_every_file_acts_as_it(tmp_path, capsys):
    folder = run_folder(tmp_path)
    code, out, err = run(capsys)
    assert (code, err) == (0, "")
    place = folder.path / "exports" / "model_2"
    assert files_in(place) == ALL
    first, second, third = out.splitlines()
    assert first == f"scripted, {folder.checkpoints / 'model_2.pt'}: ppo, iteration 2"
    assert second == f"exported to {place}: {', '.join(ALL)}"
    assert third.startswith("largest difference from the policy: policy.npz ")
    policy = policy_of(folder, 2)
    session = onnxruntime.InferenceSession(place / "policy.onnx", providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    for rows in (1, 7):
        obs = generator.normal(200.0, 3000.0, (rows, 2)).astype(np.float32)
        expected = policy({"obs": torch.from_numpy(obs)}).numpy()
        tolerance = 1e-5 * max(1.0, np.abs(expected).max())
        found = {
            "numpy": PolicyRunner(place).action(obs),
            "onnx": session.run(["actions"], {"obs": obs})[0],
            "torchscript": load_torchscript(place / "policy.pt")(torch.from_numpy(obs))[0].numpy(),
        }
        for name, actions in found.items():
            np.testing.assert_allclose(actions, expected, rtol=0, atol=tolerance, err_msg=name)


def test_the_normaliser_that_was_trained_is_inside(tmp_path, capsys):
    run(capsys)
    folder = run_folder(tmp_path)
    normalizer = load_checkpoint(folder.checkpoints / "model_2.pt").normalizer["actor"]
    mean = next(value for name, value in normalizer.items() if name.endswith("_mean"))
    assert mean.abs().max() > 1.0  # else nothing is shown here
    runner = PolicyRunner(folder.path / "exports" / "model_2")
    weights = [weight for weight in runner._weights.values() if weight.shape == (1, 2)]
    assert any(np.array_equal(weight, mean.numpy()) for weight in weights)


def test_a_checkpoint_is_chosen_by_its_iteration_or_its_path(tmp_path, capsys):
    folder = run_folder(tmp_path)
    assert run(capsys, str(folder.path), "--checkpoint", "1", "--output", "one")[0] == 0
    assert run(capsys, str(folder.checkpoints / "model_1.pt"), "--format", "torchscript")[0] == 0
    for place in (tmp_path / "one", folder.path / "exports" / "model_1"):
        data = json.loads((place / "policy.json").read_text())
        assert (data["iteration"], data["checkpoint"], data["task"]) == (1, "model_1.pt", "scripted")
        assert [action["joint"] for action in data["actions"]] == ["robot/hip", "robot/wheel"]
        assert data["config_hash"] == folder.config().digest()
    obs = np.array([[3.0, 1.0]], np.float32)
    expected = policy_of(folder, 1)({"obs": torch.from_numpy(obs)}).numpy()
    np.testing.assert_allclose(PolicyRunner(tmp_path / "one").action(obs), expected, atol=1e-5)
    assert not (folder.path / "exports" / "model_1" / "policy.onnx").exists()


def test_an_export_that_is_there_is_replaced_only_when_it_is_asked_for(tmp_path, capsys):
    place = run_folder(tmp_path).path / "exports" / "model_2"
    assert run(capsys)[0] == 0
    code, out, err = run(capsys, "--format", "torchscript")
    assert (code, out) == (2, "")
    assert err == f"Error: {place}: is there already; --force replaces it\n"
    assert files_in(place) == ALL
    assert run(capsys, "--format", "torchscript", "--force")[0] == 0
    assert files_in(place) == [name for name in ALL if name != "policy.onnx"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("nothing",), "no run 'nothing'"),
        (
            ("--checkpoint", "9"),
            "--checkpoint 9: the run {run} has no checkpoint of that iteration, but 1, 2",
        ),
        (("{run}/checkpoints/model_1.pt", "--checkpoint", "1"), "--checkpoint 1 contradicts RUN"),
        (("{run}/checkpoints/model_7.pt",), "no run"),
        (("--format", "tflite"), "'tflite' is not one of 'onnx', 'torchscript', 'both'"),
        (("--output", "/dev/null/policy"), "--output /dev/null/policy: there is no folder /dev/null"),
        (("--output", "no/such/folder"), "there is no folder no/such"),
        (("--output", "{run}/config.yaml"), "is no folder, choose another place with --output DIR"),
        (
            ("--output", "{run}"),
            "holds something else than an export; choose another place with --output DIR",
        ),
        (("--output", "{run}", "--force"), "holds something else than an export"),
        (("--backend", "magic"), "unknown backend 'magic'"),
    ],
)
def test_bad_input_is_one_message_on_stderr_exit_code_2_and_no_file(tmp_path, capsys, args, message):
    path, before = run_folder(tmp_path).path, files_in(tmp_path)
    code, out, err = run(capsys, *(arg.format(run=path) for arg in args))
    assert (code, out) == (2, "")
    assert message.format(run=path) in err
    assert "Traceback" not in err
    assert files_in(tmp_path) == before


def _empty_checkpoint(folder):
    (folder.checkpoints / "model_2.pt").write_bytes(b"")


def _cut_checkpoint(folder):
    path = folder.checkpoints / "model_2.pt"
    path.write_bytes(path.read_bytes()[:-500])


def _no_checkpoint(folder):
    for path in folder.checkpoints.iterdir():
        path.unlink()


def _broken_config(folder):
    folder.config_path.write_text("task: [")


def _other_network(folder):
    text = folder.config_path.read_text()
    assert "actor_hidden_dims:\n  - 8" in text
    folder.config_path.write_text(text.replace("actor_hidden_dims:\n  - 8", "actor_hidden_dims:\n  - 9"))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_empty_checkpoint, "model_2.pt: the file is empty; use the older"),
        (_cut_checkpoint, "model_2.pt: cut off, or not a checkpoint; use the older"),
        (_no_checkpoint, "no checkpoint (model_<iteration>.pt) in it yet; train first"),
        (_broken_config, "config.yaml"),
        (_other_network, "model_2.pt: doesn't fit the environment"),
    ],
)
def test_a_damaged_run_is_bad_input_and_leaves_nothing(tmp_path, capsys, damage, message):
    folder = run_folder(tmp_path)
    damage(folder)
    code, out, err = run(capsys, str(folder.path))
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err
    assert not (folder.path / "exports").exists()


@pytest.mark.parametrize("name", ["onnx", "onnxruntime"])
def test_without_the_extra_onnx_is_refused_and_the_rest_still_goes(tmp_path, capsys, monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    code, out, err = run(capsys)
    assert (code, out) == (2, "")
    assert err == (
        f'Error: exports need {name}: pip install "unilab-rl[export]>=2.0,<3"; or leave ONNX out: '
        "--format torchscript\n"
    )
    assert not (run_folder(tmp_path).path / "exports").exists()
    assert run(capsys, "--format", "torchscript")[0] == 0


def test_an_algorithm_whose_policies_are_no_network_is_bad_input(tmp_path, capsys):
    assert main(["train", "scripted", "--backend", "scripted", "--runs", "others"]) == 0
    capsys.readouterr()
    code = main(["export", "--runs", "others"])
    err = capsys.readouterr().err
    assert code == 2
    assert "the policies of the algorithm 'counting' can't be exported" in err
    assert not list((tmp_path / "others").rglob("exports"))


@pytest.mark.parametrize("kind", [ParityError, OSError])
def test_a_failure_of_the_export_is_exit_1_and_leaves_nothing(tmp_path, capsys, monkeypatch, kind):
    def fail(*_):
        raise kind("policy.onnx differs")

    monkeypatch.setattr(exporter, "check_parity", fail)
    before = files_in(tmp_path)
    assert run(capsys) == (1, "", "Error: policy.onnx differs\n")
    assert files_in(tmp_path) == before


def test_where_the_targets_are_not_known_the_command_says_why(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(
        ScriptedEnv, "describe", lambda _: DESCRIPTION.__class__(**{**vars(DESCRIPTION), "terms": {}})
    )
    code, _, err = run(capsys)
    assert code == 0
    assert err == (
        "without targets of joints: no action term of the environment describes the column 'legs:hip'\n"
    )
