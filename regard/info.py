"""`regard info`: the description of a run, and whether its files are intact."""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from safetensors import SafetensorError, safe_open

from regard.config import ModelConfig, RunConfig
from regard.data.report import read_report
from regard.errors import UserError
from regard.run.checkpoint import Run, Weights
from regard.run.metrics import perplexity, read_lines
from regard.settings import to_table


class Validated(NamedTuple):
    step: int
    nll: float
    bleu: float | None


@dataclass(frozen=True)
class Info:
    """The description of a run. All its files are read once to check that they are intact."""

    folder: Path
    version: str  # version of regard that wrote the run
    config: RunConfig
    weights: Weights | None
    num_parameters: int | None
    pairs: int | None  # in the training text, or None if it is missing
    steps: int  # finished so far
    validation: Validated | None  # of the run's weights
    num_checkpoints: int
    damaged: tuple[str, ...]


def read_info(folder: Path) -> Info:
    run = Run(folder)
    config, damaged = run.read_config(), tuple(run.damaged_files())
    metrics = read_lines(run.metrics_path) if run.metrics_path.exists() else []
    weights = run.read_weights()
    try:
        report = read_report(run.data_folder(config))
        pairs = int(report["splits"]["train"]["kept"])
    except (UserError, OSError, KeyError):  # the text is missing, or was not made by `regard prepare`
        pairs = None
    return Info(
        folder=folder,
        version=run.read_version(),
        config=config,
        weights=weights,
        num_parameters=_num_parameters(run.model_path),
        pairs=pairs,
        steps=max((int(line["step"]) for line in metrics), default=0),
        validation=None if weights is None else _validation(metrics, weights),
        num_checkpoints=len(run.saved_steps()),
        damaged=damaged,
    )


def _validation(metrics: list[dict[str, Any]], weights: Weights) -> Validated | None:
    """Return the logged validation of these weights."""
    for line in reversed(metrics):
        if "averaged" in line and tuple(line["averaged"]) == weights.steps:
            return Validated(line["step"], line["average_nll"], line.get("average_bleu"))
        if "valid_nll" in line and weights.steps == (line["step"],):
            return Validated(line["step"], line["valid_nll"], line.get("valid_bleu"))
    return None


def _num_parameters(path: Path) -> int | None:
    """Count the parameters from the file's header, which lists each matrix once."""
    try:
        with safe_open(path, "np") as file:
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118 (it is no dictionary)
    except (OSError, SafetensorError):
        return None
    return sum(int(math.prod(shape)) for shape in shapes)


def print_info(info: Info) -> None:
    model, data, train = info.config.model, info.config.data, info.config.train
    rows = {
        "run": f"{info.folder} (written by regard {info.version})",
        "languages": f"{data.src_lang or 'unknown'} → {data.tgt_lang or 'unknown'}",
        "model": described(model),
        "parameters": "no weights yet" if info.num_parameters is None else f"{info.num_parameters:,}",
        "subwords": f"{model.src_vocab_size:,}"
        if model.shared_embeddings == "all"
        else f"{model.src_vocab_size:,} source, {model.tgt_vocab_size:,} target",
        "weights": "none yet" if info.weights is None else info.weights.described,
        "training": f"{info.steps:,} of {train.steps:,} steps of {train.batch_tokens:,} tokens, seed {train.seed}; "
        f"{info.num_checkpoints} checkpoints kept",
        "text": _text(info),
        "quality": _quality(info),
        "files": "all as they were written" if not info.damaged else f"DAMAGED or missing: {', '.join(info.damaged)}",
    }
    if model.kind == "language":
        rows |= _of_language(info)
        del rows["languages"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    table.add_column(style="bold", no_wrap=True)
    table.add_column()
    for name, value in rows.items():
        table.add_row(name, value)
    Console().print(table, highlight=False)


def described(model: ModelConfig) -> str:
    """Describe a model by the settings that belong to its kind."""
    layers = f"{model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}"
    if model.is_recurrent:
        between = f"{model.score} attention" if model.kind == "rnn-attention" else "one fixed vector between"
        return f"{model.kind}, {layers}, {model.cell.upper()}, d_state {model.d_state}, {between}"
    positions = "no" if model.positions == "none" else model.positions
    ablation = "" if model.ablation == "none" else f"; taken out: {model.ablation}"
    return (
        f"{model.kind}, {layers}, {model.num_heads} heads, d_ff {model.d_ff}, {model.norm}-norm, {model.activation}, "
        f"{positions} positions{ablation}"
    )


def _of_language(info: Info) -> dict[str, str]:
    """Return the rows that differ for a language model."""
    model = info.config.model
    keys = f" with {model.key_value_heads} keys and values" if model.key_value_heads else ""
    texts = "not here any more" if info.pairs is None else f"{info.pairs:,} texts"
    return {
        "model": f"language, {model.decoder_layers} layers, d_model {model.d_model}, {model.num_heads} heads{keys}, "
        f"d_ff {model.d_ff}, RMSNorm, SwiGLU, rotary positions",
        "subwords": f"{model.tgt_vocab_size:,}",
        "text": f"{texts}, {model.context:,} tokens at once",
    }


def _text(info: Info) -> str:
    longest = f"; the longest source has {info.config.longest} subwords" if info.config.longest else ""
    return (f"{info.pairs:,} pairs" if info.pairs is not None else "not here any more") + longest


def _quality(info: Info) -> str:
    if info.validation is None:
        return "not validated"
    score = "" if info.validation.bleu is None else f", BLEU {info.validation.bleu:.2f} (greedy, while training)"
    return f"validation perplexity {perplexity(info.validation.nll):,.2f}{score}"


def as_json(info: Info) -> str:
    table = vars(info) | {"validation": info.validation and info.validation._asdict()}
    table |= {
        "folder": str(info.folder),
        "config": to_table(info.config),
        "weights": info.weights and info.weights._asdict(),
    }
    return json.dumps(table, ensure_ascii=False, indent=2)
