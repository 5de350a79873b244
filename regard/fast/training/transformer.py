"""The Transformer's training pass over packed sentences, forward and backward, by our own kernels.

It computes what `Transformer.states` and autograd compute (tests compare them), without padding and with little memory
traffic between the matrix products: dropout, residual sum and LayerNorm are one pass, a sub-layer's last product adds its
gradient to that of the stream, and gradients of biases are summed in kernels that read them anyway. Weights are used in the
precision of the arithmetic, and their gradients summed in float32.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.fast.kernels.attention import Heads, attention, attention_gradient
from regard.fast.kernels.dropout import HashDropout
from regard.fast.kernels.embedding import add_embedding_gradient, embed
from regard.fast.kernels.intervals import Intervals
from regard.fast.kernels.normalisation import NormParameters, Summed, add_norm, add_norm_gradient, norm, norm_gradient
from regard.fast.kernels.sums import add_column_sums, relu_gradient
from regard.fast.support import untrained
from regard.fast.training.layout import PackedSide, Packing
from regard.fast.training.parameters import FlatParameters
from regard.model.attention import CrossAttention, SelfAttention
from regard.model.embedding import Embedding, sinusoids
from regard.model.layers import FeedForward, Linear, Residual
from regard.model.transformer import Transformer


@dataclass(frozen=True)
class Affine:
    """The map xWᵀ + b, and the tensors to which the gradients of W and b are added."""

    weight: Float[Tensor, "O I"]
    bias: Float[Tensor, " O"]
    weight_grad: Float[Tensor, "O I"]
    bias_grad: Float[Tensor, " O"]

    @classmethod
    def of(cls, linear: Linear, flat: FlatParameters) -> "Affine":
        assert linear.bias is not None
        weight, bias = linear.weight, linear.bias
        return cls(flat.copy_of(weight), flat.copy_of(bias), flat.grad_of(weight), flat.grad_of(bias))

    def __call__(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        return torch.addmm(self.bias, x, self.weight.t())

    def relu(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        """Return max(0, xWᵀ + b), computed on a GPU by the matrix product itself."""
        hidden: Tensor = torch._addmm_activation(self.bias, x, self.weight.t())
        return hidden

    def product(self, x: Float[Tensor, "N I"]) -> Float[Tensor, "N O"]:
        """Return xWᵀ, without the bias, which the residual sum adds."""
        return x @ self.weight.t()

    def learn(self, x: Float[Tensor, "N I"], grad: Float[Tensor, "N O"]) -> None:
        """Add the gradient of the matrix alone."""
        add_product(self.weight_grad, grad.t(), x)

    def learn_all(self, x: Float[Tensor, "N I"], grad: Float[Tensor, "N O"]) -> None:
        self.learn(x, grad)
        add_column_sums(grad, self.bias_grad)

    def back(self, grad: Float[Tensor, "N O"], onto: Float[Tensor, "N I"] | None = None) -> Float[Tensor, "N I"]:
        """Return the input's gradient, added to `onto` if that is given."""
        return grad @ self.weight if onto is None else onto.addmm_(grad, self.weight)


def add_product(into: Float[Tensor, "O I"], a: Float[Tensor, "O N"], b: Float[Tensor, "N I"]) -> None:
    """Add ab to `into` in float32, whatever the precision of a and b."""
    if a.device.type == "cuda" and a.dtype != torch.float32:
        torch.addmm(into, a, b, out_dtype=torch.float32, out=into)
    else:
        into.addmm_(a.float(), b.float())


@dataclass
class PackedPass:
    """The tensors of one batch that several sub-layers need."""

    packing: Packing
    memory: Tensor | None = None
    memory_grad: Tensor | None = None


class PackedSelfAttention:
    def __init__(self, module: SelfAttention, flat: FlatParameters) -> None:
        self.query_key_value, self.output = Affine.of(module.query_key_value, flat), Affine.of(module.output, flat)
        self.num_heads, self.is_encoder = module.num_heads, module.site == "encoder"

    def _intervals(self, pass_: PackedPass) -> Intervals:
        return pass_.packing.encoder if self.is_encoder else pass_.packing.decoder

    def forward(self, x: Float[Tensor, "N D"], pass_: PackedPass) -> tuple[Tensor, Any]:
        qkv = self.query_key_value(x)  # (N, 3D)
        q, k, v = qkv.chunk(3, dim=1)
        heads = attention(q, k, v, self._intervals(pass_), self.num_heads)
        return self.output.product(heads.values), (x, qkv, heads)

    def backward(
        self, grad: Float[Tensor, "N D"], seen: Any, pass_: PackedPass, onto: Tensor | None
    ) -> Float[Tensor, "N D"]:
        x, qkv, heads = seen
        self.output.learn(heads.values, grad)
        d_qkv = torch.empty_like(qkv)
        (q, k, v), (dq, dk, dv) = qkv.chunk(3, dim=1), d_qkv.chunk(3, dim=1)
        attention_gradient(q, k, v, heads, self._intervals(pass_), self.output.back(grad), (dq, dk, dv))
        self.query_key_value.learn_all(x, d_qkv)
        return self.query_key_value.back(d_qkv, onto)


