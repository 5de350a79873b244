"""What the Transformer replaced: the RNN encoder–decoder, with one fixed vector between its halves or with attention.

`rnn` is that of Cho et al. 2014 and Sutskever et al. 2014: the encoder's last state is all that the decoder sees of a
source. `rnn-attention` is that of Bahdanau et al. 2015: the encoder reads in both directions, and before each step the
decoder's state is compared with every position of the source, whose weighted sum is what the step sees. (Luong et al. 2015
compare the state after the step.)

The surface is the Transformer's: encode, decode, project, states, start, step, trace.
"""

from typing import cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import Cell, ModelConfig, Score
from regard.model.embedding import Embeddings
from regard.model.initialisation import initialise
from regard.model.layers import Dropout, Linear, PackedWeight, linear, pack_linears
from regard.model.recurrent_cache import LayerState, Memory, RecurrentCache, State
from regard.model.trace import AttentionTrace, Intervention, Recorder, Trace

OF_A_LAYER = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # torch's names


class RecurrentEncoder(nn.Module):
    """Layers of LSTM or GRU over a source, in one direction or in both. Padding at the end changes nothing."""

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
                # Each sentence from its own end: what is turned begins with its last word, and is turned back afterwards.
                index = turned[:, :, None]
                back = self.backwards[number](x.gather(1, index.expand_as(x)))[0]
                states = torch.cat([states, back.gather(1, index.expand_as(back))], dim=-1)
            x = states
            if recorder is not None:
                recorder.add_residual("encoder", x)
        return x


class Cells(nn.Module):
    """The decoder's layers: `forward` is one step, `sequence` many at once, where each step's input is known before."""

    def __init__(self, config: ModelConfig, *, d_input: int) -> None:
        super().__init__()
        widths = [d_input, *([config.d_state] * (config.decoder_layers - 1))]
        self.layers = nn.ModuleList(_recurrence(config.cell, width, config.d_state) for width in widths)
        self.dropout = Dropout(config.dropout)

    def forward(self, x: Float[Tensor, "N I"], state: State) -> State:
        """The state of each layer after the step."""
        following = []
        for number, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            x = self.dropout(x) if number else x
            after = _one_step(layer, x, before)
            following.append(after)
            x = after[0]
        return tuple(following)

    def sequence(self, x: Float[Tensor, "B T I"], state: State) -> Float[Tensor, "B T Q"]:
        """The last layer's states after every step."""
        for number, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            x = self.dropout(x) if number else x
            first = tuple(part[None].contiguous() for part in before)
            x = layer(x, first if len(first) > 1 else first[0])[0]
        return x


class SourceAttention(nn.Module):
    """Bahdanau et al. 2015: e_ij = score(s_{i-1}, h_j), α_ij = softmax_j(e_ij), c_i = Σ_j α_ij h_j.

    additive: vᵀ tanh(W_q s + W_k h); dot: (W_q s)·(W_k h); scaled: the same over √d_k. With v a learned vector.
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
        """What the states see: their weighted sums of the memory's values."""
        scale = None if intervention is None else intervention.score_scale
        context = self.weights(self.scores(self.query(states), memory.keys, scale), memory) @ memory.values
        return torch.zeros_like(context) if intervention is not None and intervention.heads_off else context

    def inspected(self, states: Float[Tensor, "B T Q"], memory: Memory, intervention: Intervention) -> AttentionTrace:
        """The same, with everything on the way: one head."""
        q = self.query(states)
        scores = self.scores(q, memory.keys, intervention.score_scale)
        return AttentionTrace(
            queries=q[:, None],
            keys=memory.keys[:, None],
            values=memory.values[:, None],
            scores=scores[:, None],
            mask=memory.mask[:, None, None],
            weights=self.weights(scores, memory)[:, None],
        )

    def scores(
        self, q: Float[Tensor, "B T K"], keys: Float[Tensor, "B S K"], scale: float | None = None
    ) -> Float[Tensor, "B T S"]:
        """`scale` replaces what scores are multiplied by."""
        scale = self.scale if scale is None else scale
        if self.vector is None:
            return q @ keys.transpose(1, 2) * scale
        # One query a sentence while it learns; several, the beams, while it translates.
        sums = torch.tanh(q[:, :, None, :] + keys[:, None, :, :])  # (B, T, S, K)
        scores: Tensor = self.vector(sums)[..., 0]
        return scores if scale == 1.0 else scores * scale

    @staticmethod
    def weights(scores: Float[Tensor, "B T S"], memory: Memory) -> Float[Tensor, "B T S"]:
        return (scores + memory.bias).softmax(-1)


