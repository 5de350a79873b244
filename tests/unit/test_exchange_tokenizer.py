"""Tests of exported tokenizers in transformers, against ours, on unusual text."""

import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from regard.exchange.hf_tokenizer import marian_order, merges_of, padding_of, write_tokenizer
from regard.exchange.spm import SpmPiece
from regard.exchange.verification import hostile_texts
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
    """With two vocabularies, use `MarianTokenizer`, which leaves some of NFC to its user, and looks for language codes."""
    tokenizer = make_tokenizer(separate=separate)
    theirs = loaded(tokenizer, tmp_path)
    draw = random.Random(3)
    noise = ["".join(draw.choices(LETTERS, k=draw.randint(0, 30))) for _ in range(1000)]
    order = marian_order(len(tokenizer.src), padding_of(tokenizer))
    for text in [*sentences(100), *HOSTILE, *hostile_texts(sentences(10)), *noise]:
        ours = [*tokenizer.src.encode([normalise(text)])[0], EOS_ID]
        row = theirs(" " + unicodedata.normalize("NFC", text) if separate else text)["input_ids"]
        assert [order[n] for n in row] == ours, repr(text)
    assert theirs.model_max_length == 99


@pytest.mark.filterwarnings("ignore:.*sacremoses")
@pytest.mark.parametrize("separate", [False, True])
def test_the_same_text_back(tmp_path: Path, separate: bool) -> None:
    tokenizer = make_tokenizer(separate=separate)
    theirs = loaded(tokenizer, tmp_path)
    draw = random.Random(4)
    ids = range(NUM_RESERVED, len(tokenizer.tgt))
    order = marian_order(len(tokenizer.tgt), padding_of(tokenizer))
    for _ in range(500):
        row = [*draw.choices(ids, k=draw.randint(0, 9)), *draw.choice([[], tokenizer.tgt.encode(["中"])[0]]), EOS_ID]
        ours = tokenizer.tgt.decode(row)
        assert theirs.decode([order.index(n) for n in row], skip_special_tokens=True) == (ours.strip() if separate else ours)


def test_merges_are_those_that_sentencepiece_does_without_a_list() -> None:
    pieces = tuple(
        SpmPiece(text, score) for text, score in (("abc", -1.0), ("ab", 0.0), ("a", -2.0), ("b", -3.0), ("c", -4.0))
    )
    assert merges_of(pieces) == [("a", "b"), ("ab", "c")]  # not ("a", "bc"): there is no "bc"
