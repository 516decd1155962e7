"""`transduce inspect`: attention and next tokens of a model on a text; `transduce positions`: a plot of encodings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from transduce.cli.options import (
    argument,
    beam_size_option,
    device_option,
    flag,
    format_option,
    language_options,
    make_command,
    model_argument,
    option_group,
    place,
)
from transduce.cli.terminal import note, print_json, visible
from transduce.errors import SettingsError

_EXAMPLES = """
transduce inspect runs/demo "thorough"
transduce inspect runs/de-en "ein Hund läuft" --output dog --layer 3 --head 2
transduce inspect runs/captions picture.png --output picture
transduce inspect runs/author "Once upon a time" --max-length 10
transduce inspect models/smollm2 --example-prompts --output prompts
"""

_image = option_group("Figure options")
_model = option_group("Model options")
_output = option_group("Output options")
_KINDS = ["cross", "encoder", "decoder", "causal"]


@make_command(_EXAMPLES)
@model_argument
@argument(
    "text", "Text to translate or encode, prompt of a language model, or path of an image to caption.", required=False
)
@_output("--output", default="attention", metavar="NAME", show_default=True, help="Write NAME.html and NAME.png.")
@format_option
@_output("--top", type=int, metavar="N", help="Most probable tokens to print (default: 5; language models: 10).")
@_image("--kind", type=click.Choice(_KINDS), help="Attention to draw (default: cross, or what the model has).")
@_image("--layer", type=int, metavar="N", help="Layer to draw, counted from 1 (default: the mean of all).")
@_image("--head", type=int, metavar="N", help="Head to draw, counted from 1; needs --layer.")
@language_options
@_model("--second", metavar="TEXT", help="Second text, for a text encoder of pairs.")
@_model("--max-length", type=int, metavar="N", help="Tokens that a language model generates first (default: 0).")
@_model("--example-prompts", is_flag=True, help="Four known prompts instead of TEXT, for a language model.")
@beam_size_option
@device_option()
def command(run: str, text: str | None, output: str, output_format: str, **options: Any) -> None:
    """Show the attention of MODEL, a run or model folder, on TEXT: translated, encoded, or read as a prompt.

    Writes all layers and heads to an HTML page that works offline, and one head (or the mean) to a PNG image. Prints
    the distribution over the next token at each step, and the word alignment of a translation; for a language model,
    the most probable tokens after the prompt and the tokens that its last position attends to. For a Neural Turing
    Machine it draws the memory with its read and write positions; for a captioner, whose TEXT is the path of a PNG or
    JPEG file (or pixels as text), the image under a heat map for each word (NAME.png), and the same as shaded regions
    (NAME.svg).
    """
    from transduce.cli.inspection import save_records, text_lines, values
    from transduce.inference.generator import EXAMPLE_PROMPTS
    from transduce.inference.load import load, load_generator

    examples, device = options.pop("example_prompts"), options.pop("device")
    if examples == (text is not None):
        raise click.UsageError("give either TEXT or --example-prompts")
    if text is not None and not text.strip():
        raise SettingsError("TEXT is empty; give some words")
    loaded = load_generator(run) if examples else load(run)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in loaded.inspect_options:
            raise SettingsError(f"{flag(name)} has no effect on this model; leave it out")
    place(loaded.model, device, run)
    drawn = {name: given.pop(name, None) for name in ("kind", "layer", "head")}
    records = [loaded.inspect(one, **given) for one in (EXAMPLE_PROMPTS if text is None else [text])]
    files = save_records(records, output.removesuffix(".html").removesuffix(".png"), **drawn)
    if loaded.inspect_note:
        note(loaded.inspect_note)
    for number, (record, written) in enumerate(zip(records, files, strict=True), start=1):
        if output_format == "json":
            print_json({**values(record), **written})
            continue
        if number < len(records):
            written.pop("page", None)  # one page for all of them
        lines = [*([""] if number > 1 else []), *text_lines(record)]
        lines += [f"{what:<7}  {path}" for what, path in written.items()]
        click.echo("\n".join(map(visible, lines)))


_POSITIONS_EXAMPLES = """
transduce positions
transduce positions --length 50 --dim 128 --output encodings.png
"""

_encoding = option_group("Encoding options")


@make_command(_POSITIONS_EXAMPLES, "positions")
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
def positions_command(length: int, dim: int, output: Path) -> None:
    """Plot the sinusoidal position encodings and the dot products between positions.

    Left: a row per position, a column per dimension. Right: the dot product of any two positions, which falls with
    their distance.
    """
    from transduce.inspection import figure as picture
    from transduce.inspection.figure import draw_positions

    picture.save(output, draw_positions(length, dim))
    click.echo(output)