class Recurrent(nn.Module):
    """The RNN encoder–decoder. Its embeddings are the Transformer's, so that models of one width share their number of
    parameters there; its states have a width of their own, `d_state`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        assert config.is_recurrent
        self.config = config
        self.has_attention = config.kind == "rnn-attention"
        self.embeddings = Embeddings(
            config.src_vocab_size, config.tgt_vocab_size, config.d_model, shared=config.shared_embeddings
        )
        self.output_bias = nn.Parameter(torch.empty(config.tgt_vocab_size)) if config.output_bias else None
        self.embedding_dropout = Dropout(config.embedding_dropout)
        self.encoder = RecurrentEncoder(config, both_ways=self.has_attention)
        width = self.encoder.width
        self.bridge = Linear(width, config.decoder_layers * config.d_state)
        self.decoder = Cells(config, d_input=config.d_model + width)
        self.attention = SourceAttention(config.d_state, width, score=config.score) if self.has_attention else None
        # What a state, the word before and the source say together, as wide as the output matrix.
        self.readout = Linear(config.d_state + config.d_model + width, config.d_model)
        self.dropout = Dropout(config.dropout)
        self.packed_output: PackedWeight | None = None
        initialise(self, config)

    def pack(self) -> None:
        """Keeps the matrices a second time, in the order that makes decoding on a CPU fast; elsewhere it does nothing."""
        if PackedWeight.is_possible(self.output_weight):
            self.packed_output = PackedWeight(self.output_weight)
            pack_linears(self)

    @property
    def output_weight(self) -> Float[Tensor, "V D"]:
        """The matrix of the pre-softmax map."""
        return self.embeddings.output_weight

    def forward(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Logits of every next token, given the target up to there."""
        return self.project(self.states(src, tgt_in))

    def states(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        """What `project` makes logits of: training takes the loss from here."""
        return self.decode(tgt_in, self.encode(src), self.padding_mask(src))

    def padding_mask(self, ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
        """True where there is a token. Padding stands at the end."""
        return (ids != self.config.pad_id)[:, None, None, :]

    def encode(self, src: Int[Tensor, "B S"], recorder: Recorder | None = None) -> Float[Tensor, "B S M"]:
        """The encoder's states h_1 … h_S; where it reads both ways, both side by side."""
        x = self.embedding_dropout(self.embeddings.source(src))
        if recorder is not None:
            recorder.add_residual("encoder", x)
        memory: Tensor = self.encoder(x, (src != self.config.pad_id).sum(1), recorder)
        return memory

    def decode(
        self,
        tgt_in: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S M"],
        memory_mask: Bool[Tensor, "B 1 1 S"],
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]:
        """With one fixed vector, all steps in one call; with attention, one after the other, for what a step sees depends on
        the state before it."""
        remembered = self._remember(memory, memory_mask)
        state = self._first_state(memory, memory_mask)
        y = self._embed(tgt_in, recorder)
        if self.attention is None:
            context = remembered.values.expand(-1, y.shape[1], -1)
            outputs = self.decoder.sequence(torch.cat([y, context], dim=-1), state)
            return self._read_out(outputs, y, context, recorder)
        intervention = None if recorder is None else recorder.intervention
        before, after, contexts = [], [], []
        for word in y.split(1, dim=1):
            before.append(state[-1][0][:, None])  # (B, 1, Q)
            contexts.append(self.attention(before[-1], remembered, intervention))  # (B, 1, M)
            state = self.decoder(torch.cat([word, contexts[-1]], dim=-1)[:, 0], state)
            after.append(state[-1][0][:, None])
        if recorder is not None:
            seen = self.attention.inspected(torch.cat(before, dim=1), remembered, recorder.intervention)
            recorder.add_attention("cross", seen)
        return self._read_out(torch.cat(after, dim=1), y, torch.cat(contexts, dim=1), recorder)

    def project(self, states: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """The pre-softmax linear map, which shares the target embedding's matrix unless told otherwise."""
        return linear(states, self.output_weight, self.output_bias, self.packed_output)

    @torch.no_grad()
    def start(self, src: Int[Tensor, "B S"], *, width: int = 1, intervention: Intervention | None = None) -> RecurrentCache:
        """Encodes the sentences, once, for `width` beams each."""
        self._require_eval("decoding")
        self._checked(intervention or Intervention())
        memory, mask = self.encode(src), self.padding_mask(src)
        state = self._first_state(memory, mask)
        beams = tuple(tuple(part[:, None].expand(-1, width, -1) for part in layer) for layer in state)
        return RecurrentCache(beams, self._remember(memory, mask), torch.zeros_like(src[:, 0], dtype=torch.long))

    @torch.no_grad()
    def step(
        self, ids: Int[Tensor, " N"], cache: RecurrentCache, intervention: Intervention | None = None
    ) -> Float[Tensor, "N V"]:
        """Feeds each row its next token and gives the log-probabilities of the one after."""
        self._require_eval("decoding")
        assert len(ids) == cache.num_rows, f"{len(ids)} tokens for {cache.num_rows} rows"
        if intervention is not None:
            self._checked(intervention)
        y = self._embed(ids.view(cache.num_sentences, cache.width), None)  # (B, W, D)
        if self.attention is None:
            context = cache.memory.values.expand(-1, cache.width, -1)
        else:
            context = self.attention(cache.state[-1][0], cache.memory, intervention)  # (B, W, M)
        rows = tuple(tuple(part.flatten(0, 1) for part in layer) for layer in cache.state)
        state = self.decoder(torch.cat([y, context], dim=-1).flatten(0, 1), rows)
        shape = (cache.num_sentences, cache.width)
        cache.advance(tuple(tuple(part.unflatten(0, shape) for part in layer) for layer in state))
        states = self._read_out(cache.state[-1][0], y, context, None)
        return self.project(states).flatten(0, 1).log_softmax(-1)

    @torch.no_grad()
    def trace(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"], intervention: Intervention | None = None) -> Trace:
        """One pass with everything it computed. What attention there is, is one layer of one head."""
        self._require_eval("a trace")
        recorder = Recorder(self._checked(intervention or Intervention()))
        memory = self.encode(src, recorder)
        states = self.decode(tgt_in, memory, self.padding_mask(src), recorder)
        return Trace(
            encoder=recorder.stack_trace("encoder"),
            decoder=recorder.stack_trace("decoder"),
            memory=memory,
            states=states,
            logits=self.project(states),
        )

    def _embed(self, ids: Int[Tensor, "B T"], recorder: Recorder | None) -> Float[Tensor, "B T D"]:
        y: Tensor = self.embedding_dropout(self.embeddings.target(ids))
        if recorder is not None:
            recorder.add_residual("decoder", y)
        return y

    def _read_out(
        self,
        outputs: Float[Tensor, "B T Q"],
        y: Float[Tensor, "B T D"],
        context: Float[Tensor, "B T M"],
        recorder: Recorder | None,
    ) -> Float[Tensor, "B T D"]:
        states = torch.tanh(self.readout(self.dropout(torch.cat([outputs, y, context], dim=-1))))
        if recorder is not None:
            recorder.add_residual("decoder", outputs)
            recorder.add_residual("decoder", states)
        return states

    def _remember(self, memory: Float[Tensor, "B S M"], memory_mask: Bool[Tensor, "B 1 1 S"]) -> Memory:
        """What the decoder sees of a source: each position, or only the last state as the one fixed vector C."""
        mask = memory_mask[:, 0, 0]
        if self.attention is None:
            return Memory.fixed(self._summary(memory, mask))
        return Memory.of(memory, self.attention.key(memory), mask)

    def _summary(self, memory: Float[Tensor, "B S M"], mask: Bool[Tensor, "B S"]) -> Float[Tensor, "B M"]:
        """Where each direction's reading ended: the last position of the one, the first of the other."""
        ends = (mask.sum(1) - 1).clamp(min=0)[:, None, None].expand(-1, 1, memory.shape[2])
        last = memory.gather(1, ends)[:, 0]
        if not self.has_attention:
            return last
        return torch.cat([last[:, : self.config.d_state], memory[:, 0, self.config.d_state :]], dim=-1)

    def _first_state(self, memory: Float[Tensor, "B S M"], memory_mask: Bool[Tensor, "B 1 1 S"]) -> State:
        """tanh(W · summary) for the state of each layer, and nothing in an LSTM's cells."""
        first = torch.tanh(self.bridge(self._summary(memory, memory_mask[:, 0, 0])))
        layers = first.chunk(self.config.decoder_layers, dim=-1)
        return tuple((h, torch.zeros_like(h)) if self.config.cell == "lstm" else (h,) for h in layers)

    def _checked(self, intervention: Intervention) -> Intervention:
        if not intervention.positions or not intervention.causal:
            raise ValueError("an RNN has neither positions nor a causal mask that could be left out")
        for head in sorted(intervention.heads_off):
            if self.attention is None or tuple(head) != ("cross", 0, 0):
                has = "only cross head 0 in layer 0" if self.has_attention else "no attention"
                raise ValueError(f"there is no {head.site} head {head.head} in layer {head.layer}: this model has {has}")
        return intervention

    def _require_eval(self, what: str) -> None:
        if self.training:
            raise ValueError(f"{what} needs a model without dropout; call model.eval() first")


def _recurrence(cell: Cell, d_input: int, d_state: int) -> nn.LSTM | nn.GRU:
    return (nn.LSTM if cell == "lstm" else nn.GRU)(d_input, d_state, batch_first=True)


def _turned(lengths: Int[Tensor, " B"], extent: int) -> Int[Tensor, "B S"]:
    """Positions that turn each sentence around and leave its padding where it is."""
    positions = torch.arange(extent, device=lengths.device)[None]
    return torch.where(positions < lengths[:, None], lengths[:, None] - 1 - positions, positions)


def _one_step(layer: nn.Module, x: Float[Tensor, "N I"], before: LayerState) -> LayerState:
    """One step of torch's LSTM or GRU by its own weights. The module itself would be called with sequences of one, which
    costs several times as much on a GPU."""
    w_ih, w_hh, b_ih, b_hh = (cast("Tensor", getattr(layer, f"{name}_l0")) for name in OF_A_LAYER)
    if isinstance(layer, nn.LSTM):
        h, c = torch.lstm_cell(x, before, w_ih, w_hh, b_ih, b_hh)
        return h, c
    return (torch.gru_cell(x, before[0], w_ih, w_hh, b_ih, b_hh),)
