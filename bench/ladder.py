"""Six systems of ten years on one corpus: `make reproduce-ladder`.

Multi30k, German to English, by the settings of a public ladder (bentrevett/pytorch-seq2seq): two LSTM layers without
attention, a GRU with one context, a GRU with attention, ConvS2S, a Transformer. Each system's validation perplexity
after every epoch is compared with the published one.

The ladder averages the mean losses of its batches of 128 sentences of similar length, so that long sentences, which are
harder, count less than in the mean over all tokens. For the last two systems both means are given, and the ladder's is
compared. Its recurrent models were evaluated without teacher forcing: so are ours after the last epoch, in addition to
the default. But the ladder trained them with teacher forcing half of the time and we train with it always, so for these
only the order can be compared.

BLEU is that of the epoch with the lowest validation loss, on the test set of 2016, lowercased and tokenised, by greedy
search as in the ladder. ByteNet is not in the ladder; it has a width that makes it about as large as the Transformer.

Finished runs are reused, interrupted runs are resumed, and BLEU is kept with its run. The last line is one JSON object.

Three epochs take an hour on two cores; the published BLEU is that of ten (`--epochs 10`). `--systems` shortens it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from functools import partial
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from measuring import require_files, train_or_resume

from transduce.data.batching import PairBatch, collate
from transduce.data.order import BatchSampler
from transduce.data.store import PairStore
from transduce.evaluation.metrics import bleu_metric
from transduce.evaluation.significance import interval
from transduce.inference.load import load_translator
from transduce.inference.scoring import score_pairs
from transduce.model_folder import load_model, load_weights, put_weights
from transduce.models.interface import AnyTransducer
from transduce.recipe import Recipe, read_recipe
from transduce.storage.atomic import atomic_file, write_json
from transduce.storage.journal import read_journal
from transduce.tasks.translation.evaluation import read_test_set
from transduce.training.reporter import Silent, Validation

ROOT = Path(__file__).resolve().parents[1]
EPOCH = 230
"""Updates per epoch, approximately."""

SYSTEMS: dict[str, list[str]] = {
    "sutskever": ["model={preset='sutskever'}", "training.learning_rate=0.001"],
    "cho": ["model={preset='cho'}", "training.learning_rate=0.001"],
    "bahdanau": ["model={preset='bahdanau'}", "training.learning_rate=0.001"],
    "convolutional": [
        "model={preset='conv_ladder', embedding_init='torch'}",
        "training.learning_rate=0.001",
        "training.max_grad_norm=0.1",
    ],
    "transformer": [],
    "bytenet": [
        "model={preset='bytenet_small', model_dim=160, num_sets=1, dilations=[1, 2, 4, 8], dropout=0.1}",
        "training.learning_rate=0.0005",
    ],
}
"""Settings that differ from recipes/reproduce/ladder.toml, in the order of the ladder, worst system first;
ByteNet has no place in it."""

PUBLISHED: dict[str, list[float]] = {
    "bahdanau": [117.6, 59.1, 36.3, 28.7, 25.7, 25.5, 23.5],
    "convolutional": [22.6, 11.4, 8.69, 7.58, 6.97, 6.65, 6.34],
    "transformer": [20.5, 9.87, 7.25, 6.12, 5.54, 5.20, 5.07],
}
"""Validation perplexity after each epoch; that of the first row without teacher forcing."""

PUBLISHED_BLEU = {"sutskever": 13.8, "cho": 20.6, "bahdanau": 28.1, "convolutional": 34.1, "transformer": 36.5}
"""After ten epochs, on the test set of 2016 (the first two from the tutorials' rewrite)."""

COMPARABLE = ("convolutional", "transformer")
RECURRENT = ("sutskever", "cho", "bahdanau")
TEST = "test_2016_flickr.lc.norm.tok"
BATCH = 128
"""Sentences of a batch of the ladder."""
TOGETHER = 4096
"""Tokens of a batch of validation pairs."""


class Epochs(Silent):
    """Prints the validation perplexity of each epoch."""

    def __init__(self, name: str) -> None:
        self.name = name

    def validation(self, validation: Validation) -> None:
        print(f"{self.name}, epoch {validation.update // EPOCH}: perplexity {validation.perplexity:.2f}", flush=True)


def recipe(options: argparse.Namespace, name: str) -> Recipe:
    """The published settings of a system."""
    files = {
        part: f"{{source='{options.data / file}.de.gz', target='{options.data / file}.en.gz'}}"
        for part, file in (("train", "train.lc.norm.tok"), ("validation", "val.lc.norm.tok"))
    }
    changes = [f"data.{part}={paths}" for part, paths in files.items()]
    changes += [f"training.updates={EPOCH * options.epochs}", f"training.keep_last={options.epochs}", *SYSTEMS[name]]
    changes += options.set
    return read_recipe(ROOT / "recipes/reproduce/ladder.toml", changes)[0]


def reached_by(options: argparse.Namespace, name: str) -> list[float]:
    """Train a system; return its perplexity after every epoch."""
    folder = train_or_resume(partial(recipe, options, name), options.work / name, Epochs(name))
    return [line["perplexity"] for line in read_journal(folder / "journal.jsonl") if line["event"] == "validation"]


def read(options: argparse.Namespace, side: str) -> list[str]:
    """The validation sentences of one side."""
    text = gzip.decompress((options.data / f"val.lc.norm.tok.{side}.gz").read_bytes()).decode()
    return text.removesuffix("\n").split("\n")


def by_batches(options: argparse.Namespace, name: str) -> dict[int, float]:
    """Return the perplexity after each epoch that has a checkpoint, averaged over batches as in the ladder."""
    folder = options.work / name
    found, pairs = load_model(folder), [read(options, side) for side in ("de", "en")]
    lengths = [[len(line.split()) for line in lines] for lines in pairs]
    order = sorted(range(len(pairs[0])), key=lambda row: interleaved(lengths[0][row], lengths[1][row]))
    sources, targets = (
        tokenizer.encode_batch([lines[row] for row in order])
        for tokenizer, lines in zip((found.source_tokenizer, found.target_tokenizer), pairs, strict=True)
    )
    perplexities = {}
    for place in sorted(folder.glob("checkpoints/*/model.safetensors")):
        put_weights(found.transducer, load_weights(place), place)
        specials = found.source_tokenizer.specials, found.target_tokenizer.specials
        scored = [target for target in score_pairs(found.transducer, sources, targets, *specials) if target is not None]
        batches = [scored[start : start + BATCH] for start in range(0, len(scored), BATCH)]
        losses = [
            -sum(target.log_probability for target in batch) / sum(len(target.token_scores) for target in batch)
            for batch in batches
        ]
        epoch = int(place.parent.name.removeprefix("update-")) // EPOCH
        perplexities[epoch] = math.exp(sum(losses) / len(losses))
    return perplexities


def interleaved(*lengths: int) -> int:
    """Interleave the bits of two lengths: the sort key of the ladder's library."""
    return int("".join(bit for bits in zip(*(f"{length:016b}" for length in lengths), strict=True) for bit in bits), 2)


def by_its_own_words(options: argparse.Namespace, name: str) -> float:
    """Return the perplexity of the references, given the finished model's own predictions as prefix."""
    translator = load_translator(options.work / name)
    sources, targets = read(options, "de"), read(options, "en")
    store = PairStore.of(translator.source.encode_batch(sources), translator.target.encode_batch(targets))
    loss, tokens = 0.0, 0
    for rows in BatchSampler.of(store, TOGETHER, seed=1).epoch(0):
        batch = collate(store, rows, translator.source.specials, translator.target.specials)
        loss += _read_alone(translator.model, batch)
        tokens += batch.num_target_tokens
    return math.exp(loss / tokens)


@torch.inference_mode()
def _read_alone(model: AnyTransducer, batch: PairBatch) -> float:
    """Return the loss of a batch's references when the decoder's inputs are its own most likely tokens."""
    state = model.start(model.encode(batch.source, batch.source_allowed))
    read_B, loss = batch.target[:, 0], 0.0
    for place in range(batch.target.shape[1] - 1):
        hidden_BD, state = model.step(read_B, state)
        score_BV = model.output(hidden_BD)
        predicted_B = batch.is_predicted[:, place]
        loss += float(F.cross_entropy(score_BV[predicted_B], batch.target[predicted_B, place + 1], reduction="sum"))
        read_B = score_BV.argmax(dim=1)
    return loss


def in_order(values: list[float]) -> bool:
    """Whether each system is better than the one before."""
    return all(one < other for one, other in pairwise(values))


def bleu_of(options: argparse.Namespace, name: str) -> dict[str, float]:
    """Return the BLEU of a finished system with its interval; it is computed once."""
    kept = options.work / name / "bleu.json"
    if not kept.is_file():
        files = (options.data / f"{TEST}.{side}.gz" for side in ("de", "en"))
        source, target = map(str, files)
        test = read_test_set(source, [target], None)
        metric = bleu_metric("none")
        translations = load_translator(options.work / name).translate(test.sources, split=False)
        found = interval(metric, translations, test.references)
        with atomic_file(kept) as temporary:
            write_json(temporary, {"bleu": found.score, "low": found.low, "high": found.high})
    return {key: float(value) for key, value in json.loads(kept.read_text()).items()}


def within(measured: dict[int, float], published: list[float]) -> float | None:
    """Return the largest relative difference of an epoch from the published value; None if nothing was published."""
    distances = [abs(ours / published[epoch - 1] - 1) for epoch, ours in measured.items() if epoch <= len(published)]
    return round(max(distances), 3) if distances else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data" / "multi30k", help="the .gz files")
    parser.add_argument("--work", type=Path, default=Path("runs/reproduce-ladder"), help="folder of the runs")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of every recipe"
    )
    options = parser.parse_args()
    parts = ("train.lc.norm.tok", "val.lc.norm.tok", TEST)
    require_files(options.data, *(f"{part}.{side}.gz" for part in parts for side in ("de", "en")))
    options.work.mkdir(parents=True, exist_ok=True)
    reached = {name: reached_by(options, name) for name in options.systems}
    averaged = {name: by_batches(options, name) for name in COMPARABLE if name in reached}
    for name, perplexities in reached.items():
        print(f"{name:>14}  ours       " + "  ".join(f"{value:7.2f}" for value in perplexities))
        if name in PUBLISHED:
            shown = PUBLISHED[name][: len(perplexities)]
            if name in averaged:
                found = [averaged[name].get(epoch) for epoch in range(1, len(perplexities) + 1)]
                row = "  ".join("      –" if value is None else f"{value:7.2f}" for value in found)
                print(f"{'':>14}  by batches {row}")
            note = "" if name in COMPARABLE else "  (another measure)"
            print(f"{'':>14}  published  " + "  ".join(f"{value:7.2f}" for value in shown) + note)
    alone = {name: by_its_own_words(options, name) for name in RECURRENT if name in reached}
    for name, value in alone.items():
        print(f"{name:>14}  ours, without teacher forcing after the last epoch  {value:7.2f}")
    bleus = {name: bleu_of(options, name) for name in reached}
    for name, bleu in bleus.items():
        compared = f"  published {PUBLISHED_BLEU[name]:5.1f}" if name in PUBLISHED_BLEU else ""
        print(f"{name:>14}  BLEU {bleu['bleu']:5.2f}  ({bleu['low']:.2f} to {bleu['high']:.2f}){compared}")
    last = [alone.get(name, values[-1]) for name, values in reached.items() if name in PUBLISHED_BLEU]
    summary = {
        "perplexities": {name: [round(value, 2) for value in values] for name, values in reached.items()},
        "by_its_own_words": {name: round(value, 2) for name, value in alone.items()},
        "by_batches": {
            name: {epoch: round(value, 2) for epoch, value in values.items()} for name, values in averaged.items()
        },
        "distance": {name: within(values, PUBLISHED[name]) for name, values in averaged.items()},
        "in_order": last == sorted(last, reverse=True),
        "bleu": bleus,
        "published_bleu": {name: PUBLISHED_BLEU[name] for name in bleus if name in PUBLISHED_BLEU},
        "bleu_in_order": in_order([bleus[name]["bleu"] for name in bleus if name in PUBLISHED_BLEU]),
    }
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
