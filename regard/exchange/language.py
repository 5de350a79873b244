"""Compare an exported language model with the run: the ids of texts, and the probabilities of tokens."""

import itertools
from collections.abc import Sequence
from pathlib import Path

import torch

from regard.data.store import TextStore
from regard.errors import UserError
from regard.exchange.huggingface import load_exported
from regard.exchange.verification import NUM_SPOILT, MismatchError, hostile_texts
from regard.generate.generator import Generator
from regard.run.checkpoint import Run
from regard.search.hypothesis import TIE
from regard.text.cleaning import normalise
from regard.text.corpus import read_lines
from regard.text.tokenizer import BOS_ID

NUM_TEXTS = 100
# For runs without text, such as imported ones.
ANY_TEXTS = ("A text to compare with.", "Ein Text zum Vergleichen: äöüß, 1 2 3!", "用来比较的文本。", "x")


def language_texts(run: Run, generator: Generator, file: str | None) -> list[str]:
    """Return the texts to compare with: the first of a file, or of the run's validation text."""
    if file is not None:
        texts = list(itertools.islice(read_lines(file), NUM_TEXTS))
        if not any(map(normalise, texts)):
            raise UserError(f"no text in {file} to compare with; give at least one line")
        return texts
    folder = run.data_folder(generator.config)
    if not (folder / "valid.text.starts").exists():
        return list(ANY_TEXTS)
    store = TextStore.open(folder, "valid")
    return [store.text[row] for row in range(min(NUM_TEXTS, len(store)))]


def compare_language(generator: Generator, folder: Path, texts: Sequence[str]) -> str:
    """Compare subwords and log-probabilities, also of hostile texts, and return the result in words. Raise a MismatchError
    if they differ."""
    tokenizer, model = load_exported(folder, "CausalLM")
    largest = 0.0
    hostile = hostile_texts(texts[:NUM_SPOILT])
    for text in (*texts, *hostile):
        ids = [BOS_ID, *generator.tokenizer.tgt.encode([normalise(text)])[0]]
        if (theirs := tokenizer(text)["input_ids"]) != ids:
            raise MismatchError(f"transformers cuts {text!r} into other subwords ({theirs} for {ids}), so nothing was kept")
        ids = ids[: generator.config.model.context]
        with torch.no_grad():
            batch = torch.tensor([ids])
            ours, exported = generator.model(batch).log_softmax(-1), model(input_ids=batch).logits.log_softmax(-1)
        largest = max(largest, float((ours - exported).abs().max()))
    if largest > TIE * 10:
        raise MismatchError(
            f"transformers gives other probabilities (by {largest:.2g} in the logarithm), so nothing was kept"
        )
    compared = f"{len(texts):,} texts and {len(hostile):,} hostile ones"
    return f"{compared}: the same subwords, and log-probabilities equal to {largest:.1g}"
