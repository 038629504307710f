"""`unilab export`: writes the policy of a run as files that run without this framework."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import click

from unilab_core.cli.errors import BadInputError
from unilab_rl.cli.shared import RUNS, failures_as_messages, find_run

if TYPE_CHECKING:
    from unilab_rl.checkpoint import Checkpoint
    from unilab_rl.export.exporter import Exported, Format
    from unilab_rl.run_config import RunConfig
    from unilab_rl.run_folder import RunFolder

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab train cartpole-balance --num-envs 64 --iterations 20
  unilab export latest
  unilab export latest --checkpoint 20 --output policy --format onnx
"""


_ROWS = 64  # that observations are looked at in, as `unilab eval` measures by default


@click.command("export", epilog=_EXAMPLES)
@click.argument("run", default="latest")
@click.option(
    "--checkpoint",
    type=click.IntRange(min=0),
    metavar="ITERATION",
    help="Which checkpoint; by default the last.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder to make; by default exports/model_ITERATION in the run's folder.",
)
@click.option(
    *("--format", "format_"),
    type=click.Choice(["onnx", "torchscript", "both"]),
    default="both",
    show_default=True,
    help="What to write beside what the NumPy runner reads.",
)
@click.option("--force", is_flag=True, help="Replace an export that is there.")
@click.option(
    "--backend", metavar="NAME", help="Physics backend to describe the task on; by default the run's."
)
@click.option("--device", metavar="DEVICE", help="Torch device; by default the run's.")
@click.option("--runs", type=RUNS, default=Path("runs"), help="Folder of all runs.")
def command(
    run: str,
    checkpoint: int | None,
    output: Path | None,
    format_: str,
    force: bool,
    backend: str | None,
    device: str | None,
    runs: Path,
) -> None:
    """Writes a run's policy as ONNX, TorchScript and NumPy weights, with what its numbers mean.

    RUN is a run's folder, one of its checkpoints, or 'latest' (the default). Every file takes raw observations and
    returns raw actions and the targets of joints. Each is compared with the policy, on observations up to 50 standard
    deviations from the mean; nothing is written where one differs.
    """
    with failures_as_messages():
        from unilab_rl.checkpoint import load_checkpoint
        from unilab_rl.export.exporter import FORMATS, require_export

        formats = [name for name in FORMATS if format_ in (name, "both")]
        require_export(formats)
        folder, path = find_run(run, runs)
        config = folder.config()
        path = _checkpoint(folder, path, checkpoint, run)
        loaded = load_checkpoint(path)
        place = _place(output, folder, path, force)
        made = _export(
            config, path, loaded, place, formats, backend or config.backend, device or config.device, force
        )
    click.echo(f"{config.task}, {path}: {config.algorithm}, iteration {loaded.iteration}")
    click.echo(f"exported to {made.folder}: {', '.join(made.files)}")
    worst = ", ".join(f"{name} {difference:.1g}" for name, difference in sorted(made.parity.items()))
    click.echo(f"largest difference from the policy: {worst}")
    if made.no_targets is not None:
        click.echo(f"without targets of joints: {made.no_targets}", err=True)


def _checkpoint(folder: RunFolder, path: Path | None, iteration: int | None, run: str) -> Path:
    """Returns the checkpoint that was asked for, or the last one."""
    from unilab_rl.checkpoint import checkpoint_name, latest_checkpoint, list_checkpoints

    if path is not None and iteration is not None:
        raise BadInputError(
            f"--checkpoint {iteration} contradicts RUN {run}, which is a checkpoint; give one of them"
        )
    if path is not None or iteration is None:
        return path or latest_checkpoint(folder.checkpoints)
    path = folder.checkpoints / checkpoint_name(iteration)
    if not path.is_file():
        there = [other.stem.removeprefix("model_") for other in list_checkpoints(folder.checkpoints)]
        raise BadInputError(
            f"--checkpoint {iteration}: the run {folder.path} has no checkpoint of that iteration, but "
            f"{', '.join(there) if there else 'none at all'}"
        )
    return path


def _place(output: Path | None, folder: RunFolder, checkpoint: Path, force: bool) -> Path:
    """Returns the folder to make, checked before anything is built."""
    place = folder.path / "exports" / checkpoint.stem if output is None else output
    parent = place.parent if output is not None else folder.path
    named = f"--output {place}" if output is not None else str(place)
    if not parent.is_dir():
        raise BadInputError(f"{named}: there is no folder {parent}")
    if not os.access(parent, os.W_OK | os.X_OK):
        raise BadInputError(
            f"{named}: no permission to write in {parent}; choose another place with --output DIR"
        )
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise BadInputError(f"{named}: is no folder, choose another place with --output DIR")
    if place.is_dir() and any(place.iterdir()):
        if not (place / "policy.json").is_file():
            raise BadInputError(
                f"{named}: holds something else than an export; choose another place with --output DIR"
            )
        if not force:
            raise BadInputError(f"{named}: is there already; --force replaces it")
    return place


def _export(
    config: RunConfig,
    path: Path,
    checkpoint: Checkpoint,
    place: Path,
    formats: list[Format],
    backend: str,
    device: str,
    force: bool,
) -> Exported:
    from unilab_core import make_env
    from unilab_rl.export.exporter import export_policy
    from unilab_rl.export.metadata import Source
    from unilab_rl.export.parity import ParityError
    from unilab_rl.manifest import installed_versions
    from unilab_rl.runtime.evaluator import import_training_state, load_policy

    source = Source(
        task=config.task,
        algorithm=config.algorithm,
        iteration=checkpoint.iteration,
        env_steps=checkpoint.env_steps,
        seed=config.seed,
        checkpoint=path.name,
        config_hash=config.digest(),
        versions=installed_versions(),
    )
    with closing(
        make_env(config.env, backend=backend, device=device, num_envs=_ROWS, seed=config.seed)
    ) as env:
        import_training_state(env, path, checkpoint)  # before the first reset, which follows curricula
        policy = load_policy(env, config, path, checkpoint)
        made_parent = not place.parent.exists()
        place.parent.mkdir(exist_ok=True)
        try:
            return export_policy(env, policy, source, place, formats=formats, replace=force)
        except ParityError as error:
            raise click.ClickException(str(error)) from error
        finally:
            if made_parent and not any(place.parent.iterdir()):
                place.parent.rmdir()
