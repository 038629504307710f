"""The command `unilab`: commands of all layers, one message for bad input, exit codes."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import click
import pytest

from unilab_core import CapabilityError, ConfigError, UnknownNameError
from unilab_core.cli import dispatcher, main
from unilab_core.cli.errors import BadInputError

RAISED = {
    "config": ConfigError("rewards.x: unknown key"),
    "capability": CapabilityError("backend 'x' cannot"),
    "unknown": UnknownNameError("unknown task 'x'"),
    "input": BadInputError("no run folder there"),
    "failed": ValueError("a defect"),
    "interrupted": KeyboardInterrupt(),
}


@click.command("echo")
@click.argument("words", nargs=-1)
def echo(words):
    """Says what it is told."""
    click.echo(" ".join(words))


@click.command("exit")
@click.argument("code", type=int)
def exit_(code):
    """Returns an exit code."""
    return code


@click.command("raise")
@click.argument("which")
def raise_(which):
    """Fails in a way of its choice."""
    raise RAISED[which]


@pytest.fixture(autouse=True)
def _commands(monkeypatch):
    loaded = {"echo": echo, "exit": exit_, "raise": raise_}
    points = [
        SimpleNamespace(name=name, load=lambda command=command: command) for name, command in loaded.items()
    ]
    monkeypatch.setattr(
        dispatcher, "entry_points", lambda group: points if group == "unilab.commands" else []
    )


def test_a_command_is_found_by_its_entry_point(capsys):
    assert main(["echo", "hello", "there"]) == 0
    assert capsys.readouterr().out == "hello there\n"


def test_the_exit_code_is_what_the_command_returns():
    assert main(["exit", "1"]) == 1


@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_help_lists_every_command_with_an_example(flag, capsys):
    assert main([flag]) == 0
    out = capsys.readouterr().out
    assert "Says what it is told." in out
    assert "Example: unilab train cartpole-balance" in out
    assert "--debug" in out


def test_an_unknown_command_is_bad_input_with_the_nearest_name(capsys):
    assert main(["ecko"]) == 2
    err = capsys.readouterr().err
    assert "Error: unknown command 'ecko'; did you mean 'echo'?" in err
    assert "Traceback" not in err


def test_a_wrong_option_is_bad_input(capsys):
    assert main(["echo", "--lout"]) == 2
    assert "--lout" in capsys.readouterr().err


@pytest.mark.parametrize("which", ["config", "capability", "unknown", "input"])
def test_bad_input_is_one_message_on_stderr_and_exit_code_2(which, capsys):
    assert main(["raise", which]) == 2
    captured = capsys.readouterr()
    message = RAISED[which].message if which == "input" else str(RAISED[which])
    assert captured.err == f"Error: {message}\n"
    assert captured.out == ""


@pytest.mark.parametrize("which", ["config", "capability", "unknown", "input"])
@pytest.mark.parametrize("place", [0, 1, 2])
def test_debug_shows_the_traceback_and_keeps_the_exit_code(which, place, capsys):
    args = ["raise", which]
    args.insert(place, "--debug")
    assert main(args) == 2
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.rstrip().splitlines()[-1].startswith("Error: ")


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ValueError, match="a defect"):
        main(["raise", "failed"])


def test_an_interrupt_is_a_failure_because_130_promises_a_checkpoint(capsys):
    assert main(["raise", "interrupted"]) == 1
    assert capsys.readouterr().err.endswith("Interrupted.\n")


def test_a_command_of_a_missing_layer_names_what_to_install(capsys):
    assert main(["train", "cartpole-balance"]) == 2
    assert (
        "'train' needs another layer: pip install 'unilab-rl[cli,rsl-rl]>=2.0,<3'" in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
        (sys.exit, "SystemExit"),
        (lambda: sys.exit("no licence"), "SystemExit: no licence"),
        (lambda: "text", "TypeError: it is a str, expected a click command"),
    ],
)
def test_a_command_that_cannot_be_imported_says_so_and_hides_no_other(load, problem, monkeypatch, capsys):
    broken = SimpleNamespace(name="broken", group="unilab.commands", value="m:command", dist=None, load=load)
    points = [broken, SimpleNamespace(name="echo", load=lambda: echo)]
    monkeypatch.setattr(dispatcher, "entry_points", lambda group: points)
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    assert f"cannot be imported: m:command raised {problem.partition(':')[0]}" in out
    assert "Says what it is told." in out
    assert main(["broken", "--loud", "--help"]) == 1
    message = f"Error: unilab.commands entry point 'broken' (m:command) cannot be loaded: {problem}\n"
    assert capsys.readouterr().err == message
    assert main(["broken", "--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_while_a_command_is_imported_is_no_fault_of_its_package(monkeypatch, capsys):
    def interrupted():
        raise KeyboardInterrupt

    points = [SimpleNamespace(name="slow", group="unilab.commands", value="m:c", dist=None, load=interrupted)]
    monkeypatch.setattr(dispatcher, "entry_points", lambda group: points)
    assert main(["slow"]) == 1
    assert capsys.readouterr().err.endswith("Interrupted.\n")


def brought_by(package, value, command):
    """The entry point `echo` of a package."""
    dist = SimpleNamespace(name=package, version="1.0")
    return SimpleNamespace(name="echo", group="unilab.commands", value=value, dist=dist, load=lambda: command)


def test_a_command_that_two_packages_bring_is_refused_with_both_named_and_hides_no_other(monkeypatch, capsys):
    points = [
        brought_by("theirs", "theirs:echo", exit_),
        brought_by("ours", "ours:echo", echo),
        SimpleNamespace(name="exit", load=lambda: exit_),
    ]
    for found in (points, points[::-1]):
        monkeypatch.setattr(dispatcher, "entry_points", lambda group, found=found: found)
        assert main(["echo", "hello"]) == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err == (
            "Error: command 'echo' is brought by ours (ours:echo) and by theirs (theirs:echo); uninstall one of them\n"
        )
        assert main(["--help"]) == 0
        assert capsys.readouterr().out.count("brought by 2 packages: ours, theirs") == 1
        assert main(["exit", "0"]) == 0


def test_a_command_that_two_packages_name_alike_is_one_command(monkeypatch, capsys):
    points = [brought_by("old-name", "ours:echo", echo), brought_by("new-name", "ours:echo", echo)]
    monkeypatch.setattr(dispatcher, "entry_points", lambda group: points)
    assert main(["echo", "hello"]) == 0
    assert capsys.readouterr().out == "hello\n"


# ---------------------------------------------------------------- in a process of its own


@pytest.mark.parametrize(
    ("command", "example"),
    [
        ("list", "unilab list --json"),
        ("doctor", "unilab doctor cartpole-balance --backend mujoco"),
        ("new", "unilab new my_robot"),
        ("replay", "unilab replay nan_dumps/nan_000000120.pt"),
    ],
)
def test_an_installed_command_helps_without_torch_or_an_engine(program, command, example):
    finished = program(f"""
