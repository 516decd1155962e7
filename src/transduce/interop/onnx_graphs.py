"""Export to ONNX, for programs that have no PyTorch (extra `onnx`): graphs, tokenizers and a README that uses them.

    encoder.onnx   source, source_allowed (B S) -> memory (B S D)                 of an encoder-decoder
    decoder.onnx   target (B T), memory, source_allowed -> logits (B T V)
    model.onnx     tokens, allowed (B N) -> hidden (B N D), and what the head predicts, of a text encoder

Every axis but the width and the vocabulary has any size. The decoder reads the whole prefix at each step: simple, and
without the states of a cache, which every runtime would have to carry. The graphs are made by torch's own exporter and
are compared with the model, at other sizes than they were made with, before anything is written.
"""

from __future__ import annotations

import contextlib
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from transduce.errors import SettingsError, TransduceError, one_line
from transduce.inference.export_card import Usage, onnx_usage, readme
from transduce.model_folder import ModelFolder, save_tokenizers
from transduce.models.bert import Bert
from transduce.models.interface import Memory
from transduce.models.transformer import Transformer
from transduce.rng import torch_generator
from transduce.storage.atomic import atomic_folder
from transduce.storage.layout import MODEL_CARD

POSITIONS = 4096
"""Sinusoids that are exported: the longest text that the graphs read or write, in tokens."""
NEVER = -1e9
"""Added to the logits of the padding and start tokens, which our search never writes either."""
TOLERANCE = 1e-4
"""Largest difference from the model, relative to its largest output."""
TRIED = ((3, 11), (1, 1), (2, 5))
"""Batch and length of the inputs that graphs are compared on; they are made with another size."""


