"""How a model does on text it does not learn from: loss, perplexity, and BLEU of what it really translates."""

from collections.abc import Iterable, Iterator
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
from regard.model.kinds import EncoderDecoder, Model
from regard.model.language import LanguageModel
from regard.text.tokenizer import Tokenizer
from regard.train.loss import smoothed_cross_entropy
from regard.train.metrics import perplexity
from regard.translate.rig import Sentence
from regard.translate.searcher import Searcher


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
        """By BLEU where there is one worth the name; before that, and where it is equal, by loss."""
        if (
            self.bleu is not None
            and other.bleu is not None
            and max(self.bleu, other.bleu) >= 1.0
            and self.bleu != other.bleu
        ):
            return self.bleu > other.bleu
        return self.nll < other.nll


@torch.no_grad()
def mean_nll(model: Model, batches: Iterable[AnyBatch]) -> float:
    """Per token, without label smoothing."""
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
    """The held-out pairs, in batches of similar lengths."""

    store: PairStore
    tokenizer: Tokenizer
    tgt_lang: str
    batch_tokens: int
    num_translated: int  # of the first pairs

    @classmethod
    def of(cls, config: RunConfig, folder: Path, tokenizer: Tokenizer, *, batch_tokens: int) -> "ValidationText":
        """A run's, from its prepared folder."""
        return cls(
            store=PairStore.open(folder, "valid"),
            tokenizer=tokenizer,
            tgt_lang=config.data.tgt_lang,
            batch_tokens=batch_tokens,
            num_translated=config.train.bleu_sentences,
        )

    def validate(self, model: Model) -> Validation:
        """Greedily: cheap enough to do often, and close enough to beam search to choose by."""
        assert not isinstance(model, LanguageModel)
        was_training = model.training
        model.eval()
        try:
            score = bleu(self.translate(model), self.references(), self.tgt_lang) if self.num_references else None
            return Validation(nll=self.nll(model), bleu=score)
        finally:
            model.train(was_training)

    @property
    def num_references(self) -> int:
        return min(self.num_translated, len(self.store))

    def references(self) -> list[str]:
        return [self.store.tgt_text[row] for row in range(self.num_references)]

    def _batches(self, num_pairs: int) -> Iterator[tuple[list[int], Batch]]:
        lengths = PairLengths.of(self.store.src.lengths, self.store.tgt.lengths)
        pairs = np.arange(num_pairs, dtype=np.int64)
        for batch in epoch_batches(lengths, pairs, batch_tokens=self.batch_tokens, seed=0, epoch=0):
            rows: list[int] = batch.tolist()
            yield rows, collate([self.store.src[row] for row in rows], [self.store.tgt[row] for row in rows])

    def nll(self, model: EncoderDecoder) -> float:
        return mean_nll(model, (batch for _, batch in self._batches(len(self.store))))

    def rehearse(self, model: Model) -> None:
        """Takes as long as a validation of a model that has learnt when to end."""
        assert not isinstance(model, LanguageModel)
        self.translate(model, at_reference_length=True)
        self.nll(model)

    def translate(self, model: EncoderDecoder, *, at_reference_length: bool = False) -> list[str]:
        """In the order of the text. `at_reference_length` cuts what would be longer, as untrained models' output is."""
        searcher = Searcher((model,))  # a new one each time: what it keeps would take memory from training
        if searcher.is_static:
            groups = [list(range(self.num_references))]
        else:
            groups = [rows for rows, _ in self._batches(self.num_references)]
        texts = [""] * self.num_references
        for rows in groups:
            sentences = [self._sentence(row, model, at_reference_length) for row in rows]
            for row, [output] in zip(rows, searcher.search(sentences, width=1, alpha=0.0), strict=True):
                texts[row] = self.tokenizer.tgt.decode(output.ids)
        return texts

    def _sentence(self, row: int, model: EncoderDecoder, at_reference_length: bool) -> Sentence:
        src, tgt = self.store.src[row], self.store.tgt[row]
        limit = len(tgt) + 1 if at_reference_length else 2 * (len(src) + 1) + 10  # untrained models never end by themselves
        return Sentence(src.tolist(), min(limit, model.config.longest_sequence - 1))

    def sample(self, num_pairs: int = 16) -> Batch:
        """A few pairs to look at attention with."""
        rows = range(min(num_pairs, len(self.store)))
        return collate([self.store.src[row] for row in rows], [self.store.tgt[row] for row in rows])


@dataclass(frozen=True, eq=False)
class ValidationWindows:
    """Held-out texts for a language model, in order, in windows as long as those it learns from."""

    windows: Windows
    batch_tokens: int

    def validate(self, model: Model) -> Validation:
        was_training = model.training
        model.eval()
        try:
            return Validation(nll=self.nll(model), bleu=None)
        finally:
            model.train(was_training)

    def nll(self, model: Model) -> float:
        return mean_nll(model, map(self.windows.batch, self._numbers()))

    def rehearse(self, model: Model) -> None:
        self.nll(model)

    def _numbers(self) -> list[list[int]]:
        order = np.arange(len(self.windows), dtype=np.int64)
        return [batch.tolist() for batch in self.windows.batches(order, self.batch_tokens)]

    def sample(self, num_windows: int = 4) -> TextBatch:
        """A few windows to look at attention with."""
        return self.windows.batch(self._numbers()[0][:num_windows])


def open_validation(
    config: RunConfig, folder: Path, tokenizer: Tokenizer, *, batch_tokens: int
) -> ValidationText | ValidationWindows:
    """A run's held-out text, from its prepared folder."""
    if config.model.kind != "language":
        return ValidationText.of(config, folder, tokenizer, batch_tokens=batch_tokens)
    store = TextStore.open(folder, "valid")
    return ValidationWindows(Windows(store, np.arange(len(store), dtype=np.int64), config.model.context), batch_tokens)
