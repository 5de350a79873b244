"""Tests of imported Marian models against the model and the tokenizer of transformers."""

import json
import random
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.config import TrainConfig
from regard.errors import UserError
from regard.exchange.ctranslate import CTranslate2Model, write_ctranslate2
from regard.exchange.huggingface import write_huggingface
from regard.exchange.marian import MarianFolder, import_marian
from regard.exchange.verification import compare, hostile_sources, our_outputs, sources_of, their_outputs
from regard.model.kinds import require_transformer
from regard.run.checkpoint import Run
from regard.text.cleaning import normalise
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID
from regard.train.learner import ModelWithLoss
from regard.translate.search import Search
from regard.translate.translator import Translator
from tests.oracles.marian_folder import SOURCES, TARGETS, Variant, write_marian_folder

pytestmark = pytest.mark.filterwarnings("ignore:.*sacremoses")

VARIANTS = {
    "tied": Variant(),
    "two vocabularies": Variant(separate=True, eos_bias=0.5),
    "untied, pickled": Variant(tied=False, safetensors=False, eos_bias=3.0),
    "two vocabularies, untied, unscaled": Variant(separate=True, tied=False, scaled=False, activation="gelu"),
    "tied, unscaled": Variant(scaled=False, activation="relu", decoder_layers=3),
}
HOSTILE = ["", ">>fra<< abc", ">>deu<<abc", ">>xyz<< abc", ">> a << b", "a >>fra<< b", "<<>>", ">><<a"]
HOSTILE += ["öü dk", "ßßß a", "ABC ﬁ ½", "a\u0301b", "１２ab", "köß aß", "中"]
LETTERS = "abcdefghijklmnöüß >><<１ﬁ\u00ad\u200b中"


@dataclass(frozen=True)
class Imported:
    folder: Path
    model: Any  # the model in transformers
    tokenizer: Any
    marian: MarianFolder
    ours: Translator


@pytest.fixture(scope="module", params=VARIANTS)
def imported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Imported:
    from transformers import MarianMTModel, MarianTokenizer

    folder = tmp_path_factory.mktemp("marian")
    write_marian_folder(folder / "theirs", VARIANTS[request.param])
    import_marian(folder / "theirs", folder / "ours")
    return Imported(
        folder,
        MarianMTModel.from_pretrained(folder / "theirs").eval(),
        MarianTokenizer.from_pretrained(folder / "theirs"),
        MarianFolder.open(folder / "theirs"),
        regard.load(folder / "ours", device="cpu"),
    )


def hostile_texts() -> list[str]:
    draw = random.Random(6)
    noise = ["".join(draw.choices(LETTERS, k=draw.randint(0, 30))) for _ in range(300)]
    return [normalise(text) for text in [*HOSTILE, *noise]]


def test_logits(imported: Imported) -> None:
    """Compare all tokens that may be output; padding and BOS may not."""
    src_rows, tgt_rows = torch.tensor(imported.marian.src.rows), torch.tensor(imported.marian.tgt.rows)
    src, tgt_in = torch.randint(2, len(src_rows), (3, 9)), torch.randint(2, len(tgt_rows), (3, 7))
    src[1, 6:], tgt_in[:, 0] = PAD_ID, BOS_ID
    mask = (src != PAD_ID).long()
    theirs = imported.model(input_ids=src_rows[src], attention_mask=mask, decoder_input_ids=tgt_rows[tgt_in]).logits
    ours = imported.ours.models[0](src, tgt_in)
    assert theirs.std() > 0.5
    torch.testing.assert_close(ours[:, :, EOS_ID:], theirs[:, :, tgt_rows[EOS_ID:]], atol=1e-4, rtol=0)
    assert ours[:, :, [PAD_ID, BOS_ID]].max() < ours[:, :, EOS_ID:].min() - 1000


def test_the_same_subwords(imported: Imported) -> None:
    """Compare both sides on unknown letters, on letters that only the other side knows, on pieces that the vocabulary lacks,
    and on language codes, known and unknown."""
    src_of = {row: n for n, row in enumerate(imported.marian.src.rows) if n != BOS_ID}
    tgt_of = {row: n for n, row in enumerate(imported.marian.tgt.rows) if n != BOS_ID}
    for text in [*SOURCES[:60], *TARGETS[:60], *hostile_texts()]:
        src = [src_of[row] for row in imported.tokenizer(text)["input_ids"]]
        tgt = [tgt_of[row] for row in imported.tokenizer(text_target=text)["input_ids"]]
        assert [*imported.ours.tokenizer.src.encode([text])[0], EOS_ID] == src, repr(text)
        assert [*imported.ours.tokenizer.tgt.encode([text])[0], EOS_ID] == tgt, repr(text)


