"""Tests of generated texts: independent of their neighbours, and with the model's own log-probabilities."""

from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.config import CorpusConfig, DataConfig, ModelConfig, RunConfig, TrainConfig
from regard.generate.generator import Generation, Generator, load_language
from regard.model.language import LanguageModel
from regard.run.checkpoint import Run, Weights, weights_bytes
from regard.search.sample import Sampling
from regard.text.tokenizer import BOS_ID, EOS_ID
from regard.translate.translator import load
from tests.oracles.runs import make_tokenizer, make_translator, sentences, write_run


def write_language_run(folder: Path, **changes: Any) -> Run:
    """Write a run with random weights, whose texts depend on their beginnings."""
    tokenizer = make_tokenizer()
    sizes = {"src_vocab_size": len(tokenizer.tgt), "tgt_vocab_size": len(tokenizer.tgt), "context": 40}
    small = {"decoder_layers": 2, "d_model": 32, "num_heads": 4, "key_value_heads": 2, "d_ff": 48}
    torch.manual_seed(5)
    model = LanguageModel(ModelConfig(kind="language", **(sizes | small | {"shared_embeddings": "none"} | changes)))
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if "norm" in name else 0.0, std=0.3)
    with torch.no_grad():  # so that texts end after some tokens
        assert model.lm_head is not None
        model.lm_head.weight[EOS_ID] *= 1.5
    folder.mkdir(parents=True)
    run = Run(folder)
    run.publish(tokenizer.files() | {"model.safetensors": weights_bytes(model.state_dict())})
    data = DataConfig(train=(), valid=CorpusConfig())
    config = RunConfig(data=data, model=model.config, train=TrainConfig())
    run.write_config(config, Weights("average", (1,), 1, final=True), regard.__version__)
    return run


@pytest.fixture(scope="module")
def generator(tmp_path_factory: pytest.TempPathFactory) -> Generator:
    folder = tmp_path_factory.mktemp("language") / "run"
    write_language_run(folder)
    return load_language(folder, device="cpu")


PROMPTS = ["", *sentences(5, seed=8), " " + sentences(1, seed=9)[0] + "  "]


def test_the_most_probable_text_by_hand(generator: Generator) -> None:
    """Choose token by token, each time by a pass over all tokens so far."""
    for prompt, (found,) in zip(PROMPTS, generator.generate(PROMPTS, Generation(greedy=True, max_tokens=15)), strict=True):
        ids = [BOS_ID, *generator.tokenizer.tgt.encode([prompt.strip()])[0]]
        start, log_probs = len(ids), []
        while len(ids) - start < 15:
            following = generator.model(torch.tensor([ids]))[0, -1].log_softmax(-1)
            token = int(following.argmax())
            log_probs.append(float(following[token]))
            if token == EOS_ID:
                break
            ids.append(token)
        assert found.prompt == prompt.strip() and found.text.startswith(found.prompt)
        assert list(found.pieces) == generator.tokenizer.tgt.pieces(ids[start:])
        assert found.text == generator.tokenizer.tgt.decode(ids)
        assert found.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert found.ended == (len(ids) - start < 15)


def test_texts_do_not_depend_on_their_neighbours(generator: Generator) -> None:
    how = Generation(num=3, max_tokens=20, seed=4)
    together = generator.generate(PROMPTS, how)
    assert [len(texts) for texts in together] == [3] * len(PROMPTS)
    for prompt, texts in zip(PROMPTS, together, strict=True):
        assert [text.text for text in texts] == [text.text for text in generator.generate([prompt], how)[0]]
    assert len({text.text for texts in together for text in texts}) > len(PROMPTS), "chance has a say"
    again = generator.generate(PROMPTS, Generation(num=3, max_tokens=20, seed=5))
    assert again != together


def test_more_texts_than_are_generated_at_once(generator: Generator) -> None:
    few, many = (generator.generate(PROMPTS[:2], Generation(num=num, max_tokens=6)) for num in (70, 150))
    assert [len(texts) for texts in many] == [150, 150]
    assert [[text.text for text in texts[:5]] for texts in few] != [[texts[0].text] * 5 for texts in few]
    again = generator.generate(PROMPTS[:1], Generation(num=150, max_tokens=6))
    assert [text.text for text in again[0]] == [text.text for text in many[0]]


def test_many_prompts_are_taken_in_turns(generator: Generator) -> None:
    prompts = sentences(150, seed=3)
    how = Generation(max_tokens=3, greedy=True)
    assert [texts[0].prompt for texts in generator.generate(prompts, how)] == prompts


def test_one_token_is_drawn_as_often_as_it_is_probable(generator: Generator) -> None:
    """Draw 4,000 first tokens among the four most probable ones, by top-k."""
    how = Generation(num=4000, max_tokens=1, sampling=Sampling(temperature=0.7, top_k=4))
    drawn = [text.pieces for text in generator.generate([PROMPTS[1]], how)[0]]
    ids = torch.tensor([[BOS_ID, *generator.tokenizer.tgt.encode([PROMPTS[1]])[0]]])
    best, tokens = (generator.model(ids)[0, -1] / 0.7).topk(4)
    for probability, token in zip(best.softmax(-1).tolist(), tokens.tolist(), strict=True):
        pieces = () if token == EOS_ID else tuple(generator.tokenizer.tgt.pieces([token]))
        assert drawn.count(pieces) / 4000 == pytest.approx(probability, abs=0.04)
    assert len(set(drawn)) == 4


def test_log_probs_are_the_models_whatever_was_drawn_from(generator: Generator) -> None:
    (text,) = generator.generate([PROMPTS[2]], Generation(max_tokens=12, sampling=Sampling(temperature=2.0)))[0]
    prompt = [BOS_ID, *generator.tokenizer.tgt.encode([PROMPTS[2]])[0]]
    following = [*generator.tokenizer.tgt.ids(text.pieces), *([EOS_ID] if text.ended else [])]
    log_probs = generator.model(torch.tensor([[*prompt, *following]]))[0].log_softmax(-1)
    expected = [float(log_probs[len(prompt) - 1 + n, token]) for n, token in enumerate(following)]
    assert text.log_probs == pytest.approx(expected, abs=1e-4)


def test_runs_of_the_other_kind_say_what_they_are(tmp_path: Path) -> None:
    write_language_run(tmp_path / "language")
    tokenizer = make_tokenizer()
    write_run(tmp_path / "translator", make_translator(tokenizer), tokenizer)
    with pytest.raises(ValueError, match="language is a language model and does not translate; use `regard generate`"):
        load(tmp_path / "language")
    with pytest.raises(ValueError, match="translator is not a language model but a transformer; use `regard translate`"):
        load_language(tmp_path / "translator")


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [({"num": 0}, "num is 0"), ({"max_tokens": 0}, "max_tokens is 0"), ({"greedy": True, "num": 2}, "2 were asked for")],
)
def test_what_cannot_be_asked(settings: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Generation(**settings)


@pytest.mark.parametrize(
    ("prompts", "complaint"),
    [("Once", "give a list, not one prompt"), (["a", "\udc80"], "prompt 2 is not UTF-8")],
)
def test_what_is_no_list_of_prompts(generator: Generator, prompts: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        generator.generate(prompts)


def test_nothing_asked_for_nothing_said(generator: Generator) -> None:
    assert generator.generate([]) == []
