"""`transduce inspect`: the attention of a model on one text; `transduce positions`: a plot of position encodings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator
    from transduce.inspection.maps import AttentionMaps

_EXAMPLES = """
transduce inspect runs/demo "thorough"
transduce inspect runs/de-en "ein Hund läuft" --output dog --layer 3 --head 2
transduce inspect runs/de-en "ein Hund läuft" --format json
transduce inspect runs/captions picture.png --output picture
"""

_image = option_group("Image options")
_output = option_group("Output options")


@make_command(_EXAMPLES)
@model_argument
@argument("text", "Text to translate or encode, or path of an image to caption.")
@_output("--output", default="attention", metavar="NAME", show_default=True, help="Write NAME.html and NAME.png.")
@format_option
@_output("--top", type=int, metavar="N", show_default="5", help="Most probable tokens to print at each step.")
@_image("--kind", type=click.Choice(["cross", "encoder", "decoder"]), show_default="cross", help="Attention to draw.")
@_image("--layer", type=int, metavar="N", help="Layer to draw, counted from 1 (default: the mean of all).")
@_image("--head", type=int, metavar="N", help="Head to draw, counted from 1; needs --layer.")
@language_options
@option_group("Model options")("--second", metavar="TEXT", help="Second text, for a text encoder of pairs.")
@beam_size_option
@device_option()
def command(run: str, text: str, **options: Any) -> None:
    """Translate TEXT with MODEL, a run or model folder, and show its attention; a text encoder encodes TEXT.

    Writes all layers and heads to an HTML page that works offline, and one head (or the mean) to a PNG image. Prints
    the distribution over the next token at each step, and the word alignment. For a Neural Turing Machine it draws the
    memory with its read and write positions; for a captioner, whose TEXT is the path of a PNG or JPEG file (or pixels
    as text), the image under a heat map for each word (NAME.png), and the same as shaded regions (NAME.svg).
    """
    from transduce.inference.load import load, load_translator
    from transduce.inference.text_encoder import TextEncoder
    from transduce.inference.translator import Translator
    from transduce.inspection.tape import has_tape

    if not text.strip():
        raise SettingsError("TEXT is empty; give some words")
    loaded, second, beam_size = load(run), options["second"], options["beam_size"]
    picture = Picture(options["output"], options["output_format"], options["kind"], options["layer"], options["head"])
    if isinstance(loaded, TextEncoder):
        _reject("a text encoder", options, "target_language", "source_language", "beam_size", "top")
        if loaded.head == "tags":
            _reject("a tagger", options, "second")
        place(loaded.model, options["device"], run)
        _inspect_encoder(loaded, text if second is None else [text, second], picture)
        return
    translator = loaded if isinstance(loaded, Translator) else load_translator(run)
    _reject("a translation model", options, "second")
    if has_tape(translator.model) or translator.model.image_size is not None:
        _reject("a model that is drawn in one figure", options, "kind", "layer", "head", "top")
    place(translator.model, options["device"], run)
    translator.languages.select(options["target_language"], options["source_language"])
    if has_tape(translator.model):
        _inspect_tape(translator, text, picture, beam_size)
    elif translator.model.image_size is not None:
        _inspect_caption(translator, text, picture, beam_size)
    else:
        top = 5 if options["top"] is None else options["top"]
        _show_maps(translator, translator.attention(text, top=top, beam_size=beam_size), picture)


@dataclass(frozen=True)
class Picture:
    """What is drawn, and where it is written."""

    output: str
    output_format: str
    kind: str | None
    layer: int | None
    head: int | None

    def path(self, suffix: str) -> Path:
        """Return the file with this suffix."""
        return Path(f"{self.output}.{suffix}")

    def show(self, lines: list[str], values: dict[str, Any]) -> None:
        """Print the lines, or the values as JSON."""
        if self.output_format == "json":
            print_json(values)
        else:
            click.echo("\n".join(lines))


def _reject(what: str, options: dict[str, Any], *names: str) -> None:
    """Reject options without effect on a kind of model."""
    for name in names:
        if options[name] is not None:
            raise SettingsError(f"{flag(name)} has no effect on {what}; leave it out")


def _show_maps(translator: Translator, maps: AttentionMaps, picture: Picture) -> None:
    """Print the translation with its alternatives; write the page and the image."""
    kind: Any = picture.kind or ("cross" if "cross" in maps.maps else next(iter(maps.maps)))
    maps.chosen(kind, picture.layer, picture.head)  # check before anything is written
    page, image = picture.path("html"), picture.path("png")
    maps.save_html(page)
    lines = [f"{visible(maps.source)}  →  {visible(maps.translation)}"]
    pieces = [visible(step.chosen.piece) for step in maps.steps]
    width = max(map(len, pieces))
    for piece, step in zip(pieces, maps.steps, strict=True):
        others = "  ".join(f"{visible(candidate.piece)} {candidate.probability:.3f}" for candidate in step.top)
        lines.append(f"  {piece:<{width}}  {step.chosen.probability:.3f}   {others}")
    words = (maps.source.split(), maps.translation.split())
    links = sorted(maps.links, key=lambda link: link[1])
    lines += [f"  {visible(words[1][target])} ← {visible(words[0][source])}" for source, target in links]
    if translator.counts.split:
        note("the text is longer than the model's maximum; only its first part is shown")
    maps.save_png(image, kind, picture.layer, picture.head)
    steps = [
        {"token": step.chosen.piece, "probability": step.chosen.probability, "top": [asdict(one) for one in step.top]}
        for step in maps.steps
    ]
    values = {"source": maps.source, "translation": maps.translation, "steps": steps, "alignment": links}
    picture.show(
        [*lines, f"page     {page}", f"picture  {image}"], {**values, "page": str(page), "picture": str(image)}
    )


def _inspect_tape(translator: Translator, text: str, picture: Picture, beam_size: int | None) -> None:
    """Draw the memory accesses of a Neural Turing Machine."""
    tape = translator.tape(text, beam_size=beam_size)
    lines, steps = [f"{visible(tape.source)}  →  {visible(tape.output)}"], []
    for step, piece in enumerate(tape.pieces):
        places = {name: [int(head[step].argmax()) for head in getattr(tape, name)] for name in ("write", "read")}
        shown = [f"{name} {place}" for name, several in places.items() for place in several]
        lines.append(f"  {visible(piece)}  {'  '.join(shown)}")
        steps.append({"token": piece, **places})
    image = picture.path("png")
    tape.save_png(image)
    values = {"source": tape.source, "translation": tape.output, "steps": steps, "picture": str(image)}
    picture.show([*lines, f"picture  {image}"], values)


def _inspect_caption(translator: Translator, text: str, picture: Picture, beam_size: int | None) -> None:
    """Draw the regions that a captioner attended to for each word."""
    regions = translator.region_attention(text, beam_size=beam_size)
    lines, steps = [visible(regions.caption)], []
    for number, word in enumerate(regions.words):
        row, column, weight = regions.peak(number)
        lines.append(f"  {visible(word)}  row {row + 1}, column {column + 1}  {weight:.3f}")
        steps.append({"word": word, "row": row + 1, "column": column + 1, "weight": weight})
    drawing, image = picture.path("svg"), picture.path("png")
    regions.save_svg(drawing)
    regions.save_png(image)
    values = {"caption": regions.caption, "steps": steps, "drawing": str(drawing), "picture": str(image)}
    picture.show([*lines, f"drawing  {drawing}", f"picture  {image}"], values)


def _inspect_encoder(encoder: TextEncoder, text: str | list[str], picture: Picture) -> None:
    """Write the page and the image of the self-attention of a text encoder."""
    maps = encoder.attention(text)
    (own,) = maps.maps  # a text encoder has one kind of attention
    if picture.kind not in (None, own):
        raise SettingsError(f"--kind {picture.kind}: a text encoder has {own} attention only; leave out --kind")
    maps.chosen(own, picture.layer, picture.head)  # check before anything is written
    page, image = picture.path("html"), picture.path("png")
    maps.save_html(page)
    lines = [f"{visible(maps.source)}  →  {visible(maps.translation)}" if maps.translation else visible(maps.source)]
    if own == "cross":
        hops = [maps.head(own, hop + 1, 1)[0] for hop in range(len(maps.maps[own]))]
        for fact, *weights in zip(maps.columns(own), *hops, strict=True):
            lines.append(f"  {'  '.join(f'{weight:.3f}' for weight in weights)}  {visible(fact)}")
    if encoder.truncated:
        note(f"the text is longer than the model's maximum and lost {encoder.truncated_part}")
    maps.save_png(image, own, picture.layer, picture.head)
    values = {"source": maps.source, "prediction": maps.translation, "page": str(page), "picture": str(image)}
    picture.show([*lines, f"page     {page}", f"picture  {image}"], values)


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
