"""The Transformer in plain NumPy float64, written from the paper's formulas one vector at a time.

It uses no batch, no fused projections and no masks except index ranges, to share no mistake with the model. It reads the
model's parameters by name and nothing else.
"""

import math

import numpy as np
import numpy.typing as npt

from regard.config import ModelConfig

Array = npt.NDArray[np.float64]
Parameters = dict[str, Array]


def softmax(scores: Array) -> Array:
    exponentials = np.exp(scores - scores.max())
    result: Array = exponentials / exponentials.sum()
    return result


def layer_norm(x: Array, gain: Array, bias: Array) -> Array:
    mean = sum(x) / len(x)
    variance = sum((value - mean) ** 2 for value in x) / len(x)
    result: Array = gain * (x - mean) / math.sqrt(variance + 1e-5) + bias
    return result


def position(pos: int, d_model: int) -> Array:
    """Return the sinusoid of section 3.5, one dimension at a time."""
    encoding = np.zeros(d_model)
    for i in range(d_model // 2):
        angle = pos / 10000 ** (2 * i / d_model)
        encoding[2 * i] = math.sin(angle)
        encoding[2 * i + 1] = math.cos(angle)
    return encoding


def activation(name: str, x: Array) -> Array:
    if name == "relu":
        return np.maximum(0.0, x)
    if name == "silu":
        return np.array([value / (1 + math.exp(-value)) for value in x])
    return np.array([value * 0.5 * (1 + math.erf(value / math.sqrt(2))) for value in x])


def attend(query: Array, keys: list[Array], values: list[Array]) -> Array:
    """Compute equation 1 for one query."""
    scores = np.array([query @ key / math.sqrt(len(query)) for key in keys])
    result: Array = np.sum([w * v for w, v in zip(softmax(scores), values, strict=True)], axis=0)
    return result


class NumpyTransformer:
    """A Transformer for one sentence pair without padding; `logits` returns (T, V)."""

    def __init__(self, config: ModelConfig, parameters: Parameters) -> None:
        self.config = config
        self.parameters = parameters

    def logits(self, src: list[int], tgt_in: list[int]) -> Array:
        memory = self.encode(src)
        output = {"all": "src", "target": "tgt", "none": "output"}[self.config.shared_embeddings]
        matrix = self.parameters[f"embeddings.{output}.weight"]
        bias = self.parameters.get("output_bias", 0.0)
        return np.array([matrix @ state + bias for state in self.decode(tgt_in, memory)])

    def encode(self, src: list[int]) -> list[Array]:
        xs = self.embed(src, "src")
        for n in range(self.config.encoder_layers):
            layer = f"encoder.{n}"
            xs = self.sublayer(xs, f"{layer}.self_attention_residual", lambda ys, p=layer: self.self_attention(ys, p))
            xs = self.sublayer(xs, f"{layer}.feed_forward_residual", lambda ys, p=layer: self.feed_forward(ys, p))
        return self.final_norm(xs, "encoder_norm")

    def decode(self, tgt_in: list[int], memory: list[Array]) -> list[Array]:
        xs = self.embed(tgt_in, "tgt")
        for n in range(self.config.decoder_layers):
            layer = f"decoder.{n}"
            xs = self.sublayer(
                xs, f"{layer}.self_attention_residual", lambda ys, p=layer: self.self_attention(ys, p, causal=True)
            )
            xs = self.sublayer(
                xs, f"{layer}.cross_attention_residual", lambda ys, p=layer: self.cross_attention(ys, memory, p)
            )
            xs = self.sublayer(xs, f"{layer}.feed_forward_residual", lambda ys, p=layer: self.feed_forward(ys, p))
        return self.final_norm(xs, "decoder_norm")

    def embed(self, ids: list[int], side: str) -> list[Array]:
        table = "src" if self.config.shared_embeddings == "all" else side
        d_model = self.config.d_model
        xs = []
        for pos, token in enumerate(ids):
            learned = self.config.positions == "learned"
            where = self.parameters[f"{side}_positions.weight"][pos] if learned else position(pos, d_model)
            xs.append(self.parameters[f"embeddings.{table}.weight"][token] * math.sqrt(d_model) + where)
        return xs

    def sublayer(self, xs: list[Array], residual: str, function) -> list[Array]:  # type: ignore[no-untyped-def]
        """Compute LayerNorm(x + Sublayer(x)) of section 3.1, or its pre-norm variant."""
        gain, bias = self.parameters[f"{residual}.norm.weight"], self.parameters[f"{residual}.norm.bias"]
        if self.config.norm == "post":
            return [layer_norm(x + y, gain, bias) for x, y in zip(xs, function(xs), strict=True)]
        normed = [layer_norm(x, gain, bias) for x in xs]
        return [x + y for x, y in zip(xs, function(normed), strict=True)]

    def final_norm(self, xs: list[Array], name: str) -> list[Array]:
        if self.config.norm == "post":
            return xs
        return [layer_norm(x, self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]) for x in xs]

    def affine(self, x: Array, name: str, part: int = 0, parts: int = 1) -> Array:
        """Return xWᵀ + b for the `part`-th of `parts` maps that the model stacks in one matrix."""
        weight, bias = self.parameters[f"{name}.weight"], self.parameters[f"{name}.bias"]
        size = len(weight) // parts
        rows = slice(part * size, (part + 1) * size)
        result: Array = weight[rows] @ x + bias[rows]
        return result

    def heads(self, queries: list[Array], keys: list[Array], values: list[Array], causal: bool) -> list[Array]:
        """Compute section 3.2.2: each head attends over its own slice of the projections."""
        size = self.config.d_head
        outputs = []
        for t, query in enumerate(queries):
            seen = t + 1 if causal else len(keys)
            per_head = []
            for h in range(self.config.num_heads):
                dims = slice(h * size, (h + 1) * size)
                per_head.append(attend(query[dims], [k[dims] for k in keys[:seen]], [v[dims] for v in values[:seen]]))
            outputs.append(np.concatenate(per_head))
        return outputs

    def self_attention(self, xs: list[Array], layer: str, causal: bool = False) -> list[Array]:
        name = f"{layer}.self_attention"
        queries, keys, values = ([self.affine(x, f"{name}.query_key_value", n, 3) for x in xs] for n in range(3))
        return [self.affine(head, f"{name}.output") for head in self.heads(queries, keys, values, causal)]

    def cross_attention(self, xs: list[Array], memory: list[Array], layer: str) -> list[Array]:
        name = f"{layer}.cross_attention"
        queries = [self.affine(x, f"{name}.query") for x in xs]
        keys, values = ([self.affine(m, f"{name}.key_value", n, 2) for m in memory] for n in range(2))
        return [self.affine(head, f"{name}.output") for head in self.heads(queries, keys, values, causal=False)]

    def feed_forward(self, xs: list[Array], layer: str) -> list[Array]:
        """Compute equation 2."""
        name = f"{layer}.feed_forward"
        hidden = [activation(self.config.activation, self.affine(x, f"{name}.inner")) for x in xs]
        return [self.affine(h, f"{name}.outer") for h in hidden]
