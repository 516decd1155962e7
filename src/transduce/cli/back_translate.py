"""`transduce back-translate`: pairs from text in the target language alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from transduce.cli.options import (
    argument,
    device_option,
    flag,
    language_options,
    make_command,
    option_group,
    place,
)
from transduce.cli.terminal import note
from transduce.config import Table

_EXAMPLES = """
transduce back-translate runs/de-en mono.de --output back
transduce back-translate runs/de-en mono.de.gz --method sample --top-k 10 --seed 1 --output back
transduce train --from runs/en-de --path train.tsv --mix source=back/source.txt,target=back/target.txt --output runs/mix
"""
_search = option_group("Search options")
_output = option_group("Output options")


@make_command(_EXAMPLES, "back-translate")
@argument("run", "Run or model folder of the opposite direction: from the target language.", metavar="MODEL")
@argument(
    "files", "Text in the target language, one sentence per line; also .gz.", metavar="FILE...", nargs=-1, required=True
)
@_output("--output", required=True, metavar="FOLDER", help="Folder to write; an interrupted command resumes there.")
@_output("--tag", default="<BT>", show_default=True, metavar="TEXT", help="Word before each source; empty for none.")
@_search(
    "--method",
    type=click.Choice(["beam", "greedy", "sample"]),
    default="beam",
    show_default=True,
    help="Search method.",
)
@_search("--beam-size", type=int, metavar="N", help="Beam size (default: 4).")
@_search("--temperature", type=float, metavar="T", help="Sampling temperature (default: 1.0).")
@_search("--top-k", type=int, metavar="K", help="Sample from the K most probable tokens.")
@_search("--seed", type=int, metavar="N", help="Random seed of samples (default: 1).")
@language_options
@device_option()
def command(
    run: str,
    files: tuple[str, ...],
    output: str,
    device: str,
    source_language: str | None,
    target_language: str | None,
    **options: Any,
) -> None:
    """Make synthetic pairs: translate text in the target language with MODEL, a model of the opposite direction.

    FOLDER gets source.txt, the translations, each after the tag, and target.txt, the original text. Lines that are
    empty or have an empty translation are left out.
    """
    from transduce.cli.progress import PreparationProgress
    from transduce.inference.load import load_translator
    from transduce.pipeline.corpora import back_translate, identify
    from transduce.pipeline.settings import BackTranslation

    given: Table = {name: value for name, value in options.items() if value is not None}
    config = BackTranslation.from_table(given, "the command line")
    needed = {"temperature": "sample", "top_k": "sample", "seed": "sample", "beam_size": "beam"}
    for name, method in needed.items():
        if name in given and config.method != method:
            raise click.UsageError(f"{flag(name)} is for --method {method}")
    translator = load_translator(run)
    place(translator.model, device, run)
    translator.languages.select(target_language, source_language)
    translator.use("auto")
    with PreparationProgress() as progress:
        count = back_translate(
            translator, files, Path(output), config.options(), config.tag, progress.show, identify(run, translator)
        )
    note(f"{count:,} pairs", "")
    click.echo(output)
