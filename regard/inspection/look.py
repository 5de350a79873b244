"""Inspect one sentence's pass through a model as plain data, which the page and `regard look` draw.

The data are every proposal of a beam search, and one traced pass over the source and its translation.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import Score
from regard.data.batch import collate_sources
from regard.errors import UserError
from regard.machine.device import advice_on_memory
from regard.model.embedding import LearnedPositions
from regard.model.recurrent import Recurrent
from regard.model.sequence import EncoderDecoder
from regard.model.trace import Head, Intervention, StackTrace, Trace
from regard.model.transformer import Transformer
from regard.search.beam import BeamResult, beam
from regard.search.hypothesis import length_penalty
from regard.settings import Json
from regard.text.cleaning import normalise, require_texts
from regard.text.corpus import lines_of
from regard.text.tokenizer import BOS_ID, EOS_ID, Subwords
from regard.translate.alignment import place_for, words_of
from regard.translate.search import MAX_EXTRA, require_alpha, started
from regard.translate.translation import END
from regard.translate.translator import Part, Translator

MOST_SUBWORDS = 128  # per side, the most that fits a picture
NUM_ALTERNATIVES = 10
NUM_UNITS = 24  # of a feed-forward network; long sentences show one for each position
DIGITS = 5
NOTHING_CHANGED = Intervention()


@dataclass(frozen=True, kw_only=True)
class Question:
    """A sentence to look at, with the model's own translation or a given one, and the settings of the search."""

    text: str
    part: int = 0  # the part to look at, if the text is translated in several
    target: str = ""  # if empty, the best hypothesis
    target_pieces: tuple[str, ...] | None = None  # the target as subwords, because encoding its text may give others
    prefix: str = ""  # the beginning of every hypothesis
    prefix_pieces: tuple[str, ...] | None = None
    beam: int = 4
    alpha: float = 0.6
    intervention: Intervention = NOTHING_CHANGED

    def __post_init__(self) -> None:
        require_alpha(self.alpha)


class InspectedPass(NamedTuple):
    """A search, and a traced pass over its best hypothesis or over a given translation."""

    parts: list[Part]
    result: BeamResult
    src_ids: list[int]
    tgt_ids: list[int]
    trace: Trace


def passed(translator: Translator, question: Question) -> InspectedPass:
    """Search and trace with the translator's first model."""
    require_texts((question.text, question.target, question.prefix), "text")
    parts = [part for line in lines_of(question.text) for part in translator.parts(normalise(line))]
    if not parts:
        raise UserError("there is nothing to look at; give a sentence")
    if question.part >= len(parts):
        raise UserError(f"this text has {len(parts)} parts, so there is no part {question.part}; counting is from 0")
    src_ids = parts[question.part].ids
    _require_moderate(src_ids, "the sentence", MOST_SUBWORDS)
    given = _given_ids(translator, question.target, question.target_pieces, "target")
    with advice_on_memory("look at a shorter sentence"):
        result = search(translator, src_ids, question)
        tgt_ids = list(result.hypotheses[0].ids) if given is None else given
        trace = translator.trace_ids([src_ids], [tgt_ids], question.intervention)
    return InspectedPass(parts, result, src_ids, tgt_ids, trace)


def _given_ids(translator: Translator, text: str, pieces: Sequence[str] | None, what: str) -> list[int] | None:
    """Return the ids of a text or of its pieces; None if neither was given."""
    if pieces is not None:
        ids = translator.ids_of(pieces, what)
    elif text.strip():
        [ids] = translator.tokenizer.tgt.encode([normalise(text)])
    else:
        return None
    _require_moderate(ids, what, min(MOST_SUBWORDS + MAX_EXTRA, translator.models[0].config.longest_sequence - 1))
    return ids


def look(translator: Translator, question: Question) -> Json:
    """Return all data that the page draws for a sentence."""
    model = translator.models[0]
    src, tgt = translator.tokenizer.src, translator.tokenizer.tgt
    parts, result, src_ids, tgt_ids, trace = passed(translator, question)
    part, taken = parts[question.part], [*tgt_ids, EOS_ID]
    log_probs = trace.logits[0].cpu().double().log_softmax(-1)  # (T, V)
    own = log_probs[torch.arange(len(taken)), taken]
    stacks = {"encoder": trace.encoder, "decoder": trace.decoder}
    attentions = {name: stack.self_attention for name, stack in stacks.items()} | {"cross": trace.decoder.cross_attention}
    num_cross = len(attentions["cross"])
    has_fixed_vector = isinstance(model, Recurrent) and not model.has_attention
    return {
        "parts": [one.source for one in parts],
        "source": side(src, part.code + part.source, src_ids),
        "target": side(tgt, tgt.decode(tgt_ids), tgt_ids),
        "log_prob": round(float(own.sum()), DIGITS),
        "predictions": predictions(tgt, log_probs, taken),
        "attention": {
            name: [{"weights": rounded(layer.weights[0]), "entropy": rounded(layer.entropy[0])} for layer in layers]
            for name, layers in attentions.items()
        },
        "residuals": {name: rounded(stack.residual_norms[:, 0]) for name, stack in stacks.items()},
        "activations": {name: activations(stack) for name, stack in stacks.items()},
        "units": {name: units(stack) for name, stack in stacks.items()},
        "lens": lens(model, tgt, trace, taken),
        "alignment": place_for(num_cross)._asdict() if num_cross else None,
        "fixed": rounded(trace.memory[0, -1]) if has_fixed_vector else [],  # all that the decoder reads of the source
        "positions": learned_positions(model, max(len(src_ids), len(tgt_ids)) + 1),
        "search": search_tree(tgt, result, question.alpha),
    }


