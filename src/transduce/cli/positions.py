"""`transduce positions`: a plot of the position encodings."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.cli.options import make_command, option_group

_EXAMPLES = """
transduce positions
transduce positions --length 50 --dim 128 --output encodings.png
"""

_encoding = option_group("Encoding options")


@make_command(_EXAMPLES)
@_encoding("--length", default=100, show_default=True, metavar="N", help="Number of positions.")
@_encoding("--dim", default=512, show_default=True, metavar="N", help="Dimensions, the width of the model.")
@option_group("Output options")(
    "--output",
    default="positions.png",
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Image file to write.",
)
def command(length: int, dim: int, output: Path) -> None:
    """Plot the sinusoidal position encodings and the dot products between positions.

    Left: a row per position, a column per dimension. Right: the dot product of any two positions, which falls with
    their distance.
    """
    from transduce.inspection import figure as picture
    from transduce.inspection.figure import draw_positions

    picture.save(output, draw_positions(length, dim))
    click.echo(output)
