"""`transduce export`: a model for another engine; `transduce import`: a model of another toolkit as a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import click

from transduce.cli.options import argument, make_command, model_argument, option_group
from transduce.cli.terminal import note

_EXAMPLES = """
transduce export runs/de-en --to ctranslate2 --output exported/de-en
transduce export runs/de-en --to ctranslate2 --quantize int8 --output exported/de-en-int8
transduce export runs/de-en --to huggingface --output exported/for-transformers
transduce export runs/de-en --to onnx --output exported/de-en-onnx
transduce export runs/de-en --to ctranslate2 --shortlist runs/de-en/shortlist.safetensors --output exported/fast
"""
_QUANTIZATIONS = ("float32", "int8", "int16", "float16", "bfloat16")

_output = option_group("Output options")
_ctranslate2 = option_group("CTranslate2 options")


@make_command(_EXAMPLES)
@model_argument
@_output(
    "--to", "kind", type=click.Choice(["ctranslate2", "huggingface", "onnx"]), required=True, help="Target format."
)
@_output("--output", required=True, metavar="FOLDER", help="Folder to create.")
@_ctranslate2("--quantize", type=click.Choice(_QUANTIZATIONS), show_default="float32", help="Type of the weights.")
@_ctranslate2("--shortlist", metavar="FILE", help="Lexical shortlist, written as the vocabulary map vmap.txt.")
def command(run: str, kind: str, output: str, quantize: str | None, shortlist: str | None) -> None:
    """Export MODEL, a run or model folder, with its tokenizers to a folder that another engine loads."""
    from transduce.errors import CannotCreate
    from transduce.inference.ctranslate2 import export as ctranslate2
    from transduce.interop import export_model as exporting
    from transduce.interop.huggingface.generation import unsupported_options
    from transduce.model_folder import load_model
    from transduce.text.shortlist import Shortlist

    assert get_args(ctranslate2.Quantization) == _QUANTIZATIONS
    if Path(output).exists():
        raise CannotCreate(f"{output}: exists already; choose a new folder")
    if kind != "ctranslate2" and (quantize or shortlist):
        raise click.UsageError("--quantize and --shortlist need --to ctranslate2")
    contents = load_model(Path(run))
    if kind == "huggingface":
        usage = exporting.export(contents, Path(output))
        search = contents.notes.get("search")
        for setting in unsupported_options(search) if search else ():
            note(f"search.{setting} has no counterpart in Hugging Face's generation config and was not exported")
    elif kind == "onnx":
        from transduce.interop import onnx_graphs

        usage = onnx_graphs.export(contents, Path(output), Path(run))
    else:
        tokenizers = contents.source_tokenizer, contents.target_tokenizer
        listed = None if shortlist is None else Shortlist.load(shortlist, *tokenizers)
        usage = ctranslate2.export(
            contents,
            Path(output),
            quantize or "float32",  # type: ignore[arg-type]
            listed,
            Path(run),
        )
    click.echo(output)
    note("\n".join(["use it, as its README.md says:", *(f"  {line}" for line in usage.lines())]), "")


_IMPORT_EXAMPLES = """
transduce import Helsinki-NLP/opus-mt-en-de --output models/en-de
transduce import opus-mt-de-en --output models/de-en
transduce import nllb-200-distilled-600M --source-language deu_Latn --target-language eng_Latn --output models/nllb
transduce import SmolLM2-135M.gguf --output models/smol
"""

_languages = option_group("Model options")


@make_command(_IMPORT_EXAMPLES, "import")
@argument("folder", "Hugging Face folder, .gguf file, or name of a model on the Hugging Face hub.", metavar="SOURCE")
@option_group("Output options")("--output", required=True, metavar="FOLDER", help="Model folder to create.")
@_languages("--revision", metavar="NAME", help="Branch, tag or commit of a model of the hub (default: main).")
@_languages("--source-language", metavar="TAG", help="Default source language of a multilingual model.")
@_languages("--target-language", metavar="TAG", help="Default target language of a multilingual model.")
def import_command(
    folder: str, output: str, revision: str | None, source_language: str | None, target_language: str | None
) -> None:
    """Import SOURCE as a model folder.

    SOURCE is a local Hugging Face folder (Marian, Pegasus, M2M100, NLLB, BERT, GPT-2, T5, Llama), a folder with weights
    of torch.nn.Transformer, a .gguf file, or owner/name of a model on the Hugging Face hub, from which safetensors and
    vocabularies are downloaded. Code in SOURCE is never executed; pickle files are rejected.
    """
    from transduce.interop.import_model import import_model

    contents = import_model(folder, output, source_language, target_language, revision)
    parameters = sum(parameter.numel() for parameter in contents.model.parameters())
    note(f"{parameters:,} parameters, vocabulary of {contents.model.sizes.target:,} tokens", "")
    click.echo(output)