def test_the_same_text_back(imported: Imported) -> None:
    draw = random.Random(7)
    rows = imported.marian.tgt.rows
    for _ in range(200):
        ids = draw.choices(range(EOS_ID + 1, len(rows)), k=draw.randint(0, 9))
        theirs = imported.tokenizer.decode([rows[n] for n in ids], skip_special_tokens=True)
        assert imported.ours.tokenizer.tgt.decode(ids).strip() == theirs


@pytest.mark.parametrize("beam", [1, 4])
@pytest.mark.parametrize("imported", ["tied", "two vocabularies", "untied, pickled"], indirect=True)
def test_the_same_translations(imported: Imported, beam: int) -> None:
    """Compare all that end: at the maximum length, transformers scores its forced EOS 0, unlike a run."""
    texts, extra = SOURCES[:12], 15
    ours = imported.ours.translate(texts, Search(beam=beam, alpha=0.0, max_extra=extra))
    num_ended = 0
    for text, translation in zip(texts, ours, strict=True):
        inputs = imported.tokenizer([text], return_tensors="pt")
        longest = inputs["input_ids"].shape[1] + extra + 1  # including the first and the last token
        output = imported.model.generate(**inputs, num_beams=beam, length_penalty=0.0, max_length=longest)
        if output.shape[1] < longest or beam == 1:
            num_ended += 1
            assert translation.text.strip() == imported.tokenizer.decode(output[0], skip_special_tokens=True)
    assert num_ended >= 4
    assert len({translation.text for translation in ours}) > 2


@pytest.mark.parametrize("imported", ["tied"], indirect=True)
def test_every_part_of_a_long_text_is_told_its_language(imported: Imported) -> None:
    """The words of the alignment are those of the text, which has the language code once."""
    text = ">>fra<< " + " ".join(SOURCES[:200])
    [code] = imported.ours.tokenizer.src.encode([">>fra<<"])[0]
    parts = imported.ours.parts(text)
    assert len(parts) > 2
    assert all(part.ids[0] == code and part.ids.count(code) == 1 for part in parts)
    [long] = imported.ours.translate([text], Search(beam=1, max_extra=0), align=True)
    assert long.num_parts == len(parts)
    assert max(src for src, _ in long.alignment or ()) < len(text.split())


def test_the_run_says_where_it_comes_from(imported: Imported) -> None:
    run = Run(imported.folder / "ours")
    run.require_intact()
    config, weights = run.read_config(), run.read_weights()
    assert weights is not None and weights.described == "the weights it was imported with"
    assert (config.data.src_lang, config.data.tgt_lang, config.data.cleaning.max_tokens) == ("en", "de", 200)


def test_it_can_be_looked_into_and_trained_on(imported: Imported) -> None:
    model = imported.ours.models[0]
    src, tgt = (imported.ours.tokenizer.src.encode(SOURCES[:1]), imported.ours.tokenizer.tgt.encode(TARGETS[:1]))
    src_ids, tgt_ids = torch.tensor([[*src[0], EOS_ID]]), torch.tensor([[BOS_ID, *tgt[0]]])
    tgt_out = torch.tensor([[*tgt[0], EOS_ID]])
    trace = model.trace(src_ids, tgt_ids)
    torch.testing.assert_close(trace.logits, model(src_ids, tgt_ids), atol=1e-4, rtol=0)
    loss = ModelWithLoss(model, TrainConfig(precision="float32", compile="off"))(tgt_out, src_ids, tgt_ids)
    expected = torch.nn.functional.cross_entropy(model(src_ids, tgt_ids)[0], tgt_out[0], reduction="sum")
    torch.testing.assert_close(loss.nll, expected, atol=1e-3, rtol=1e-5)
    with pytest.raises(ValueError, match="BPE-dropout"):
        imported.ours.tokenizer.src.encode_with_dropout(SOURCES[:1], dropout=0.1, seed=1)


