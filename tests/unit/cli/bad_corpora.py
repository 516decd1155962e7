"""Bad corpora, of the table of bad input."""

from __future__ import annotations

import gzip

from tests.unit.cli.bad_files import Case, file, folder

PAIRS = "".join(f"s{row}\tt{row}\n" for row in range(2000)).encode()
NEW = "--output new"
TRAIN = f"train --recipe recipe.toml {NEW}"
PREPARE = f"prepare {NEW} --path"

CORPORA = {
    "binary file": Case(f"{PREPARE} x.tsv", 65, "binary", file("x.tsv", bytes(range(256)) * 9)),
    "binary file that begins as text": Case(
        f"{PREPARE} x.tsv", 65, "x.tsv:2001: ", file("x.tsv", PAIRS + b"a\0b\tc\n")
    ),
    "UTF-16": Case(f"{PREPARE} x.jsonl", 65, "UTF-16", file("x.jsonl", '{"source": "a"}\n'.encode("utf-16"))),
    "Latin-1": Case(f"{PREPARE} x.tsv", 65, "x.tsv:2: ", file("x.tsv", b"a\tb\n\xe9\tc\n")),
    "truncated gzip": Case(f"{PREPARE} x.tsv.gz", 65, "x.tsv.gz: ", file("x.tsv.gz", gzip.compress(PAIRS)[:-9])),
    "damaged gzip": Case(
        f"{PREPARE} x.tsv.gz", 65, "x.tsv.gz: ", file("x.tsv.gz", gzip.compress(PAIRS)[:-8] + b"12345678")
    ),
    "empty file": Case(f"{PREPARE} x.tsv --tokenizer bpe", 65, "empty", file("x.tsv", "")),
    "empty files": Case(f"train --source e --target ./e {NEW}", 65, "empty", file("e", "")),
    "only one-sided lines": Case(f"{PREPARE} x.tsv", 65, "2 dropped", file("x.tsv", "a\t\n\tb\n")),
    "a line without its other half": Case(f"{PREPARE} x.tsv", 65, "x.tsv:2: ", file("x.tsv", "a\tb\nc\n")),
    "unequal files": Case(f"train --source a.txt --target x {NEW}", 65, "2 lines", file("x", "1\n2\n3\n")),
    "missing file": Case(f"{PREPARE} none.tsv", 66, "none.tsv: "),
    "folder as a file": Case(f"{PREPARE} x.tsv", 66, "x.tsv: ", folder("x.tsv")),
    "path below a file": Case(f"{PREPARE} a.txt/x.tsv", 66, "a.txt/x.tsv: "),
    "path of 5,000 characters": Case(f"{PREPARE} {'x' * 5000}.tsv", 66, "File name too long"),
    "missing corpus after the run's folder was made": Case(
        f"{TRAIN} --set data.train={{source='none',target='nobody'}}", 66, "none: "
    ),
    "lone surrogate in JSON": Case(
        f"{PREPARE} x.jsonl",
        65,
        "x.jsonl:1: 'target'",
        file("x.jsonl", '{"source": "a", "target": "b\\udc00"}\n'),
    ),
    "not JSON": Case(f"{PREPARE} x.jsonl", 65, "x.jsonl:1: ", file("x.jsonl", "{'a': 1}\n")),
    "JSON without end": Case(f"{PREPARE} x.jsonl", 65, "x.jsonl:1: ", file("x.jsonl", "[" * 100_000)),
    "JSON of another shape": Case(f"{PREPARE} x.jsonl", 65, "JSON array", file("x.jsonl", "[1]\n")),
    "a path with a NUL in a recipe": Case(
        f"train --recipe x.toml {NEW}",
        66,
        "NUL",
        file("x.toml", '[data.train]\nsource = "a\\u0000"\ntarget = "b"\n[model]\nnum_layers = 1\n'),
    ),
    "standard input that would be read twice": Case(f"train --source - --target b.txt {NEW}", 2, "once"),
    "everything longer than the model's positions": Case(
        f"{TRAIN} --set model.positions=learned --set model.max_positions=4", 2, "data.max_length"
    ),
}
