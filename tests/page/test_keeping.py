"""Tests of what the page keeps while answers arrive: the sentence, the focus, half-typed text, and pending questions."""

from collections.abc import Callable
from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page, Route

from tests.page.browser import Studio, needs_chromium
from tests.page.conftest import TEXT, Truth

pytestmark = [pytest.mark.slow, needs_chromium]
FOCUS = "document.activeElement.dataset.key ?? document.activeElement.id"


def hold_back(page: Page, path: str = "**/inspect") -> Callable[[], None]:
    """Hold back the answers to all requests from now on; return a function that releases them."""
    waiting: list[Route] = []

    def keep(route: Route) -> None:
        waiting.append(route)

    page.route(path, keep)

    def let_go() -> None:
        page.unroute(path)
        for route in waiting:
            with suppress(Error):  # nobody waits any more
                route.continue_()

    return let_go


def told(studio: Studio, name: str) -> str:
    """Return a value of the address, or 'nothing' if it has none."""
    found: str = studio.page.evaluate("name => new URLSearchParams(location.hash.slice(1)).get(name) ?? 'nothing'", name)
    return found


def open_bare(studio: Studio) -> Studio:
    studio.page.goto(studio.address)
    studio.page.wait_for_selector("#view[data-view=translate] .body")
    return studio.settled()


def test_back_brings_the_sentence_back(studio: Studio) -> None:
    open_bare(studio)
    assert studio.page.input_value("textarea") == TEXT, "the example"
    words = studio.text(".output")
    studio.click("#tab-beam")
    studio.page.go_back()
    studio.page.wait_for_selector("#view[data-view=translate] .body")
    studio.settled()
    assert (studio.page.input_value("textarea"), studio.text(".output")) == (TEXT, words)


def test_no_sentence_is_one_that_was_chosen(studio: Studio) -> None:
    open_bare(studio)
    studio.page.fill("textarea", "")
    studio.page.wait_for_selector("#view :text('Type a sentence above')")
    studio.page.reload()
    studio.page.wait_for_selector("#view :text('Type a sentence above')")
    assert studio.page.input_value("textarea") == ""


