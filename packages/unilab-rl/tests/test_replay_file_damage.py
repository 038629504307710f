"""A file of a replay that is missing, cut off, altered or made to deceive is one clear error, and loads nothing."""

import hashlib
import json
import os

import pytest
from replay_support import contents, equal, make_replay
from saved_replay_support import played

from unilab_rl.replay_file import (
    DamagedReplayFileError,
    ReplayFileError,
    read_replay_file,
    write_replay_file,
)


def save(replay, path):
    return write_replay_file(path, replay.mark().restore())


def load(replay, path, digest):
    replay.load_state(read_replay_file(path, digest=digest).restore())


def refused(path, message, *, digest="", error=DamagedReplayFileError):
    with pytest.raises(error, match=message) as caught:
        read_replay_file(path, digest=digest)
    assert type(caught.value) is error
    assert str(caught.value).startswith(f"{path}: ")


def test_a_missing_empty_or_foreign_file_is_refused_with_its_name(tmp_path):
    path = tmp_path / "replay.bin"
    refused(path, "no such replay file")
    path.touch()
    refused(path, "cut off after 0 bytes")
    path.write_bytes(b"unilab-rl")
    refused(path, "cut off after 9 bytes")
    path.write_bytes(b"PK\x03\x04" * 100)
    refused(path, "written by something else, not a replay file of unilab-rl")


def test_a_file_of_a_newer_format_is_not_called_damaged(tmp_path):
    path = tmp_path / "replay.bin"
    path.write_bytes(b"unilab-rl-replay/2\n" + bytes(100))
    refused(
        path,
        "has format 'unilab-rl-replay/2', this version reads 'unilab-rl-replay/1'; use the version",
        error=ReplayFileError,
    )


def test_a_file_cut_anywhere_is_refused(tmp_path):
    path = tmp_path / "replay.bin"
    digest = save(played(16), path)
    content = path.read_bytes()
    for keep in (*range(1, 60), *range(60, len(content), 97), len(content) - 1):
        path.write_bytes(content[:keep])
        refused(path, "cut off", digest=digest)
    path.write_bytes(content + b"\0")
    refused(path, f"cut off, or damaged: {len(content) + 1} bytes, expected {len(content)}", digest=digest)


def test_a_file_with_one_bit_flipped_anywhere_is_refused(tmp_path):
    path = tmp_path / "replay.bin"
    digest = save(played(16), path)
    content = path.read_bytes()
    for place in (*range(0, 1200), *range(1200, len(content), 101), len(content) - 1):
        damaged = bytearray(content)
        damaged[place] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(ReplayFileError):
            read_replay_file(path, digest=digest)


def test_the_file_of_another_checkpoint_is_refused(tmp_path):
    path = tmp_path / "replay.bin"
    digest = save(played(5), path)
    save(played(16), path)
    refused(path, f"of another checkpoint, its SHA-256 is .*, expected {digest}", digest=digest)


def test_a_file_of_another_replay_is_refused_with_what_differs(tmp_path):
    digest = save(make_replay(2, 7), tmp_path / "replay.bin")
    with pytest.raises(ValueError, match="replay state: capacity is 7, expected 6"):
        load(make_replay(2, 6), tmp_path / "replay.bin", digest)


def signed(header, payload=b""):
    """A file whose checksum is right, whatever it says."""
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    content = b"unilab-rl-replay/1\n" + len(text).to_bytes(8, "little") + text + payload
    return content + hashlib.sha256(content).digest()


def described(payload=0, **changes):
    """A file of one tensor whose checksum is right; the tensor has no elements unless it is said otherwise."""
    section = {"name": "a", "dtype": "torch.float32", "shape": [0], **changes}
    header = json.dumps({"state": {}, "sections": [section]}).encode()
    return signed(header, b"\0" * (-(27 + len(header)) % 64 + payload))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (signed(b"{nothing"), "damaged, its header is unreadable"),
        (signed(b"[" * 200_000), "damaged, its header is unreadable"),
        (signed([]), "damaged, its header is none"),
        (signed({"state": {}, "sections": 3}), "damaged, its header is none"),
        (signed({"state": {}, "sections": [{"name": "rows"}]}), "damaged, its header is none"),
        (
            signed({"state": {}, "sections": [{"name": "a", "dtype": "torch.uint8", "shape": [-1]}]}),
            "damaged, its header is none",
        ),
        (
            signed({"state": {}, "sections": [{"name": "a", "dtype": "object", "shape": [1]}]}),
            "damaged, its header is none",
        ),
        (described(shape=[10**3000, 10**3000]), "damaged, its header is none"),
        (described(shape=[2**62] * 8), "cut off, or damaged: .* bytes, expected"),
        (described(shape=[0, 2**63]), "damaged, its header is none"),
        (described(shape=[0] * 9), "damaged, its header is none"),
        (described(shape="", payload=4), "damaged, its header is none"),
        (described(shape={}, payload=4), "damaged, its header is none"),
        (described(shape=None, payload=4), "damaged, its header is none"),
        (described(name=["x"]), "damaged, its header is none"),
        (described(dtype=[1]), "damaged, its header is none"),
        (
            signed(b'{"sections":[],"state":' + b'{"a":' * 900 + b"1" + b"}" * 900 + b"}"),
            "damaged, its header (describes no replay|is unreadable)",
        ),
    ],
)
def test_a_file_that_was_made_to_deceive_is_refused(tmp_path, content, message):
    path = tmp_path / "replay.bin"
    path.write_bytes(content)
    refused(path, message, digest=hashlib.sha256(content[:-32]).hexdigest())


@pytest.mark.parametrize(
    ("state", "message"),
    [([], "replay state: is a list, expected a dict"), ({"version": 1}, "replay state: lacks")],
)
def test_contents_that_were_made_to_deceive_are_refused(tmp_path, state, message):
    content = signed({"state": state, "sections": []})
    (tmp_path / "replay.bin").write_bytes(content)
    replay = played(4)
    before = contents(replay)
    with pytest.raises(ValueError, match=message):
        load(replay, tmp_path / "replay.bin", hashlib.sha256(content[:-32]).hexdigest())
    assert equal(contents(replay), before)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "replay.bin"
    save(played(4), path)
    content = path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        save(played(16), path)
    assert [each.name for each in tmp_path.iterdir()] == ["replay.bin"]
    assert path.read_bytes() == content
