"""dev.py: which uv it takes, what it says when there is none to be had, and what it leaves as it is."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UV = '#!/bin/sh\n[ "$1" = --version ] && echo "uv {version} (test)" && exit\necho "{name}:$*:$PATH"\nexit 7\n'
PIP = """
import os, sys
place = sys.argv[sys.argv.index("--target") + 1]
os.makedirs(place + "/bin")
with open(place + "/bin/uv", "w") as file:
    file.write({uv!r})
os.chmod(place + "/bin/uv", 0o755)
print("pip", *sys.argv[1:], file=sys.stderr)
"""


class Machine:
    """A checkout with dev.py on a machine with its own PATH and its own pip."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.modules = root / "modules"
        self.bin.mkdir()
        self.modules.mkdir()
        (root / "checkout").mkdir()
        shutil.copy(ROOT / "dev.py", root / "checkout" / "dev.py")

    def add_uv(self, place: str, version: str) -> None:
        """Put an executable called uv somewhere."""
        path = self.root / place / "uv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(UV.format(version=version, name=place))
        path.chmod(0o755)

    def add_pip(self, program: str) -> None:
        """Let `python -m pip` run a program."""
        (self.modules / "pip.py").write_text(program)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run dev.py; the interpreter sees the standard library and this machine's modules alone."""
        return subprocess.run(
            [sys.executable, "-S", "dev.py", *arguments],
            cwd=self.root / "checkout",
            env={
                "PATH": f"{self.bin}:/usr/bin:/bin",
                "HOME": str(self.root),
                "PYTHONPATH": str(self.modules),
            },
            capture_output=True,
            text=True,
        )


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    """A machine without uv and without pip."""
    return Machine(tmp_path)


def test_the_uv_on_the_path_is_taken_with_its_arguments_and_its_exit_code(machine):
    machine.add_uv("bin", "0.9.0")
    result = machine.run("run", "--locked", "nox")
    assert result.stdout.startswith("bin:run --locked nox:")
    assert result.returncode == 7
    assert not (machine.root / "checkout/.tools").exists()


def test_an_old_uv_is_passed_over_for_the_one_in_tools(machine):
    machine.add_uv("bin", "0.8.24")
    machine.add_uv("checkout/.tools/bin", "0.13.0")
    result = machine.run("sync")
    assert result.stdout.startswith("checkout/.tools/bin:sync:")


def test_the_uv_that_was_chosen_comes_first_on_the_path(machine):
    machine.add_uv("checkout/.tools/bin", "0.13.0")
    result = machine.run("sync")
    assert f":sync:{machine.root}/checkout/.tools/bin:{machine.bin}:" in f":{result.stdout.partition(':')[2]}"


def test_without_uv_pip_installs_the_pinned_one_into_tools(machine):
    machine.add_pip(PIP.format(uv=UV.format(version="0.13.9", name="installed")))
    result = machine.run("lock")
    assert result.stdout.startswith("installed:lock:")
    tools = machine.root / "checkout/.tools"
    pip = f"pip install --quiet --upgrade --target {tools} uv=="
    assert f"dev.py: installing uv 0.13.9 into {tools}\n{pip}0.13.9" in result.stderr


def test_a_missing_pip_is_one_clear_line(machine):
    result = machine.run("lock")
    message = f"dev.py: {sys.executable} has no pip: install pip, or uv >= 0.9.0, and run this again\n"
    assert (result.returncode, result.stderr, result.stdout) == (1, message, "")


@pytest.mark.parametrize("program", ["raise SystemExit('no route to the index')", "pass"])
def test_an_installation_that_fails_is_one_clear_line(machine, program):
    machine.add_pip(program)
    result = machine.run("lock")
    assert result.returncode == 1
    assert result.stderr.endswith(
        f"dev.py: uv 0.13.9 could not be installed into {machine.root}/checkout/.tools: "
        "pip says why above; nothing was run\n"
    )


def test_a_broken_uv_in_tools_is_replaced(machine):
    machine.add_pip(
        PIP.format(uv=UV.format(version="0.13.9", name="installed")).replace('bin")', 'bin", exist_ok=True)')
    )
    machine.add_uv("checkout/.tools/bin", "unknown")
    assert machine.run("lock").stdout.startswith("installed:lock:")


def test_the_oldest_accepted_uv_is_the_one_that_the_workspace_requires():
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["uv"]["required-version"]
    minimum = re.search(r"^MINIMUM = \((\d+), (\d+), (\d+)\)", (ROOT / "dev.py").read_text(), re.MULTILINE)
    assert required == f">={minimum[1]}.{minimum[2]}"


def test_the_systems_certificates_are_used_unless_said_otherwise(machine):
    if not os.path.exists("/etc/ssl/certs"):
        pytest.skip("this system has no folder of certificates")
    machine.add_uv("bin", "0.9.0")
    path = machine.bin / "uv"
    path.write_text(path.read_text().replace('echo "bin:', 'echo "$UV_SYSTEM_CERTS:'))
    assert machine.run("lock").stdout.startswith("1:")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (("run", "--locked", "unilab", "train", "a task"), "-S dev.py run --locked unilab"),
        (("run", "unilab"), "-S dev.py run unilab"),
        (("run", "--package", "unilab", "-q", "unilab", "list"), "-S dev.py run --package unilab -q unilab"),
        (("run", "--locked", "nox", "unilab"), ""),
        (("sync", "unilab"), ""),
        (("run",), ""),
        ((), ""),
    ],
)
def test_unilab_is_told_how_it_was_called_and_nothing_else_is(machine, arguments, command):
    machine.add_uv("bin", "0.9.0")
    path = machine.bin / "uv"
    path.write_text(path.read_text().replace('echo "bin:', 'echo "$UNILAB_COMMAND:'))
    told = machine.run(*arguments).stdout.split(":")[0]
    python = Path(sys.executable).name
    if shutil.which(python, path=f"{machine.bin}:/usr/bin:/bin") is None:
        python = shlex.quote(sys.executable)
    assert told == (f"{python} {command}" if command else "")


def test_what_unilab_is_told_runs_it_again(machine):
    machine.add_uv("bin", "0.9.0")
    path = machine.bin / "uv"
    again = 'if [ "$4" = eval ]; then echo "again:$*"; exit; fi\nPATH=$PATH; eval "$UNILAB_COMMAND eval \'a run\'"\n'
    path.write_text(path.read_text().replace('echo "bin:', again + 'echo "bin:'))
    assert machine.run("run", "--locked", "unilab", "train").stdout.startswith(
        "again:run --locked unilab eval a run\n"
    )
