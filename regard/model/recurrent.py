"""The RNN encoder–decoder that the Transformer replaced, with one fixed vector between its halves or with attention.

`rnn` is the model of Cho et al. 2014 and Sutskever et al. 2014: the decoder sees only the encoder's last state of a source.
`rnn-attention` is the model of Bahdanau et al. 2015: the encoder reads in both directions, and before each step, the
decoder's state is compared with every position of the source, whose weighted sum is an input of the step. (Luong et al. 2015
compare the state after the step.)
"""

from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Cell, ModelConfig, Score
from regard.errors import UserError
from regard.model.initialisation import initialise
from regard.model.layers import Dropout, Linear
from regard.model.recurrent_cache import LayerState, Memory, RecurrentCache, State
from regard.model.sequence import EncoderDecoder
from regard.model.trace import AttentionTrace, Intervention, Recorder, Site, recorded

OF_A_LAYER = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # torch's names of a layer's parameters


class RecurrentEncoder(nn.Module):
    """Layers of LSTM or GRU over a source, in one direction or in both. Padding does not change the states of words."""

    def __init__(self, config: ModelConfig, *, both_ways: bool) -> None:
        super().__init__()
        self.width = config.d_state * (2 if both_ways else 1)
        widths = [config.d_model, *([self.width] * (config.encoder_layers - 1))]
        self.forwards = nn.ModuleList(_recurrence(config.cell, width, config.d_state) for width in widths)
        self.backwards = nn.ModuleList(_recurrence(config.cell, width, config.d_state) for width in widths if both_ways)
        self.dropout = Dropout(config.dropout)

    def forward(
        self, x: Float[Tensor, "B S D"], lengths: Int[Tensor, " B"], recorder: Recorder | None = None
    ) -> Float[Tensor, "B S M"]:
        turned = _turned(lengths, x.shape[1])
        for number, forwards in enumerate(self.forwards):
            x = self.dropout(x) if number else x
            states = forwards(x)[0]
            if self.backwards:
                # Each sentence is reversed from its own last word, and its states are reversed back.
                index = turned[:, :, None]
                back = self.backwards[number](x.gather(1, index.expand_as(x)))[0]
                states = torch.cat([states, back.gather(1, index.expand_as(back))], dim=-1)
            x = recorded(states, "encoder", recorder)
        return x


class Cells(nn.Module):
    """The decoder's layers. `forward` runs one step, `sequence` runs many at once if all of their inputs are known."""

    def __init__(self, config: ModelConfig, *, d_input: int) -> None:
        super().__init__()
        widths = [d_input, *([config.d_state] * (config.decoder_layers - 1))]
        self.layers = nn.ModuleList(_recurrence(config.cell, width, config.d_state) for width in widths)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "N I"], state: State) -> State:
        """Return the state of each layer after the step."""
        following = []
        for number, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            x = self.dropout(x) if number else x
            after = _one_step(layer, x, before)
            following.append(after)
            x = after[0]
        return tuple(following)

    def sequence(self, x: Float[Tensor, "B T I"], state: State) -> Float[Tensor, "B T Q"]:
        """Return the last layer's states after every step."""
        for number, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            x = self.dropout(x) if number else x
            first = tuple(part[None].contiguous() for part in before)
            x = layer(x, first if len(first) > 1 else first[0])[0]
        return x


