"""Imported models of several languages, asked for one of them, beside `transformers`; and one that learns on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import processors
from torch import Tensor

import transduce
from tests.parity.test_import_export import SIDES, TEXTS, model_of, said_by_transformers
from tests.unit.interop.huggingface import folders
from transduce.cli.main import run
from transduce.errors import SettingsError
from transduce.inference.translator import Translator
from transduce.interop.import_model import import_model
from transduce.recipe import read_recipe
from transduce.run import train
from transduce.storage.journal import read_journal


def test_m2m100_translates_between_the_languages_that_are_requested(tmp_path: Path) -> None:
    folder = folders.m2m100(tmp_path / "theirs")
    theirs = model_of(folder, **SIDES, activation_function="relu")
    known = transformers.M2M100Tokenizer.from_pretrained(folder)
    import_model(folder, tmp_path / "ours", "en", "fr")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Translator)
    found = []
    for source, target in (("en", "fr"), ("en", "de"), ("de", "en")):
        if (source, target) != ("en", "fr"):  # which it was imported for
            ours.languages.select(target, source)
        known.src_lang, known.tgt_lang = source, target
        (scored,) = ours.score([("The quick brown fox", "two words")])
        assert scored is not None
        read = known("The quick brown fox", text_target="two words", return_tensors="pt")
        wanted = read.pop("labels")
        assert wanted[0, 0] == known.get_lang_id(target) and read.input_ids[0, 0] == known.get_lang_id(source)
        with torch.no_grad():
            score_TV = theirs(**read, labels=wanted).logits[0].log_softmax(dim=-1)
        expected = score_TV.gather(1, wanted[0][:, None])[:, 0].tolist()
        assert scored.token_scores == pytest.approx(expected, abs=1e-4)
        found.append(scored.log_probability)
        options = {"forced_bos_token_id": known.get_lang_id(target)}
        message = [said_by_transformers(theirs, known, text, **options) for text in TEXTS]
        # the forced token counts as one of twelve there, and is a prefix here
        assert ours.translate(TEXTS, method="greedy", max_length=11, split=False) == message
    assert len({round(score, 3) for score in found}) == 3, "languages that change nothing prove nothing"
    with pytest.raises(SettingsError, match="does not translate into 'klingon'; available: af, am"):
        ours.translate(TEXTS, target_language="klingon")


def test_nllb_begins_with_the_language_that_is_requested(tmp_path: Path) -> None:
    """`--target-language` is their `generate(forced_bos_token_id=…)`, `--source-language` their `src_lang`."""
    folder = folders.nllb(tmp_path / "theirs")
    theirs = model_of(folder, **SIDES, activation_function="relu")
    import_model(folder, tmp_path / "ours", "eng_Latn", "deu_Latn")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Translator)
    found = []
    for source, target in (("eng_Latn", "deu_Latn"), ("eng_Latn", "fra_Latn"), ("deu_Latn", "eng_Latn")):
        known = nllb_tokenizer(folder, source)
        first = known.convert_tokens_to_ids(target)
        message = [said_by_transformers(theirs, known, text, forced_bos_token_id=first) for text in TEXTS]
        assert (
            ours.translate(
                TEXTS, method="greedy", max_length=11, split=False, target_language=target, source_language=source
            )
            == message
        )
        ours.languages.select(target, source)
        (scored,) = ours.score([(TEXTS[0], "two words")])
        assert scored is not None
        wanted = [first, *known("two words", add_special_tokens=False).input_ids, known.eos_token_id]
        expected = their_scores(theirs, known(TEXTS[0], return_tensors="pt").input_ids, wanted)
        assert scored.token_scores == pytest.approx(expected, abs=1e-4)
        found.append(scored.log_probability)
    assert len({round(score, 3) for score in found}) == 3, "languages that change nothing prove nothing"


def their_scores(model: Any, source: Tensor, target: list[int]) -> list[float]:
    """The log-probability of every token of a target, their model being told those before it."""
    wanted = torch.tensor([target])
    with torch.no_grad():
        score_TV = model(input_ids=source, labels=wanted).logits[0].log_softmax(dim=-1)
    return [float(score) for score in score_TV.gather(1, wanted[0][:, None])[:, 0]]


def nllb_tokenizer(folder: Path, language: str) -> transformers.PreTrainedTokenizerFast:
    """Their tokenizer, with another language before the text."""
    found = transformers.PreTrainedTokenizerFast.from_pretrained(folder)
    library = found.backend_tokenizer
    frame = [(piece, library.token_to_id(piece)) for piece in (language, "</s>")]
    library.post_processor = processors.TemplateProcessing(single=f"{language} $A </s>", special_tokens=frame)
    assert found(TEXTS[0]).input_ids[0] == library.token_to_id(language)
    return found


def test_marian_reads_the_tag_of_the_language_that_is_requested(tmp_path: Path) -> None:
    """`--target-language deu` puts `>>deu<<` before the source, as `transformers` reads it there."""
    folder = folders.marian(tmp_path / "theirs")
    theirs = model_of(folder, **SIDES, activation_function="swish")
    known = transformers.MarianTokenizer.from_pretrained(folder)
    import_model(folder, tmp_path / "ours")
    ours = transduce.load(tmp_path / "ours")
    assert isinstance(ours, Translator)
    found = []
    for target in ("deu", "fra"):
        tagged = [f">>{target}<< {text}" for text in TEXTS]
        assert known(tagged[0]).input_ids[0] == known.convert_tokens_to_ids(f">>{target}<<")
        message = [said_by_transformers(theirs, known, text, min_new_tokens=9) for text in tagged]
        assert (
            ours.translate(TEXTS, method="greedy", min_length=9, max_length=12, split=False, target_language=target)
            == message
        )
        assert ours.translate(tagged, method="greedy", min_length=9, max_length=12, split=False) == message
        ours.languages.select(target, None)
        (scored,) = ours.score([(TEXTS[0], "two words")])
        assert scored is not None
        wanted = known(text_target="two words").input_ids
        expected = their_scores(theirs, known(tagged[0], return_tensors="pt").input_ids, wanted)
        assert scored.token_scores == pytest.approx(expected, abs=1e-4)
        found.append(scored.log_probability)
    assert abs(found[0] - found[1]) > 1e-3, "tags that change nothing prove nothing"


def test_a_shortlist_serves_the_model_that_it_was_made_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = folders.m2m100(tmp_path / "theirs")
    model_of(folder, **SIDES, activation_function="relu")
    import_model(folder, tmp_path / "ours", "en", "fr")
    monkeypatch.chdir(tmp_path)
    Path("a.en").write_text("The quick brown fox\n" * 3)
    Path("a.fr").write_text("two words\n" * 3)
    assert run(["shortlist", "ours", "--source", "a.en", "--target", "a.fr", "--output", "short.safetensors"]) == 0
    assert run(["translate", "ours", "a.en", "--shortlist", "short.safetensors", "--output", "said.fr"]) == 0
    assert len(Path("said.fr").read_text().splitlines()) == 3


def test_m2m100_learns_on_with_its_own_tags(tmp_path: Path) -> None:
    folder = folders.m2m100(tmp_path / "theirs")
    model_of(folder, **SIDES, activation_function="relu")
    import_model(folder, tmp_path / "ours")
    (tmp_path / "new.tsv").write_text("".join(f"the fox {n % 7}\tquick {n % 7}\n" for n in range(40)))
    (tmp_path / "new.toml").write_text(
        f"""
[data]
train = {{path = "{tmp_path}/new.tsv", source_language = "en", target_language = "de"}}
validation = {{path = "{tmp_path}/new.tsv", source_language = "en", target_language = "de"}}
leakage = "keep"
[training]
initial_checkpoint = "{tmp_path}/ours"
threads = 1
batch_tokens = 101
updates = 3
validate_every = 3
"""
    )
    train(read_recipe(tmp_path / "new.toml")[0], tmp_path / "later")
    events = [event for event in read_journal(tmp_path / "later/journal.jsonl") if event["event"] == "validation"]
    assert events[-1]["loss"] < events[0]["loss"]
    ours = transduce.load(tmp_path / "later")
    assert isinstance(ours, Translator) and ours.languages.tags is not None
    assert ours.languages.tags.place == "target" and ours.languages.tags.lengths == (1, 1)
    assert ours.translate(["the fox 3"], target_language="de", source_language="en") != [""]
