"""Text from a language model: what a prompt goes on with."""

import hashlib
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.checkpoint import load_weights, run_and_step
from regard.config import RunConfig
from regard.model.language import LanguageModel
from regard.search.greedy import greedy
from regard.search.hypothesis import Cache, Hypothesis, Step
from regard.search.sample import Sampling, sample
from regard.text.cleaning import normalise
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, Tokenizer
from regard.train.device import advice_on_memory, find_device

AS_THE_MODEL_SAYS = Sampling()
BATCH_ROWS = 64  # texts that are generated at once


@dataclass(frozen=True, kw_only=True)
class Generation:
    """How to go on. What is drawn is a function of the seed and of the prompt, whatever stands beside it."""

    num: int = 1  # texts for each prompt
    max_tokens: int = 100  # beyond the prompt
    greedy: bool = False  # the most probable token each time, instead of drawing
    sampling: Sampling = AS_THE_MODEL_SAYS
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("num", "max_tokens"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.greedy and self.num > 1:
            raise ValueError(f"the most probable text is one, and {self.num} were asked for; draw them, or ask for one")


@dataclass(frozen=True)
class Generated:
    """A text that begins with its prompt."""

    prompt: str  # normalised
    text: str  # the prompt, and what follows it
    pieces: tuple[str, ...]  # what follows, in subwords
    log_probs: tuple[float, ...]  # of each of them and, where the text has ended, of its end
    ended: bool  # by itself; otherwise after `max_tokens`


DEFAULT = Generation()


def load_language(run: str | Path, *, device: str = "auto") -> "Generator":
    """The language model that a run trained. A checkpoint's folder is the run as it was then."""
    found, step = run_and_step(Path(run))
    config, where = found.read_config(), find_device(device)
    if config.model.kind != "language":
        raise ValueError(f"{found.folder} is no language model but a {config.model.kind}; use `regard translate`")
    if step is None and found.read_weights() is None:
        raise ValueError(f"{found.folder} has no weights yet: its training has not come to a first checkpoint")
    if step is None:
        found.require_intact()
    model = LanguageModel(config.model)
    model.load_state_dict(load_weights(found.model_path) if step is None else found.load_weights_of(step))
    model.to(where).eval().requires_grad_(False)
    model.pack()
    return Generator(config, Tokenizer.load(found.folder), model, where)


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
        """So many texts for each prompt, in the order of the prompts. An empty prompt is the beginning of a text."""
        texts = [normalise(prompt) for prompt in _require_prompts(prompts)]
        ids = [[BOS_ID, *row] for row in self.tokenizer.tgt.encode(texts)]
        found: list[list[Generated]] = [[] for _ in texts]
        order = sorted(range(len(texts)), key=lambda row: len(ids[row]))  # similar lengths together
        # What is drawn has little in common but the prompt: each text is a row of its own, not a beam of one.
        jobs = ((row, draws) for row in order for draws in _drawn_numbers(ids[row], how))
        while batch := list(itertools.islice(jobs, BATCH_ROWS)):
            rows = [row for row, _ in batch]
            with advice_on_memory("ask for shorter texts"):
                outputs = self._continued([ids[row] for row in rows], torch.stack([draws for _, draws in batch]), how)
            for row, hypothesis in zip(rows, outputs, strict=True):
                found[row].append(self._generated(texts[row], ids[row], hypothesis, how))
        return found

    def _continued(self, ids: list[list[int]], draws: Float[Tensor, "B T"], how: Generation) -> list[Hypothesis]:
        """All tokens of a prompt but the last are read in one pass; the last is what the search begins with."""
        prompt = torch.full((len(ids), max(map(len, ids)) - 1), PAD_ID)
        for row, tokens in enumerate(ids):
            prompt[row, : len(tokens) - 1] = torch.tensor(tokens[:-1])
        cache = cast("Cache", self.model.start(prompt.to(self.device)))
        step = cast("Step[Cache]", self.model.step)
        last, max_lengths = [tokens[-1] for tokens in ids], [how.max_tokens] * len(ids)
        if how.greedy:
            return greedy(step, cache, max_lengths, bos_id=last, eos_id=EOS_ID, device=self.device)
        chance = draws[:, None].to(self.device)
        outputs = sample(step, cache, max_lengths, chance, sampling=how.sampling, bos_id=last, eos_id=EOS_ID)
        return [output for (output,) in outputs]

    def _generated(self, prompt: str, ids: list[int], hypothesis: Hypothesis, how: Generation) -> Generated:
        """An end that was forced, because there were enough tokens, is none."""
        ended = len(hypothesis.ids) < how.max_tokens
        return Generated(
            prompt=prompt,
            text=self.tokenizer.tgt.decode([*ids, *hypothesis.ids]),
            pieces=tuple(self.tokenizer.tgt.pieces(hypothesis.ids)),
            log_probs=hypothesis.log_probs if ended else hypothesis.log_probs[:-1],
            ended=ended,
        )


def _require_prompts(prompts: Sequence[str]) -> list[str]:
    if isinstance(prompts, str):
        raise ValueError("give a list of prompts, not one string: [prompt]")
    for number, prompt in enumerate(prompts, start=1):
        if not isinstance(prompt, str):
            raise ValueError(f"prompt {number} is no text but a {type(prompt).__name__}")
        try:
            prompt.encode("utf-8")
        except UnicodeEncodeError as error:  # what a terminal of another encoding makes of a command line
            raise ValueError(f"prompt {number} is no UTF-8 text") from error
    return list(prompts)


def _drawn_numbers(ids: list[int], how: Generation) -> Float[Tensor, "W T"]:
    """A prompt's own chance, for each of its texts."""
    digest = hashlib.sha256(repr((how.seed, ids)).encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.rand(how.num, how.max_tokens + 1, generator=generator)
