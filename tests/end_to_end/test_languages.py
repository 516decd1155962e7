"""Multilingual models, from the corpora to `translate --target-language`; the languages are called copy and reverse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

import transduce
from tests.unit.cli.example import change_config, complaint
from transduce.cli.main import run
from transduce.data.order import START
from transduce.errors import DataError, SettingsError
from transduce.inference.search.options import Request
from transduce.inference.translator import Translator
from transduce.model_folder import load_model
from transduce.recipe import read_recipe, resume_recipe
from transduce.tasks.catalog import load_prepared
from transduce.tasks.translation.config import PreparedPairs
from transduce.text.language import Languages

RECIPE = """
[data]
validation = [
    {task = "copy", size = 10, seed = 2, max_length = 6, symbols = 7, target_language = "copy"},
    {task = "reverse", size = 10, seed = 2, max_length = 6, symbols = 7, target_language = "reverse"},
]
leakage = "keep"

[[data.train]]
task = "copy"
size = 100
max_length = 6
symbols = 7
target_language = "copy"

[[data.train]]
task = "reverse"
size = 150
max_length = 6
symbols = 7
target_language = "reverse"

[tokenizer]
kind = "bpe"
vocab_size = 280

[model]
model_dim = 16
ffn_dim = 32
num_heads = 2
num_layers = 1

[training]
batch_tokens = 256
updates = 6
validate_every = 3
threads = 1
learning_rate = 0.01
schedule = "constant"
warmup = 2
decode_examples = 20
bpe_dropout = 0.5
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("languages")
    (folder / "recipe.toml").write_text(RECIPE)
    assert run(["train", "--recipe", str(folder / "recipe.toml"), "--output", str(folder / "many")]) == 0
    return folder


