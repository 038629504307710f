"""Environments of the peers, each of its own; neither the workspace's lock nor its .venv is touched.

python benchmarks/peer_envs.py unilab mjlab      make them; what is there is left as it is
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["PEERS", "PeerError", "make_environment"]

HERE = Path(__file__).resolve().parent
ENVIRONMENTS = HERE.parent / ".tools" / "peers"
"""Not below this folder: the workspace's checks read that."""
PEERS = {"unilab": "unilab[mujoco]==1.5.2", "mjlab": "mjlab==1.6.0"}
_KEPT = ("UV_CACHE_DIR", "UV_HTTP_TIMEOUT", "UV_LINK_MODE", "UV_OFFLINE", "UV_SYSTEM_CERTS")
"""Where uv keeps things and how it reaches the index; whatever else it reads could change what is installed."""


class PeerError(RuntimeError):
    """A peer cannot be installed or does not run here."""


def python_of(peer: str) -> Path:
    """Return the interpreter of a peer's environment, whether it is there or not."""
    return ENVIRONMENTS / PEERS[peer].replace("[mujoco]", "").replace("==", "-") / "bin" / "python"


def make_environment(peer: str) -> Path:
    """Install a peer from the package index unless it is installed, and return the interpreter.

    Raises:
        PeerError: uv is missing or could not install it.
    """
    python = python_of(peer)
    done = python.parents[1] / "installed"
    if done.exists():
        return python
    uv = shutil.which("uv")
    if uv is None:
        raise PeerError("uv is not on PATH; install it: https://docs.astral.sh/uv")
    folder = python.parents[1]
    folder.parent.mkdir(parents=True, exist_ok=True)
    commands = (
        [uv, "venv", "--no-config", "--no-project", "--clear", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--no-config", "--python", str(python), PEERS[peer]],
    )
    for command in commands:
        print("+", *command, file=sys.stderr)
        if subprocess.call(command, cwd=folder.parent, env=clean(os.environ)) != 0:
            raise PeerError(f"{PEERS[peer]} could not be installed into {folder}: uv says why above")
    done.touch()
    return python


def clean(environment: Mapping[str, str]) -> dict[str, str]:
    """Return it without what would change which packages uv finds, or which interpreter runs."""
    dropped = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    return {
        name: value
        for name, value in environment.items()
        if name in _KEPT or not (name.startswith(("UV_", "PIP_")) or name in dropped)
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the environments that are named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("peers", nargs="+", choices=sorted(PEERS))
    try:
        for peer in parser.parse_args(arguments).peers:
            print(make_environment(peer))
    except PeerError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
