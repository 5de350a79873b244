"""Tests of the lab's experiments that train: storage of trials, verdicts, and alignments by hand."""

import json
import lzma
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.config import ModelConfig, ModelKind, model_preset
from regard.lab import ablations, alignment, bottleneck, systems, trials
from regard.lab.bottleneck import KINDS, LENGTHS, TASKS, Contest
from regard.lab.experiment import Setting
from regard.lab.finding import from_json, to_json
from regard.lab.systems import SystemRuns
from regard.lab.trials import Bench, Corpus, Outcome, Trial, bench_for, outcomes
from regard.lab.words import told
from regard.pages.charts import Words
from regard.search.hypothesis import hypothesis
from regard.settings import merged, read_table
from regard.text.cleaning import Pair
from tests.oracles.runs import make_tokenizer, sentences

ROOT = Path(__file__).parents[2]


def outcome(name: str, seed: int, translations: Sequence[str], **changes: Any) -> Outcome:
    one = Outcome(name, seed, tuple(translations), 2.0, 1.5, 1000, 10.0, 5000.0, 7, "a machine")
    return replace(one, **changes)


def bench_of(references: Sequence[str], folder: Path = Path("nowhere"), jobs: int = 1) -> Bench:
    test = tuple(Pair("x" * (1 + place % 50), text) for place, text in enumerate(references))
    return Bench(folder, folder, test, "de", "cpu", jobs)


def told_bottleneck(short: Mapping[ModelKind, float], long: Mapping[ModelKind, float]) -> str:
    results = {
        Contest(kind, task, seed): tuple(short[kind] if length < 40 else long[kind] for length in LENGTHS)
        for kind in KINDS
        for task in range(len(TASKS))
        for seed in (1, 2)
    }
    finding = told("bottleneck", ("S5",), bottleneck.told(results, dict.fromkeys(KINDS, 1000), (1, 2), 50))
    assert from_json(to_json([finding])) == (finding,)
    return finding.verdict


def test_s5_the_bottleneck_is_there_if_attention_keeps_what_one_vector_loses() -> None:
    learnt = dict.fromkeys(KINDS, 1.0)
    assert told_bottleneck(learnt, {"rnn": 0.2, "rnn-attention": 0.9, "transformer": 0.3}) == "held"
    assert told_bottleneck(learnt, dict.fromkeys(KINDS, 1.0)) == "did not hold"  # no kind loses anything
    assert told_bottleneck(learnt, dict.fromkeys(KINDS, 0.2)) == "did not hold"  # every kind does
    assert told_bottleneck(dict.fromkeys(KINDS, 0.5), dict.fromkeys(KINDS, 0.1)) == "measured"  # no kind has learnt


