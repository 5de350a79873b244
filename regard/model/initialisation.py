"""The first values of all parameters. EXPERIMENTS.md compares them with others."""

import math

from torch import Tensor, nn

from regard.config import ModelConfig
from regard.model.embedding import Embedding, LearnedPositions


def initialise(model: nn.Module, config: ModelConfig) -> None:
    """Give every parameter its first value, by the kind of module that owns it.

    | parameter                        | value              | why                                                         |
    |----------------------------------|--------------------|-------------------------------------------------------------|
    | embeddings, output matrix        | N(0, d_model^-½)   | times √d_model: unit variance in; logits of variance 1 out  |
    | learned positions                | N(0, 2^-½)         | as large as sinusoids                                       |
    | W_Q, W_K, W_V                    | Glorot             | scores of a moderate size                                   |
    | W_O, feed-forward, pre-norm      | Glorot             | the stream is normalised before every sub-layer             |
    | W_O, feed-forward, post-norm     | Glorot · (8N)^-¼   | sub-layers start as corrections of the stream: at full size |
    |                                  | (decoder (12N)^-¼) | six of them make all positions alike, and nothing is learnt |
    | an RNN's keys, v, bridge, output | Glorot · (12N)^-¼  | as its systems were measured (EXPERIMENTS.md)               |
    | an RNN's input matrices          | Glorot, by gate    |                                                             |
    | an RNN's recurrent matrices      | orthogonal, by gate| the state's norm neither grows nor fades                    |
    | an LSTM's forget gates           | bias 1             | an LSTM remembers by default (Gers et al. 2000)             |
    | W_O, W₂ of a language model      | Glorot · (2N)^-½   | 2N sub-layers together add about as much as one (GPT-2)     |
    | other biases, LayerNorm β        | 0                  |                                                             |
    | LayerNorm and RMSNorm γ          | 1                  |                                                             |

    Glorot is N(0, √(2 / (fan_in + fan_out))), of each map by itself where several are stacked in one matrix. N is the number
    of layers in the stack. The factors are after DeepNet (Wang et al. 2022), which also shrinks W_V and scales the residual.
    """
    for name, parameter in model.named_parameters():
        owner = model.get_submodule(name.rpartition(".")[0])
        if isinstance(owner, nn.RNNBase):
            _initialise_recurrence(name.rpartition(".")[2], parameter, is_lstm=isinstance(owner, nn.LSTM))
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif isinstance(owner, nn.LayerNorm | nn.RMSNorm):
            nn.init.ones_(parameter)
        elif isinstance(owner, nn.Linear) and name != "lm_head.weight":
            nn.init.normal_(parameter, std=glorot(name, parameter) * depth_factor(name, config))
        elif isinstance(owner, LearnedPositions):
            nn.init.normal_(parameter, std=2**-0.5)
        else:
            assert isinstance(owner, Embedding) or name == "lm_head.weight", f"no first value for {name}"
            nn.init.normal_(parameter, std=config.d_model**-0.5)


def _initialise_recurrence(name: str, parameter: nn.Parameter, *, is_lstm: bool) -> None:
    """Give each gate its first values: an LSTM's input, forget, cell and output, or a GRU's reset, update and new."""
    gates = parameter.detach().chunk(4 if is_lstm else 3)
    for number, gate in enumerate(gates):
        if name.startswith("bias"):  # two biases are added, so only one gets the 1
            gate.fill_(1.0 if is_lstm and number == 1 and name.startswith("bias_ih") else 0.0)
        elif name.startswith("weight_hh"):
            nn.init.orthogonal_(gate)
        else:
            nn.init.normal_(gate, std=math.sqrt(2.0 / sum(gate.shape)))


def glorot(name: str, weight: Tensor) -> float:
    return math.sqrt(2.0 / (weight.shape[0] // num_stacked(name, weight) + weight.shape[1]))


def num_stacked(name: str, weight: Tensor) -> int:
    """Return how many maps one matrix stacks: those to queries, keys and values."""
    return weight.shape[0] // weight.shape[1] if "key_value" in name else 1


def depth_factor(name: str, config: ModelConfig) -> float:
    """Return the factor of maps that write to the residual stream of a post-norm model or of a language model."""
    if config.kind == "language":
        writes = name.endswith(("attention.output.weight", "feed_forward.outer.weight"))
        return (2 * config.decoder_layers) ** -0.5 if writes else 1.0
    if "query" in name or "key_value" in name or (config.norm == "pre" and not config.is_recurrent):
        return 1.0
    is_encoder = name.startswith("encoder.")
    return float((8 * config.encoder_layers if is_encoder else 12 * config.decoder_layers) ** -0.25)
