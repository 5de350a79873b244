"""Tests of validation against one sentence at a time, and of BLEU against sacreBLEU's own functions."""

import pytest
import sacrebleu
import torch

from regard.evaluate.metrics import bleu
from regard.fast.decoding.search import StaticSearch
from regard.model.transformer import Transformer
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.train.validation import Validation, ValidationText
from regard.translate.search import Searcher
from tests.conftest import make_model
from tests.unit.test_stream import make_stream


def make_text(num_translated: int = 1000) -> tuple[ValidationText, Transformer]:
    stream = make_stream(num_pairs=30)
    vocab_size = len(stream.tokenizer.src)
    text = ValidationText(stream.store, stream.tokenizer, "en", batch_tokens=64, num_translated=num_translated)
    return text, make_model(src_vocab_size=vocab_size, tgt_vocab_size=vocab_size)


def test_loss_is_the_mean_over_all_tokens() -> None:
    text, model = make_text()
    nll, num_tokens = 0.0, 0
    for row in range(30):
        src = torch.tensor([[*text.store.src[row].tolist(), EOS_ID]])
        tgt = text.store.tgt[row].tolist()
        log_probs = model(src, torch.tensor([[BOS_ID, *tgt]])).detach().log_softmax(-1)[0]
        nll -= float(log_probs[torch.arange(len(tgt) + 1), torch.tensor([*tgt, EOS_ID])].sum())
        num_tokens += len(tgt) + 1
    assert text.nll(model) == pytest.approx(nll / num_tokens, rel=1e-12)


def test_translations_are_in_order_and_do_not_depend_on_their_batch() -> None:
    text, model = make_text(num_translated=20)
    together = text.translate(model)
    assert len(together) == text.num_references == 20
    alone = ValidationText(text.store, text.tokenizer, "en", batch_tokens=1, num_translated=20)
    assert alone.translate(model) == together and len(set(together)) > 1
    assert text.references() == [text.store.tgt_text[row] for row in range(20)]
    model.train()
    result = text.validate(model)
    assert model.training and result.bleu == bleu(together, text.references(), "en")


def test_continuous_batching_translates_as_batches_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the GPU's search on the CPU."""
    text, model = make_text(num_translated=20)
    expected = text.translate(model), text.translate(model, at_reference_length=True)
    monkeypatch.setattr(Searcher, "static", property(lambda searcher: StaticSearch(searcher.models[0])))
    assert (text.translate(model), text.translate(model, at_reference_length=True)) == expected


def test_without_translations_loss_decides() -> None:
    text, model = make_text(num_translated=0)
    assert text.validate(model).bleu is None
    assert Validation(1.0, None).is_better_than(Validation(2.0, None))
    assert Validation(2.0, 30.0).is_better_than(Validation(1.0, 29.0))
    assert Validation(1.0, 0.0).is_better_than(Validation(2.0, 0.5)), "BLEU below 1 is noise"
    assert Validation(1.0, 30.0).is_better_than(Validation(2.0, 30.0))


@pytest.mark.parametrize(
    ("language", "tokenize"), [("en", "13a"), ("", "13a"), ("zh-TW", "zh"), ("ZHO", "zh"), ("ja", "char"), ("ko", "13a")]
)
def test_bleu_is_sacrebleus_with_a_tokenizer_that_fits(language: str, tokenize: str) -> None:
    hypotheses, references = ["今天天气很好, isn't it?", "the cat sat"], ["今天天气不错, isn't it?", "the cat sat down"]
    expected = sacrebleu.corpus_bleu(hypotheses, [references], tokenize=tokenize).score
    assert bleu(hypotheses, references, language) == pytest.approx(expected, abs=1e-12)


def test_bleu_counts_its_lines() -> None:
    with pytest.raises(AssertionError, match="sacreBLEU does not check this"):
        bleu(["a"], ["a", "b"])
