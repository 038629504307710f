"""A checkpoint and the replay beside it are one: written, read, kept, passed over and removed together."""

import json
import logging
import os
import shutil
from dataclasses import replace

import pytest
import torch
from checkpoint_support import checkpoint
from replay_support import Stream, contents, equal, make_replay
from rl_support import python
from saved_replay_support import loaded, played, save

from unilab_rl import CheckpointError, list_checkpoints, load_checkpoint, save_checkpoint
from unilab_rl.checkpoint import (
    DamagedCheckpointError,
    load_checkpoint_with_replay,
    load_latest_checkpoint,
    remove_old_checkpoints,
    replay_path,
)


def names(folder):
    return {path.name for path in folder.iterdir()}


def test_a_replay_lies_beside_its_checkpoint_which_names_it_by_its_digest(tmp_path):
    save(tmp_path, 4)
    path = tmp_path / "model_4.pt"
    assert names(tmp_path) == {"model_4.pt", "model_4.replay"}
    assert replay_path(path) == tmp_path / "model_4.replay"
    named = load_checkpoint(path).learner["replay"]
    assert named.keys() == {"format", "sha256"}
    assert named["format"] == "unilab-rl-replay/1"
    assert equal(loaded(load_checkpoint_with_replay(path)), contents(played(4)))


def test_what_is_no_replay_of_ours_stays_in_the_checkpoint(tmp_path):
    path = tmp_path / "model_1.pt"
    for replay in (None, {"rows": torch.ones(3)}, {}):
        save_checkpoint(path, checkpoint(1, learner={"replay": replay}))
        for load in (load_checkpoint, load_checkpoint_with_replay):
            assert equal(load(path).learner["replay"], replay)
    assert names(tmp_path) == {"model_1.pt"}


def test_a_replay_is_saved_as_it_was_when_the_state_was_taken(tmp_path):
    stream = Stream(make_replay(2, 6))
    for _ in range(8):
        stream.add(("go", "truncated"))
    kept = contents(stream.replay)
    held = checkpoint(4, learner={"replay": stream.replay.mark()})
    for _ in range(3):
        stream.add(("go", "terminated"))
    save_checkpoint(tmp_path / "model_4.pt", held)
    assert equal(loaded(load_checkpoint_with_replay(tmp_path / "model_4.pt")), kept)


def flip(path):
    content = bytearray(path.read_bytes())
    content[-200] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.unlink(), "model_3.replay: no such replay file"),
        (lambda path: path.write_bytes(b""), "model_3.replay: cut off after 0 bytes"),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), "model_3.replay: cut off"),
        (flip, "model_3.replay: damaged, its checksum is wrong"),
        (lambda path: path.write_bytes(b"PK\x03\x04" * 90), "model_3.replay: written by something else"),
        (
            lambda path: shutil.copy(path.with_name("model_2.replay"), path),
            "model_3.replay: of another checkpoint, its SHA-256 is",
        ),
    ],
    ids=["missing", "empty", "cut off", "one bit", "foreign", "of another checkpoint"],
)
def test_a_checkpoint_whose_replay_is_damaged_is_passed_over_loudly_for_an_older_one_and_its_replay(
    tmp_path, caplog, damage, message
):
    save(tmp_path, 1, 2, 3)
    newest = tmp_path / "model_3.pt"
    damage(replay_path(newest))
    with pytest.raises(DamagedCheckpointError, match=message) as caught:
        load_checkpoint_with_replay(newest)
    assert str(caught.value).startswith(f"{newest}: can't be continued from: ")
    assert str(caught.value).endswith(f"; use the older {tmp_path / 'model_2.pt'}")
    path, held = load_latest_checkpoint(tmp_path, load_checkpoint_with_replay)
    assert path == tmp_path / "model_2.pt"
    assert equal(loaded(held), contents(played(2)))
    assert [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING] == [
        str(caught.value),
        f"taking {path} instead, of iteration 2",
    ]
    # Nothing but continuing needs the replay.
    assert load_latest_checkpoint(tmp_path)[0] == newest