def test_back_in_the_field_shows_the_old_text(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one").click("#tab-map")
    studio.page.fill("textarea", "Guten Morgen!")
    studio.page.wait_for_function("location.hash.includes('Guten')")
    studio.settled()
    studio.page.go_back()
    studio.page.wait_for_selector("#view[data-view=translate] .body")
    assert studio.page.input_value("textarea") == TEXT


def test_what_is_typed_survives_a_quick_click(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one")
    studio.page.fill("textarea", "Guten Morgen!")
    studio.page.click("#tab-subwords")
    studio.page.wait_for_selector("#view[data-view=subwords] .body")
    studio.settled()
    assert studio.page.input_value("textarea") == told(studio, "text") == "Guten Morgen!"


def test_a_slow_answer_takes_neither_the_focus_nor_a_word(studio: Studio) -> None:
    studio.open("decoding", text=TEXT, run="one", lang="en")
    let_go = hold_back(studio.page)
    studio.page.focus("textarea")
    studio.page.keyboard.press("End")
    studio.page.keyboard.type("!")
    studio.page.wait_for_function("location.hash.includes('Reis.%21')")
    assert studio.page.get_attribute(".output", "aria-busy") == "true"
    studio.page.focus('[data-key="reference"]')
    studio.page.keyboard.press("End")
    studio.page.keyboard.type(" half")
    studio.page.focus('[data-key="beam"]')
    studio.page.keyboard.press("Control+A")
    studio.page.keyboard.type("7")
    let_go()
    studio.settled()
    assert studio.page.evaluate(FOCUS) == "beam"
    assert studio.page.input_value('[data-key="beam"]') == "7"
    assert studio.page.input_value("textarea") == TEXT + "!"
    assert told(studio, "reference").endswith(" half"), "leaving a field is a change"


def test_a_half_typed_field_of_a_view_goes_on(studio: Studio) -> None:
    studio.open("masks", text=TEXT, run="one", lang="en")
    studio.page.focus('[data-key="later"]')
    studio.page.keyboard.press("Control+A")
    studio.page.keyboard.type("Most peo")
    studio.page.evaluate("window.dispatchEvent(new PopStateEvent('popstate'))")  # drawn anew, for whatever reason
    studio.settled()
    studio.page.keyboard.type("ple")
    assert studio.page.evaluate(FOCUS) == "later"
    assert studio.page.input_value('[data-key="later"]') == "Most people"
    studio.page.keyboard.press("Enter")
    studio.page.wait_for_function("location.hash.includes('later=Most+people')")
    studio.settled()


def test_keys_are_not_lost_while_the_model_works(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one")
    studio.page.focus("#tab-translate")
    let_go = hold_back(studio.page)
    for _ in range(3):
        studio.page.keyboard.press("ArrowDown")
    let_go()
    studio.page.wait_for_selector("#view[data-view=positions] .body")
    assert studio.settled().page.evaluate("document.activeElement.id") == "tab-positions"


def test_too_wide_a_beam_is_refused_by_the_field(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one")
    studio.page.fill('[data-key="beam"]', "20")
    studio.page.keyboard.press("Enter")
    assert studio.page.evaluate(FOCUS) == "beam"
    assert not studio.page.evaluate("document.activeElement.validity.valid")
    assert told(studio, "beam") == "nothing"


def test_the_end_can_be_chosen_anywhere(studio: Studio, truth: Truth) -> None:
    """If it is chosen before the first word, the translation is empty."""
    studio.open("translate", text=TEXT, run="one", prefix_pieces=truth.translator.tokenizer.tgt.pieces(truth.tgt_ids)[0])
    studio.page.evaluate("import('./page/state.js').then(found => found.set({ target_pieces: '</s>' }))")
    studio.page.wait_for_selector(".output[data-words='</s>']")
    studio.settled()
    assert studio.download()["translation"] == ""
    for view in ("subwords", "masks", "heads", "decoding"):
        studio.click(f"#tab-{view}")
    assert told(studio, "target_pieces") == "</s>"
    studio.click('[data-key="held-target"]')
    assert studio.page.locator(".output .piece").count() > 1


def test_a_prefix_is_not_what_switching_off_changes(studio: Studio) -> None:
    """The translations with all heads and without some begin with the same prefix."""
    studio.open("heads", text=TEXT, run="one", prefix="I", off="cross.1.0")
    assert studio.all("dd[data-text]", "data-text")[0].startswith("I")
    studio.open("positions", text=TEXT, run="one", prefix="I", target="Rice.", positions="off", lang="en")
    before = studio.text(".versus dd:first-of-type")
    assert before.startswith("I") and studio.all("dd[data-text]", "data-text")[0].startswith("I")


def test_a_text_in_parts(studio: Studio, truth: Truth) -> None:
    lines = ["Guten Morgen!", TEXT]
    studio.open("translate", text="\n".join(lines), run="one", lang="en")
    expected = [one.text for one in truth.translator.translate(lines)]
    assert studio.page.locator('#sentence [data-key^="part-"]').count() == 2
    assert studio.page.eval_on_selector_all("[data-whole]", "nodes => nodes.map(node => node.textContent)") == expected
    numbers = studio.click('[data-key="part-1"]').download()
    assert (numbers["translation"], numbers["whole"], told(studio, "part")) == (expected[1], "\n".join(expected), "1")
    studio.page.fill("textarea", "Guten Morgen!")
    studio.page.wait_for_function("!location.hash.includes('part=')")
    studio.settled()
    assert studio.page.locator('[data-key^="part-"]').count() == 0


def test_who_types_on_hangs_up(studio: Studio) -> None:
    studio.open("heads", text=TEXT, run="one")
    gone: list[str] = []
    studio.page.on("requestfailed", lambda request: gone.append(request.url))
    let_go = hold_back(studio.page)
    studio.page.click('[data-key="try"]')
    studio.page.wait_for_selector(".later[aria-busy=true]")
    studio.page.fill("textarea", "Guten Morgen!")
    studio.page.wait_for_function("location.hash.includes('Guten')")
    while len(gone) < 4:
        studio.page.wait_for_timeout(20)
    assert len(gone) == 4, "a head each"
    let_go()
    studio.settled()
    assert told(studio, "tried") == "nothing"


def test_a_sentence_that_is_refused_takes_nothing_else_along(studio: Studio) -> None:
    for view in ("positions", "training"):
        studio.open(view, text=TEXT, run="one", lang="en", target="rice " * 300)
        assert studio.page.locator("#view section.card").count() > 1
        assert "give a shorter one" in studio.text(".output")
    studio.problems.clear()


def test_a_fault_in_a_late_answer_is_told(studio: Studio) -> None:
    studio.page.route("**/inspect/head", lambda route: route.fulfill(json={"queries": []}))
    studio.open("head", text=TEXT, run="one")
    assert studio.page.locator("#view .later p.soft").count() == 1
    assert studio.problems, "and on the console"
    studio.problems.clear()


def test_letters_being_put_together_are_not_asked_about(studio: Studio) -> None:
    studio.open("translate", text=TEXT, run="one")
    asked = len(studio.requests)
    studio.page.evaluate("""() => { const field = document.querySelector("textarea"); field.value = "ni";
        field.dispatchEvent(new InputEvent("input", { isComposing: true })); }""")
    studio.page.wait_for_timeout(400)
    assert len(studio.requests) == asked
    studio.page.evaluate("""() => { const field = document.querySelector("textarea"); field.value = "你";
        field.dispatchEvent(new CompositionEvent("compositionend")); }""")
    studio.page.wait_for_function("decodeURIComponent(location.hash).includes('text=你')")
    studio.settled()


def test_training_is_followed_past_a_refusal(studio: Studio) -> None:
    answers: list[int] = []

    def answer(route: Route) -> None:
        answers.append(503 if len(answers) == 1 else 200)
        if answers[-1] == 503:
            route.fulfill(status=503, json={"error": "not now"})
        else:
            route.fulfill(json={"metrics": [], "timing": [], "steps": 9, "is_finished": len(answers) > 2})

    studio.page.clock.install()
    studio.page.route("**/runs/one/training", answer)
    studio.open("training", text=TEXT, run="one", lang="en")
    while "finished" not in studio.text("p[data-step]"):
        studio.page.clock.run_for(4100)
        studio.page.wait_for_timeout(50)
    studio.page.clock.run_for(4100)
    assert answers == [200, 503, 200]
    studio.problems.clear()
