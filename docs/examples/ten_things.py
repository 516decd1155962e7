"""The ten things that one does first in a notebook, with the public API alone. Some ten seconds.

    python docs/examples/ten_things.py [FOLDER]

Everything goes to FOLDER, or to a temporary folder that is removed at the end. The model learns to reverse words.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path

import numpy as np

import transduce


def pairs(count: int, seed: int, symbols: str = "abcde") -> tuple[list[str], list[str]]:
    """Return sources such as "a b c", and their reversals."""
    draw = random.Random(seed)
    sources = [" ".join(draw.sample(symbols, k=draw.randint(1, len(symbols) - 1))) for _ in range(count)]
    return sources, [source[::-1] for source in sources]


class Log(transduce.Callback):
    """7. A callback: logs every validation, and stops when the model is good."""

    def __init__(self, enough: float) -> None:
        self.enough, self.history = enough, list[tuple[int, float]]()

    def validation(self, validation) -> None:  # type: ignore[no-untyped-def]
        """Called by the trainer after each validation."""
        right = validation.scores["exact_match"]  # a fraction
        self.history.append((validation.update, right))
        print(f"update {validation.update}: {right:.0%} right")
        if right >= self.enough:
            raise transduce.StopTraining(f"{right:.0%} are right")


def train(folder: Path) -> Path:
    """Train the model from lists of strings, with a callback."""
    sources, targets = pairs(2000, seed=1)
    return transduce.train(
        source=sources,
        target=targets,
        validation=pairs(50, seed=2),
        output=folder / "reverse",
        model={"preset": "small", "model_dim": 32, "num_heads": 2, "ffn_dim": 64, "num_layers": 1, "dropout": 0.0},
        tokenizer={"kind": "word"},
        updates=400,
        batch_tokens=512,
        learning_rate=0.01,
        schedule="linear",
        warmup=40,
        validate_every=100,
        metric="exact_match",
        optimizer="adamw",
        threads=1,
        callbacks=[Log(enough=0.9)],
    )


def main(folder: Path) -> None:
    """Train a model, then do the ten things."""
    run = train(folder)

    translator = transduce.load(run)  # 1. load
    print(translator)

    print(translator(["a b c", "d e"]))  # 2. translate a list

    for one in translator("a b c", n_best=3):  # 3. n-best with scores
        print(f"{one.score:8.3f}  {one.text}")

    maps = translator.attention("a b c d")  # 4. attention as numpy
    weights = maps.mean("cross")  # (target, source)
    print(maps.rows("cross"), maps.columns("cross"), weights.round(2))

    vectors = translator.embed(["a b c", "c b a", "e"], normalize=True)  # 5. embeddings
    print((vectors @ vectors.T).round(2))

    sources, targets = pairs(300, seed=3, symbols="abc")
    tuned = transduce.fine_tune(  # 6. fine-tune, 7. with a callback
        run,
        source=sources,
        target=targets,
        validation=(sources[:20], targets[:20]),
        output=folder / "tuned",
        updates=20,
        validate_every=10,
        metric="exact_match",
        callbacks=[Log(enough=2)],
    )
    print(transduce.load(tuned)("a b"))

    found = transduce.evaluate(translator, *pairs(40, seed=4), metrics=["exact_match"])  # 8. evaluate
    print(found, found["exact_match"])

    recorded = []  # 9. hook a layer: translator.model is a torch.nn.Module
    layer = translator.model.encoder[0]
    handle = layer.register_forward_hook(lambda module, inputs, output: recorded.append(output))
    translator("a b c")
    handle.remove()
    print(f"layer 1 of the encoder: {tuple(recorded[0].shape)}")

    translator.save(folder / "elsewhere")  # 10. save, and load elsewhere
    again = transduce.load(folder / "elsewhere")
    assert np.array_equal(again.embed(sources), translator.embed(sources))
    print(again("a b c"))


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
