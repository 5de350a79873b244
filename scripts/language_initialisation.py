"""Compare initialisations of a language model: standard deviations of its embedding and of maps to the residual stream.

regard train --model language --text train.en --valid-text valid.en --preset tiny --vocab-size 2000 --steps 1 -o RUN
python scripts/language_initialisation.py RUN
"""

import argparse
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from regard.data.batch import padded
from regard.data.stream import Place
from regard.machine.processes import Processes
from regard.model.language import LanguageModel
from regard.run.checkpoint import Run
from regard.text.tokenizer import Tokenizer
from regard.train.learner import Learner
from regard.train.plan import open_training_text
from regard.train.totals import Totals
from regard.train.validation import open_validation

STEPS, WARMUP, SEEDS = 250, 50, (1, 2)
EMBEDDINGS = {"d_model^-½": None, "1": 1.0, "0.02": 0.02}


def give_values(model: LanguageModel, embedding: float | None, *, shrunk: bool) -> None:
    """Replace the initial values set by `initialise`."""
    with torch.no_grad():
        if embedding is not None:
            nn.init.normal_(model.embedding.weight, std=embedding)
        for name, parameter in model.named_parameters():
            if not shrunk and name.endswith(("attention.output.weight", "feed_forward.outer.weight")):
                parameter.mul_((2 * model.config.decoder_layers) ** 0.5)


def loss_after(run: Run, embedding: float | None, *, shrunk: bool, seed: int) -> float:
    """Return the loss on the validation text."""
    config, tokenizer, cpu = run.read_config(), Tokenizer.load(run.folder), torch.device("cpu")
    train = replace(config.train, steps=STEPS, warmup=WARMUP, seed=seed)
    folder = run.data_folder(config)
    stream = open_training_text(folder, config.model, train, tokenizer)
    learner, totals = Learner(config.model, train, cpu, Processes()), Totals(cpu)
    assert isinstance(learner.model, LanguageModel)
    give_values(learner.model, embedding, shrunk=shrunk)
    places, _ = stream.following(Place(0, 0), STEPS)
    for place in places:
        learner.update([(0, padded(stream.batch(place)))], totals)
    return open_validation(config, folder, tokenizer, batch_tokens=2048).validate(learner.model).nll


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a language model's run, for its text and settings")
    run = Run(parser.parse_args().run)
    print("| embedding | W_O, W₂ | validation loss, by seed |\n|---|---|---|")
    for shrunk in (True, False):
        for name, embedding in EMBEDDINGS.items():
            losses = ", ".join(f"{loss_after(run, embedding, shrunk=shrunk, seed=seed):.3f}" for seed in SEEDS)
            print(f"| {name} | Glorot{' · (2N)^-½' if shrunk else ''} | {losses} |", flush=True)


if __name__ == "__main__":
    main()
