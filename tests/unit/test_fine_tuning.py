"""Tests of runs that begin with another run's weights: what changes, and what must not."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

import regard
from regard.config import CleaningConfig, DataConfig
from regard.data.prepare import prepare
from regard.exchange.marian import import_marian
from regard.run.checkpoint import Run, Weights
from regard.settings import Table, read_table
from regard.text.tokenizer import Tokenizer
from regard.train import loop
from regard.train.command import run as train_command
from regard.train.loop import Training
from regard.translate.search import Search
from regard.translate.translator import load
from tests.oracles.marian_folder import SOURCES, Variant, write_marian_folder
from tests.oracles.runs import make_tokenizer, make_translator, sentences, write_run

GREEDY = Search(beam=1, max_extra=5)


def short_pairs(folder: Path, name: str = "short", *, count: int = 20, words: int = 2) -> str:
    """Write a file of pairs that are much shorter than the parents' training text."""
    texts = [" ".join(text.split()[:words]) for text in sentences(2 * count, seed=9)]
    path = folder / f"{name}.tsv"
    lines = [f"{one}\t{other}\n" for one, other in zip(texts[:count], texts[count:], strict=True)]
    path.write_text("".join(lines), encoding="utf-8")
    return str(path)


def given(parent: Path, folder: Path, **changes: Table) -> Table:
    """Return the settings of a child that learns next to nothing from short pairs."""
    cleaning = {"max_ratio": 0.0, "drop_copies": False}
    data = {"train": [{"src": short_pairs(folder)}], "valid": {"src": short_pairs(folder, "valid")}, "cleaning": cleaning}
    train = {"steps": 1, "learning_rate": 1e-30, "warmup": 1, "device": "cpu", "batch_tokens": 64, "bleu_sentences": 0}
    return {"start_from": str(parent), "data": data, "train": train} | changes


def changed(run: Run, **changes: object) -> None:
    config = replace(run.read_config(), **changes)  # type: ignore[arg-type]
    run.write_config(config, Weights("average", (1,), 1, final=True), regard.__version__)


def texts_of_any_length(seed: int, words: list[str]) -> list[str]:
    """Return texts of one to hundreds of words, with and without ends of sentences or clauses."""
    draw = random.Random(seed)
    texts = []
    for length in (1, 3, 8, 15, 30, 45, 60, 90, 150, 240):
        chosen = draw.choices(words, k=length)
        texts.append(" ".join(chosen))
        for mark, every in ((". ", 7), (", ", 5), ("! ", 40)):
            pieces = [" ".join(chosen[start : start + every]) for start in range(0, length, every)]
            texts.append(mark.join(piece.capitalize() for piece in pieces))
    return texts


def require_same_translations(parent: Path, child: Path, texts: list[str]) -> None:
    """Compare parts and weights, so that only a few translations are needed."""
    one, other = load(parent, device="cpu"), load(child, device="cpu")
    assert [[part.source for part in one.parts(text)] for text in texts] == [
        [part.source for part in other.parts(text)] for text in texts
    ]
    assert [found.text for found in one.translate(texts[:6], GREEDY)] == [
        found.text for found in other.translate(texts[:6], GREEDY)
    ]


@pytest.mark.parametrize(
    ("longest", "max_tokens", "child_max_tokens"),
    [(40, 256, None), (100, 256, 20), (100, 0, None), (300, 400, None), (90, 100, 0), (0, 60, 0), (0, 0, None)],
)
def test_a_child_that_learns_nothing_translates_as_its_parent(
    tmp_path: Path, longest: int, max_tokens: int, child_max_tokens: int | None
) -> None:
    tokenizer = make_tokenizer()
    parent = write_run(tmp_path / "parent", make_translator(tokenizer), tokenizer)
    data = replace(parent.read_config().data, cleaning=CleaningConfig(max_tokens=max_tokens), tgt_lang="zh")
    changed(parent, longest=longest, data=data)
    settings = given(parent.folder, tmp_path)
    if child_max_tokens is not None:
        settings["data"]["cleaning"]["max_tokens"] = child_max_tokens
    train_command(settings, tmp_path / "child")
    words = sorted({word for text in sentences(100) for word in text.split()})
    require_same_translations(parent.folder, tmp_path / "child", texts_of_any_length(1, words))
    assert (Run(tmp_path / "child").read_config().longest == 0) == (longest == 0)
    train_command(given(tmp_path / "child", tmp_path), tmp_path / "grandchild")
    require_same_translations(parent.folder, tmp_path / "grandchild", texts_of_any_length(2, words))
    train_command(settings, tmp_path / "child")  # the same command again finds the run finished


def test_a_child_of_an_imported_run_translates_as_its_parent(tmp_path: Path) -> None:
    write_marian_folder(tmp_path / "theirs", Variant())
    import_marian(tmp_path / "theirs", tmp_path / "parent")
    train_command(given(tmp_path / "parent", tmp_path), tmp_path / "child")
    assert Run(tmp_path / "child").read_config().longest == 0
    words = sorted({word for text in SOURCES for word in text.split()})
    require_same_translations(tmp_path / "parent", tmp_path / "child", texts_of_any_length(3, words))


