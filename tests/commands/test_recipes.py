"""Tests that recipes are read strictly, documented, and can be started, on corpora that are made here."""

import json
import lzma
import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from regard.cli.training_flags import overruled, within
from regard.config import CorpusConfig, DataConfig, RunConfig, TrainConfig
from regard.run.checkpoint import Run
from regard.settings import Table, merged, read_table, read_toml
from regard.train.command import _read_settings
from scripts.curves import curve
from tests.commands.process import run

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "recipes"
RECIPES = sorted(path.name for path in FOLDER.glob("*.toml"))
WORDS = {
    "de": ["Hund", "Katze", "läuft", "schläft", "heute", "gern"],
    "en": ["dog", "cat", "runs", "sleeps", "today", "gladly"],
    "ja": ["いぬ", "ねこ", "走る", "眠る", "今日", "喜んで"],
    "zh": ["狗", "猫", "跑", "睡", "今天", "高兴地"],
}
TINY = ["--preset", "tiny", "--steps", "2", "--vocab-size", "300", "--device", "cpu"]


def corpora_of(recipe: str) -> DataConfig:
    return read_table(DataConfig, read_toml(FOLDER / recipe)["data"], "data")


def files_of(recipe: str) -> Iterator[str]:
    data = corpora_of(recipe)
    for corpus in (*data.train, data.valid, *data.test):
        assert corpus is not None and corpus.tgt is not None
        yield from (corpus.src, corpus.tgt)


def language_of(name: str) -> str:
    return name.removesuffix(".xz").rpartition(".")[2]


def lines(name: str) -> list[str]:
    """Return the lines of a corpus's file: the same words in each language."""
    part = name.removesuffix(".xz").rpartition(".")[0]
    chance = random.Random(part)
    count = 12 if re.search(r"valid|dev|tune|test", part) else 200
    language = language_of(name)
    join = " ".join if language in ("de", "en") else "".join
    return [join(WORDS[language][n] for n in chance.choices(range(6), k=chance.randint(2, 9))) for _ in range(count)]


def make_corpora(folder: Path) -> Path:
    """Make small corpora with all the files that recipes name."""
    for name in sorted({name for recipe in RECIPES for name in files_of(recipe)}):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        content = "".join(f"{line}\n" for line in lines(name)).encode()
        path.write_bytes(lzma.compress(content) if name.endswith(".xz") else content)
    return folder


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Use one thread: models are tiny, and two threads on a busy machine take ten times as long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_corpora(tmp_path_factory.mktemp("corpora"))


def documented_files() -> set[str]:
    """Return the files in the table of corpora in recipes/README.md."""
    table = (FOLDER / "README.md").read_text(encoding="utf-8").partition("## The corpora")[2]
    found: set[str] = set()
    for folder, names in re.findall(r"^\| `([\w-]+)` \| (.*?) \|", table, flags=re.MULTILINE):
        words = re.findall(r"`([^`]+)`", names)
        suffixes = [word for word in words if word.startswith(".")]
        parts = [word for word in words if not word.startswith(".")]
        found |= {f"{folder}/{part}{suffix}" for part, suffix in product(parts, suffixes)}
    return found


