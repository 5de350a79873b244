"""Tests of import from and export to Hugging Face's Llama: both give the same text."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from safetensors.torch import load_file, save_file

from regard.exchange import hf_tokenizer
from regard.exchange.command import ExportSettings, export
from regard.exchange.llama import import_llama, is_llama
from regard.exchange.verification import MismatchError
from regard.generate.generator import Generation, load_language
from regard.text.tokenizer import BOS_ID, EOS_ID, NEVER_OUTPUT
from tests.oracles.runs import sentences
from tests.unit.test_generate import write_language_run

transformers = pytest.importorskip("transformers")
VOCAB_SIZE = 400


def llama_subwords() -> bytes:
    """Make subwords like Llama's: UNK, BOS and EOS are 0, 1 and 2, followed by the bytes; spaces are kept."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(400)),
        model_writer=model,
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        byte_fallback=True,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        minloglevel=2,
    )
    return model.getvalue()


def write_llama_folder(folder: Path, *, extra_rows: int = 0, **changes: Any) -> Any:
    """Write a model as transformers saves it."""
    config = {
        "vocab_size": VOCAB_SIZE + extra_rows,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": 64,
        "initializer_range": 0.3,
    }
    torch.manual_seed(3)
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**(config | changes))).eval()
    for name, parameter in model.named_parameters():
        if "norm" in name:
            torch.nn.init.uniform_(parameter, 0.5, 2.0)
    model.save_pretrained(folder)
    (folder / "tokenizer.model").write_bytes(llama_subwords())
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"num_key_value_heads": 2},
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-5},
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        {"extra_rows": 3},
    ],
    ids=["plain", "grouped", "tied", "another base", "added tokens"],
)
def test_an_imported_llama_says_what_transformers_says(tmp_path: Path, changes: dict[str, Any]) -> None:
    theirs = write_llama_folder(tmp_path / "llama", **changes)
    assert is_llama(tmp_path / "llama")
    (line,) = import_llama(tmp_path / "llama", tmp_path / "run")
    assert "400 subwords" in line
    generator = load_language(tmp_path / "run", device="cpu")
    processor = sentencepiece.SentencePieceProcessor(model_proto=llama_subwords())
    for text in sentences(10, seed=4):
        ids = [BOS_ID, *generator.tokenizer.tgt.encode([text])[0]]
        assert ids[1:] == processor.encode(text)
        row = torch.tensor([ids])
        with torch.no_grad():
            logits = theirs(row).logits[..., :VOCAB_SIZE]
        torch.testing.assert_close(generator.model(row), logits, rtol=1e-4, atol=1e-4)
        if changes.get("extra_rows"):  # transformers may output these, a run may not
            continue
        never = {"suppress_tokens": list(NEVER_OUTPUT)}  # tokens that our searches never choose
        generated = theirs.generate(row, attention_mask=torch.ones_like(row), max_new_tokens=12, do_sample=False, **never)
        expected = generated[0].tolist()
        expected = expected[: expected.index(EOS_ID)] if EOS_ID in expected else expected
        (found,) = generator.generate([text], Generation(greedy=True, max_tokens=12))[0]
        assert list(found.pieces) == processor.id_to_piece(expected[len(ids) :])


def test_weights_in_several_files_and_in_bfloat16(tmp_path: Path) -> None:
    theirs = write_llama_folder(tmp_path / "llama")
    state = {name: tensor.bfloat16() for name, tensor in load_file(tmp_path / "llama" / "model.safetensors").items()}
    (tmp_path / "llama" / "model.safetensors").unlink()
    names = sorted(state)
    parts = {"model-1.safetensors": names[:5], "model-2.safetensors": names[5:]}
    for file, own in parts.items():
        save_file({name: state[name] for name in own}, tmp_path / "llama" / file)
    index = {"weight_map": {name: file for file, own in parts.items() for name in own}}
    (tmp_path / "llama" / "model.safetensors.index.json").write_text(json.dumps(index), encoding="utf-8")
    import_llama(tmp_path / "llama", tmp_path / "run")
    model = load_language(tmp_path / "run", device="cpu").model
    expected = theirs.model.embed_tokens.weight.detach().bfloat16().float()
    assert torch.equal(model.embedding.weight, expected)


