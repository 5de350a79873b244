"""Tests of the command lines of `regard translate`, `regard score` and `regard info`, on a small trained run."""

import json
import lzma
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.commands import process
from tests.oracles.runs import make_tokenizer, make_translator, write_run

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
SOURCE = RUN / "source.de"
STORED = [json.loads(line) for line in (RUN / "translations.jsonl").read_text(encoding="utf-8").splitlines()]


def run(*arguments: str | Path, text: str = "") -> subprocess.CompletedProcess[str]:
    return process.run(*map(str, arguments), text=text)


def test_lines_go_in_and_come_out_in_order() -> None:
    """Use Windows line ends, empty lines, and no newline at the end."""
    sources = [line["source"] for line in STORED[:5]]
    text = "\r\n".join([sources[0], "", *sources[1:]])
    result = run("translate", RUN, text=text)
    assert result.returncode == 0, result.stderr
    texts = [line["text"] for line in STORED[:5]]
    assert result.stdout.splitlines() == [texts[0], "", *texts[1:]]
    assert result.stderr == ""


def test_files_in_and_out_and_alignments(tmp_path: Path) -> None:
    packed = tmp_path / "source.de.xz"
    packed.write_bytes(lzma.compress(SOURCE.read_bytes()))
    out, links = tmp_path / "out.en", tmp_path / "links"
    result = run("translate", RUN, packed, "-o", out, "--align", links, "--batch-size", "7")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert out.read_text(encoding="utf-8").splitlines() == [line["text"] for line in STORED]
    first = links.read_text().splitlines()[0].split()
    assert all(part.count("-") == 1 for part in first)
    assert {int(part.split("-")[1]) for part in first} == set(range(len(STORED[0]["text"].split())))


def test_scores_are_those_of_the_scoring_command(tmp_path: Path) -> None:
    """Compare `--json` and `--nbest` with `regard score --pieces` of the pieces themselves."""
    details = [json.loads(line) for line in run("translate", RUN, SOURCE, "--json").stdout.splitlines()]
    pieces = tmp_path / "pieces"
    pieces.write_text(run("translate", RUN, SOURCE, "--pieces").stdout, encoding="utf-8")
    for alpha, key in (("0.6", "score"), ("0", "log_prob")):
        scored = run("score", RUN, "--src", SOURCE, "--tgt", pieces, "--pieces", "--alpha", alpha)
        assert scored.returncode == 0, scored.stderr
        assert "perplexity" in scored.stderr
        for line, detail in zip(scored.stdout.splitlines(), details, strict=True):
            assert float(line) == pytest.approx(detail[key], abs=1e-4)
    with_tokens = run("score", RUN, "--src", SOURCE, "--tgt", pieces, "--pieces", "--tokens").stdout.splitlines()[0]
    total, tokens = with_tokens.split("\t")
    fields = tokens.split(" ")
    assert fields[::2] == [token["piece"] for token in details[0]["tokens"]]
    assert sum(map(float, fields[1::2])) == pytest.approx(float(total), abs=1e-4)
    best = run("translate", RUN, SOURCE, "--nbest", "3").stdout.splitlines()
    assert len(best) == 3 * len(STORED)
    number, text, features, score = best[3].split(" ||| ")
    assert (number, text) == ("1", STORED[1]["text"])
    assert float(score) == pytest.approx(details[1]["score"], abs=1e-4)
    assert float(features.removeprefix("log_prob= ")) == pytest.approx(details[1]["log_prob"], abs=1e-4)


def test_translations_that_were_cut_are_counted(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    write_run(tmp_path / "endless", make_translator(tokenizer, ending=-50.0), tokenizer)
    for text, said in (("a", "1 translation reached its"), ("a\n\nb", "2 translations reached their")):
        result = run("translate", tmp_path / "endless", "--json", "--beam", "1", text=text)
        assert result.returncode == 0, result.stderr
        assert [json.loads(line)["ended"] for line in result.stdout.splitlines()] == [not line for line in text.split("\n")]
        assert result.stderr.strip() == f"{said} maximum length and may be cut"


def test_a_long_line_is_translated_in_parts_and_that_is_said() -> None:
    text = " ".join(line["source"] for line in STORED[:8])
    result = run("translate", RUN, text=f"kurz\n{text}\n")
    assert result.stdout.splitlines()[1] == " ".join(line["text"] for line in STORED[:8])
    assert result.stderr.replace("\n", " ").strip() == (
        "line 2 is longer than what this model learnt from (45 subwords); it was translated in 8 parts"
    )


def test_drawing_prefixes_and_minimum_risk(tmp_path: Path) -> None:
    beginnings = tmp_path / "beginnings"
    beginnings.write_text("We are\n\n", encoding="utf-8")
    result = run("translate", RUN, "--prefixes", beginnings, text="Ich bin müde.\nIch bin müde.\n")
    assert result.stdout.startswith("We are ")
    once, again, other = (
        run("translate", RUN, "--sample", "4", "--seed", seed, "--mbr", text="Ich bin müde.\n").stdout for seed in "112"
    )
    assert once == again
    assert once.strip() and other.strip()


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    command = f"{sys.executable} -m regard translate {RUN} {SOURCE} --batch-size 1 | head -1; echo ${{PIPESTATUS[0]}}"
    result = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert result.stderr == ""
    assert result.stdout.splitlines()[0] == STORED[0]["text"]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["/no/such/run", SOURCE], "there is no run /no/such/run"),
        ([RUN, "/no/such/file"], "there is no file /no/such/file"),
        ([RUN, SOURCE, "-o", SOURCE], "is given twice, to read from or to write to; give another file to write to"),
        ([RUN, RUN / "config.json", "--prefixes", SOURCE, "-o", SOURCE], "is given twice"),
        ([RUN, SOURCE, "-o", "/tmp/same", "--align", "/tmp/same"], "/tmp/same is given twice"),
        ([RUN, SOURCE, "-o", "/no/such/folder/x"], "there is no folder /no/such/folder to write x into"),
        ([RUN, SOURCE, "--batch-size", "3", "--batch-tokens", "3"], "give one of them"),
        ([RUN, SOURCE, "--nbest", "9"], "9 translations cannot come from a beam of 4"),
        ([RUN, SOURCE, "--prefixes", "/dev/null"], "/dev/null ends after line 0, but the text to translate goes on"),
        ([RUN, SOURCE, "--json", "--pieces"], "--json, --pieces and --nbest are different formats"),
        ([RUN, SOURCE, "--sample", "1", "--temperature", "0"], "the temperature is 0.0"),
        ([RUN, SOURCE, "--top-p", "0.5"], "control sampling; give --sample, too"),
        ([RUN, SOURCE, "-o", RUN], "is a folder; give a file to write to"),
        ([RUN, SOURCE, "--device", "abacus"], "the device 'abacus' is not available here"),
    ],
)
def test_mistakes_get_one_sentence(arguments: list[str | Path], sentence: str) -> None:
    result = run("translate", *arguments)
    assert result.returncode == 2
    assert result.stderr.startswith("regard: ")
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert SOURCE.read_text(encoding="utf-8").startswith(STORED[0]["source"])


