"""The file that holds a replay beside a checkpoint: written atomically, read through a memory map."""

from __future__ import annotations

import ctypes
import hashlib
import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch

from unilab_rl.atomic_write import write_atomically

__all__ = [
    "FORMAT",
    "DamagedReplayFileError",
    "ReplayFile",
    "ReplayFileError",
    "read_replay_file",
    "write_replay_file",
]

FORMAT = "unilab-rl-replay/1"
# magic line | header length, 8 bytes, little-endian | header (JSON) | tensors, each from a multiple of 64 | SHA-256
_MAGIC = FORMAT.encode() + b"\n"
_LENGTH = 8
_ALIGNMENT = 64
_DIGEST = 32
_CHUNK = 2**24
_MAX_DIMENSIONS = 8
_MAX_SIZE = 2**63
_DTYPES = {str(dtype): dtype for dtype in (torch.float32, torch.uint8, torch.int32, torch.int64, torch.bool)}


class ReplayFileError(ValueError):
    """A file of a replay can't be read; the message names the file."""


class DamagedReplayFileError(ReplayFileError):
    """It is missing, cut off, altered, of another checkpoint or foreign, so that an older one is the better choice."""


@dataclass(frozen=True)
class ReplayFile:
    """The contents of a file that was checked, as `ReplayContents`."""

    contents: Mapping[str, Any]
    """Plain data, and tensors that are views of the mapped file: pages are read when they are used."""

    def restore(self) -> Mapping[str, Any]:
        """Returns the contents."""
        return self.contents


def write_replay_file(path: Path, state: Mapping[str, Any]) -> str:
    """Writes the contents of a replay so that `path` holds the old file, or none, until the new one is complete.

    Args:
        path: The file.
        state: Plain data and tensors, which may lie on any device; they are written piece by piece, and what lies on
            the CPU is not copied.

    Returns:
        The SHA-256 of all that precedes it in the file, in hexadecimal.

    Raises:
        OSError: The place can't be written or is full; nothing is left behind.
    """
    tensors: dict[str, torch.Tensor] = {}
    plain = _take_tensors(state, "", tensors)
    sections = [
        {"name": name, "dtype": str(tensor.dtype), "shape": list(tensor.shape)}
        for name, tensor in tensors.items()
    ]
    header = json.dumps({"state": plain, "sections": sections}).encode()

    def write_all(file: BinaryIO) -> str:
        digest = hashlib.sha256()

        def write(data: bytes | memoryview) -> None:
            file.write(data)
            digest.update(data)

        write(_MAGIC + len(header).to_bytes(_LENGTH, "little") + header)
        for tensor in tensors.values():
            write(b"\0" * (-file.tell() % _ALIGNMENT))
            for piece in _pieces(tensor):
                write(_bytes_of(piece))
        file.write(digest.digest())
        return digest.hexdigest()

    return write_atomically(path, write_all)


def read_replay_file(path: Path, *, digest: str) -> ReplayFile:
    """Maps a file and checks every byte of it.

    Args:
        path: The file.
        digest: What `write_replay_file` returned.

    Raises:
        ReplayFileError: It is of another format version.
        DamagedReplayFileError: There is no such file; it is empty, cut off, damaged, or not the one of `digest`.
        OSError: It can't be read.
    """
    mapped = _map(path)
    header, start = _read_header(path, mapped)
    sections, end = _locate(path, header, start)
    if mapped.numel() != end + _DIGEST:
        raise DamagedReplayFileError(
            f"{path}: cut off, or damaged: {mapped.numel()} bytes, expected {end + _DIGEST}"
        )
    found = hashlib.sha256()
    for piece in torch.split(mapped[:end], _CHUNK):
        found.update(_bytes_of(piece))
    if found.digest() != bytes(_bytes_of(mapped[end:])):
        raise DamagedReplayFileError(f"{path}: damaged, its checksum is wrong")
    if found.hexdigest() != digest:
        raise DamagedReplayFileError(
            f"{path}: of another checkpoint, its SHA-256 is {found.hexdigest()}, expected {digest}"
        )
    try:
        tensors = {
            name: mapped[first:last].view(_DTYPES[dtype]).view(shape)
            for name, dtype, shape, first, last in sections
        }
        return ReplayFile(_put_tensors(header["state"], "", tensors))
    except (TypeError, ValueError, RuntimeError) as error:  # a shape without elements, or too deep a state
        raise DamagedReplayFileError(f"{path}: damaged, its header describes no replay") from error


