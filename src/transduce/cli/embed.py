"""`transduce embed`: a vector for each text."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.cli.options import device_option, file_argument, make_command, model_argument, option_group, place
from transduce.cli.terminal import note, print_json

_EXAMPLES = """
transduce embed runs/bert sentences.txt --output vectors.npy
transduce embed runs/bert sentences.txt --pool first --normalise > vectors.jsonl
"""

_model = option_group("Model options")


@make_command(_EXAMPLES)
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
@_model("--normalise", is_flag=True, help="Scale vectors to length 1, so that dot products are cosines.")
@device_option()
def command(run: str, file: str, output: str | None, pool: str, normalise: bool, device: str) -> None:
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
    reader = load_text_encoder(run)
    place(reader.model, device, run)
    numbered = ((number, line.split("\t", 1)) for number, line in enumerate(read_lines(file), start=1))
    found = (
        for_lines(lambda texts: reader.embed(texts, pool, normalise), dict(some), file) for some in windows(numbered)
    )
    if output is not None:
        with VectorFile(Path(output), reader.model.width) as vectors:
            for some in found:
                vectors.append(some)
        note(f"{output}: {vectors.count:,} vectors of {reader.model.width} dimensions", "")
    else:
        for some in found:
            for vector in some.tolist():
                print_json({"vector": vector})
    if reader.truncated:
        note(f"{reader.truncated:,} texts were longer than the model's maximum and lost {reader.truncated_part}")
