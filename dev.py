#!/usr/bin/env python3
"""Run uv with the given arguments, installing it into .tools first where this machine has none.

python3 dev.py run --locked nox
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import ssl
import subprocess
import sys
from pathlib import Path

MINIMUM = (0, 9, 0)  # [tool.uv] required-version in pyproject.toml
PIN = "0.13.9"
WITH_VALUE = {"--extra", "--group", "--package", "--project", "--python", "-p", "--with"}  # of `uv run`
TOOLS = Path(__file__).resolve().parent / ".tools"


def version(uv: str) -> tuple[int, ...]:
    """The version of a uv executable; (0,) where it does not run."""
    try:
        reply = subprocess.run([uv, "--version"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return (0,)
    numbers = re.match(r"uv (\d+)\.(\d+)\.(\d+)", reply)
    return tuple(map(int, numbers.groups())) if numbers else (0,)


def find_uv() -> str:
    """A uv that is new enough: from PATH, else from .tools, else installed there by pip."""
    own = str(TOOLS / "bin" / "uv")
    for candidate in (shutil.which("uv"), own):
        if candidate and version(candidate) >= MINIMUM:
            return candidate
    if importlib.util.find_spec("pip") is None:
        wanted = ".".join(map(str, MINIMUM))
        sys.exit(f"dev.py: {sys.executable} has no pip: install pip, or uv >= {wanted}, and run this again")
    print(f"dev.py: installing uv {PIN} into {TOOLS}", file=sys.stderr)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--upgrade",
        "--target",
        str(TOOLS),
        f"uv=={PIN}",
    ]
    if subprocess.call(pip) != 0 or version(own) < MINIMUM:
        sys.exit(f"dev.py: uv {PIN} could not be installed into {TOOLS}: pip says why above; nothing was run")
    return own


def typed_command(arguments: list[str]) -> str:
    """What was typed up to `unilab`, so that it can say what to type next; empty where it is not what uv runs."""
    position = 1
    while arguments[position : position + 1] and arguments[position].startswith("-"):
        position += 2 if arguments[position] in WITH_VALUE else 1
    if arguments[:1] != ["run"] or arguments[position : position + 1] != ["unilab"]:
        return ""
    python, *rest = sys.orig_argv[: len(sys.orig_argv) - len(arguments) + position + 1]
    name = Path(python).name  # a launcher of Python may have made a whole path of what was typed
    return shlex.join([name if shutil.which(name) else python, *rest])


def main() -> None:
    """Replace this process with uv."""
    uv = find_uv()
    os.environ["UNILAB_COMMAND"] = typed_command(sys.argv[1:])
    os.environ["PATH"] = os.pathsep.join([str(Path(uv).parent), os.environ.get("PATH", os.defpath)])
    system = ssl.get_default_verify_paths()
    if system.cafile or (system.capath and os.listdir(system.capath)):  # a proxy's own certificate is there
        os.environ.setdefault("UV_SYSTEM_CERTS", "1")
    os.execv(uv, [uv, *sys.argv[1:]])


if __name__ == "__main__":
    main()
