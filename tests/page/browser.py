"""Debian's Chromium, driven by Playwright, and a page that records its own problems."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

CHROMIUM = shutil.which("chromium") or ""
VIEWS = "translate map subwords positions masks heads head decoding beam residual training".split()
needs_chromium = pytest.mark.skipif(not CHROMIUM and "CI" not in os.environ, reason="there is no Chromium here")


@contextmanager
def browsing() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


class Studio:
    """The page of one test, with its address, its requests and its problems."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        page.set_default_timeout(600_000)  # milliseconds: on a busy machine 30 seconds are not much
        self.address = address
        self.problems: list[str] = []
        self.requests: list[str] = []
        page.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", lambda request: self.requests.append(request.url))

    def open(self, view: str, **state: str) -> "Studio":
        """Open a view by its address, and wait until all of it has been drawn."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}#{urlencode({'view': view, **state})}")
        self.page.wait_for_selector(f"#view[data-view={view}] .body")
        return self.settled()

    def settled(self) -> "Studio":
        self.page.wait_for_selector("[aria-busy=true]", state="detached")
        return self

    def click(self, selector: str) -> "Studio":
        """Click an element, and wait until the page has been redrawn."""
        drawn = self.page.get_attribute("html", "data-drawn")
        self.page.click(selector)
        self.page.wait_for_selector(f'html:not([data-drawn="{drawn}"])')
        return self.settled()

    def change(self, key: str, value: str) -> "Studio":
        """Change a slider, a field or a choice, found by its key."""
        drawn = self.page.get_attribute("html", "data-drawn")
        script = '([key, value]) => { const node = document.querySelector(`[data-key="${key}"]`); node.value = value; '
        script += 'node.dispatchEvent(new Event("input")); node.dispatchEvent(new Event("change")); }'
        self.page.evaluate(script, [key, value])
        self.page.wait_for_selector(f'html:not([data-drawn="{drawn}"])')
        return self.settled()

    def all(self, selector: str, attribute: str) -> list[str]:
        script = "(nodes, name) => nodes.map(node => node.getAttribute(name))"
        found: list[str] = self.page.eval_on_selector_all(selector, script, attribute)
        return found

    def numbers_of(self, selector: str, attribute: str) -> list[float]:
        return [float(value) for value in self.all(selector, attribute)]

    def text(self, selector: str) -> str:
        """Return the text of an element, with plain spaces in place of no-break spaces."""
        return self.page.inner_text(selector).replace("\xa0", " ")

    def download(self) -> Any:
        """Return the numbers that the page offers to download."""
        with self.page.expect_download() as coming:
            self.page.click('[data-key="numbers"]')
        return json.loads(coming.value.path().read_text(encoding="utf-8"))

    def picture(self) -> str:
        with self.page.expect_download() as coming:
            self.page.click('[data-key="picture"]')
        return coming.value.path().read_text(encoding="utf-8")
