"""`transduce predict`: labels, tags, answers or masked words; `transduce embed`: a vector for each text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from transduce.cli.options import (
    device_option,
    file_argument,
    format_option,
    make_command,
    model_argument,
    option_group,
    place,
)
from transduce.cli.terminal import note, print_json

if TYPE_CHECKING:
    from transduce.inference.text_encoder import TextEncoder

_EXAMPLES = """
transduce predict runs/tagger sentences.txt
echo "a fine film" | transduce predict runs/sentiment --format json
transduce predict runs/squad questions.tsv
echo "Paris is the <mask> of France." | transduce predict runs/bert
"""
WINDOW = 1024
"""Lines in one window."""


@make_command(_EXAMPLES)
@model_argument
@file_argument
@device_option()
@format_option
def command(run: str, file: str, device: str, output_format: str) -> None:
    """Predict with the text encoder MODEL, a run or model folder, for each line of FILE or of standard input.

    Prints one line per input line, depending on the task of the model: a label with its probability (a tab separates a
    pair of texts; a bAbI context ends with its question); a tag for each word; an answer with its position, for lines
    of question, tab and context; or the most probable word for each <mask>.
    """
    from transduce.inference.load import load_text_encoder
    from transduce.inference.text_encoder import Prediction, as_json, as_text, for_lines
    from transduce.text.lines import read_lines

    encoder = load_text_encoder(run)
    place(encoder.model, device, run)
    lines = enumerate(read_lines(file), start=1)

    def show(prediction: Prediction | None) -> None:
        if output_format == "json":
            print_json(None if prediction is None else as_json(prediction))
        else:
            click.echo("" if prediction is None else "\t".join([as_text(prediction), *_columns(prediction)]))

    while window := list(islice(lines, WINDOW)):
        inputs = {
            number: _input(encoder.head, line, file, number, encoder.reads_context)
            for number, line in window
            if line.strip()
        }
        predictions = dict(zip(inputs, for_lines(encoder.predict, inputs, file), strict=True))
        for number, _ in window:
            show(predictions.get(number))
    _note_truncated(encoder)


def _input(head: str, line: str, file: str, number: int, reads_context: bool) -> Any:
    from transduce.errors import DataError
    from transduce.text.lines import shown

    parts = [part.strip() for part in line.split("\t")]
    if head == "span" and len(parts) != 2:
        raise DataError(f"{shown(file)}:{number}: needs a question and a context, separated by a tab")
    if head == "labels" and not reads_context and len(parts) > 2:
        raise DataError(f"{shown(file)}:{number}: has {len(parts)} columns; give one text, or two separated by a tab")
    return line if head in ("tags", "language") else parts if len(parts) > 1 else line


def _columns(prediction: Any) -> Iterator[str]:
    """Yield the position and the probability of a prediction, where it has them."""
    if hasattr(prediction, "start"):
        yield from (str(prediction.start), str(prediction.end))
    if hasattr(prediction, "probability"):
        yield f"{prediction.probability:.4f}"


_EMBED_EXAMPLES = """
transduce embed runs/bert sentences.txt --output vectors.npy
transduce embed runs/bert sentences.txt --pool first --normalize > vectors.jsonl
"""

_model = option_group("Model options")


@make_command(_EMBED_EXAMPLES, "embed")
@model_argument
@file_argument
@option_group("Output options")(
    "--output", metavar="FILE", help="NumPy file (.npy), float32, a row per line (default: JSON lines, printed)."
)
@_model(
    "--pool",
    type=click.Choice(["mean", "first", "pooled"]),
    default="mean",
    show_default=True,
    help="Mean of all tokens, vector of the first token, or the model's own pooler.",
)
@_model("--normalize", is_flag=True, help="Scale vectors to length 1, so that dot products are cosines.")
@device_option()
def embed_command(run: str, file: str, output: str | None, pool: str, normalize: bool, device: str) -> None:
    """Compute a vector for each line of FILE, or of standard input, with the text encoder MODEL, a run or model folder.

    A tab in a line separates a pair of texts. Memory does not grow with the number of lines.
    """
    from transduce.errors import SettingsError
    from transduce.inference.load import load_text_encoder
    from transduce.inference.padding import windows
    from transduce.inference.text_encoder import VectorFile, for_lines
    from transduce.text.lines import read_lines

    if output is not None and not output.endswith(".npy"):
        raise SettingsError(f"--output {output}: must end in .npy; leave it out to print JSON lines")
    encoder = load_text_encoder(run)
    place(encoder.model, device, run)
    numbered = ((number, line.split("\t", 1)) for number, line in enumerate(read_lines(file), start=1))
    found = (
        for_lines(lambda texts: encoder.embed(texts, pool, normalize), dict(some), file) for some in windows(numbered)
    )
    if output is not None:
        with VectorFile(Path(output), encoder.model.width) as vectors:
            for some in found:
                vectors.append(some)
        note(f"{output}: {vectors.count:,} vectors of {encoder.model.width} dimensions", "")
    else:
        for some in found:
            for vector in some.tolist():
                print_json({"vector": vector})
    _note_truncated(encoder)


def _note_truncated(encoder: TextEncoder) -> None:
    if encoder.truncated:
        note(f"{encoder.truncated:,} texts were longer than the model's maximum and lost {encoder.truncated_part}")
