"""Validation of a model on held-out text: loss, perplexity, and BLEU of its greedy translations."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.config import RunConfig
from regard.data.batch import AnyBatch, Batch, TextBatch, collate
from regard.data.batching import PairLengths, epoch_batches
from regard.data.store import PairStore, TextStore
from regard.data.windows import Windows
from regard.evaluate.metrics import bleu
from regard.model.sequence import EncoderDecoder, SequenceModel
from regard.run.metrics import perplexity
from regard.search.hypothesis import Sentence
from regard.text.tokenizer import Tokenizer
from regard.train.loss import smoothed_cross_entropy
from regard.translate.search import Search, Searcher

GREEDY = Search(beam=1, alpha=0.0)


@dataclass(frozen=True)
class Validation:
    nll: float  # per token
    bleu: float | None  # None: nothing was translated

    @property
    def perplexity(self) -> float:
        return perplexity(self.nll)

    @property
    def described(self) -> str:
        score = "" if self.bleu is None else f", BLEU {self.bleu:.2f} (greedy)"
        return f"validation perplexity {self.perplexity:,.2f}{score}"

    def is_better_than(self, other: "Validation") -> bool:
        """Compare by BLEU; by loss if there is none, if both are equal, or below 1, where BLEU is noise."""
        if self.bleu is None or other.bleu is None or max(self.bleu, other.bleu) < 1.0 or self.bleu == other.bleu:
            return self.nll < other.nll
        return self.bleu > other.bleu


@contextmanager
def evaluating(model: SequenceModel) -> Iterator[None]:
    """Turn dropout off for a while."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@torch.no_grad()
def mean_nll(model: SequenceModel, batches: Iterable[AnyBatch]) -> float:
    """The negative log-likelihood per token, without label smoothing."""
    device = model.output_weight.device
    nll, num_tokens = 0.0, 0
    for batch in batches:
        loss = smoothed_cross_entropy(
            model.states(*(ids.to(device) for ids in batch.inputs)),
            model.output_weight,
            batch.targets.to(device),
            pad_id=model.config.pad_id,
            smoothing=0.0,
            output_bias=model.output_bias,
        )
        nll += float(loss.nll)
        num_tokens += int(loss.num_tokens)
    return nll / num_tokens


@dataclass(frozen=True, eq=False)
class ValidationText:
    """Held-out pairs, in batches of similar lengths."""

    store: PairStore
    tokenizer: Tokenizer
    tgt_lang: str
    batch_tokens: int
    num_translated: int  # of the first pairs

    def validate(self, model: SequenceModel) -> Validation:
        """Compute the loss, and BLEU of greedy translations, which are cheap and near enough to beam search."""
        assert isinstance(model, EncoderDecoder)
        with evaluating(model):
            score = bleu(self.translate(model), self.references(), self.tgt_lang) if self.num_references else None
            return Validation(nll=self.nll(model), bleu=score)

    @property
    def num_references(self) -> int:
        return min(self.num_translated, len(self.store))

    def references(self) -> list[str]:
        return [self.store.tgt_text[row] for row in range(self.num_references)]

    def _batches(self, num_pairs: int) -> Iterator[list[int]]:
        lengths = PairLengths.of(self.store.src.lengths, self.store.tgt.lengths)
        pairs = np.arange(num_pairs, dtype=np.int64)
        for batch in epoch_batches(lengths, pairs, batch_tokens=self.batch_tokens, seed=0, epoch=0):
            yield batch.tolist()

    def _collated(self, rows: Sequence[int]) -> Batch:
        return collate([self.store.src[row] for row in rows], [self.store.tgt[row] for row in rows])

    def nll(self, model: EncoderDecoder) -> float:
        return mean_nll(model, map(self._collated, self._batches(len(self.store))))

    def rehearse(self, model: SequenceModel) -> None:
        """Validate with output as long as the references, which takes as long as validating a trained model."""
        assert isinstance(model, EncoderDecoder)
        self.translate(model, at_reference_length=True)
        self.nll(model)

    def translate(self, model: EncoderDecoder, *, at_reference_length: bool = False) -> list[str]:
        """Translate the first pairs' sources, in order, with output limited to the references' lengths on request."""
        searcher = Searcher((model,))  # not kept, because it would take memory from training
        numbers = range(self.num_references)
        groups = [list(numbers)] if searcher.static is not None else self._batches(len(numbers))
        texts = [""] * len(numbers)
        for rows in groups:
            sentences = [self._sentence(row, model, at_reference_length) for row in rows]
            for row, [output] in zip(rows, searcher.search(sentences, GREEDY), strict=True):
                texts[row] = self.tokenizer.tgt.decode(output.ids)
        return texts

    def _sentence(self, row: int, model: EncoderDecoder, at_reference_length: bool) -> Sentence:
        src, tgt = self.store.src[row], self.store.tgt[row]
        limit = len(tgt) + 1 if at_reference_length else 2 * (len(src) + 1) + 10  # an untrained model's output never ends
        return Sentence(src.tolist(), min(limit, model.config.longest_sequence - 1))

    def sample(self) -> Batch:
        """A few pairs, to measure attention on."""
        return self._collated(range(min(16, len(self.store))))


@dataclass(frozen=True, eq=False)
class ValidationWindows:
    """Held-out texts for a language model, in order, in windows as long as those of training."""

    windows: Windows
    batch_tokens: int

    def validate(self, model: SequenceModel) -> Validation:
        with evaluating(model):
            return Validation(nll=self.nll(model), bleu=None)

    def nll(self, model: SequenceModel) -> float:
        return mean_nll(model, map(self.windows.batch, self._numbers()))

    def rehearse(self, model: SequenceModel) -> None:
        self.nll(model)

    def _numbers(self) -> list[list[int]]:
        order = np.arange(len(self.windows), dtype=np.int64)
        return [batch.tolist() for batch in self.windows.batches(order, self.batch_tokens)]

    def sample(self) -> TextBatch:
        """A few windows, to measure attention on."""
        return self.windows.batch(self._numbers()[0][:4])


def open_validation(
    config: RunConfig, folder: Path, tokenizer: Tokenizer, *, batch_tokens: int
) -> ValidationText | ValidationWindows:
    """The held-out text of a run, from its prepared folder."""
    if config.model.kind == "language":
        texts = TextStore.open(folder, "valid")
        windows = Windows(texts, np.arange(len(texts), dtype=np.int64), config.model.context)
        return ValidationWindows(windows, batch_tokens)
    pairs = PairStore.open(folder, "valid")
    return ValidationText(pairs, tokenizer, config.data.tgt_lang, batch_tokens, config.train.bleu_sentences)
