"""`regard export` from inside: what it compares with, and what it does when the comparison fails."""

from pathlib import Path

import pytest

from regard.exchange import command
from regard.exchange.command import ExportSettings, export, int8_lines
from regard.exchange.folder import made_beside
from regard.exchange.verification import Output
from tests.oracles.runs import make_tokenizer, make_translator, sentences, write_run


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With 8 pairs to validate on and 8 to train on."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    tokenizer = make_tokenizer()
    write_run(folder, make_translator(tokenizer, ending=1.5), tokenizer, num_pairs=8)
    return folder


def test_the_runs_own_text_is_what_it_is_compared_with(run_folder: Path, tmp_path: Path) -> None:
    lines = export(ExportSettings(run=run_folder, to="ctranslate2", output=tmp_path / "out", int8=True))
    assert lines[0] == f"{tmp_path / 'out'} is {run_folder} for ctranslate2, in int8"
    assert lines[1].startswith("float32, greedy text of 16 sentences: ") and lines[1].endswith(" 0 different")
    assert lines[2].startswith("int8: ") and lines[3].startswith("BLEU ")
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
    with pytest.raises(ValueError, match=r"ctranslate2 says something else than .* for 16 of 16 .*nothing was kept"):
        export(ExportSettings(run=run_folder, to="ctranslate2", output=tmp_path / "out"))
    assert not list(tmp_path.iterdir())


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
    monkeypatch.setattr(command, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match=r"transformers is not installed; .*pip install 'regard\[export\]'"):
        export(ExportSettings(run=run_folder, to="huggingface", output=tmp_path / "out"))


def test_int8_is_reported_by_hand() -> None:
    ours = [Output([4], "the cat sat on the mat"), Output([5], "a dog ran over the hill")]
    coarse = [ours[0], Output([6], "a cow")]
    assert int8_lines(ours, coarse, [], "en") == [
        "int8: 50.0% of the sentences are what float32 makes of them",
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
    with made_beside(target) as workshop:  # an empty one is as good as none
        (workshop / "whole").write_text("")
    assert [path.name for path in target.iterdir()] == ["whole"]
    with pytest.raises(ValueError, match="is there already"), made_beside(target):
        pass
    assert [path.name for path in target.iterdir()] == ["whole"]
