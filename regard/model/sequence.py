"""Base classes of all models: the map to logits, the start and step of decoding, and the pass of an encoder–decoder."""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.config import ModelConfig
from regard.errors import UserError
from regard.model.embedding import Embeddings
from regard.model.layers import Dropout, Linear
from regard.model.onednn import PackedWeight, linear
from regard.model.trace import Intervention, Recorder, Site, Trace


class SequenceModel(nn.Module):
    """A model that gives logits of the next token: of whole sequences through `states`, of one position at a time through
    `start` and `step`. `trace` records a pass."""

    output_bias: nn.Parameter | None
    packed_output: PackedWeight | None = None

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding_dropout = Dropout(config.embedding_dropout)

    @property
    @abstractmethod
    def output_weight(self) -> Float[Tensor, "V D"]:
        """The matrix of the pre-softmax map."""

    @property
    @abstractmethod
    def heads(self) -> dict[Site, tuple[int, int]]:
        """The number of layers, and of heads in each, for every kind of attention in the model."""

    def project(self, states: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Apply the pre-softmax linear map (section 3.4), which shares the target embedding's matrix by default."""
        return linear(states, self.output_weight, self.output_bias, self.packed_output)

    def log_probs(self, states: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows V"]:
        """Return log-probabilities of every next token, in float32 or better."""
        logits = self.project(states)
        return logits.to(torch.promote_types(logits.dtype, torch.float32)).log_softmax(-1)

    def pack(self) -> None:
        """Keep copies of the matrices in a layout that makes decoding on a CPU faster. Do nothing on other devices."""
        if not PackedWeight.is_possible(self.output_weight):
            return
        self.packed_output = PackedWeight(self.output_weight)
        for module in self.modules():
            if isinstance(module, Linear) and module.weight is not self.output_weight:
                module.packed = PackedWeight(module.weight)

    def require_eval(self, what: str) -> None:
        if self.training:
            raise ValueError(f"{what} needs a model without dropout; call model.eval() first")

    def recorder(self, intervention: Intervention) -> Recorder:
        """Return a recorder that holds this intervention. Without a recorder, the layers take their fast path."""
        for head in sorted(intervention.heads_off):
            num_layers, num_heads = self.heads.get(head.site, (0, 0))
            if not (0 <= head.layer < num_layers and 0 <= head.head < num_heads):
                has = f"{num_layers} such layers of {num_heads} heads, counted from 0" if num_layers else "no such heads"
                raise UserError(f"there is no {head.site} head {head.head} in layer {head.layer}: this model has {has}")
        return Recorder(intervention)

    @abstractmethod
    def states(self, *inputs: Int[Tensor, "B _"]) -> Float[Tensor, "B T D"]:
        """Return the last layer's states, from which training takes the loss and `project` makes logits."""

    @torch.no_grad()
    def start(self, src: Int[Tensor, "B S"], *, width: int = 1, intervention: Intervention | None = None) -> Any:
        """Read the sources, or a language model's prompts, once, and return a cache for `width` beams each."""
        self.require_eval("decoding")
        return self._start(src, width, None if intervention is None else self.recorder(intervention))

    @torch.no_grad()
    def step(self, ids: Int[Tensor, " N"], cache: Any, intervention: Intervention | None = None) -> Float[Tensor, "N V"]:
        """Feed each row its next token and return the log-probabilities of the one after. The cache grows by one position.
        A sentence's W beams take the axis of a pass's T positions: all are at one position, each with a past of its own."""
        self.require_eval("decoding")
        num_sentences, width = cache.shape
        assert len(ids) == num_sentences * width, f"{len(ids)} tokens for {num_sentences * width} rows"
        recorder = None if intervention is None else self.recorder(intervention)
        states = self._step(ids.view(num_sentences, width), cache, recorder)
        return self.log_probs(states.flatten(0, 1))

    @abstractmethod
    def _start(self, src: Int[Tensor, "B S"], width: int, recorder: Recorder | None) -> Any: ...

    @abstractmethod
    def _step(self, ids: Int[Tensor, "B W"], cache: Any, recorder: Recorder | None) -> Float[Tensor, "B W D"]: ...


class EncoderDecoder(SequenceModel):
    """A model that reads a source with one half and writes a target with the other."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.embeddings = Embeddings(
            config.src_vocab_size, config.tgt_vocab_size, config.d_model, shared=config.shared_embeddings
        )
        self.output_bias = nn.Parameter(torch.empty(config.tgt_vocab_size)) if config.output_bias else None

    @property
    def output_weight(self) -> Float[Tensor, "V D"]:
        return self.embeddings.output_weight

    def forward(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"]) -> Float[Tensor, "B T V"]:
        """Return the logits of every next token in one pass: position t sees the source and the target up to t."""
        return self.project(self.states(src, tgt_in))

    def states(self, *inputs: Int[Tensor, "B _"]) -> Float[Tensor, "B T D"]:
        """Return the decoder's states, given sources and targets."""
        src, tgt_in = inputs
        return self.decode(tgt_in, self.encode(src), self.padding_mask(src))

    def padding_mask(self, ids: Int[Tensor, "B S"]) -> Bool[Tensor, "B 1 1 S"]:
        """Return a mask that is True at tokens, for every head and every query. Padding stands at the end."""
        return (ids != self.config.pad_id)[:, None, None, :]

    @abstractmethod
    def encode(self, src: Int[Tensor, "B S"], recorder: Recorder | None = None) -> Float[Tensor, "B S M"]: ...

    @abstractmethod
    def decode(
        self,
        tgt_in: Int[Tensor, "B T"],
        memory: Float[Tensor, "B S M"],
        memory_mask: Bool[Tensor, "B 1 1 S"],
        recorder: Recorder | None = None,
    ) -> Float[Tensor, "B T D"]: ...

    @torch.no_grad()
    def trace(self, src: Int[Tensor, "B S"], tgt_in: Int[Tensor, "B T"], intervention: Intervention | None = None) -> Trace:
        """Run one pass, changed by `intervention` if there is one, and return all its intermediate results."""
        self.require_eval("a trace")
        recorder = self.recorder(intervention or Intervention())
        memory = self.encode(src, recorder)
        states = self.decode(tgt_in, memory, self.padding_mask(src), recorder)
        return recorder.trace(memory=memory, states=states, logits=self.project(states))
