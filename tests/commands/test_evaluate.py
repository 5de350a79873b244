"""Tests of the command line of `regard evaluate`, on good and bad files of translations."""

import gzip
import json
import lzma
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import UserError
from regard.evaluate.command import EvaluationSettings
from regard.evaluate.command import run as evaluate
from regard.evaluate.metrics import has_mecab
from regard.evaluate.report import to_json
from tests.commands.process import run
from tests.commands.test_prepare import text

REFERENCES = [
    f"the {animal} {verb} in the garden today ." for animal in ("dog", "cat", "bird") for verb in ("runs", "sleeps")
]
SOURCES = [f"{animal} {verb} heute im Garten ." for animal in ("Hund", "Katze", "Vogel") for verb in ("läuft", "schläft")]
GOOD = [line.replace("today", "now") if n == 3 else line for n, line in enumerate(REFERENCES)]
BAD = ["a dog ran", "", SOURCES[2], "the cat sleeps <b>here</b>", "bird bird bird", "the bird sleeps in the garden"]
FEW = ["--num-resamples", "50"]
JAPANESE = "ja-mecab" if has_mecab() else "char"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return text.__wrapped__(tmp_path_factory.mktemp("corpus"))  # type: ignore[attr-defined, no-any-return]


@pytest.fixture(scope="module")
def trained(corpus: Path) -> Path:
    """Return a run that has learnt next to nothing."""
    return regard.train(
        {
            "preset": "tiny",
            "data": {
                "train": [{"src": str(corpus / "train.de"), "tgt": str(corpus / "train.en")}],
                "valid": {"src": str(corpus / "valid.de"), "tgt": str(corpus / "valid.en")},
                "src_lang": "de",
                "tgt_lang": "en",
                "vocab_size": 300,
            },
            "train": {"steps": 2, "batch_tokens": 256, "device": "cpu", "bleu_sentences": 0},
        },
        corpus / "trained",
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = {
        "test.de": SOURCES,
        "ref.en": REFERENCES,
        "good.en": GOOD,
        "bad.en": BAD,
        "one.en": ["only one line"],
        "single.en": ["only a line"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (tmp_path / "other.en.xz").write_bytes(lzma.compress("".join(f"{line}\r\n" for line in GOOD).encode()))
    (tmp_path / "test.de.gz").write_bytes(gzip.compress((tmp_path / "test.de").read_bytes()))
    (tmp_path / "nothing.en").write_bytes(b"")
    (tmp_path / "latin.en").write_bytes(b"the dog\nM\xfcller\n" + b"x\n" * 4)
    (tmp_path / "folder").mkdir()
    return tmp_path


def test_two_systems_are_measured_compared_printed_and_written(folder: Path) -> None:
    files = ["--src", f"{folder}/test.de.gz", "--ref", f"{folder}/ref.en", "--ref", f"{folder}/other.en.xz"]
    result = run("evaluate", f"{folder}/bad.en", "--versus", f"{folder}/good.en", *files, *FEW, "-o", f"{folder}/new/out")
    assert result.returncode == 0, result.stderr
    assert result.stderr == "", "progress is for terminals"
    assert result.stdout.startswith("bad.en and good.en, de → en: 6 sentences, 2 references for each\n")
    assert re.search(r"^BLEU\|nrefs:2\|bs:50\|seed:12345\|\S+\|version:[\d.]+$", result.stdout, flags=re.MULTILINE)
    for metric in ("BLEU", "chrF2", "TER"):
        assert re.search(
            rf"^good\.en is better than bad\.en by [\d.]+ {metric}\b.*, p = 0\.02$", result.stdout, re.MULTILINE
        )
    assert (
        "bad.en: translations that are exactly a reference 0 (0.0%), empty 1 (16.7%), left as the source 1" in result.stdout
    )
    assert "good.en: brevity penalty 1.000" in result.stdout and "source words" in result.stdout
    assert result.stdout.endswith(f"the same as data: {folder}/new/out/evaluation.json\n")
    report = json.loads((folder / "new" / "out" / "evaluation.json").read_text(encoding="utf-8"))
    assert [system["name"] for system in report["systems"]] == ["bad.en", "good.en"]
    assert [one["translations"] for one in report["sentences"]] == [list(pair) for pair in zip(BAD, GOOD, strict=True)]
    assert report["sentences"][3]["references"] == [REFERENCES[3], GOOD[3]], "\\r is no part of a line"
    assert report["sentences"][0]["source"] == SOURCES[0] and report["settings"]["num_resamples"] == 50
    assert [score["score"] for score in report["systems"][1]["scores"]] == pytest.approx([100, 100, 0])
    assert {len(one["chrf"]) for one in report["gains"]} == {2} and report["comparisons"][2]["difference"] < 0
    page = (folder / "new" / "out" / "evaluation.html").read_text(encoding="utf-8")
    assert "the cat sleeps \\u003cb>here\\u003c/b>" in page and "<b>here" not in page


def test_a_file_alone_needs_no_source_and_writes_where_it_is_run(folder: Path) -> None:
    result = run("evaluate", "bad.en", "--ref", "ref.en", *FEW, cwd=folder)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("bad.en, en: 6 sentences, 1 reference for each\n") and "reference words" in result.stdout
    assert "left as the source" not in result.stdout
    report = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert report["systems"][0]["num_untranslated"] is None and (folder / "evaluation.html").exists()
    assert report["settings"]["system"] == "bad.en" and report["comparisons"] == []


def test_a_runs_translations_are_measured_and_kept_with_it(corpus: Path, trained: Path) -> None:
    files = ["--src", f"{corpus}/valid.de", "--ref", f"{corpus}/valid.en"]
    search = ["--beam", "2", "--alpha", "1.0", "--batch-tokens", "64", "--device", "cpu"]
    result = run("evaluate", str(trained), *files, *search, *FEW)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("trained, de → en: 20 sentences, 1 reference for each\n")
    assert (
        result.stdout.endswith(f"the same as data: {trained}/evaluation.json\n") and (trained / "evaluation.html").exists()
    )
    sources = (corpus / "valid.de").read_text(encoding="utf-8").splitlines()
    expected = regard.load(trained, device="cpu").translate(sources, regard.Search(beam=2, alpha=1.0))
    report = json.loads((trained / "evaluation.json").read_text(encoding="utf-8"))
    translations = [one["translations"][0] for one in report["sentences"]]
    assert translations == [translation.text for translation in expected]
    (corpus / "same.en").write_text("".join(f"{line}\n" for line in translations), encoding="utf-8")
    settings = EvaluationSettings(
        system=f"{corpus}/same.en",
        versus=str(trained),
        refs=(f"{corpus}/valid.en",),
        src=f"{corpus}/valid.de",
        beam=2,
        alpha=1.0,
        device="cpu",
        num_resamples=40,
        output=str(corpus / "out"),
    )
    evaluate(settings)
    report = json.loads((corpus / "out" / "evaluation.json").read_text(encoding="utf-8"))
    written = set(corpus.rglob("*"))
    value = regard.evaluate(
        corpus / "same.en",
        versus=trained,
        refs=[corpus / "valid.en"],
        src=corpus / "valid.de",
        beam=2,
        alpha=1.0,
        device="cpu",
        num_resamples=40,
    )
    assert json.loads(json.dumps(to_json(value, report["settings"]))) == report
    assert set(corpus.rglob("*")) == written, "the function writes nothing"
    with pytest.raises(UserError, match=r"refs must be a list of files; give \['valid\.en'\]"):
        regard.evaluate(corpus / "same.en", refs="valid.en")
    assert all(one["words"].startswith("no difference between same.en and trained in ") for one in report["comparisons"])


def test_what_a_run_needs(corpus: Path, trained: Path) -> None:
    with pytest.raises(ValueError, match=r"trained is a run and needs text to translate; give it with --src"):
        evaluate(EvaluationSettings(system=str(trained), refs=(f"{corpus}/valid.en",)))
    with pytest.raises(
        ValueError, match=r"valid\.en looks like en, but .*trained translates from de; are --src and --ref swapped"
    ):
        evaluate(EvaluationSettings(system=str(trained), src=f"{corpus}/valid.en", refs=(f"{corpus}/valid.de",)))


@pytest.mark.parametrize(("language", "tokenizer"), [(None, "13a"), ("zh", "zh"), ("ja", JAPANESE)])
def test_the_tokenizer_follows_the_language(
    folder: Path, language: str | None, tokenizer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = f"{folder}/one.en", f"{folder}/single.en"
    evaluate(EvaluationSettings(system=one, refs=(other,), tgt_lang=language, num_resamples=40, output=str(folder)))
    told = capsys.readouterr().out
    assert f"|tok:{tokenizer}" in told
    assert "note: one sentence has no interval, and no difference on it can be tested\n" in told


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"system": "one.en"},
            "one.en has 1 line and ref.en has 6; a line of one must belong to the same line of the other",
        ),
        ({"refs": ("ref.en", "one.en")}, "one.en has 1 line and ref.en has 6; "),
        ({"src": "one.en"}, "one.en has 1 line and ref.en has 6; "),
        ({"versus": "one.en"}, "one.en has 1 line and ref.en has 6; "),
        ({"system": "nothing.en", "refs": ("nothing.en",)}, "no text in nothing.en; give at least one line"),
        ({"system": "nothing.en"}, "nothing.en has 0 lines and ref.en has 6; "),
        ({"system": "latin.en"}, "latin.en:2: byte 2 of the line (0xfc) is not UTF-8; "),
        ({"system": "absent.en"}, "there is no run or file absent.en"),
        ({"refs": ("absent.en",)}, "there is no file absent.en"),
        ({"refs": ("folder",)}, "folder is a folder; give a file"),
        ({"versus": "./good.en"}, "good.en cannot be compared with itself; give another --versus"),
        ({"system": "folder"}, "folder is not a run: it has no config.json"),
        ({"system": "folder", "src": "test.de"}, "folder is not a run: it has no config.json"),
        ({"output": "bad.en"}, "bad.en is a file; -o needs a folder"),
        ({"refs": ()}, "there is nothing to compare with; give a file of references"),
        ({"num_resamples": 0}, "0 resamples; give from 40 to 1,000,000"),
        ({"tokenize": "13A"}, "sacreBLEU has no tokenizer '13A'; did you mean 13a?"),
        ({"tokenize": "moses"}, "sacreBLEU has no tokenizer 'moses'; choose one of none, zh, 13a, intl, "),
    ],
)
def test_mistakes_get_one_sentence(
    folder: Path, changes: dict[str, Any], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run in this process, because there are many cases."""
    monkeypatch.chdir(folder)
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the sentence is compared
        evaluate(replace(EvaluationSettings(system="good.en", refs=("ref.en",), num_resamples=40), **changes))
    assert str(raised.value).startswith(sentence)
    assert not list(folder.glob("**/evaluation.*"))


def test_the_published_metric_is_asked_for_by_flags(folder: Path) -> None:
    (folder / "loud.en").write_text("".join(f"{line.upper()}\n" for line in REFERENCES), encoding="utf-8")
    files = [f"{folder}/loud.en", "--ref", f"{folder}/ref.en", "-o", str(folder), *FEW]
    result = run("evaluate", *files, "--lowercase", "--tokenize", "intl")
    assert result.returncode == 0, result.stderr
    assert "\nBLEU|nrefs:1|bs:50|seed:12345|case:lc|eff:no|tok:intl|smooth:exp|" in result.stdout
    report = json.loads((folder / "evaluation.json").read_text(encoding="utf-8"))
    assert report["systems"][0]["scores"][0]["score"] == pytest.approx(100)
    assert report["settings"]["lowercase"] and report["settings"]["tokenize"] == "intl"


@pytest.mark.skipif(has_mecab(), reason="MeCab is installed")
def test_a_tokenizer_that_is_not_installed_is_said_to_be_so(folder: Path) -> None:
    with pytest.raises(ValueError, match=r"^sacreBLEU's tokenizer ja-mecab is not installed: pip install sacrebleu\[ja\]$"):
        evaluate(EvaluationSettings(system=f"{folder}/one.en", refs=(f"{folder}/single.en",), tokenize="ja-mecab"))


def test_a_mistake_is_exit_code_2_and_no_traceback(folder: Path) -> None:
    result = run("evaluate", f"{folder}/one.en", "--ref", f"{folder}/ref.en", *FEW)
    counts = f"{folder}/one.en has 1 line and {folder}/ref.en has 6"
    sentence = f"regard: {counts}; a line of one must belong to the same line of the other\n"
    assert (result.returncode, result.stdout, result.stderr) == (2, "", sentence)
