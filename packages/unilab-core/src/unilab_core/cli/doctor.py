"""`unilab doctor`: what works on this machine, and what to install or set for what does not."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import asdict, dataclass, replace
from typing import Any

import click

from unilab_core.cli import doctor_backends
from unilab_core.cli.doctor_checks import check_layers, check_python
from unilab_core.cli.doctor_worker import Worker
from unilab_core.cli.errors import BadInputError
from unilab_core.errors import PLUGIN_FAILURES, nearest
from unilab_core.registry import get_task
from unisim.doctor import Finding
from unisim.factory import list_backends

__all__ = ["Asked", "command", "examine"]

_CHECKS = "unilab_core.cli.doctor_checks"
_BACKENDS = "unilab_core.cli.doctor_backends"
_TORCH_CHECKS = (("torch", "check_torch"), ("CUDA", "check_cuda"), ("threads", "check_threads"))
_WARM_TIMEOUT_S = 3600.0
"""Nobody waits longer for a compiler; kernels of a large model have taken minutes."""
_COLOURS = {"ok": "green", "missing": "yellow", "broken": "red", "note": "cyan"}


@dataclass(frozen=True)
class Asked:
    """What the command line asks for.

    Attributes:
        tasks: Registered tasks to be tried; empty: a small scene.
        backends: Backends to look at; empty: all.
        device: Torch device of the attempts; None: CUDA where there is a device.
        num_envs: Rows of the attempts.
        warm: Whether kernels are compiled.
        timeout_s: After that a check counts as hanging, s.
    """

    tasks: tuple[str, ...] = ()
    backends: tuple[str, ...] = ()
    device: str | None = None
    num_envs: int = 16
    warm: bool = False
    timeout_s: float = 120.0


def examine(asked: Asked) -> Iterator[Finding]:
    """Yields the findings one by one, as they are made; every check that loads a library runs in another process."""
    if not asked.warm:
        yield check_python()
        yield from check_layers()
        with Worker() as worker:
            for name, function in _TORCH_CHECKS:
                yield worker.check(name, f"{_CHECKS}:{function}", timeout_s=asked.timeout_s)
    backends = asked.backends or list_backends()
    if not backends:
        yield Finding("backends", "missing", "none is installed", "pip install 'unisim[mujoco]>=2.0'")
    for backend in backends:
        yield from _examine_backend(backend, asked)


def _examine_backend(backend: str, asked: Asked) -> Iterator[Finding]:
    try:
        names = doctor_backends.names_of_checks(backend)
        compiles = doctor_backends.compiles_kernels(backend)
    except PLUGIN_FAILURES as error:
        yield Finding(f"{backend}: doctor", "broken", f"{type(error).__name__}: {error}")
        return
    if asked.warm and not compiles:
        if asked.backends:
            yield Finding(f"{backend}: run", "note", "this backend compiles no kernels")
        return
    with Worker() as worker:
        for number, name in enumerate(names or ()):
            finding = worker.check(
                f"{backend}: {name}",
                f"{_BACKENDS}:own_check",
                timeout_s=asked.timeout_s,
                backend=backend,
                check=name,
            )
            yield finding
            if number == 0 and finding.state in ("missing", "broken"):
                return
    for task in asked.tasks or (None,):
        # In a new process: kernels that an attempt before had loaded would not be seen being loaded.
        with Worker(show_output=asked.warm) as worker:
            yield _try(worker, backend, task, asked, engine_found=bool(names))


def _try(worker: Worker, backend: str, task: str | None, asked: Asked, *, engine_found: bool) -> Finding:
    warm = ["doctor", "--warm", *([task] if task else []), "--backend", backend]
    if asked.device:
        warm += ["--device", asked.device]
    finding = worker.check(
        f"{backend}: {task or 'run'}",
        f"{_BACKENDS}:try_backend",
        timeout_s=_WARM_TIMEOUT_S if asked.warm else asked.timeout_s,
        backend=backend,
        task=task,
        device=asked.device,
        num_envs=asked.num_envs,
        warm=asked.warm,
        # A launcher puts something in front of the command, and says what.
        command=f"{os.environ.get('UNILAB_COMMAND') or 'unilab'} {shlex.join(warm)}",
    )
    # Its own doctor finds the engine there: then that it cannot run is no longer a matter of what is installed.
    return replace(finding, state="broken") if engine_found and finding.state == "missing" else finding


def _fails(finding: Finding, asked: Asked) -> bool:
    """Whether a finding makes the exit code 1: what is broken, and what is missing of what was asked for by name."""
    wanted = any(finding.name.startswith(f"{backend}: ") for backend in asked.backends) or any(
        finding.name.endswith(f": {task}") for task in asked.tasks
    )
    return finding.state == "broken" or (finding.state == "missing" and wanted)


@click.command("doctor", epilog="Example: unilab doctor cartpole-balance --backend mujoco")
@click.argument("tasks", nargs=-1)
@click.option("--backend", "backends", multiple=True, help="Look at this backend only; may be repeated.")
@click.option("--device", help="Torch device that backends are tried on; by default CUDA where there is one.")
@click.option(
    "--num-envs", type=click.IntRange(min=1), default=16, show_default=True, help="Rows to try with."
)
@click.option("--warm", is_flag=True, help="Compile the kernels that TASKS, or a small scene, need.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(min=0, min_open=True),
    default=120.0,
    show_default=True,
    help="Seconds after which a check counts as hanging.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(as_json: bool, **options: Any) -> int:  # noqa: ANN401 - the fields of Asked, as click parsed them
    """Says what works on this machine, and what to do about what does not.

    With TASKS, tries these tasks on every backend instead of a small scene. Fails if something that is installed or
    was asked for does not work.
    """
    asked = _checked(Asked(**options))
    findings = list(examine(asked) if as_json or asked.warm else _shown(examine(asked)))
    ok = not any(_fails(finding, asked) for finding in findings)
    if as_json:
        click.echo(json.dumps({"ok": ok, "findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _print(findings)
    return 0 if ok else 1


def _checked(asked: Asked) -> Asked:
    """Returns the same with tasks and backends named as they are registered, each once.

    Raises:
        UnknownNameError: No such task.
        BadInputError: No such backend, or no device at all.
    """
    known = list_backends()
    for backend in asked.backends:
        if backend not in known:
            raise BadInputError(f"unknown backend {backend!r}; {nearest(backend, known)}")
    if asked.device is not None and asked.device.partition(":")[0] not in ("cpu", "cuda"):
        raise BadInputError(f"--device {asked.device!r}; expected 'cpu', 'cuda' or 'cuda:<index>'")
    tasks = dict.fromkeys(get_task(task).name for task in asked.tasks)
    return replace(asked, tasks=tuple(tasks), backends=tuple(dict.fromkeys(asked.backends)))


def _shown(findings: Iterator[Finding]) -> Iterator[Finding]:
    """Passes findings on, and shows on a terminal's stderr how far they are."""
    from rich.console import Console

    console = Console(stderr=True)
    with console.status("looking ...") if console.is_terminal else nullcontext() as status:
        for finding in findings:
            yield finding
            if status is not None:
                status.update(f"looking ... {finding.name}: {finding.state}")


def _print(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table("what", "state", "found")
    for finding in findings:
        # As Text: a string would have the brackets of an extra taken for markup.
        state = Text(finding.state, style=_COLOURS[finding.state])
        table.add_row(Text(finding.name), state, Text(finding.text))
    Console().print(table)
    remedies = [finding for finding in findings if finding.remedy]
    if remedies:
        click.echo("What can be done:")
    for finding in remedies:  # outside the table, so that a command can be copied whole
        click.echo(f"  {finding.name}: {finding.remedy}")
