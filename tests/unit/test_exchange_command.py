"""Tests of `regard export`: what it compares with, and what it does when the comparison fails."""

from pathlib import Path

import pytest

from regard import errors
from regard.errors import UserError
from regard.exchange import command, ctranslate
from regard.exchange.command import ExportSettings, export, int8_lines
from regard.exchange.folder import made_beside
from regard.exchange.verification import BROKEN, MismatchError, Output, hostile_sources, our_outputs
from regard.text.tokenizer import BOS_ID, PAD_ID
from tests.oracles.runs import make_tokenizer, make_translator, sentences, write_run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run with 8 pairs to validate on and 8 to train on."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    tokenizer = make_tokenizer()
    write_run(folder, make_translator(tokenizer, ending=1.5), tokenizer, num_pairs=8)
    return folder


def test_the_runs_own_text_is_what_it_is_compared_with(run_folder: Path, tmp_path: Path) -> None:
    lines = export(ExportSettings(run=run_folder, to="ctranslate2", output=tmp_path / "out", int8=True))
    assert lines[0] == f"{tmp_path / 'out'} is {run_folder} for ctranslate2, in int8"
    assert lines[1].startswith("float32, greedy text of 16 sentences: ") and lines[1].endswith(" 0 different")
    assert (
        lines[2].startswith("float32, greedy text of ")
        and " hostile texts: " in lines[2]
        and lines[2].endswith(" 0 different")
    )
    assert lines[3].startswith("int8: ") and lines[4].startswith("BLEU ")
    names = {"config.json", "model.bin", "shared_vocabulary.json", "source.spm", "target.spm"}
    assert {path.name for path in (tmp_path / "out").iterdir()} == names
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_given_sentences_need_no_prepared_text(run_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("\n".join(["", *sentences(5)]) + "\n", encoding="utf-8")
    settings = ExportSettings(run=run_folder, to="huggingface", output=tmp_path / "out", src=str(tmp_path / "text"))
    lines = export(settings)
    assert lines[1].startswith("greedy text of 5 sentences: ")
    assert (tmp_path / "out" / "tokenizer.json").exists() and "from transformers import" in "\n".join(lines)


def test_a_model_that_says_something_else_leaves_nothing_behind(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Parrot:
        def translate(self, texts: list[str], max_length: int) -> list[Output]:
            assert max_length > 0
            return [Output([300], text) for text in texts]

    monkeypatch.setattr(command, "_load", lambda *_: Parrot())
    with pytest.raises(MismatchError, match=r"ctranslate2 gives other outputs than .* for 16 of 16 .*nothing was kept"):
        export(ExportSettings(run=run_folder, to="ctranslate2", output=tmp_path / "out"))
    assert not list(tmp_path.iterdir())


def test_an_export_that_reads_hostile_text_otherwise_is_refused(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run's own sentences are normalised and show no difference."""
    monkeypatch.setattr(ctranslate, "normalising", lambda subwords: subwords.model)
    with pytest.raises(MismatchError, match=r"for \d+ of \d+ hostile texts, so nothing was kept"):
        export(ExportSettings(run=run_folder, to="ctranslate2", output=tmp_path / "out"))
    assert not list(tmp_path.iterdir())


@pytest.mark.filterwarnings("ignore:.*sacremoses")
@pytest.mark.parametrize(("to", "separate"), [("ctranslate2", False), ("huggingface", False), ("huggingface", True)])
def test_what_is_printed_reads_and_bounds_every_text_as_the_run_does(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], to: command.Target, separate: bool
) -> None:
    """Search greedily, because length penalties differ between programs. The model seldom ends."""
    tokenizer = make_tokenizer(separate=separate)
    model = make_translator(tokenizer, ending=1.5, shared_embeddings="target" if separate else "all", output_bias=True)
    assert model.output_bias is not None
    model.output_bias[[PAD_ID, BOS_ID]] = -99.0
    (tmp_path / "text").write_text("ab cd\n", encoding="utf-8")
    write_run(tmp_path / "run", model, tokenizer)
    lines = export(ExportSettings(run=tmp_path / "run", to=to, output=tmp_path / "out", src=str(tmp_path / "text")))
    code = "\n".join(lines[lines.index("") :]).replace("beam_size=4", "beam_size=1").replace("num_beams=4", "num_beams=1")
    sources = hostile_sources(sentences(1), tokenizer, max_positions=1024)
    ours = dict(our_outputs(model, tokenizer, sources))
    at_most = {place for place, source in enumerate(sources) if source.ids and len(ours[place].ids) == source.max_length}
    for place in [*sorted(at_most)[:2], *range(0, len(sources), 4)]:
        capsys.readouterr()
        assert code.count("'…'") == 1
        exec(code.replace("'…'", repr(sources[place].text)), {})
        assert BROKEN in ours[place].text or capsys.readouterr().out.strip() == ours[place].text.strip()
    assert at_most


def test_without_text_and_without_sentences(tmp_path: Path) -> None:
    tokenizer = make_tokenizer()
    write_run(tmp_path / "bare", make_translator(tokenizer), tokenizer)
    with pytest.raises(ValueError, match="give sentences to compare with --src"):
        export(ExportSettings(run=tmp_path / "bare", to="ctranslate2", output=tmp_path / "out"))
    assert [path.name for path in tmp_path.iterdir()] == ["bare"]


def test_flags_that_contradict_each_other(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="--int8 is CTranslate2's"):
        ExportSettings(run=tmp_path, to="huggingface", output=tmp_path, int8=True)
    with pytest.raises(ValueError, match="--ref was given without --src"):
        ExportSettings(run=tmp_path, to="ctranslate2", output=tmp_path, ref="x")


def test_a_missing_library_is_told_with_its_remedy(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"^regard export needs transformers: pip install transformers$"):
        export(ExportSettings(run=run_folder, to="huggingface", output=tmp_path / "out"))


def test_int8_is_reported_by_hand() -> None:
    ours = [Output([4], "the cat sat on the mat"), Output([5], "a dog ran over the hill")]
    coarse = [ours[0], Output([6], "a cow")]
    assert int8_lines(ours, coarse, [], "en") == [
        "int8: 50.0% of the translations are the same as in float32",
        "no BLEU without references: give them with --ref",
    ]
    line = int8_lines(ours, coarse, [output.text for output in ours], "en")[1]
    assert line.startswith("BLEU 100.00 in float32, ") and ": -" in line


def test_folders_are_made_whole_or_not_at_all(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "folder"
    with pytest.raises(FileNotFoundError), made_beside(target) as workshop:
        (workshop / "half" / "way").write_text("")
    assert not list(target.parent.iterdir())
    target.mkdir()
    with made_beside(target) as workshop:  # an empty folder counts as absent
        (workshop / "whole").write_text("")
    assert [path.name for path in target.iterdir()] == ["whole"]
    with pytest.raises(ValueError, match="is there already"), made_beside(target):
        pass
    assert [path.name for path in target.iterdir()] == ["whole"]
