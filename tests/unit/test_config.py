"""Settings: frozen, closed, explained; tables in and out; every error one sentence that names its place."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from transduce.config import Config, Table, difference, merge, override, read_toml, write_toml
from transduce.errors import MissingInput, SettingsError


class Inner(Config):
    """A table within a table."""

    rate: float = 0.5
    """How much."""


class Example(Config):
    """A table of each kind of setting."""

    size: int
    """How large."""
    kind: Literal["soft", "hard"] = "soft"
    """Which."""
    limit: int | None = None
    """How far, if anywhere."""
    inner: Inner = Inner()
    """More."""
    either: Annotated[int, pydantic.Field(ge=1)] | Literal["auto"] | None = None
    """A number or a word."""
    column: int | str | None = None
    """A number or a name."""
    pair: tuple[int, int] | None = None
    """Two numbers."""

    @pydantic.model_validator(mode="after")
    def _fits(self) -> Example:
        if self.limit is not None and self.limit < self.size:
            raise ValueError(f"a limit of {self.limit} is below the size {self.size}; raise it")
        return self


def test_a_table_is_read_and_written_back() -> None:
    table = {"size": 7, "kind": "hard", "limit": 11, "inner": {"rate": 0.25}}
    assert Example.from_table(table, "here").to_table() == table


def test_what_is_not_set_is_left_out_because_toml_has_no_none() -> None:
    written = Example(size=7).to_table()
    assert written == {"size": 7, "kind": "soft", "inner": {"rate": 0.5}}
    assert Example.from_table(tomllib.loads(write_toml(written)), "here") == Example(size=7)


def test_a_config_cannot_be_changed() -> None:
    with pytest.raises(pydantic.ValidationError):
        Example(size=7).size = 8  # type: ignore[misc]


def test_but_returns_a_changed_copy() -> None:
    config = Example(size=7, limit=11)
    assert config.but(size=5, kind="hard") == Example(size=5, kind="hard", limit=11)
    assert config == Example(size=7, limit=11)
    assert config.but(limit=None) == Example(size=7)


def test_but_checks_the_copy_again() -> None:
    with pytest.raises(SettingsError, match=r"^Example: a limit of 11 is below the size 13; raise it$"):
        Example(size=7, limit=11).but(size=13)
    with pytest.raises(SettingsError, match=r"unknown setting 'sise'; did you mean 'size'"):
        Example(size=7).but(sise=3)


def test_every_field_keeps_its_explanation() -> None:
    assert list(Example.descriptions().values()) == [
        "How large.",
        "Which.",
        "How far, if anywhere.",
        "More.",
        "A number or a word.",
        "A number or a name.",
        "Two numbers.",
    ]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({}, "run.toml: the setting 'size' is required"),
        ({"size": 3, "kine": "soft"}, "run.toml: unknown setting 'kine'; did you mean 'kind'?"),
        ({"size": 3, "zzzzz": 1}, "run.toml: unknown setting 'zzzzz'; choose from column, either"),
        ({"size": 3, "inner": {"rat": 1}}, "run.toml: unknown setting 'rat'; did you mean 'rate'?"),
        ({"size": "big"}, "run.toml: size = 'big' is invalid: it must be an integer"),
        ({"size": 1.5}, "run.toml: size = 1.5 is invalid: it must be an integer"),
        ({"size": 3, "kind": "x"}, "run.toml: kind = 'x' is invalid: it must be 'soft' or 'hard'"),
        (
            {"size": 3, "inner": {"rate": "x"}},
            "run.toml: inner.rate = 'x' is invalid: it must be a number",
        ),
        (
            {"size": 3, "inner": {"rate": float("inf")}},
            "run.toml: inner.rate = inf is invalid: it must be a finite",
        ),
        ({"size": 3, "inner": 7}, "run.toml: inner = 7 is invalid"),
        ({"size": 3, "either": 0}, "run.toml: either = 0 is invalid: it must be at least 1"),
        ({"size": 3, "column": 1.5}, "run.toml: column = 1.5 is invalid: it must be a"),
        ({"size": 3, "pair": (1, "x")}, "run.toml: pair.1 = 'x' is invalid: it must be an integer"),
        ({"size": 3, "limit": 2}, "run.toml: a limit of 2 is below the size 3; raise it"),
    ],
    ids=str,
)
def test_an_error_is_one_sentence_that_names_the_place(table: Table, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        Example.from_table(table, "run.toml")
    assert str(raised.value).startswith(sentence)
    assert "\n" not in str(raised.value)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize(
    ("assignment", "expected"),
    [
        ("model.num_layers=6", {"model": {"num_layers": 6}}),
        ("model.num_layers = 6 ", {"model": {"num_layers": 6}}),
        ("seed=3", {"seed": 3}),
        ("model.dropout=0.1", {"model": {"dropout": 0.1}}),
        ("model.norm=pre", {"model": {"norm": "pre"}}),
        ('model.norm="pre"', {"model": {"norm": "pre"}}),
        ("model.tied_embeddings=true", {"model": {"tied_embeddings": True}}),
        ("data.files=[1, 2]", {"data": {"files": [1, 2]}}),
        ("data.source=a=b.txt", {"data": {"source": "a=b.txt"}}),
        ("a.b.c=x y", {"a": {"b": {"c": "x y"}}}),
        ("note=", {"note": ""}),
    ],
)
def test_an_override_is_read_as_toml_or_else_as_a_word(assignment: str, expected: Table) -> None:
    assert override({}, assignment) == expected


def test_an_override_leaves_everything_else_and_the_original_alone() -> None:
    table: Table = {"model": {"norm": "pre", "deep": {"x": 1}}, "seed": 1}
    changed = override(table, "model.deep.y=2")
    assert changed == {"model": {"norm": "pre", "deep": {"x": 1, "y": 2}}, "seed": 1}
    assert table == {"model": {"norm": "pre", "deep": {"x": 1}}, "seed": 1}


@pytest.mark.parametrize("assignment", ["", "model", "model.num_layers", "=3", "model.=3", ".model=3", "a..b=3"])
def test_an_override_that_is_no_assignment_is_rejected_with_an_example(assignment: str) -> None:
    with pytest.raises(SettingsError, match=r"expected table\.setting=value, for example"):
        override({}, assignment)


def test_an_override_cannot_go_into_a_value() -> None:
    with pytest.raises(SettingsError, match=r"--set seed\.x=1: 'seed' is a value, not a table"):
        override({"seed": 3}, "seed.x=1")


def test_merge_lays_tables_over_tables() -> None:
    base = {"model": {"a": 1, "b": 2}, "seed": 3, "data": {"x": 1}}
    changes = {"model": {"b": 5, "c": 7}, "seed": 11, "data": 13}
    assert merge(base, changes) == {"model": {"a": 1, "b": 5, "c": 7}, "seed": 11, "data": 13}
    assert base["model"] == {"a": 1, "b": 2}


keys = st.text("abc_", min_size=1, max_size=4)
scalars = (
    st.integers(-(2**40), 2**40)
    | st.booleans()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=7)
)
tables = st.recursive(
    st.dictionaries(keys, scalars, max_size=4),
    lambda inner: st.dictionaries(keys, inner | scalars, max_size=4),
    max_leaves=7,
)


@settings(max_examples=100, deadline=None)
@given(tables)
def test_what_is_written_as_toml_is_read_back(table: Table) -> None:
    assert tomllib.loads(write_toml(table)) == table


def test_a_difference_is_the_first_setting_that_is_another() -> None:
    one = {"a": {"x": 1, "y": {"z": 2}}, "b": 3, "c": [{"d": 1}, {"d": 2}]}
    assert difference(one, one) is None
    assert difference(one, {**one, "b": 4}) == ("b", 3, 4)
    assert difference(one, {**one, "a": {"x": 1, "y": {"z": "w"}}}) == ("a.y.z", 2, "w")
    assert difference(one, {**one, "c": [{"d": 1}, {"d": 5}]}) == ("c.1.d", 2, 5)
    assert difference(one, {**one, "c": [{"d": 1}]}) == ("c", [{"d": 1}, {"d": 2}], [{"d": 1}])
    assert difference(one, {name: one[name] for name in "ac"}) == ("b", 3, None)


class Named(Config):
    """A table of numbers."""

    numbers: dict[str, int]
    """By name."""


def test_an_error_names_the_entry_of_a_table_of_numbers() -> None:
    with pytest.raises(SettingsError, match=r"^run\.toml: numbers\.a = 'x' is invalid"):
        Named.from_table({"numbers": {"a": "x"}}, "run.toml")


@pytest.mark.parametrize("name", ["function-x", "constrained-int", "literal[", "int"])
def test_an_unknown_setting_may_be_called_anything(name: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(f"unknown setting '{name}'")):
        Example.from_table({"size": 3, name: 1}, "run.toml")


@settings(max_examples=100, deadline=None)
@given(tables, tables)
def test_merge_keeps_every_change_and_every_key(base: Table, changes: Table) -> None:
    merged = merge(base, changes)
    assert merged.keys() == base.keys() | changes.keys()
    assert merge(merged, changes) == merged
    assert merge({}, changes) == changes
    assert merge(base, {}) == base


def test_a_toml_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("seed = 3\n[model]\nname = 'größer'\n", encoding="utf-8")
    assert read_toml(path) == {"seed": 3, "model": {"name": "größer"}}
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_toml(path)["seed"] == 3, "a byte order mark is no part of it"


@pytest.mark.parametrize("name", ["absent.toml", "."])
def test_a_file_that_cannot_be_read_is_a_missing_input(tmp_path: Path, name: str) -> None:
    with pytest.raises(MissingInput, match=r"cannot be read \(.+\); check the path$"):
        read_toml(tmp_path / name)


@pytest.mark.parametrize("content", [b"seed = ", b"\xff\xfe\x00", b"a = 1\na = 2\n", b"\x00"], ids=repr)
def test_a_file_that_is_not_toml_is_rejected_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.toml"
    path.write_bytes(content)
    with pytest.raises(SettingsError, match=r"run\.toml: is not valid TOML"):
        read_toml(path)


def test_numbers_of_numpy_are_numbers_and_its_arrays_are_not() -> None:
    found = Example.from_table({"size": np.int64(3), "either": np.int32(2)}, "a test")
    assert (found.size, found.either) == (3, 2) and type(found.size) is int
    assert Inner(rate=0.5).but(rate=np.float64(0.25)).rate == 0.25
    for wrong in (np.array([3]), np.float64(3.0), np.bool_(True)):
        with pytest.raises(SettingsError, match=r"size = .* is invalid"):
            Example.from_table({"size": wrong}, "a test")
