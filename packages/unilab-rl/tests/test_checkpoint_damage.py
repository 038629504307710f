"""A damaged or hostile file is one error and costs no memory, and a save that ends anywhere leaves the older file."""

import io
import json
import logging
import pickle
import shutil
import struct
import sys
import tracemalloc
import zipfile
from dataclasses import replace

import pytest
import torch
from checkpoint_support import checkpoint, envelope, same, torch_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rl_support import python

from unilab_rl import CheckpointError, list_checkpoints, load_checkpoint, save_checkpoint
from unilab_rl.checkpoint import DamagedCheckpointError, load_latest_checkpoint, remove_old_checkpoints

GOOD = torch_bytes(envelope())


def boundaries(content):
    """Returns where members and the directory begin and end."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        marks = [archive.start_dir, len(content)]
        for info in archive.infolist():
            name_length, extra_length = struct.unpack_from("<HH", content, info.header_offset + 26)
            data = info.header_offset + 30 + name_length + extra_length
            marks += [info.header_offset, data, data + info.file_size]
    return {mark + step for mark in marks for step in (-1, 0, 1)}


def test_a_file_cut_at_any_boundary_or_byte_is_refused_with_its_name(tmp_path):
    path = tmp_path / "model_1.pt"
    for kept in sorted(boundaries(GOOD) | set(range(0, len(GOOD), 97))):
        if 0 <= kept < len(GOOD):
            path.write_bytes(GOOD[:kept])
            with pytest.raises(
                DamagedCheckpointError, match="model_1.pt: (cut off|damaged|the file is empty)"
            ):
                load_checkpoint(path)
    path.write_bytes(GOOD)
    assert same(load_checkpoint(path), checkpoint())


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(position=st.integers(0, len(GOOD) - 1), flip=st.integers(1, 255))
def test_a_changed_byte_is_refused_or_changes_nothing(tmp_path, position, flip):
    path = tmp_path / "model_1.pt"
    content = bytearray(GOOD)
    content[position] ^= flip
    path.write_bytes(content)
    try:
        loaded = load_checkpoint(path)
    except DamagedCheckpointError:
        return
    assert same(loaded, checkpoint())  # it was padding, or a date


def test_a_changed_number_of_a_tensor_is_noticed(tmp_path):
    path = tmp_path / "model_1.pt"
    weight = struct.pack("<2f", 1.5, -2.0)
    assert GOOD.count(weight) == 1
    path.write_bytes(GOOD.replace(weight, struct.pack("<2f", 1.5, 2.0)))
    with pytest.raises(DamagedCheckpointError, match="Bad CRC-32"):
        load_checkpoint(path)


def archive(members, *, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as made:
        for name, content in members:
            made.writestr(name, content)
    return buffer.getvalue()


def members(**changes):
    """Returns the members of a good file, some with another content, by their names below the root."""
    with zipfile.ZipFile(io.BytesIO(GOOD)) as good:
        held = {info.filename: good.read(info) for info in good.infolist()}
    return list((held | {f"archive/{name}": content for name, content in changes.items()}).items())


def with_pickle(content, **more):
    return archive(members(**{"data.pkl": content}, **more))


class Calls:
    def __init__(self, call, *args):
        self.reduced = (call, args)

    def __reduce__(self):
        return self.reduced


def calling(call, *args):
    return with_pickle(pickle.dumps({"x": Calls(call, *args)}, protocol=2))


def tensor_pickle(numel, shape, stride, key="0"):
    """A pickle, by hand, of a dict with one tensor."""

    def count(value):
        return b"\x8a\x08" + struct.pack("<q", value)

    def text(value):
        return b"X" + struct.pack("<I", len(value)) + value.encode()

    storage = (
        b"(" + text("storage") + b"ctorch\nFloatStorage\n" + text(key) + text("cpu") + count(numel) + b"tQ"
    )
    sizes = b"(" + b"".join(map(count, shape)) + b"t(" + b"".join(map(count, stride)) + b"t"
    rebuilt = (
        b"ctorch._utils\n_rebuild_tensor_v2\n("
        + storage
        + count(0)
        + sizes
        + b"\x89ccollections\nOrderedDict\n)RtR"
    )
    return b"\x80\x02}" + text("x") + rebuilt + b"s."


def tensor(numel, shape, stride, key="0", data=bytes(8)):
    return with_pickle(tensor_pickle(numel, shape, stride, key), **{"data/0": data})


TERA = 10**12
HOSTILE = {
    "code": (calling(sys.exit, 3), "would call sys.exit"),
    "a builtin": (calling(eval, "1/0"), r"would call \w+.eval"),
    "an allocation": (calling(bytearray, TERA), r"would call \w+.bytearray"),
    "a tensor of a size": (calling(torch.Tensor, 10**6, 10**6), r"would call torch\S*.Tensor"),
    "a storage that claims more": (tensor(TERA, (TERA,), (1,)), r"claims 4,000,000,000,000 bytes and has 8"),
    "a tensor beyond its data": (tensor(2, (TERA,), (1,)), r"claims more than the 8 bytes"),
    "a stride beyond its data": (tensor(2, (2,), (2,)), r"claims more than the 8 bytes"),
    "a tensor that repeats": (tensor(2, (TERA, TERA), (0, 0)), r"claims more than the 8 bytes"),
    "a negative size": (tensor(2, (-1,), (1,)), r"has the shape \(-1,\)"),
    "data that is missing": (tensor(2, (2,), (1,), key="9"), "no data '9'"),
    "data by a path": (tensor(2, (2,), (1,), key="../../x"), "no data '../../x'"),
    "a table": (with_pickle(b"\x80\x02}r\xff\xff\xff\x7f."), "a table larger than itself"),
    "an opcode": (with_pickle(pickle.dumps(bytes(300), protocol=4)), "uses FRAME"),
    "half a pickle": (with_pickle(b"\x80\x02}X\xff\xff\xff\x7fabc"), "expected 2147483647 bytes"),
    "a pickle of nothing": (with_pickle(b""), "pickle exhausted before seeing STOP"),
    "a stack underflow": (with_pickle(b"\x80\x02R."), "pickle is broken"),
    "a zip bomb": (
        archive([("archive/data.pkl", bytes(10**7))], compression=zipfile.ZIP_DEFLATED),
        "compressed or encrypted",
    ),
    "a path upwards": (archive([*members(), ("archive/../../x", b"")]), r"is called 'archive/../../x'"),
    "an absolute path": (archive([*members(), ("/etc/x", b"")]), "is called '/etc/x'"),
    "a second root": (archive([*members(), ("other/data.pkl", b"")]), "is called 'other/data.pkl'"),
    "a folder": (archive([*members(), ("archive/x/", b"")]), "is called 'archive/x/'"),
    "another zip": (archive([("word/document.xml", b"<x/>")]), "holds no data.pkl"),
    "something in front": (b"PK\x03\x04" + bytes(96) + GOOD, "before or behind"),
    "no member": (archive([]), "before or behind"),
}


@pytest.mark.parametrize(("content", "message"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_file_is_refused_before_it_is_believed(tmp_path, content, message):
    path = tmp_path / "model_1.pt"
    path.write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(DamagedCheckpointError, match=f"model_1.pt: damaged, or not .*{message}"):
            load_checkpoint(path)
        assert tracemalloc.get_traced_memory()[1] < 10 * len(content) + 10**6
    finally:
        tracemalloc.stop()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_member_twice_is_refused(tmp_path):
    path = tmp_path / "model_1.pt"
    path.write_bytes(archive([*members(), ("archive/data.pkl", b"")]))
    with pytest.raises(DamagedCheckpointError, match=r"holds 'archive/data.pkl' twice"):
        load_checkpoint(path)


def test_members_that_share_their_bytes_are_refused(tmp_path):
    """A directory that lists one large member many times over."""
    path = tmp_path / "model_1.pt"
    content = archive([*members(), ("archive/data/8", bytes(30_000)), ("archive/data/9", b"")])
    at = content.rindex(b"archive/data/8") - 46
    shared = bytearray(content)
    last = content.rindex(b"archive/data/9") - 46
    shared[last + 16 : last + 28] = content[at + 16 : at + 28]  # checksum and sizes
    shared[last + 42 : last + 46] = content[at + 42 : at + 46]  # place
    path.write_bytes(shared)
    with pytest.raises(DamagedCheckpointError, match=r"its members claim .* bytes, the file has"):
        load_checkpoint(path)


def test_every_kind_of_state_that_torch_saves_as_plain_data_is_accepted(tmp_path):
    path = tmp_path / "model_1.pt"
    network = torch.nn.Linear(2, 3)
    learner = {
        "network": network.state_dict(),  # an OrderedDict with an attribute
        "view": torch.arange(6.0).reshape(2, 3).t(),
        "empty": torch.zeros(0, 4),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
        "large": 2**100,
        "nested": [(1, None), [True, -7, "é"]],
        **{str(dtype): torch.ones(3, dtype=dtype) for dtype in (torch.bool, torch.bfloat16, torch.uint64)},
    }
    save_checkpoint(path, checkpoint(learner=learner))
    assert same(load_checkpoint(path), checkpoint(learner=learner))


def damaged_run(folder, *iterations):
    for iteration in (100, 200, 300):
        save_checkpoint(folder / f"model_{iteration}.pt", checkpoint(iteration))
    for iteration in iterations:
        (folder / f"model_{iteration}.pt").write_bytes(GOOD[:1000])


def test_the_latest_passes_over_damaged_ones_and_names_each_and_the_one_taken(tmp_path, caplog):
    damaged_run(tmp_path, 200, 300)
    path, loaded = load_latest_checkpoint(tmp_path)
    assert (path.name, loaded.iteration) == ("model_100.pt", 100)
    shown = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert [
        f"model_{number}.pt: cut off" in line for number, line in zip((300, 200), shown, strict=False)
    ] == [True] * 2
    assert shown[2] == f"taking {path} instead, of iteration 100"


def test_the_latest_says_nothing_where_only_an_older_one_is_damaged(tmp_path, caplog):
    damaged_run(tmp_path, 100, 200)
    assert load_latest_checkpoint(tmp_path)[1].iteration == 300
    assert caplog.records == []


def test_where_all_are_damaged_the_newest_is_the_error(tmp_path):
    damaged_run(tmp_path, 100, 200, 300)
    with pytest.raises(DamagedCheckpointError, match="model_300.pt: cut off") as caught:
        load_latest_checkpoint(tmp_path)
    assert caught.value.__notes__ == [f"the other 2 checkpoints of {tmp_path} are damaged as well"]


def test_a_newer_format_is_never_passed_over(tmp_path):
    damaged_run(tmp_path)
    (tmp_path / "model_300.pt").write_bytes(torch_bytes(envelope(format="unilab-rl/2")))
    with pytest.raises(CheckpointError, match=r"model_300.pt: has format 'unilab-rl/2'.*use the version"):
        load_latest_checkpoint(tmp_path)


def test_only_old_checkpoints_are_removed_and_the_spared_one_stays(tmp_path):
    for name in (
        "model_9.pt",
        "model_10.pt",
        "model_20.pt",
        "model_100.pt",
        "model_5.pt.superseded",
        "best.pt",
    ):
        (tmp_path / name).touch()
    assert remove_old_checkpoints(tmp_path, 0) == []
    removed = remove_old_checkpoints(tmp_path, 2, spare=tmp_path / "model_9.pt")
    assert [path.name for path in removed] == ["model_10.pt"]
    assert {path.name for path in tmp_path.iterdir()} == {
        *("model_9.pt", "model_20.pt", "model_100.pt", "model_5.pt.superseded", "best.pt")
    }
    with pytest.raises(ValueError, match="keep is -1"):
        remove_old_checkpoints(tmp_path, -1)


KILLS = '''
import io, json, os, signal, sys
from dataclasses import replace
from pathlib import Path
from unilab_rl import load_checkpoint, save_checkpoint

folder, old = Path(sys.argv[1]), Path(sys.argv[2])
changed = replace(load_checkpoint(old), env_steps=97)

def die():
    os.kill(os.getpid(), signal.SIGKILL)

class Counting(io.FileIO):
    """A file that ends its process when so many bytes are on disk."""
    left = None
    written = 0
    def write(self, data):
        if Counting.left is not None and Counting.left <= len(data):
            super().write(bytes(data)[: Counting.left])
            die()
        done = super().write(data)
        if Counting.left is not None:
            Counting.left -= done
        Counting.written += done
        return done

Path.open = lambda path, mode: io.BufferedWriter(Counting(path, "w"))

CALLS = [(name, when) for name in ("fsync", "replace", "open") for when in ("before", "after")]

def stop_at(name, when, number):
    real, calls = getattr(os, name), []
    def stopping(*args):
        calls.append(args)
        if len(calls) == number and when == "before":
            die()
        result = real(*args)
        if len(calls) == number and when == "after":
            die()
        return result
    setattr(os, name, stopping)

def child(number, prepare):
    """Saves in a process of its own, over the old file of one folder and beside that of another."""
    for kind, name in (("over", "model_3.pt"), ("beside", "model_4.pt")):
        place = folder / f"{number}-{kind}"
        place.mkdir()
        os.link(old, place / "model_3.pt")
        process = os.fork()
        if process == 0:
            prepare()
            save_checkpoint(place / name, changed)
            os._exit(0)
        status = os.waitpid(process, 0)[1]
        yield [place.name, os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0]

save_checkpoint(folder / "probe.pt", changed)
total = Counting.written
marks = sorted({0, 1, total - 1, total, *range(0, total, max(1, total // 24))})
prepared = [lambda mark=mark: setattr(Counting, "left", mark) for mark in marks]
prepared += [
    lambda call=call, number=number: stop_at(*call, number)
    for call in CALLS for number in ((1, 2) if call[0] == "fsync" else (1,))
]
print(json.dumps([entry for number, prepare in enumerate(prepared) for entry in child(number, prepare)]))
'''


def test_qa_086_a_kill_at_any_byte_or_system_call_of_a_save_leaves_an_older_file_to_load(tmp_path):
    old = tmp_path / "model_3.pt"
    save_checkpoint(old, checkpoint())
    process = python("-c", KILLS, str(tmp_path), str(old))
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    ended = json.loads(out)
    assert {signal for _, signal in ended} == {9}
    complete = 0
    for name, _ in ended:
        folder = tmp_path / name
        path, loaded = load_latest_checkpoint(folder)
        renamed = loaded.env_steps == 97
        complete += renamed
        assert same(replace(loaded, env_steps=96), checkpoint())
        # Beside the old file there is the new one, whole, or a remnant that nobody takes for a checkpoint.
        assert len(list_checkpoints(folder)) == 1 + (renamed and name.endswith("beside"))
        assert (path.name == "model_4.pt") is (renamed and name.endswith("beside"))
        assert same(load_checkpoint(folder / "model_3.pt"), checkpoint()) or name.endswith("over")
    # Killed after the rename, before and after the folder is opened, and before and after it is synchronised.
    assert complete == 2 * 5


FULL = """
import resource, signal, sys
from dataclasses import replace
from pathlib import Path
from unilab_rl import load_checkpoint, save_checkpoint

path = Path(sys.argv[1])
changed = replace(load_checkpoint(path), env_steps=97)
size = path.stat().st_size
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in (0, 1, size // 3, size - 1):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    for name in ("model_3.pt", "model_4.pt"):
        try:
            save_checkpoint(path.with_name(name), changed)
        except OSError as error:
            print(error.errno)
"""


def test_a_full_disk_is_an_os_error_and_leaves_the_old_file_and_nothing_else(tmp_path):
    import errno

    path = tmp_path / "model_3.pt"
    save_checkpoint(path, checkpoint(learner={"weight": torch.rand(30_000)}))
    before = path.read_bytes()
    shutil.copy(path, tmp_path / "copy")
    process = python("-c", FULL, str(path))
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    assert out.split() == [str(errno.EFBIG)] * 8
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["copy", "model_3.pt"]
    assert path.read_bytes() == before
