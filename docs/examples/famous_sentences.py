"""The example sentences of common texts, carried out: 我爱中国, "je suis étudiant", "Thinking Machines". A few seconds.

    python docs/examples/famous_sentences.py [FOLDER]

A Transformer learns four translations by heart, which is all that the texts' examples need. Then it translates step
by step, from the start token to the end token, and the attention of one head for "Thinking Machines" is computed by
hand from its queries and keys.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path

import torch

import transduce
from transduce.nn.hook import record, twin

PAIRS = (
    ("我爱中国", "I Love China"),
    ("je suis étudiant", "I am a student"),
    ("Thinking Machines", "Denkende Maschinen"),
    ("Machines Thinking", "Maschinen denken"),
)

RECIPE = """
[data]
train = {path = "FOLDER/pairs.tsv"}
validation = {path = "FOLDER/pairs.tsv"}
leakage = "keep"

[tokenizer]
joint = false
source_kind = "bpe"
target_kind = "word"
vocab_size = 400
min_frequency = 1

[model]
name = "transformer"
model_dim = 32
num_heads = 2
ffn_dim = 64
num_layers = 1
norm = "pre"
tied_embeddings = "target"
dropout = 0.0

[training]
batch_tokens = 64
updates = 120
schedule = "linear"
learning_rate = 0.01
warmup = 20
validate_every = 120
metric = "exact_match"
decode_examples = 4
threads = 1
"""


def main(folder: Path) -> None:
    """Train, translate step by step, and compute one attention by hand."""
    (folder / "pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    (folder / "recipe.toml").write_text(RECIPE.replace("FOLDER", folder.as_posix()), encoding="utf-8")
    translator = transduce.load(transduce.train(folder / "recipe.toml", folder / "famous"))
    for source, _ in PAIRS[:2]:
        print(f"{source} = {' '.join(translator.source.pieces(translator.source.encode(source)))}")
        print(f"{source} → {translator(source)}")
        maps = translator.attention(source)
        for position, step in enumerate(maps.steps, start=1):
            read = " ".join(maps.target_pieces[:position])
            print(f"  {read} → {step.chosen.piece} ({step.chosen.probability:.0%})")

    # Queries, keys and weights of the first head of the encoder, and the weights again by hand.
    text = PAIRS[2][0]
    source_1S = torch.tensor([[*translator.source.encode(text), translator.source.end]])
    model = twin(translator.model)
    with torch.no_grad(), record(model, ("query", "key", "weight"), inside="encoder.0.") as recorded:
        model.encode(source_1S, torch.ones_like(source_1S, dtype=torch.bool))
    query_SK, key_SK, weight_SS = (
        next(value[0, 0] for path, value in recorded.items() if path.endswith(name))
        for name in ("query", "key", "weight")
    )
    by_hand = [[math.exp(float(query @ key) / math.sqrt(len(key))) for key in key_SK] for query in query_SK]
    pieces = translator.source.pieces(source_1S[0].tolist())
    print(f"{text}: weights of head 1, and by hand exp(q·k / √{key_SK.shape[1]}) over its sum")
    for piece, weights, scores in zip(pieces, weight_SS.tolist(), by_hand, strict=True):
        shares = [score / sum(scores) for score in scores]
        assert all(abs(one - other) < 1e-5 for one, other in zip(weights, shares, strict=True))
        print(f"  {piece:<10} {' '.join(f'{weight:.3f}' for weight in weights)}")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
