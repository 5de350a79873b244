"""Tests of the language model against the formulas, Hugging Face's Llama, and its own single steps."""

import itertools
import math
import re
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from regard.config import ModelConfig, model_preset
from regard.exchange.llama import llama_table, their_names
from regard.model.kinds import build
from regard.model.language import LanguageModel, Rotation
from regard.model.trace import Head, Intervention
from regard.search.beam import beam
from regard.search.greedy import greedy
from regard.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

CONFIG = ModelConfig(
    kind="language",
    src_vocab_size=37,
    tgt_vocab_size=37,
    decoder_layers=2,
    d_model=24,
    num_heads=6,
    d_ff=40,
    shared_embeddings="none",
    dropout=0.0,
    embedding_dropout=0.0,
)
VARIANTS = {
    "as many keys as heads": CONFIG,
    "two heads share": replace(CONFIG, key_value_heads=3),
    "all heads share": replace(CONFIG, key_value_heads=1),
    "tied": replace(CONFIG, shared_embeddings="all"),
    "another base and epsilon": replace(CONFIG, rotary_base=500.0, norm_epsilon=0.1),
}


def random_model(config: ModelConfig = CONFIG, seed: int = 0) -> LanguageModel:
    """Return a model with random gains, because gains of one would hide a missing norm."""
    torch.manual_seed(seed)
    model = build(config)
    assert isinstance(model, LanguageModel)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 2.0)
        else:
            torch.nn.init.normal_(parameter, std=1.5 / math.sqrt(parameter.shape[-1]))
    return model.eval()


def random_ids(*shape: int, seed: int = 1) -> Tensor:
    return torch.randint(4, 37, shape, generator=torch.Generator().manual_seed(seed))


