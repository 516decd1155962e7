"""The next-token distribution of a language model, and which of its heads attend from a pronoun to its referent.

    python docs/examples/inspect_language_model.py FOLDER

FOLDER is an English language model, such as SmolLM2, made by `transduce import`. The last part prints how much each
head attends from "it" to a noun. Its output for SmolLM2-135M is in docs/explanation/smollm2.md.
"""

from __future__ import annotations

import sys

import torch

import transduce
from transduce.inference.generator import Generator
from transduce.nn.hook import record

PROMPTS = (
    "The capital of France is",
    "The capital of France, which I visited after spending three weeks traveling through Europe and reading about its "
    "history, is",
    "def scale(values, factor):\n    return [v * factor for v in",
    "The snack-seeking, scruffy dog ran to the",
)
PRONOUN = "The animal didn't cross the street because it was too tired."


def next_tokens(generator: Generator, prompt: str, top: int = 5) -> list[tuple[str, float]]:
    """The most probable tokens after a prompt, with their probabilities."""
    tokens = torch.tensor([generator.tokenizer.encode(prompt)])
    model = generator.model
    with torch.no_grad():
        hidden = model(tokens, model.encode(tokens[:, :0], tokens[:, :0].bool()))
        best = model.logits(hidden[0, -1]).softmax(dim=-1).topk(top)
    pieces = generator.tokenizer.pieces(best.indices.tolist())
    return list(zip(pieces, best.values.tolist(), strict=True))


def attention_between(generator: Generator, text: str, word: str, at: str) -> dict[tuple[int, int], float]:
    """The attention weight of each (layer, head) from one word to an earlier one."""
    tokens = generator.tokenizer.encode(text)
    pieces = [piece.strip("▁ ") for piece in generator.tokenizer.pieces(tokens)]
    query, key = pieces.index(word), pieces.index(at)
    batch, model = torch.tensor([tokens]), generator.model
    with torch.no_grad(), record(model, ("weight",)) as recorded:
        model(batch, model.encode(batch[:, :0], batch[:, :0].bool()))
    return {
        (layer, head): float(weight)
        for layer, (_, weights) in enumerate(sorted(recorded.items(), key=lambda item: int(item[0].split(".")[1])))
        for head, weight in enumerate(weights[0, :, query, key])
    }


def main(folder: str) -> None:
    generator = transduce.load(folder)
    assert isinstance(generator, Generator), "give the folder of a language model"
    for prompt in PROMPTS:
        print(f"\n{prompt!r}")
        for piece, probability in next_tokens(generator, prompt):
            print(f"  {piece:<14}{probability:6.1%}")
    print(f"\n{PRONOUN}\nHeads that attend most from 'it' to 'animal', and their attention to 'street':")
    animal, street = (attention_between(generator, PRONOUN, "it", word) for word in ("animal", "street"))
    for place in sorted(animal, key=animal.__getitem__, reverse=True)[:5]:
        layer, head = place
        print(f"  layer {layer + 1:>2} head {head + 1}: animal {animal[place]:.2f}, street {street[place]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
