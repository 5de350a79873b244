"""Converts the flags of `regard train` to the tables that a TOML file would hold."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.config import AUTO, CorpusConfig
from regard.data.command import corpora_of, held_out_corpus, language_of
from regard.errors import UserError
from regard.settings import Table, merged, similar_path, to_table


@dataclass(frozen=True)
class TextFlags:
    src: list[str]
    tgt: list[str]
    valid_src: str | None
    valid_tgt: str | None
    weights: list[float]
    src_lang: str | None
    tgt_lang: str | None
    text: list[str]
    valid_text: str | None


def data_table(flags: TextFlags) -> Table:
    """Return the corpora and languages that were given, as the table `data`; an empty table if there are none."""
    if flags.text or flags.valid_text is not None:
        return _text_table(flags)
    languages = {"src_lang": flags.src_lang, "tgt_lang": flags.tgt_lang}
    table: Table = {key: language for key, language in languages.items() if language is not None}
    src_lang, tgt_lang = flags.src_lang, flags.tgt_lang
    if flags.src:
        table["train"] = [to_table(corpus) for corpus in corpora_of(flags.src, flags.tgt, flags.weights)]
        src_lang = language_of(flags.src[0]) if src_lang is None else src_lang
        tgt_lang = language_of(flags.tgt[0] if flags.tgt else "") if tgt_lang is None else tgt_lang
    elif flags.tgt or flags.weights:
        raise UserError("--tgt and --weight need an --src")
    if flags.valid_src is not None:
        table["valid"] = to_table(held_out_corpus(flags.valid_src, flags.valid_tgt, src_lang or "", tgt_lang or ""))
    elif flags.valid_tgt is not None:
        raise UserError("--valid-tgt was given without --valid-src")
    return {"data": table} if table else {}


def _text_table(flags: TextFlags) -> Table:
    """Return the plain text that was given, as the table `data`."""
    if flags.src or flags.tgt or flags.valid_src or flags.valid_tgt or flags.src_lang or flags.tgt_lang:
        raise UserError(
            "--text is plain text for a language model, --src and --tgt are pairs for a translator; give one of the two"
        )
    corpora = [replace(corpus, src="", text=corpus.src) for corpus in corpora_of(flags.text, [], flags.weights)]
    table: Table = {"train": [to_table(corpus) for corpus in corpora]} if corpora else {}
    if flags.valid_text is not None:
        table["valid"] = to_table(CorpusConfig(text=flags.valid_text))
    return {"data": table}


def with_languages(settings: Table) -> Table:
    """Add the languages that are not named, by the suffixes of the first corpus's files."""
    data = settings.get("data", {})
    corpora = data.get("train", []) if isinstance(data, dict) else []
    if not (isinstance(corpora, list) and corpora and isinstance(corpora[0], dict)):
        return settings
    guesses = {f"{side}_lang": language_of(str(corpora[0].get(side) or "")) for side in ("src", "tgt")}
    return merged({"data": {key: guess for key, guess in guesses.items() if guess}}, settings)


def within(folder: Path, settings: Table) -> Table:
    """Return a recipe's settings, with the paths of its files inside a folder. Values of a wrong type stay as they are, for
    later checks to report."""
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}{similar_path(folder)}; --corpora is where a recipe's files are")
    data = settings.get("data", {})
    if not isinstance(data, dict):
        return settings
    return settings | {"data": {name: _within(folder, value) for name, value in data.items()}}


def _within(folder: Path, value: Any) -> Any:
    if isinstance(value, list):
        return [_within(folder, one) for one in value]
    if not isinstance(value, dict):
        return value
    is_file = {"src", "tgt", "text"}
    return {key: str(folder / one) if key in is_file and isinstance(one, str) else one for key, one in value.items()}


def overruled(settings: Table, flags: Table) -> Table:
    """Return a file's settings without those that flags of other names override: `steps` and `minutes` override each other,
    and `prepared` overrides text."""
    train = settings.get("train", {})
    ends = {"steps", "minutes"}
    if isinstance(train, dict) and ends & flags.get("train", {}).keys():
        settings = settings | {"train": {key: value for key, value in train.items() if key not in ends}}
    return {key: value for key, value in settings.items() if key != "data"} if "prepared" in flags else settings


def table_of_flags(flags: dict[str, Any]) -> Table:
    """Return {"train": {"steps": 100}} for {"train.steps": 100}, without flags that were not given (None)."""
    table: Table = {}
    for name, value in flags.items():
        if value is not None:
            section, _, key = name.rpartition(".")
            read = _batch_tokens(value) if key == "batch_tokens" else value
            table = merged(table, {section: {key: read}} if section else {key: read})
    return table


def _batch_tokens(text: str) -> int:
    if text == "auto":
        return AUTO
    if not text.isdecimal() or int(text) < 1:
        raise UserError(f"--batch-tokens {text} is neither a number above 0 nor auto")
    return int(text)
