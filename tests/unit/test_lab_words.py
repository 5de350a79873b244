"""Tests of the lab's texts: the same keys in both languages, all of them used, and every placeholder filled."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from string import Formatter
from typing import Any

import pytest

import regard.lab
from regard.lab import ablations, alignment, bottleneck, cost, systems
from regard.lab.ablations import JudgedVariant
from regard.lab.alignment import MEAN, WHERE, Attention
from regard.lab.bottleneck import KINDS, LENGTHS, TASKS, Contest
from regard.lab.experiment import Setting
from regard.lab.experiments import EXPERIMENTS
from regard.lab.result import Result, TableData, Term, Value
from regard.lab.words import LANGUAGES, Speaker, texts, told, words
from tests.unit.test_lab_experiments import QUICK
from tests.unit.test_lab_training import bench_of, runs_of

SOURCE = "".join(path.read_text(encoding="utf-8") for path in Path(regard.lab.__file__).parent.glob("*.py"))


def leaves(table: Mapping[str, Any], at: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Return every text of a file with its path of keys."""
    for key, value in table.items():
        if isinstance(value, str):
            yield (*at, key), value
        elif isinstance(value, list):
            yield from (((*at, key, str(place)), text) for place, text in enumerate(value))
        else:
            yield from leaves(value, (*at, key))


def placeholders(template: str) -> set[str]:
    return {re.split(r"[.\[]", name)[0] for _, name, _, _ in Formatter().parse(template) if name}


def result_of(name: str) -> Result:
    """Return the experiment's own result if it takes seconds, else one made of numbers of the same kind."""
    if name == "bottleneck":
        shares = {Contest(kind, task, 1): (0.5,) * len(LENGTHS) for kind in KINDS for task in range(len(TASKS))}
        return bottleneck.told(shares, dict.fromkeys(KINDS, 1000), (1,), 50)
    if name.startswith("systems"):
        return systems.told(
            "a corpus", bench_of(["a"] * 20), [runs_of(kind, (5.0, 4.0, 3.0, 2.0, 1.0)) for kind in systems.KINDS]
        )
    if name == "ablations":
        judged = [
            JudgedVariant(one.name, (20.0,), (2.0,), (1.0,), 7, n - 5.0, None if n == 0 else n % 3 / 10)
            for n, one in enumerate(ablations.VARIANTS)
        ]
        return ablations.told(judged, (1,), 10, "a machine")
    if name == "alignment":
        rates = {
            Attention(where, layer, head): 0.1 * layer for where in WHERE for layer in range(6) for head in (MEAN, 0, 1)
        }
        return alignment.told({"transformer": rates, "rnn-attention": rates}, 9, 1, "a machine")
    [experiment] = [one for one in EXPERIMENTS if one.name == name]
    return experiment.run(Setting(seconds=0.0))


def test_both_languages_have_the_same_keys_and_no_text_is_empty() -> None:
    english, chinese = (dict(leaves(texts(language))) for language in LANGUAGES)
    assert english.keys() == chinese.keys()
    assert all(text.strip() for one in (english, chinese) for text in one.values())
    assert set(texts("en")["experiments"]) == {one.name for one in EXPERIMENTS}


def test_english_has_no_chinese_and_chinese_has_full_width_punctuation() -> None:
    for keys, text in leaves(texts("en")):
        assert not re.search(r"[\u4e00-\u9fff]", text) or keys[1] == "bare-attention", keys
        assert not re.search(r"[，。：；（）、]", text), keys
    for keys, text in leaves(texts("zh")):
        assert not re.search(r"[\u4e00-\u9fff][,;:]|[,;:(][\u4e00-\u9fff]", text), keys


@pytest.mark.parametrize("name", [one.name for one in EXPERIMENTS])
def test_every_placeholder_is_filled_and_every_key_is_used(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A missing number or text is a KeyError of `told`; check for unused ones."""
    monkeypatch.setattr(cost, "seconds_of", lambda *_: 1.0)
    seen: set[str] = set()
    label = Speaker.label

    def noted(speaker: Speaker, one: str | Term) -> str:
        seen.update([one.key] if isinstance(one, Term) else [])
        return label(speaker, one)

    monkeypatch.setattr(Speaker, "label", noted)
    result = result_of(name)
    told(name, (), result)
    own = [texts(language)["experiments"][name] for language in LANGUAGES]
    assert own[0].get("tables", {}).keys() == result.tables.keys()
    assert own[0].get("charts", {}).keys() == result.charts.keys()
    filled = {one for text in own for keys, value in leaves(text) if keys[0] != "terms" for one in placeholders(value)}
    assert filled == result.values.keys()
    terms = own[0]["terms"].keys() - texts("en")["terms"].keys()
    assert [term for term in terms - seen if f'"{term}"' not in SOURCE] == []


def test_shared_words_are_used() -> None:
    for key in (*texts("en")["terms"], *texts("en")["page"]):
        assert f'"{key}"' in SOURCE or f"'{key}'" in SOURCE, key


def test_a_list_is_written_with_the_commas_of_its_language(monkeypatch: pytest.MonkeyPatch) -> None:
    for language in LANGUAGES:
        made = {"title": "{some:.1f} {none} {terms}", "claim": "-", "outcome": "{of[a-b]:.0%}", "terms": {"one": "<{n:,}>"}}
        monkeypatch.setitem(texts(language)["experiments"], "made", made)
    values: dict[str, Value] = {
        "some": [1.0, 2.25],
        "none": [],
        "terms": (Term("one", {"n": 1000}),) * 2,
        "of": {"a-b": 0.5},
    }
    finding = told("made", (), Result("held", values))
    assert (finding.title.en, finding.title.zh) == ("1.0, 2.2 – <1,000>, <1,000>", "1.0、2.2 – <1,000>、<1,000>")
    assert finding.outcome.en == "50%"
    with pytest.raises(KeyError, match="of"):
        told("made", (), Result("held", {"some": 1.0, "none": "", "terms": ""}))


def test_a_table_has_a_heading_for_each_column(monkeypatch: pytest.MonkeyPatch) -> None:
    for language in LANGUAGES:
        made = {"title": "t", "claim": "c", "outcome": "o", "terms": {}, "tables": {"t": {"title": "t", "columns": ["a"]}}}
        monkeypatch.setitem(texts(language)["experiments"], "made", made)
    [table] = told("made", (), Result("held", tables={"t": TableData([(1, 2.5)], columns=["b"])})).tables
    assert [column.en for column in table.columns] == ["a", "b"]
    with pytest.raises(AssertionError, match="does not fit its columns"):
        told("made", (), Result("held", tables={"t": TableData([(1, 2.5)])}))


def test_words_stand_in_both_languages() -> None:
    assert (words("verdicts", "held").en, words("verdicts", "held").zh) == ("held", "成立")
    assert len(QUICK) > 15