def test_a_damaged_checkpoint_is_passed_over_for_the_older_one_and_its_replay(tmp_path, caplog):
    save(tmp_path, 2, 3)
    (tmp_path / "model_3.pt").write_bytes(b"")
    path, held = load_latest_checkpoint(tmp_path, load_checkpoint_with_replay)
    assert path.name == "model_2.pt"
    assert equal(loaded(held), contents(played(2)))
    assert len(caplog.records) == 2


def test_a_replay_of_a_newer_format_is_never_passed_over(tmp_path):
    save(tmp_path, 2, 3)
    (tmp_path / "model_3.replay").write_bytes(b"unilab-rl-replay/2\n" + bytes(100))
    with pytest.raises(CheckpointError, match=r"has format 'unilab-rl-replay/2'.*use the version") as caught:
        load_latest_checkpoint(tmp_path, load_checkpoint_with_replay)
    assert not isinstance(caught.value, DamagedCheckpointError)


def test_a_replay_that_says_more_than_its_file_can_hold_is_passed_over_for_the_older_pair(tmp_path, caplog):
    save(tmp_path, 2, 3)
    section = {"name": "rows", "dtype": "torch.float32", "shape": [10**3000, 10**3000]}
    header = json.dumps({"state": {}, "sections": [section]}).encode()
    content = b"unilab-rl-replay/1\n" + len(header).to_bytes(8, "little") + header + bytes(32)
    (tmp_path / "model_3.replay").write_bytes(content)
    path, held = load_latest_checkpoint(tmp_path, load_checkpoint_with_replay)
    assert path == tmp_path / "model_2.pt"
    assert equal(loaded(held), contents(played(2)))
    assert "model_3.replay: damaged, its header is none" in caplog.records[0].getMessage()


@pytest.mark.parametrize(
    ("named", "message", "error"),
    [
        (
            {"format": "unilab-rl-replay/2"},
            r"model_3.pt: .*its replay has format 'unilab-rl-replay/2', this version reads '.*/1'; use the",
            CheckpointError,
        ),
        (
            {"format": 2},
            "the format and SHA-256 of its replay are no text; use the older",
            DamagedCheckpointError,
        ),
        ({"sha256": 10**400}, "the format and SHA-256 of its replay are no text", DamagedCheckpointError),
    ],
)
def test_what_a_checkpoint_says_of_its_replay_is_compared_with_what_is_read(tmp_path, named, message, error):
    save(tmp_path, 2, 3)
    path = tmp_path / "model_3.pt"
    held = load_checkpoint(path)
    beside = replay_path(path).read_bytes()
    save_checkpoint(path, replace(held, learner={"replay": held.learner["replay"] | named}))
    assert replay_path(path).read_bytes() == beside
    with pytest.raises(CheckpointError, match=message) as caught:
        load_checkpoint_with_replay(path)
    assert type(caught.value) is error


@pytest.mark.parametrize("name", ["best.pth", "x.replay", "best"])
def test_a_checkpoint_with_a_replay_has_a_name_that_gives_the_replay_one_of_its_own(tmp_path, name):
    save(tmp_path, 3)
    before = names(tmp_path)
    held = checkpoint(4, learner={"replay": played(4).mark()})
    with pytest.raises(ValueError, match=f"{name}: a checkpoint with a replay must be named <name>.pt"):
        save_checkpoint(tmp_path / name, held)
    assert names(tmp_path) == before
    save_checkpoint(tmp_path / name, checkpoint(4))  # without one it may have any


def test_two_files_are_not_replaced_at_once(tmp_path):
    save(tmp_path, 3)
    before = {name: (tmp_path / name).read_bytes() for name in names(tmp_path)}
    with pytest.raises(FileExistsError, match=r"model_3.pt: is there already; remove it, or save to another"):
        save(tmp_path, 3)
    assert {name: (tmp_path / name).read_bytes() for name in names(tmp_path)} == before


