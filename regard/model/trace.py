"""Records of one pass (`Trace`), and changes to it (`Intervention`).

A traced pass hands a `Recorder` down through the layers, and the model keeps no reference to it. Without a recorder, the
layers take their fast path.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

Stack = Literal["encoder", "decoder"]
Site = Literal["encoder", "decoder", "cross"]


class Head(NamedTuple):
    """One attention head: encoder self-attention, masked decoder self-attention or cross-attention."""

    site: Site
    layer: int
    head: int


@dataclass(frozen=True)
class Intervention:
    """Changes to a pass. The default changes nothing."""

    heads_off: frozenset[Head] = frozenset()  # their output becomes zero
    score_scale: float | None = None  # instead of 1/√d_k
    positions: bool = True  # False: no positional encodings are added
    causal: bool = True  # False: the decoder sees later target positions (one-pass only; a step has no later ones)


@dataclass(frozen=True)
class AttentionTrace:
    """The attention of one layer's heads, whose output is softmax(scores where mask) · values."""

    queries: Float[Tensor, "B H T K"]
    keys: Float[Tensor, "B H S K"]
    values: Float[Tensor, "B H S Kv"]
    scores: Float[Tensor, "B H T S"]  # scaled, before mask and softmax
    mask: Bool[Tensor, "#B 1 #T S"]
    weights: Float[Tensor, "B H T S"]

    @property
    def entropy(self) -> Float[Tensor, "B H T"]:
        """The entropy in nats: 0 where one key gets all weight, log(number of keys) where all get the same."""
        entropy: Tensor = torch.special.entr(self.weights).sum(-1)
        return entropy


@dataclass(frozen=True)
class StackTrace:
    """The encoder's or the decoder's layers, in order."""

    self_attention: tuple[AttentionTrace, ...]
    cross_attention: tuple[AttentionTrace, ...]  # empty for the encoder
    activations: tuple[Float[Tensor, "B T F"], ...]  # inside each feed-forward network; an RNN has none
    residuals: tuple[Float[Tensor, "B T _"], ...]  # after the embedding, then after each sub-layer, or layer of an RNN

    @property
    def residual_norms(self) -> Float[Tensor, "_ B T"]:
        return torch.stack([x.norm(dim=-1) for x in self.residuals])


@dataclass(frozen=True)
class Trace:
    """All intermediate results of one pass over a batch, and its logits."""

    encoder: StackTrace
    decoder: StackTrace
    memory: Float[Tensor, "B S M"]
    states: Float[Tensor, "B T D"]  # what the output projection sees
    logits: Float[Tensor, "B T V"]


@dataclass(frozen=True)
class Recorder:
    """The intermediate results that the layers append during a pass, and the intervention that they apply."""

    intervention: Intervention
    attention: dict[Site, list[AttentionTrace]] = field(default_factory=lambda: defaultdict(list))
    activations: dict[Stack, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    residuals: dict[Stack, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def heads_off(self, site: Site, layer: int) -> list[int]:
        """Return the numbers of this layer's heads whose output becomes zero."""
        return sorted(head.head for head in self.intervention.heads_off if head[:2] == (site, layer))

    def trace(
        self, *, memory: Float[Tensor, "B S M"], states: Float[Tensor, "B T D"], logits: Float[Tensor, "B T V"]
    ) -> Trace:
        """Return everything recorded so far, with the results of the pass."""
        return Trace(self._stack("encoder"), self._stack("decoder"), memory, states, logits)

    def _stack(self, stack: Stack) -> StackTrace:
        return StackTrace(
            self_attention=tuple(self.attention[stack]),
            cross_attention=tuple(self.attention["cross"] if stack == "decoder" else ()),
            activations=tuple(self.activations[stack]),
            residuals=tuple(self.residuals[stack]),
        )


def recorded(x: Float[Tensor, "B T _"], stack: Stack, recorder: Recorder | None) -> Float[Tensor, "B T _"]:
    """Return x, the residual stream, after recording it if there is a recorder."""
    if recorder is not None:
        recorder.residuals[stack].append(x)
    return x
