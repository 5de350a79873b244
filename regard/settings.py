"""From what a person wrote to a configuration: TOML, `--set` and flags as nested tables, read strictly, and written as JSON.

A setting that does not exist, or of the wrong kind, is an error that names it and what may have been meant.
"""

import contextlib
import dataclasses
import difflib
import tomllib
import types
import typing
from pathlib import Path
from typing import Any, Literal, TypeVar

Table = dict[str, Any]
T = TypeVar("T")

KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


def read_toml(path: Path) -> Table:
    if not path.exists():
        raise ValueError(f"there is no file {path}{similar_path(path)}")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is no TOML: {error}") from error


def similar_path(path: str | Path) -> str:
    """What may have been meant by a path that is not there, to be put behind a complaint; nothing if there is no guess."""
    given = Path(path)
    try:
        missing = next((one for one in [*reversed(given.parents), given] if not one.exists()), given)
        names = [entry.name for entry in missing.parent.iterdir()]
        close = difflib.get_close_matches(missing.name, names)
        guesses = [missing.with_name(name) / given.relative_to(missing) for name in close]
        meant = next((guess for guess in guesses if guess.exists()), None)
    except OSError:  # a folder that may not be looked into, or a name that cannot be one
        return ""
    return f"; did you mean {meant}?" if meant else ""


def parse_setting(text: str) -> Table:
    """`train.warmup=800` as nested tables. The value is TOML; what is no TOML is text."""
    name, equals, value = text.partition("=")
    keys = name.strip().split(".")
    if not equals or not all(keys):
        raise ValueError(f"--set {text} is not of the form a.b=c, such as train.warmup=800")
    try:
        table: Table = {keys[-1]: tomllib.loads(f"value = {value}")["value"]}
    except tomllib.TOMLDecodeError:
        table = {keys[-1]: value.strip()}
    for key in reversed(keys[:-1]):
        table = {key: table}
    return table


def merged(*tables: Table) -> Table:
    """Later tables win; tables within tables are merged, lists are replaced."""
    result: Table = {}
    for table in tables:
        for key, value in table.items():
            both_tables = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both_tables else value
    return result


def read_table(kind: type[T], table: object, where: str = "") -> T:
    """A dataclass from a table. `where` is the table's own name, for errors."""
    if not isinstance(table, dict):
        raise ValueError(f"{where} must be a table of settings, but is {table!r}")
    assert dataclasses.is_dataclass(kind)
    hints = typing.get_type_hints(kind)
    for key in table:
        if key not in hints:
            raise ValueError(f"there is no setting {_join(where, key)}{_suggestion(key, hints, where)}")
    values = {key: _read_value(hints[key], value, _join(where, key)) for key, value in table.items()}
    for field in dataclasses.fields(kind):
        if field.name not in values and field.default is dataclasses.MISSING:
            raise ValueError(f"the setting {_join(where, field.name)} is missing")
    return kind(**values)


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _suggestion(key: str, known: Table, where: str) -> str:
    close = difflib.get_close_matches(key, known, n=1)
    return f"; did you mean {_join(where, close[0])}?" if close else f"; there are {', '.join(known)}"


def _read_value(hint: Any, value: object, where: str) -> Any:
    if dataclasses.is_dataclass(hint):
        return read_table(typing.cast("type[Any]", hint), value, where)
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is types.UnionType:
        return _read_union(arguments, value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where} must be a list, but is {value!r}")
        return tuple(_read_value(arguments[0], item, f"{where}[{number}]") for number, item in enumerate(value))
    if origin is Literal:
        if value not in arguments:
            raise ValueError(f"{where} is {value!r}; it must be one of {', '.join(arguments)}")
        return value
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if hint is float and is_number:
        return float(typing.cast("float", value))
    if not isinstance(value, hint) or (hint is int and not is_number):
        raise ValueError(f"{where} must be {KINDS[hint]}, but is {value!r}")
    return value


def _read_union(kinds: tuple[Any, ...], value: object, where: str) -> Any:
    """`X | None`, or the first of several kinds that the value can be read as."""
    if value is None and types.NoneType in kinds:
        return None
    *others, last = [kind for kind in kinds if kind is not types.NoneType]
    for kind in others:
        with contextlib.suppress(ValueError):
            return _read_value(kind, value, where)
    return _read_value(last, value, where)


def to_table(config: Any) -> Table:
    """What `read_table` reads back, of types that JSON has too."""
    table: Table = _plain(dataclasses.asdict(config))
    return table


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, tuple | list) else value


def flattened(table: Table, where: str = "") -> Table:
    """{"train": {"warmup": 800}} as {"train.warmup": 800}; lists are values."""
    flat: Table = {}
    for key, value in table.items():
        name = _join(where, key)
        flat |= flattened(value, name) if isinstance(value, dict) else {name: value}
    return flat