def test_a_child_on_prepared_text_translates_as_its_parent(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    parent = write_run(tmp_path / "parent", make_translator(tokenizer), tokenizer)
    changed(parent, longest=120)
    settings = given(parent.folder, tmp_path)
    data = read_table(DataConfig, settings.pop("data"), "data")
    prepare(data, tmp_path / "prepared", tokenizer=Tokenizer.load(parent.folder))
    train_command(settings | {"prepared": str(tmp_path / "prepared")}, tmp_path / "child")
    words = sorted({word for text in sentences(100) for word in text.split()})
    require_same_translations(parent.folder, tmp_path / "child", texts_of_any_length(4, words))


def test_a_child_that_learns_from_longer_text_is_used_to_it(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    parent = write_run(tmp_path / "parent", make_translator(tokenizer), tokenizer)
    changed(parent, longest=2)
    train_command(given(parent.folder, tmp_path), tmp_path / "child")
    texts = (tmp_path / "short.tsv").read_text(encoding="utf-8").splitlines()
    longest = max(map(len, tokenizer.src.encode([line.split("\t")[0] for line in texts])))
    assert longest > 2
    assert Run(tmp_path / "child").read_config().longest == longest


def test_bpe_dropout_on_imported_subwords_is_refused_before_anything_is_there(tmp_path: Path) -> None:
    write_marian_folder(tmp_path / "theirs", Variant())
    import_marian(tmp_path / "theirs", tmp_path / "parent")
    settings = given(tmp_path / "parent", tmp_path)
    settings["train"]["bpe_dropout"] = 0.1
    with pytest.raises(ValueError, match=r"parent are imported; leave train\.bpe_dropout at 0"):
        train_command(settings, tmp_path / "child")
    assert not (tmp_path / "child").exists()


def test_too_few_learned_positions_are_told_before_there_is_a_run(tmp_path: Path) -> None:
    settings = given(tmp_path, tmp_path) | {"preset": "tiny", "model": {"positions": "learned", "max_positions": 4}}
    del settings["start_from"]
    settings["data"]["vocab_size"] = 300
    with pytest.raises(ValueError, match="but there are 4 learned positions"):
        train_command(settings, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
    settings["model"]["max_positions"] = 40
    settings["train"]["bpe_dropout"] = 0.9
    train_command(settings, tmp_path / "run")  # the advice works


def test_a_warm_up_is_cut_aloud_unless_it_was_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny = {"encoder_layers": 1, "decoder_layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}
    settings = given(tmp_path, tmp_path) | {"preset": "base", "model": tiny}
    del settings["start_from"], settings["train"]["warmup"]
    settings["data"]["vocab_size"] = 300
    settings["train"] |= {"steps": 6, "learning_rate": 0.0}
    train_command(settings, tmp_path / "cut")
    config = Run(tmp_path / "cut").read_config()
    assert config.train.warmup == 3 and config.train.learning_rate == pytest.approx((8 * 4000) ** -0.5)
    said = capsys.readouterr().err
    assert "warm-up: 3 steps, half of the run, instead of the preset's 4,000" in said and "warning: a warm-up" not in said
    settings["train"]["warmup"] = 4000
    train_command(settings, tmp_path / "given")
    train = Run(tmp_path / "given").read_config().train
    assert (train.warmup, train.learning_rate) == (4000, 0.0)
    said = capsys.readouterr().err
    assert "half of the run" not in said and "warning: a warm-up of 4,000 steps is not over before the last of 6" in said


def test_measured_first_a_run_learns_as_if_it_had_not_been(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training by the clock and one by as many steps have the same bits."""
    made, measure = [], Training.steps_within
    begin = Training.__init__

    def counted(self: Training, *arguments: object) -> None:
        made.append(self)
        begin(self, *arguments)  # type: ignore[arg-type]

    def measured(self: Training, minutes: float) -> tuple[int, int]:
        measure(self, minutes)
        return 6, 3

    monkeypatch.setattr(Training, "__init__", counted)
    monkeypatch.setattr(Training, "steps_within", measured)
    monkeypatch.setattr(loop, "steps_by_the_clock", lambda config, **_: config.train.steps)
    counted_steps = given(tmp_path, tmp_path) | {"preset": "tiny", "model": {"dropout": 0.1}}
    del counted_steps["start_from"]
    counted_steps["data"]["vocab_size"] = 300
    counted_steps["train"] |= {"steps": 6, "valid_every": 3, "learning_rate": 1e-3}
    by_clock = counted_steps | {"train": {**counted_steps["train"], "minutes": 0.05}}
    del by_clock["train"]["steps"]
    train_command(counted_steps, tmp_path / "steps")
    train_command(by_clock, tmp_path / "clock")
    assert len(made) == 2
    for name in ("model.safetensors", "metrics.jsonl", "checkpoints/step-6/optimizer.safetensors"):
        paths = [next(iter(tmp_path.glob(f"{run}/{name.replace('step-6', 'step-*6')}"))) for run in ("steps", "clock")]
        assert paths[0].read_bytes() == paths[1].read_bytes(), name
