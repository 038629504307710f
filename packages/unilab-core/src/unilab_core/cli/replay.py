"""`unilab replay`: steps a NaN dump again."""

from __future__ import annotations

from pathlib import Path

import click

from unilab_core.cli.errors import BadInputError

__all__ = ["command"]


@click.command("replay", epilog="Example: unilab replay nan_dumps/nan_000000120.pt")
@click.argument("dump", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--backend", default="mujoco", show_default=True, help="Physics backend that the run had.")
@click.option("--device", default="cpu", show_default=True, help="Where a device-resident backend computes.")
def command(dump: Path, backend: str, device: str) -> int:
    """Steps DUMP again and says what is not finite; fails if it does not come out the same."""
    from unilab_core.nan_replay import replay_dump

    try:
        report = replay_dump(dump, backend=backend, device=device)
    except ValueError as error:  # no dump, or one whose simulation cannot be built again
        raise BadInputError(str(error)) from error
    click.echo(f"found: {report.message}")
    click.echo(f"rows: {list(report.rows)}")
    click.echo(
        f"not finite after the step: {list(report.non_finite)}; bad for the engine: {list(report.engine_bad)}"
    )
    click.echo("replayed exactly" if report.exact else "NOT the same as in the run")
    return 0 if report.exact else 1
