"""docs/reference/settings.md, made of the settings: `python -m tests.documents.settings_page` writes it anew."""

from __future__ import annotations

import json
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from tests.documents.markdown import ROOT
from transduce.config import Config
from transduce.data.pictures import DrawnPictures
from transduce.data.synthetic import SyntheticTask
from transduce.inference.search.options import SearchOptions
from transduce.models.block import BlockConfig
from transduce.models.catalog import MODELS
from transduce.models.transformer import TransformerConfig
from transduce.tasks.language_modeling.config import LanguageModelingConfig
from transduce.tasks.text_encoding.config import ExampleFiles, TextEncodingConfig
from transduce.tasks.translation.config import SpanCorruptionConfig, TranslationConfig
from transduce.tasks.translation.corpus import PreparedPairs
from transduce.text.corpus import CorpusFiles
from transduce.text.plain import TextFile
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.training.config import TrainingConfig

PAGE = ROOT / "docs/reference/settings.md"
BEGINNING = """# Every setting

A recipe has five tables, `[data]`, `[tokenizer]`, `[model]`, `[training]` and `[search]`. Any setting can be changed on
the command line, `--set training.r_drop=5`, and `transduce train … --dry-run` prints a recipe with all of them filled
in. What this page calls the default holds where neither the recipe, nor a preset, nor [the choice by your
corpus](../how-to/train.md) says anything. No default means: none, or worked out as described. A language model's
`[search]` begins with `method = "sample"`, `temperature = 0.8` and `max_length = 200`.

This page is made of the program's own settings, and a test compares the two.
"""
SECTIONS: list[tuple[str, str, type[Config]]] = [
    ("## `[data]` of translation: pairs", "", TranslationConfig),
    (
        "### A corpus of pairs",
        "`{source = …, target = …}` or `{path = …}`, in `train`, `validation`, `test`.",
        CorpusFiles,
    ),
    ("### A task that makes its pairs", '`{task = "reverse", size = 10_000}`.', SyntheticTask),
    ("### Pictures that are drawn", '`{pictures = "seen", size = 10_000}`, for captioners.', DrawnPictures),
    ("### Pairs of another run", "`{prepared = …}`; what `--extra-validation RUN` stands for.", PreparedPairs),
    ("## `[data]` of language modelling: plain text", "", LanguageModelingConfig),
    ("### A corpus of plain text", "`{text = …}`, for language models and T5.", TextFile),
    (
        "## `[data]` of span corruption: plain text",
        'With `objective = "span_corruption"`, pairs are made of the text for an encoder-decoder model such as T5.',
        SpanCorruptionConfig,
    ),
    ("## `[data]` of text encoding: examples", "With any other `objective`.", TextEncodingConfig),
    ("### A file of examples", "`{path = …}`, in `train`, `validation`, `test`.", ExampleFiles),
    ("## `[tokenizer]`", "", TokenizerConfig),
    ("## `[training]`", "", TrainingConfig),
    ("## `[search]`", "", SearchOptions),
]
"""Heading, a sentence, and the class of the settings."""
MODEL = "`name` chooses the model, `preset` a model with its sizes ([which there are](../../README.md#models))."
BLOCKS = "Shared by `transformer`, `gpt`, `t5`, `bert`, `universal` and `universal_encoder`."
WORDS = {bool: "`true`, `false`", int: "whole number", float: "number", str: "text"}


def page() -> str:
    """Return the page."""
    parts = [BEGINNING]
    for heading, sentence, config in SECTIONS:
        parts.append(_section(heading, sentence, dict(config.model_fields)))
        if config is TokenizerConfig:
            parts += _models()
    return "\n".join(parts)


def _models() -> Iterator[str]:
    """The settings of every model; of one that builds on another's, what is its own or has another default."""
    yield f"## `[model]`\n\n{MODEL}\n"
    yield _section("### Blocks of a Transformer", BLOCKS, dict(BlockConfig.model_fields))
    for name, entry in MODELS.items():
        below = next((base for base in entry.config.__mro__[1:] if base in (TransformerConfig, BlockConfig)), None)
        fields = entry.config.model_fields
        sentence = f"Presets: {', '.join(f'`{preset}`' for preset in entry.presets)}."
        if below is not None:
            fields = {key: field for key, field in fields.items() if _row(key, field) not in _rows(below.model_fields)}
            shared = "the blocks' and those of `transformer`" if below is TransformerConfig else "the blocks'"
            sentence += f" Besides {shared}, or with another default:"
        yield _section(f"### `{name}`", sentence, fields)


def _section(heading: str, sentence: str, fields: dict[str, FieldInfo]) -> str:
    lines = [
        heading,
        "",
        *([sentence, ""] if sentence else []),
        "| setting | values | default | |",
        "|---|---|---|---|",
    ]
    return "\n".join([*lines, *_rows(fields), ""])


def _rows(fields: dict[str, FieldInfo]) -> list[str]:
    return [_row(name, field) for name, field in fields.items()]


def _row(name: str, field: FieldInfo) -> str:
    default = "must be given" if field.is_required() else "" if field.default is None else _toml(field.default)
    meaning = " ".join((field.description or "").split()).replace("|", "\\|")
    return f"| `{name}` | {values_of(field.annotation)} | {default} | {meaning} |"


def _toml(value: Any) -> str:
    return f"`{json.dumps(value, ensure_ascii=False)}`"


def values_of(annotation: Any) -> str:
    """Say what may stand in a recipe, in TOML's words."""
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return values_of(inner[0])
    if origin is Literal:
        return ", ".join(map(_toml, inner))
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(values_of(one) for one in inner if one is not NoneType))
    if origin is tuple:
        return "list"
    return WORDS.get(annotation, "table")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