@pytest.mark.parametrize("imported", ["tied", "two vocabularies"], indirect=True)
def test_it_can_be_exported_to_ctranslate2_only(imported: Imported, tmp_path: Path) -> None:
    model, tokenizer = require_transformer(imported.ours.models[0], "this test"), imported.ours.tokenizer
    write_ctranslate2(model, tokenizer, tmp_path)
    texts = [(text, None) for text in [">>fra<< ab", "ß öü", *SOURCES[:6]]]
    sources = sources_of(texts, tokenizer, max_positions=40, num_sentences=8)
    sources += hostile_sources(SOURCES[:2], tokenizer, max_positions=40)
    ours = dict(our_outputs(model, tokenizer, sources))
    theirs = dict(their_outputs(CTranslate2Model(tmp_path), sources))
    comparison = compare(model, sources, *([one[place] for place in range(len(sources))] for one in (ours, theirs)))
    assert comparison.different == () and comparison.num_equal >= len(sources) - 2
    with pytest.raises(ValueError, match="was imported"):
        write_huggingface(model, tokenizer, tmp_path, languages=("", ""))


@pytest.fixture(scope="module")
def whole_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "theirs"
    write_marian_folder(folder, Variant(safetensors=False))
    return folder


class Surprise:
    def __reduce__(self) -> Any:
        return print, ("this must never be run",)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        ({"config.json": None}, "is not a Hugging Face folder"),
        ({"config.json": {"model_type": "t5"}}, "holds a t5 model; only marian"),
        ({"config.json": {"activation_function": "gelu_new"}}, "the activation gelu_new"),
        ({"config.json": {"decoder_ffn_dim": 7}}, "encoder_ffn_dim 48 and decoder_ffn_dim 7"),
        ({"config.json": {"d_model": "64"}}, "d_model must be a whole number, but is '64'"),
        ({"config.json": {"pad_token_id": "x"}}, "no numbers as pad_token_id"),
        ({"config.json": {"eos_token_id": []}, "generation_config.json": None}, "is the end of a sentence"),
        ({"config.json": {"activation_function": ["relu"]}}, "the activation"),
        ({"config.json": {"max_position_embeddings": None}}, "max_tokens must be a whole number"),
        ({"config.json": b"9" * 5000}, "is not JSON"),
        ({"config.json": {"d_model": 64}}, "do not fit its config.json"),
        ({"config.json": {"encoder_layers": 9}}, "have no model.encoder.layers.2"),
        ({"config.json": {"eos_token_id": 9999}, "generation_config.json": None}, "9999 is the end of a sentence"),
        ({"vocab.json": None}, "has no vocab.json"),
        ({"vocab.json": {"zzz": 100_000}}, "has the number 100000"),
        ({"vocab.json": {"zzz": 0}}, "a number of its own"),
        ({"tokenizer_config.json": {"separate_vocabs": True}}, "no target_vocab.json"),
        ({"tokenizer_config.json": {"unk_token": "<what>"}}, "has no <what>"),
        ({"source.spm": b"?"}, "source.spm is not a SentencePiece model"),
        ({"pytorch_model.bin": None}, "neither model.safetensors nor pytorch_model.bin"),
        ({"pytorch_model.bin": b"?"}, "more than weights|damaged"),
        ({"model.safetensors": b"?"}, "damaged"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence(
    whole_folder: Path, tmp_path: Path, damage: dict[str, dict[str, Any] | bytes | None], sentence: str
) -> None:
    shutil.copytree(whole_folder, tmp_path / "theirs")
    for name, content in damage.items():
        path = tmp_path / "theirs" / name
        if content is None:
            path.unlink()
        elif isinstance(content, bytes):
            path.write_bytes(content)
        else:
            path.write_text(json.dumps(json.loads(path.read_text()) | content))
    with pytest.raises(UserError, match=sentence):
        import_marian(tmp_path / "theirs", tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["theirs"]


def test_a_pickle_is_not_run(whole_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(whole_folder, tmp_path / "theirs")
    torch.save({"model.shared.weight": Surprise()}, tmp_path / "theirs" / "pytorch_model.bin")
    with pytest.raises(ValueError, match="loading it would run code"):
        import_marian(tmp_path / "theirs", tmp_path / "ours")
    assert capsys.readouterr().out == ""


def test_a_folder_that_is_there_is_left_alone(whole_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").write_text("dear")
    with pytest.raises(ValueError, match="is there already"):
        import_marian(whole_folder, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]
