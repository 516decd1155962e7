"""The table of bad input: whatever a person gives, the answer is one clear sentence and an exit code, and every file
is as it was before.

A row is what to type, the exit code, a part of the sentence, and what is wrong with the world. What needs signals,
pipes, a full disk or a second process is in `test_interruption.py`.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest
import torch

from tests.unit.cli.bad_corpora import CORPORA, NEW, TRAIN
from tests.unit.cli.example import complaint, snapshot
from tests.unit.cli.worlds import Case, config, content, cut, file, flip, folder, manifest, replaced, thesis, weights
from transduce.cli.main import run
from transduce.storage.json_file import read_json
from transduce.storage.manifest import save_manifest

TRANSLATE = "translate model a.txt"
EVALUATE = "evaluate run --source a.txt --target b.txt"
WEIGHTS = "model/model.safetensors"

SETTINGS = {
    "0 heads": Case(f"{TRAIN} --set model.num_heads=0", 2, "num_heads = 0 is not possible"),
    "true heads": Case(f"{TRAIN} --set model.num_heads=true", 2, "num_heads = True is not possible"),
    "a number in quotes": Case(f"{TRAIN} --set model.num_heads='2'", 2, "num_heads = '2' is not possible"),
    "negative dropout": Case(f"{TRAIN} --set model.dropout=-0.1", 2, "dropout = -0.1 is not possible"),
    "dropout of everything": Case(f"{TRAIN} --set model.dropout=1.0", 2, "dropout = 1.0 is not possible"),
    "a million layers": Case(f"{TRAIN} --set model.num_layers=1000000", 2, "num_layers = 1000000 is not possible"),
    "a billion wide": Case(f"{TRAIN} --set model.model_dim=1000000000", 2, "model_dim = 1000000000 is not possible"),
    "more than this machine holds": Case(
        f"{TRAIN} --set model.model_dim=65536 --set model.ffn_dim=65536 --set model.num_layers=9", 2, "GiB to train"
    ),
    "not a number": Case(f"{TRAIN} --set model.dropout=nan", 2, "dropout = nan is not possible"),
    "infinite": Case(f"{TRAIN} --set training.learning_rate=inf", 2, "learning_rate = inf is not possible"),
    "thousands of digits": Case(f"{TRAIN} --set training.updates={'9' * 5000}", 2, "updates = '999"),
    "a date for a number": Case(f"{TRAIN} --set training.updates=1979-05-27", 2, "updates = datetime.date"),
    "half a list": Case(f"{TRAIN} --set training.betas=[0.9]", 2, "betas"),
    "misspelled key": Case(f"{TRAIN} --set model.num_head=2", 2, "did you mean 'num_heads'?"),
    "misspelled table": Case(f"{TRAIN} --set modle.num_heads=2", 2, "did you mean 'model'?"),
    "misspelled model": Case(f"{TRAIN} --set model.name=transfomer", 2, "did you mean 'transformer'?"),
    "misspelled preset": Case(f"{TRAIN} --set model.preset=smal", 2, "did you mean 'small'?"),
    "misspelled choice": Case(f"{TRAIN} --set model.norm=per", 2, "input should be 'post' or 'pre'"),
    "no assignment": Case(f"{TRAIN} --set nonsense", 2, "write it as table.setting=value"),
    "a value for a table": Case(f"{TRAIN} --set model=3", 2, "'model' must be a table"),
    "a value for pairs": Case(f"{TRAIN} --set data.train=3", 2, "pairs are named by a table"),
    "a setting below a value": Case(f"{TRAIN} --set training.updates.x=3", 2, "'updates' is a value, not a table"),
    "5,000 brackets in --set": Case(f"{TRAIN} --set model.num_heads={'[' * 5000}", 2, "num_heads = '[[["),
    "5,000 brackets in a recipe": Case(
        f"train --recipe x.toml {NEW}", 2, "x.toml: is not valid TOML", file("x.toml", f"a = {'[' * 5000}{']' * 5000}")
    ),
    "5,000 digits in a recipe": Case(
        f"train --recipe x.toml {NEW}", 2, "x.toml: is not valid TOML", file("x.toml", f"a = {'9' * 5000}")
    ),
    "a recipe that is none": Case(f"train --recipe a.txt {NEW}", 2, "a.txt: is not valid TOML"),
    "a recipe that is a folder": Case(f"train --recipe run {NEW}", 66, "run: cannot be read (Is a directory)"),
    "a recipe without data": Case(
        f"train --recipe x.toml {NEW}", 2, "needs a table [data]", file("x.toml", "[model]\n")
    ),
    "a key that would move the cursor": Case(
        f"train --recipe x.toml {NEW}",
        2,
        r"no setting 'a\nb\x1b[2J'",
        file("x.toml", '[data]\n"a\\nb\\u001b[2J" = 1\n[model]\n'),
    ),
    "a setting of 100,000 characters": Case(f"{TRAIN} --set model.norm={'x' * 100_000}", 2, "norm = 'xxx"),
    "a name of 100,000 characters": Case(f"{TRAIN} --set model.{'x' * 100_000}=1", 2, "unknown setting 'xxx"),
    "a device that is not there": Case(f"{TRAIN} --set training.device=mps", 2, "'mps'"),
    "one matrix for two vocabularies": Case(
        f"{TRAIN} --set tokenizer.joint=false", 2, "tied = 'all' needs one vocabulary"
    ),
    "vectors that are not there": Case(f"{TRAIN} --set training.source_vectors=none", 66, "none: cannot be read"),
    "vectors of another width": Case(
        f"{TRAIN} --set training.source_vectors=x", 65, "x:1: has 2 numbers for 'a'", file("x", "a 1 2\nb 3 4\n")
    ),
    "no pairs": Case(f"train {NEW}", 2, "name the pairs to learn from"),
    "no output": Case("train --recipe recipe.toml", 2, "say where the run goes"),
    "no name for the output": Case("train --recipe recipe.toml --output @", 2, "say where the run goes"),
    "an unknown option": Case("train --frobnicate", 2, "No such option '--frobnicate'"),
    "an unknown command": Case("tran", 2, "did you mean 'train'?"),
    "an argument with a NUL": Case("translate mo\0del", 2, r"'mo\x00del' is not UTF-8 text"),
    "an argument that is no UTF-8": Case("inspect run \udcff", 2, r"'\udcff' is not UTF-8 text"),
}

MODELS = {
    "no such folder": Case("translate none a.txt", 66, "none: there is no such folder"),
    "a file": Case("translate a.txt a.txt", 66, "a.txt: there is no such folder"),
    "a path of 5,000 characters": Case(f"translate {'x' * 5000} a.txt", 66, "File name too long"),
    "an empty folder": Case("translate new a.txt", 65, "is neither a run nor a model folder", folder("new")),
    "a run without a model": Case(
        "translate run a.txt", 65, "transduce train --resume run", lambda place: shutil.rmtree(place / "run/model")
    ),
    "a prepared corpus": Case("translate run/data a.txt", 65, "is neither a run nor a model folder"),
    "a missing file": Case(TRANSLATE, 65, "is missing or not a plain file", lambda p: (p / WEIGHTS).unlink()),
    "a missing manifest": Case(TRANSLATE, 65, "no manifest.json", lambda p: (p / "model/manifest.json").unlink()),
    "a truncated file": Case(TRANSLATE, 65, "bytes instead of", cut(WEIGHTS, 9)),
    "a flipped bit in the weights": Case(TRANSLATE, 65, f"{WEIGHTS}: is damaged", flip(WEIGHTS)),
    "a flipped bit in the tokenizer": Case(TRANSLATE, 65, "tokenizer.json: is damaged", flip("model/tokenizer.json")),
    "a renamed file": Case(
        TRANSLATE,
        65,
        "tokenizer.json: is missing",
        lambda p: (p / "model/tokenizer.json").rename(p / "model/source.tokenizer.json"),
    ),
    "a symbolic link": Case(
        TRANSLATE,
        65,
        "config.json: is missing or not a plain",
        replaced("config.json", lambda p: p.symlink_to("../aside")),
    ),
    "a pipe among the files": Case(
        TRANSLATE, 65, "README.md: is missing or not a plain", replaced("README.md", os.mkfifo)
    ),
    "a pipe as the config": Case(
        TRANSLATE, 65, "config.json: is missing or not a plain", replaced("config.json", os.mkfifo)
    ),
    "a pipe as the manifest": Case(TRANSLATE, 65, "no manifest.json", replaced("manifest.json", os.mkfifo)),
    "a folder among the files": Case(TRANSLATE, 65, "README.md: is missing", replaced("README.md", Path.mkdir)),
    "a manifest of another kind": Case(
        TRANSLATE, 65, "not to a transduce model", manifest('{"kind": "x", "files": {}}')
    ),
    "a manifest that vouches for nothing": Case(
        TRANSLATE, 65, "does not list config.json", manifest('{"kind": "transduce model", "files": {}}')
    ),
    "a manifest of files elsewhere": Case(
        TRANSLATE,
        65,
        "is missing or not a plain file",
        manifest('{"kind": "transduce model", "files": {"../a.txt": {"size": 10, "sha256": "0"}}}'),
    ),
    "a manifest without end": Case(TRANSLATE, 65, "is not valid JSON", manifest("[" * 100_000)),
    "a newer format": Case(TRANSLATE, 65, "has format 2; this version reads up to 1: upgrade", config(format=2)),
    "an unknown model": Case(TRANSLATE, 65, "unknown model 'oracle'", config(model="oracle")),
    "a model 1,000,000,000 wide": Case(
        TRANSLATE, 65, "1000000000 is not possible", config(settings={"model_dim": 10**9})
    ),
    "a model of a million layers": Case(
        TRANSLATE, 65, "1000000 is not possible", config(settings={"num_layers": 10**6})
    ),
    "a model wider than its weights": Case(TRANSLATE, 65, "has shape (16, 16)", config(settings={"model_dim": 65536})),
    "a model deeper than its weights": Case(TRANSLATE, 65, "is missing (", config(settings={"num_layers": 70})),
    "a setting of a later version": Case(TRANSLATE, 65, "unknown setting 'gate'", config(settings={"gate": 1})),
    "settings that are a list": Case(TRANSLATE, 65, "must be a table of settings", config(settings=[1, 2])),
    "a vocabulary of 10^12": Case(
        TRANSLATE, 65, "are not possible", config(vocabulary={"source": 10**12, "target": 1})
    ),
    "an infinite vocabulary": Case(
        TRANSLATE, 65, "lacks its vocabulary", config(vocabulary={"source": float("inf"), "target": 1})
    ),
    "a vocabulary of another size": Case(
        TRANSLATE, 65, "99 and 99 tokens but the tokenizers", config(vocabulary={"source": 99, "target": 99})
    ),
    "nonsense to search with": Case(
        TRANSLATE, 65, "beam = 0 is not possible", config(notes={"search": {"beam_size": 0}})
    ),
    "a word to search with": Case(TRANSLATE, 65, "must be a table", config(notes={"search": "wide"})),
    "an empty config": Case(TRANSLATE, 65, "config.json: is not valid JSON", content("config.json", "")),
    "a config without end": Case(
        TRANSLATE, 65, "config.json: is not valid JSON", content("config.json", "[" * 100_000)
    ),
    "a tokenizer that is none": Case(TRANSLATE, 65, "is not a tokenizer made by", content("tokenizer.json", "{}")),
    "weights that are none": Case(
        TRANSLATE, 65, "is not a safetensors file", content("model.safetensors", b"\xff" * 99)
    ),
    "weights with a header of exabytes": Case(
        TRANSLATE, 65, "is not a safetensors file", content("model.safetensors", struct.pack("<Q", 2**62) + b"{}")
    ),
    "weights that are not numbers": Case(
        TRANSLATE, 65, "not finite", weights(lambda w: {n: t * torch.nan for n, t in w.items()})
    ),
    "weights that overflow": Case(
        TRANSLATE, 1, "scores are not finite", weights(lambda w: {n: t * 1e30 for n, t in w.items()})
    ),
    "weights that are whole numbers": Case(
        TRANSLATE, 65, "of torch.int32", weights(lambda w: {n: t.int() for n, t in w.items()})
    ),
    "a weight too few": Case(TRANSLATE, 65, "is missing (1 in all)", weights(lambda w: dict(list(w.items())[1:]))),
    "a weight too many": Case(TRANSLATE, 65, "'x' is not part of this", weights(lambda w: {**w, "x": torch.zeros(3)})),
}

WISHES = {
    "a column of 5,000 digits": Case(
        f"translate model x.tsv --field {'1' * 5000}", 2, "is a number from 1", file("x.tsv", "a\tb\n")
    ),
    "no line to translate": Case("translate run none.txt --output new/deep/out.txt", 66, "none.txt: cannot be read"),
    "bad UTF-8 on the way": Case(
        "translate run x --output out", 65, "x:3: not UTF-8", file("x", b"a b\n\nc \xff d\ne\n")
    ),
    "a NUL on the way": Case("translate run x --output out", 65, "NUL", file("x", b"a b\nc \0 d\n")),
    "an output that is a folder": Case("translate run a.txt --output run", 73, "run: is a folder"),
    "an output below a file": Case("translate run a.txt --output a.txt/out", 73, "a.txt/out: cannot be written"),
    "beam of none": Case("translate run a.txt --beam-size 0", 2, "beam = 0 is not possible"),
    "beam of a thousand": Case("translate run a.txt --beam-size 1000", 2, "beam = 1000 is not possible"),
    "no answer at all": Case("translate run a.txt --mbr 3 --n-best 0", 2, "there is at least one answer"),
    "more answers than openings": Case(
        "translate run a.txt --beam-size 2 --n-best 3", 2, "beam_size of at least 3"
    ),
    "a length penalty of nan": Case("translate run a.txt --length-penalty nan", 2, "alpha = nan is not possible"),
    "an unknown length penalty": Case("translate run a.txt --length-penalty x", 2, "should be 'gnmt' or 'power'"),
    "a negative maximum": Case("translate run a.txt --max-length -1", 2, "max_length = -1 is not possible"),
    "evaluate unequal files": Case(
        "evaluate run --source a.txt --target x", 65, "a.txt has 2 lines but x has 1", file("x", "one\n")
    ),
    "evaluate with a second reference too short": Case(
        f"{EVALUATE} --target x", 65, "x: has 1 lines", file("x", "one\n")
    ),
    "evaluate by an unknown metric": Case(f"{EVALUATE} --metric blue", 2, "did you mean 'bleu'?"),
    "evaluate with an unknown tokenizer": Case(f"{EVALUATE} --tokenize 13b", 2, "did you mean '13a'?"),
    "evaluate a run that is not there": Case("evaluate none --source a.txt --target b.txt", 66, "no such folder"),
    "evaluate against a run that is not there": Case(f"{EVALUATE} --against none", 66, "none: there is no such folder"),
    "evaluate on nothing": Case("evaluate run --source e --target e", 65, "e: is empty", file("e", "")),
    "evaluate on one side": Case("evaluate run --source a.txt", 2, "name the test set"),
    "evaluate without samples": Case(f"{EVALUATE} --samples 0", 2, "0 is not in the range"),
    "evaluate against empty references": Case(
        "evaluate run --source a.txt --target x --metric phoneme_error_rate",
        65,
        "every reference is empty",
        file("x", "\n\n"),
    ),
    "evaluate what no model can read": Case(
        "evaluate run --source x --target x",
        65,
        "every pair of the test set is too long",
        file("x", "a " * 9000 + "\n"),
    ),
    "evaluate into a file below a file": Case(f"{EVALUATE} --output a.txt/x", 73, "a.txt/x: cannot be written"),
    "inspect nothing": Case("inspect run @", 2, "an empty text"),
    "inspect a head that is not there": Case("inspect run a --layer 1 --head 3", 2, "there is no head 3"),
    "inspect a layer that is not there": Case("inspect run a --layer 0", 2, "there is no layer 0"),
    "inspect a head of no layer": Case("inspect run a --head 1", 2, "head 1 of which layer?"),
    "inspect attention of no kind": Case("inspect run a --kind sideways", 2, "'sideways' is not one of"),
    "inspect no likely token": Case("inspect run a --top 0", 2, "ask for at least 1"),
    "inspect into a folder that is not there": Case(
        "inspect run a --output none/x", 73, "none/x.html: cannot be created"
    ),
    "no positions": Case("positions --length 0", 2, "length = 0 is not possible"),
    "a billion positions": Case("positions --length 1000000000", 2, "give a number from 1 to 4096"),
    "positions as another picture": Case("positions --output x.jpg", 2, "ends in .png"),
    "cost of nothing": Case("cost --vocab-size 7", 2, "either --preset or --recipe"),
    "cost of an unknown preset": Case("cost --preset paper_bass --vocab-size 7", 2, "did you mean 'paper_base'?"),
    "cost of brackets": Case(f"cost --preset tiny --vocab-size 7 --set model.norm={'[' * 5000}", 2, "norm = '[[["),
    "cost of no vocabulary": Case("cost --preset tiny --vocab-size 0", 2, "0 is not in the range"),
}

OUTPUTS = {
    "a run's folder that holds other files": Case(
        "train --recipe recipe.toml --output taken",
        73,
        "holds files that are not a run",
        thesis("taken"),
    ),
    "a run's folder that holds a run": Case("train --recipe recipe.toml --output run", 73, "already holds a run"),
    "a run's folder that is a file": Case("train --recipe recipe.toml --output a.txt", 73, "is not a folder"),
    "a run's folder below a file": Case("train --recipe recipe.toml --output a.txt/x/y", 73, "a.txt/x/y: cannot be"),
    "a corpus folder that holds other files": Case(
        "prepare --recipe recipe.toml --output taken",
        73,
        "holds files that are not a prepared corpus",
        thesis("taken"),
    ),
    "a corpus folder that is a run": Case("prepare --recipe recipe.toml --output run", 73, "not a prepared corpus"),
    "a corpus folder below a file": Case("prepare --recipe recipe.toml --output a.txt/x", 73, "a.txt/x: cannot be"),
    "a demo where a run is": Case("demo --output run", 73, "holds something that is not a demo"),
    "a demo where a lock is": Case(
        "demo --output taken",
        73,
        "holds something that is not a demo",
        lambda place: (folder("taken")(place), file("taken/.lock", "")(place)),
    ),
    "a demo where a file is": Case("demo --output a.txt", 73, "holds something that is not a demo"),
}

RUNS = {
    "resume nothing": Case("train --resume none", 66, "there is no run to resume"),
    "resume with a recipe": Case("train --resume run --recipe recipe.toml", 2, "give --resume alone"),
    "resume and finish": Case("train --resume run --finish run", 2, "give --resume alone"),
    "finish with a recipe": Case("train --finish run --recipe recipe.toml", 2, "give --finish alone"),
    "finish what has not begun": Case("train --finish none", 66, "none: there is no run to resume"),
    "resume with a corpus": Case("train --resume run --prepared run/data", 2, "give --resume alone"),
    "resume a recipe that was changed": Case(
        "train --resume run",
        65,
        "was saved with training.learning_rate 0.01, now it is 0.02",
        lambda place: (place / "run/recipe.toml").write_text(
            (place / "run/recipe.toml").read_text().replace("learning_rate = 0.01", "learning_rate = 0.02")
        ),
    ),
    "resume a recipe that is damaged": Case("train --resume run", 2, "not valid TOML", cut("run/recipe.toml", 5)),
    "resume a corpus that was changed": Case(
        "train --resume run",
        65,
        "was saved with data",
        lambda place: (
            run(["prepare", "--recipe", "recipe.toml", "--set", "data.train.seed=3", "--output", "other"]),
            shutil.rmtree(place / "run/data"),
            (place / "other").rename(place / "run/data"),
        ),
    ),
    "resume a corpus that is damaged": Case(
        "train --resume run", 65, "is damaged", flip("run/data/train/source.tokens.bin")
    ),
    "resume when no checkpoint is whole": Case(
        "train --resume run",
        65,
        "no checkpoint is intact",
        lambda place: [flip(str(path))(place) for path in (place / "run").glob("checkpoints/*/model.safetensors")],
    ),
    "resume with a journal cut short": Case(
        "train --resume run", 65, "shorter than its checkpoint", cut("run/journal.jsonl", 900)
    ),
    "a corpus prepared in another way": Case(
        f"train --recipe recipe.toml --prepared other {NEW}",
        2,
        "was prepared with other settings",
        lambda place: run(["prepare", "--recipe", "recipe.toml", "--set", "data.train.size=299", "--output", "other"]),
    ),
    "a number of 5,000 digits as a batch": Case(f"{TRAIN} --batch-tokens {'9' * 5000}", 2, "is a number or auto"),
    "a setting in 5,000 tables": Case(f"{TRAIN} --set {'a.' * 5000}b=1", 2, "write it as table.setting=value"),
    "a run and two to compare it with": Case(
        "report run run --against run", 2, "name the other run once: report run run"
    ),
    "a prepared corpus that is not there": Case(f"train --prepared none {NEW}", 66, "none: there is no such folder"),
    "a prepared corpus of a newer format": Case(
        f"train --prepared run/data {NEW}",
        65,
        "format 99 is newer",
        lambda place: save_manifest(place / "run/data", read_json(place / "run/data/manifest.json") | {"format": 99}),
    ),
}

TABLE = {**CORPORA, **SETTINGS, **MODELS, **WISHES, **OUTPUTS, **RUNS}


@pytest.mark.parametrize("name", TABLE)
def test_bad_input_is_answered_by_one_sentence_and_leaves_nothing(
    name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = TABLE[name]
    shutil.copytree(place / "run/model", place / "model")
    case.world(place)
    capsys.readouterr()
    before = snapshot(place)
    code = run([word.replace("@", "") for word in case.arguments.split(" ")])
    said = complaint(capsys.readouterr())
    assert (code, case.says in said) == (case.code, True), said
    assert len(said) < 2100
    assert snapshot(place) == before


def test_no_name_stands_in_two_tables() -> None:
    assert len(TABLE) == sum(map(len, (CORPORA, SETTINGS, MODELS, WISHES, OUTPUTS, RUNS)))
