"""`transduce export`: a model for other people's engines."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

_EXAMPLES = """
\b
Examples:
  transduce export runs/de-en --to ctranslate2 --output exported/de-en
  transduce export runs/de-en --to ctranslate2 --quantize int8 --output exported/de-en-int8
  transduce export runs/de-en --to huggingface --output exported/for-transformers
  transduce export runs/de-en --to ctranslate2 --shortlist runs/de-en/shortlist.safetensors --output exported/fast
"""
_QUANTIZATIONS = ("float32", "int8", "int16", "float16", "bfloat16")


@click.command(epilog=_EXAMPLES)
@click.argument("run")
@click.option("--to", "kind", type=click.Choice(["ctranslate2", "huggingface"]), required=True, help="For whom.")
@click.option("--output", required=True, metavar="FOLDER", help="A new folder.")
@click.option(
    "--quantize", type=click.Choice(_QUANTIZATIONS), help="For CTranslate2: what weights become. Default: float32."
)
@click.option("--shortlist", metavar="FILE", help="Of `transduce shortlist`: becomes the vocabulary map, vmap.txt.")
def command(run: str, kind: str, output: str, quantize: str | None, shortlist: str | None) -> None:
    """Write the model in RUN (a run or model folder) as a folder that another engine loads, tokenizers included."""
    from transduce.errors import CannotCreate
    from transduce.inference.ctranslate2 import export as ctranslate2
    from transduce.interop import export_model as exporting
    from transduce.interop.huggingface.generation import left_out
    from transduce.model_folder import load_model
    from transduce.text.shortlist import Shortlist

    assert get_args(ctranslate2.Quantization) == _QUANTIZATIONS
    if Path(output).exists():
        raise CannotCreate(f"{output}: is there already; choose a new folder")
    if kind == "huggingface" and (quantize or shortlist):
        raise click.UsageError("--quantize and --shortlist are for CTranslate2")
    contents = load_model(Path(run))
    if kind == "huggingface":
        exporting.export(contents, Path(output))
        search = contents.notes.get("search")
        for wish in left_out(search) if search else ():
            click.echo(f"note: transformers have nothing for search.{wish}", err=True)
    else:
        tokenizers = contents.source_tokenizer, contents.target_tokenizer
        listed = None if shortlist is None else Shortlist.load(shortlist, *tokenizers)
        ctranslate2.export(contents, Path(output), quantize or "float32", listed)  # type: ignore[arg-type]
    click.echo(output)
