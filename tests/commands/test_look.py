"""Tests that `regard look` writes one file with all data that the page reads."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from regard.inspection.look import Question, look
from regard.model.trace import Head, Intervention
from regard.serve.file import PAGE, modules
from regard.translate.translator import load
from tests.commands.process import run

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
TEXT = "Ich will dir nur helfen."


def found_in(page: str) -> Any:
    [data] = re.findall(r'<script type="application/json" id="look">(.*?)</script>', page)
    return json.loads(data)


def test_the_file_holds_the_answers_of_the_model(tmp_path: Path) -> None:
    output = tmp_path / "look.html"
    result = run("look", str(RUN), TEXT, "-o", str(output), "--beam", "3", "--lang", "zh")
    assert (result.returncode, result.stderr) == (0, "")
    assert str(output) in result.stdout
    page = output.read_text(encoding="utf-8")
    data = found_in(page)
    translator = load(RUN, device="cpu")
    seen = look(translator, Question(text=TEXT, beam=3))
    asked = {json.dumps(one["question"], sort_keys=True): one["answer"] for one in data["inspect"]}
    assert len(asked) == len(data["inspect"]), "a question is asked twice"
    first = data["inspect"][0]["answer"]
    assert first["target"] == seen["target"]
    assert first["log_prob"] == pytest.approx(seen["log_prob"], abs=1e-4)
    assert data["opening"]["text"] == TEXT
    assert data["opening"]["lang"] == "zh"
    off = [one for one in data["inspect"] if one["question"]["heads_off"] == [["cross", 1, 2]]]
    change = Intervention(heads_off=frozenset([Head("cross", 1, 2)]))
    expected = look(translator, Question(text=TEXT, beam=3, target=seen["target"]["text"], intervention=change))
    assert off[0]["answer"]["log_prob"] == pytest.approx(expected["log_prob"], abs=1e-4)
    assert len(data["heads"]) == 3 * 2 * 4
    assert data["training"]["0.1.0"]["is_finished"]


def test_the_file_needs_nothing_else(tmp_path: Path) -> None:
    output = tmp_path / "look.html"
    assert run("look", str(RUN), "</script><b>Reis</b>", "-o", str(output)).returncode == 0
    page = output.read_text(encoding="utf-8")
    assert page.count("</script>") == 2
    assert not re.findall(r'(?:src|href)="(?!data:)', page)
    assert not re.findall(r"^\s*(?:import|export) ", page, re.MULTILINE)
    assert not re.findall(r"https?://(?!www\.w3\.org/2000/svg)", page)


def test_every_module_is_in_the_file_once_and_after_what_it_needs() -> None:
    names = [re.findall(r'^modules\["([\w.]+)"\]', one)[0] for one in modules("studio.js", set())]
    own = [path.name for path in PAGE.iterdir() if path.name.endswith(".js")]
    assert sorted(names) == sorted([*own, "drawing.js"])
    for at, one in enumerate(modules("studio.js", set())):
        assert set(re.findall(r'= modules\["([\w.]+)"\];', one)) <= set(names[:at])


def test_mistakes_are_told_in_a_sentence(tmp_path: Path) -> None:
    output = tmp_path / "look.html"
    for arguments, said in (([str(RUN), " "], "nothing to look at"), ([str(tmp_path / "none"), TEXT], "there is no run")):
        result = run("look", *arguments, "-o", str(output))
        assert result.returncode == 2
        assert said in result.stderr and "Traceback" not in result.stderr
    assert not output.exists()
    for path, said in ((tmp_path / "none" / "look.html", "there is no folder"), (tmp_path, "is a folder; give a file")):
        result = run("look", str(RUN), TEXT, "-o", str(path))
        assert result.returncode == 2
        assert said in result.stderr
