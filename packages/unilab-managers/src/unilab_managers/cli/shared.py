"""Options that the commands share; which task they are about is `click.argument("task")`."""

from __future__ import annotations

import click

__all__ = ["backend_option", "json_option", "overrides_option"]

backend_option = click.option(
    "--backend", default="mujoco", show_default=True, metavar="NAME", help="Physics backend."
)
overrides_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change the environment's config; repeatable.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
