"""Memory of translating files of different lengths: `make bench-bulk`.

Makes a tiny model with random weights and files of short lines, and translates each file with CTranslate2, in eight
bits, greedily, in a process of its own. Memory is the peak resident set size of a process;
it should not depend on the length of the file. The last line is one JSON object; `memory_ratio` is the peak of the
longest file over that of the shortest.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from measuring import measure_command

from transduce.model_folder import ModelFolder, save_model
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import Transformer, TransformerConfig
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

CHUNK = 10_000
SEARCH = ("--greedy", "--precision", "int8", "--max-length", "8")
"""Maximum length: an untrained model does not end its translations."""


def write_lines(path: Path, count: int) -> None:
    """Write short lines of random words, deterministically."""
    random = np.random.default_rng(1)
    words = np.array(
        [first + second for first in ("ba", "do", "ki", "lu", "me") for second in ("na", "so", "ti", "re")]
    )
    with path.open("w") as file:
        for start in range(0, count, CHUNK):
            lengths = random.integers(2, 9, min(CHUNK, count - start))
            chosen = iter(words[random.integers(0, len(words), int(lengths.sum()))].tolist())
            file.writelines(" ".join(next(chosen) for _ in range(length)) + "\n" for length in lengths)


def write_model(folder: Path, text: Path) -> None:
    """Write a tiny model with random weights that never generates special tokens."""
    known = train_tokenizer("bpe", text.read_text().splitlines()[:1000], TokenizerConfig(kind="bpe", vocab_size=300))
    torch.manual_seed(1)
    config = TransformerConfig(model_dim=32, num_heads=2, ffn_dim=64, num_layers=1)
    model = Transformer(config, VocabularySizes(known.size, known.size)).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.dim() == 1 else 0.0, std=0.3)
    with torch.no_grad():
        for token in (known.pad, known.start):
            model.output.weight[token] = 0.0
    save_model(folder, ModelFolder(model, config, known, known), "A model with random weights.")


def trial(folder: Path, lines: int) -> dict[str, Any]:
    """Translate `lines` lines; delete everything but the model afterwards."""
    source, output, model = folder / "source.txt", folder / "output.txt.gz", folder / "model"
    write_lines(source, lines)
    if not model.exists():
        write_model(model, source)
    command = ["translate", str(model), str(source), "--output", str(output), *SEARCH]
    found = measure_command([sys.executable, "-m", "transduce", *command])
    print(f"{lines:,} lines: {found['seconds']:,.0f} s, {found['peak_bytes'] / 2**20:,.0f} MiB", flush=True)
    output.unlink()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lines", nargs="*", type=int, default=[10_000, 1_000_000], help="lengths of files")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="transduce-bulk-") as folder:
        found = {lines: trial(Path(folder), lines) for lines in sorted(options.lines)}
    few, many = min(found), max(found)
    ratio = round(found[many]["peak_bytes"] / found[few]["peak_bytes"], 3)
    print(json.dumps({"memory_ratio": ratio, "lines": {str(lines): values for lines, values in found.items()}}))


if __name__ == "__main__":
    main()