class SourceAttention(nn.Module):
    """Bahdanau et al. 2015: e_ij = score(s_{i-1}, h_j), α_ij = softmax_j(e_ij), c_i = Σ_j α_ij h_j.

    additive: vᵀ tanh(W_q s + W_k h), with v a learned vector; dot: (W_q s)·(W_k h); scaled: (W_q s)·(W_k h)/√d_k.
    """

    def __init__(self, d_state: int, d_memory: int, *, score: Score) -> None:
        super().__init__()
        self.query = Linear(d_state, d_state, bias=False)
        self.key = Linear(d_memory, d_state, bias=False)
        self.vector = Linear(d_state, 1, bias=False) if score == "additive" else None
        self.scale = d_state**-0.5 if score == "scaled" else 1.0

    def forward(
        self, states: Float[Tensor, "B T Q"], memory: Memory, intervention: Intervention | None = None
    ) -> Float[Tensor, "B T M"]:
        """Return each state's weighted sum of the memory's values."""
        _, _, weights = self._weights(states, memory, intervention)
        context = weights @ memory.values
        return torch.zeros_like(context) if intervention is not None and intervention.heads_off else context

    def inspected(self, states: Float[Tensor, "B T Q"], memory: Memory, intervention: Intervention) -> AttentionTrace:
        """Return the intermediate results of `forward`, as those of one head."""
        q, scores, weights = (part[:, None] for part in self._weights(states, memory, intervention))
        keys, values, mask = memory.keys[:, None], memory.values[:, None], memory.mask[:, None, None]
        return AttentionTrace(queries=q, keys=keys, values=values, scores=scores, mask=mask, weights=weights)

    def _weights(
        self, states: Float[Tensor, "B T Q"], memory: Memory, intervention: Intervention | None
    ) -> tuple[Float[Tensor, "B T K"], Float[Tensor, "B T S"], Float[Tensor, "B T S"]]:
        """Return queries, scores and weights."""
        asked = None if intervention is None else intervention.score_scale
        scale = self.scale if asked is None else asked
        q = self.query(states)
        if self.vector is None:
            scores = q @ memory.keys.transpose(1, 2) * scale
        else:
            sums = torch.tanh(q[:, :, None, :] + memory.keys[:, None, :, :])  # (B, T, S, K)
            scores = self.vector(sums)[..., 0]
            scores = scores if scale == 1.0 else scores * scale
        return q, scores, (scores + memory.bias).softmax(-1)


