"""What there is to see in one sentence's way through a model, as plain data: what the page and `regard look` draw.

A translation is searched for, every proposal of the beam remembered, and then one traced pass over source and translation
gives the rest. Nothing here decides how it looks.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from jaxtyping import Float
from torch import Tensor

from regard.config import Score
from regard.data.batch import collate
from regard.model.embedding import LearnedPositions
from regard.model.kinds import EncoderDecoder
from regard.model.recurrent import Recurrent
from regard.model.trace import AttentionTrace, Head, Intervention, StackTrace, Trace
from regard.model.transformer import Transformer
from regard.search.beam import BeamResult, beam
from regard.search.hypothesis import length_penalty
from regard.text.cleaning import normalise
from regard.text.tokenizer import BOS_ID, EOS_ID, Subwords
from regard.train.device import advice_on_memory
from regard.translate.alignment import place_for, words_of
from regard.translate.search import MAX_EXTRA, require_alpha, started
from regard.translate.translation import END
from regard.translate.translator import Part, Translator

Json = dict[str, Any]
MOST_SUBWORDS = 128  # of a side; a picture of more is none
NUM_ALTERNATIVES = 10
NUM_UNITS = 24  # of a feed-forward network; in long sentences, one for each place
DIGITS = 5
NOTHING_CHANGED = Intervention()


@dataclass(frozen=True, kw_only=True)
class Question:
    """What to look at: a sentence, with the model's own translation or a given one."""

    text: str
    part: int = 0  # of a text that is translated in several
    target: str = ""  # empty: what the search finds
    target_pieces: tuple[str, ...] | None = None  # the same as subwords: a text may be cut into others than were found
    prefix: str = ""  # what the search must begin with
    prefix_pieces: tuple[str, ...] | None = None
    beam: int = 4
    alpha: float = 0.6
    intervention: Intervention = NOTHING_CHANGED

    def __post_init__(self) -> None:
        require_alpha(self.alpha)


class Pass(NamedTuple):
    """A search, and a pass over what it found, or over a translation that was given."""

    parts: list[Part]
    result: BeamResult
    src_ids: list[int]
    tgt_ids: list[int]
    trace: Trace


def passed(translator: Translator, question: Question) -> Pass:
    """Of several models, the first is looked into."""
    parts = [part for line in question.text.split("\n") for part in translator.parts(normalise(line))]
    if not parts:
        raise ValueError("there is nothing to look at; give a sentence")
    if question.part >= len(parts):
        raise ValueError(f"this text has {len(parts)} parts, so there is no part {question.part}; counting is from 0")
    src_ids = parts[question.part].ids
    _require_moderate(src_ids, "the sentence", MOST_SUBWORDS)
    given = _given_ids(translator, question.target, question.target_pieces, "target")
    with advice_on_memory("look at a shorter sentence"):
        result = search(translator, src_ids, question)
        tgt_ids = list(result.hypotheses[0].ids) if given is None else given
        batch = collate([src_ids], [tgt_ids])
        model = translator.models[0]
        trace = model.trace(batch.src.to(translator.device), batch.tgt_in.to(translator.device), question.intervention)
    return Pass(parts, result, src_ids, tgt_ids, trace)


def _given_ids(translator: Translator, text: str, pieces: Sequence[str] | None, what: str) -> list[int] | None:
    """None: neither was given."""
    if pieces is None and not text.strip():
        return None
    if pieces is not None:
        ids = translator.ids_of(pieces, what)
    else:
        [ids] = translator.tokenizer.tgt.encode([normalise(text)])
    _require_moderate(ids, what, min(MOST_SUBWORDS + MAX_EXTRA, translator.models[0].config.longest_sequence - 1))
    return ids