@pytest.fixture
def many(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A place to work in, with a model of two languages."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(made / "many", tmp_path / "many")
    (tmp_path / "in.txt").write_text("a b c\n\nd e f g\n")
    return tmp_path


def test_every_source_begins_with_the_tag_of_its_corpus(many: Path) -> None:
    prepared = load_prepared(many / "many/data")
    tags = prepared.source_tokenizer.tags
    assert (
        prepared.report.tags is not None
        and prepared.report.tags.target_tokens == tags
        and sorted(tags) == ["copy", "reverse"]
    )
    for store in (prepared.train, prepared.validation):
        assert store is not None
        for row in range(len(store)):
            source, target = store.text(row)
            named = "reverse" if target != source else "copy"
            if source.split() != source.split()[::-1]:
                assert store.source(row)[0] == tags[named]
            assert store.source(row)[1:].tolist() == prepared.source_tokenizer.encode(source)
            assert store.target(row).tolist() == prepared.target_tokenizer.encode(target)
    assert json.loads((many / "many/model/config.json").read_text())["notes"]["tags"]["target_tokens"] == tags
    assert "languages    copy, reverse" in prepared.report.lines()


def test_tags_stay_where_words_are_cut_at_random(many: Path) -> None:
    prepared = load_prepared(many / "many/data")
    recipe = resume_recipe(Path("many"))
    feed = recipe.task.batch_source(prepared, recipe.training, load_model(Path("many")).model)
    tags = set(prepared.source_tokenizer.tags.values())
    seen = 0
    for (epoch, *_), batch in feed.starting(START):
        assert {int(token) for token in batch.source[:, 0]} <= tags
        assert not {int(token) for token in batch.source[:, 1:].flatten()} & tags
        seen += len(batch.source)
        if epoch > 0:  # which is the position behind the batch
            break
    assert seen == len(prepared.train)


def test_a_target_language_is_selected(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translator = transduce.load("many")
    wanted = {to: translator.translate(["a b c", "", "d e f g"], target_language=to) for to in ("copy", "reverse")}
    for to, lines in wanted.items():
        assert run(["translate", "many", "in.txt", "--target-language", to]) == 0
        assert capsys.readouterr().out.splitlines() == lines
        tag, tokens = translator.source.tags[to], translator.source.encode("a b c")
        ((found, *_),) = translator.engine.translate([Request(0, [tag, *tokens], translator.options())])
        assert translator.target.decode(found.tokens) == lines[0]
    assert run(["translate", "many", "in.txt", "--target-language", "reverse", "--align", "--stream"]) == 2
    assert run(["translate", "many", "in.txt", "--target-language", "reverse", "--stream", "--greedy"]) == 0


def test_each_line_may_ask_for_its_own(many: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translator = transduce.load("many")
    one, other = (
        translator.translate(["a b c"], target_language="copy")[0],
        translator.translate(["d e"], target_language="reverse")[0],
    )
    (many / "in.tsv").write_text("copy\ta b c\nreverse\td e\n")
    (many / "in.jsonl").write_text('{"to": "copy", "text": "a b c"}\n{"to": "reverse", "text": "d e"}\n')
    assert run(["translate", "many", "in.tsv", "--format", "tsv", "--field", "2", "--target-language-field", "1"]) == 0
    assert capsys.readouterr().out == f"copy\t{one}\nreverse\t{other}\n"
    assert (
        run(["translate", "many", "in.jsonl", "--format", "jsonl", "--field", "text", "--target-language-field", "to"])
        == 0
    )
    assert [json.loads(line)["text"] for line in capsys.readouterr().out.splitlines()] == [one, other]
    (many / "in.tsv").write_text("copy\ta b c\nklingon\td e\n")
    assert run(["translate", "many", "in.tsv", "--format", "tsv", "--field", "2", "--target-language-field", "1"]) == 2
    assert "does not translate into 'klingon'; available: copy, reverse" in complaint(capsys.readouterr())


@pytest.mark.parametrize(
    "verb",
    [
        "translate many in.txt",
        "inspect many a",
        "score many --source in.txt --target in.txt",
        "reproduce head-roles --model many --text in.txt",
    ],
)
@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ("", "several languages: choose one (--target-language copy"),
        ("--target-language klingon", "into 'klingon'; available: copy, reverse"),
    ],
)
def test_a_missing_or_unknown_language_is_one_sentence(
    many: Path, capsys: pytest.CaptureFixture[str], verb: str, asked: str, says: str
) -> None:
    assert run([*verb.split(), *asked.split()]) == 2
    assert says in complaint(capsys.readouterr())


@pytest.mark.parametrize("verb", ["score", "align", "evaluate"])
def test_other_verbs_ask_too(many: Path, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    (many / "a.txt").write_text("a b c\nd e\n")
    scores = []
    for to in ("copy", "reverse"):
        assert run([verb, "many", "--target-language", to, "--source", "a.txt", "--target", "a.txt"]) == 0
        scores.append(capsys.readouterr().out)
    assert verb == "align" or scores[0] != scores[1]
    if verb == "align":
        assert {word.split("-")[0] for word in scores[0].splitlines()[0].split()} <= {"0", "1", "2"}


def test_heads_are_looked_at_while_it_translates_into_a_language(many: Path) -> None:
    tables = []
    for to in ("copy", "reverse"):
        assert run(["reproduce", "head-roles", "--model", "many", "--text", "in.txt", "--target-language", to]) == 0
        tables.append(json.loads(Path("reproduced/head-roles.json").read_text())["rows"])
    assert tables[0] != tables[1]


def test_a_model_of_one_language_takes_no_target_language(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["translate", "run", "a.txt", "--target-language", "de"]) == 2
    assert "cannot translate into 'de'" in complaint(capsys.readouterr())


def test_ctranslate2_is_not_taken_for_translations_that_begin_with_a_tag(
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the search stays the model's own."""
    tags = transduce.load("many").source.tags
    change_config(notes={"tags": {"place": "target", "target_tokens": tags, "source_tokens": tags}})(
        many / "many/model"
    )
    message = []
    for engine in ("torch", "ctranslate2"):
        assert (
            run(
                [
                    "translate",
                    "many",
                    "in.txt",
                    "--target-language",
                    "reverse",
                    "--source-language",
                    "copy",
                    "--engine",
                    engine,
                ]
            )
            == 0
        )
        message.append(capsys.readouterr())
    assert message[0].out == message[1].out
    assert "it searches with" not in message[1].err
    assert "PyTorch instead of CTranslate2: 2" in message[1].err


def test_a_tag_may_be_what_a_translation_begins_with(many: Path) -> None:
    """As M2M100 has it: the source's language before the source, the wanted one first of what is written."""
    tags = transduce.load("many").source.tags
    notes = {"place": "target", "target_tokens": tags, "source_tokens": {"copy": tags["copy"]}}
    change_config(notes={"tags": notes})(many / "many/model")
    translator = transduce.load("many")
    tokens = translator.source.encode("a b c")
    request = Request(0, [tags["copy"], *tokens], translator.options(), [tags["reverse"]])
    ((found, *_),) = translator.engine.translate([request])
    assert found.tokens[0] == tags["reverse"]
    assert translator.translate(["a b c"], target_language="reverse") == [translator.target.decode(found.tokens)]
    translator.languages.select("reverse")
    scored = translator.score([("a b c", "c b a")])
    assert scored[0] is not None and len(scored[0].token_scores) == 1 + len(translator.target.encode("c b a")) + 1


def test_a_run_of_several_languages_is_watched_language_by_language(
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = "path=new.tsv,target_language=sort"
    (many / "new.tsv").write_text("".join(f"{a} {b}\t{min(a, b)} {max(a, b)}\n" for a in "abcdefg" for b in "abcdefg"))
    arguments = ["train", "--init-from", "many", "--mix", corpus, "--extra-validation", "many", "--output", "next"]
    assert run([*arguments, "--set", "training.updates=2"]) == 2
    assert "many: the model does not translate into sort" in complaint(capsys.readouterr())
    assert run([*arguments, "--set", "training.updates=2", "--extend-vocabulary", "3"]) == 0
    translator = transduce.load("next")
    assert translator.languages.tags is not None and translator.languages.tags.languages == ["copy", "reverse", "sort"]
    watched, before = load_prepared(many / "next/data").extra_validation, load_prepared(many / "many/data").validation
    assert watched is not None and before is not None and len(watched) == len(before) > 10
    assert [watched.source(row).tolist() for row in range(len(watched))] == [
        before.source(row).tolist() for row in range(len(before))
    ]


def test_synthetic_pairs_are_made_in_the_language_that_is_chosen(
    many: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["a b c", "b d", "e"]
    (many / "in.txt").write_text("".join(f"{text}\n" for text in texts))
    commands = {
        "distil": ["many", "--source", "in.txt", "--target", "in.txt", "--beam-size", "1"],
        "back-translate": ["many", "in.txt", "--method", "greedy", "--tag", ""],
    }
    written = {"distil": "target.txt", "back-translate": "source.txt"}
    for language in ("copy", "reverse"):
        expected = transduce.load("many").translate(texts, target_language=language, method="greedy", split=False)
        for name, arguments in commands.items():
            folder = f"{name}-{language}"
            assert run([name, *arguments, "--target-language", language, "--output", folder]) == 0
            assert (many / folder / written[name]).read_text().splitlines() == [text for text in expected if text]
    capsys.readouterr()
    assert run(["distil", *commands["distil"], "--output", "none"]) == 2
    assert "choose one" in complaint(capsys.readouterr())


def test_all_corpora_say_their_language_or_none(many: Path) -> None:
    (many / "half.toml").write_text(RECIPE.replace(', target_language = "copy"}', "}"))
    with pytest.raises(SettingsError, match=r"copy \(seed 2\) \(validation\) has none"):
        read_recipe(Path("half.toml"))


def test_a_language_that_a_prepared_corpus_lacks_is_rejected(many: Path) -> None:
    corpus = PreparedPairs(prepared="many", target_language="reverse")
    assert len(list(corpus.pairs())) == 10
    with pytest.raises(DataError, match="has no pairs into 'klingon'"):
        list(corpus.but(target_language="klingon").pairs())


def test_a_language_is_found_in_any_case(many: Path) -> None:
    translator = transduce.load("many")
    assert isinstance(translator, Translator)
    texts = ["a b c", "b d"]
    assert translator.translate(texts, target_language="Reverse") == translator.translate(
        texts, target_language="reverse"
    )
    translator.languages.select("REVERSE")
    assert translator.languages.target == "reverse"
    single = Languages({"source_language": "de", "target_language": "pt-BR"}, translator.source, translator.target)
    single.select("pt_br", "DE")
    assert (single.source, single.target) == ("de", "pt-BR")
