"""docs/configuration.md: every setting, as the dataclasses of regard/config.py have it.

    python scripts/configuration.py    # writes it

A setting's meaning is the comment beside (or above) its field, so that there is one place to change.
"""

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

from regard.config import (
    PRESETS,
    TRAIN_PRESETS,
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
)

DOCUMENT = Path(__file__).parents[1] / "docs" / "configuration.md"
INTRODUCTION = """\
# Configuration

*Made by `python scripts/configuration.py` from the dataclasses of [`regard/config.py`](../regard/config.py), and tested to
be current.*

A run is told what to do by a TOML file (`--config`), by flags, and by single settings (`--set train.warmup=800`), each of
which wins over those before it. A setting that does not exist, or is of the wrong kind, is an error that names it. What was
settled is stored in the run's `config.json`, and a run that is continued keeps it. Files that a TOML file names are looked
for in the folder that `--corpora` names, or else here. For example ([recipes](../recipes/README.md) are more of them):

```toml
preset = "small"
[data]
train = [{ src = "train.de", tgt = "train.en" }, { src = "more.tsv", weight = 0.5 }]
valid = { src = "valid.de", tgt = "valid.en" }
[data.cleaning]
max_ratio = 4.0
[model]
dropout = 0.2
[train]
minutes = 30
```

The defaults below are the paper's; a preset's values take their place, and what a file, flags and `--set` say takes the
place of both. `paper = true` leaves the training as the paper has it, whatever the preset would rather do ([why they
differ](deviations.md)).
"""
TABLES: dict[str, tuple[str, type[Any]]] = {
    "At the top": ("", RunConfig),
    "`[data]`": ("data.", DataConfig),
    "`[data.cleaning]`": ("data.cleaning.", CleaningConfig),
    "Each of `data.train`, `data.valid`, `data.test`": ("", CorpusConfig),
    "`[model]`": ("model.", ModelConfig),
    "`[train]`": ("train.", TrainConfig),
}
IS_A_TABLE = ("DataConfig", "ModelConfig", "TrainConfig", "CleaningConfig")
KINDS = {
    "int": "whole number",
    "float": "number",
    "str": "text",
    "bool": "true or false",
    "str | None": "text",
    "tuple[str, ...]": "texts",
}


def document() -> str:
    parts = [INTRODUCTION, _presets()]
    for heading, (prefix, kind) in TABLES.items():
        rows = [f"| `{prefix}{name}` | {what} | {default} | {meaning} |" for name, what, default, meaning in settings(kind)]
        parts.append(f"## {heading}\n\n{_introduction(kind)}\n\n| setting | is | default | meaning |\n|---|---|---|---|")
        parts[-1] += "\n" + "\n".join(rows) + "\n"
    return "\n".join(parts)


def _introduction(kind: type[Any]) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


def _presets() -> str:
    lines = [
        "## Presets\n",
        "| preset | layers on each side | d_model | heads | d_ff | dropout | training |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, (layers, d_model, num_heads, d_ff, dropout) in PRESETS.items():
        training = ", ".join(f"`{key} = {_toml(value)}`" for key, value in TRAIN_PRESETS[name].items()) or "the paper's"
        lines.append(f"| {name} | {layers} | {d_model} | {num_heads} | {d_ff} | {dropout} | {training} |")
    return "\n".join(lines) + "\n"


def settings(kind: type[Any]) -> list[tuple[str, str, str, str]]:
    """(name, what it is, default, meaning) of each field that is no table of its own."""
    comments = _comments(kind)
    return [
        (field.name, _what(str(field.type)), _default(field), comments[field.name])
        for field in dataclasses.fields(kind)
        if getattr(field.type, "__name__", "") not in IS_A_TABLE
    ]


def _what(hint: str) -> str:
    hint = re.sub(r"<class '(\w+)'>", r"\1", hint)
    if hint.startswith("typing.Literal"):
        return " or ".join(f"`{choice}`" for choice in ast.literal_eval(hint.removeprefix("typing.Literal")))
    if "CorpusConfig" in hint:
        return "tables" if "tuple" in hint else "table"
    return KINDS[hint]


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is dataclasses.MISSING or field.default is None:
        return ""
    return f"`{_toml(field.default)}`"


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else "[]" if value == () else str(value)


def _comments(kind: type[Any]) -> dict[str, str]:
    """Of each field: the comment behind it, and before that those on the lines just above it."""
    found: dict[str, str] = {}
    above: list[str] = []
    for line in inspect.getsource(kind).splitlines():
        if match := re.match(r"    (\w+): [^#]*(?:#\s*(.*))?$", line):
            name, behind = match.groups()
            found[name] = " ".join([*above, behind or ""]).strip().replace("|", "\\|")
        above = [*above, line.strip().removeprefix("#").strip()] if line.strip().startswith("#") else []
    return found


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
