"""Tables of bad input: the result is always one clear message and an exit code, and every file is as it was.

A row is a command line, the exit code, the words of the message that carry the fact, and what is wrong with the files.
What needs signals, pipes, a full disk or a second process is in `test_interruption.py`.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest
import torch

from tests.unit.cli.bad_corpora import CORPORA, NEW, TRAIN
from tests.unit.cli.bad_files import (
    Case,
    config,
    content,
    cut,
    file,
    flip,
    folder,
    listed,
    manifest,
    replaced,
    user_folder,
    weights,
)
from tests.unit.cli.example import complaint, snapshot
from transduce.cli.main import run
from transduce.storage.atomic import read_json
from transduce.storage.manifest import save_manifest

TRANSLATE = "translate model a.txt"
EVALUATE = "evaluate run --source a.txt --target b.txt"
WEIGHTS = "model/model.safetensors"

SETTINGS = {
    "0 heads": Case(f"{TRAIN} --set model.num_heads=0", 2, "num_heads = 0"),
    "true heads": Case(f"{TRAIN} --set model.num_heads=true", 2, "num_heads = True"),
    "a number in quotes": Case(f"{TRAIN} --set model.num_heads='2'", 2, "num_heads = '2'"),
    "negative dropout": Case(f"{TRAIN} --set model.dropout=-0.1", 2, "dropout = -0.1"),
    "dropout of everything": Case(f"{TRAIN} --set model.dropout=1.0", 2, "dropout = 1.0"),
    "a million layers": Case(f"{TRAIN} --set model.num_layers=1000000", 2, "num_layers = 1000000"),
    "a billion wide": Case(f"{TRAIN} --set model.model_dim=1000000000", 2, "model_dim = 1000000000"),
    "more than this machine holds": Case(
        f"{TRAIN} --set model.model_dim=65536 --set model.ffn_dim=65536 --set model.num_layers=9", 2, "GiB to train"
    ),
    "not a number": Case(f"{TRAIN} --set model.dropout=nan", 2, "dropout = nan"),
    "infinite": Case(f"{TRAIN} --set training.learning_rate=inf", 2, "learning_rate = inf"),
    "thousands of digits": Case(f"{TRAIN} --set training.updates={'9' * 5000}", 2, "updates = '999"),
    "two lengths of a run": Case(f"{TRAIN} --updates 3 --epochs 1", 2, "--updates and --epochs exclude each other"),
    "a date for a number": Case(f"{TRAIN} --set training.updates=1979-05-27", 2, "updates = datetime.date"),
    "half a list": Case(f"{TRAIN} --set training.betas=[0.9]", 2, "betas"),
    "misspelled key": Case(f"{TRAIN} --set model.num_head=2", 2, "did you mean 'num_heads'?"),
    "misspelled table": Case(f"{TRAIN} --set modle.num_heads=2", 2, "did you mean 'model'?"),
    "misspelled model": Case(f"{TRAIN} --set model.name=transfomer", 2, "did you mean 'transformer'?"),
    "misspelled preset": Case(f"{TRAIN} --set model.preset=smal", 2, "did you mean 'small'?"),
    "misspelled choice": Case(f"{TRAIN} --set model.norm=per", 2, "'pre'"),
    "no assignment": Case(f"{TRAIN} --set nonsense", 2, "table.setting=value"),
    "a value for a table": Case(f"{TRAIN} --set model=3", 2, "'model' must be a table"),
    "a value for pairs": Case(f"{TRAIN} --set data.train=3", 2, "train = 3"),
    "a setting below a value": Case(f"{TRAIN} --set training.updates.x=3", 2, "'updates'"),
    "5,000 brackets in --set": Case(f"{TRAIN} --set model.num_heads={'[' * 5000}", 2, "num_heads = '[[["),
    "5,000 brackets in a recipe": Case(
        f"train --recipe x.toml {NEW}", 2, "TOML", file("x.toml", f"a = {'[' * 5000}{']' * 5000}")
    ),
    "5,000 digits in a recipe": Case(f"train --recipe x.toml {NEW}", 2, "TOML", file("x.toml", f"a = {'9' * 5000}")),
    "a recipe that is none": Case(f"train --recipe a.txt {NEW}", 2, "TOML"),
    "a recipe that is a folder": Case(f"train --recipe run {NEW}", 66, "run: "),
    "a recipe without data": Case(f"train --recipe x.toml {NEW}", 2, "[data]", file("x.toml", "[model]\n")),
    "a key that would move the cursor": Case(
        f"train --recipe x.toml {NEW}",
        2,
        r"'a\nb\x1b[2J'",
        file("x.toml", '[data]\n"a\\nb\\u001b[2J" = 1\n[model]\n'),
    ),
    "a setting of 100,000 characters": Case(f"{TRAIN} --set model.norm={'x' * 100_000}", 2, "norm = 'xxx"),
    "a name of 100,000 characters": Case(f"{TRAIN} --set model.{'x' * 100_000}=1", 2, "'xxx"),
    "a device that is not there": Case(f"{TRAIN} --set training.device=mps", 2, "training.device mps"),
    "one matrix for two vocabularies": Case(f"{TRAIN} --set tokenizer.joint=false", 2, "tied_embeddings"),
    "vectors that are not there": Case(f"{TRAIN} --set training.source_vectors=none", 66, "none: "),
    "vectors of another width": Case(
        f"{TRAIN} --set training.source_vectors=x", 65, "x:1: ", file("x", "a 1 2\nb 3 4\n")
    ),
    "no pairs": Case(f"train {NEW}", 2, "--source"),
    "no output": Case("train --recipe recipe.toml", 2, "--output"),
    "no name for the output": Case("train --recipe recipe.toml --output @", 2, "--output"),
    "an unknown option": Case("train --frobnicate", 2, "--frobnicate"),
    "an unknown command": Case("tran", 2, "did you mean 'train'?"),
    "an argument with a NUL": Case("translate mo\0del", 2, r"'mo\x00del'"),
    "an argument that is no UTF-8": Case("inspect run \udcff", 2, r"'\udcff'"),
}

MODELS = {
    "none: ": Case("translate none a.txt", 66, "none: "),
    "a file": Case("translate a.txt a.txt", 66, "a.txt: "),
    "a path of 5,000 characters": Case(f"translate {'x' * 5000} a.txt", 66, "File name too long"),
    "an empty folder": Case("translate new a.txt", 65, "model folder", folder("new")),
    "a run without a model": Case(
        "translate run a.txt", 65, "transduce train --resume run", lambda place: shutil.rmtree(place / "run/model")
    ),
    "a prepared corpus": Case("translate run/data a.txt", 65, "model folder"),
    "a missing file": Case(TRANSLATE, 65, "missing", lambda p: (p / WEIGHTS).unlink()),
    "a missing manifest": Case(TRANSLATE, 65, "manifest.json", lambda p: (p / "model/manifest.json").unlink()),
    "a truncated file": Case(TRANSLATE, 65, "bytes", cut(WEIGHTS, 9)),
    "a flipped bit in the weights": Case(TRANSLATE, 65, f"{WEIGHTS}: ", flip(WEIGHTS)),
    "a flipped bit in the tokenizer": Case(TRANSLATE, 65, "tokenizer.json: ", flip("model/tokenizer.json")),
    "a renamed file": Case(
        TRANSLATE,
        65,
        "tokenizer.json: ",
        lambda p: (p / "model/tokenizer.json").rename(p / "model/source.tokenizer.json"),
    ),
    "a symbolic link": Case(
        TRANSLATE,
        65,
        "config.json: ",
        replaced("config.json", lambda p: p.symlink_to("../moved")),
    ),
    "a pipe among the files": Case(TRANSLATE, 65, "README.md: ", replaced("README.md", os.mkfifo)),
    "a pipe as the config": Case(TRANSLATE, 65, "config.json: ", replaced("config.json", os.mkfifo)),
    "a pipe as the manifest": Case(TRANSLATE, 65, "manifest.json", replaced("manifest.json", os.mkfifo)),
    "a folder among the files": Case(TRANSLATE, 65, "README.md: ", replaced("README.md", Path.mkdir)),
    "a manifest of another kind": Case(TRANSLATE, 65, "transduce model", manifest('{"kind": "x", "files": {}}')),
    "a manifest that vouches for nothing": Case(TRANSLATE, 65, "config.json", listed({})),
    "a manifest of files elsewhere": Case(
        TRANSLATE,
        65,
        "not a file of the folder",
        listed({"../a.txt": {"size": 10, "sha256": "0"}}),
    ),
    "a manifest without end": Case(TRANSLATE, 65, "JSON", manifest("[" * 100_000)),
    "a newer format": Case(TRANSLATE, 65, "format 99", config(format=99)),
    "an unknown model": Case(TRANSLATE, 65, "'oracle'", config(model="oracle")),
    "a model 1,000,000,000 wide": Case(TRANSLATE, 65, "1000000000", config(settings={"model_dim": 10**9})),
    "a model of a million layers": Case(TRANSLATE, 65, "1000000", config(settings={"num_layers": 10**6})),
    "a model wider than its weights": Case(TRANSLATE, 65, "shape (", config(settings={"model_dim": 65536})),
    "a model deeper than its weights": Case(TRANSLATE, 65, "num_layers = 70", config(settings={"num_layers": 70})),
    "a setting of a later version": Case(TRANSLATE, 65, "'gate'", config(settings={"gate": 1})),
    "settings that are a list": Case(TRANSLATE, 65, "table", config(settings=[1, 2])),
    "a vocabulary of 10^12": Case(TRANSLATE, 65, "1,000,000,000,0", config(vocabulary={"source": 10**12, "target": 1})),
    "an infinite vocabulary": Case(
        TRANSLATE, 65, "vocabulary", config(vocabulary={"source": float("inf"), "target": 1})
    ),
    "a vocabulary of another size": Case(TRANSLATE, 65, "99", config(vocabulary={"source": 99, "target": 99})),
    "nonsense to search with": Case(TRANSLATE, 65, "beam_size = 0", config(notes={"search": {"beam_size": 0}})),
    "a word to search with": Case(TRANSLATE, 65, "table", config(notes={"search": "wide"})),
    "an empty config": Case(TRANSLATE, 65, "config.json: ", content("config.json", "")),
    "a config without end": Case(TRANSLATE, 65, "config.json: ", content("config.json", "[" * 100_000)),
    "a tokenizer that is none": Case(TRANSLATE, 65, "tokenizer", content("tokenizer.json", "{}")),
    "weights that are none": Case(TRANSLATE, 65, "safetensors", content("model.safetensors", b"\xff" * 99)),
    "weights with a header of exabytes": Case(
        TRANSLATE, 65, "safetensors", content("model.safetensors", struct.pack("<Q", 2**62) + b"{}")
    ),
    "weights that are not numbers": Case(
        TRANSLATE, 65, "finite", weights(lambda w: {n: t * torch.nan for n, t in w.items()})
    ),
    "weights that overflow": Case(TRANSLATE, 1, "finite", weights(lambda w: {n: t * 1e30 for n, t in w.items()})),
    "weights that are whole numbers": Case(TRANSLATE, 65, "I32", weights(lambda w: {n: t.int() for n, t in w.items()})),
    "a weight too few": Case(TRANSLATE, 65, "missing", weights(lambda w: dict(list(w.items())[1:]))),
    "a weight too many": Case(TRANSLATE, 65, "'x'", weights(lambda w: {**w, "x": torch.zeros(3)})),
}

OPTIONS = {
    "a column of 5,000 digits": Case(
        f"translate model x.tsv --field {'1' * 5000}", 2, "from 1", file("x.tsv", "a\tb\n")
    ),
    "no line to translate": Case("translate run none.txt --output new/deep/out.txt", 66, "none.txt: "),
    "bad UTF-8 on the way": Case("translate run x --output out", 65, "x:3: ", file("x", b"a b\n\nc \xff d\ne\n")),
    "a NUL on the way": Case("translate run x --output out", 65, "NUL", file("x", b"a b\nc \0 d\n")),
    "an output that is a folder": Case("translate run a.txt --output run", 73, "run: "),
    "an output below a file": Case("translate run a.txt --output a.txt/out", 73, "a.txt/out: "),
    "beam of none": Case("translate run a.txt --beam-size 0", 2, "beam_size = 0"),
    "beam of a thousand": Case("translate run a.txt --beam-size 1000", 2, "beam_size = 1000"),
    "no answer at all": Case("translate run a.txt --mbr 3 --n-best 0", 2, "--n-best 0"),
    "more answers than openings": Case("translate run a.txt --beam-size 2 --n-best 3", 2, "beam_size of at least 3"),
    "a length penalty of nan": Case("translate run a.txt --length-penalty nan", 2, "length_penalty = nan"),
    "an unknown length penalty": Case("translate run a.txt --length-normalization x", 2, "'power'"),
    "a negative maximum": Case("translate run a.txt --max-length -1", 2, "max_length = -1"),
    "evaluate unequal files": Case("evaluate run --source a.txt --target x", 65, "2 lines", file("x", "one\n")),
    "evaluate with a second reference too short": Case(f"{EVALUATE} --target x", 65, "x: ", file("x", "one\n")),
    "evaluate by an unknown metric": Case(f"{EVALUATE} --metric blue", 2, "did you mean 'bleu'?"),
    "evaluate with an unknown tokenizer": Case(f"{EVALUATE} --tokenize 13b", 2, "did you mean '13a'?"),
    "evaluate a run that is not there": Case("evaluate none --source a.txt --target b.txt", 66, "none: "),
    "evaluate against a run that is not there": Case(f"{EVALUATE} --against none", 66, "none: "),
    "evaluate on nothing": Case("evaluate run --source e --target /dev/null", 65, "e: ", file("e", "")),
    "evaluate on one side": Case("evaluate run --source a.txt", 2, "--target"),
    "evaluate without samples": Case(f"{EVALUATE} --samples 0", 2, "'--samples'"),
    "evaluate against empty references": Case(
        "evaluate run --source a.txt --target x --metric phoneme_error_rate",
        65,
        "empty",
        file("x", "\n\n"),
    ),
    "evaluate what no model can read": Case(
        "evaluate run --source x --target ./x",
        65,
        "too long",
        file("x", "a " * 9000 + "\n"),
    ),
    "evaluate into a file below a file": Case(f"{EVALUATE} --output a.txt/x", 73, "a.txt/x: "),
    "inspect nothing": Case("inspect run @", 2, "empty"),
    "inspect a head that is not there": Case("inspect run a --layer 1 --head 3", 2, "head 3"),
    "inspect a layer that is not there": Case("inspect run a --layer 0", 2, "layer 0"),
    "inspect a head of no layer": Case("inspect run a --head 1", 2, "layer"),
    "inspect attention of no kind": Case("inspect run a --kind sideways", 2, "'sideways'"),
    "inspect no likely token": Case("inspect run a --top 0", 2, "1"),
    "inspect into a folder that is not there": Case("inspect run a --output none/x", 73, "none/x.html: "),
    "no positions": Case("positions --length 0", 2, "length = 0"),
    "a billion positions": Case("positions --length 1000000000", 2, "4096"),
    "positions as another picture": Case("positions --output x.jpg", 2, ".png"),
    "cost of nothing": Case("cost --vocab-size 7", 2, "either --preset or --recipe"),
    "cost of an unknown preset": Case("cost --preset paper_bass --vocab-size 7", 2, "did you mean 'paper_base'?"),
    "cost of brackets": Case(f"cost --preset tiny --vocab-size 7 --set model.norm={'[' * 5000}", 2, "norm = '[[["),
    "cost of no vocabulary": Case("cost --preset tiny --vocab-size 0", 2, "'--vocab-size'"),
}

OUTPUTS = {
    "a run's folder that holds other files": Case(
        "train --recipe recipe.toml --output taken",
        73,
        "taken: ",
        user_folder("taken"),
    ),
    "a run's folder that holds a run": Case("train --recipe recipe.toml --output run", 73, "run: "),
    "a run's folder that is a file": Case("train --recipe recipe.toml --output a.txt", 73, "a.txt: "),
    "a run's folder below a file": Case("train --recipe recipe.toml --output a.txt/x/y", 73, "a.txt/x/y: "),
    "a corpus folder that holds other files": Case(
        "prepare --recipe recipe.toml --output taken",
        73,
        "taken: ",
        user_folder("taken"),
    ),
    "a corpus folder that is a run": Case("prepare --recipe recipe.toml --output run", 73, "run: "),
    "a corpus folder below a file": Case("prepare --recipe recipe.toml --output a.txt/x", 73, "a.txt/x: "),
    "a demo where a run is": Case("demo --output run", 73, ": "),
    "a demo where a lock is": Case(
        "demo --output taken",
        73,
        ": ",
        lambda place: (folder("taken")(place), file("taken/.lock", "")(place)),
    ),
    "a demo where a file is": Case("demo --output a.txt", 73, ": "),
}

RUNS = {
    "resume nothing": Case("train --resume none", 66, "none: "),
    "resume with a recipe": Case("train --resume run --recipe recipe.toml", 2, "--resume"),
    "resume and finish": Case("train --resume run --finish run", 2, "--resume"),
    "finish with a recipe": Case("train --finish run --recipe recipe.toml", 2, "--finish"),
    "finish what has not begun": Case("train --finish none", 66, "none: "),
    "resume with a corpus": Case("train --resume run --prepared run/data", 2, "--resume"),
    "resume a recipe that was changed": Case(
        "train --resume run",
        65,
        "training.learning_rate",
        lambda place: (place / "run/recipe.toml").write_text(
            (place / "run/recipe.toml").read_text().replace("learning_rate = 0.01", "learning_rate = 0.02")
        ),
    ),
    "resume a recipe that is damaged": Case("train --resume run", 2, "TOML", cut("run/recipe.toml", 5)),
    "resume a corpus that was changed": Case(
        "train --resume run",
        65,
        "data",
        lambda place: (
            run(["prepare", "--recipe", "recipe.toml", "--set", "data.train.seed=3", "--output", "other"]),
            shutil.rmtree(place / "run/data"),
            (place / "other").rename(place / "run/data"),
        ),
    ),
    "resume a corpus that is damaged": Case(
        "train --resume run", 65, "run/data", flip("run/data/train/source.tokens.bin")
    ),
    "resume when no checkpoint is whole": Case(
        "train --resume run",
        65,
        "checkpoint",
        lambda place: [flip(str(path))(place) for path in (place / "run").glob("checkpoints/*/model.safetensors")],
    ),
    "resume with a journal cut short": Case("train --resume run", 65, "checkpoint", cut("run/journal.jsonl", 900)),
    "a corpus prepared in another way": Case(
        f"train --recipe recipe.toml --prepared other {NEW}",
        2,
        "settings",
        lambda place: run(["prepare", "--recipe", "recipe.toml", "--set", "data.train.size=299", "--output", "other"]),
    ),
    "a number of 5,000 digits as a batch": Case(f"{TRAIN} --batch-tokens {'9' * 5000}", 2, "auto"),
    "a setting in 5,000 tables": Case(f"{TRAIN} --set {'a.' * 5000}b=1", 2, "table.setting=value"),
    "a run and two to compare it with": Case("report run run --against run", 2, "--against"),
    "a prepared corpus that is not there": Case(f"train --prepared none {NEW}", 66, "none: "),
    "a prepared corpus of a newer format": Case(
        f"train --prepared run/data {NEW}",
        65,
        "99",
        lambda place: save_manifest(place / "run/data", read_json(place / "run/data/manifest.json") | {"format": 99}),
    ),
}

TABLES = {
    "corpora": CORPORA,
    "settings": SETTINGS,
    "models": MODELS,
    "options": OPTIONS,
    "outputs": OUTPUTS,
    "runs": RUNS,
}


@pytest.mark.parametrize("table", TABLES)
def test_bad_input_is_one_clear_message_and_leaves_nothing(
    table: str, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    faults = {}
    for number, (name, case) in enumerate(TABLES[table].items()):
        here = place.with_name(f"{place.name}-{number}")
        shutil.copytree(place, here)
        monkeypatch.chdir(here)
        shutil.copytree(here / "run/model", here / "model")
        case.damage(here)
        capsys.readouterr()
        before = snapshot(here)
        code = run([word.replace("@", "") for word in case.arguments.split(" ")])
        shown = capsys.readouterr()
        message = complaint(shown)
        if code != case.code or case.says not in message or len(message) >= 2100:
            faults[name] = (code, message[:500])
        assert snapshot(here) == before, name
        shutil.rmtree(here)
    assert faults == {}
