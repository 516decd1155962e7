"""Train a small Transformer to reverse words, translate with it, and print its attention. A few seconds.

    python docs/examples/quickstart.py [FOLDER]

The run goes to FOLDER/reverse, or to a temporary folder that is removed at the end.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import transduce

RECIPE = """
[data]
train = {task = "reverse", size = 3000, seed = 1, max_length = 4, symbols = 5}
validation = {task = "reverse", size = 50, seed = 2, max_length = 4, symbols = 5}

[tokenizer]
kind = "word"

[model]
name = "transformer"
model_dim = 32
num_heads = 2
ffn_dim = 64
num_layers = 1
norm = "pre"
dropout = 0.0

[training]
batch_tokens = 512
updates = 400
schedule = "linear"
learning_rate = 0.01
warmup = 40
validate_every = 400
metric = "exact_match"
decode_examples = 50
threads = 1
"""


def main(folder: Path) -> None:
    """Train, translate, inspect."""
    recipe = folder / "reverse.toml"
    recipe.write_text(RECIPE, encoding="utf-8")
    run = transduce.train(recipe, folder / "reverse")

    translator = transduce.load(run)
    print("a b c d  →", translator("a b c d"))
    for hypothesis in translator.translate(["d a b"], beam_size=5, n_best=3)[0]:
        print(f"  {hypothesis.score:7.3f}  {hypothesis.text}")

    maps = translator.attention("a b c d")
    print(maps)
    for produced, row in zip(maps.rows("cross"), maps.mean("cross"), strict=True):
        print(f"  {produced:<5} attends most to {maps.columns('cross')[row.argmax()]}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