def test_what_was_there_stays_until_there_is_something_whole(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("precious\n")
    result = run("translate", RUN, "-o", out, "--prefixes", "/dev/null", text="Ich bin müde.\n")
    assert result.returncode == 2
    assert (out.read_text(), sorted(path.name for path in tmp_path.iterdir())) == ("precious\n", ["out"])
    packed = tmp_path / "out.xz"
    assert run("translate", RUN, SOURCE, "-o", packed).returncode == 0
    assert lzma.decompress(packed.read_bytes()).decode().splitlines() == [line["text"] for line in STORED]


def test_score_notices_what_does_not_fit(tmp_path: Path) -> None:
    short = tmp_path / "short"
    short.write_text("one\n")
    result = run("score", RUN, "--src", SOURCE, "--tgt", short)
    assert (result.returncode, result.stderr) == (
        2,
        f"regard: {SOURCE} has 40 lines and {short} has 1; they must be equally many\n",
    )
    one = tmp_path / "one"
    one.write_text("Ich bin müde.\n", encoding="utf-8")
    result = run("score", RUN, "--src", one, "--tgt", one, "--pieces")
    assert (result.returncode, result.stdout) == (2, "")
    assert "target 1: 'Ich' is not a subword of this model" in result.stderr


def test_info_says_what_a_run_is_and_whether_it_is_intact(tmp_path: Path) -> None:
    result = run("info", RUN)
    assert result.returncode == 0, result.stderr
    for words in ("de → en", "2 + 2 layers", "231,424", "1,741 of 1,741 steps", "BLEU 19.14", "all as they were written"):
        assert words in result.stdout
    table = json.loads(run("info", RUN, "--json").stdout)
    assert table["num_parameters"] == 231_424
    assert table["config"]["model"]["d_model"] == 64
    shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "run" / "manifest.json").rename(tmp_path / "manifest.json")
    result = run("info", tmp_path / "run")
    assert result.returncode == 1
    assert "DAMAGED or missing: manifest.json" in result.stdout
    (tmp_path / "manifest.json").rename(tmp_path / "run" / "manifest.json")
    with (tmp_path / "run" / "model.safetensors").open("r+b") as file:
        file.seek(500_000)
        file.write(b"\xff")
    result = run("info", tmp_path / "run")
    assert result.returncode == 1
    assert "DAMAGED or missing: model.safetensors" in result.stdout
    result = run("translate", tmp_path / "run", text="Ich\n")
    assert result.returncode == 2
    assert "model.safetensors is missing or not what was written" in result.stderr


def test_bench_search_and_decode_print_what_they_found(tmp_path: Path) -> None:
    result = run("bench", "search", RUN, SOURCE, "--lines", "6", "--batch", "1", "--batch", "4")
    assert result.returncode == 0, result.stderr
    assert "4 at once against 1: 6 equal, 0 ties, 0 different" in result.stdout
    assert "beam 8 against 4:" in result.stdout
    report = tmp_path / "decode.json"
    sizes = ["--sentences", "4", "--rounds", "1", "--batch", "2", "--max-length", "20", "--beam", "4", "--beam", "1"]
    result = run("bench", "decode", RUN, SOURCE, *sizes, "--json", report)
    assert result.returncode == 0, result.stderr
    assert "times as long as" in result.stdout
    assert "beam 4, 2 at once, 4 sentences in all" in result.stdout and "greedy, 2 at once" in result.stdout
    for beam in ("4", "1"):
        found = json.loads(report.read_text())["beams"][beam]["2"]
        assert set(found["tokens_per_second"]) == {"regard", "Hugging Face generate", "CTranslate2", "CTranslate2 int8"}
        for engine in ("Hugging Face generate", "CTranslate2"):
            agreement = found["agreement"][engine]
            assert agreement["equal"] + agreement["ties"] == 4
