"""Tests of the command line of `regard lab`."""

import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.lab import command, words
from regard.lab.command import LabSettings
from regard.lab.experiment import Experiment, Setting
from regard.lab.experiments import EXPERIMENTS
from regard.lab.finding import from_json, to_json
from regard.lab.result import Result
from tests.commands.process import run
from tests.unit.test_lab_finding import finding

WITHOUT_CORPUS = [one for one in EXPERIMENTS if not one.needs_corpus]


def test_without_a_name_it_lists_all() -> None:
    result = run("lab")
    assert result.returncode == 0, result.stderr
    for one in EXPERIMENTS:
        assert f"\n{one.name} " in result.stdout
    assert "softmax([a, a, 2a])" in result.stdout  # brackets are not taken for markup
    assert "实验" in run("lab", "--lang", "zh").stdout


def test_the_documentation_lists_all() -> None:
    document = (Path(__file__).parents[2] / "docs" / "lab.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([\w-]+)` \| ([^|]*)\|", document, flags=re.MULTILINE)
    claims = {one.name: ", ".join(claim for claim in one.claims if not claim.isdigit()) for one in EXPERIMENTS}
    assert {name: listed.strip() for name, listed in rows} == claims


def test_one_is_printed_and_written(tmp_path: Path) -> None:
    result = run("lab", "bare-attention", "saturation", "--seed", "4", "-o", str(tmp_path / "new" / "two.json"))
    assert result.returncode == 0, result.stderr
    for text in ("Large scores saturate softmax: held (M17)", "Note 004", "0.9999092083843412", "早"):
        assert text in result.stdout
    assert "2/2 saturation … held" in result.stderr
    found = from_json((tmp_path / "new" / "two.json").read_text(encoding="utf-8"))
    assert [one.name for one in found] == ["bare-attention", "saturation"]
    assert found[1].command == "regard lab saturation --seed 4"
    assert "torch" in found[1].machine


def test_a_page_in_chinese_with_what_is_stored(tmp_path: Path) -> None:
    (tmp_path / "docs" / "lab").mkdir(parents=True)
    stored = to_json([finding().__class__(**{**vars(finding()), "name": "rank"})])
    (tmp_path / "docs" / "lab" / "gpu.json").write_text(stored, encoding="utf-8")
    result = run("lab", "rank", "--lang", "zh", "-o", "rank.html", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert "注意力权重矩阵的秩: 不成立 (笔记 002)" in result.stdout
    page = (tmp_path / "rank.html").read_text(encoding="utf-8")
    assert 'data-language="zh">' in page
    assert page.count("<section ") == 2
    assert 'class="stored"' in page


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["causalty"], "there is no experiment 'causalty'; did you mean causality?"),
        (["xyz"], "there is no experiment 'xyz'; `regard lab` lists them"),
        (["all", "rank"], "name experiments, or say all, not both"),
        (["rank", "-o", "rank.pdf"], "rank.pdf must end in .html or .json"),
        (["rank", "--stored", "nowhere"], "there is no folder nowhere"),
        (["rank", "--stored", "bad"], "bad/one.json holds no findings of the lab: this is not JSON"),
        (["rank", "--device", "abacus"], "the device 'abacus' is not available here"),
        (["rank", "systems", "-o", "bad/one.json"], "systems trains on a corpus; give the folder in which the corpora are"),
        (["all", "--minutes", "0"], "--minutes"),
        (["all", "--minutes", "soon"], "--minutes"),
        (["rank", "--lang", "de"], "--lang"),
    ],
)
def test_mistakes_get_one_sentence_and_exit_code_2(tmp_path: Path, arguments: list[str], sentence: str) -> None:
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "one.json").write_text("{", encoding="utf-8")
    result = run("lab", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.stderr
    assert {path.name for path in tmp_path.iterdir()} == {"bad"}
    assert (tmp_path / "bad" / "one.json").read_text(encoding="utf-8") == "{"  # the existing file is unchanged


@pytest.mark.slow
def test_all_within_minutes_is_one_page(tmp_path: Path) -> None:
    result = run("lab", "all", "--minutes", "0.1", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    page = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert page.count("<section ") > 0
    assert page.count("<section ") + page.count("the time was over") == len(WITHOUT_CORPUS)


@pytest.mark.slow
def test_where_no_time_passes_all_are_on_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: 0.0))
    command.run(LabSettings(("all",), tmp_path / "lab.html", minutes=0.001, stored=tmp_path))
    page = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert page.count("<section ") == len(WITHOUT_CORPUS) >= 15 and "the time was over" not in page


def made(name: str, seconds: float, told: list[tuple[str, float]], fails: bool = False) -> Experiment:
    def experiment(setting: Setting) -> Result:
        told.append((name, setting.seconds))
        if fails:
            raise KeyboardInterrupt
        return Result("held")

    return Experiment(name, ("M1",), seconds, experiment)


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add texts for the experiments that `made` makes."""
    for language in words.LANGUAGES:
        for name in ("short", "middle", "long", "stopped", "never"):
            texts: dict[str, object] = {"title": name, "claim": "c", "outcome": "o", "terms": {}}
            monkeypatch.setitem(words.texts(language)["experiments"], name, texts)


@pytest.mark.usefixtures("said")
def test_quick_ones_come_first_and_each_is_told_its_share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, float]] = []
    chosen = (made("long", 30.0, told), made("short", 10.0, told), made("middle", 20.0, told))
    monkeypatch.setattr(command, "EXPERIMENTS", chosen)
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)  # time stands still
    command.run(LabSettings(("all",), tmp_path / "lab.html", minutes=2.0, stored=tmp_path))
    assert told == [("short", 120 * 10 / 60), ("middle", 120 * 20 / 50), ("long", 120.0)]
    page = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert page.index('<section id="long"') < page.index('<section id="short"')
    told.clear()
    command.run(LabSettings(("short",)))
    assert told == [("short", 10)]


@pytest.mark.usefixtures("said")
def test_when_the_time_is_over_or_it_is_stopped_what_is_done_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, float]] = []
    chosen = (made("short", 1.0, told), made("stopped", 2.0, told, fails=True), made("never", 3.0, told))
    monkeypatch.setattr(command, "EXPERIMENTS", chosen)
    with pytest.raises(KeyboardInterrupt):
        command.run(LabSettings(("all",), tmp_path / "lab.json", stored=tmp_path / ""))
    assert [one.name for one in from_json((tmp_path / "lab.json").read_text(encoding="utf-8"))] == ["short"]
    clock = iter([0.0, 1.0, 1.0, 61.0, 61.0])  # start; the first is reported, begins and ends; the second is too late
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    (tmp_path / "lab.json").unlink()
    command.run(LabSettings(("all",), tmp_path / "lab.html", minutes=1.0, stored=tmp_path))
    page = (tmp_path / "lab.html").read_text(encoding="utf-8")
    assert page.count("<section ") == 1
    assert page.count("the time was over") == 2
