"""What a file must be before `torch.load` may read it: an archive of `torch.save` that holds what it claims.

`torch.load(weights_only=True)` runs no code of a file, but it trusts the file's sizes: it reads a tensor beyond its
data, allocates what an argument asks for, unpacks compressed members, and compares no checksum. So the archive is read
here first, with nothing but Python's `zipfile` and an unpickler that makes no tensor.
"""

from __future__ import annotations

import io
import math
import pickle
import pickletools
import zipfile
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

__all__ = ["check_archive"]

_CHUNK = 1 << 20  # bytes read at once
# What `torch.save` writes for dicts, lists, tuples, numbers, strings and tensors; nothing among it names its own size.
_OPCODES = frozenset(
    {
        *("PROTO", "STOP", "MARK", "NONE", "NEWTRUE", "NEWFALSE", "BININT", "BININT1", "BININT2", "LONG1"),
        *("BINFLOAT", "BINUNICODE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2"),
        *("TUPLE3", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "BINPUT", "LONG_BINPUT", "BINGET"),
        *("LONG_BINGET", "GLOBAL", "REDUCE", "BUILD", "BINPERSID"),
    }
)


class _Kind(NamedTuple):
    """Stands for a storage class or a dtype; a tuple, so that a pickle can't change it."""

    itemsize: int
    """Bytes of an element."""


