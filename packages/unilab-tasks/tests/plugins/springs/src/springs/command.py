"""`unilab springs`."""

import math

import click


@click.command("springs", epilog="Example: unilab springs --stiffness 40")
@click.option("--stiffness", type=click.FloatRange(min=0, min_open=True), default=40.0, show_default=True)
def command(stiffness: float) -> None:
    """Shows the period of a mass of 1 kg on a spring."""
    click.echo(f"period {2 * math.pi / math.sqrt(stiffness):.3f} s")