def test_accuracy_counts_symbols_in_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 64 strings of 5, one has a wrong second symbol, one is a symbol short, and one is empty."""
    contest = Contest("transformer", 1, 3)
    learner = bottleneck.learner_for(contest, 1, torch.device("cpu"))
    rows = bottleneck.strings(5, 64, random.Random("3 5"))
    said = [row[::-1] for row in rows]
    said[0][1] = said[0][1] + 1
    said[1] = said[1][:4]
    said[2] = []
    monkeypatch.setattr(
        bottleneck, "greedy", lambda *_, **__: [hypothesis(row, [0.0] * (len(row) + 1), 0.0) for row in said]
    )
    assert bottleneck.accuracy(learner, contest, 5) == pytest.approx((64 * 5 - 1 - 1 - 5) / (64 * 5))


def test_all_systems_learn_from_the_same_strings() -> None:
    batches = [
        [bottleneck.batch_of(0, chance).src.tolist() for _ in range(3)] for chance in (random.Random(5), random.Random(5))
    ]
    assert batches[0] == batches[1]


@pytest.mark.slow
def test_a_bottleneck_of_few_updates_decides_nothing() -> None:
    finding = told("bottleneck", ("S5",), bottleneck.bottleneck(Setting(steps=3)))
    assert finding.verdict == "measured"
    assert [len(chart.series) for chart in finding.charts] == [3, 3]  # type: ignore[union-attr]


def test_each_variant_changes_one_thing() -> None:
    """Every variant is a valid model."""
    base = ablations.BASELINE
    for variant in ablations.VARIANTS:
        changed = merged(base, variant.settings)
        of_model = merged(model_preset("small"), {"src_vocab_size": 50, "tgt_vocab_size": 50}, changed["model"])
        read_table(ModelConfig, of_model, "model")
        different = {
            (section, key)
            for section in ("model", "train")
            for key, value in changed[section].items()
            if base[section].get(key) != value
        }
        groups = {key.removeprefix("embedding_") for _, key in different}
        assert len(groups) == (0 if variant.name == "baseline" else 1), variant.name
    seeds = [(trial.name, trial.seed) for trial in ablations.trials((1, 2), 10)]
    assert len(set(seeds)) == 2 * len(ablations.VARIANTS)


def test_a_variant_is_worse_better_or_alike() -> None:
    chance = random.Random(1)
    words = "ein eine der die das Mann Frau Hund läuft steht sitzt rot blau grün und mit auf unter".split()
    references = [" ".join(chance.choices(words, k=8)) for _ in range(200)]

    def spoilt(share: float, seed: int) -> list[str]:
        draw = random.Random(seed)
        return [
            " ".join(draw.choice(words) if draw.random() < share else word for word in text.split()) for text in references
        ]

    shares = dict.fromkeys((variant.name for variant in ablations.VARIANTS), 0.2) | {"no-scale": 0.6, "heads-1": 0.02}
    found = [
        outcome(name, seed, spoilt(share, 17 * seed + (0 if name in ("baseline", "heads-4") else len(name))))
        for name, share in shares.items()
        for seed in (1, 2, 3)
    ]
    judged = {one.name: one for one in ablations.verdicts(found, bench_of(references))}
    assert judged["heads-4"].difference == 0
    finding = told("ablations", ("T5",), ablations.told(list(judged.values()), (1, 2, 3), 10, "a machine"))
    said = {one.name: row[4] for one, row in zip(ablations.VARIANTS, finding.tables[0].rows, strict=True)}
    assert said["baseline"] == "–"
    assert isinstance(said["no-scale"], Words) and said["no-scale"].en.startswith("worse (p = 0.001")
    assert isinstance(said["heads-1"], Words) and said["heads-1"].en.startswith("better (p = 0.001")
    assert finding.verdict == "did not hold"
    assert "no √d_k" in finding.outcome.en.split("No difference found")[0].split("worse:")[1]
    assert from_json(to_json([finding])) == (finding,)


def test_groups_of_lengths_have_each_sentence_once_and_rise() -> None:
    test = bench_of(["a"] * 103).test
    groups = systems.length_groups(test)
    assert sorted(place for group in groups for place in group) == list(range(103))
    longest = [max(len(test[n].src) for n in group) for group in groups]
    assert all(len(test[n].src) >= before for before, group in zip(longest, groups[1:], strict=False) for n in group)


def runs_of(kind: str, by_length: tuple[float, ...]) -> SystemRuns:
    run = outcome(kind, 1, [])
    return SystemRuns(kind, (run,), (sum(by_length) / len(by_length),), (by_length,), run)


@pytest.mark.parametrize(
    ("rnn", "others", "verdict"),
    [
        ((30.0, 25.0, 20.0, 15.0, 10.0), (40.0, 38.0, 36.0, 34.0, 32.0), "held"),
        ((30.0, 28.0, 26.0, 25.0, 24.0), (40.0, 38.0, 36.0, 34.0, 32.0), "did not hold"),  # all keep 80 %
        ((3.0, 2.0, 2.0, 1.0, 1.0), (4.0, 4.0, 4.0, 4.0, 4.0), "measured"),
    ],
)
def test_s5_by_bleu_against_length(rnn: tuple[float, ...], others: tuple[float, ...], verdict: str) -> None:
    found = [runs_of("rnn", rnn), runs_of("rnn-attention", others), runs_of("transformer", others)]
    finding = told("systems", ("S5",), systems.told("a corpus", bench_of(["a"] * 20), found))
    assert finding.verdict == verdict
    assert finding.machine == "a machine"
    assert from_json(to_json([finding])) == (finding,)


def test_what_was_tried_before_is_not_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cover two names that differ only after a dot."""
    tried = [Trial(f"lr-{rate}", 1, {}) for rate in (0.001, 0.002)]
    for trial in tried:
        kept = {"settings": trial.settings, "outcome": asdict(outcome(trial.name, 1, ["a"]))}
        (tmp_path / f"{trial.name}-1.json").write_text(json.dumps(kept), encoding="utf-8")
    monkeypatch.setattr(trials, "attempt", None)
    bench = bench_of(["a"], tmp_path)
    assert [one.name for one in outcomes(tried, bench)] == ["lr-0.001", "lr-0.002"]
    with pytest.raises(ValueError, match=r"lr-0\.001-1\.json came from other settings"):
        list(outcomes([replace(tried[0], settings={"train": {"steps": 7}})], bench))


