"""`transduce import`: other people's models as model folders of ours."""

from __future__ import annotations

from pathlib import Path

import click

_EXAMPLES = """
\b
Examples:
  transduce import opus-mt-de-en --output models/de-en
  transduce import nllb-200-distilled-600M --source-language deu_Latn --target-language eng_Latn --output models/nllb
  transduce import SmolLM2-135M.gguf --output models/smol
"""


@click.command("import", epilog=_EXAMPLES)
@click.argument("folder")
@click.option("--output", required=True, metavar="FOLDER", help="A new folder: the model, as `transduce` keeps it.")
@click.option("--source-language", metavar="TAG", help="Of a model that knows several: what it is to read.")
@click.option("--target-language", metavar="TAG", help="Of a model that knows several: what it is to write.")
def command(folder: str, output: str, source_language: str | None, target_language: str | None) -> None:
    """Make a model folder out of FOLDER: Hugging Face's layout (Marian, Pegasus, M2M100 and NLLB, BERT, GPT-2, T5,
    Llama), weights of torch.nn.Transformer, or a .gguf file. Nothing in it is run; pickles are refused."""
    from transduce.errors import CannotCreate
    from transduce.interop.import_model import import_model

    if Path(output).exists():
        raise CannotCreate(f"{output}: is there already; choose a new folder")
    contents = import_model(folder, output, source_language, target_language)
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    click.echo(f"{parameters:,} parameters, {contents.model.sizes.target:,} tokens", err=True)
    click.echo(output)