def test_a_replay_is_removed_with_its_checkpoint_and_only_then(tmp_path):
    save(tmp_path, 2, 9, 10, 20)
    (tmp_path / "best.replay").touch()
    (tmp_path / "model_1.replay.superseded").touch()
    removed = remove_old_checkpoints(tmp_path, 2, spare=tmp_path / "model_2.pt")
    assert removed == [tmp_path / "model_9.pt"]
    assert names(tmp_path) == {
        *(f"model_{number}.{kind}" for number in (2, 10, 20) for kind in ("pt", "replay")),
        *("best.replay", "model_1.replay.superseded"),
    }


def test_what_a_killed_save_left_is_removed_by_the_next_and_nothing_else(tmp_path):
    save(tmp_path, 3)
    kept = {"best.replay", "best.replay.tmp", "model_2.replay.superseded", "model_3.onnx.tmp", "notes.tmp"}
    remnants = {"model_4.replay", "model_5.replay.tmp", "model_5.pt.tmp", "model_3.replay.tmp"}
    for name in kept | remnants:
        (tmp_path / name).touch()
    save(tmp_path, 6)
    pairs = {f"model_{number}.{kind}" for number in (3, 6) for kind in ("pt", "replay")}
    assert names(tmp_path) == kept | pairs


def test_what_cant_be_removed_is_a_warning(tmp_path, caplog):
    (tmp_path / "model_4.replay").mkdir()
    save(tmp_path, 6)
    (line,) = [record.getMessage() for record in caplog.records]
    assert f"{tmp_path / 'model_4.replay'}: a replay without a checkpoint can't be removed" in line
    assert (tmp_path / "model_6.pt").is_file()


@pytest.fixture
def save_failing_at(monkeypatch):
    """Lets a save fail at its synchronisation of that number: of replay, its folder, checkpoint, its folder."""

    def failing(number, *saved):
        done, fsync = [], os.fsync

        def full(descriptor):
            done.append(descriptor)
            if len(done) == number:
                raise OSError(28, "No space left on device")
            fsync(descriptor)

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(OSError, match="No space left"):
                save(*saved)

    return failing


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_full_disk_before_the_checkpoint_has_its_name_leaves_the_older_pair_alone(
    tmp_path, save_failing_at, number
):
    save(tmp_path, 3)
    save_failing_at(number, tmp_path, 4)
    assert names(tmp_path) == {"model_3.pt", "model_3.replay"}
    assert equal(loaded(load_checkpoint_with_replay(tmp_path / "model_3.pt")), contents(played(3)))
    save(tmp_path, 4)
    assert equal(loaded(load_checkpoint_with_replay(tmp_path / "model_4.pt")), contents(played(4)))


def test_a_failure_after_the_checkpoint_has_its_name_leaves_it_its_replay(tmp_path, save_failing_at):
    save(tmp_path, 3)
    save_failing_at(4, tmp_path, 4)
    assert names(tmp_path) == {f"model_{number}.{kind}" for number in (3, 4) for kind in ("pt", "replay")}
    for number in (3, 4):
        held = load_checkpoint_with_replay(tmp_path / f"model_{number}.pt")
        assert equal(loaded(held), contents(played(number)))


KILLS = """
import io, os, signal, sys
from pathlib import Path
from saved_replay_support import save
from unilab_rl.checkpoint import remove_old_checkpoints

root = Path(sys.argv[1])

def die_at(number):
    '''Ends the process at its system call of that number which changes something, the first being 0.'''
    calls = []
    def due():
        calls.append(None)
        return len(calls) > number
    def die():
        os.kill(os.getpid(), signal.SIGKILL)
    def counting(real):
        def call(*args, **settings):
            if due():
                die()
            return real(*args, **settings)
        return call
    class Counting(io.FileIO):
        def write(self, data):
            if due():
                super().write(bytes(data)[: len(data) // 2])
                die()
            return super().write(data)
    for name in ("fsync", "replace"):
        setattr(os, name, counting(getattr(os, name)))
    Path.unlink = counting(Path.unlink)
    writing = counting(lambda path: io.BufferedWriter(Counting(path, "w"), 4000))
    reading = Path.open
    Path.open = lambda path, mode="r", **settings: (
        writing(path) if mode == "wb" else reading(path, mode, **settings)
    )

def is_killed(number):
    place = root / str(number)
    place.mkdir()
    for iteration in (1, 2, 3):
        for kind in ("pt", "replay"):
            os.link(root / f"model_{iteration}.{kind}", place / f"model_{iteration}.{kind}")
    process = os.fork()
    if process == 0:
        die_at(number)
        save(place, 4)
        remove_old_checkpoints(place, 2)
        os._exit(0)
    status = os.waitpid(process, 0)[1]
    assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0
    return os.WIFSIGNALED(status)

number = 0
while is_killed(number):
    number += 1
print(number)
"""