class PackedCrossAttention:
    def __init__(self, module: CrossAttention, flat: FlatParameters) -> None:
        self.query, self.key_value = Affine.of(module.query, flat), Affine.of(module.key_value, flat)
        self.output = Affine.of(module.output, flat)
        self.num_heads = module.num_heads

    def forward(self, x: Float[Tensor, "T D"], pass_: PackedPass) -> tuple[Tensor, Any]:
        assert pass_.memory is not None
        q, kv = self.query(x), self.key_value(pass_.memory)  # (T, D), (S, 2D)
        k, v = kv.chunk(2, dim=1)
        heads = attention(q, k, v, pass_.packing.cross, self.num_heads)
        return self.output.product(heads.values), (x, q, kv, heads)

    def backward(
        self, grad: Float[Tensor, "T D"], seen: Any, pass_: PackedPass, onto: Tensor | None
    ) -> Float[Tensor, "T D"]:
        x, q, kv, heads = seen
        assert pass_.memory is not None and isinstance(heads, Heads)
        self.output.learn(heads.values, grad)
        dq, d_kv = torch.empty_like(q), torch.empty_like(kv)
        (k, v), (dk, dv) = kv.chunk(2, dim=1), d_kv.chunk(2, dim=1)
        attention_gradient(q, k, v, heads, pass_.packing.cross, self.output.back(grad), (dq, dk, dv))
        self.key_value.learn_all(pass_.memory, d_kv)
        pass_.memory_grad = self.key_value.back(d_kv, pass_.memory_grad)
        self.query.learn_all(x, dq)
        return self.query.back(dq, onto)


class PackedFeedForward:
    def __init__(self, module: FeedForward, flat: FlatParameters) -> None:
        self.inner, self.output = Affine.of(module.inner, flat), Affine.of(module.outer, flat)

    def forward(self, x: Float[Tensor, "N D"], _pass: PackedPass) -> tuple[Tensor, Any]:
        hidden = self.inner.relu(x)  # (N, F)
        return self.output.product(hidden), (x, hidden)

    def backward(
        self, grad: Float[Tensor, "N D"], seen: Any, _pass: PackedPass, onto: Tensor | None
    ) -> Float[Tensor, "N D"]:
        x, hidden = seen
        self.output.learn(hidden, grad)
        d_hidden = self.output.back(grad)
        relu_gradient(d_hidden, hidden, self.inner.bias_grad)
        self.inner.learn(x, d_hidden)
        return self.inner.back(d_hidden, onto)


# A part of a layer within a residual connection, whose sum adds the bias of the part's `output`.
Sublayer = PackedSelfAttention | PackedCrossAttention | PackedFeedForward


class Seen(NamedTuple):
    """The tensors of one residual connection that the backward pass needs."""

    of_sublayer: Any
    summed: Summed


class PackedStack:
    """Sub-layers in their residual connections. With post-norm, the stream is the normalised sum. With pre-norm, it is the
    sum itself, in float32, and is normalised for the next sub-layer or, at the end of the stack, by a last norm."""

    def __init__(
        self, sublayers: Sequence[Sublayer], norms: Sequence[NormParameters], *, first_site: int, dropout: float, pre: bool
    ) -> None:
        assert len(norms) == len(sublayers) + pre
        self.sublayers, self.norms = sublayers, norms
        self.first_site, self.dropout, self.pre = first_site, dropout, pre

    def _dropout(self, number: int, pass_: PackedPass) -> HashDropout:
        return HashDropout(pass_.packing.seed, self.first_site + number, self.dropout)

    def forward(
        self, x: Float[Tensor, "N D"], pass_: PackedPass, dtype: torch.dtype
    ) -> tuple[Float[Tensor, "N D"], list[Any]]:
        tape: list[Any] = []
        stream = x
        if self.pre:
            tape.append(norm(stream, self.norms[0], dtype))
            x = tape[0].normed
        for number, sublayer in enumerate(self.sublayers):
            y, of_sublayer = sublayer.forward(x, pass_)
            by = self.norms[number + self.pre]
            summed = add_norm(stream, y, sublayer.output.bias, by, self._dropout(number, pass_))
            tape.append(Seen(of_sublayer, summed))
            x = summed.normed
            stream = summed.stream if self.pre else x
        return x, tape

    def backward(self, grad: Float[Tensor, "N D"], tape: list[Any], pass_: PackedPass) -> Float[Tensor, "N D"]:
        """Return the input's gradient, and empty the tape meanwhile to free memory."""
        stream_grad: Tensor | None = None
        for number in reversed(range(len(self.sublayers))):
            sublayer, (of_sublayer, summed) = self.sublayers[number], tape.pop()
            by = self.norms[number + self.pre]
            dropout = self._dropout(number, pass_)
            dx, dy = add_norm_gradient(summed, grad, stream_grad, by, sublayer.output.bias_grad, dropout)
            if self.pre:
                stream_grad, grad = dx, sublayer.backward(dy, of_sublayer, pass_, None)
            else:
                grad = sublayer.backward(dy, of_sublayer, pass_, dx)
        if not self.pre:
            return grad
        assert stream_grad is not None
        return stream_grad + norm_gradient(tape.pop(), grad, self.norms[0])


