"""The RNN encoder–decoders in plain NumPy float64, written from the formulas one vector at a time.

LSTM (Hochreiter and Schmidhuber 1997, with forget gates) and GRU (Cho et al. 2014, in the form that torch computes), one
fixed vector or Bahdanau's attention. It reads the model's parameters by name and nothing else of it.
"""

import math

import numpy as np
import numpy.typing as npt

from regard.config import ModelConfig
from tests.oracles.numpy_transformer import softmax

Array = npt.NDArray[np.float64]
Parameters = dict[str, Array]
State = tuple[Array, ...]  # (h, c) or (h,)


def sigmoid(x: Array) -> Array:
    result: Array = 1.0 / (1.0 + np.exp(-x))
    return result


def step(parameters: Parameters, name: str, x: Array, state: State) -> State:
    """Compute one step of one layer, gate by gate."""
    w_ih, w_hh, b_ih, b_hh = (parameters[f"{name}.{part}_l0"] for part in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
    size = len(state[0])

    def gate(number: int, *, times: Array | float = 1.0) -> Array:
        rows = slice(number * size, (number + 1) * size)
        result: Array = w_ih[rows] @ x + b_ih[rows] + times * (w_hh[rows] @ state[0] + b_hh[rows])
        return result

    if len(state) == 2:
        cell = sigmoid(gate(1)) * state[1] + sigmoid(gate(0)) * np.tanh(gate(2))
        return sigmoid(gate(3)) * np.tanh(cell), cell
    reset, update = sigmoid(gate(0)), sigmoid(gate(1))
    return ((1 - update) * np.tanh(gate(2, times=reset)) + update * state[0],)


def read(parameters: Parameters, name: str, inputs: list[Array], size: int, cell: str) -> list[Array]:
    """Return the states after each input."""
    state: State = tuple(np.zeros(size) for _ in range(2 if cell == "lstm" else 1))
    states = []
    for x in inputs:
        state = step(parameters, name, x, state)
        states.append(state[0])
    return states


def logits(parameters: Parameters, config: ModelConfig, src: list[int], tgt_in: list[int]) -> Array:
    """Return the logits of every next token of one sentence, without padding."""
    scale = math.sqrt(config.d_model)
    table = parameters["embeddings.src.weight"]
    has_attention = config.kind == "rnn-attention"
    states = [table[token] * scale for token in src]
    for layer in range(config.encoder_layers):
        forwards = read(parameters, f"encoder.forwards.{layer}", states, config.d_state, config.cell)
        if has_attention:
            backwards = read(parameters, f"encoder.backwards.{layer}", states[::-1], config.d_state, config.cell)[::-1]
            forwards = [np.concatenate(pair) for pair in zip(forwards, backwards, strict=True)]
        states = forwards
    summary = states[-1]
    if has_attention:
        summary = np.concatenate([states[-1][: config.d_state], states[0][config.d_state :]])
    first = np.tanh(parameters["bridge.weight"] @ summary + parameters["bridge.bias"])
    decoder: list[State] = []
    for layer in range(config.decoder_layers):
        h = first[layer * config.d_state : (layer + 1) * config.d_state]
        decoder.append((h, np.zeros_like(h)) if config.cell == "lstm" else (h,))
    rows = []
    for token in tgt_in:
        word = table[token] * scale
        context = summary
        if has_attention:  # the query is the state before the step
            scores = np.array([score(parameters, config, decoder[-1][0], h) for h in states])
            context = sum(weight * h for weight, h in zip(softmax(scores), states, strict=True))
        x = np.concatenate([word, context])
        for layer in range(config.decoder_layers):
            decoder[layer] = step(parameters, f"decoder.layers.{layer}", x, decoder[layer])
            x = decoder[layer][0]
        together = np.concatenate([x, word, context])
        rows.append(table @ np.tanh(parameters["readout.weight"] @ together + parameters["readout.bias"]))
    return np.array(rows)


def score(parameters: Parameters, config: ModelConfig, state: Array, h: Array) -> float:
    q, k = parameters["attention.query.weight"] @ state, parameters["attention.key.weight"] @ h
    if config.score == "additive":
        return float(parameters["attention.vector.weight"][0] @ np.tanh(q + k))
    return float(q @ k) * (config.d_state**-0.5 if config.score == "scaled" else 1.0)