@pytest.mark.parametrize("tied", [False, True])
def test_an_exported_run_is_what_it_was(tmp_path: Path, tied: bool) -> None:
    """The export compares the models itself; compare them once more, and after importing again."""
    if tied:
        write_llama_folder(tmp_path / "llama", tie_word_embeddings=True)
        import_llama(tmp_path / "llama", tmp_path / "run")
    else:
        write_language_run(tmp_path / "run")
    lines = export(ExportSettings(run=tmp_path / "run", to="huggingface", output=tmp_path / "exported"))
    assert "the same subwords, and log-probabilities equal" in lines[1]
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "exported").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "exported")
    import_llama(tmp_path / "exported", tmp_path / "again")
    ours, again = (load_language(tmp_path / name, device="cpu") for name in ("run", "again"))
    text = "Ab  cd, öü 字"
    inputs = tokenizer(text, return_tensors="pt")
    assert inputs["input_ids"][0].tolist() == [BOS_ID, *ours.tokenizer.tgt.encode(["Ab cd, öü 字"])[0]]
    output = theirs.generate(**inputs, max_new_tokens=10, do_sample=False)
    how = Generation(greedy=True, max_tokens=10)
    (expected,), (other,) = ours.generate([text], how)[0], again.generate([text], how)[0]
    assert expected == other and len(expected.pieces) > 3
    pieces = tokenizer.convert_ids_to_tokens(output[0, inputs["input_ids"].shape[1] :])
    assert tuple(pieces[: len(expected.pieces)]) == expected.pieces
    assert all(torch.equal(tensor, again.model.state_dict()[name]) for name, tensor in ours.model.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"attention_bias": True}, "has attention_bias = True"),
        ({"hidden_act": "gelu"}, "has hidden_act = gelu"),
        ({"head_dim": 16}, "has head_dim = 16"),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, "rope_parameters"),
    ],
)
def test_llamas_of_another_make_are_refused(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    write_llama_folder(tmp_path / "llama", **changes)
    with pytest.raises(ValueError, match=complaint):
        import_llama(tmp_path / "llama", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_folders_that_lack_something_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    write_llama_folder(folder)
    own = (folder / "tokenizer.model").read_bytes()
    unigram = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences(400)), model_writer=unigram, vocab_size=60, minloglevel=2
    )
    (folder / "tokenizer.model").write_bytes(unigram.getvalue())
    with pytest.raises(ValueError, match="spelled in bytes"):
        import_llama(folder, tmp_path / "run")
    (folder / "tokenizer.model").unlink()
    with pytest.raises(ValueError, match=r"no tokenizer\.model"):
        import_llama(folder, tmp_path / "run")
    (folder / "tokenizer.model").write_bytes(own)
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 50}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"do not fit its config\.json: .*gate_proj"):
        import_llama(folder, tmp_path / "run")
    (folder / "config.json").write_text(json.dumps(config | {"num_hidden_layers": 3}), encoding="utf-8")
    with pytest.raises(ValueError, match=r"have no model\.layers\.2\.input_layernorm"):
        import_llama(folder, tmp_path / "run")
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 10}), encoding="utf-8")
    with pytest.raises(ValueError, match="400 subwords, but its model 10 rows"):
        import_llama(folder, tmp_path / "run")
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    (folder / "model.safetensors").write_bytes(b"nonsense")
    with pytest.raises(ValueError, match="is damaged"):
        import_llama(folder, tmp_path / "run")
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match=r"has no model\.safetensors"):
        import_llama(folder, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_generating_is_bounded_and_draws_as_the_run_does(tmp_path: Path) -> None:
    write_language_run(tmp_path / "run")
    export(ExportSettings(run=tmp_path / "run", to="huggingface", output=tmp_path / "out"))
    default = transformers.GenerationConfig.from_pretrained(tmp_path / "out")
    assert (default.max_new_tokens, default.top_k, default.do_sample) == (Generation().max_tokens, 0, True)


def test_an_export_that_reads_hostile_text_otherwise_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run's own texts are normalised and show no difference."""
    write_language_run(tmp_path / "run")
    monkeypatch.setattr(hf_tokenizer, "white_space", lambda: [" "])
    with pytest.raises(MismatchError, match=r"cuts .* into other subwords .*nothing was kept"):
        export(ExportSettings(run=tmp_path / "run", to="huggingface", output=tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_language_models_are_exported_to_hugging_face_alone(tmp_path: Path) -> None:
    write_language_run(tmp_path / "run")
    with pytest.raises(ValueError, match="export it with --to huggingface"):
        export(ExportSettings(run=tmp_path / "run", to="ctranslate2", output=tmp_path / "out"))
    (tmp_path / "texts").write_text("ab\n\ncd\n", encoding="utf-8")
    settings = ExportSettings(run=tmp_path / "run", to="huggingface", output=tmp_path / "out", src=str(tmp_path / "texts"))
    assert export(settings)[1].startswith("3 texts and 30 hostile ones: the same subwords")