def look_at_head(translator: Translator, question: Question, head: Head) -> Json:
    """Return one head's data from a new pass, in the format of `one_head`."""
    return one_head(translator.models[0], passed(translator, question).trace, question, head)


def one_head(model: EncoderDecoder, trace: Trace, question: Question, head: Head) -> Json:
    """Return one head's queries (T, K), keys and values (S, K), and its scores (T, S) before mask and softmax, scaled."""
    stack = trace.encoder if head.site == "encoder" else trace.decoder
    layers = stack.cross_attention if head.site == "cross" else stack.self_attention
    if not (0 <= head.layer < len(layers) and 0 <= head.head < layers[head.layer].weights.shape[1]):
        raise UserError(f"there is no head {head.head} in layer {head.layer} of {head.site}; counting is from 0")
    one = layers[head.layer]
    names = ("queries", "keys", "values", "scores", "weights")
    found = {name: rounded(getattr(one, name)[0, head.head]) for name in names}
    mask = one.mask[0, 0].expand(one.weights.shape[2], one.weights.shape[3])
    d_k = one.keys.shape[-1]
    score, usual, vector = _scoring(model, d_k)
    scale = usual if question.intervention.score_scale is None else question.intervention.score_scale
    return {**found, "mask": mask.tolist(), "score": score, "scale": scale, "vector": vector, "d_k": d_k}


def _scoring(model: EncoderDecoder, d_k: int) -> tuple[Score, float, list[float]]:
    """Return the kind of the model's attention score, its scale, and the additive score's vector v."""
    if isinstance(model, Recurrent):
        assert model.attention is not None
        vector = [] if model.attention.vector is None else rounded(model.attention.vector.weight[0])
        return model.config.score, model.attention.scale, vector
    return ("dot", 1.0, []) if model.config.ablation == "scale" else ("scaled", d_k**-0.5, [])


def describe(translator: Translator) -> Json:
    """Describe the model: its sizes and options, and the number of parameters of each part."""
    model, config = translator.models[0], translator.config
    parts: dict[str, int] = {}
    for name, parameter in model.named_parameters():
        part = _part_of(name)
        parts[part] = parts.get(part, 0) + parameter.numel()
    return {
        "src_lang": config.data.src_lang,
        "tgt_lang": config.data.tgt_lang,
        "preset": config.preset,
        "model": asdict(config.model),
        "parameters": parts,
        "steps": config.train.steps,
    }


def _part_of(parameter: str) -> str:
    """Return a parameter's part, without the number of its layer: `encoder.0.self_attention.output.weight` belongs to
    `encoder.self_attention`, and an RNN's `decoder.layers.0.weight_ih_l0` to `decoder`."""
    stack, *inside = [name for name in parameter.split(".") if not name.isdigit() and name != "layers"]
    return f"{stack}.{inside[0]}" if stack in ("encoder", "decoder") and len(inside) > 1 else stack


def _require_moderate(ids: Sequence[int], what: str, most: int) -> None:
    if len(ids) > most:
        raise UserError(f"{what} has {len(ids)} subwords, and a picture has room for {most}; give a shorter one")


def search(translator: Translator, src_ids: Sequence[int], question: Question) -> BeamResult:
    """Search under the intervention, and keep all steps of the beam."""
    model = translator.models[0]
    prefix = _given_ids(translator, question.prefix, question.prefix_pieces, "prefix") or []
    obeyed = replace(question.intervention, causal=True)  # a search step has no later positions to attend to
    intervention = None if obeyed == Intervention() else obeyed
    step, cache = started(model, collate_sources([src_ids]).to(translator.device), intervention)
    [result] = beam(
        step,
        cache,
        [max(min(len(src_ids) + MAX_EXTRA, model.config.longest_sequence - 1), len(prefix))],
        width=question.beam,
        bos_id=BOS_ID,
        eos_id=EOS_ID,
        alpha=question.alpha,
        num_best=question.beam,
        prefixes=[prefix],
        keep_steps=True,
        device=translator.device,
    )
    return result