def by_the_formulas(model: LanguageModel, ids: list[int]) -> Tensor:
    """Return the logits of one text, head by head and position by position, in float64."""
    config, w = model.config, {name: tensor.double() for name, tensor in model.state_dict().items()}
    num_shared, d_head = config.key_value_heads or config.num_heads, config.d_head

    def norm(x: Tensor, gain: Tensor) -> Tensor:
        return x / math.sqrt(sum(float(value) ** 2 for value in x) / len(x) + config.norm_epsilon) * gain

    def turned(x: Tensor, position: int) -> Tensor:
        """Rotate each pair as a complex number, times e^(i·angle)."""
        out = x.clone()
        for i in range(d_head // 2):
            angle = position / config.rotary_base ** (2 * i / d_head)
            number = complex(x[i], x[i + d_head // 2]) * complex(math.cos(angle), math.sin(angle))
            out[i], out[i + d_head // 2] = number.real, number.imag
        return out

    stream = [w["embedding.weight"][token] for token in ids]
    for n in range(config.decoder_layers):
        part = {name.removeprefix(f"layers.{n}."): tensor for name, tensor in w.items() if name.startswith(f"layers.{n}.")}
        seen = [norm(x, part["attention_norm.weight"]) for x in stream]
        heads: list[list[Tensor]] = [[] for _ in ids]
        for head in range(config.num_heads):
            own = slice(head * d_head, (head + 1) * d_head)
            shared = head * num_shared // config.num_heads
            other = slice(shared * d_head, (shared + 1) * d_head)
            q = [turned((part["attention.query.weight"] @ x)[own], t) for t, x in enumerate(seen)]
            k = [turned((part["attention.key.weight"] @ x)[other], t) for t, x in enumerate(seen)]
            v = [(part["attention.value.weight"] @ x)[other] for x in seen]
            for t in range(len(ids)):
                scores = [math.exp(float(q[t] @ k[s]) / math.sqrt(d_head)) for s in range(t + 1)]
                heads[t].append(sum((scores[s] / sum(scores) * v[s] for s in range(t + 1)), torch.zeros(d_head).double()))
        stream = [x + part["attention.output.weight"] @ torch.cat(found) for x, found in zip(stream, heads, strict=True)]
        for t, x in enumerate(stream):
            y = norm(x, part["feed_forward_norm.weight"])
            gate = part["feed_forward.gate.weight"] @ y
            hidden = gate / (1 + torch.exp(-gate)) * (part["feed_forward.inner.weight"] @ y)
            stream[t] = x + part["feed_forward.outer.weight"] @ hidden
    output = w.get("lm_head.weight", w["embedding.weight"])
    return torch.stack([output @ norm(x, w["norm.weight"]) for x in stream])


@pytest.mark.parametrize("config", VARIANTS.values(), ids=list(VARIANTS))
def test_logits_are_those_of_the_formulas(config: ModelConfig) -> None:
    model = random_model(config)
    ids = random_ids(1, 7)
    torch.testing.assert_close(model(ids)[0].double(), by_the_formulas(model, ids[0].tolist()), rtol=1e-4, atol=1e-4)


def huggingface_model(model: LanguageModel) -> Any:
    transformers = pytest.importorskip("transformers")
    table = {key: value for key, value in llama_table(model.config).items() if key not in ("architectures", "model_type")}
    theirs = transformers.LlamaForCausalLM(transformers.LlamaConfig(**table)).eval()
    state = {name: model.state_dict()[ours] for ours, name in their_names(model.config).items()}
    missing, unexpected = theirs.load_state_dict(state, strict=False)
    assert not unexpected and set(missing) <= ({"lm_head.weight"} if model.lm_head is None else set())
    theirs.tie_weights()
    return theirs


@pytest.mark.parametrize("config", VARIANTS.values(), ids=list(VARIANTS))
def test_logits_are_those_of_hugging_faces_llama(config: ModelConfig) -> None:
    model = random_model(config)
    ids = random_ids(3, 60)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), huggingface_model(model)(ids).logits, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("config", [VARIANTS["as many keys as heads"], VARIANTS["two heads share"]])
def test_greedy_text_is_that_of_hugging_faces_llama(config: ModelConfig) -> None:
    model = random_model(config)
    prompt = torch.cat([torch.tensor([[BOS_ID]]), random_ids(1, 5)], dim=1)
    theirs = huggingface_model(model).generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=30, do_sample=False
    )
    cache = model.start(prompt[:, :-1])
    (found,) = greedy(model.step, cache, [30], bos_id=int(prompt[0, -1]), eos_id=EOS_ID)
    ours = [*prompt[0].tolist(), *found.ids]
    expected = theirs[0].tolist()
    assert ours == (expected[: expected.index(EOS_ID)] if EOS_ID in expected else expected)
    assert len(ours) > 10


NOTE = """
(embed_tokens): Embedding(32000, 4096, padding_idx=31999)
(q_proj): Linear(in_features=4096, out_features=4096, bias=False)
(k_proj): Linear(in_features=4096, out_features=4096, bias=False)
(v_proj): Linear(in_features=4096, out_features=4096, bias=False)
(o_proj): Linear(in_features=4096, out_features=4096, bias=False)
(gate_proj): Linear(in_features=4096, out_features=11008, bias=False)
(down_proj): Linear(in_features=11008, out_features=4096, bias=False)
(up_proj): Linear(in_features=4096, out_features=11008, bias=False)
(input_layernorm): LlamaRMSNorm()
(post_attention_layernorm): LlamaRMSNorm()
(norm): LlamaRMSNorm()
(lm_head): Linear(in_features=4096, out_features=32000, bias=False)
"""


def test_s4_at_the_notes_sizes_it_has_the_notes_matrices() -> None:
    """Compare with the module tree of a model of 7 billion parameters, printed in study note 002."""
    config = replace(
        CONFIG,
        src_vocab_size=32000,
        tgt_vocab_size=32000,
        decoder_layers=32,
        d_model=4096,
        num_heads=32,
        d_ff=11008,
    )
    with torch.device("meta"):
        model = LanguageModel(config)
    ours = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    printed: dict[str, tuple[int, ...]] = {}
    for name, numbers in re.findall(r"\((\w+)\): \w+\((.*)\)", NOTE):
        sizes = tuple(int(number) for number in re.findall(r"\d+", numbers)[:2])
        printed[name] = (sizes if name == "embed_tokens" else sizes[::-1]) or (4096,)
    assert ours == {name: printed[theirs.split(".")[-2]] for name, theirs in their_names(config).items()}
    assert len(printed) == 12 and {theirs.split(".")[-2] for theirs in their_names(config).values()} == set(printed)
    assert sum(math.prod(shape) for shape in ours.values()) == 6_738_415_616


def test_a_rotation_leaves_lengths_and_tells_distances_only() -> None:
    q, k = torch.randn(2, 1, 1, 1, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def at(position: int) -> Rotation:
        return Rotation.at(torch.tensor([[position]]), 8, base=100.0, dtype=torch.float64)

    products = [float((at(s + 5).of(q) * at(s).of(k)).sum()) for s in (0, 3, 1000)]
    assert products == pytest.approx([products[0]] * 3)
    assert float((at(6).of(q) * at(0).of(k)).sum()) != pytest.approx(products[0])
    assert float(at(17).of(q).norm()) == pytest.approx(float(q.norm()))


def test_no_logit_depends_on_a_later_token(monkeypatch: pytest.MonkeyPatch) -> None:
    model = random_model()
    x = torch.randn(1, 6, 24, generator=torch.Generator().manual_seed(0), requires_grad=True)
    monkeypatch.setattr(model.embedding, "forward", lambda _: x)
    logits = model(random_ids(1, 6))
    for t in range(6):
        (grad,) = torch.autograd.grad(logits[0, t].sum(), x, retain_graph=True)
        reached = grad[0].abs().sum(-1) > 0
        assert reached.tolist() == [s <= t for s in range(6)]


@pytest.mark.parametrize("config", VARIANTS.values(), ids=list(VARIANTS))
@pytest.mark.parametrize("num_read", [0, 1, 5])
def test_steps_say_what_one_pass_says(config: ModelConfig, num_read: int) -> None:
    model = random_model(config)
    ids = random_ids(3, 150)  # longer than a cache's first allocation
    expected = model(ids).log_softmax(-1)
    cache = model.start(ids[:, :num_read])
    for t in range(num_read, 150):
        torch.testing.assert_close(model.step(ids[:, t], cache), expected[:, t], rtol=1e-4, atol=1e-4)


def test_a_prompt_longer_than_a_new_caches_room() -> None:
    model = random_model()
    ids = random_ids(2, 300)
    cache = model.start(ids[:, :299])
    torch.testing.assert_close(model.step(ids[:, 299], cache), model(ids).log_softmax(-1)[:, 299], rtol=1e-4, atol=1e-4)


def test_texts_do_not_depend_on_their_neighbours_nor_on_padding() -> None:
    """Put prompts of different lengths side by side, then reorder and drop them."""
    model = random_model(VARIANTS["two heads share"])
    texts = [random_ids(length, seed=length).tolist() for length in (3, 9, 1, 6)]
    prompt = torch.full((4, 9), PAD_ID)
    for row, text in enumerate(texts):
        prompt[row, : len(text)] = torch.tensor(text)
    cache = model.start(prompt)
    following = random_ids(4, 30, seed=99)
    rows = [0, 1, 2, 3]
    for t in range(30):
        if t == 10:
            rows = [3, 0, 2]
            cache.select_sentences(torch.tensor(rows))
        log_probs = model.step(following[rows, t], cache)
        for place, row in enumerate(rows):
            alone = torch.tensor([texts[row] + following[row, : t + 1].tolist()])
            torch.testing.assert_close(log_probs[place], model(alone)[0, -1].log_softmax(-1), rtol=1e-4, atol=1e-4)


def test_beams_go_on_from_their_own_past() -> None:
    model = random_model()
    prompt = random_ids(2, 4)
    cache = model.start(prompt)
    cache.select(torch.zeros(2, 3, dtype=torch.long))
    pasts = [[prompt[row].tolist() for _ in range(3)] for row in range(2)]
    generator = torch.Generator().manual_seed(3)
    for _ in range(25):
        ids = torch.randint(4, 37, (2, 3), generator=generator)
        log_probs = model.step(ids.flatten(), cache).view(2, 3, -1)
        for row, w in itertools.product(range(2), range(3)):
            pasts[row][w] = [*pasts[row][w], int(ids[row, w])]
            alone = model(torch.tensor([pasts[row][w]]))[0, -1].log_softmax(-1)
            torch.testing.assert_close(log_probs[row, w], alone, rtol=1e-4, atol=1e-4)
        order = torch.randint(0, 3, (2, 3), generator=generator)
        cache.select(order)
        pasts = [[pasts[row][int(w)] for w in order[row]] for row in range(2)]


def test_a_search_takes_it() -> None:
    """Find the best continuation of two tokens, by beam search and by brute force."""
    model = random_model(replace(CONFIG, src_vocab_size=9, tgt_vocab_size=9))
    prompt = torch.tensor([[BOS_ID, 5]])
    (found,) = beam(model.step, model.start(prompt[:, :1]), [2], width=81, num_best=1, bos_id=5, eos_id=EOS_ID, alpha=0.0)

    def log_prob(ids: tuple[int, ...]) -> float:
        row = torch.tensor([[BOS_ID, 5, *ids]])
        log_probs = model(row)[0].detach().double().log_softmax(-1)
        return sum(float(log_probs[1 + n, token]) for n, token in enumerate((*ids, EOS_ID)))

    words = [n for n in range(9) if n != EOS_ID]
    candidates: list[tuple[int, ...]] = [(), *((n,) for n in words), *itertools.product(words, repeat=2)]
    best = max(candidates, key=log_prob)
    assert found.hypotheses[0].ids == best
    assert found.hypotheses[0].log_prob == pytest.approx(log_prob(best), abs=1e-4)


def test_a_trace_computes_the_same() -> None:
    model = random_model(VARIANTS["two heads share"])
    ids = random_ids(2, 6)
    trace = model.trace(ids)
    torch.testing.assert_close(trace.logits, model(ids), rtol=1e-4, atol=1e-4)
    assert len(trace.decoder.self_attention) == 2 and not trace.decoder.cross_attention
    assert len(trace.decoder.residuals) == 5 and len(trace.decoder.activations) == 2
    weights = trace.decoder.self_attention[0].weights
    assert weights.shape == (2, 6, 6, 6)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 6, 6))


def test_interventions_are_obeyed_in_a_pass_and_in_steps() -> None:
    model = random_model()
    ids = random_ids(1, 5)
    off = Intervention(heads_off=frozenset({Head("decoder", 1, 2)}))
    changed = random_model()
    changed.get_parameter("layers.1.attention.output.weight").data[:, 8:12] = 0.0  # the output of head 2
    expected = changed(ids)
    torch.testing.assert_close(model.trace(ids, off).logits, expected, rtol=1e-4, atol=1e-4)
    cache = model.start(ids[:, :4], intervention=off)
    log_probs = model.step(ids[:, 4], cache, off)
    torch.testing.assert_close(log_probs, expected.log_softmax(-1)[:, 4], rtol=1e-4, atol=1e-4)
    without_order = Intervention(positions=False, causal=False)
    swapped = ids[:, [1, 0, 2, 3, 4]]
    one, other = (model.trace(row, without_order).logits[0, -1] for row in (ids, swapped))
    torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(model(ids)[0, -1], model(swapped)[0, -1], atol=1e-3)
    with pytest.raises(ValueError, match="no cross head 0 in layer 0"):
        model.trace(ids, Intervention(heads_off=frozenset({Head("cross", 0, 0)})))


def test_packed_weights_change_nothing() -> None:
    model = random_model()
    ids = random_ids(2, 5)
    with torch.no_grad():
        before = model(ids)
        model.pack()
        torch.testing.assert_close(model(ids), before, rtol=1e-4, atol=1e-4)


def test_decoding_needs_a_model_without_dropout() -> None:
    with pytest.raises(ValueError, match=r"call model\.eval"):
        random_model().train().start(random_ids(1, 2))


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"key_value_heads": 4}, "a divisor of model.num_heads = 6"),
        ({"key_value_heads": -1}, "a divisor of model.num_heads = 6"),
        ({"num_heads": 8}, "pairs of dimensions"),
        ({"rotary_base": 1.0}, "rotary_base"),
        ({"norm_epsilon": 0.0}, "norm_epsilon"),
        ({"context": 0}, "context"),
        ({"ablation": "scale"}, "only Transformers"),
    ],
)
def test_impossible_settings(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        replace(CONFIG, **change)


def test_presets_are_about_as_large_as_the_transformers() -> None:
    """Compare sizes without embeddings: the Transformer has one table, the language model two."""
    for name in ("small", "base", "big"):
        sizes = {}
        for kind in ("transformer", "language"):
            with torch.device("meta"):
                model = build(ModelConfig.preset(name, vocab_size=100, kind=kind))
            tables = sum(p.numel() for n, p in model.named_parameters() if n.startswith(("embedding", "lm_head")))
            sizes[kind] = sum(p.numel() for p in model.parameters()) - tables
        # A layer of an encoder and one of a decoder have three attentions together, two layers of a language model two.
        assert 0.8 < sizes["language"] / sizes["transformer"] < 1.0
    assert model_preset("small", "language")["shared_embeddings"] == "none"