class _Encoder(nn.Module):
    """source, source_allowed -> memory."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_allowed: Tensor) -> Tensor:
        return self.model.encode(source, source_allowed).states


class _Decoder(nn.Module):
    """target, memory, source_allowed -> logits."""

    never: Tensor

    def __init__(self, model: Transformer, never: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        bias = torch.zeros(model.sizes.target)
        bias[list(never)] = NEVER
        self.register_buffer("never", bias)

    def forward(self, target: Tensor, memory: Tensor, source_allowed: Tensor) -> Tensor:
        logits: Tensor = self.model.output(self.model(target, Memory(memory, source_allowed)))
        return logits + self.never


class _TextEncoder(nn.Module):
    """tokens, allowed -> hidden, and what the head predicts."""

    def __init__(self, model: Bert) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, allowed: Tensor) -> tuple[Tensor, ...]:
        encoding = self.model(tokens, allowed)
        return (encoding.states,) if self.model.head is None else (encoding.states, self.model.head(encoding))


def export(contents: ModelFolder, folder: Path, run: Path) -> Usage:
    """Write a folder of graphs and tokenizers, complete or absent; return how to use it, as its README says.

    `run` is the folder that the model comes from, for the README.
    """
    runtime, usage = _runtime(), onnx_usage(contents, folder, run)
    model = contents.model.eval()
    check_model(model)
    for name, table in list(model.named_buffers()):
        if name.endswith("positions.table") and table.shape[0] < POSITIONS:
            model.get_submodule(name.removesuffix(".table")).first(POSITIONS)  # type: ignore[operator]
    with atomic_folder(folder) as temporary, torch.no_grad():
        if isinstance(model, Transformer):
            _export_translator(contents, model, temporary, runtime)
        elif isinstance(model, Bert):
            names = ["hidden"] if model.head is None else ["hidden", "scores"]
            _Graph(_TextEncoder(model), ["tokens", "allowed"], names).export(
                temporary / "model.onnx", _inputs(model.sizes.source, 2, 7), runtime
            ).compare([_inputs(model.sizes.source, *size) for size in TRIED])
        save_tokenizers(temporary, contents.source_tokenizer, contents.target_tokenizer)
        (temporary / MODEL_CARD).write_text(readme(contents, "ONNX Runtime", usage), encoding="utf-8")
    return usage


def check_model(model: nn.Module) -> None:
    """Raise if a model cannot be exported."""
    if not isinstance(model, Transformer | Bert):
        raise SettingsError(
            f"a model of type {type(model).__name__} cannot be exported to ONNX; Transformer, T5 and BERT can"
        )
    kinds = {model.config.attention, getattr(model.config, "decoder_attention", None) or "full"}
    if others := kinds - {"full"}:
        raise SettingsError(f"{', '.join(sorted(others))} attention cannot be exported to ONNX; full attention can")


def _export_translator(contents: ModelFolder, model: Transformer, folder: Path, runtime: Any) -> None:
    target, sizes = contents.target_tokenizer, model.sizes
    never = [token for token in (target.pad, target.start) if token != target.end]
    encoder = _Graph(_Encoder(model), ["source", "source_allowed"], ["memory"])
    decoder = _Graph(_Decoder(model, never), ["target", "memory", "source_allowed"], ["logits"])

    def decoder_inputs(batch: int, length: int) -> tuple[Tensor, ...]:
        source, allowed = _inputs(sizes.source, batch, length)
        written, _ = _inputs(sizes.target, batch, length + 3)
        return written, encoder.module(source, allowed), allowed

    encoder.export(folder / "encoder.onnx", _inputs(sizes.source, 2, 7), runtime)
    encoder.compare([_inputs(sizes.source, *size) for size in TRIED])
    decoder.export(folder / "decoder.onnx", decoder_inputs(2, 7), runtime)
    decoder.compare([decoder_inputs(*size) for size in TRIED])


def _inputs(vocabulary: int, batch: int, length: int) -> tuple[Tensor, Tensor]:
    """Return tokens and which of them are real; the last row of several is shorter."""
    generator = torch_generator(batch * length)
    allowed = torch.ones(batch, length, dtype=torch.bool)
    allowed[-1, length - length // 3 :] = False
    return torch.randint(vocabulary, (batch, length), generator=generator), allowed


class _Graph:
    """One module, and the graph that is made of it."""

    def __init__(self, module: nn.Module, inputs: list[str], outputs: list[str]) -> None:
        self.module, self.inputs, self.outputs = module.eval(), inputs, outputs
        self._session: Any = None

    def export(self, path: Path, example: tuple[Tensor, ...], runtime: Any) -> _Graph:
        """Write the graph; batch and length of every input are free."""
        free = torch.export.Dim.DYNAMIC
        try:
            with _quiet():
                program = torch.onnx.export(
                    self.module,
                    example,
                    input_names=self.inputs,
                    output_names=self.outputs,
                    dynamic_shapes=tuple({0: free, 1: free} for _ in self.inputs),
                    dynamo=True,
                    verbose=False,
                )
        except torch.onnx.OnnxExporterError as error:
            cause = one_line(error.__cause__ or error)
            raise SettingsError(f"torch cannot export this model to ONNX: {cause}") from None
        assert program is not None
        program.save(str(path))
        self._session = runtime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        return self

    def compare(self, several: Sequence[tuple[Tensor, ...]]) -> None:
        """Raise unless the graph gives what the module gives."""
        for values in several:
            found = self.module(*values)
            expected = [found] if isinstance(found, Tensor) else [*found]
            given = {name: value.numpy() for name, value in zip(self.inputs, values, strict=True)}
            for name, mine, theirs in zip(self.outputs, expected, self._session.run(None, given), strict=True):
                own = mine.numpy()
                off = float(np.abs(own - theirs).max() / max(1.0, np.abs(own[own > NEVER / 2]).max()))
                if not off <= TOLERANCE:
                    raise TransduceError(f"the exported graph's {name} differs from the model's by {off:.1e}")


def _runtime() -> Any:
    """Return ONNX Runtime; the error says how to install what is missing."""
    try:
        import onnxruntime
        import onnxscript  # noqa: F401  torch's exporter needs it
    except ImportError as error:
        raise SettingsError(
            f"export to ONNX needs the package {error.name}; install it with `pip install 'transduce[onnx]'`"
        ) from None
    return onnxruntime


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch's exporter logs about packages that are not needed, and its own deprecations."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)
