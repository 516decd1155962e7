"""`transduce import`: convert a model of another toolkit into a model folder."""

from __future__ import annotations

from pathlib import Path

import click

from transduce.cli.options import argument, make_command, option_group
from transduce.cli.terminal import note

_EXAMPLES = """
transduce import opus-mt-de-en --output models/de-en
transduce import nllb-200-distilled-600M --source-language deu_Latn --target-language eng_Latn --output models/nllb
transduce import SmolLM2-135M.gguf --output models/smol
"""

_languages = option_group("Model options")


@make_command(_EXAMPLES, "import")
@argument("folder", "Hugging Face folder or .gguf file.", metavar="SOURCE")
@option_group("Output options")("--output", required=True, metavar="FOLDER", help="Model folder to create.")
@_languages("--source-language", metavar="TAG", help="Default source language of a multilingual model.")
@_languages("--target-language", metavar="TAG", help="Default target language of a multilingual model.")
def command(folder: str, output: str, source_language: str | None, target_language: str | None) -> None:
    """Import SOURCE as a model folder.

    SOURCE is a local Hugging Face folder (Marian, Pegasus, M2M100, NLLB, BERT, GPT-2, T5, Llama), a folder with weights
    of torch.nn.Transformer, or a .gguf file. No code in it is executed; pickle files are rejected.
    """
    from transduce.errors import CannotCreate
    from transduce.interop.import_model import import_model

    if Path(output).exists():
        raise CannotCreate(f"{output}: exists already; choose a new folder")
    contents = import_model(folder, output, source_language, target_language)
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    note(f"{parameters:,} parameters, vocabulary of {contents.model.sizes.target:,} tokens", "")
    click.echo(output)
