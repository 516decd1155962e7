"""Latency of everything that a person does in the studio, in a real browser: `make bench-studio`.

Two Transformers with random weights, since products take the same time whatever the weights are: *demo*, with the
sizes of the model of `transduce demo pronoun`, and *base*, the paper's base model with 37,000 tokens. Both
translate 14 words into 20 tokens, with a beam of 4. Chromium and `transduce studio` share the machine. A time is that
from the event until the page shows what it is about and has painted a frame, in milliseconds; the median of several
sentences, which are new each time, so that nothing is remembered.

*frame* is the interval between frames, and *cpu* the processor time of the page's thread for each, while the pointer
moves over the attention map and the logit lens of a text of 512 tokens and while the map scrolls, one step in each
frame; 16.7 ms are 60 frames a second. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tests.browser.served import MISSING, browser, chromium_path, studio

from transduce.model_folder import ModelFolder, save_model
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig, paper_base
from transduce.text.tokenizer.tokenizer import TokenizerConfig
from transduce.text.tokenizer.training import train_tokenizer

WORDS, LENGTH, LONG = 14, 20, 512
"""Words of a source, tokens of its translation, and tokens of the long text."""


@dataclass(frozen=True)
class Model:
    """A model that is served."""

    config: TransformerConfig
    vocabulary: int


DEMO = TransformerConfig(
    model_dim=64, ffn_dim=128, num_heads=2, num_layers=3, decoder_layers=1, norm="pre", tied_embeddings="target"
)
MODELS = {"demo": Model(DEMO, 800), "base": Model(paper_base(), 37_000)}


def words(count: int) -> list[str]:
    """Different made-up words."""
    draw, found = random.Random(1), dict[str, None]()
    while len(found) < count:
        found["".join(draw.choice("bdfgklmnprst") + draw.choice("aeiou") for _ in range(draw.randint(2, 4)))] = None
    return list(found)


def save_random(model: Model, folder: Path) -> Path:
    """Write a model with random weights, whose translations have the same length whatever is translated."""
    tokenizer = train_tokenizer(
        "word", [" ".join(words(model.vocabulary))], TokenizerConfig(kind="word", min_frequency=1)
    )
    built: Any = build(model.config, VocabularySizes(tokenizer.size, tokenizer.size), seed=1)
    with torch.no_grad():
        for name, weight in built.named_parameters():
            weight.mul_(3.0 if weight.dim() == 2 and "embedding" not in name else 1.0)
    search = {"method": "beam", "beam_size": 4, "max_length": LENGTH, "min_length": LENGTH}
    save_model(folder, ModelFolder(built, model.config, tokenizer, tokenizer, {"search": search}), "random weights")
    return folder


class Bench:
    """One page, and the times that were measured on it."""

    def __init__(self, page: Any, address: str, vocabulary: list[str]) -> None:
        self.page, self.address, self.vocabulary = page, address, vocabulary
        self.draw, self.times = random.Random(2), dict[str, list[float]]()

    def sentence(self, length: int = WORDS) -> str:
        """A new sentence."""
        return " ".join(self.draw.choices(self.vocabulary, k=length))

    def measure(self, name: str, act: str, until: str, given: Any = None) -> float:
        """Do something in the page and wait until an expression is true and painted; keep the milliseconds."""
        script = f"""async (given) => {{
            const one = (s) => document.querySelector(s), all = (s) => [...document.querySelectorAll(s)];
            const frame = () => new Promise(requestAnimationFrame), end = performance.now() + 180000;
            await frame();
            const began = performance.now();
            {act};
            while (!({until})) {{
                if (performance.now() > end) throw new Error("never: " + {json.dumps(until)});
                await frame();
            }}
            await frame();
            return performance.now() - began;
        }}"""
        spent: float = self.page.evaluate(script, given)
        self.times.setdefault(name, []).append(spent)
        return spent

    def settle(self) -> None:
        """Wait until no request is under way."""
        self.page.wait_for_load_state("networkidle")
        self.page.wait_for_timeout(150)


TAB = "one('[data-tab={}]').click()"
TYPE = "const box = one('.panel-translate textarea'); box.value = given; box.dispatchEvent(new Event('input'))"
SHOWN = ".panel:not([hidden])"


def interactions(bench: Bench) -> None:
    """Measure every interaction once, on a new sentence."""
    page, measure, settle = bench.page, bench.measure, bench.settle
    page.goto("about:blank")
    page.goto(f"{bench.address}/#/translate")
    page.locator(".source-text").wait_for()
    settle()
    first = "one('.sentence .target')?.textContent.trim()"
    measure("type, first token", f"all('.sentence').forEach((s) => s.remove()); {TYPE}", first, bench.sentence())
    page.locator(".sentence .foot").wait_for()
    settle()
    done = "one('.sentence .foot') && one('.sentence').textContent.includes(given.split(' ')[0])"
    measure("type, translation", f"all('.sentence').forEach((s) => s.remove()); {TYPE}", done, bench.sentence())
    settle()
    point = "all('.target .token')[2].dispatchEvent(new PointerEvent('pointerenter', { pointerType: 'mouse' }))"
    measure("point at a token", point, "one('.token-card:not([hidden]) .choices')")
    measure("continue from another token", "one('button.choice').click()", "document.body.textContent.includes('kept')")
    settle()
    measure("beam tree", TAB.format("beam-tree"), f"one('{SHOWN} .tree-node.pruned')")
    one_tree = (
        "one('.tree-node.pruned').click(); all('button').find((b) => b.textContent.startsWith('Force this')).click()"
    )
    measure("force a pruned branch", one_tree, f"one('{SHOWN} .compared')?.textContent.trim()")
    settle()
    drawn = f"one('{SHOWN} .heat-map canvas')?.width > 50 && one('{SHOWN} .head-grid .drawn')"
    measure("attention, all heads", TAB.format("attention"), drawn)
    settle()
    measure(
        "open a head", "one('[data-head=\"1.2\"]').click()", "one('.attention .chosen').textContent.includes('head 2')"
    )
    page.evaluate("document.querySelector('.panel-attention .token-strip button').click()")
    page.locator(".neuron-place button").wait_for()
    measure("arithmetic of a row", "one('.neuron-place button').click()", "one('.neuron-place .arithmetic canvas')")
    encoder = "all('.segmented button').find((b) => b.textContent === 'Encoder').click()"
    measure("encoder attention", encoder, f"one('{SHOWN} .head-grid .drawn')")
    settle()
    page.evaluate("document.querySelector('[data-tab=intervene]').click()")
    page.locator(f"{SHOWN} .board").first.wait_for()
    settle()
    changed = f"/Intact model/.test(one('{SHOWN} .outcome').textContent) && one('{SHOWN} .working').hidden"
    measure("mask a word", f"all('{SHOWN} .unit')[1].click()", changed)
    page.get_by_role("button", name="Reset").click()
    page.get_by_text("Nothing is changed yet").wait_for()
    off = f"all('{SHOWN} .board button:not(.head)')[1].click()"
    measure("switch off a head", off, changed)
    settle()
    measure("logit lens", TAB.format("inside"), f"one('{SHOWN} .lens .layer-column .cell')")
    why = "one('[data-part=attribution]').click()"
    measure("why this word", why, f"one('{SHOWN} .attribution .question')")
    settle()
    measure("tour, first step", TAB.format("paper"), f"one('{SHOWN} .token-cards')")
    following = f"one('{SHOWN} .tour-foot .primary').click()"
    measure(
        "tour, next step",
        following,
        f"one('{SHOWN} .lesson h2').textContent.includes('list of numbers') && one('{SHOWN} canvas')",
    )


def frames(bench: Bench) -> dict[str, dict[str, float]]:
    """Move the pointer over the map and the lens of a long text, and scroll the map; one step for each frame."""
    page = bench.page
    link = f"{bench.address}/#/attention?options=" + json.dumps(
        {"search": {"beam_size": 1, "max_length": LONG, "min_length": LONG}}
    )
    page.goto("about:blank")
    page.goto(link)
    page.locator(".source-text, .subject textarea").first.wait_for()
    page.get_by_role("textbox", name="Sentence", exact=True).fill(bench.sentence(LONG - 1))
    enough = f"one('{SHOWN} .heat-map canvas')?.width > 50 && all('.token-strip .token').length >= {LONG}"
    bench.measure("record and show 512 tokens", "0", enough)
    bench.settle()
    move = (
        "box.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, "
        "clientX: edge.left + 140 + (i * 7) % (edge.width - 160), "
        "clientY: edge.top + 140 + (i * 3) % (edge.height - 160) }))"
    )
    cells = (
        "const cells = box.querySelectorAll('.cell'); "
        "cells[(i * 5) % Math.min(60, cells.length)].dispatchEvent(new PointerEvent('pointermove', { bubbles: true }))"
    )
    found = {
        "point at the map": play(page, ".heat-map", move),
        "scroll the map": play(page, ".heat-map", "box.scrollTop += 9; box.scrollLeft += 7"),
    }
    page.evaluate("document.querySelector('[data-tab=inside]').click()")
    page.locator(".lens .layer-column .cell").first.wait_for(timeout=120_000)
    bench.settle()
    found["point at the lens"] = play(page, ".lens .layer-grid", cells)
    return found


def play(page: Any, target: str, step: str, count: int = 180) -> dict[str, float]:
    """Do one step in each frame; milliseconds between frames, and of the main thread's processor time."""
    script = f"""async ([target, count]) => {{
        const box = document.querySelector(target), gaps = [], frame = () => new Promise(requestAnimationFrame);
        box.scrollIntoView({{ block: "center" }});
        const edge = box.getBoundingClientRect();
        let before = await frame();
        for (let i = 0; i < count; i++) {{
            {step};
            const at = await frame();
            gaps.push(at - before);
            before = at;
        }}
        return gaps;
    }}"""
    tools = page.context.new_cdp_session(page)
    tools.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = {one["name"]: one["value"] for one in tools.send("Performance.getMetrics")["metrics"]}
        return 1000 * float(metrics["TaskDuration"])

    before = spent()
    gaps = page.evaluate(script, [target, count])
    return {
        "frame": round(statistics.median(gaps), 1),
        "frame p95": round(statistics.quantiles(gaps, n=20)[-1], 1),
        "cpu": round((spent() - before) / count, 1),
    }


