"""CTranslate2's vocabulary map against our own search over candidates, on the same weights."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.parity.test_ctranslate2 import BASE, CONFIGS, compare, folder, requests
from tests.unit.copy_translator import tokenizer
from transduce.errors import SettingsError
from transduce.inference.ctranslate2.engine import CTranslate2Engine, Parallelism, request_rejection
from transduce.inference.ctranslate2.export import export, write_map
from transduce.inference.engine import SelectedEngine
from transduce.inference.search.options import Request, SearchOptions
from transduce.inference.torch_engine import TorchEngine
from transduce.model_folder import ModelFolder
from transduce.text.shortlist import Shortlist

ctranslate2 = pytest.importorskip("ctranslate2", reason="CTranslate2 is not installed; pip install 'transduce[fast]'")


def shortlist(seed: int = 1, each: int = 11) -> Shortlist:
    """Some tokens at random for each source token, and a few for all."""
    known, draw = tokenizer("bpe"), np.random.default_rng(seed)
    tokens = np.sort(draw.integers(0, known.size, (known.size, each)), axis=1).ravel()
    always = np.union1d(draw.integers(0, known.size, 5), np.array(known.specials))
    return Shortlist(tokens, np.arange(known.size + 1) * each, always)


def engines(contents: ModelFolder, listed: Shortlist) -> tuple[TorchEngine, CTranslate2Engine]:
    known = contents.source_tokenizer
    fast = CTranslate2Engine(contents, shortlist=listed, parallelism=Parallelism(workers=1))
    return TorchEngine(contents.model, known.specials, known.specials), fast


class Listed:
    """Our own search over the candidates of each request."""

    def __init__(self, engine: TorchEngine, listed: Shortlist) -> None:
        self.engine, self.shortlist = engine, listed

    def translate(self, asked: list[Request]) -> object:
        return self.engine.translate([replace(one, shortlist=self.shortlist.of(one.source)) for one in asked])


@pytest.mark.parametrize("name", ["the paper's", "with biases"])
@pytest.mark.parametrize(
    "given", [{}, {"min_length": 5}, {"no_repeat_ngram_size": 2}, {"repetition_penalty": 1.2}, {"max_length": 9}]
)
def test_both_engines_choose_among_the_same_tokens(name: str, given: dict[str, float]) -> None:
    """One request at a time: CTranslate2 unites the lists of a batch."""
    listed = shortlist()
    slow, fast = engines(folder(CONFIGS[name]), listed)
    answered = 0
    for method in ({"method": "greedy"}, {"beam_size": 4, "length_penalty": 1.0, "n_best": 2}):
        for request in requests(max_extra=20, **method, **given):
            answered += compare(Listed(slow, listed), fast, [request])  # type: ignore[arg-type]
    assert answered >= 6


def test_nothing_outside_of_the_lists_of_a_batch_is_written() -> None:
    contents, listed = folder(BASE), shortlist(seed=2, each=3)
    slow, fast = engines(contents, listed)
    asked = requests(beam_size=4, n_best=4, max_length=12)
    union = {int(token) for request in asked for token in listed.of(request.source)}
    answers = [answer for answer in fast.translate(asked) if answer]
    assert answers
    written = {token for answer in answers for found in answer for token in found.tokens}
    freely = {token for answer in slow.translate(asked) for found in answer for token in found.tokens}
    assert written <= union
    assert not freely <= union


def test_the_map_is_written_as_ctranslate2_reads_it(tmp_path: Path) -> None:
    contents, listed = folder(BASE), shortlist()
    export(contents, tmp_path / "exported", shortlist=listed)
    pieces = contents.target_tokenizer.vocabulary
    first, *rows = (tmp_path / "exported" / "vmap.txt").read_text(encoding="utf-8").removesuffix("\n").split("\n")
    assert first == "\t" + " ".join(pieces[token] for token in listed.always)
    assert [row.split("\t")[0] for row in rows] == pieces
    assert rows[7].split("\t")[1].split(" ") == [pieces[token] for token in listed.tokens[7 * 11 : 8 * 11]]
    assert "vmap.txt" in (tmp_path / "exported" / "manifest.json").read_text()


def test_pieces_with_spaces_are_rejected(tmp_path: Path) -> None:
    characters, pieces = tokenizer("character"), tokenizer("bpe")
    for pair, side in (((characters, pieces), "source"), ((pieces, characters), "target")):
        with pytest.raises(SettingsError, match=f"the {side}'s character tokenizer has pieces with spaces"):
            write_map(shortlist(), *pair, tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_shortlist_is_used_with_either_engine() -> None:
    listed, message = shortlist(), []
    for name in ("torch", "ctranslate2"):
        engine = SelectedEngine(folder(BASE))
        engine.use(name)  # type: ignore[arg-type]
        engine.use_shortlist(listed)
        asked = requests(beam_size=4, max_extra=20, min_length=4)
        message.append([engine.translate([request])[0][0].tokens for request in asked])
        assert engine.fallback_reason is None
        for request, tokens in zip(asked, message[-1], strict=True):
            assert {*tokens} <= {*listed.of(request.source).tolist()}
        engine.use_shortlist(None)
        assert [answer[0].tokens for answer in engine.translate(asked)] != message[-1]
    assert message[0] == message[1]


def test_ctranslate2_is_not_used_with_a_shortlist_that_cannot_be_exported(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = SelectedEngine(folder(BASE))
    engine.use("ctranslate2")
    engine.use_shortlist(shortlist())
    assert engine.uses_ctranslate2(SearchOptions(method="greedy"))
    monkeypatch.setattr("transduce.inference.ctranslate2.engine.map_rejection", lambda *_: "pieces with spaces")
    engine.use_shortlist(shortlist())
    assert not engine.uses_ctranslate2(SearchOptions(method="greedy"))


def test_the_shortlist_of_a_request_is_for_torch() -> None:
    (first, *_) = requests()
    assert "from a file only" in str(request_rejection(replace(first, shortlist=[4, 5])))
