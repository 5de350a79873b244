"""Tests of strict reading: unknown settings and values of another type are named, and the nearest name is suggested."""

from dataclasses import replace
from pathlib import Path

import pytest

from regard.config import CleaningConfig, CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.errors import UserError
from regard.settings import Table, flattened, merged, parse_setting, read_json, read_table, read_toml, to_table

RUN = RunConfig(
    preset="tiny",
    data=DataConfig(
        train=(CorpusConfig(src="a.de", tgt="a.en"), CorpusConfig(src="b.tsv", weight=0.5)),
        valid=CorpusConfig(src="v.de", tgt="v.en"),
        cleaning=CleaningConfig(max_ratio=3.0, drop_copies=False),
    ),
    model=ModelConfig.preset("tiny", vocab_size=300),
    train=TrainConfig(steps=7, schedule="cosine"),
)


def test_what_is_written_is_read_back() -> None:
    assert read_table(RunConfig, to_table(RUN)) == RUN


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"warmpu": 3}, "there is no setting train.warmpu; did you mean train.warmup?"),
        ({"warmup": "3"}, "train.warmup must be a whole number, but is '3'"),
        ({"warmup": 3.5}, "train.warmup must be a whole number, but is 3.5"),
        ({"warmup": True}, "train.warmup must be a whole number, but is True"),
        ({"clip_norm": True}, "train.clip_norm must be a number, but is True"),
        ({"deterministic": 1}, "train.deterministic must be true or false, but is 1"),
        ({"schedule": "lineal"}, "train.schedule is 'lineal'; it must be one of inverse_sqrt, linear, cosine"),
        ({"device": 3}, "train.device must be text, but is 3"),
        ({"label_smoothing": 1.0}, "train.label_smoothing is 1.0; it must be at least 0 and below 1"),
        ({"clip_norm": float("nan")}, "train.clip_norm is nan; it must be a number of at least 0"),
        ({"batch_tokens": 0}, "train.batch_tokens is 0; it must be at least 1"),
        ([], "train must be a table of settings, but is []"),
    ],
)
def test_errors_name_the_setting(table: object, sentence: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the whole sentence is compared
        read_table(TrainConfig, table, "train")
    assert str(raised.value) == sentence


def test_errors_inside_lists_and_missing_settings() -> None:
    with pytest.raises(
        ValueError, match=r"there is no setting data\.train\[1\]\.weigth; did you mean data\.train\[1\]\.weight"
    ):
        read_table(DataConfig, {"train": [{"src": "a"}, {"src": "b", "weigth": 1}], "valid": {"src": "v"}}, "data")
    with pytest.raises(ValueError, match=r"the setting data\.train is missing"):
        read_table(DataConfig, {"valid": {"src": "v"}}, "data")
    with pytest.raises(ValueError, match=r"data\.train must be a list"):
        read_table(DataConfig, {"train": {"src": "a"}, "valid": {"src": "v"}}, "data")


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("train.warmup=800", {"train": {"warmup": 800}}),
        ("train.clip_norm = 0.5", {"train": {"clip_norm": 0.5}}),
        ("paper=true", {"paper": True}),
        ("data.src_lang=no", {"data": {"src_lang": "no"}}),  # Norwegian, not a Boolean
        ('data.src_lang="de"', {"data": {"src_lang": "de"}}),
        ("data.cleaning.max_ratio=3", {"data": {"cleaning": {"max_ratio": 3}}}),
    ],
)
def test_set_reads_toml_values_and_plain_words(text: str, table: Table) -> None:
    assert parse_setting(text) == table


@pytest.mark.parametrize("text", ["warmup", "=3", "train.=3"])
def test_set_without_a_name_or_value(text: str) -> None:
    with pytest.raises(ValueError, match=r"is not of the form a\.b=c"):
        parse_setting(text)


def test_later_tables_win_and_lists_are_replaced() -> None:
    assert merged({"a": {"b": 1, "c": [1]}}, {"a": {"c": [2]}, "d": 3}, {"a": {"b": 4}}) == {"a": {"b": 4, "c": [2]}, "d": 3}
    assert flattened({"a": {"b": 1, "c": [1]}, "d": 3}) == {"a.b": 1, "a.c": [1], "d": 3}


def test_toml_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text("[train\nwarmup = 3", encoding="utf-8")
    with pytest.raises(ValueError, match=r"mine\.toml is not TOML: .*line 1"):
        read_toml(tmp_path / "mine.toml")


def test_settings_of_a_run_are_frozen() -> None:
    assert replace(RUN.train, steps=8) != RUN.train
    with pytest.raises(AttributeError):
        RUN.train.steps = 8  # type: ignore[misc]


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ({"learning_rate": 10**400}, "train.learning_rate is too large a number"),
        ({"steps": 2**63}, "train.steps is too large a number"),
        ({"device": "c\0pu"}, "train.device has a zero byte"),
    ],
)
def test_what_no_program_can_hold_is_refused(table: dict[str, object], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        read_table(TrainConfig, table, "train")


@pytest.mark.parametrize("value", ["9" * 5000, "[" * 100_000])
def test_what_is_no_toml_for_whatever_reason_is_text(value: str, tmp_path: Path) -> None:
    assert parse_setting(f"a={value}") == {"a": value}
    (tmp_path / "a.toml").write_text(f"a={value}")
    with pytest.raises(UserError, match="is not TOML"):
        read_toml(tmp_path / "a.toml")


@pytest.mark.parametrize("content", [b"{", b"\xff", b"9" * 5000, b"[" * 100_000])
def test_what_is_no_json_for_whatever_reason_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.json is not JSON"):
        read_json(tmp_path / "a.json")
