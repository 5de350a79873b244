"""Tests of the page from `regard serve` itself, which answers as `stub.py` does, under its own rules for browsers."""

import pytest
from playwright.sync_api import Browser

from regard.translate.translator import load
from tests.commands.test_serve import RUN, serving
from tests.page.browser import VIEWS, Studio, needs_chromium
from tests.page.conftest import TEXT

pytestmark = [pytest.mark.slow, needs_chromium]


def test_every_view_is_served(browser: Browser) -> None:
    [expected] = load(RUN, device="cpu").translate([TEXT])
    with serving() as server:
        studio = Studio(browser.new_page(), f"{server.url}/")
        for view in VIEWS:
            studio.open(view, text=TEXT, lang="en")
            shown = studio.numbers_of(".output .piece", "data-log-prob")
            assert sum(shown) == pytest.approx(expected.log_prob, abs=1e-3)
        assert not studio.problems
        assert all(url.startswith((server.url, "data:", "blob:", "about:")) for url in studio.requests)
