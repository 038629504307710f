"""`unilab compare`: what two physics backends make of the same task."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from unilab_managers.cli.shared import overrides_option

if TYPE_CHECKING:
    from unilab_managers.cli.compare_pair import Actions

__all__ = ["command"]

_EXAMPLES = """\b
Examples:
  unilab compare cartpole-balance --backends mujoco,mujoco
  unilab compare cartpole-balance --backends mujoco,mujoco_warp --steps 50
  unilab compare cartpole-balance --backends mujoco,mujoco --free --actions zero --json
"""


def _two_names(ctx: click.Context, param: click.Parameter, value: str) -> tuple[str, str]:
    names = [name.strip() for name in value.split(",")]
    if len(names) != 2 or not all(names):
        raise click.BadParameter(
            f"got {value!r}, expected two names with a comma between them, for example mujoco,mujoco_warp",
            ctx,
            param,
        )
    return names[0], names[1]


def _tolerance(ctx: click.Context, param: click.Parameter, value: float) -> float:
    if not 0.0 <= value < math.inf:  # NaN is neither
        raise click.BadParameter(f"got {value}, expected a finite number that is not negative", ctx, param)
    return value


@click.command("compare", epilog=_EXAMPLES)
@click.argument("task")
@click.option(
    "--backends",
    required=True,
    callback=_two_names,
    metavar="FIRST,SECOND",
    help="Two physics backends; the first is the reference.",
)
@click.option("--device", default="cpu", show_default=True, metavar="DEVICE", help="Torch device of both.")
@click.option(
    "--steps", type=click.IntRange(min=1), default=100, show_default=True, help="Control steps to compare."
)
@click.option("--num-envs", type=click.IntRange(min=1), default=16, show_default=True, help="Rows.")
@click.option("--seed", type=click.IntRange(0, 2**63 - 1), default=0, show_default=True, help="Of both.")
@overrides_option
@click.option(
    "--resync/--free",
    default=True,
    show_default=True,
    help="Begin every step from the first one's state, or let both run freely.",
)
@click.option(
    "--actions",
    type=click.Choice(["random", "zero"]),
    default="random",
    show_default=True,
    help="What both are sent.",
)
@click.option(
    "--atol", type=float, callback=_tolerance, default=1e-4, show_default=True, help="Absolute tolerance."
)
@click.option(
    "--rtol", type=float, callback=_tolerance, default=1e-3, show_default=True, help="Tolerance per |value|."
)
@click.option(
    "--top", type=click.IntRange(min=0), default=20, show_default=True, help="Columns to show; 0: all."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object, with all columns.")
def command(
    task: str,
    backends: tuple[str, str],
    device: str,
    steps: int,
    num_envs: int,
    seed: int,
    overrides: tuple[str, ...],
    resync: bool,
    actions: Actions,
    atol: float,
    rtol: float,
    top: int,
    as_json: bool,
) -> int:
    """Steps TASK on two backends side by side and shows how far observations, rewards and ends are apart.

    Both begin with the same reset and get the same actions, noise, commands and pushes. By default the second takes
    over the first one's whole state before each step, so that every difference is that of one step; with --free both
    run on, and what is chaotic drifts apart. An episode that ends on either is reset on both.

    The table shows the worst columns first: the largest and the mean difference, at which step:row the largest is (an r
    behind the step: after a reset) and the values there, how many tolerances the worst difference is, and which share
    is beyond it since which step:row. Exits with 0 if all is within tolerance, with 1 if not.
    """
    from unilab_core.factory import load_env_cfg
    from unilab_managers.cli.compare_pair import ComparisonCfg, compare
    from unilab_managers.cli.compare_report import in_text
    from unilab_managers.cli.compare_tally import Tolerance

    how = ComparisonCfg(backends, device, seed, steps, resync, actions, Tolerance(atol, rtol))
    found = compare(load_env_cfg(task, num_envs=num_envs, overrides=overrides), how)
    if as_json:
        asked = asdict(how) | {"tolerance": asdict(how.tolerance)}
        asked["steps_asked"] = asked.pop("steps")
        data = {"task": task.lower(), **asked, **found.to_data()}
        click.echo(json.dumps(data, indent=2, allow_nan=False))
    else:
        click.echo(in_text(task.lower(), how, found, top))
    return 0 if found.within_tolerance else 1