import sys
from unilab_core.cli import main
code = main(["{command}", "--help"])
heavy = {{"torch", "mujoco", "warp", "rsl_rl"}} & set(sys.modules)
sys.exit(f"imported {{heavy}}" if heavy else code)
""")
    assert (finished.returncode, finished.stderr) == (0, "")
    assert f"Example: {example}" in finished.stdout


def test_a_missing_cli_extra_is_named(program):
    finished = program("""
import sys
sys.modules["click"] = None
from unilab_core.cli import main
sys.exit(main(["list"]))
""")
    assert finished.returncode == 2
    assert finished.stderr == "unilab needs the cli extra: pip install 'unilab-core[cli]'\n"


def test_bad_input_in_a_process_is_exit_code_2_without_a_traceback(program):
    finished = program("import sys; from unilab_core.cli import main; sys.exit(main(['lisd']))")
    assert finished.returncode == 2
    assert "unknown command 'lisd'; did you mean 'list'?" in finished.stderr
    assert "Traceback" not in finished.stderr
    assert finished.stdout == ""


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({}, ("PASSIVE", "2000")),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ("ACTIVE", None)),
        ({"GOMP_SPINCOUNT": "7"}, ("PASSIVE", "7")),
    ],
)
def test_waiting_threads_of_torch_give_their_cores_to_physics_unless_something_else_is_said(
    program, given, found
):
    finished = program(f"""
import os, sys
names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
for name in names:
    os.environ.pop(name, None)
os.environ.update({given})
from unilab_core.cli import main
main(["--help"])
print([os.environ.get(name) for name in names], file=sys.stderr)
""")
    assert finished.stderr == f"{list(found)}\n"
