"""Exported tokenizers, loaded by transformers: ours are the oracle, on text that nobody would train on."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from regard.exchange.hf_tokenizer import merges_of, write_tokenizer
from regard.exchange.spm import Piece
from regard.text.cleaning import normalise
from regard.text.tokenizer import EOS_ID, NUM_RESERVED, Tokenizer
from tests.oracles.runs import make_tokenizer, sentences

HOSTILE = [
    "",
    " ",
    "</s>",
    "<s> a </s>",
    "<unk><pad>",
    "a</s>b",
    "▁▁ab",
    " ab \t c\n",
    "e\u0301a",
    "<0x41>",
    "abc" * 99,
    "ß𝒳中",
]
LETTERS = "abcdefghijöü   \t\n\x1c\x1f\x85\xa0\u2028\u3000▁</s><unk>éßЖ中😀\u0301\x00\x07"


def loaded(tokenizer: Tokenizer, folder: Path) -> Any:
    from transformers import AutoTokenizer

    write_tokenizer(tokenizer, folder, max_length=99, languages=("de", "en"))
    (folder / "config.json").write_text(json.dumps({"model_type": "marian"}), encoding="utf-8")
    return AutoTokenizer.from_pretrained(folder)


@pytest.mark.filterwarnings("ignore:.*sacremoses")
@pytest.mark.parametrize("separate", [False, True])
def test_the_same_ids(tmp_path: Path, separate: bool) -> None:
    """With two vocabularies, it is `MarianTokenizer`, which leaves NFC and the folding of spaces to its user."""
    tokenizer = make_tokenizer(separate=separate)
    theirs = loaded(tokenizer, tmp_path)
    draw = random.Random(3)
    noise = ["".join(draw.choices(LETTERS, k=draw.randint(0, 30))) for _ in range(1000)]
    for text in [*sentences(100), *HOSTILE, *noise]:
        ours = [*tokenizer.src.encode([normalise(text)])[0], EOS_ID]
        assert theirs(normalise(text) if separate else text)["input_ids"] == ours, repr(text)
    assert theirs.model_max_length == 99


@pytest.mark.filterwarnings("ignore:.*sacremoses")
@pytest.mark.parametrize("separate", [False, True])
def test_the_same_text_back(tmp_path: Path, separate: bool) -> None:
    tokenizer = make_tokenizer(separate=separate)
    theirs = loaded(tokenizer, tmp_path)
    draw = random.Random(4)
    ids = range(NUM_RESERVED, len(tokenizer.tgt))
    for _ in range(500):
        row = [*draw.choices(ids, k=draw.randint(0, 9)), *draw.choice([[], tokenizer.tgt.encode(["中"])[0]]), EOS_ID]
        ours = tokenizer.tgt.decode(row)
        assert theirs.decode(row, skip_special_tokens=True) == (ours.strip() if separate else ours)


def test_merges_are_those_that_sentencepiece_does_without_a_list() -> None:
    pieces = tuple(Piece(text, score) for text, score in (("abc", -1.0), ("ab", 0.0), ("a", -2.0), ("b", -3.0), ("c", -4.0)))
    assert merges_of(pieces) == [("a", "b"), ("ab", "c")]  # not ("a", "bc"): there is no "bc"