def side(subwords: Subwords, text: str, ids: Sequence[int]) -> Json:
    """Return a text with its pieces, their words, and the merges that they come from."""
    pieces = subwords.pieces(list(ids))
    return {
        "text": text,
        "pieces": pieces,
        "ids": list(ids),
        "words": words_of(pieces, text),
        "merges": [] if subwords.is_marian else [subwords.merges(word) for word in text.split()],
    }


def predictions(subwords: Subwords, log_probs: Float[Tensor, "T V"], taken: Sequence[int]) -> list[Json]:
    """Return for each position the taken token's log-probability and rank, the entropy, and the most probable tokens."""
    values, tokens = log_probs.topk(min(NUM_ALTERNATIVES, log_probs.shape[1]), dim=1)
    entropy = torch.special.entr(log_probs.exp()).sum(1)
    found = []
    for place, token in enumerate(taken):
        own = log_probs[place, token]
        best = zip(tokens[place].tolist(), values[place].tolist(), strict=True)
        found.append(
            {
                "piece": piece(subwords, token),
                "log_prob": round(float(own), DIGITS),
                "rank": int((log_probs[place] > own).sum()) + 1,
                "entropy": round(float(entropy[place]), DIGITS),
                "best": [{"piece": piece(subwords, other), "log_prob": round(value, DIGITS)} for other, value in best],
            }
        )
    return found


def piece(subwords: Subwords, token: int) -> str:
    return END if token == EOS_ID else subwords.pieces([token])[0]


def activations(stack: StackTrace) -> list[list[float]]:
    """Return for each layer and position the share of the feed-forward network's units that are above 0."""
    return [rounded((layer[0] > 0).float().mean(-1)) for layer in stack.activations]


def units(stack: StackTrace) -> list[Json]:
    """Return for each layer the strongest units of its feed-forward network at each position, and their values at all."""
    found = []
    for layer in stack.activations:
        each = min(max(1, NUM_UNITS // layer.shape[1]), layer.shape[2])
        strongest = list(dict.fromkeys(layer[0].topk(each, dim=1).indices.flatten().tolist()))
        found.append({"units": strongest, "values": rounded(layer[0][:, strongest].T)})
    return found


def learned_positions(model: EncoderDecoder, num_positions: int) -> list[list[float]]:
    """Return the source's learned positions up to the sentence's length, or an empty list for sinusoids."""
    table = model.src_positions if isinstance(model, Transformer) else None
    if not isinstance(table, LearnedPositions):
        return []
    return cast("list[list[float]]", rounded(table.weight[:num_positions].detach()))


def lens(model: EncoderDecoder, subwords: Subwords, trace: Trace, taken: Sequence[int]) -> list[list[Json]]:
    """Return the predictions from the residual stream before the first layer and after each one; `own` is the probability of
    the taken token. There are none for an RNN, whose states have another width than its output matrix."""
    if not isinstance(model, Transformer):
        return []
    found = []
    residuals = trace.decoder.residuals
    every = (len(residuals) - 1) // len(model.decoder)  # sub-layers per layer
    for states in residuals[::every]:
        probs = model.project(model.decoder_norm(states))[0].cpu().double().softmax(-1)
        best, tokens = probs.max(-1)
        own = probs[torch.arange(len(taken)), list(taken)]
        table = zip(tokens.tolist(), rounded(best), rounded(own), strict=True)
        found.append([{"piece": piece(subwords, token), "prob": prob, "own": mine} for token, prob, mine in table])
    return found


def search_tree(subwords: Subwords, result: BeamResult, alpha: float) -> Json:
    """Return the proposals of every step, and the finished hypotheses."""
    return {
        "steps": [
            [
                {
                    "parent": one.parent,
                    "piece": piece(subwords, one.token),
                    "log_prob": round(one.total, DIGITS),
                    "score": round(one.total / length_penalty(number, alpha), DIGITS),
                    "fate": one.fate,
                }
                for one in candidates
            ]
            for number, candidates in enumerate(result.steps, start=1)
        ],
        "hypotheses": [
            {
                "text": subwords.decode(one.ids),
                "pieces": [*subwords.pieces(list(one.ids)), END],
                "log_prob": round(one.log_prob, DIGITS),
                "score": round(one.score, DIGITS),
            }
            for one in result.hypotheses
        ],
    }


def rounded(tensor: Tensor) -> Any:
    """Return nested lists of numbers with few digits."""
    return torch.round(tensor.cpu().double(), decimals=DIGITS).tolist()