def _map(path: Path) -> torch.Tensor:
    if not path.is_file():
        raise DamagedReplayFileError(f"{path}: no such replay file")
    size = path.stat().st_size
    with path.open("rb") as file:
        magic = file.read(len(_MAGIC))
    if magic != _MAGIC:
        line = magic.split(b"\n")[0].decode(errors="replace")
        if _MAGIC.startswith(magic):  # which is nothing where the file is empty
            raise DamagedReplayFileError(f"{path}: cut off after {size} bytes")
        if re.fullmatch(r"unilab-rl-replay/\d+", line):
            raise ReplayFileError(
                f"{path}: has format {line!r}, this version reads {FORMAT!r}; use the version of unilab-rl that "
                "wrote it"
            )
        raise DamagedReplayFileError(f"{path}: written by something else, not a replay file of unilab-rl")
    # Private: nobody writes, and if somebody did, the file would stay as it is.
    return torch.from_file(str(path), shared=False, size=size, dtype=torch.uint8)


def _read_header(path: Path, mapped: torch.Tensor) -> tuple[dict[str, Any], int]:
    start = len(_MAGIC) + _LENGTH
    length = int.from_bytes(bytes(_bytes_of(mapped[len(_MAGIC) : start])), "little")
    if mapped.numel() < start + length + _DIGEST:
        raise DamagedReplayFileError(f"{path}: cut off within its header, or damaged")
    try:
        header = json.loads(bytes(_bytes_of(mapped[start : start + length])))
    except (ValueError, RecursionError) as error:
        raise DamagedReplayFileError(f"{path}: damaged, its header is unreadable") from error
    if not isinstance(header, dict) or set(header) != {"state", "sections"}:
        raise DamagedReplayFileError(f"{path}: damaged, its header is none")
    return header, start + length


def _locate(
    path: Path, header: Mapping[str, Any], start: int
) -> tuple[list[tuple[str, str, list[int], int, int]], int]:
    """Returns name, dtype, shape, first and last byte of every tensor, and where the last one ends."""
    located, end = [], start
    try:
        for section in header["sections"]:
            name, dtype, shape = section["name"], section["dtype"], section["shape"]
            if not isinstance(name, str) or not _is_shape(shape):
                raise TypeError("the name or the shape is none")
            first = end + -end % _ALIGNMENT
            end = first + math.prod(shape) * _DTYPES[dtype].itemsize
            located.append((name, dtype, shape, first, end))
    except (KeyError, TypeError) as error:
        raise DamagedReplayFileError(f"{path}: damaged, its header is none") from error
    return located, end


def _is_shape(given: object) -> bool:
    """Whether it is one that a tensor may have; numbers beyond that are neither multiplied nor shown."""
    return (
        isinstance(given, list)
        and len(given) <= _MAX_DIMENSIONS
        and all(type(size) is int and 0 <= size < _MAX_SIZE for size in given)
    )


def _take_tensors(value: Any, name: str, tensors: dict[str, torch.Tensor]) -> Any:  # noqa: ANN401 - any plain data
    """Returns plain data without its tensors, which are collected by their dotted place."""
    if isinstance(value, torch.Tensor):
        tensors[name] = value
        return None
    if isinstance(value, Mapping):
        return {key: _take_tensors(item, f"{name}.{key}", tensors) for key, item in value.items()}
    return value


def _put_tensors(value: Any, name: str, tensors: Mapping[str, torch.Tensor]) -> Any:  # noqa: ANN401
    """Undoes `_take_tensors`."""
    if name in tensors:
        return tensors[name]
    if isinstance(value, dict):
        return {key: _put_tensors(item, f"{name}.{key}", tensors) for key, item in value.items()}
    return value


def _pieces(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Yields a tensor in row-major order as contiguous pieces on the CPU, of `_CHUNK` bytes at most."""
    if tensor.numel() * tensor.itemsize <= _CHUNK or tensor.ndim == 0:
        yield tensor.detach().to("cpu").contiguous()
        return
    rows = _CHUNK // (tensor[0].numel() * tensor.itemsize)
    for piece in torch.split(tensor, rows) if rows else tensor:
        yield from _pieces(piece)


def _bytes_of(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a contiguous tensor on the CPU, without a copy; valid as long as the tensor."""
    size = tensor.numel() * tensor.itemsize
    # Tensors have no buffer protocol of their own, and NumPy is no dependency.
    return (
        memoryview((ctypes.c_char * size).from_address(tensor.data_ptr())).cast("B")
        if size
        else memoryview(b"")
    )
