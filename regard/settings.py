"""Reading of settings from TOML, `--set` and flags into nested tables, and strictly from tables into dataclasses.

A setting that does not exist, or is of the wrong type, is an error that names it and suggests a similar one.
"""

import contextlib
import dataclasses
import difflib
import json
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

from regard.errors import UserError

Table = dict[str, Any]
Json = dict[str, Any]  # a JSON object
T = TypeVar("T")

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def read_toml(path: Path) -> Table:
    if not path.exists():
        raise UserError(f"there is no file {path}{similar_path(path)}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # RecursionError for deeply nested lists
        raise UserError(f"{path} is not TOML: {error}") from error


def read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:  # also no UTF-8, thousands of digits, or deeply nested lists
        raise UserError(f"{path} is not JSON: {error}") from error


def similar_path(path: str | Path) -> str:
    """Return a suggestion for a path that does not exist, to end an error with; empty if there is none."""
    given = Path(path)
    try:
        missing = next((one for one in [*reversed(given.parents), given] if not one.exists()), given)
        names = [entry.name for entry in missing.parent.iterdir()]
        close = difflib.get_close_matches(missing.name, names)
        guesses = [missing.with_name(name) / given.relative_to(missing) for name in close]
        meant = next((guess for guess in guesses if guess.exists()), None)
    except OSError:  # a folder without permission, or an impossible name
        return ""
    return f"; did you mean {meant}?" if meant else ""


def parse_setting(text: str) -> Table:
    """Return `train.warmup=800` as nested tables. The value is TOML, or else text."""
    name, equals, value = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise UserError(f"--set {text} is not of the form a.b=c, such as train.warmup=800")
    try:
        table: Table = {keys[-1]: tomllib.loads(f"value = {value}")["value"]}
    except (ValueError, RecursionError):
        table = {keys[-1]: value.strip()}
    for key in reversed(keys[:-1]):
        table = {key: table}
    return table


def merged(*tables: Table) -> Table:
    """Merge nested tables: later values replace earlier ones, and so do lists."""
    result: Table = {}
    for table in tables:
        for key, value in table.items():
            both_tables = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both_tables else value
    return result


def read_table(kind: type[T], table: object, where: str = "") -> T:
    """Read a dataclass from a table. `where` is the table's name, for errors."""
    if not isinstance(table, dict):
        raise UserError(f"{where} must be a table of settings, but is {table!r}")
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind)
    for key in table:
        if key not in hints:
            close = difflib.get_close_matches(key, hints, n=1)
            advice = f"did you mean {_join(where, close[0])}?" if close else f"there are {', '.join(hints)}"
            raise UserError(f"there is no setting {_join(where, key)}; {advice}")
    values = {key: _read_value(hints[key], value, _join(where, key)) for key, value in table.items()}
    for field in dataclasses.fields(kind):
        if field.name not in values and field.default is dataclasses.MISSING:
            raise UserError(f"the setting {_join(where, field.name)} is missing")
    return kind(**values)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _read_value(hint: Any, value: object, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return read_table(typing.cast("type[Any]", hint), value, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _read_union(arguments, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"{where} must be a list, but is {value!r}")
        return tuple(_read_value(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is Literal:
        if value not in arguments:
            raise UserError(f"{where} is {value!r}; it must be one of {', '.join(arguments)}")
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise UserError(f"{where} is too large a number; it must have at most 63 bits")
    if isinstance(value, str) and "\0" in value:
        raise UserError(f"{where} has a zero byte, which no text and no name has")
    if hint is float and is_number:
        return float(typing.cast("float", value))
    if not isinstance(value, hint) or (hint is int and not is_number):
        raise UserError(f"{where} must be {KINDS[hint]}, but is {value!r}")
    return value


def _read_union(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    """Read `X | None`, or the first of several types that fits the value."""
    if value is None and types.NoneType in kinds:
        return None
    *others, last = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others:
        with contextlib.suppress(UserError):
            return _read_value(kind, value, where)
    return _read_value(last, value, where)


def to_table(config: Any) -> Table:
    """Return a dataclass as a table of JSON's types, which `read_table` reads back."""
    table: Table = json.loads(json.dumps(dataclasses.asdict(config)))
    return table


def flattened(table: Table, where: str = "") -> Table:
    """Return {"train": {"warmup": 800}} as {"train.warmup": 800}; lists are values."""
    flat: Table = {}
    for key, value in table.items():
        name = _join(where, key)
        flat |= flattened(value, name) if isinstance(value, dict) else {name: value}
    return flat