# How torch.save names what tensors are of, by a storage class or for new dtypes by themselves, and bytes of an element.
_KINDS = {
    "torch.storage.UntypedStorage": _Kind(1),
    **{f"torch.{name}Storage": _Kind(1) for name in ("Bool", "Byte", "Char")},
    **{f"torch.{name}Storage": _Kind(2) for name in ("BFloat16", "Half", "Short")},
    **{f"torch.{name}Storage": _Kind(4) for name in ("Float", "Int")},
    **{f"torch.{name}Storage": _Kind(8) for name in ("ComplexFloat", "Double", "Long")},
    "torch.ComplexDoubleStorage": _Kind(16),
    **{f"torch.{name}": _Kind(1) for name in ("float8_e4m3fn", "float8_e5m2")},
    **{f"torch.uint{bits}": _Kind(bits // 8) for bits in (16, 32, 64)},
}


class _Storage(NamedTuple):
    """Stands for the data of tensors."""

    num_bytes: int
    itemsize: int


def check_archive(path: Path) -> None:
    """Checks, without running any code that the file may hold, that `torch.load` may read it.

    Every member is stored as it is, fits in the file and has the checksum that it was written with; the pickle makes
    nothing but plain data and tensors; and each tensor lies inside its storage and has no more elements than the file
    bytes. The memory that this takes is bounded by the size of the file.

    Raises:
        ValueError: It may not; the message says why.
        OSError: The file can't be read.
    """
    size = path.stat().st_size
    try:
        with zipfile.ZipFile(path) as archive:
            root, sizes = _check_members(archive, size)
            pickled = archive.read(f"{root}/data.pkl")
            _check_pickle(pickled, {name: sizes[name] for name in sizes if name.startswith("data/")}, size)
            for info in archive.infolist():
                _check_sum(archive, info)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise ValueError(str(error) or type(error).__name__) from error


def _check_members(archive: zipfile.ZipFile, size: int) -> tuple[str, dict[str, int]]:
    """Returns the folder of all members, and their sizes in bytes by the rest of their names."""
    members = archive.infolist()
    if not members or min(info.header_offset for info in members) != 0 or archive.comment:
        raise ValueError("something lies before or behind the archive")
    root = members[0].filename.partition("/")[0]
    sizes: dict[str, int] = {}
    for info in members:
        folder, _, name = info.filename.partition("/")
        parts = PurePosixPath(info.filename).parts
        if (
            folder != root
            or not name
            or ".." in parts
            or info.is_dir()
            or info.orig_filename != info.filename
        ):
            raise ValueError(f"no member of a checkpoint is called {info.filename!r:.60}")
        if name in sizes:
            raise ValueError(f"it holds {info.filename!r:.60} twice")
        stored = info.compress_type == zipfile.ZIP_STORED and info.compress_size == info.file_size
        if not stored or info.flag_bits & 1:
            raise ValueError(f"{info.filename!r:.60} is compressed or encrypted, which no checkpoint is")
        sizes[name] = info.file_size
    if sum(sizes.values()) > size:
        raise ValueError(f"its members claim {sum(sizes.values()):,} bytes, the file has {size:,}")
    if "data.pkl" not in sizes:
        raise ValueError("torch.save did not write it: it holds no data.pkl")
    return root, sizes


def _check_sum(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
    """Reads a member to its end, where `zipfile` compares the checksum."""
    with archive.open(info) as member:
        while member.read(_CHUNK):
            pass


def _check_pickle(pickled: bytes, storages: dict[str, int], size: int) -> None:
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name not in _OPCODES:
                raise ValueError(f"its pickle uses {opcode.name}, which torch.save does not")
            if opcode.name == "LONG_BINPUT" and (argument or 0) > len(pickled):
                raise ValueError("its pickle asks for a table larger than itself")
        _DryUnpickler(pickled, storages, size).load()
    except (pickle.UnpicklingError, AttributeError, EOFError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"its pickle is broken: {error}") from error
    except (OverflowError, RecursionError) as error:
        raise ValueError(f"its pickle holds numbers or nesting beyond all measure: {error}") from error


class _DryUnpickler(pickle.Unpickler):
    """Unpickles plain data; where tensors would be made, it only looks whether they fit into the file."""

    def __init__(self, pickled: bytes, storages: dict[str, int], size: int) -> None:
        super().__init__(io.BytesIO(pickled))
        self._storages = storages
        self._size = size
        self._makers: dict[str, object] = {
            "collections.OrderedDict": OrderedDict,
            "torch.Size": _as_tuple,
            "torch._utils._rebuild_tensor_v2": self._check_tensor,
            "torch._utils._rebuild_tensor_v3": self._check_untyped,
            "torch._utils._rebuild_parameter": _as_data,
        }

    def find_class(self, module: str, name: str) -> Any:  # noqa: ANN401 - as the base class has it
        """Returns what stands for a global; one that makes anything but plain data or tensors is refused."""
        found = self._makers.get(f"{module}.{name}") or _KINDS.get(f"{module}.{name}")
        if found is None:
            raise ValueError(f"it would call {module}.{name}, which is neither plain data nor a tensor")
        return found

    def persistent_load(self, pid: Any) -> _Storage:  # noqa: ANN401 - as the base class has it
        """Returns what stands for a storage whose data is in the archive, all of it."""
        if not isinstance(pid, tuple) or len(pid) != 5 or pid[0] != "storage":
            raise ValueError(f"it refers to {pid!r:.60}, which is no tensor's data")
        _, kind, key, _, numel = pid
        if not isinstance(kind, _Kind) or not _is_count(numel) or f"data/{key}" not in self._storages:
            raise ValueError(f"it holds no data {key!r:.20} of a tensor")
        held = self._storages[f"data/{key}"]
        if numel * kind.itemsize != held:
            raise ValueError(
                f"the tensor data {key!r:.20} claims {numel * kind.itemsize:,} bytes and has {held:,}"
            )
        return _Storage(held, kind.itemsize)

    def _check_tensor(
        self, storage: _Storage, offset: int, shape: Sequence[int], stride: Sequence[int], *_: object
    ) -> None:
        self._check_fits(storage, storage.itemsize, offset, shape, stride)

    def _check_untyped(
        self,
        storage: _Storage,
        offset: int,
        shape: Sequence[int],
        stride: Sequence[int],
        requires_grad: bool,
        hooks: object,
        dtype: _Kind,
        *_: object,
    ) -> None:
        del requires_grad, hooks
        self._check_fits(storage, dtype.itemsize, offset, shape, stride)

    def _check_fits(
        self, storage: _Storage, itemsize: int, offset: int, shape: Sequence[int], stride: Sequence[int]
    ) -> None:
        counts = isinstance(shape, tuple) and isinstance(stride, tuple) and len(shape) == len(stride) <= 64
        if not counts or not all(map(_is_count, (offset, *shape, *stride))):
            raise ValueError(f"a tensor has the shape {shape!r:.60} with the stride {stride!r:.60}")
        elements = math.prod(shape)
        last = offset + sum((n - 1) * step for n, step in zip(shape, stride, strict=True)) if elements else -1
        if (last + 1) * itemsize > storage.num_bytes or elements > self._size:
            raise ValueError(
                f"a tensor of shape {shape!r:.60} claims more than the {storage.num_bytes:,} bytes of its data"
            )


def _as_tuple(values: Sequence[int]) -> tuple[int, ...]:
    if not isinstance(values, tuple):
        raise ValueError(f"it makes a size of {values!r:.60}")
    return values


def _as_data(data: object, *_: object) -> object:
    return data


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63
