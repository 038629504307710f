"""A checkpoint is whole or not there, and a bad file is one clear error."""

import pickle
import signal
from dataclasses import replace

import pytest
import torch
from checkpoint_support import checkpoint, envelope, same, torch_bytes
from rl_support import python

from unilab_rl import CheckpointError, list_checkpoints, load_checkpoint, save_checkpoint
from unilab_rl.checkpoint import latest_checkpoint, load_latest_checkpoint


def test_what_is_saved_is_what_is_loaded_and_saving_it_again_gives_equal_content(tmp_path):
    first, second = tmp_path / "model_3.pt", tmp_path / "model_4.pt"
    save_checkpoint(first, checkpoint())
    loaded = load_checkpoint(first)
    assert same(loaded, checkpoint())
    save_checkpoint(second, loaded)
    assert same(load_checkpoint(second), loaded)


def test_the_envelope_has_exactly_the_keys_of_the_contract(tmp_path):
    save_checkpoint(tmp_path / "model_3.pt", checkpoint())
    assert list(torch.load(tmp_path / "model_3.pt", weights_only=True)) == [
        *("format", "algorithm", "task", "iteration", "env_steps", "learner", "optimizer", "normalizer"),
        *("env_training_state", "env_state", "rng", "config", "versions"),
    ]


def test_saving_leaves_nothing_beside_the_file(tmp_path):
    save_checkpoint(tmp_path / "model_3.pt", checkpoint())
    save_checkpoint(tmp_path / "model_3.pt", checkpoint(env_steps=97))
    assert [path.name for path in tmp_path.iterdir()] == ["model_3.pt"]
    assert load_checkpoint(tmp_path / "model_3.pt").env_steps == 97


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "model_3.pt"
    save_checkpoint(path, checkpoint())
    with pytest.raises((AttributeError, pickle.PicklingError)):
        save_checkpoint(path, checkpoint(learner={"no": lambda: None}))
    assert [path.name for path in tmp_path.iterdir()] == ["model_3.pt"]
    assert same(load_checkpoint(path), checkpoint())


def test_qa_086_a_kill_between_writing_and_renaming_leaves_the_old_file_loadable(tmp_path):
    path = tmp_path / "model_3.pt"
    save_checkpoint(path, checkpoint())
    program = (
        "import os, signal, sys\n"
        "from dataclasses import replace\n"
        "from pathlib import Path\n"
        "from unilab_rl import load_checkpoint, save_checkpoint\n"
        "path = Path(sys.argv[1])\n"
        "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "save_checkpoint(path, replace(load_checkpoint(path), env_steps=97))\n"
    )
    process = python("-c", program, str(path))
    _, errors = process.communicate()
    assert process.returncode == -signal.SIGKILL, errors
    assert (tmp_path / "model_3.pt.tmp").stat().st_size > 0
    assert same(load_checkpoint(path), checkpoint())
    assert list_checkpoints(tmp_path) == [path]


def test_qa_086_the_latest_is_the_highest_number_and_unfinished_files_are_not_seen(tmp_path):
    for name in (
        "model_200.pt",
        "model_1000.pt",
        "model_30.pt",
        "model_9999.pt.tmp",
        "model_x.pt",
        "notes.txt",
    ):
        (tmp_path / name).touch()
    assert [path.name for path in list_checkpoints(tmp_path)] == [
        "model_30.pt",
        "model_200.pt",
        "model_1000.pt",
    ]
    assert latest_checkpoint(tmp_path).name == "model_1000.pt"
    save_checkpoint(tmp_path / "model_1000.pt", checkpoint(1000))
    assert load_latest_checkpoint(tmp_path)[0].name == "model_1000.pt"


def test_a_folder_without_checkpoints_is_an_error_that_names_it(tmp_path):
    for look in (latest_checkpoint, load_latest_checkpoint):
        with pytest.raises(CheckpointError, match=f"{tmp_path}: no checkpoint"):
            look(tmp_path)


def test_qa_086_a_cut_or_empty_file_is_refused_by_name_with_the_older_one_to_use(tmp_path):
    for iteration in (100, 200, 300):
        save_checkpoint(tmp_path / f"model_{iteration}.pt", checkpoint(iteration))
    cut, empty = tmp_path / "model_200.pt", tmp_path / "model_300.pt"
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    empty.write_bytes(b"")
    with pytest.raises(
        CheckpointError, match=r"model_300.pt: the file is empty; use the older .*model_200.pt"
    ):
        load_checkpoint(empty)
    with pytest.raises(
        CheckpointError, match=r"model_200.pt: cut off, or not a checkpoint; use the older .*_100.pt"
    ):
        load_checkpoint(cut)
    assert load_checkpoint(tmp_path / "model_100.pt").iteration == 100


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.9, 0.999])
def test_a_file_cut_anywhere_is_refused(tmp_path, keep):
    path = tmp_path / "model_1.pt"
    save_checkpoint(path, checkpoint(1))
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * keep)])
    with pytest.raises(CheckpointError, match=r"model_1.pt: (cut off|damaged)"):
        load_checkpoint(path)


class Harmful:
    def __reduce__(self):
        return (pytest.fail, ("code of the file was run",))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"hello", "cut off, or not a checkpoint"),
        (pickle.dumps({"format": "unilab-rl/1"}), "cut off, or not a checkpoint"),
        (torch_bytes({"actor_state_dict": {}, "iter": 3}), "written by something else"),
        (torch_bytes([1, 2]), "written by something else"),
        (torch_bytes(Harmful()), "damaged, or not a checkpoint of unilab-rl"),
        (
            torch_bytes(envelope(format="unilab-rl/2")),
            r"format 'unilab-rl/2', this version reads 'unilab-rl/1'",
        ),
        (torch_bytes(envelope(optimiser={})), "unknown entry 'optimiser'; did you mean 'optimizer'"),
        (torch_bytes({k: v for k, v in envelope().items() if k != "rng"}), "the entry 'rng' is missing"),
        (torch_bytes(envelope(iteration=-1)), "the entry 'iteration' is -1, expected a count"),
        (torch_bytes(envelope(iteration=True)), "the entry 'iteration' is True, expected a count"),
        (torch_bytes(envelope(env_state=[])), r"the entry 'env_state' is \[\], expected dict or NoneType"),
    ],
    ids=[
        *("text", "a pickle", "rsl-rl's own", "a list", "code", "a later format", "an unknown key"),
        *("a missing key", "a negative count", "a bool", "a wrong type"),
    ],
)
def test_a_foreign_or_malformed_file_is_refused_with_its_name(tmp_path, content, message):
    path = tmp_path / "model_5.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=f"model_5.pt: .*{message}"):
        load_checkpoint(path)


def test_a_missing_file_is_refused_with_its_name(tmp_path):
    save_checkpoint(tmp_path / "model_2.pt", checkpoint(2))
    with pytest.raises(CheckpointError, match=r"model_5.pt: no such checkpoint; use the older .*model_2.pt"):
        load_checkpoint(tmp_path / "model_5.pt")


def test_a_checkpoint_is_immutable():
    with pytest.raises(AttributeError):
        checkpoint().iteration = 4
    assert replace(checkpoint(), iteration=4).iteration == 4
