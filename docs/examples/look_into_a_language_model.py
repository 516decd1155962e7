"""What a language model expects next, and which of its heads follows a pronoun back to what it stands for.

    python docs/examples/look_into_a_language_model.py FOLDER

FOLDER is a language model that reads English, such as SmolLM2, made ready by `transduce import`. The last part asks
every head of every layer how much it looks from "it" to a noun. What it prints for SmolLM2-135M is in
docs/explanation/smollm2.md.
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
    """The likeliest tokens behind a prompt, with their probabilities."""
    tokens = torch.tensor([generator.tokenizer.encode(prompt)])
    model = generator.model
    with torch.no_grad():
        hidden = model(tokens, model.encode(tokens[:, :0], tokens[:, :0].bool()))
        best = model.logits(hidden[0, -1]).softmax(dim=-1).topk(top)
    pieces = generator.tokenizer.pieces(best.indices.tolist())
    return list(zip(pieces, best.values.tolist(), strict=True))


def looks_back(generator: Generator, text: str, word: str, at: str) -> dict[tuple[int, int], float]:
    """How much each head (layer, head) looks from one word to another, an earlier one."""
    tokens = generator.tokenizer.encode(text)
    pieces = [piece.strip("▁ ") for piece in generator.tokenizer.pieces(tokens)]
    asking, asked = pieces.index(word), pieces.index(at)
    batch, model = torch.tensor([tokens]), generator.model
    with torch.no_grad(), record(model, ("weight",)) as heard:
        model(batch, model.encode(batch[:, :0], batch[:, :0].bool()))
    return {
        (layer, head): float(weight)
        for layer, (_, weights) in enumerate(sorted(heard.items(), key=lambda item: int(item[0].split(".")[1])))
        for head, weight in enumerate(weights[0, :, asking, asked])
    }


def main(folder: str) -> None:
    generator = transduce.load(folder)
    assert isinstance(generator, Generator), "give the folder of a language model"
    for prompt in PROMPTS:
        print(f"\n{prompt!r}")
        for piece, probability in next_tokens(generator, prompt):
            print(f"  {piece:<14}{probability:6.1%}")
    print(f"\n{PRONOUN}\nHeads that look from 'it' to 'animal' most, and how much they look to 'street':")
    animal, street = (looks_back(generator, PRONOUN, "it", word) for word in ("animal", "street"))
    for place in sorted(animal, key=animal.__getitem__, reverse=True)[:5]:
        layer, head = place
        print(f"  layer {layer + 1:>2} head {head + 1}: animal {animal[place]:.2f}, street {street[place]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
