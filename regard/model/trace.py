"""What one pass looked like (`Trace`), and what to change in it (`Intervention`).

A traced pass hands a `Recorder` down through the layers; the model keeps nothing of it. Without a recorder the layers
run their fast path and none of this is touched.
"""

from dataclasses import dataclass
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
    """What to change in a pass. The default changes nothing."""

    heads_off: frozenset[Head] = frozenset()  # their output becomes zero
    score_scale: float | None = None  # instead of 1/√d_k
    positions: bool = True  # False: no positional encodings are added
    causal: bool = True  # False: the decoder sees later target positions (one-pass only; a step has no later ones)


@dataclass(frozen=True)
class AttentionTrace:
    """One layer's attention, all heads: softmax(scores where mask) · values is what came out."""

    queries: Float[Tensor, "B H T K"]
    keys: Float[Tensor, "B H S K"]
    values: Float[Tensor, "B H S Kv"]
    scores: Float[Tensor, "B H T S"]  # scaled, before mask and softmax
    mask: Bool[Tensor, "#B 1 #T S"]
    weights: Float[Tensor, "B H T S"]

    @property
    def entropy(self) -> Float[Tensor, "B H T"]:
        """In nats: 0 where one key gets everything, log(number of keys) where all get the same."""
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
    """Everything one pass over a batch computed on its way to the logits."""

    encoder: StackTrace
    decoder: StackTrace
    memory: Float[Tensor, "B S M"]
    states: Float[Tensor, "B T D"]  # what the output projection sees
    logits: Float[Tensor, "B T V"]


class Recorder:
    """Collects a pass while it runs, and tells the layers what the intervention asks of them."""

    def __init__(self, intervention: Intervention) -> None:
        self.intervention = intervention
        self._attention: dict[Site, list[AttentionTrace]] = {"encoder": [], "decoder": [], "cross": []}
        self._activations: dict[Stack, list[Tensor]] = {"encoder": [], "decoder": []}
        self._residuals: dict[Stack, list[Tensor]] = {"encoder": [], "decoder": []}

    def add_attention(self, site: Site, attention: AttentionTrace) -> None:
        self._attention[site].append(attention)

    def add_activation(self, stack: Stack, hidden: Float[Tensor, "B T F"]) -> None:
        self._activations[stack].append(hidden)

    def add_residual(self, stack: Stack, x: Float[Tensor, "B T _"]) -> None:
        self._residuals[stack].append(x)

    def heads_off(self, site: Site, layer: int) -> list[int]:
        return sorted(head.head for head in self.intervention.heads_off if head[:2] == (site, layer))

    def stack_trace(self, stack: Stack) -> StackTrace:
        return StackTrace(
            self_attention=tuple(self._attention[stack]),
            cross_attention=tuple(self._attention["cross"] if stack == "decoder" else ()),
            activations=tuple(self._activations[stack]),
            residuals=tuple(self._residuals[stack]),
        )
