"""Tests of a file that `regard look` wrote, opened from the disk: the same views, without a server."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser

from regard.serve.file import LookSettings, write_look
from tests.page.browser import VIEWS, Studio, needs_chromium
from tests.page.conftest import RUN, TEXT

pytestmark = [pytest.mark.slow, needs_chromium]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    output = tmp_path_factory.mktemp("look") / "look.html"
    write_look(LookSettings(run=RUN, text=TEXT, output=output, target="Most people eat rice."))
    return output


@pytest.mark.parametrize("lang", ["en", "zh"])
def test_every_view_is_whole(browser: Browser, file: Path, lang: str) -> None:
    page = browser.new_page()
    studio = Studio(page, f"file://{file}")
    more = {"positions": {"positions": "off"}, "heads": {"off": "cross.1.0"}}
    for view in VIEWS:
        studio.open(view, lang=lang, **more.get(view, {}))
        assert "a model has to be asked" not in studio.text("#view"), view
        assert "请使用 regard serve" not in studio.text("#view"), view
        assert studio.text(".output").replace(" ", "").startswith("Mostpeopleeatrice.")
    assert not studio.problems
    assert {url for url in studio.requests if not url.startswith(("data:", "blob:", "about:"))} <= {
        url for url in studio.requests if url.startswith(f"file://{file}")
    }
    page.close()


def test_back_is_where_the_file_began(browser: Browser, file: Path) -> None:
    page = browser.new_page()
    studio = Studio(page, f"file://{file}")
    page.goto(studio.address)
    page.wait_for_selector("#view[data-view=translate] .body")
    words = studio.settled().text(".output")
    studio.click("#tab-masks")
    page.go_back()
    page.wait_for_selector("#view[data-view=translate] .body")
    assert (page.input_value("textarea"), studio.settled().text(".output")) == (TEXT, words)
    assert words.replace(" ", "").startswith("Mostpeopleeatrice.")
    studio.click('[data-key="held-target"]')
    for view in ("positions", "masks", "decoding"):
        assert "a model has to be asked" not in studio.click(f"#tab-{view}").text("#view"), view
    assert not studio.problems
    page.close()


def test_what_only_a_model_knows_is_said_and_can_be_left(browser: Browser, file: Path) -> None:
    page = browser.new_page()
    studio = Studio(page, f"file://{file}").open("translate", lang="en", place="0")
    studio.click('[data-key="other-3"]')
    assert "a model has to be asked" in studio.text("#view")
    studio.click('[data-key="held-prefix"]')
    assert "a model has to be asked" not in studio.text("#view")
    assert not studio.problems
    page.close()