def look(translator: Translator, question: Question) -> Json:
    """All of it."""
    model = translator.models[0]
    src, tgt = translator.tokenizer.src, translator.tokenizer.tgt
    parts, result, src_ids, tgt_ids, trace = passed(translator, question)
    part = parts[question.part]
    log_probs = trace.logits[0].cpu().double().log_softmax(-1)  # (T, V)
    own = log_probs[torch.arange(len(tgt_ids) + 1), [*tgt_ids, EOS_ID]]
    return {
        "parts": [one.source for one in parts],
        "source": side(src, part.code + part.source, src_ids),
        "target": side(tgt, tgt.decode(tgt_ids), tgt_ids),
        "log_prob": round(float(own.sum()), DIGITS),
        "predictions": predictions(tgt, log_probs, [*tgt_ids, EOS_ID]),
        "attention": {
            "encoder": attention(trace.encoder.self_attention),
            "decoder": attention(trace.decoder.self_attention),
            "cross": attention(trace.decoder.cross_attention),
        },
        "residuals": {
            "encoder": rounded(trace.encoder.residual_norms[:, 0]),
            "decoder": rounded(trace.decoder.residual_norms[:, 0]),
        },
        "activations": {"encoder": activations(trace.encoder), "decoder": activations(trace.decoder)},
        "units": {"encoder": units(trace.encoder), "decoder": units(trace.decoder)},
        "lens": lens(model, tgt, trace, [*tgt_ids, EOS_ID]),
        "alignment": alignment(trace),
        "fixed": fixed_vector(model, trace),
        "positions": learned_positions(model, max(len(src_ids), len(tgt_ids)) + 1),
        "search": search_tree(tgt, result, question.alpha),
    }


def look_at_head(translator: Translator, question: Question, head: Head) -> Json:
    """One head's queries (T, K), keys and values (S, K), and its scores (T, S) before mask and softmax, scaled."""
    return one_head(translator.models[0], passed(translator, question).trace, question, head)


def one_head(model: EncoderDecoder, trace: Trace, question: Question, head: Head) -> Json:
    """The same, of a pass that was made already."""
    stack = trace.encoder if head.site == "encoder" else trace.decoder
    layers = stack.cross_attention if head.site == "cross" else stack.self_attention
    if not (0 <= head.layer < len(layers) and 0 <= head.head < layers[head.layer].weights.shape[1]):
        raise ValueError(f"there is no head {head.head} in layer {head.layer} of {head.site}; counting is from 0")
    one = layers[head.layer]
    parts = {"queries": one.queries, "keys": one.keys, "values": one.values, "scores": one.scores, "weights": one.weights}
    found = {name: rounded(tensor[0, head.head]) for name, tensor in parts.items()}
    mask = one.mask[0, 0].expand(one.weights.shape[2], one.weights.shape[3])
    d_k = one.keys.shape[-1]
    score, usual, vector = _scoring(model, d_k)
    scale = usual if question.intervention.score_scale is None else question.intervention.score_scale
    return {**found, "mask": mask.tolist(), "score": score, "scale": scale, "vector": vector, "d_k": d_k}


def _scoring(model: EncoderDecoder, d_k: int) -> tuple[Score, float, list[float]]:
    """How the model compares queries with keys, what it multiplies that by, and the additive score's vector v."""
    if isinstance(model, Recurrent):
        assert model.attention is not None
        vector = [] if model.attention.vector is None else rounded(model.attention.vector.weight[0])
        return model.config.score, model.attention.scale, vector
    return ("dot", 1.0, []) if model.config.ablation == "scale" else ("scaled", d_k**-0.5, [])


def describe(translator: Translator) -> Json:
    """What is looked into: sizes, options, and how many parameters each part has."""
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
    """Layers of a stack are taken together: `encoder.0.self_attention.output.weight` is of `encoder.self_attention`, and
    an RNN's `decoder.layers.0.weight_ih_l0` of `decoder`."""
    stack, *inside = [name for name in parameter.split(".") if not name.isdigit() and name != "layers"]
    return f"{stack}.{inside[0]}" if stack in ("encoder", "decoder") and len(inside) > 1 else stack


def _require_moderate(ids: Sequence[int], what: str, most: int) -> None:
    if len(ids) > most:
        raise ValueError(f"{what} has {len(ids)} subwords, and a picture has room for {most}; give a shorter one")


def search(translator: Translator, src_ids: Sequence[int], question: Question) -> BeamResult:
    """Beam search that forgets nothing, with the model as the intervention leaves it."""
    model = translator.models[0]
    prefix = _given_ids(translator, question.prefix, question.prefix_pieces, "prefix") or []
    obeyed = replace(question.intervention, causal=True)  # a step has nothing later that it could see
    intervention = None if obeyed == Intervention() else obeyed
    batch = collate([list(src_ids)], [[]])
    step, cache = started(model, batch.src.to(translator.device), intervention)
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
    """A text as the model sees it, and how it came to be cut like that."""
    pieces = subwords.pieces(list(ids))
    return {
        "text": text,
        "pieces": pieces,
        "ids": list(ids),
        "words": words_of(pieces, text),
        "merges": [] if subwords.is_marian else [subwords.merges(word) for word in text.split()],
    }