def main() -> None:
    """Measure both models and print tables and JSON."""
    parser = argparse.ArgumentParser(description="Latency of the studio in a browser.")
    parser.add_argument("--rounds", type=int, default=5, help="sentences of each model (default: 5)")
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=list(MODELS))
    given = parser.parse_args()
    from playwright.sync_api import sync_playwright

    path = chromium_path()
    if path is None:
        raise SystemExit(MISSING)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as place, browser(sync_playwright, path) as chromium:
        for name in given.models:
            model = MODELS[name]
            with studio(str(save_random(model, Path(place) / name))) as address:
                page = chromium.new_page(viewport={"width": 1440, "height": 900})
                bench = Bench(page, address, words(model.vocabulary)[:400])
                for _ in range(given.rounds + 1):
                    interactions(bench)
                long = frames(bench)
                times = {key: round(statistics.median(values[1:] or values), 1) for key, values in bench.times.items()}
                found[name] = {"milliseconds": times, "frames": long}
                page.close()
            print(f"{name}: milliseconds, median of {given.rounds}, after one that warms up", flush=True)
            for key, value in found[name]["milliseconds"].items():
                print(f"  {key:<30}{value:8.1f}")
            for key, value in found[name]["frames"].items():
                print(f"  {key:<30}{value}", flush=True)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
