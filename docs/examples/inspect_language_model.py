"""The next-token distribution of a language model, and which of its heads attend from a pronoun to its referent.

    python docs/examples/inspect_language_model.py FOLDER

FOLDER is an English language model, such as SmolLM2, made by `transduce import`. The last part prints how much each
head attends from "it" to a noun. Its output for SmolLM2-135M is in docs/explanation/smollm2.md.
"""

from __future__ import annotations

import sys

import transduce
from transduce.inference.generator import EXAMPLE_PROMPTS, Generator

PRONOUN = "The animal didn't cross the street because it was too tired."


def attention_between(generator: Generator, text: str, word: str, at: str) -> dict[tuple[int, int], float]:
    """The attention weight of each (layer, head) from one word to an earlier one."""
    maps = generator.attention(text)
    pieces = [piece.strip("▁ ") for piece in maps.columns("causal")]
    weights = maps.maps["causal"][:, :, pieces.index(word), pieces.index(at)]
    return {
        (layer, head): float(weight)
        for layer, row in enumerate(weights, start=1)
        for head, weight in enumerate(row, start=1)
    }


def main(folder: str) -> None:
    generator = transduce.load(folder)
    assert isinstance(generator, Generator), "give the folder of a language model"
    for prompt in EXAMPLE_PROMPTS:
        print(f"\n{prompt!r}")
        for token in generator.next_tokens(prompt, top=5):
            print(f"  {token.piece:<14}{token.logit:7.2f}{token.probability:9.1%}")
    print(f"\n{PRONOUN}\nHeads that attend most from 'it' to 'animal', and their attention to 'street':")
    animal, street = (attention_between(generator, PRONOUN, "it", word) for word in ("animal", "street"))
    for place in sorted(animal, key=animal.__getitem__, reverse=True)[:5]:
        layer, head = place
        print(f"  layer {layer:>2} head {head}: animal {animal[place]:.2f}, street {street[place]:.2f}")


if __name__ == "__main__":
    main(sys.argv[1])
