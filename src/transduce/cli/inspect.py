"""`transduce inspect`: one translation, and where every head looked."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import language_options

if TYPE_CHECKING:
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator
    from transduce.inspection.maps import AttentionMaps

_EXAMPLES = """
\b
Examples:
  transduce inspect runs/demo "thorough"
  transduce inspect runs/de-en "ein Hund läuft" --output look --layer 3 --head 2
"""


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@language_options
@click.argument("text")
@click.option("--output", default="attention", metavar="NAME", help="Writes NAME.html and NAME.png.", show_default=True)
@click.option(
    "--kind", type=click.Choice(["cross", "encoder", "decoder"]), help="Attention of the PNG; default: cross."
)
@click.option("--layer", type=int, metavar="N", help="Layer of the PNG, from 1; default: the mean of all.")
@click.option("--head", type=int, metavar="N", help="Head of the PNG, from 1; needs --layer.")
@click.option("--top", type=int, metavar="N", help="Likeliest tokens shown at each step.  [default: 5]")
@click.option("--second", metavar="TEXT", help="For a reader: a second text, read beside the first.")
@click.option("--beam", type=int, metavar="N", help="Openings that a beam search keeps.")
def command(
    run: str,
    text: str,
    output: str,
    kind: str | None,
    layer: int | None,
    head: int | None,
    top: int | None,
    second: str | None,
    beam: int | None,
    to: str | None,
    of: str | None,
) -> None:
    """Translate TEXT with the model in RUN and show where it looked; a reader reads it and looks at itself.

    Writes every layer and head, self and cross, as one HTML page that needs nothing else, and one head (or the mean)
    as a PNG; prints the next-token distribution of each step, and the source word that each word came from. Of a Neural
    Turing Machine it draws the memory instead: where each head wrote and read at every step. Of a captioner it draws
    the picture, TEXT, once for each word, with what was looked at in the light: NAME.svg.
    """
    from transduce.errors import SettingsError
    from transduce.inference.load import load
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator
    from transduce.inference.translator import load as load_translator
    from transduce.inspection.tape import has_tape

    if not text.strip():
        raise SettingsError("there is nothing to look at in an empty text; give one with words")
    loaded = load(run)
    asked = {"--to": to, "--from": of, "--beam": beam, "--second": second, "--kind": kind, "--layer": layer}
    asked |= {"--head": head, "--top": top}
    if isinstance(loaded, TextEncoder):
        _refuse("a reader, which writes nothing", asked, "--to", "--from", "--beam", "--top")
        if loaded.head == "tags":
            _refuse("a reader of one text at a time", asked, "--second")
        _inspect_reader(loaded, text if second is None else [text, second], output, kind, layer, head)
        return
    translator = loaded if isinstance(loaded, Translator) else load_translator(run)
    if second is not None:
        raise SettingsError("--second is for readers, which read two texts side by side; leave it out")
    if has_tape(translator.model) or translator.model.picture_side is not None:
        _refuse("a model of which one drawing shows everything", asked, "--kind", "--layer", "--head", "--top")
    translator.languages.ask_for(to, of)
    if has_tape(translator.model):
        _inspect_tape(translator, text, output, beam)
    elif translator.model.picture_side is not None:
        _inspect_glances(translator, text, output, beam)
    else:
        maps = translator.attention(text, top=5 if top is None else top, beam=beam)
        _show_maps(translator, maps, output, kind, layer, head)


def _refuse(what: str, asked: dict[str, Any], *options: str) -> None:
    """Say no to options that would change nothing."""
    from transduce.errors import SettingsError

    for option in options:
        if asked[option] is not None:
            raise SettingsError(f"{option} means nothing to {what}; leave it out")


def _show_maps(
    translator: Translator, maps: AttentionMaps, output: str, kind: str | None, layer: int | None, head: int | None
) -> None:
    """Print what was said and what else could have been; write the page and the picture."""
    from transduce.cli.terminal import visible

    which: Any = kind or ("cross" if "cross" in maps.maps else next(iter(maps.maps)))
    maps.chosen(which, layer, head)  # says no before anything is written
    page, picture = Path(f"{output}.html"), Path(f"{output}.png")
    maps.save_html(page)
    click.echo(f"{visible(maps.source)}  →  {visible(maps.translation)}")
    pieces = [visible(step.chosen.piece) for step in maps.steps]
    width = max(map(len, pieces))
    for piece, step in zip(pieces, maps.steps, strict=True):
        others = "  ".join(f"{visible(candidate.piece)} {candidate.probability:.3f}" for candidate in step.top)
        click.echo(f"  {piece:<{width}}  {step.chosen.probability:.3f}   {others}")
    words = (maps.source.split(), maps.translation.split())
    for source, target in sorted(maps.links, key=lambda link: link[1]):
        click.echo(f"  {visible(words[1][target])} ← {visible(words[0][source])}")
    if translator.counts.split:
        click.echo("note: the text is longer than the model reads at once; this is its first part", err=True)
    click.echo(f"page     {page}")
    maps.save_png(picture, which, layer, head)
    click.echo(f"picture  {picture}")


def _inspect_tape(translator: Translator, text: str, output: str, beam: int | None) -> None:
    """Draw what a Neural Turing Machine did with its memory."""
    from transduce.cli.terminal import visible

    tape = translator.tape(text, beam=beam)
    click.echo(f"{visible(tape.source)}  →  {visible(tape.answer)}")
    for step, piece in enumerate(tape.pieces):
        places = [f"{name} {int(head[step].argmax())}" for name in ("write", "read") for head in getattr(tape, name)]
        click.echo(f"  {visible(piece)}  {'  '.join(places)}")
    picture = Path(f"{output}.png")
    tape.save_png(picture)
    click.echo(f"picture  {picture}")


def _inspect_glances(translator: Translator, text: str, output: str, beam: int | None) -> None:
    """Draw where a captioner looked for each word."""
    from transduce.cli.terminal import visible

    glances = translator.glances(text, beam=beam)
    click.echo(visible(glances.caption))
    for number, word in enumerate(glances.words):
        row, column, weight = glances.peak(number)
        click.echo(f"  {visible(word)}  row {row + 1}, column {column + 1}  {weight:.3f}")
    drawing = Path(f"{output}.svg")
    glances.save_svg(drawing)
    click.echo(f"drawing  {drawing}")


def _inspect_reader(
    reader: TextEncoder, text: str | list[str], output: str, kind: str | None, layer: int | None, head: int | None
) -> None:
    """Write the page and the picture of what a reader looked at."""
    from transduce.cli.terminal import visible
    from transduce.errors import SettingsError

    maps = reader.attention(text)
    (own,) = maps.maps  # a reader has one kind of attention
    if kind not in (None, own):
        raise SettingsError(f"a reader has no '{kind}' attention; leave out --kind")
    maps.chosen(own, layer, head)  # says no before anything is written
    page, picture = Path(f"{output}.html"), Path(f"{output}.png")
    maps.save_html(page)
    click.echo(f"{visible(maps.source)}  →  {visible(maps.translation)}" if maps.translation else visible(maps.source))
    if own == "cross":
        for fact, *weights in zip(
            maps.columns(own), *(maps.head(own, hop + 1, 1)[0] for hop in range(len(maps.maps[own]))), strict=True
        ):
            click.echo(f"  {'  '.join(f'{weight:.3f}' for weight in weights)}  {visible(fact)}")
    if reader.cut:
        click.echo(f"note: the text is longer than the model reads at once, and lost {reader.lost}", err=True)
    click.echo(f"page     {page}")
    maps.save_png(picture, own, layer, head)
    click.echo(f"picture  {picture}")
