"""Packs what a GPU machine lacks, for `gpu_check.py --carried`: our wheels, the engines, everything but torch.

    python scripts/gpu_carry.py FOLDER [--python 3.12] [--part-mib 50] [--have NAME ...]

FOLDER gets one subfolder per part, so that each can travel by itself; the machine needs neither pip nor a network.
Run it where this workspace's uv is.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

__all__ = ["CarriedError", "compress", "join", "needed", "pack", "split", "unpack"]

ROOT = Path(__file__).resolve().parent.parent
PLATFORM = "x86_64-manylinux_2_28"
MIB = 2**20
MANIFEST, DATA = "manifest.json", "data"
UNUSED = ("av", "mujoco-studio")
"""Distributions that no check uses."""
CPU_KERNELS = "warp/bin/warp-clang.so"
"""Compiles kernels for Warp's CPU device."""
SKIPPED = ("warp/tests", "warp/examples", "mujoco/doc", "bin")
"""Folders of an installation that no check uses."""


class CarriedError(Exception):
    """What was carried cannot be used, or cannot be made."""


# ---------------------------------------------------------------- pack


def uv(*arguments: str) -> str:
    """Runs uv in the workspace and returns what it prints."""
    binary = shutil.which("uv")
    if binary is None:
        raise CarriedError("uv is not installed; run this in the environment of `uv sync`")
    done = subprocess.run([binary, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CarriedError(f"uv {' '.join(arguments)} failed:\n{done.stderr}")
    return done.stdout


def needed(lock: Mapping[str, Any], *, without: Iterable[str]) -> set[str]:
    """Returns what a lock's workspace needs for its tests, extras included, and not only through `without`."""
    packages: dict[str, list[Mapping[str, Any]]] = {}
    for package in lock["package"]:
        packages.setdefault(package["name"], []).append(package)
    own = [p for p in lock["package"] if {"virtual", "editable"} & p["source"].keys()]
    waiting = [item for package in own for item in package.get("dev-dependencies", {}).get("test", ())]
    waiting += [item for package in own for item in _dependencies(package)]
    found, left_out = {package["name"] for package in own}, set(without)
    while waiting:
        name = waiting.pop()["name"]
        if name not in found and name not in left_out:
            found.add(name)
            waiting += [item for package in packages[name] for item in _dependencies(package)]
    return found


def _dependencies(package: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    extras = [item for items in package.get("optional-dependencies", {}).values() for item in items]
    return [*package.get("dependencies", ()), *extras]


def install(site: Path, *, python: str, have: Sequence[str]) -> None:
    """Installs the locked distributions for another machine into a folder, ours as wheels built from this checkout."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        uv("build", "--quiet", "--all-packages", "--wheel", "--out-dir", str(place / "dist"))
        listed = uv(
            *("export", "--quiet", "--locked", "--all-packages", "--all-extras", "--no-default-groups"),
            *("--group", "test", "--no-emit-workspace", "--no-hashes", "--no-annotate", "--no-header"),
        )
        wanted = needed(tomllib.loads((ROOT / "uv.lock").read_text()), without=("torch", *UNUSED, *have))
        requirements = place / "requirements.txt"
        requirements.write_text(
            "".join(f"{line}\n" for line in listed.splitlines() if line.split("==")[0] in wanted)
        )
        uv(
            *("pip", "install", "--quiet", "--no-deps", "--no-config", "--only-binary", ":all:"),
            *("--target", str(site), "--python-version", python, "--python-platform", PLATFORM),
            *("--requirements", str(requirements), *map(str, sorted((place / "dist").glob("*.whl")))),
        )


def _wanted(site: Path, *, skipped: Iterable[str]) -> Iterator[Path]:
    """Yields the files to pack, in a fixed order."""
    left_out = [site / name for name in skipped]
    for path in sorted(site.rglob("*")):
        skip = "__pycache__" in path.parts or any(p == path or p in path.parents for p in left_out)
        if path.is_file() and not skip:
            yield path


def compress(site: Path, archive: Path, *, skipped: Iterable[str], preset: int = 6) -> None:
    """Writes a folder's files as one archive; machine code is most of it, hence the filter."""
    filters = [{"id": lzma.FILTER_X86}, {"id": lzma.FILTER_LZMA2, "preset": preset}]
    with (
        lzma.open(archive, "wb", format=lzma.FORMAT_XZ, filters=filters) as stream,
        tarfile.open(fileobj=stream, mode="w") as tar,
    ):
        for path in _wanted(site, skipped=skipped):
            tar.add(path, arcname=str(path.relative_to(site)), recursive=False)


def split(archive: Path, out: Path, *, part_bytes: int, about: dict[str, Any]) -> list[Path]:
    """Cuts an archive into folders of at most `part_bytes` each; returns them."""
    size = archive.stat().st_size
    count = max(1, -(-size // part_bytes))
    common = {**about, "parts": count, "bytes": size, "sha256": _digest(archive)}
    folders = []
    for older in out.glob("part-*"):
        shutil.rmtree(older)
    with archive.open("rb") as file:
        for index in range(count):
            folder = out / f"part-{index}"
            folder.mkdir(parents=True)
            (folder / DATA).write_bytes(file.read(part_bytes))
            (folder / MANIFEST).write_text(json.dumps({**common, "part": index}) + "\n")
            folders.append(folder)
    return folders


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def pack(out: Path, *, python: str, part_mib: int, have: Sequence[str], cpu_kernels: bool) -> list[Path]:
    """Makes the parts; returns their folders.

    Raises:
        CarriedError: uv is not there or fails.
    """
    with tempfile.TemporaryDirectory() as name:
        site, archive = Path(name) / "site", Path(name) / "site.tar.xz"
        install(site, python=python, have=have)
        compress(site, archive, skipped=SKIPPED if cpu_kernels else (*SKIPPED, CPU_KERNELS))
        about = {"python": python, "platform": PLATFORM, "have": sorted(have)}
        return split(archive, out, part_bytes=part_mib * MIB, about=about)


# ---------------------------------------------------------------- unpack


def join(folders: Sequence[Path], archive: Path) -> dict[str, Any]:
    """Puts parts together again, in whatever order they are named; returns what is said of them.

    Raises:
        CarriedError: No part, one is missing or of another pack, or the content is damaged.
    """
    parts: dict[int, Path] = {}
    packs: set[str] = set()
    about: dict[str, Any] = {}
    for folder in folders:
        found = [path.parent for path in sorted(folder.glob(f"**/{MANIFEST}"))]
        if not found:
            raise CarriedError(f"{folder} holds no part that gpu_carry.py made")
        for place in found:
            about = json.loads((place / MANIFEST).read_text())
            parts[about["part"]] = place / DATA
            packs.add(about["sha256"])
    if len(packs) != 1:
        raise CarriedError(f"the parts in {[str(folder) for folder in folders]} belong to {len(packs)} packs")
    if missing := sorted(set(range(about["parts"])) - set(parts)):
        raise CarriedError(f"part {missing} of {about['parts']} is missing")
    with archive.open("wb") as file:
        for index in range(about["parts"]):
            with parts[index].open("rb") as part:
                shutil.copyfileobj(part, file)
    if _digest(archive) != about["sha256"]:
        raise CarriedError("the parts are damaged: their digest is not the manifest's")
    return about


def unpack(folders: Sequence[Path], site: Path) -> None:
    """Unpacks all parts into a folder for PYTHONPATH.

    Raises:
        CarriedError: As `join`; or they were packed for another Python.
    """
    with tempfile.TemporaryDirectory() as name:
        archive = Path(name) / "site.tar.xz"
        about = join(folders, archive)
        running = f"{sys.version_info.major}.{sys.version_info.minor}"
        if about["python"] != running:
            raise CarriedError(f"it was packed for Python {about['python']}, this is {running}")
        with tarfile.open(archive, "r:xz") as tar:
            tar.extractall(site)


def main() -> int:
    """Packs what the command line asks for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--python", default="3.12", help="of the GPU machine; by default 3.12")
    parser.add_argument("--part-mib", type=int, default=50, help="most MiB of a part; by default 50")
    parser.add_argument("--have", nargs="+", default=[], metavar="NAME", help="distributions that are there")
    parser.add_argument(
        "--no-cpu-kernels",
        action="store_true",
        help="leave out Warp's compiler for the CPU, which CUDA does not need",
    )
    given = parser.parse_args()
    if given.part_mib < 1:
        parser.error(f"--part-mib {given.part_mib}, expected at least 1")
    try:
        folders = pack(
            given.folder,
            python=given.python,
            part_mib=given.part_mib,
            have=given.have,
            cpu_kernels=not given.no_cpu_kernels,
        )
    except CarriedError as error:
        print(f"gpu_carry: {error}", file=sys.stderr)
        return 1
    for folder in folders:
        print(f"{folder}: {(folder / DATA).stat().st_size / MIB:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
