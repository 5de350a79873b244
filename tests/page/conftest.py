"""Fixtures of the page's tests: a browser, a server, and the model's own results."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from playwright.sync_api import Browser
from torch.testing import assert_close

from regard.data.batch import collate
from regard.inspection.look import DIGITS, Question, search
from regard.model.trace import Intervention, Trace
from regard.text.tokenizer import EOS_ID
from regard.translate.translator import Translator
from tests.page.browser import Studio, browsing
from tests.page.stub import serving

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
TEXT = "Die meisten Japaner essen jeden Tag Reis."
CLOSE = 10.0**-DIGITS


@dataclass(frozen=True)
class Truth:
    """Results of the model, computed without the page."""

    translator: Translator
    src_ids: list[int]
    tgt_ids: list[int]

    def trace(self, intervention: Intervention | None = None) -> Trace:
        batch = collate([self.src_ids], [self.tgt_ids])
        return self.translator.models[0].trace(batch.src, batch.tgt_in, intervention)

    def log_probs(self, intervention: Intervention | None = None) -> list[float]:
        every = self.trace(intervention).logits[0].double().log_softmax(-1)
        own: list[float] = every[torch.arange(len(self.tgt_ids) + 1), [*self.tgt_ids, EOS_ID]].tolist()
        return own

    @property
    def text(self) -> str:
        return self.translator.tokenizer.tgt.decode(self.tgt_ids)


# Playwright keeps an event loop running in this thread as long as it is open: it ends with the tests of the
# page, or no later test could run a coroutine.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    with browsing() as found:
        yield found


@pytest.fixture(scope="package")
def server() -> Iterator[tuple[str, Truth]]:
    with serving({"one": RUN, "two": RUN}) as (address, served):
        translator = served.translators["one"]
        [src_ids] = translator.tokenizer.src.encode([TEXT])
        tgt_ids = list(search(translator, src_ids, Question(text=TEXT)).hypotheses[0].ids)
        yield address, Truth(translator, src_ids, tgt_ids)


@pytest.fixture
def studio(browser: Browser, server: tuple[str, Truth]) -> Iterator[Studio]:
    """Open a page, and check after the test that it reported no problem and made no request to another server."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    found = Studio(page, f"{server[0]}/")
    try:
        yield found
        assert not found.problems
        here = (server[0], "data:", "blob:", "about:")
        assert not [url for url in found.requests if not url.startswith(here)]
    finally:
        page.close()


@pytest.fixture
def truth(server: tuple[str, Truth]) -> Truth:
    return server[1]


def close(numbers: object, tensor: torch.Tensor, most: float = CLOSE) -> None:
    assert_close(torch.tensor(numbers, dtype=torch.float64), tensor.double(), rtol=0, atol=most)
