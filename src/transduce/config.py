"""Frozen typed settings <-> TOML and JSON, overrides, and helpful validation errors.

A config is a pydantic model: frozen, rejecting unknown keys, with a docstring per field. Tables of a recipe are parsed
here and nowhere else, so that all errors have one form.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, get_origin

import pydantic
import tomli_w

from transduce.errors import MissingInput, SettingsError, brief, suggestion

if TYPE_CHECKING:
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

Table = dict[str, Any]
"""A TOML table as plain values."""


class Config(pydantic.BaseModel):
    """Base class of settings: immutable, strict about names and types ("2" and true are not numbers), documented.

    A command imports many more classes than it uses, so validation is compiled when a class is first used, and
    docstrings are read by `descriptions` only.
    """

    model_config = pydantic.ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    @classmethod
    def descriptions(cls) -> dict[str, str]:
        """Return the docstring of each field that has one."""
        found: dict[str, str] = {}
        for config in reversed(cls.__mro__):
            if issubclass(config, Config):
                found |= _docstrings(config)
        return {name: found[name] for name in cls.model_fields if name in found}

    @classmethod
    def __get_pydantic_json_schema__(
        cls, schema: CoreSchema, handler: pydantic.GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Add the descriptions."""
        found = handler(schema)
        properties = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in cls.descriptions().items():
            properties[name]["description"] = text
        return found

    @classmethod
    def from_table(cls, table: Mapping[str, Any], where: str) -> Self:
        """Build from plain values; `where` names the file and table in an error."""
        if not isinstance(table, Mapping):
            raise SettingsError(f"{where}: must be a table of settings, not {brief(table)}")
        try:
            return cls.model_validate({name: without_numpy(value) for name, value in table.items()})
        except pydantic.ValidationError as error:
            raise SettingsError(explain(error, cls, where)) from None

    def to_table(self) -> Table:
        """Return plain values that `from_table` accepts; settings that are None are omitted."""
        return self.model_dump(mode="json", exclude_none=True)

    def but(self, **changes: Any) -> Self:
        """Return a validated copy with some settings changed."""
        return self.from_table({**self.model_dump(), **changes}, type(self).__name__)


def without_numpy(value: Any) -> Any:
    """Return a number of numpy as one of Python."""
    return value.item() if type(value).__module__ == "numpy" and getattr(value, "shape", None) == () else value


def _docstrings(config: type[Config]) -> dict[str, str]:
    """The strings that follow the fields of a class in its source."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(config))).body
    assert isinstance(definition, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in itertools.pairwise(definition.body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


def explain(error: pydantic.ValidationError, config: type[pydantic.BaseModel], where: str) -> str:
    """Turn the most helpful of pydantic's errors into one sentence."""
    # A misspelt name of a required setting is two errors; the one with a suggestion comes first.
    first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
    path = _settings_of(config, first["loc"])
    name = ".".join(path)
    if first["type"] == "extra_forbidden":
        known = _fields_at(config, path[:-1])
        return f"{where}: unknown setting '{path[-1]}'{suggestion(path[-1], known)}"
    if first["type"] == "missing":
        beside = [found["loc"] for found in error.errors() if found["type"] == "missing"]
        places = [place for place in beside if place[:-1] == first["loc"][:-1]]
        names = [f"'{'.'.join(_settings_of(config, place))}'" for place in places]
        if len(names) > 1:
            return f"{where}: the settings {', '.join(names[:-1])} and {names[-1]} are required"
        return f"{where}: the setting '{name}' is required"
    reason = str(first["msg"]).removeprefix("Value error, ")
    if not name:
        return f"{where}: {reason}"
    if first["type"] == "value_error" and isinstance(first["input"], Mapping):
        return f"{where}: {name}: {reason}"  # the error of a nested table
    reason = reason.replace("Input should be", "it must be").replace("greater than or equal to", "at least")
    reason = (
        reason.replace("less than or equal to", "at most").replace("a valid ", "a ").replace("a integer", "an integer")
    )
    return f"{where}: {name} = {brief(first['input'])} is invalid: {reason[0].lower()}{reason[1:]}"


