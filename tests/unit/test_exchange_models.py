"""Tests of exported models in the programs that they are exported for."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from regard.exchange.ctranslate import CTranslate2Model, write_ctranslate2
from regard.exchange.hf_tokenizer import marian_order
from regard.exchange.huggingface import HuggingFaceModel, write_huggingface
from regard.exchange.verification import (
    ExportAgreement,
    Exported,
    Output,
    Source,
    compare,
    hostile_sources,
    our_outputs,
    sources_of,
    their_outputs,
)
from regard.model.transformer import Transformer
from regard.search.hypothesis import TIE
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.translate.search import Search
from tests.oracles.runs import make_tokenizer, make_translator, sentences

NUM_SENTENCES = 12


def some_sources(tokenizer: Tokenizer, max_positions: int = 32) -> list[Source]:
    """Return sentences, and combinations of two of them."""
    texts = [(text, None) for text in ["", "</s> ab", "e\u0301 ß", *sentences(NUM_SENTENCES)]]
    sources = sources_of(texts, tokenizer, max_positions=max_positions, num_sentences=NUM_SENTENCES)
    return sources + hostile_sources(sentences(2), tokenizer, max_positions=max_positions)


def listed(outputs: dict[int, Output]) -> list[Output]:
    return [outputs[place] for place in range(len(outputs))]


def without_padding(logits: Tensor) -> Tensor:
    """Leave out padding and BOS, which are never output."""
    logits = logits.clone()
    logits[..., [PAD_ID, BOS_ID]] = -torch.inf
    return logits


def verified(model: Transformer, tokenizer: Tokenizer, exported: Exported, sources: list[Source]) -> ExportAgreement:
    ours = listed(dict(our_outputs(model, tokenizer, sources)))
    assert len({output.text for output in ours}) > 3  # otherwise there is little to compare
    return compare(model, sources, ours, listed(dict(their_outputs(exported, sources))))


VARIANTS: dict[str, dict[str, Any]] = {
    "post": {"ending": 1.4},
    "pre": {"norm": "pre", "ending": 1.5, "spread": 0.6},
    "post, gelu, deep decoder": {"activation": "gelu", "decoder_layers": 3, "ending": 1.2},
    "post, two vocabularies, silu": {"shared_embeddings": "target", "activation": "silu", "ending": 2.0},
    "post, untied": {"shared_embeddings": "none", "output_bias": True},
}
ONLY_CTRANSLATE2: dict[str, dict[str, Any]] = {
    "pre, untied": {"norm": "pre", "shared_embeddings": "none", "spread": 0.6},
    "learned positions": {"positions": "learned", "ending": 0.3},
}


def marked(variants: Iterable[str]) -> list[Any]:
    """Mark most variants as slow."""
    quick = ("post", "pre", "post, two vocabularies, silu", "learned positions")
    return [one if one in quick else pytest.param(one, marks=pytest.mark.slow) for one in variants]


@pytest.mark.parametrize("variant", marked([*VARIANTS, *ONLY_CTRANSLATE2]))
def test_ctranslate2_says_the_same(tmp_path: Path, variant: str) -> None:
    tokenizer = make_tokenizer(separate="two" in variant)
    model = make_translator(tokenizer, **(VARIANTS | ONLY_CTRANSLATE2)[variant])
    write_ctranslate2(model, tokenizer, tmp_path)
    src, tgt = tokenizer.src.encode(sentences(5, seed=1)), tokenizer.tgt.encode(sentences(5, seed=2))
    pieces = [tokenizer.src.pieces(ids) for ids in src], [tokenizer.tgt.pieces(ids) for ids in tgt]
    scored = ctranslate2.Translator(str(tmp_path), device="cpu").score_batch(*pieces)
    for place, row in enumerate(scored):
        src_ids, tgt_in = torch.tensor([[*src[place], EOS_ID]]), torch.tensor([[BOS_ID, *tgt[place]]])
        log_probs = without_padding(model(src_ids, tgt_in)[0]).log_softmax(-1)
        expected = log_probs.gather(1, torch.tensor([*tgt[place], EOS_ID])[:, None])[:, 0]
        torch.testing.assert_close(torch.tensor(row.log_probs), expected, atol=1e-4, rtol=1e-5)
    sources = some_sources(tokenizer)
    comparison = verified(model, tokenizer, CTranslate2Model(tmp_path), sources)
    assert comparison.different == () and comparison.num_equal >= len(sources) - 2


@pytest.mark.filterwarnings("ignore:.*sacremoses")
@pytest.mark.parametrize("variant", marked(VARIANTS))
def test_huggingface_says_the_same(tmp_path: Path, variant: str) -> None:
    from transformers import AutoModelForSeq2SeqLM

    tokenizer = make_tokenizer(separate="two" in variant)
    model = make_translator(tokenizer, **VARIANTS[variant])
    write_huggingface(model, tokenizer, tmp_path, languages=("de", "en"))
    theirs = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).eval()
    padding = theirs.config.pad_token_id
    orders = [torch.tensor(marian_order(len(side), padding)) for side in (tokenizer.src, tokenizer.tgt)]
    assert type(theirs).__name__ == ("PegasusForConditionalGeneration" if "pre" in variant else "MarianMTModel")
    src, tgt_in = torch.randint(4, 300, (3, 9)), torch.randint(4, 300, (3, 7))
    src[1, 5:], tgt_in[:, 0] = padding, padding
    logits = theirs(input_ids=src, attention_mask=(src != padding).long(), decoder_input_ids=tgt_in).logits
    our_src, our_tgt_in = orders[0][src].masked_fill(src == padding, PAD_ID), orders[1][tgt_in]
    assert (our_tgt_in[:, 0] == BOS_ID).all()
    log_probs = without_padding(model(our_src, our_tgt_in)).log_softmax(-1)[..., orders[1]]
    said = torch.arange(len(orders[1])) != padding
    torch.testing.assert_close(logits.log_softmax(-1)[..., said], log_probs[..., said], atol=1e-4, rtol=0)
    sources = some_sources(tokenizer)
    comparison = verified(model, tokenizer, HuggingFaceModel(tmp_path), sources)
    assert comparison.different == () and comparison.num_equal >= len(sources) - 2


@pytest.mark.parametrize("variant", marked(one for one in VARIANTS if "two" not in one))
def test_the_converter_of_ctranslate2_takes_what_is_exported_to_huggingface(tmp_path: Path, variant: str) -> None:
    """The Marian decoder there begins with zeros, and its last row is padding, which is dropped."""
    from ctranslate2.converters import TransformersConverter
    from transformers import AutoTokenizer

    tokenizer = make_tokenizer()
    model = make_translator(tokenizer, **VARIANTS[variant])
    (tmp_path / "theirs").mkdir()
    write_huggingface(model, tokenizer, tmp_path / "theirs", languages=("de", "en"))
    TransformersConverter(str(tmp_path / "theirs")).convert(str(tmp_path / "converted"))

    class Converted:
        translator: Any = ctranslate2.Translator(str(tmp_path / "converted"), device="cpu")
        tokenizer: Any = AutoTokenizer.from_pretrained(tmp_path / "theirs")

        def translate(self, texts: list[str], max_length: int) -> list[Output]:
            tokens = [self.tokenizer.convert_ids_to_tokens(self.tokenizer.encode(text)) for text in texts]
            found = self.translator.translate_batch(
                tokens, beam_size=1, max_decoding_length=max_length, min_decoding_length=0
            )
            pieces = [one.hypotheses[0] if len(row) > 1 else [] for one, row in zip(found, tokens, strict=True)]
            return [Output(tokenizer.tgt.ids(row), tokenizer.tgt.decode(tokenizer.tgt.ids(row))) for row in pieces]

    sources = some_sources(tokenizer)
    comparison = verified(model, tokenizer, Converted(), sources)
    assert comparison.different == () and comparison.num_equal >= len(sources) - 2


@pytest.mark.parametrize("variant", ["post", "post, two vocabularies, silu", "post, untied"])
def test_marians_decoders_begin_with_zeros(tmp_path: Path, variant: str) -> None:
    tokenizer = make_tokenizer(separate="two" in variant)
    write_huggingface(make_translator(tokenizer, **VARIANTS[variant]), tokenizer, tmp_path, languages=("", ""))
    state, config = load_file(tmp_path / "model.safetensors"), json.loads((tmp_path / "config.json").read_text())
    name = "model.shared.weight" if variant == "post" else "model.decoder.embed_tokens.weight"
    assert not state[name][config["decoder_start_token_id"]].any() and config["bos_token_id"] is None
    assert variant != "post" or config["pad_token_id"] == len(state[name]) - 1


@pytest.mark.parametrize(("longest", "max_length"), [(0, 1024), (7, 58), (1000, 1024)])
def test_outputs_of_huggingface_are_bounded_by_what_was_learnt_from(tmp_path: Path, longest: int, max_length: int) -> None:
    """Limit outputs by the first token that is fed and `Search.max_extra`: a model that never ends is cut as in a run."""
    tokenizer = make_tokenizer()
    model = make_translator(tokenizer, ending=-50.0)
    write_huggingface(model, tokenizer, tmp_path, languages=("", ""), longest=longest)
    assert json.loads((tmp_path / "generation_config.json").read_text())["max_length"] == max_length
    if longest != 7:
        return
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    inputs = AutoTokenizer.from_pretrained(tmp_path)("ab ab", return_tensors="pt")
    output = AutoModelForSeq2SeqLM.from_pretrained(tmp_path).generate(**inputs)
    assert output.shape == (1, 1 + longest + Search().max_extra)


def test_int8_is_coarser_and_leaves_the_model_as_it_is(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    model = make_translator(tokenizer, ending=1.4)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, int8 in (("float", False), ("int8", True)):
        (tmp_path / name).mkdir()
        write_ctranslate2(model, tokenizer, tmp_path / name, int8=int8)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), name
    sizes = [(tmp_path / name / "model.bin").stat().st_size for name in ("float", "int8")]
    positions = 4 * 1024 * 32
    assert sizes[1] - positions < (sizes[0] - positions) / 2
    sources = some_sources(tokenizer)
    outputs = listed(dict(their_outputs(CTranslate2Model(tmp_path / "int8"), sources)))
    assert len({output.text for output in outputs}) > 5


@pytest.mark.parametrize(
    ("changes", "separate", "what"),
    [
        ({"positions": "learned"}, False, "learned"),
        ({"norm": "pre", "shared_embeddings": "target"}, False, "Pegasus"),
        ({"norm": "pre", "shared_embeddings": "target"}, True, "Pegasus"),
    ],
)
def test_what_huggingface_cannot_hold(tmp_path: Path, changes: dict[str, Any], separate: bool, what: str) -> None:
    tokenizer = make_tokenizer(separate=separate)
    with pytest.raises(ValueError, match=f"{what}.*--to ctranslate2"):
        write_huggingface(make_translator(tokenizer, **changes), tokenizer, tmp_path, languages=("", ""))
    assert not list(tmp_path.iterdir())


def test_only_what_the_model_finds_equally_likely_is_a_tie() -> None:
    tokenizer = make_tokenizer()
    model = make_translator(tokenizer, output_bias=True)
    (source,) = sources_of([("abc", None)], tokenizer, max_positions=99, num_sentences=1)
    ((_, ours),) = our_outputs(model, tokenizer, [source])
    place = 3
    src, tgt_in = torch.tensor([[*source.ids, EOS_ID]]), torch.tensor([[BOS_ID, *ours.ids[:place]]])
    log_probs = model(src, tgt_in)[0, -1].log_softmax(-1)
    second = int(log_probs.topk(2).indices[1])
    gap = float(log_probs.max() - log_probs[second])
    assert gap > 10 * TIE
    theirs = Output([*ours.ids[:place], second, 300], "something else")
    assert compare(model, [source], [ours], [theirs]).different == (0,)
    assert model.output_bias is not None
    model.output_bias[second] += gap - TIE / 2
    assert compare(model, [source], [ours], [theirs]) == ExportAgreement(0, 1, ())
    # Equal pieces with different text are a fault of the tokenizer, not a tie, unless they are not valid text.
    assert compare(model, [source], [ours], [ours._replace(text="other")]).different == (0,)
    broken = ours._replace(text="a\ufffd")
    assert compare(model, [source], [broken], [ours._replace(text="\ufffd\ufffd")]).num_equal == 1
    # An output that goes on where ours ends is compared by EOS.
    shorter = Output(ours.ids[:place], "shorter")
    assert compare(model, [source], [shorter], [ours]).different == (0,)


def test_sources_are_what_fits() -> None:
    tokenizer = make_tokenizer()
    long = "ab cd " * 40
    texts = [("", None), ("ab", "x"), (long, "y"), ("cd", "z"), ("ef", "w")]
    found = sources_of(texts, tokenizer, max_positions=60, num_sentences=2)
    assert [(source.text, source.reference) for source in found] == [("ab", "x"), ("cd", "z")]
    assert all(source.max_length == min(len(source.ids) + 50, 59) for source in found)


def test_a_wrong_weight_is_noticed(tmp_path: Path) -> None:
    """Verification must report a difference."""
    tokenizer = make_tokenizer()
    model = make_translator(tokenizer, ending=1.4)
    write_ctranslate2(model, tokenizer, tmp_path)
    model.decoder[0].cross_attention.query.bias[0] += 1.0
    assert verified(model, tokenizer, CTranslate2Model(tmp_path), some_sources(tokenizer)).different
