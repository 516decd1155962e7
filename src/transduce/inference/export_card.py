"""The README of an export folder: a few lines of Python that use it without transduce, and a command.

The lines are what `transduce export` prints, too; a test runs them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from transduce.inference.search.options import saved_options
from transduce.model_folder import ModelFolder
from transduce.models import catalog
from transduce.models.interface import EncoderModel, LanguageModel
from transduce.storage.layout import SOURCE_TOKENIZER, TARGET_TOKENIZER, TOKENIZER
from transduce.text.tokenizer import AnyTokenizer, is_joint
from transduce.text.tokenizer.imported import ImportedTokenizer


class Usage(NamedTuple):
    """How to use an export."""

    python: list[str]
    """Lines of a program."""
    command: str
    """A command of transduce."""

    def lines(self) -> list[str]:
        """Both, to be printed."""
        return [*self.python, "", self.command]


def readme(contents: ModelFolder, engine: str, usage: Usage, library: str | None = None) -> str:
    """Return the README of an export folder."""
    head = ["---", f"library_name: {library}", "---", ""] if library else []
    name, parameters = catalog.name_of(contents.config), sum(weight.numel() for weight in contents.model.parameters())
    return "\n".join(
        [
            *head,
            f"# A {name} for {engine}",
            "",
            f"{parameters:,} parameters, exported by transduce. Use it from Python:",
            "",
            "```python",
            *usage.python,
            "```",
            "",
            "or with transduce:",
            "",
            "```sh",
            usage.command,
            "```",
            "",
        ]
    )


def huggingface_usage(contents: ModelFolder, folder: Path) -> Usage:
    """Return how to use an export to Hugging Face."""
    name = folder.name or "model"
    imported = f"transduce import {folder} --output models/{name} &&"
    if isinstance(contents.model, LanguageModel):
        python = [
            "from transformers import pipeline",
            f'generate = pipeline("text-generation", model="{folder}")',
            'print(generate("some text", max_new_tokens=20, do_sample=False)[0]["generated_text"])',
        ]
        return Usage(python, f'{imported} transduce generate models/{name} "some text"')
    if isinstance(contents.model, EncoderModel):
        return _huggingface_encoder(contents, folder, imported, name)
    joint = is_joint(contents.source_tokenizer, contents.target_tokenizer)
    target = "" if joint else ', subfolder="target_tokenizer"'
    python = [
        "from transformers import AutoModelForSeq2SeqLM, AutoTokenizer",
        f'source, target = AutoTokenizer.from_pretrained("{folder}"), '
        f'AutoTokenizer.from_pretrained("{folder}"{target})',
        f'model = AutoModelForSeq2SeqLM.from_pretrained("{folder}")',
        'batch = source(["some text"], return_tensors="pt", padding=True, return_token_type_ids=False)',
        "print(target.batch_decode(model.generate(**batch), skip_special_tokens=True)[0])",
    ]
    return Usage(python, f"{imported} echo some text | transduce translate models/{name}")


PIPELINES = {"labels": "text-classification", "tags": "token-classification", "language": "fill-mask"}
"""Pipelines of `transformers`, by the head of a text encoder."""


def _huggingface_encoder(contents: ModelFolder, folder: Path, imported: str, name: str) -> Usage:
    head = str(getattr(contents.config, "head", "none"))
    text = "some <mask>" if head == "language" else "some text"
    if head in PIPELINES:
        mask = contents.source_tokenizer.mask
        piece = "" if mask is None else contents.source_tokenizer.vocabulary[mask]
        python = [
            "from transformers import pipeline",
            f'predict = pipeline("{PIPELINES[head]}", model="{folder}")',
            f'print(predict("{text.replace("<mask>", piece)}"))',
        ]
        return Usage(python, f'{imported} echo "{text}" | transduce predict models/{name}')
    class_name = "AutoModelForQuestionAnswering" if head == "span" else "AutoModel"
    given = '"some question", "some text"' if head == "span" else '"some text"'
    python = [
        f"from transformers import {class_name}, AutoTokenizer",
        f'tokenizer, model = AutoTokenizer.from_pretrained("{folder}"), {class_name}.from_pretrained("{folder}")',
        f'print(model(**tokenizer({given}, return_tensors="pt")))',
    ]
    verb, given = ("predict", "'some question\\tsome text'") if head == "span" else ("embed", "'some text'")
    return Usage(python, f"{imported} printf '%b\\n' {given} | transduce {verb} models/{name}")


def ctranslate2_usage(contents: ModelFolder, folder: Path, run: Path) -> Usage:
    """Return how to use an export to CTranslate2; `run` is the folder that it was made from."""
    source, target = contents.source_tokenizer, contents.target_tokenizer
    joint = is_joint(source, target)
    names = (TOKENIZER, TOKENIZER) if joint else (SOURCE_TOKENIZER, TARGET_TOKENIZER)
    library = "from transduce.text.tokenizer import load_tokenizer"
    loader = "load_tokenizer"
    if not isinstance(source, ImportedTokenizer):
        library, loader = "import tokenizers", "tokenizers.Tokenizer.from_file"
    load = f'source, target = {loader}("{folder}/{names[0]}"), {loader}("{folder}/{names[1]}")'
    pieces = _pieces(source, "source")
    if isinstance(contents.model, LanguageModel):
        start = {"start": target.start, "nothing": None}.get(str(contents.notes.get("prompt_start")), target.end)
        first = [] if start is None else [target.vocabulary[start]]
        python = [
            f"import ctranslate2; {library}",
            load,
            f'generator = ctranslate2.Generator("{folder}")',
            f"found = generator.generate_batch([{first} + {pieces}], max_length=20, include_prompt_in_result=False)",
            f"print({_decoded(target, 'found[0].sequences[0]')})",
        ]
        return Usage(python, f'transduce generate {run} "some text" --greedy --max-length 20')
    if isinstance(contents.model, EncoderModel):
        frame = (source.vocabulary[source.start], source.vocabulary[source.end])
        python = [
            f"import ctranslate2; {library}",
            load,
            f'encoder = ctranslate2.Encoder("{folder}")',
            f'print(encoder.forward_batch([["{frame[0]}"] + {pieces} + ["{frame[1]}"]]).last_hidden_state)',
        ]
        return Usage(python, f"echo some text | transduce embed {run}")
    options = saved_options(contents.notes.get("search", {}))
    search = f"beam_size={options.width}"
    if options.width > 1:
        search += f", length_penalty={options.length_penalty}"
    if target.target_prefix:
        tags = [target.vocabulary[token] for token in target.target_prefix]
        search += f", target_prefix=[{tags}]"
    python = [
        f"import ctranslate2; {library}",
        load,
        f'translator = ctranslate2.Translator("{folder}")',
        f"found = translator.translate_batch([{pieces}], {search})",
        f"print({_decoded(target, 'found[0].hypotheses[0]')})",
    ]
    return Usage(python, f"echo some text | transduce translate {run} --engine ctranslate2")


def onnx_usage(contents: ModelFolder, folder: Path, run: Path) -> Usage:
    """Return how to use an export to ONNX; `run` is the folder that it was made from."""
    source, target = contents.source_tokenizer, contents.target_tokenizer
    names = (TOKENIZER, TOKENIZER) if is_joint(source, target) else (SOURCE_TOKENIZER, TARGET_TOKENIZER)
    is_own = not isinstance(source, ImportedTokenizer)
    library = "import tokenizers" if is_own else "from transduce.text.tokenizer import load_tokenizer"
    loader = "tokenizers.Tokenizer.from_file" if is_own else "load_tokenizer"
    read = 'source.encode("some text")' + (".ids" if is_own else "")
    session = f'onnxruntime.InferenceSession("{folder}/{{}}.onnx")'
    first = [f"import numpy, onnxruntime; {library}", f'source = {loader}("{folder}/{names[0]}")']
    if isinstance(contents.model, EncoderModel):
        python = [
            *first,
            f"model = {session.format('model')}",
            f"tokens = numpy.array([[{source.start}] + {read} + [{source.end}]])",
            'print(model.run(None, {"tokens": tokens, "allowed": numpy.ones_like(tokens, dtype=bool)})[-1])',
        ]
        head = str(getattr(contents.config, "head", "none"))
        return Usage(python, f"echo some text | transduce {'embed' if head == 'none' else 'predict'} {run}")
    python = [
        *first,
        f'target = {loader}("{folder}/{names[1]}")',
        f"encoder, decoder = {session.format('encoder')}, {session.format('decoder')}",
        f"tokens = numpy.array([{read} + [{source.end}]])",
        "allowed = numpy.ones_like(tokens, dtype=bool)",
        'memory = encoder.run(None, {"source": tokens, "source_allowed": allowed})[0]',
        f"written = {[target.start, *target.target_prefix]}",
        f"while written[-1] != {target.end} and len(written) < tokens.size + 50:  # greedy search",
        '    inputs = {"target": numpy.array([written]), "memory": memory, "source_allowed": allowed}',
        "    written.append(int(decoder.run(None, inputs)[0][0, -1].argmax()))",
        f"print(target.decode([token for token in written if token not in {[target.start, target.end]}]))",
    ]
    return Usage(python, f"echo some text | transduce translate {run} --greedy")


def _pieces(tokenizer: AnyTokenizer, name: str) -> str:
    """The expression for the pieces of a text."""
    if isinstance(tokenizer, ImportedTokenizer):
        return f'[{name}.vocabulary[token] for token in {name}.encode("some text")]'
    return f'{name}.encode("some text").tokens'


def _decoded(tokenizer: AnyTokenizer, pieces: str) -> str:
    """The expression for the text of pieces."""
    if isinstance(tokenizer, ImportedTokenizer):
        return f"target.decode([target.vocabulary.index(piece) for piece in {pieces}])"
    return f"target.decode([target.token_to_id(piece) for piece in {pieces}])"