def predictions(subwords: Subwords, log_probs: Float[Tensor, "T V"], taken: Sequence[int]) -> list[Json]:
    """At each place: what was taken, how probable it was, and what else there was."""
    best, tokens = log_probs.topk(min(NUM_ALTERNATIVES, log_probs.shape[1]), dim=1)
    entropy = torch.special.entr(log_probs.exp()).sum(1)
    found = []
    for place, token in enumerate(taken):
        own = log_probs[place, token]
        found.append(
            {
                "piece": piece(subwords, token),
                "log_prob": round(float(own), DIGITS),
                "rank": int((log_probs[place] > own).sum()) + 1,
                "entropy": round(float(entropy[place]), DIGITS),
                "best": [
                    {"piece": piece(subwords, int(n)), "log_prob": round(float(value), DIGITS)}
                    for n, value in zip(tokens[place], best[place], strict=True)
                ],
            }
        )
    return found


def piece(subwords: Subwords, token: int) -> str:
    return END if token == EOS_ID else subwords.pieces([token])[0]


def attention(layers: Sequence[AttentionTrace]) -> list[Json]:
    """For each layer (H, T, S) weights and (H, T) entropies."""
    return [{"weights": rounded(layer.weights[0]), "entropy": rounded(layer.entropy[0])} for layer in layers]


def alignment(trace: Trace) -> Json | None:
    """Where to read which words belong together; None: there is no attention that could say."""
    num_layers = len(trace.decoder.cross_attention)
    return place_for(num_layers)._asdict() if num_layers else None


def fixed_vector(model: EncoderDecoder, trace: Trace) -> list[float]:
    """Of an RNN without attention, all that its decoder sees of the source: the encoder's last state."""
    has_one = isinstance(model, Recurrent) and not model.has_attention
    return cast("list[float]", rounded(trace.memory[0, -1])) if has_one else []


def activations(stack: StackTrace) -> list[list[float]]:
    """For each layer and place, the share of the feed-forward network's units that are above 0."""
    return [rounded((layer[0] > 0).float().mean(-1)) for layer in stack.activations]


def units(stack: StackTrace) -> list[Json]:
    """For each layer the units of its feed-forward network that were strongest at each place, and how strong at all."""
    found = []
    for layer in stack.activations:
        each = min(max(1, NUM_UNITS // layer.shape[1]), layer.shape[2])
        strongest = list(dict.fromkeys(layer[0].topk(each, dim=1).indices.flatten().tolist()))
        found.append({"units": strongest, "values": rounded(layer[0][:, strongest].T)})
    return found


def learned_positions(model: EncoderDecoder, num_positions: int) -> list[list[float]]:
    """The source's table, as far as a sentence reaches. Of sinusoids nothing: whoever draws them has the formula."""
    table = model.src_positions if isinstance(model, Transformer) else None
    if not isinstance(table, LearnedPositions):
        return []
    return cast("list[list[float]]", rounded(table.weight[:num_positions].detach()))


def lens(model: EncoderDecoder, subwords: Subwords, trace: Trace, taken: Sequence[int]) -> list[list[Json]]:
    """What would be predicted if the decoder ended here: before the first layer and after each one. `own` is how probable
    what was taken in the end would be. An RNN's states are of another width than its output matrix: nothing of those."""
    found: list[list[Json]] = []
    if not isinstance(model, Transformer):
        return found
    residuals = trace.decoder.residuals
    every = (len(residuals) - 1) // len(model.decoder)  # sub-layers in a layer
    for states in residuals[::every]:
        probs = model.project(model.decoder_norm(states))[0].cpu().double().softmax(-1)
        best, tokens = probs.max(-1)
        own = probs[torch.arange(len(taken)), list(taken)]
        table = zip(tokens.tolist(), rounded(best), rounded(own), strict=True)
        found.append([{"piece": piece(subwords, token), "prob": prob, "own": mine} for token, prob, mine in table])
    return found


def search_tree(subwords: Subwords, result: BeamResult, alpha: float) -> Json:
    """Every step's proposals, and what ended."""
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
    """Nested lists, of as many digits as anyone looks at."""
    return torch.round(tensor.cpu().double(), decimals=DIGITS).tolist()
