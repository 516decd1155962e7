"""A model with imported tokenizers: kept in a model folder and asked like one of our own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor

import transduce
from tests.unit.copy_translator import Pointer
from tests.unit.imported_tokenizers import m2m, marian, t5
from tests.unit.inference.search.toy import Prefix
from tests.unit.sentencepiece_models import CORPUS
from transduce.cli.main import run
from transduce.inference.ctranslate2.export import is_installed
from transduce.inference.search.options import Hypothesis, Request
from transduce.inference.translator import Translator
from transduce.model_folder import ModelFolder, load_model, save_model
from transduce.models.catalog import build
from transduce.models.interface import VocabularySizes
from transduce.models.transformer import TransformerConfig
from transduce.text.constraint import Constraints
from transduce.text.tokenizer.imported import ImportedTokenizer

PAIRS = {
    "marian": lambda: (marian("source"), marian("target")),
    "m2m": lambda: m2m().sides(),
    "t5": lambda: t5().sides(),
}
WORDS = "the quick brown fox jumps over the lazy dog"


def copier(name: str, limit: int | None = None) -> Translator:
    """A translator over a model that says the source's tokens again, in place of a language that of the answer."""
    source, target = PAIRS[name]()
    target = source if name == "marian" else target  # one table, but other pieces

    def row(tokens: Prefix, prefix: Prefix) -> Tensor:
        message = tokens[source.count_tags(tokens) :]
        place = len(prefix) - target.count_tags(prefix)
        score_V = torch.full((target.size,), -20.0)
        score_V[message[place] if place < len(message) else target.end] = 0.0
        return score_V.log_softmax(dim=-1)

    model = Pointer(row, target.size, limit, start_token=target.start)
    return Translator(ModelFolder(model, TransformerConfig(), source, target, {}))


def requests_of(translator: Translator) -> list[Request]:
    seen: list[Request] = []
    search = translator.engine.translate

    def watched(requests: Sequence[Request]) -> list[list[Hypothesis]]:
        seen.extend(requests)
        return search(requests)

    translator.engine.translate = watched  # type: ignore[method-assign]
    return seen


def random_model(name: str, folder: Path) -> Path:
    source, target = PAIRS[name]()
    sizes = VocabularySizes(source.size, target.size)
    config = TransformerConfig(model_dim=12, num_heads=3, ffn_dim=14, num_layers=1, tied_embeddings="all")
    save_model(folder, ModelFolder(build(config, sizes, seed=5), config, source, target), "# card\n")
    return folder


@pytest.mark.parametrize("name", PAIRS)
def test_a_model_folder_keeps_it(name: str, tmp_path: Path) -> None:
    contents = load_model(random_model(name, tmp_path / "model"))
    files = {path.name for path in (tmp_path / "model").glob("*tokenizer.json")}
    assert files == ({"source.tokenizer.json", "target.tokenizer.json"} if name == "marian" else {"tokenizer.json"})
    loaded = contents.source_tokenizer, contents.target_tokenizer
    assert (loaded[0] is loaded[1]) == (name == "t5")
    for one, other in zip(loaded, PAIRS[name](), strict=True):
        assert isinstance(one, ImportedTokenizer) and one.to_json() == other.to_json()
        assert [one.encode(line) for line in CORPUS] == [other.encode(line) for line in CORPUS]
        assert one.target_prefix == other.target_prefix


@pytest.mark.parametrize("name", PAIRS)
def test_text_goes_in_and_comes_out(name: str) -> None:
    translator = copier(name)
    assert translator.translate([WORDS, "", "  ", "The dog sleeps."]) == [WORDS, "", "", "The dog sleeps."]
    assert "".join(translator.stream(WORDS)) == WORDS
    assert translator.counts.unknown == 0


def test_translations_begin_with_their_language() -> None:
    translator = copier("m2m")
    seen = requests_of(translator)
    translator.translate([f"{WORDS}. The fox jumps."], constraints=Constraints(prefixes=["the quick"]))
    german, english = m2m().tags["__de__"], m2m().tags["__en__"]
    (first, second) = seen
    assert first.source[0] == second.source[0] == english
    assert [*first.prefix] == [german, *translator.target.encode("the quick")] and [*second.prefix] == [german]
    assert translator("the fox") == "the fox"


def test_a_language_that_is_typed_holds_for_every_sentence_and_part() -> None:
    translator = copier("marian", limit=9)
    seen = requests_of(translator)
    tag = marian().tags[">>fra<<"]
    found = translator(">>fra<< The dog sleeps. The fox jumps over the lazy dog.")
    assert len(seen) > 3 and all(request.source[0] == tag and len(request.source) < 9 for request in seen)
    assert found == "The dog sleeps. The fox jumps over the lazy dog."
    seen.clear()
    translator("The >>fra<< dog sleeps.")
    assert all(tag not in request.source for request in seen)


@pytest.mark.parametrize("name", PAIRS)
def test_given_translations_are_scored_and_aligned(name: str) -> None:
    translator = copier(name)
    (links,) = translator.align([("the quick dog", "the quick dog")])
    assert links is not None and {(0, 0), (1, 1), (2, 2)} <= set(links)
    (found,) = translator.score([("the quick dog", "the quick dog")])
    lead = translator.languages.prefix().target
    tokens = [*lead, *translator.target.encode("the quick dog"), translator.target.end]
    assert found is not None and len(found.token_scores) == len(tokens)
    assert found.token_scores[len(lead)] == pytest.approx(0, abs=1e-4)


def test_scores_stand_beside_their_pieces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    random_model("m2m", tmp_path / "model")
    (tmp_path / "a.txt").write_text("the fox\n")
    options = ["--source", str(tmp_path / "a.txt"), "--target", str(tmp_path / "a.txt"), "--format", "json"]
    assert run(["score", str(tmp_path / "model"), *options]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["pieces"][0] == "__de__" and row["pieces"][-1] == "</s>"
    assert len(row["pieces"]) == len(row["scores"])


def test_attention_shows_languages_too(tmp_path: Path) -> None:
    translator = transduce.load(random_model("m2m", tmp_path / "model"))
    maps = translator.attention("the fox", max_length=5)
    assert maps.source_pieces[0] == "__en__" and maps.target_pieces[1] == "__de__"


@pytest.mark.skipif(not is_installed(), reason="CTranslate2 is not installed; the extra 'fast' brings it")
@pytest.mark.parametrize("name", ["marian", "t5"])
def test_ctranslate2_translates_the_same(name: str, tmp_path: Path) -> None:
    translator = transduce.load(random_model(name, tmp_path / "model"))
    lines = CORPUS[:5]
    ours = translator.translate(lines, n_best=2, max_length=9, split=False)
    translator.use("ctranslate2")
    theirs = translator.translate(lines, n_best=2, max_length=9, split=False)
    assert [[one.text for one in several] for several in theirs] == [[one.text for one in several] for several in ours]
