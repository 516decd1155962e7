"""The whole pipeline on Multi30k, English to German, in one command: `make bench-pipeline`.

The first 10,000 pairs are the bitext, the German side of the other 19,000 is the monolingual text. Stages are reused
and resumed. The aim: a student with at most a third of the best teacher's decoding time and within 0.5 BLEU of it, on
test2016. `--updates` trains the teacher for as many updates and the other models in proportion. The last line is one
JSON object.
"""

from __future__ import annotations

import argparse
import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from measuring import require_files

from transduce.cli.main import run
from transduce.config import Table, write_toml
from transduce.storage.atomic import read_json

PAIRS = 10_000
TIME_RATIO, BLEU_DIFFERENCE = 1 / 3, 0.5


def training(updates: int, **settings: Any) -> Table:
    """Return the settings of [training] that all stages share."""
    return {"updates": updates, "batch_tokens": 2048, "validate_every": max(1, updates // 4), **settings}


def settings(folder: Path, data: Path, updates: int) -> Table:
    """Return the tables of the pipeline."""
    tuned: Table = {"schedule": "linear", "warmup": 0.1}
    return {
        "data": {
            "train": {"source": str(folder / "train.en"), "target": str(folder / "train.de")},
            "monolingual": str(folder / "mono.de"),
            "validation": {"source": str(data / "val.en.gz"), "target": str(data / "val.de.gz")},
            "test": {"source": str(data / "test_2016_flickr.en.gz"), "target": str(data / "test_2016_flickr.de.gz")},
            "source_language": "en",
            "target_language": "de",
        },
        "teacher": {"training": training(updates)},
        "reverse": {"training": training(updates)},
        "mix": {"training": training(updates // 2, learning_rate=3e-3, **tuned)},
        "finish": {"training": training(updates // 5, learning_rate=1e-3, **tuned)},
        "student": {
            "model": {"num_layers": 6, "decoder_layers": 2, "dropout": 0.1},
            "training": training(2 * updates),
        },
    }


def write_corpora(folder: Path, data: Path) -> None:
    """Write the bitext and the monolingual text."""
    names = [f"{part}.{side}.gz" for part in ("train", "val", "test_2016_flickr") for side in ("en", "de")]
    require_files(data, *names)
    folder.mkdir(parents=True, exist_ok=True)
    for side in ("en", "de"):
        with gzip.open(data / f"train.{side}.gz", "rt", encoding="utf-8", newline="\n") as file:
            lines = file.read().splitlines(keepends=True)
        (folder / f"train.{side}").write_text("".join(lines[:PAIRS]), encoding="utf-8")
        if side == "de":
            (folder / "mono.de").write_text("".join(lines[PAIRS:]), encoding="utf-8")


def main() -> None:
    """Run the pipeline and judge its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data/multi30k"))
    parser.add_argument("--output", type=Path, default=Path("runs/pipeline-multi30k"))
    parser.add_argument("--updates", type=int, default=2000)
    options = parser.parse_args()
    write_corpora(options.output / "corpora", options.data)
    path = options.output / "pipeline.toml"
    path.write_text(write_toml(settings(options.output / "corpora", options.data, options.updates)), encoding="utf-8")
    code = run(["pipeline", str(path), "--output", str(options.output / "stages")])
    if code:
        raise SystemExit(code)
    folders = read_json(options.output / "stages" / "pipeline.json")["stages"]
    shutil.copy(Path(folders["evaluate"]) / "report.json", options.output / "report.json")
    rows = {row["name"]: row for row in read_json(options.output / "report.json")["rows"]}
    small = rows["student int8"]
    found = {
        "bleu": {name: round(row["bleu"]["score"], 2) for name, row in rows.items()},
        "mebibytes": {name: round(row["bytes"] / 2**20, 1) for name, row in rows.items()},
        "time_ratio": round(small["time_ratio"], 3),
        "difference": round(small["difference"]["bleu"], 2),
        "reached": small["time_ratio"] <= TIME_RATIO and small["difference"]["bleu"] >= -BLEU_DIFFERENCE,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
