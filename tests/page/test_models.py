"""Tests of models unlike the one in the other tests, and invalid addresses: every view draws, without errors."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest
from playwright.sync_api import Browser

from regard.config import Ablation
from regard.inspection.look import Question, look
from regard.run.checkpoint import Run
from regard.serve.file import LookSettings, write_look
from regard.translate.translator import load
from tests.oracles.runs import make_tokenizer, make_translator, write_run
from tests.page.browser import VIEWS, Studio, needs_chromium
from tests.page.conftest import RUN
from tests.page.stub import serving

pytestmark = [pytest.mark.slow, needs_chromium]

MORE = {
    "positions": {"positions": "off"},
    "masks": {"causal": "off"},
    "heads": {"off": "cross.0.0", "fold": "entropy", "site": "decoder", "tried": "yes"},
    "head": {"scale": "0.5", "site": "decoder"},
    "subwords": {"side": "target"},
}
NO_NUMBERS = {"place": "x", "layer": "-1", "head": "1e9", "fold": "foo", "site": "there", "off": "cross.9.9,x,cross.-1.x"}
NO_NUMBERS |= {"pair": "1.5", "query": "nobody", "scale": "no", "step": "-3", "word": "99", "merge": "x", "node": "7.x"}
NO_NUMBERS |= {"block": "none", "stack": "up", "side": "", "causal": "?", "positions": "?", "other": "one", "part": "x"}


@contextmanager
def page_of(browser: Browser, run: Path) -> Iterator[Studio]:
    page = browser.new_page()
    try:
        with serving({"run": run}) as (address, _):
            studio = Studio(page, f"{address}/")
            yield studio
            assert not studio.problems
    finally:
        page.close()


def check_every_view(studio: Studio, lang: str = "en", **state: str) -> None:
    for view in VIEWS:
        studio.open(view, lang=lang, **state, **MORE.get(view, {}))
        seen = studio.text("#view")
        assert not [bad for bad in ("NaN", "undefined", "null", "asking the model", "正在计算") if bad in seen], view
        assert not re.search(r"\{\w+\}", seen), "a word that nobody put in"
        keys = studio.all("[data-key]", "data-key")
        assert len(keys) == len(set(keys)), (view, keys)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"norm": "pre", "positions": "learned"}, id="pre-norm, learned positions"),
        pytest.param({"encoder_layers": 1, "decoder_layers": 1}, id="one layer"),
        pytest.param({"num_heads": 16}, id="sixteen heads"),
        pytest.param({"ending": 0.0, "spread": 0.02}, id="untrained"),
        pytest.param({"ending": 30.0}, id="says nothing"),
        pytest.param({"positions": "none"}, id="no positions"),
        *(pytest.param({"ablation": one, "norm": "pre"}, id=f"pre-norm without {one}") for one in ("residual", "scale")),
        *(
            pytest.param({"ablation": one, "ending": 0.0}, id=f"without {one}")
            for one in get_args(Ablation)
            if one != "none"
        ),
    ],
)
def test_every_model_has_every_view(browser: Browser, tmp_path: Path, changes: dict[str, Any]) -> None:
    tokenizer = make_tokenizer()
    write_run(tmp_path / "run", make_translator(tokenizer, **changes), tokenizer)
    with page_of(browser, tmp_path / "run") as studio:
        check_every_view(studio, text="abc öü jihg")
    says = look(load(tmp_path / "run", device="cpu"), Question(text="abc öü jihg"))["target"]["pieces"]
    assert (says == []) is (changes.get("ending") == 30.0)


@pytest.mark.parametrize("changes", [{"ending": 30.0}, {"ending": 0.0, "spread": 0.02}], ids=["nothing", "signs"])
def test_a_file_may_be_about_a_model_that_knows_little(browser: Browser, tmp_path: Path, changes: dict[str, float]) -> None:
    tokenizer = make_tokenizer()
    write_run(tmp_path / "run", make_translator(tokenizer, **changes), tokenizer)
    write_look(LookSettings(run=tmp_path / "run", text="abc öü", output=tmp_path / "look.html"))
    studio = Studio(browser.new_page(), f"file://{tmp_path / 'look.html'}")
    for view in VIEWS:
        more = {name: value for name, value in MORE.get(view, {}).items() if name in ("positions", "causal", "off", "side")}
        studio.open(view, lang="en", **more)
        assert "a model has to be asked" not in studio.text("#view"), view
    assert "imported" not in studio.open("subwords", lang="en", side="target").text("#view")
    assert not studio.problems
    studio.page.close()


def test_runs_without_languages_can_be_compared(browser: Browser, tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = Run(tmp_path / name)
        shutil.copytree(RUN, run.folder)
        config = run.read_config()
        nameless = replace(config, data=replace(config.data, src_lang="", tgt_lang=""))
        run.write_config(nameless, run.read_weights(), run.read_version())
    page = browser.new_page()
    with serving({name: tmp_path / name for name in ("one", "two")}) as (address, _):
        studio = Studio(page, f"{address}/").open("training", text="Guten Morgen!", other="two")
        assert studio.all("dd[data-run]", "data-run") == ["one", "two"]
        assert not studio.problems
    page.close()


def test_a_table_may_be_large(browser: Browser) -> None:
    with page_of(browser, RUN) as studio:
        studio.open("map", text="Reis")
        table = "Array.from({ length: 1000 }, (_, n) => Array(1000).fill(-n))"
        assert studio.page.evaluate(f"import('./page/vectors.js').then(({{ largest }}) => largest({table}))") == 999


def test_letters_without_spaces_are_a_sentence_too(browser: Browser) -> None:
    with page_of(browser, RUN) as studio:
        check_every_view(studio, text="大多数日本人每天都吃米饭。")


def test_an_address_may_say_anything(browser: Browser) -> None:
    with page_of(browser, RUN) as studio:
        for view in VIEWS:
            studio.open(view, text="Guten Morgen!", lang="en", **NO_NUMBERS)
            assert "NaN" not in studio.text("#view") and "undefined" not in studio.text("#view"), view
