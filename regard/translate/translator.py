"""Text in, translations out: a trained run, or several as one."""

import hashlib
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from regard.checkpoint import Run, load_weights, run_and_step
from regard.config import RunConfig
from regard.data.batch import Batch, collate, collate_sources
from regard.model.kinds import EncoderDecoder, build_encoder_decoder
from regard.search.hypothesis import Hypothesis, hypothesis
from regard.search.sample import sample
from regard.text.cleaning import normalise
from regard.text.sentences import joined, parts_for
from regard.text.tokenizer import BOS_ID, EOS_ID, LANGUAGE_CODE, UNK_ID, Tokenizer
from regard.train.device import advice_on_memory, find_device
from regard.translate.alignment import Links, place_for, shifted, word_links, words_of
from regard.translate.rig import Sentence
from regard.translate.risk import least_risky
from regard.translate.search import BatchSize, Search, require_alpha
from regard.translate.searcher import Searcher, suitable_places
from regard.translate.translation import END, Token, Translation, empty, together, with_alternatives

BATCH_TOKENS = {"cpu": 1024, "cuda": 16384, "mps": 4096}
QUEUE = 16  # times as many texts as are under way at once wait with them, where a search takes a queue
NO_LIMIT = 1024  # subwords, for a run that was told to learn from texts of any length
DEFAULT_SEARCH, DEFAULT_BATCH = Search(), BatchSize()


def load(*runs: str | Path, device: str = "auto") -> "Translator":
    """The translator that a run trained; of several runs, one that averages what they say. A checkpoint's folder is a run as
    it was then."""
    if not runs:
        raise ValueError("give at least one run to load")
    folders, steps = zip(*(run_and_step(Path(folder)) for folder in runs), strict=True)
    where = find_device(device)
    configs = [run.read_config() for run in folders]
    for run, config in zip(folders, configs, strict=True):
        if config.model.kind == "language":
            raise ValueError(f"{run.folder} is a language model and does not translate; use `regard generate`")
    for run, step in zip(folders, steps, strict=True):
        if step is None and run.read_weights() is None:
            raise ValueError(f"{run.folder} has no weights yet: its training has not come to a first checkpoint")
        if step is None:
            run.require_intact()
    tokenizer = Tokenizer.load(folders[0].folder)
    for run in folders:
        if not tokenizer.is_in(run.folder):
            raise ValueError(
                f"{run.folder} has other subwords than {folders[0].folder}; only runs that share them go together"
            )
    models = tuple(_load_model(*one, where) for one in zip(folders, steps, configs, strict=True))
    return Translator(configs[0], tokenizer, models, where)


def _load_model(run: Run, step: int | None, config: RunConfig, device: torch.device) -> EncoderDecoder:
    model = build_encoder_decoder(config.model)
    model.load_state_dict(load_weights(run.model_path) if step is None else run.load_weights_of(step))
    model.to(device).eval().requires_grad_(False)
    model.pack()
    return model


class Part(NamedTuple):
    """What is translated in one go: a text, or a part of one that is too long for that."""

    text: int  # which text
    place: int  # among its parts
    source: str
    code: str  # of the language to translate to, where an imported model wants one and the source does not begin with it
    ids: list[int]
    prefix: list[int]