def _settings_of(config: type[pydantic.BaseModel], place: Sequence[int | str]) -> list[str]:
    """The names on the path to a setting, without the names of union members that pydantic tried."""
    names: list[str] = []
    within: Any = config
    for part in place:
        is_table = isinstance(within, type) and issubclass(within, pydantic.BaseModel)
        if not (is_table or get_origin(within) is dict or isinstance(part, int)):
            break
        names.append(str(part))
        field = within.model_fields.get(part) if is_table else None
        within = None if field is None else field.annotation
    return names


def _fields_at(config: type[pydantic.BaseModel], path: Sequence[str]) -> list[str]:
    for part in path:
        field = config.model_fields.get(part)
        if field is None or not isinstance(field.annotation, type) or not issubclass(field.annotation, Config):
            return []
        config = field.annotation
    return list(config.model_fields)


def read_toml(path: Path, what: str = "a recipe, which is a TOML file") -> Table:
    """Read a TOML file into plain values; `what` it should be is named in errors."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors write a byte order mark
    except OSError as error:
        raise MissingInput(f"{path}: cannot be read ({error.strerror}); check the path") from None
    except UnicodeDecodeError as error:
        raise SettingsError(f"{path}: is not valid TOML ({error}); give {what}") from None
    except ValueError:
        raise MissingInput(f"{path}: the path contains a NUL character; check the path") from None
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise SettingsError(f"{path}: is not valid TOML (nested too deeply); give {what}") from None
    except ValueError as error:  # bad syntax, or a number of thousands of digits
        raise SettingsError(f"{path}: is not valid TOML ({error}); give {what}") from None


def write_toml(table: Table) -> str:
    """Return a table as TOML text."""
    return tomli_w.dumps(table)


MAX_DEPTH = 8
"""Nested tables that an override may name."""
MAX_DIGITS = 12
"""Digits of a count; Python itself rejects thousands."""


def counted(text: str) -> int | None:
    """Return the whole number in a text; None for any other text, and for too many digits."""
    return int(text) if text.isdecimal() and len(text) <= MAX_DIGITS else None


def override(table: Table, assignment: str) -> Table:
    """Return a copy of a nested table with one override such as `model.num_layers=6`; the value is parsed as TOML."""
    name, equals, text = assignment.partition("=")
    parts = name.strip().split(".")
    if not equals or not all(parts) or len(parts) > MAX_DEPTH:
        raise SettingsError(f"--set {assignment}: expected table.setting=value, for example model.num_layers=4")
    return _put(table, parts, _value(text.strip()), assignment)


def _value(text: str) -> Any:
    """Parse one TOML value; anything else is a string, so that no quotes are needed inside a shell's quotes."""
    try:
        found = tomllib.loads(f"value = {text}")
    except (ValueError, RecursionError):
        return text
    return found["value"] if found.keys() == {"value"} else text


def _put(table: Table, parts: Sequence[str], value: Any, assignment: str) -> Table:
    head, *rest = parts
    if not rest:
        return {**table, head: value}
    inner = table.get(head, {})
    if not isinstance(inner, dict):
        raise SettingsError(f"--set {assignment}: '{head}' is a value, not a table; name one of the tables of a recipe")
    return {**table, head: _put(inner, rest, value, assignment)}


def difference(one: Any, other: Any, name: str = "") -> tuple[str, Any, Any] | None:
    """Return the first setting in which two nested tables differ, with both values; None if they are equal."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        inner = [(key, one.get(key), other.get(key)) for key in sorted(one.keys() | other.keys())]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        inner = [(str(place), *values) for place, values in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else (name, one, other)
    found = (difference(first, second, f"{name}.{key}" if name else key) for key, first, second in inner)
    return next((change for change in found if change is not None), None)


def merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> Table:
    """Return `base` updated with `changes`, table by table."""
    merged = dict(base)
    for key, value in changes.items():
        inner = merged.get(key)
        merged[key] = merge(inner, value) if isinstance(inner, dict) and isinstance(value, dict) else value
    return merged