class Recurrent(EncoderDecoder):
    """The RNN encoder–decoder. Its embeddings are those of a Transformer of the same d_model; the width of its states is
    `d_state`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        assert config.is_recurrent
        self.has_attention = config.kind == "rnn-attention"
        self.encoder = RecurrentEncoder(config, both_ways=self.has_attention)
        width = self.encoder.width
        self.bridge = Linear(width, config.decoder_layers * config.d_state)
        self.decoder = Cells(config, d_input=config.d_model + width)
        self.attention = SourceAttention(config.d_state, width, score=config.score) if self.has_attention else None
        self.readout = Linear(config.d_state + config.d_model + width, config.d_model)
        self.dropout = Dropout(config.dropout)
        initialise(self, config)

    @property
    def heads(self) -> dict[Site, tuple[int, int]]:
        return {"cross": (1, 1)} if self.has_attention else {}

    def encode(self, src: Int[Tensor, "B S"], recorder: Recorder | None = None) -> Float[Tensor, "B S M"]:
        """Return the encoder's states h_1 … h_S, those of both directions side by side."""
        x = recorded(self.embedding_dropout(self.embeddings.source(src)), "encoder", recorder)
        memory: Tensor = self.encoder(x, (src != self.config.pad_id).sum(1), recorder)
        return memory

    def decode(
        self,
        tgt_in: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S M"],
        memory_mask: Bool[Tensor, "B 1 1 S"],
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        """Return the decoder's states. With one fixed vector, one call runs all steps; with attention, they run one by one,
        because the source's weighted sum depends on the state before."""
        source, state = self._first_state(memory, memory_mask)
        y = recorded(self.embedding_dropout(self.embeddings.target(tgt_in)), "decoder", recorder)
        if self.attention is None:
            context = source.values.expand(-1, y.shape[1], -1)
            outputs = self.decoder.sequence(torch.cat([y, context], dim=-1), state)
            return self._read_out(outputs, y, context, recorder)
        intervention = None if recorder is None else recorder.intervention
        before, after, contexts = [], [], []
        for word in y.split(1, dim=1):
            before.append(state[-1][0][:, None])  # (B, 1, Q)
            contexts.append(self.attention(before[-1], source, intervention))  # (B, 1, M)
            state = self.decoder(torch.cat([word, contexts[-1]], dim=-1)[:, 0], state)
            after.append(state[-1][0][:, None])
        if recorder is not None:
            seen = self.attention.inspected(torch.cat(before, dim=1), source, recorder.intervention)
            recorder.attention["cross"].append(seen)
        return self._read_out(torch.cat(after, dim=1), y, torch.cat(contexts, dim=1), recorder)

    def _start(self, src: Int[Tensor, "B S"], width: int, recorder: Recorder | None) -> RecurrentCache:
        source, state = self._first_state(self.encode(src, recorder), self.padding_mask(src))
        beams = tuple(tuple(part[:, None].expand(-1, width, -1) for part in layer) for layer in state)
        return RecurrentCache(beams, source, torch.zeros_like(src[:, 0], dtype=torch.long))

    def _step(self, ids: Int[Tensor, "B W"], cache: RecurrentCache, recorder: Recorder | None) -> Float[Tensor, "B W D"]:
        y = self.embedding_dropout(self.embeddings.target(ids))
        if self.attention is None:
            context = cache.memory.values.expand(-1, ids.shape[1], -1)
        else:
            intervention = None if recorder is None else recorder.intervention
            context = self.attention(cache.state[-1][0], cache.memory, intervention)  # (B, W, M)
        rows = tuple(tuple(part.flatten(0, 1) for part in layer) for layer in cache.state)
        state = self.decoder(torch.cat([y, context], dim=-1).flatten(0, 1), rows)
        cache.advance(tuple(tuple(part.unflatten(0, ids.shape) for part in layer) for layer in state))
        return self._read_out(cache.state[-1][0], y, context, recorder)

    def _read_out(
        self,
        outputs: Float[Tensor, "B T Q"],
        y: Float[Tensor, "B T D"],
        context: Float[Tensor, "B T M"],
        recorder: Recorder | None,
    ) -> Float[Tensor, "B T D"]:
        recorded(outputs, "decoder", recorder)
        states = torch.tanh(self.readout(self.dropout(torch.cat([outputs, y, context], dim=-1))))
        return recorded(states, "decoder", recorder)

    def _first_state(self, memory: Float[Tensor, "B S M"], memory_mask: Bool[Tensor, "B 1 1 S"]) -> tuple[Memory, State]:
        """Return the source as the decoder sees it, each position or only their summary, and the decoder's first state:
        tanh(W · summary) in each layer, and zeros in an LSTM's cells. The summary is each direction's last state: that at
        the last position for the one, at the first for the other."""
        mask = memory_mask[:, 0, 0]
        source = None if self.attention is None else Memory.of(memory, self.attention.key(memory), mask)
        ends = (mask.sum(1) - 1).clamp(min=0)[:, None, None].expand(-1, 1, memory.shape[2])
        summary = memory.gather(1, ends)[:, 0]
        if source is None:
            source = Memory.fixed(summary)
        else:
            summary = torch.cat([summary[:, : self.config.d_state], memory[:, 0, self.config.d_state :]], dim=-1)
        layers = torch.tanh(self.bridge(summary)).chunk(self.config.decoder_layers, dim=-1)
        return source, tuple((h, torch.zeros_like(h)) if self.config.cell == "lstm" else (h,) for h in layers)

    def recorder(self, intervention: Intervention) -> Recorder:
        if not (intervention.positions and intervention.causal):
            raise UserError("an RNN has neither positions nor a causal mask that could be left out")
        return super().recorder(intervention)


def _recurrence(cell: Cell, d_input: int, d_state: int) -> nn.LSTM | nn.GRU:
    return (nn.LSTM if cell == "lstm" else nn.GRU)(d_input, d_state, batch_first=True)


def _turned(lengths: Int[Tensor, " B"], extent: int) -> Int[Tensor, "B S"]:
    """Return positions that reverse each sentence and leave its padding where it is."""
    positions = torch.arange(extent, device=lengths.device)[None]
    return torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)


def _one_step(layer: nn.Module, x: Float[Tensor, "N I"], before: LayerState) -> LayerState:
    """Run one step of torch's LSTM or GRU with its weights. Calling the module with sequences of one token takes several
    times as long on a GPU."""
    w_ih, w_hh, b_ih, b_hh = (cast("Tensor", getattr(layer, f"{name}_l0")) for name in OF_A_LAYER)
    if isinstance(layer, nn.LSTM):
        h, c = torch.lstm_cell(x, before, w_ih, w_hh, b_ih, b_hh)
        return h, c
    return (torch.gru_cell(x, before[0], w_ih, w_hh, b_ih, b_hh),)
