"""The translator: a trained run, or an ensemble of several, that takes texts and returns translations."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import RunConfig
from regard.data.batch import Batch, collate
from regard.errors import UserError
from regard.machine.device import advice_on_memory, find_device
from regard.model.sequence import EncoderDecoder
from regard.model.trace import Intervention, Trace
from regard.run.model import load_run
from regard.search.hypothesis import Hypothesis, Sentence, hypothesis
from regard.text.cleaning import normalise, require_texts
from regard.text.sentences import joined, parts_for
from regard.text.tokenizer import EOS_ID, LANGUAGE_CODE, UNK_ID, Tokenizer
from regard.translate.alignment import Links, place_for, shifted, word_links, words_of
from regard.translate.risk import least_risky
from regard.translate.search import BatchSize, Search, Searcher, require_alpha
from regard.translate.translation import END, Token, TracedTranslation, Translation

BATCH_TOKENS = {"cpu": 1024, "cuda": 16384, "mps": 4096}
QUEUE = 16  # times as many texts are given to a search with a queue as it searches at once
DEFAULT_SEARCH, DEFAULT_BATCH = Search(), BatchSize()


def load(*runs: str | Path, device: str = "auto") -> "Translator":
    """Load the translator that a run trained, or an ensemble of several, whose probabilities are averaged. A checkpoint's
    folder is also a run."""
    if not runs:
        raise UserError("give at least one run to load")
    where = find_device(device)
    loaded = [load_run(run, where) for run in runs]
    for run in loaded:
        if not isinstance(run.model, EncoderDecoder):
            raise UserError(f"{run.folder} is a language model and does not translate; use `regard generate`")
        if not loaded[0].tokenizer.is_in(run.folder):
            raise UserError(
                f"{run.folder} has other subwords than {loaded[0].folder}; only runs that share them go together"
            )
    models = tuple(run.model for run in loaded if isinstance(run.model, EncoderDecoder))
    return Translator(tuple(run.config for run in loaded), loaded[0].tokenizer, models, where)


class Part(NamedTuple):
    """A text, or a part of one that is too long to be translated as a whole."""

    source: str
    code: str  # of the target language, where an imported model needs one and the source does not begin with it
    ids: list[int]
    prefix: list[int]


class SourceText(NamedTuple):
    """A text as it was given, and its encoded parts; none if there is nothing to translate."""

    text: str
    parts: list[Part]

    @property
    def num_tokens(self) -> int:
        """The source tokens of all parts, EOS counted."""
        return sum(len(part.ids) + 1 for part in self.parts)


@dataclass(frozen=True, eq=False, repr=False)
class Translator:
    """One run's model and subwords, or several models that share subwords."""

    configs: tuple[RunConfig, ...]  # one for each run
    tokenizer: Tokenizer
    models: tuple[EncoderDecoder, ...]
    device: torch.device

    def __repr__(self) -> str:
        languages = f"{self.config.data.src_lang or 'source'} → {self.config.data.tgt_lang or 'target'}"
        return f"Translator({languages}, {len(self.models)} model{'s' if len(self.models) > 1 else ''}, {self.device})"

    @property
    def config(self) -> RunConfig:
        """The first run's settings."""
        return self.configs[0]

    @cached_property
    def searcher(self) -> Searcher:
        """The search, which keeps buffers from one call to the next."""
        return Searcher(self.models)

    def translate(
        self,
        texts: Iterable[str],
        search: Search = DEFAULT_SEARCH,
        *,
        batch: BatchSize = DEFAULT_BATCH,
        prefixes: Sequence[str] = (),
        align: bool = False,
    ) -> list[Translation]:
        """Return every text's translation, in the order of the texts. A translation begins with its prefix, if any."""
        done = dict(self.translations(texts, search, batch=batch, prefixes=prefixes, align=align))
        return [done[number] for number in sorted(done)]

    def translations(
        self,
        texts: Iterable[str],
        search: Search = DEFAULT_SEARCH,
        *,
        batch: BatchSize = DEFAULT_BATCH,
        prefixes: Sequence[str] = (),
        align: bool = False,
    ) -> Iterator[tuple[int, Translation]]:
        """Yield every text's translation with the number of the text, in the order in which they are found."""
        return self.translate_encoded(self.encode(texts, prefixes), search, batch=batch, align=align)

    def encode(self, texts: Iterable[str], prefixes: Sequence[str] = ()) -> list[SourceText]:
        """Cut texts into parts and encode them. This is safe in any thread."""
        texts, prefixes = require_texts(texts, "text"), require_texts(prefixes, "prefix")
        if prefixes and len(prefixes) != len(texts):
            raise UserError(f"there are {len(prefixes)} prefixes for {len(texts)} texts")
        return [
            SourceText(text, self.parts(normalise(text), n, prefixes[n] if prefixes else "")) for n, text in enumerate(texts)
        ]

    def translate_encoded(
        self,
        sources: Sequence[SourceText],
        search: Search = DEFAULT_SEARCH,
        *,
        batch: BatchSize = DEFAULT_BATCH,
        align: bool = False,
    ) -> Iterator[tuple[int, Translation]]:
        """Yield every encoded text's translation with the number of the text, in the order in which they are found."""
        found: list[dict[int, Translation]] = [{} for _ in sources]
        for number, source in enumerate(sources):
            if not source.parts:
                yield number, Translation(source.text, text="", alignment=() if align else None)
        every_part = [(n, place, part) for n, source in enumerate(sources) for place, part in enumerate(source.parts)]
        lengths = [len(part.ids) + 1 for _, _, part in every_part]
        waiting = 1 if self.searcher.static is None or search.samples else QUEUE
        for places, at_once in self._batches(lengths, batch, search.num_candidates, waiting):
            group = [every_part[place] for place in places]
            parts = [part for _, _, part in group]
            limits = [min(max(len(part.ids) + search.max_extra, len(part.prefix)), self._longest_output) for part in parts]
            sentences = [Sentence(part.ids, limit, part.prefix) for part, limit in zip(parts, limits, strict=True)]
            with advice_on_memory("translate fewer tokens at once, with --batch-tokens"):
                candidates = self.searcher.search(sentences, search, num_places=at_once)
                translations = self._translations(parts, limits, candidates, search, align)
            for (number, place, _), translation in zip(group, translations, strict=True):
                found[number][place] = translation
                if len(found[number]) == len(sources[number].parts):
                    yield number, self._joined(sources[number].text, [one for _, one in sorted(found[number].items())])

    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        *,
        pieces: bool = False,
        alpha: float = 0.0,
        batch: BatchSize = DEFAULT_BATCH,
        align: bool = False,
    ) -> list[Translation]:
        """Return given translations with the probabilities that the model gives them. With `pieces`, a target is subwords
        with spaces between them, as in `Translation.pieces`: a search may have found others than a text is cut into."""
        require_alpha(alpha)
        sources, targets = require_texts(sources, "source"), require_texts(targets, "target")
        if len(sources) != len(targets):
            raise UserError(f"there are {len(sources)} sources for {len(targets)} targets")
        sources = [normalise(source) for source in sources]
        src = self.tokenizer.src.encode(sources)
        if pieces:
            tgt = [self.ids_of(target.split(), f"target {number}") for number, target in enumerate(targets, start=1)]
        else:
            tgt = self.tokenizer.tgt.encode([normalise(target) for target in targets])
        numbers = [number for number in range(len(src)) if src[number] or tgt[number]]
        lengths = [max(len(src[number]), len(tgt[number])) + 1 for number in numbers]
        scored = [Translation(source, text="", alignment=() if align else None) for source in sources]
        for places, _ in self._batches(lengths, batch):
            group = [numbers[place] for place in places]
            parts = [Part(sources[number], "", src[number], []) for number in group]
            values = self._log_probs(collate([src[number] for number in group], [tgt[number] for number in group])).tolist()
            outputs = [hypothesis(tgt[n], row[: len(tgt[n]) + 1], alpha) for n, row in zip(group, values, strict=True)]
            links = self._links(parts, outputs) if align else [None] * len(group)
            for number, part, output, link in zip(group, parts, outputs, links, strict=True):
                scored[number] = self._translation(part, output, link, ended=True)  # a given translation is whole
        return scored

    def trace(self, source: str, target: str | None = None, intervention: Intervention | None = None) -> TracedTranslation:
        """Trace one pass of the first model over a text and its translation, changed by `intervention`. Without a target,
        this is the best translation that the default search finds without the intervention."""
        sources, targets = require_texts([source], "source"), require_texts([target or ""], "target")
        parts = self.parts(normalise(sources[0]))
        if len(parts) != 1:
            raise UserError(f"a trace is of one sentence, and this text has {len(parts)} parts; give one of them")
        if target is None:
            [translation] = self.translate(sources)
            tgt = self.ids_of(translation.pieces, "translation")
        else:
            [tgt] = self.tokenizer.tgt.encode([normalise(targets[0])])
        src_pieces, tgt_pieces = self.tokenizer.src.pieces(parts[0].ids), self.tokenizer.tgt.pieces(tgt)
        trace = self.trace_ids([parts[0].ids], [tgt], intervention)
        return TracedTranslation(trace, (*src_pieces, END), (*tgt_pieces, END))

    def trace_ids(
        self, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]], intervention: Intervention | None = None
    ) -> Trace:
        """Trace one pass of the first model over a batch of sources and targets, given as ids without special tokens."""
        batch = collate(src, tgt)
        return self.models[0].trace(batch.src.to(self.device), batch.tgt_in.to(self.device), intervention)

    @property
    def batch_tokens(self) -> int:
        """The source tokens of a batch that suit the device, with the default search."""
        return BATCH_TOKENS.get(self.device.type, 1024)

    @property
    def used_to(self) -> int:
        """The subwords of the longest text that each run learnt from."""
        return min(self.limit, *(config.longest or self.limit for config in self.configs))

    @property
    def limit(self) -> int:
        """The most subwords that each run could have learnt from, whatever its corpus happened to hold."""
        return min(self._longest_output, *(config.limit for config in self.configs))

    @property
    def _longest_output(self) -> int:
        return min(model.config.longest_sequence for model in self.models) - 1  # BOS, or EOS, is one more

    def parts(self, text: str, number: int = 0, prefix: str = "") -> list[Part]:
        """Cut a normalised text into parts to translate one by one: sentences, if it is longer than the model is used to.
        A prefix is continued even if the text is empty."""
        [forced] = self.tokenizer.tgt.encode([normalise(prefix)]) if prefix else [[]]
        if not text and not forced:
            return []
        if len(forced) > self._longest_output:
            raise UserError(
                f"text {number + 1}: a prefix of {len(forced)} subwords is longer than what this model can say, "
                f"{self._longest_output}"
            )
        found = LANGUAGE_CODE.match(text) if self.tokenizer.src.is_marian else None
        code = f"{found[0]} " if found else ""  # each part needs it
        body = text[found.end() :].lstrip() if found else text
        bearable = min(self.limit, 2 * self.used_to)  # a torn sentence is worse than one a little too long
        encode = lambda texts: self.tokenizer.src.encode([code + text for text in texts])  # noqa: E731
        [first, *others] = parts_for(body, encode, used_to=self.used_to, bearable=bearable)
        head = text[: len(text) - len(body)]
        return [Part(head + first.text, "", first.ids, forced), *(Part(part.text, code, part.ids, []) for part in others)]

    def _batches(
        self, lengths: Sequence[int], size: BatchSize, width: int = 1, waiting: int = 1
    ) -> Iterator[tuple[list[int], int]]:
        """Yield batches of places in `lengths`, the longest first, and how many of each to search at once: fewer if a wide
        search needs more memory, and no more than keep a device with a queue busy. A batch has `waiting` times as many."""
        tokens = size.tokens or self.batch_tokens * DEFAULT_SEARCH.beam // max(width, DEFAULT_SEARCH.beam)
        most = None if size.tokens else self.searcher.num_places(width)
        places, start = sorted(range(len(lengths)), key=lambda place: -lengths[place]), 0
        while start < len(places):
            fitting = max(1, tokens // lengths[places[start]])
            at_once = size.sentences or min(fitting, most or fitting)
            yield places[start : start + waiting * at_once], at_once
            start += waiting * at_once

    def _translations(
        self,
        parts: Sequence[Part],
        limits: Sequence[int],
        candidates: Sequence[Sequence[Hypothesis]],
        search: Search,
        align: bool,
    ) -> list[Translation]:
        """Return the best of each part's candidates as texts. A candidate as long as its limit was cut."""
        if search.minimum_risk:
            candidates = [self._by_risk(some, search) for some in candidates]
        rows = [(row, output) for row, some in enumerate(candidates) for output in some[: search.num_best]]
        links = self._links([parts[row] for row, _ in rows], [output for _, output in rows]) if align else [None] * len(rows)
        found: list[list[Translation]] = [[] for _ in parts]
        for (row, output), link in zip(rows, links, strict=True):
            found[row].append(self._translation(parts[row], output, link, ended=len(output.ids) < limits[row]))
        return [replace(best, alternatives=tuple(others)) for best, *others in found]

    def _by_risk(self, candidates: Sequence[Hypothesis], search: Search) -> Sequence[Hypothesis]:
        texts = [self.tokenizer.tgt.decode(candidate.ids) for candidate in candidates]
        log_probs = None if search.samples else [candidate.log_prob for candidate in candidates]
        return [candidates[place] for place in least_risky(texts, log_probs)]

    @torch.no_grad()
    def _log_probs(self, batch: Batch) -> Float[Tensor, "B T"]:
        """Return the log-probability of each target token, from one pass."""
        src, tgt_in, tgt_out = (ids.to(self.device) for ids in (batch.src, batch.tgt_in, batch.tgt_out))
        with advice_on_memory("score fewer tokens at once, with --batch-tokens"):
            logits = torch.stack([model(src, tgt_in).log_softmax(-1) for model in self.models])
            log_probs = logits.logsumexp(0) - math.log(len(self.models))
        return log_probs.gather(2, tgt_out[:, :, None])[:, :, 0]

    def _links(self, parts: Sequence[Part], outputs: Sequence[Hypothesis]) -> list[Links]:
        """Align words by the cross-attention of the first model."""
        if not parts:
            return []
        if self.models[0].config.kind == "rnn":
            raise UserError("a model of kind rnn has no attention that words could be aligned by; leave --align out")
        layers = self.trace_ids([part.ids for part in parts], [output.ids for output in outputs]).decoder.cross_attention
        place = place_for(len(layers))
        attention = layers[place.layer].weights.mean(1)[:, int(place.fed_in) :].cpu()
        found = []
        for part, output, weights in zip(parts, outputs, attention, strict=True):
            source = words_of(self.tokenizer.src.pieces(part.ids), part.code + part.source)
            text = self.tokenizer.tgt.decode(output.ids)
            links = word_links(weights, source, words_of(self.tokenizer.tgt.pieces(output.ids), text))
            found.append(tuple((src - 1, tgt) for src, tgt in links if src > 0) if part.code else links)
        return found

    def _translation(self, part: Part, output: Hypothesis, links: Links | None, *, ended: bool) -> Translation:
        pieces = [*self.tokenizer.tgt.pieces(output.ids), END]
        return Translation(
            source=part.source,
            text=" ".join(self.tokenizer.tgt.decode(output.ids).split()),  # bytes may spell any space, a new line too
            tokens=tuple(map(Token, pieces, output.log_probs)),
            log_prob=output.log_prob,
            score=output.score,
            ended=ended,
            alignment=links,
        )

    def _joined(self, source: str, parts: list[Translation]) -> Translation:
        """Join the translations of a text's parts. The alternatives of several parts are too many to list."""
        if len(parts) == 1:
            alternatives = tuple(replace(one, source=source) for one in parts[0].alternatives)
            return replace(parts[0], source=source, alternatives=alternatives)
        language = max(config.data.tgt_lang for config in self.configs)  # the one that a run names, whatever their order
        text = joined([part.text for part in parts], language)
        links = [(part.source, part.text, part.alignment) for part in parts if part.alignment is not None]
        return Translation(
            source=source,
            text=text,
            tokens=tuple(token for part in parts for token in part.tokens),
            log_prob=sum(part.log_prob for part in parts),
            score=sum(part.score for part in parts),
            ended=all(part.ended for part in parts),
            num_parts=len(parts),
            alignment=shifted(links, normalise(source), text) if links else None,
        )

    def ids_of(self, pieces: Sequence[str], what: str) -> list[int]:
        """Return the ids of a translation's pieces. `what` names them in a message about one that cannot be in a text."""
        ids = self.tokenizer.tgt.ids(require_texts(pieces, f"{what}: piece"))
        for piece, token in zip(pieces, ids, strict=True):
            if token <= EOS_ID:
                raise UserError(f"{what}: {piece} cannot be in a text; leave it out, the end is counted anyway")
            if token == UNK_ID and piece != self.tokenizer.tgt.pieces([UNK_ID])[0]:
                raise UserError(f"{what}: {piece!r} is not a subword of this model; is this text, not pieces?")
        return ids
