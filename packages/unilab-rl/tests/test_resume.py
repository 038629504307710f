"""A resume checks everything before it changes anything, and says how exactly it goes on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rl_support import COUNTING

from unilab_core import ConfigError
from unilab_rl import (
    BudgetCfg,
    CheckpointError,
    RunFolder,
    RunFolderError,
    TrainRequest,
    Watcher,
    load_checkpoint,
    resume,
    save_checkpoint,
    train,
)
from unilab_rl.runtime import resuming

FURTHER = BudgetCfg(iterations=5)


@pytest.fixture
def folder(tmp_path):
    """A finished run of three iterations with the checkpoints 2 and 3."""
    return start(tmp_path)


def start(tmp_path, **changes):
    values = {"task": "scripted", "backend": "scripted", "seed": 7, "runs": tmp_path / "runs"}
    return RunFolder(train(TrainRequest(**(values | changes))).checkpoint.parent.parent)


def files(folder):
    return {
        str(path.relative_to(folder.path)): path.read_bytes()
        for path in folder.path.rglob("*")
        if path.is_file()
    }


def spoil_checkpoint(**changes):
    def spoil(folder):
        path = folder.checkpoints / "model_3.pt"
        save_checkpoint(path, replace(load_checkpoint(path), **changes))

    return spoil


def spoil_manifest(**changes):
    return lambda folder: folder.write_manifest(folder.manifest() | changes)


def spoil_config(old, new):
    def spoil(folder):
        text = folder.config_path.read_text()
        assert old in text
        folder.config_path.write_text(text.replace(old, new))

    return spoil


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (
            lambda run: run.metrics_path.unlink(),
            RunFolderError,
            r"metrics.jsonl: cannot be read .*put the file",
        ),
        (
            lambda run: run.metrics_path.write_bytes(b"\xff\n"),
            RunFolderError,
            r"metrics.jsonl: cannot be read",
        ),
        (lambda run: run.manifest_path.unlink(), RunFolderError, r"manifest.json: cannot be read"),
        (
            spoil_manifest(resumes=None),
            RunFolderError,
            r"manifest.json: the entry 'resumes' is None, expected",
        ),
        (spoil_manifest(resumes=[{}]), RunFolderError, r"manifest.json: the entry 'resumes' is \[\{\}\]"),
        (
            spoil_checkpoint(env_training_state={"version": 2, "step_counter": 6}),
            CheckpointError,
            r"model_3.pt: the entry 'env_training_state' can't be used: .*'version': 2",
        ),
        (
            spoil_config("gain: 1.0", "gain: 2.0"),
            CheckpointError,
            r"model_3.pt: doesn't fit .*config.yaml: env.gain is 2.0 there, .* trained with 1.0; put back",
        ),
        (spoil_config("seed: 7", "seed: 8"), CheckpointError, r"config.yaml: seed is 8 there, .* with 7"),
        (spoil_checkpoint(config={}), CheckpointError, r"config.yaml: .* is .* there, .* with missing"),
    ],
    ids=[
        *("no metrics", "metrics not UTF-8", "no manifest", "resumes null", "a resume without iteration"),
        *("later training state", "another gain", "another seed", "no config"),
    ],
)
def test_a_bad_file_is_one_error_that_names_it_and_changes_nothing(folder, spoil, error, message):
    spoil(folder)
    before = files(folder)
    with pytest.raises(error, match=message):
        resume(folder, budget=FURTHER)
    assert files(folder) == before


def test_the_budget_of_the_config_may_be_edited(folder):
    spoil_config("iterations: 3\n", "iterations: 4\n")(folder)
    text = folder.config_path.read_text()
    # The learner's own default of iterations is not the budget, and stays.
    head, _, learner = text.partition("learner:")
    folder.config_path.write_text(head + "learner:" + learner.replace("iterations: 4", "iterations: 3"))
    assert resume(folder).iteration == 4


def test_a_resume_that_completes_no_iteration_changes_no_file(folder):
    older = folder.checkpoints / "model_2.pt"
    before = files(folder)

    class Fails(Watcher):
        def on_start(self, *_):
            raise OSError("no terminal")

    with pytest.raises(OSError, match="no terminal") as caught:
        resume(folder, older, budget=FURTHER, watcher=Fails())
    assert caught.value.__notes__ == [f"iteration 2 is saved in {older}"]
    assert files(folder) == before


def test_an_optimiser_or_generator_state_that_does_not_fit_changes_no_file(tmp_path):
    folder = start(tmp_path, algorithm="ppo")
    spoil_checkpoint(rng={"cpu": torch.zeros(10, dtype=torch.uint8), "cuda": None})(folder)
    before = files(folder)
    with pytest.raises(CheckpointError, match=r"model_3.pt: .*the random state 'cpu' can't be used"):
        resume(folder, budget=FURTHER)
    held = load_checkpoint(folder.checkpoints / "model_2.pt")
    spoil_checkpoint(rng=held.rng, optimizer=held.optimizer | {"state": {}})(folder)
    before = files(folder)
    with pytest.raises(CheckpointError, match=r"model_3.pt: .*statistics of 0 parameters, expected"):
        resume(folder, budget=FURTHER)
    assert files(folder) == before


def test_copies_that_are_set_aside_do_not_overwrite_each_other(folder):
    for _ in range(3):
        resume(folder, folder.checkpoints / "model_2.pt", budget=BudgetCfg(iterations=3))
    kept = sorted(path.name for path in folder.checkpoints.glob("*superseded*"))
    assert kept == [f"model_3.pt.superseded{number}" for number in ("", "-2", "-3")]


def labels(folder):
    """Resumes, and returns what the watcher was told and what the metrics and the manifest say."""
    heard = []

    class Recorder(Watcher):
        def on_start(self, folder, config, budget, start):
            heard.append(start)

    resume(folder, budget=FURTHER, watcher=Recorder())
    records = [json.loads(line) for line in folder.metrics_path.read_text().splitlines()]
    written = next(record["resumed"] for record in records if record["resumed"])
    assert written == folder.manifest()["resumes"][-1]["kind"] == heard[0].kind
    return heard[0].kind, heard[0].differences


def test_a_resume_on_the_same_versions_and_threads_is_exact(tmp_path):
    assert labels(start(tmp_path, overrides=("exact=true",))) == ("exact", ())


def test_a_resume_with_other_threads_or_versions_is_not_called_exact(tmp_path, monkeypatch):
    folder = start(tmp_path, overrides=("exact=true",))
    versions = load_checkpoint(folder.checkpoints / "model_3.pt").versions
    spoil_checkpoint(versions={**versions, "torch": "2.0"})(folder)
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 3)
    kind, differences = labels(folder)
    assert kind == "inexact"
    assert folder.manifest()["threads"]["torch"] == threads
    assert differences == (
        f"torch 2.0 -> {versions['torch']}",
        f"torch threads {threads} -> {threads + 3}",
    )


def test_the_threads_that_count_are_those_of_the_process_that_wrote_the_checkpoint(tmp_path, monkeypatch):
    folder = start(tmp_path, overrides=("exact=true",))
    threads = torch.get_num_threads()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads + 3)
    resume(folder, budget=BudgetCfg(iterations=4))
    config, path = folder.config(), folder.checkpoints / "model_4.pt"
    assert resuming.read_resume(folder, config, path).kind == "exact"
    older = folder.checkpoints / "model_3.pt"
    assert resuming.read_resume(folder, config, older).kind == "inexact"


def test_a_warm_resume_stays_warm_whatever_differs(folder):
    spoil_checkpoint(versions={})(folder)
    kind, differences = labels(folder)
    assert kind == "warm"
    assert differences


def test_a_device_that_repeats_no_bits_is_a_difference(folder):
    config = folder.config().model_copy(update={"device": "cuda:1"})
    held = load_checkpoint(folder.checkpoints / "model_3.pt")
    found = tuple(resuming._differences(folder, config, held))
    assert found == ("device cuda:1 repeats no bits",)


def test_the_outcome_names_a_file_that_is_there_after_a_resume_from_another_name(folder):
    best = folder.checkpoints / "best.pt"
    (folder.checkpoints / "model_2.pt").rename(best)

    class StopsAtOnce(Watcher):
        def on_start(self, *_):
            raise KeyboardInterrupt

    outcome = resume(folder, best, budget=FURTHER, watcher=StopsAtOnce())
    assert (outcome.status, outcome.iteration, outcome.checkpoint) == ("interrupted", 2, best)
    outcome = resume(folder, best, budget=FURTHER)
    assert load_checkpoint(outcome.checkpoint).iteration == outcome.iteration == 5


def test_a_seed_at_the_bound_can_be_resumed_and_one_beyond_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="seed"):
        start(tmp_path, seed=2**63)
    assert list(tmp_path.iterdir()) == []
    folder = start(tmp_path, seed=2**63 - 1)
    resume(folder, budget=FURTHER)
    assert COUNTING.made[-1].env.seeds[0] == 2


def test_a_first_iteration_that_fails_leaves_no_run_folder(tmp_path):
    (tmp_path / "runs").mkdir()
    with pytest.raises(ValueError, match="boom at step 1") as caught:
        start(tmp_path, overrides=("fail_at=1",))
    assert caught.value.__notes__ == ["nothing was learned yet, so the run folder was removed"]
    assert list(Path(tmp_path).glob("runs/*/*")) == []