def test_there_are_recipes() -> None:
    assert {"multi30k-en-de.toml", "kftt-ja-en.toml", "kftt-en-ja.toml", "wmt14-en-de-big.toml"} <= set(RECIPES)


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipes_are_read_strictly_and_name_documented_files(recipe: str) -> None:
    table = read_toml(FOLDER / recipe)
    data, _, train = _read_settings(table)
    config = read_table(RunConfig, merged(table, {"model": {"src_vocab_size": 8000, "tgt_vocab_size": 8000}}))
    assert config.data == data and train.steps + train.minutes > 0
    assert set(files_of(recipe)) <= documented_files()
    for name in files_of(recipe):
        assert language_of(name) in (config.data.src_lang, config.data.tgt_lang) and ".." not in name
    held_out = {corpus.src for corpus in (config.data.valid, *config.data.test) if corpus}
    assert not held_out & {corpus.src for corpus in config.data.train}
    words = (FOLDER / "README.md").read_text(encoding="utf-8")
    command = re.search(r"^#   (regard train .*)$", (FOLDER / recipe).read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert command is not None and f"`{command[1].replace('FOLDER', 'corpora')}`" in words


@pytest.mark.parametrize(("size", "steps"), [("base", 100_000), ("big", 300_000)])
def test_wmt_is_trained_as_in_the_paper(size: str, steps: int) -> None:
    table = read_toml(FOLDER / f"wmt14-en-de-{size}.toml")
    _, model, train = _read_settings(table)
    papers = TrainConfig()
    for name in ("batch_tokens", "schedule", "learning_rate", "warmup", "label_smoothing", "adam_beta2", "clip_norm"):
        assert getattr(train, name) == getattr(papers, name), name
    assert (train.steps, table["data"]["vocab_size"], table["paper"]) == (steps, 37_000, True)
    assert (model["d_model"], model["dropout"]) == {"base": (512, 0.1), "big": (1024, 0.3)}[size]


def test_kftt_is_the_same_both_ways() -> None:
    one, other = (read_toml(FOLDER / f"kftt-{pair}.toml") for pair in ("ja-en", "en-ja"))
    assert {key: one[key] for key in one if key != "data"} == {key: other[key] for key in other if key != "data"}
    there, back = corpora_of("kftt-ja-en.toml"), corpora_of("kftt-en-ja.toml")
    assert [CorpusConfig(src=str(two.tgt), tgt=two.src) for two in back.train] == list(there.train)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_is_one_command(recipe: str, corpora: Path, tmp_path: Path) -> None:
    command = ["train", "--config", str(FOLDER / recipe), "--corpora", str(corpora), "-o", str(tmp_path / "run"), *TINY]
    result = run(*command)
    assert result.returncode == 0, result.stderr
    config = Run(tmp_path / "run").read_config()
    expected = corpora_of(recipe)
    assert config.data.valid and expected.valid
    assert config.data.valid.src == str(corpora / expected.valid.src) and len(config.data.test) == len(expected.test)
    assert (config.train.steps, config.train.minutes, config.preset) == (2, 0, "tiny")
    assert config.train.learning_rate == read_toml(FOLDER / recipe)["train"].get("learning_rate", config.train.learning_rate)


def test_a_recipe_goes_on_and_another_seed_needs_no_text(corpora: Path, tmp_path: Path) -> None:
    config, one, two = ["train", "--config", str(FOLDER / "multi30k-en-de.toml")], tmp_path / "one", tmp_path / "two"
    for words in ("2 steps on cpu", "is finished"):
        result = run(*config, "--corpora", str(corpora), *TINY, "-o", str(one))
        assert result.returncode == 0 and words in result.stderr, result.stderr
    flags = ["--preset", "tiny", "--steps", "1", "--seed", "2", "--device", "cpu"]
    result = run(*config, "--data", str(one / "data"), *flags, "-o", str(two))
    assert result.returncode == 0, result.stderr
    assert Run(two).read_config().data == Run(one).read_config().data and Run(two).read_config().model.dropout == 0.3


def test_what_is_missing_gets_one_sentence_and_exit_code_2(corpora: Path, tmp_path: Path) -> None:
    (tmp_path / "half" / "multi30k").mkdir(parents=True)
    recipe, out = str(FOLDER / "multi30k-en-de.toml"), ["-o", str(tmp_path / "run")]
    for flags, sentence in (
        (["--config", recipe, "--corpora", "absent"], "there is no folder absent; --corpora is where a recipe's files are"),
        (["--config", recipe, "--corpora", "half"], "there is no file half/multi30k/valid.en.xz"),
        (["--config", recipe], "there is no file multi30k/valid.en.xz"),
        (["--corpora", "half"], "--corpora is the folder of the files that --config names; give it with --config, without"),
        (["--config", recipe, "--corpora", str(corpora), "--data", "half"], "--corpora is the folder of the files that "),
    ):
        result = run("train", *flags, *out, cwd=tmp_path)
        assert result.returncode == 2 and result.stderr.count("\n") == 1, result.stderr
        assert result.stderr.startswith(f"regard: {sentence}")
        assert not (tmp_path / "run").exists()


def test_flags_overrule_what_they_contradict() -> None:
    table: Table = {"data": {"vocab_size": 5}, "train": {"minutes": 6, "warmup": 8}}
    assert overruled(table, {"train": {"steps": 3}}) == {"data": {"vocab_size": 5}, "train": {"warmup": 8}}
    assert overruled(table, {"train": {"minutes": 3.0}})["train"] == {"warmup": 8}
    assert overruled(table, {"train": {"seed": 3}}) == table == overruled(table, {})
    assert overruled(table, {"prepared": "p"}) == {"train": {"minutes": 6, "warmup": 8}}


def test_only_files_are_looked_for_elsewhere(tmp_path: Path) -> None:
    table: Table = {
        "preset": "tiny",
        "data": {
            "train": [{"src": "a/b.en", "tgt": "/c.de", "weight": 2.0}, {"text": "d"}, 7],
            "valid": {"src": "e"},
            "src_lang": "en",
        },
    }
    expected = [{"src": f"{tmp_path}/a/b.en", "tgt": "/c.de", "weight": 2.0}, {"text": f"{tmp_path}/d"}, 7]
    changed = within(tmp_path, table)
    assert changed["data"] == {"train": expected, "valid": {"src": f"{tmp_path}/e"}, "src_lang": "en"}
    assert within(tmp_path, {"data": 3}) == {"data": 3}, "which others complain about"


def script(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False, env=environment)


@pytest.fixture(scope="module")
def tried(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return results and output of scripts/recipes.py for three ways, one of which is invalid."""
    output = tmp_path_factory.mktemp("tried")
    ways = ["as-it-is", "dropout=0,vocab_size=320", "dropout=3"]
    flags = ["--preset", "tiny", "--steps", "12", "--seeds", "1", "2", "--measure", "test", "--beam", "1"]
    recipe = [str(FOLDER / "multi30k-en-de.toml"), "--corpora", str(corpora), "-o", str(output)]
    result = script(str(ROOT / "scripts" / "recipes.py"), *recipe, *ways, *flags)
    assert result.returncode == 1 and not result.stderr, result.stderr
    return output, result.stdout


@pytest.mark.slow
def test_ways_to_train_are_compared_and_what_fails_is_told(tried: tuple[Path, str]) -> None:
    output, told = tried
    kept = read_results(output)
    assert {(one["way"], one["seed"]) for one in kept} == {
        (way, seed) for way in ("as-it-is", "dropout=0,vocab_size=320", "dropout=3") for seed in (1, 2)
    }
    assert len(list(output.glob("prepared-*"))) == 2, "prepared once for all that want it alike"
    for one in kept:
        if one["way"] == "dropout=3":
            assert one["error"] == "regard: model.dropout is 3.0; it must be at least 0 and below 1"
            continue
        assert one["steps"] == 12 and "error" not in one
        for name in ("multi30k/test_2016_flickr BLEU", "multi30k/test_2017_flickr BLEU, lower-cased"):
            assert 0 <= one[name] <= 100
    assert Run(output / "dropout=0+vocab_size=320-seed-2").read_config().model.dropout == 0
    assert re.search(r"^\| as-it-is \| 1, 2 \| 12 \(12–12\) \| ", told, flags=re.MULTILINE)
    assert re.search(r"^\| dropout=3 \| none \| ", told, flags=re.MULTILINE)


def read_results(output: Path) -> list[Table]:
    results: list[Table] = json.loads((output / "results.json").read_text(encoding="utf-8"))
    return results


@pytest.mark.slow
def test_curves_of_runs_are_one_picture(tried: tuple[Path, str], tmp_path: Path) -> None:
    output, _ = tried
    runs = [str(output / f"as-it-is-seed-{seed}") for seed in (1, 2)]
    result = script(str(ROOT / "scripts" / "curves.py"), *runs, "-o", str(tmp_path / "c.svg"), "--names", "one & two", "x")
    assert result.returncode == 0, result.stderr
    drawn = (tmp_path / "c.svg").read_text(encoding="utf-8")
    assert drawn.startswith("<svg") and "one &amp; two" in drawn and "validation BLEU" in drawn
    assert drawn.count('stroke-width="2"') == 4, "loss and BLEU of two runs"
    points = curve(Run(Path(runs[0])), "valid_nll")
    assert [second for second, _ in points] == sorted(second for second, _ in points) and points[0][0] > 0
    assert [step for step, _ in curve(Run(Path(runs[0])), "valid_nll", "updates")] == [12]
    result = script(
        str(ROOT / "scripts" / "curves.py"), str(ROOT / "tests" / "runs" / "0.1.0"), "-o", str(tmp_path / "d.svg")
    )
    assert result.returncode == 2 and "0.1.0 has no timing.jsonl, in which its curves would be" in result.stderr


@pytest.mark.slow
def test_the_plain_loop_learns(tmp_path: Path) -> None:
    """Learn to replace words by those of another language, from 400 pairs."""
    chance = random.Random(1)
    for part, count in (("train", 400), ("valid", 40)):
        rows = [chance.choices(range(6), k=chance.randint(2, 6)) for _ in range(count)]
        for language in ("de", "en"):
            words = "".join(" ".join(WORDS[language][n] for n in row) + "\n" for row in rows)
            (tmp_path / f"{part}.{language}").write_text(words, encoding="utf-8")
    sides = [f"--{flag}={tmp_path}/{name}" for flag, name in (("src", "train.de"), ("tgt", "train.en"))]
    sides += [f"--valid-{flag}={tmp_path}/{name}" for flag, name in (("src", "valid.de"), ("tgt", "valid.en"))]
    assert run("prepare", *sides, "--vocab-size", "300", "-o", str(tmp_path / "p")).returncode == 0
    sizes = (
        "--layers 1 --width 64 --heads 4 --dropout 0 --sentences 32 --learning-rate 3e-3 --warmup 50 --device cpu".split()
    )
    for steps, least in ((1, 0.0), (600, 60.0)):
        command = [str(FOLDER / "plain_loop.py"), str(tmp_path / "p"), "--minutes", "500", "--steps", str(steps), *sizes]
        result = script(*command, "-o", str(tmp_path / "translated.en"))
        assert result.returncode == 0, result.stderr
        bleu = re.search(r"^BLEU = ([\d.]+)", result.stdout, flags=re.MULTILINE)
        assert bleu is not None and float(bleu[1]) >= least
        assert re.search(rf"^{steps} updates? in [\d.]+ s, [\d,]+ target tokens/s$", result.stdout, flags=re.MULTILINE)
    assert len((tmp_path / "translated.en").read_text(encoding="utf-8").splitlines()) == 40
