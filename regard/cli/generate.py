"""`regard generate`: read prompts, and write their continuations."""

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

from regard.errors import UserError
from regard.generate.generator import Generation, load_language
from regard.text.cleaning import normalise
from regard.text.corpus import read_lines


def generate(
    run: Path, prompt: str | None, file: str | None, how: Generation, *, as_json: bool = False, device: str = "auto"
) -> Iterator[str]:
    """Yield the lines to print. Warn of texts that are longer than those that the model learnt from."""
    if prompt is not None and file is not None:
        raise UserError("a prompt and a file of prompts were given; give one of them")
    generator = load_language(run, device=device)
    prompts = [prompt or ""] if file is None else list(read_lines(file))
    if not prompts:
        raise UserError(f"no prompt in {file}; give one a line (an empty line begins a new text)")
    texts = [text for of_prompt in generator.generate(prompts, how) for text in of_prompt]
    context = generator.config.model.context
    of_prompts = generator.tokenizer.tgt.encode([normalise(text.prompt) for text in texts])
    if any(len(ids) + len(text.pieces) > context for ids, text in zip(of_prompts, texts, strict=True)):
        sys.stderr.write(
            f"warning: {run} has learnt from {context:,} tokens at once; text beyond that length may make no sense\n"
        )
    for text in texts:
        yield json.dumps(asdict(text), ensure_ascii=False) if as_json else text.text