def test_qa_086_a_kill_at_any_system_call_of_saving_and_removing_leaves_a_checkpoint_with_its_replay(
    tmp_path,
):
    save(tmp_path, 1, 2, 3)
    process = python("-c", KILLS, str(tmp_path))
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    newest = []
    for number in range(int(out) + 1):
        folder = tmp_path / str(number)
        held = load_latest_checkpoint(folder, load_checkpoint_with_replay)[1]
        newest.append(held.iteration)
        assert equal(loaded(held), contents(played(held.iteration)))
        # So has every other that is there, and the next save leaves pairs alone.
        for other in list_checkpoints(folder):
            iteration = load_checkpoint(other).iteration
            assert equal(loaded(load_checkpoint_with_replay(other)), contents(played(iteration)))
        save(folder, 5)
        there = {path.stem for path in list_checkpoints(folder)}
        assert names(folder) == {f"{stem}.{kind}" for stem in there for kind in ("pt", "replay")}
    assert sorted(newest) == newest
    assert set(newest) == {3, 4}
    # Before either file is open, half written at each write, not yet on the disk, and not yet renamed.
    assert newest.count(3) > 12
    # The rename not yet on the disk, two old checkpoints and their replays not yet removed, and all done.
    assert newest.count(4) == 1 + 4 + 1


MEMORY = """
import re, sys
from pathlib import Path
import torch
from checkpoint_support import checkpoint
from unilab_rl import save_checkpoint
from unilab_rl.replay import Replay

def peak():
    # Of this program alone; `ru_maxrss` begins with what the process that started it had.
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

torch.set_num_threads(1)
replay = Replay(4, 60_000, {"obs": 64}, 8, n_step=1, gamma=0.9, device="cpu", seed=0)
obs, flags = {"obs": torch.ones(4, 64)}, torch.zeros(4, dtype=torch.bool)
replay._rows.fill_(1.0), replay._codes.fill_(0), replay._order.fill_(0)
replay.add(obs, torch.ones(4, 8), torch.ones(4), obs, flags, flags)
replay._position.fill_(10**6)  # as if all slots had been written
held = checkpoint(1, learner={"replay": replay.mark()})
save_checkpoint(Path(sys.argv[1]) / "model_0.pt", checkpoint(0))
before = peak()
save_checkpoint(Path(sys.argv[1]) / "model_1.pt", held)
print(peak() - before)
"""


def test_saving_streams_through_the_replay_without_a_second_copy(tmp_path):
    process = python("-c", MEMORY, str(tmp_path))
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    size = (tmp_path / "model_1.replay").stat().st_size
    assert size > 70_000_000
    assert (tmp_path / "model_1.pt").stat().st_size < 100_000
    assert int(out) < 0.15 * size


def test_a_save_that_fails_leaves_an_older_replay_that_was_there_without_its_checkpoint(
    tmp_path, monkeypatch
):
    def full(*_):
        raise OSError(28, "No space left on device")

    stream = Stream(make_replay(2, 6))
    stream.add(("go", "go"))
    held = checkpoint(1, learner={"replay": stream.replay.mark()})
    older = tmp_path / "best.replay"  # a name that no run gives, so that nothing calls it a remnant
    older.write_bytes(b"older")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save_checkpoint(tmp_path / "best.pt", held)
    assert older.read_bytes() == b"older"
    assert names(tmp_path) == {"best.replay"}