class PackedTransformer:
    """A `Transformer` whose parameters are views of `flat`, for training."""

    def __init__(self, model: Transformer, flat: FlatParameters, *, num_positions: int) -> None:
        config = model.config
        assert untrained(config) is None
        self.config, self.flat, self.model = config, flat, model
        self.pre = config.norm == "pre"
        # A table of its own, because the model's moves when it grows, and a graph's tensors must stay at their addresses.
        self.table = sinusoids(num_positions, config.d_model).to(flat.values) if config.positions == "sinusoidal" else None
        encoder: list[Sublayer] = []
        for layer in model.encoder:
            encoder += [PackedSelfAttention(layer.self_attention, flat), PackedFeedForward(layer.feed_forward, flat)]
        self.encoder = self._stack(encoder, model.encoder, model.encoder_norm, first_site=2)
        decoder: list[Sublayer] = []
        for block in model.decoder:
            decoder += [PackedSelfAttention(block.self_attention, flat), PackedCrossAttention(block.cross_attention, flat)]
            decoder += [PackedFeedForward(block.feed_forward, flat)]
        self.decoder = self._stack(decoder, model.decoder, model.decoder_norm, first_site=2 + len(encoder))

    def _stack(
        self, sublayers: list[Sublayer], layers: Iterable[nn.Module], last: nn.Module, *, first_site: int
    ) -> PackedStack:
        norms = [one.norm for layer in layers for one in layer.children() if isinstance(one, Residual)]
        parameters = [_parameters(one, self.flat) for one in (*norms, *([last] if self.pre else []))]
        return PackedStack(sublayers, parameters, first_site=first_site, dropout=self.config.dropout, pre=self.pre)

    def forward(self, packing: Packing) -> tuple[Float[Tensor, "T D"], Any]:
        """Return the decoder's states and the tape for the backward pass."""
        pass_ = PackedPass(packing)
        dtype = self.flat.copy.dtype
        x = self._embed(packing.src, self.model.embeddings.source, pass_, site=0)
        pass_.memory, encoder_tape = self.encoder.forward(x, pass_, dtype)
        y = self._embed(packing.tgt, self.model.embeddings.target, pass_, site=1)
        states, decoder_tape = self.decoder.forward(y, pass_, dtype)
        return states, (pass_, encoder_tape, decoder_tape)

    def backward(self, grad: Float[Tensor, "T D"], tape: Any) -> None:
        """Add every parameter's gradient, given that of the states."""
        pass_, encoder_tape, decoder_tape = tape
        packing = pass_.packing
        dy = self.decoder.backward(grad, decoder_tape, pass_)
        self._learn_embedding(dy, packing.tgt, self.model.embeddings.target, pass_, site=1)
        assert pass_.memory_grad is not None
        dx = self.encoder.backward(pass_.memory_grad, encoder_tape, pass_)
        self._learn_embedding(dx, packing.src, self.model.embeddings.source, pass_, site=0)

    def _embedding_dropout(self, pass_: PackedPass, site: int) -> HashDropout:
        return HashDropout(pass_.packing.seed, site, self.config.embedding_dropout)

    def _embed(self, side: PackedSide, embedding: Embedding, pass_: PackedPass, *, site: int) -> Float[Tensor, "N D"]:
        dropout, dtype = self._embedding_dropout(pass_, site), torch.float32 if self.pre else self.flat.copy.dtype
        return embed(
            side.ids, side.positions, embedding.weight, self.table, scale=embedding.scale, dropout=dropout, dtype=dtype
        )

    def _learn_embedding(
        self, grad: Tensor, side: PackedSide, embedding: Embedding, pass_: PackedPass, *, site: int
    ) -> None:
        dropout, into = self._embedding_dropout(pass_, site), self.flat.grad_of(embedding.weight)
        add_embedding_gradient(grad, side.order, side.starts, into, scale=embedding.scale, dropout=dropout)


def _parameters(module: nn.Module, flat: FlatParameters) -> NormParameters:
    assert isinstance(module, nn.LayerNorm)
    return NormParameters(module.weight, module.bias, flat.grad_of(module.weight), flat.grad_of(module.bias), module.eps)