def test_without_a_corpus_it_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"give the folder in which multi30k is with --data"):
        bench_for(trials.MULTI30K, Setting(work=tmp_path))


@pytest.mark.slow
def test_a_trial_trains_and_translates(tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    folder.mkdir()
    for part, count in (("train", 300), ("valid", 20), ("test", 15)):
        for language in ("en", "de"):
            text = "\n".join(sentences(count, seed=len(part) + len(part) * (language == "de"))) + "\n"
            (folder / f"{part}.{language}.xz").write_bytes(lzma.compress(text.encode()))
    corpus = Corpus(folder="corpus", src="en", tgt="de", valid="valid", test="test", vocab_size=400)
    bench = bench_for(corpus, Setting(data=tmp_path, work=tmp_path / "work", jobs=2))
    plan = {"steps": 4, "batch_tokens": 256, "bleu_sentences": 0, "valid_every": 4, "save_every": 2, "log_every": 1}
    tried = [Trial(kind, 1, {"preset": "tiny", "model": {"kind": kind}, "train": plan}) for kind in ("transformer", "rnn")]
    found = {one.name: one for one in outcomes(tried, bench)}
    assert {name: (len(one.translations), one.steps) for name, one in found.items()} == dict.fromkeys(
        ("transformer", "rnn"), (15, 4)
    )
    assert all(one.valid_nll > 0 and one.num_parameters > 1000 for one in found.values())
    assert list(outcomes(tried, bench)) == [found["transformer"], found["rnn"]]  # from their files


def test_gold_links_by_hand() -> None:
    """Read `i-j` as sure and `ipj` as possible, counted from 1; drop links past the end of a sentence."""
    sure, possible = alignment.gold_links("1-1 2p3 3-2 4-1", 3, 3)
    assert sure == {(0, 0), (2, 1)}
    assert possible == {(0, 0), (1, 2), (2, 1)}


def test_the_error_rate_by_hand() -> None:
    """Compute 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|), after Och and Ney 2003."""
    gold = alignment.Gold("", "", [], [], sure={(0, 0), (1, 1)}, possible={(0, 0), (1, 1), (2, 1)})
    counts = alignment.Counts()
    counts.add({(0, 0), (2, 1), (2, 2)}, gold)
    assert counts.error_rate == pytest.approx(1 - (1 + 2) / (3 + 2))
    assert alignment.Counts(3, 3, 3, 3).error_rate == 0.0


def test_pieces_share_their_letters_with_words() -> None:
    subwords = make_tokenizer().tgt
    words = ["ab", "cdöü", "e"]
    ids = subwords.encode(["".join(words)])[0]
    shares = alignment.shares(subwords, ids, words)
    assert shares.sum(1).tolist() == [len(piece.replace("▁", "")) for piece in subwords.pieces(ids)]
    assert shares.sum(0).tolist() == [2, 4, 1]


def test_what_is_stored_can_be_read_and_says_where_it_comes_from() -> None:
    stored = [one for path in sorted((ROOT / "docs" / "lab").glob("*.json")) for one in from_json(path.read_text("utf-8"))]
    assert {one.name for one in stored} >= {"ablations", "systems"}
    assert all("H200" in one.machine and one.command.startswith("regard lab ") and one.date for one in stored)
