"""The generator: a language model that continues prompts."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.config import RunConfig
from regard.errors import UserError
from regard.machine.device import advice_on_memory, find_device
from regard.model.cache import DecoderCache
from regard.model.language import LanguageModel
from regard.run.model import load_run
from regard.search.greedy import greedy
from regard.search.hypothesis import Cache, Hypothesis, forbid
from regard.search.sample import MODEL_DISTRIBUTION, Sampling, own_draws, sample
from regard.text.cleaning import normalise, require_texts
from regard.text.tokenizer import BOS_ID, EOS_ID, NEVER_OUTPUT, PAD_ID, Tokenizer

MOST = 1_000_000  # texts for a prompt, and tokens of a text
BATCH_ROWS = 64  # texts that are generated at once


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The settings of a generation. Its random numbers depend on the seed and on the prompt, not on other prompts."""

    num: int = 1  # texts for each prompt
    max_tokens: int = 100  # beyond the prompt
    greedy: bool = False  # the most probable token each time, instead of drawing
    sampling: Sampling = MODEL_DISTRIBUTION
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("num", "max_tokens"):
            if not 1 <= getattr(self, name) <= MOST:
                raise UserError(f"{name} is {getattr(self, name)}; it must be at least 1 and at most {MOST:,}")
        if self.greedy and self.num > 1:
            raise UserError(f"greedy generation gives one text, and {self.num} were asked for; sample them, or ask for one")


@dataclass(frozen=True)
class Generated:
    """A generated text, which begins with its prompt."""

    prompt: str  # normalised
    text: str  # the prompt and its continuation
    pieces: tuple[str, ...]  # the subwords of the continuation
    log_probs: tuple[float, ...]  # of each piece and, if the text has ended, of its end
    ended: bool  # False: it was cut after `max_tokens`


DEFAULT = Generation()


def load_language(run: str | Path, *, device: str = "auto") -> "Generator":
    """Load the language model that a run trained. A checkpoint's folder is also a run."""
    loaded = load_run(run, find_device(device))
    if not isinstance(loaded.model, LanguageModel):
        raise UserError(f"{loaded.folder} is not a language model but a {loaded.config.model.kind}; use `regard translate`")
    return Generator(loaded.config, loaded.tokenizer, loaded.model, loaded.model.output_weight.device)


@dataclass(frozen=True, eq=False, repr=False)
class Generator:
    """A run's model and subwords."""

    config: RunConfig
    tokenizer: Tokenizer
    model: LanguageModel
    device: torch.device

    def __repr__(self) -> str:
        return f"Generator({len(self.tokenizer.tgt):,} subwords, {self.device})"

    def generate(self, prompts: Sequence[str], how: Generation = DEFAULT) -> list[list[Generated]]:
        """Return `how.num` texts for each prompt, in the order of the prompts. An empty prompt begins a new text."""
        texts = [normalise(prompt) for prompt in require_texts(prompts, "prompt")]
        ids = [[BOS_ID, *row] for row in self.tokenizer.tgt.encode(texts)]
        found: list[list[Generated]] = [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda row: len(ids[row]))  # similar lengths together
        # The texts of a prompt soon differ, so each is a row of its own and not one beam of several.
        jobs = ((row, draws) for row in order for draws in own_draws((how.seed, ids[row]), how.num, how.max_tokens + 1))
        while batch := list(itertools.islice(jobs, BATCH_ROWS)):
            rows = [row for row, _ in batch]
            with advice_on_memory("ask for shorter texts"):
                outputs = self._continued([ids[row] for row in rows], torch.stack([draws for _, draws in batch]), how)
            for row, output in zip(rows, outputs, strict=True):
                ended = len(output.ids) < how.max_tokens  # otherwise the end was forced
                text, pieces = self.tokenizer.tgt.decode([*ids[row], *output.ids]), self.tokenizer.tgt.pieces(output.ids)
                log_probs = output.log_probs if ended else output.log_probs[:-1]
                found[row].append(Generated(texts[row], text, tuple(pieces), log_probs, ended))
        return found

    def _continued(self, ids: list[list[int]], draws: Float[Tensor, "B T"], how: Generation) -> list[Hypothesis]:
        """Read all tokens of the prompts but the last in one pass; the search begins with the last."""
        prompt = torch.full((len(ids), max(map(len, ids)) - 1), PAD_ID)
        for row, tokens in enumerate(ids):
            prompt[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        cache = cast("Cache", self.model.start(prompt.to(self.device)))

        def step(ids: Int[Tensor, " N"], cache: Cache) -> Float[Tensor, "N V"]:
            return forbid(self.model.step(ids, cast("DecoderCache", cache)), NEVER_OUTPUT)

        last, max_lengths = [tokens[-1] for tokens in ids], [how.max_tokens] * len(ids)
        if how.greedy:
            return greedy(step, cache, max_lengths, bos_id=last, eos_id=EOS_ID, device=self.device)
        chance = draws[:, None].to(self.device)
        outputs = sample(step, cache, max_lengths, chance, sampling=how.sampling, bos_id=last, eos_id=EOS_ID)
        return [output for (output,) in outputs]
