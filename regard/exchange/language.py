"""Whether an exported language model is the run's: the same ids for a text, the same probabilities for ids."""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.checkpoint import Run
from regard.data.store import TextStore
from regard.generate.generator import Generator
from regard.search.hypothesis import TIE
from regard.text.cleaning import normalise
from regard.text.corpus import read_lines
from regard.text.tokenizer import BOS_ID

NUM_TEXTS = 100
# Where the run has no text any more, as imported ones have not.
ANY_TEXTS = ("A text to compare with.", "Ein Text zum Vergleichen: äöüß, 1 2 3!", "用来比较的文本。", "x")


class LlamaInHuggingFace:
    """An exported folder, loaded as its users would."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from transformers.utils import logging

        logging.set_verbosity_error()
        logging.disable_progress_bar()
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self._model: Any = AutoModelForCausalLM.from_pretrained(folder).eval()

    def ids(self, text: str) -> list[int]:
        """With BOS."""
        ids: list[int] = self._tokenizer(text)["input_ids"]
        return ids

    @torch.no_grad()
    def log_probs(self, ids: list[int]) -> Tensor:
        logits: Tensor = self._model(input_ids=torch.tensor([ids])).logits
        return logits.log_softmax(-1)[0]


def language_texts(run: Run, generator: Generator, file: str | None) -> list[str]:
    """What two programs shall agree on: the first texts of a file, or of the run's own validation text."""
    if file is not None:
        texts = [normalise(text) for text in itertools.islice(read_lines(file), NUM_TEXTS)]
        if not any(texts):
            raise ValueError(f"no text in {file} to compare with; give at least one line")
        return texts
    folder = run.data_folder(generator.config)
    if not (folder / "valid.text.starts").exists():
        return list(ANY_TEXTS)
    store = TextStore.open(folder, "valid")
    return [store.text[row] for row in range(min(NUM_TEXTS, len(store)))]


def compare_language(generator: Generator, folder: Path, texts: Sequence[str]) -> str:
    """One sentence on how alike they are; a ValueError if they are not."""
    exported = LlamaInHuggingFace(folder)
    largest = 0.0
    for text, row in zip(texts, generator.tokenizer.tgt.encode(texts), strict=True):
        ids = [BOS_ID, *row]
        if (theirs := exported.ids(text)) != ids:
            raise ValueError(f"transformers cuts {text!r} into other subwords ({theirs} for {ids}), so nothing was kept")
        ids = ids[: generator.config.model.context]
        with torch.no_grad():
            ours = generator.model(torch.tensor([ids])).log_softmax(-1)[0]
        largest = max(largest, float((ours - exported.log_probs(ids)).abs().max()))
    if largest > TIE * 10:
        raise ValueError(f"transformers gives other probabilities (by {largest:.2g} in the logarithm), so nothing was kept")
    return f"{len(texts):,} texts: the same subwords, and log-probabilities equal to {largest:.1g}"
