"""Bad input on the command line."""

from __future__ import annotations

import click

__all__ = ["BadInputError"]


class BadInputError(click.ClickException):
    """The user can mend it: one message with the remedy, exit code 2."""

    exit_code = 2
