"""`transduce positions`: the position encodings as a picture."""

from __future__ import annotations

from pathlib import Path

import click


@click.command("positions")
@click.option("--length", default=100, show_default=True, help="How many positions.")
@click.option("--dim", default=512, show_default=True, help="Channels of each; the model's width.")
@click.option(
    "--output",
    default="positions.png",
    show_default=True,
    type=click.Path(path_type=Path),
    help="Where the picture is written.",
)
def command(length: int, dim: int, output: Path) -> None:
    """Draw the sinusoidal position encodings and the dot products between positions.

    Left: one row per position, one column per channel. Right: how alike any two positions look to a dot product;
    near ones are more alike than far ones, which is how attention can tell distances.
    """
    from transduce.inspection import figure as picture
    from transduce.inspection.figure import draw_positions

    picture.save(output, draw_positions(length, dim))
    click.echo(output)