@dataclass(frozen=True, eq=False, repr=False)
class Translator:
    """One run's model and subwords, or several models that share subwords."""

    config: RunConfig  # of the first run
    tokenizer: Tokenizer
    models: tuple[EncoderDecoder, ...]
    device: torch.device

    def __repr__(self) -> str:
        languages = f"{self.config.data.src_lang or 'source'} → {self.config.data.tgt_lang or 'target'}"
        return f"Translator({languages}, {len(self.models)} model{'s' if len(self.models) > 1 else ''}, {self.device})"

    @cached_property
    def searcher(self) -> Searcher:
        """What finds translations, with what it keeps from one search to the next."""
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
        """Every text's translation, in the order of the texts. A translation begins with its prefix, where there is one."""
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
        """The same as they come, each with the number of its text."""
        texts = require_texts(texts)
        if prefixes and len(prefixes) != len(texts):
            raise ValueError(f"there are {len(prefixes)} prefixes for {len(texts)} texts")
        parts = [self.parts(normalise(text), n, prefixes[n] if prefixes else "") for n, text in enumerate(texts)]
        found: list[dict[int, Translation]] = [{} for _ in texts]
        for number, of_text in enumerate(parts):
            if not of_text:
                yield number, empty(texts[number], aligned=align)
        every_part = [part for of_text in parts for part in of_text]
        waiting = QUEUE if self.searcher.is_static and not search.samples else 1
        for places in self._batches([len(part.ids) + 1 for part in every_part], batch, search.num_candidates, waiting):
            group = [every_part[place] for place in places]
            at_once = self._at_once(max(len(part.ids) + 1 for part in group), batch, search.num_candidates)
            for part, translation in zip(group, self._translate(group, search, align, at_once), strict=True):
                finished = found[part.text]
                finished[part.place] = translation
                if len(finished) == len(parts[part.text]):
                    yield part.text, self._together(texts[part.text], [finished[place] for place in sorted(finished)])

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
        """Given translations, with the probabilities that the model gives them. With `pieces`, targets are subwords with
        spaces between, as `Translation.pieces` are: a search may have put a text together of others than it is cut into."""
        require_alpha(alpha)
        sources, targets = require_texts(sources), require_texts(targets)
        if len(sources) != len(targets):
            raise ValueError(f"there are {len(sources)} sources for {len(targets)} targets")
        sources = [normalise(source) for source in sources]
        src = self.tokenizer.src.encode(sources)
        if pieces:
            tgt = [self.ids_of(target.split(), f"target {number}") for number, target in enumerate(targets, start=1)]
        else:
            tgt = self.tokenizer.tgt.encode([normalise(target) for target in targets])
        numbers = [number for number in range(len(src)) if src[number] or tgt[number]]
        lengths = [max(len(src[number]), len(tgt[number])) + 1 for number in numbers]
        scored = [empty(source, aligned=align) for source in sources]
        for places in self._batches(lengths, batch):
            group = [numbers[place] for place in places]
            rows = collate([src[number] for number in group], [tgt[number] for number in group])
            values = [row.tolist() for row in self._log_probs(rows)]
            outputs = [hypothesis(tgt[n], row[: len(tgt[n]) + 1], alpha) for n, row in zip(group, values, strict=True)]
            parts = [Part(number, 0, sources[number], "", src[number], []) for number in group]
            links = self._links(parts, outputs) if align else [None] * len(group)
            for part, output, link in zip(parts, outputs, links, strict=True):
                scored[part.text] = self._translation(part, output, link)
        return scored

    @property
    def batch_tokens(self) -> int:
        """Source tokens at once that suit its device, searched as usual."""
        return BATCH_TOKENS.get(self.device.type, 1024)

    @property
    def used_to(self) -> int:
        """The subwords of the longest text it learnt from."""
        return min(self.config.longest or self.limit, self.limit)

    @property
    def limit(self) -> int:
        """The most subwords it could have learnt from: the longest text was as long as its corpus happened to have."""
        return min(self.config.data.cleaning.max_tokens or NO_LIMIT, self._longest_output)

    @property
    def _longest_output(self) -> int:
        return min(model.config.longest_sequence for model in self.models) - 1  # BOS, or EOS, is one more

    def parts(self, text: str, number: int = 0, prefix: str = "") -> list[Part]:
        """What it translates one by one: sentences, where a text is longer than it is used to."""
        if not text:
            return []
        forced = self.tokenizer.tgt.encode([normalise(prefix)])[0] if prefix else []
        if len(forced) > self._longest_output:
            raise ValueError(
                f"text {number + 1}: a prefix of {len(forced)} subwords is longer than what this model can say, "
                f"{self._longest_output}"
            )
        bearable = min(self.limit, 2 * self.used_to)  # a torn sentence is worse than one a little too long
        sources = parts_for(text, self._count, used_to=self.used_to, bearable=bearable)
        code = LANGUAGE_CODE.match(text) if self.tokenizer.src.is_marian else None
        codes = ["", *([f"{code[0]} " if code else ""] * (len(sources) - 1))]  # what the first part begins with, all need
        ids = self.tokenizer.src.encode([code + source for code, source in zip(codes, sources, strict=True)])
        parts = zip(sources, codes, ids, strict=True)
        return [Part(number, place, *part, [] if place else forced) for place, part in enumerate(parts)]

    def _count(self, texts: Sequence[str]) -> list[int]:
        return [len(ids) for ids in self.tokenizer.src.encode(texts)]

    def _at_once(self, longest: int, size: BatchSize, width: int) -> int:
        """How many texts are searched at once, of up to so many tokens. Fewer where each is searched more widely than
        usual, and where a queue keeps places full, no more than keep the device busy."""
        if size.sentences:
            return size.sentences
        suits = self.batch_tokens * DEFAULT_SEARCH.beam // max(width, DEFAULT_SEARCH.beam)
        count = max(1, (size.tokens or suits) // longest)
        return min(count, suitable_places(width)) if self.searcher.is_static and not size.tokens else count

    def _batches(self, lengths: Sequence[int], size: BatchSize, width: int = 1, waiting: int = 1) -> Iterator[list[int]]:
        """Places in `lengths`: neighbours in length together, the longest first, for if they fit into memory, all do. With
        those that wait, `waiting` times as many as are searched at once."""
        group: list[int] = []
        longest = 0
        for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
            longest = longest or lengths[place]
            if len(group) >= waiting * self._at_once(longest, size, width):
                yield group
                group, longest = [], lengths[place]
            group.append(place)
        if group:
            yield group

    def _translate(self, parts: Sequence[Part], search: Search, align: bool, at_once: int) -> list[Translation]:
        with advice_on_memory("translate fewer tokens at once, with --batch-tokens"):
            found = self._search(parts, search, at_once)
            if search.minimum_risk:
                found = [self._by_risk(candidates, search) for candidates in found]
            best = [candidates[: search.num_best] for candidates in found]
            rows = [(part, output) for part, outputs in zip(parts, best, strict=True) for output in outputs]
            links = self._links([part for part, _ in rows], [output for _, output in rows]) if align else [None] * len(rows)
        translations = iter([self._translation(*row, link) for row, link in zip(rows, links, strict=True)])
        return [with_alternatives([next(translations) for _ in outputs]) for outputs in best]

    def _search(self, parts: Sequence[Part], search: Search, at_once: int) -> list[list[Hypothesis]]:
        """Each part's candidates."""
        max_lengths = [max(len(part.ids) + search.max_extra, len(part.prefix)) for part in parts]
        max_lengths = [min(length, self._longest_output) for length in max_lengths]
        if search.samples:
            step, cache = self.searcher.start(collate_sources([part.ids for part in parts]).to(self.device))
            draws = drawn_numbers(parts, search, max(max_lengths) + 1).to(self.device)
            return sample(
                step,
                cache,
                max_lengths,
                draws,
                sampling=search.sampling,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                prefixes=[part.prefix for part in parts],
                alpha=search.alpha,
            )
        return self.searcher.search(
            [Sentence(part.ids, length, part.prefix) for part, length in zip(parts, max_lengths, strict=True)],
            width=search.beam,
            alpha=search.alpha,
            num_best=search.beam if search.minimum_risk else search.num_best,
            num_places=at_once,
        )

    def _by_risk(self, candidates: Sequence[Hypothesis], search: Search) -> list[Hypothesis]:
        texts = [self.tokenizer.tgt.decode(candidate.ids) for candidate in candidates]
        log_probs = None if search.samples else [candidate.log_prob for candidate in candidates]
        return [candidates[place] for place in least_risky(texts, log_probs)]

    @torch.no_grad()
    def _log_probs(self, batch: Batch) -> Float[Tensor, "B T"]:
        """Of each target token, in one pass."""
        src, tgt_in, tgt_out = (ids.to(self.device) for ids in (batch.src, batch.tgt_in, batch.tgt_out))
        with advice_on_memory("score fewer tokens at once, with --batch-tokens"):
            logits = torch.stack([model(src, tgt_in).log_softmax(-1) for model in self.models])
            log_probs = logits.logsumexp(0) - math.log(len(self.models))
        return log_probs.gather(2, tgt_out[:, :, None])[:, :, 0]

    def _links(self, parts: Sequence[Part], outputs: Sequence[Hypothesis]) -> list[Links]:
        """Words that belong together, by the attention of the first model."""
        if not parts:
            return []
        model = self.models[0]
        if model.config.kind == "rnn":
            raise ValueError("a model of kind rnn has no attention that words could be aligned by; leave --align out")
        batch = collate([part.ids for part in parts], [output.ids for output in outputs])
        trace = model.trace(batch.src.to(self.device), batch.tgt_in.to(self.device))
        place = place_for(len(trace.decoder.cross_attention))
        attention = trace.decoder.cross_attention[place.layer].weights.mean(1)[:, int(place.fed_in) :].cpu()
        found = []
        for part, output, weights in zip(parts, outputs, attention, strict=True):
            source = words_of(self.tokenizer.src.pieces(part.ids), part.code + part.source)
            text = self.tokenizer.tgt.decode(output.ids)
            links = word_links(weights, source, words_of(self.tokenizer.tgt.pieces(output.ids), text))
            found.append(tuple((src - 1, tgt) for src, tgt in links if src > 0) if part.code else links)
        return found

    def _translation(self, part: Part, output: Hypothesis, links: Links | None) -> Translation:
        pieces = [*self.tokenizer.tgt.pieces(output.ids), END]
        return Translation(
            source=part.source,
            text=" ".join(self.tokenizer.tgt.decode(output.ids).split()),  # bytes may spell any space, a new line too
            tokens=tuple(map(Token, pieces, output.log_probs)),
            log_prob=output.log_prob,
            score=output.score,
            alignment=links,
        )

    def _together(self, source: str, parts: list[Translation]) -> Translation:
        text = joined([part.text for part in parts], self.config.data.tgt_lang)
        alignment = None
        if parts[0].alignment is not None:
            alignment = shifted([(part.source, part.text, part.alignment or ()) for part in parts], normalise(source), text)
        return together(source, text, parts, alignment)

    def ids_of(self, pieces: Sequence[str], what: str) -> list[int]:
        """A translation's subwords by their numbers. `what` it is, for whoever gave others."""
        ids = self.tokenizer.tgt.ids(pieces)
        for piece, token in zip(pieces, ids, strict=True):
            if token <= EOS_ID:
                raise ValueError(f"{what}: {piece} is no part of a text; leave it out, the end is counted anyway")
            if token == UNK_ID and piece != self.tokenizer.tgt.pieces([UNK_ID])[0]:
                raise ValueError(f"{what}: {piece!r} is no subword of this model; is this text, not pieces?")
        return ids


def require_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str):
        raise ValueError("give a list of texts, not one text: [text]")
    found = list(texts)
    for number, text in enumerate(found, start=1):
        if not isinstance(text, str):
            raise ValueError(f"text {number} is no text but a {type(text).__name__}")
    return found


def drawn_numbers(parts: Sequence[Part], search: Search, num_tokens: int) -> Float[Tensor, "B W T"]:
    """Each part's own chance, which depends on the seed and on what is translated, and on nothing beside it."""
    draws = torch.zeros(len(parts), search.samples, num_tokens)
    for row, part in enumerate(parts):
        digest = hashlib.sha256(repr((search.seed, part.ids)).encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
        own = len(part.ids) + search.max_extra + 1  # not the batch's longest: a text's numbers must be its own
        draws[row, :, :own] = torch.rand(search.samples, own, generator=generator)[:, :num_tokens]
    return draws
