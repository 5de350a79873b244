"""How a model does on text it does not learn from: loss, perplexity, and BLEU of what it really translates."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from regard.config import RunConfig
from regard.data.batch import Batch, collate
from regard.data.batching import PairLengths, epoch_batches
from regard.data.store import PairStore
from regard.evaluate.metrics import bleu
from regard.model.kinds import EncoderDecoder
from regard.search.greedy import greedy
from regard.text.tokenizer import BOS_ID, EOS_ID, Tokenizer
from regard.train.loss import smoothed_cross_entropy
from regard.train.metrics import perplexity
from regard.translate.search import started


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

    def validate(self, model: EncoderDecoder) -> Validation:
        """Greedily: cheap enough to do often, and close enough to beam search to choose by."""
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

    @torch.no_grad()
    def nll(self, model: EncoderDecoder) -> float:
        device = model.output_weight.device
        nll, num_tokens = 0.0, 0
        for _, batch in self._batches(len(self.store)):
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

    def translate(self, model: EncoderDecoder, *, at_reference_length: bool = False) -> list[str]:
        """In the order of the text. `at_reference_length` cuts what would be longer, as untrained models' output is."""
        device = model.output_weight.device
        texts = [""] * self.num_references
        for rows, batch in self._batches(self.num_references):
            lengths = 2 * (batch.src != model.config.pad_id).sum(1) + 10  # untrained models never end by themselves
            lengths = lengths.clamp(max=model.config.longest_sequence - 1)
            if at_reference_length:
                lengths = (batch.tgt_out != model.config.pad_id).sum(1)
            step, cache = started(model, batch.src.to(device))
            outputs = greedy(step, cache, lengths.tolist(), bos_id=BOS_ID, eos_id=EOS_ID, device=device)
            for row, output in zip(rows, outputs, strict=True):
                texts[row] = self.tokenizer.tgt.decode(output.ids)
        return texts

    def sample(self, num_pairs: int = 16) -> Batch:
        """A few pairs to look at attention with."""
        rows = range(min(num_pairs, len(self.store)))
        return collate([self.store.src[row] for row in rows], [self.store.tgt[row] for row in rows])
