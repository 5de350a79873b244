"""Tests of the API without a network: shapes, limits, keys, and messages about invalid requests."""

import asyncio
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.inspection.look import Question, describe, look, look_at_head
from regard.model.trace import Head, Intervention
from regard.serve.app import make_app
from regard.serve.batcher import Batcher
from regard.serve.measurements import Measurements
from regard.serve.request_parsing import json_response, large_json_response
from regard.serve.runs import load_runs
from regard.serve.service import Service, load_service
from regard.serve.settings import Limits, Queue, ServeSettings
from regard.text.tokenizer import Subwords
from regard.translate.search import Search
from scripts.malformed import SECRET, Wrong, malformed

RUN = Path(__file__).parents[1] / "runs" / "0.1.0"
STORED = [json.loads(line) for line in (RUN / "translations.jsonl").read_text(encoding="utf-8").splitlines()]
SOURCES, TARGETS = [line["source"] for line in STORED], [line["text"] for line in STORED]
HERE = "http://127.0.0.1:8000"
GOOD = {"q": SOURCES[0], "source": "de", "target": "en"}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    made = load_service(ServeSettings(runs=(RUN, RUN), device="cpu"))
    yield made
    made.batcher.close(10.0)


@pytest.fixture(scope="module")
def client(service: Service) -> TestClient:
    return TestClient(make_app(service), base_url=HERE, raise_server_exceptions=False)


def with_settings(service: Service, **changes: Any) -> TestClient:
    """Return a client of a server with the same runs and other settings."""
    return TestClient(make_app(replace(service, settings=replace(service.settings, **changes))), base_url=HERE)


def test_one_text_or_several_as_libretranslate_has_it(client: TestClient) -> None:
    assert client.post("/translate", json=GOOD).json() == {"translatedText": TARGETS[0]}
    several = client.post("/translate", json=GOOD | {"q": SOURCES[:3]}).json()
    assert several == {"translatedText": TARGETS[:3]}
    assert client.post("/translate", json=GOOD | {"q": []}).json() == {"translatedText": []}
    assert client.post("/translate", json=GOOD | {"q": ""}).json() == {"translatedText": ""}
    form = client.post("/translate", data={"q": SOURCES[:2], "source": "de", "target": "en", "beam": "4"})
    assert form.json() == {"translatedText": TARGETS[:2]}


def test_alternatives_are_the_next_best(client: TestClient, service: Service) -> None:
    [best] = service.runs[0].translator.translate(SOURCES[:1], Search(beam=6, num_best=6))
    answer = client.post("/translate", json=GOOD | {"alternatives": 5}).json()
    assert answer == {"translatedText": best.text, "alternatives": [one.text for one in best.alternatives]}
    listed = client.post("/translate", json=GOOD | {"q": SOURCES[:1], "alternatives": 5}).json()
    assert listed == {name: [value] for name, value in answer.items()}


def test_lines_are_translated_one_by_one(client: TestClient) -> None:
    text = f"{SOURCES[0]}\n\n{SOURCES[1]}\r\n{SOURCES[2]}\n"
    answer = client.post("/translate", json=GOOD | {"q": text, "alternatives": 2}).json()
    assert answer == {"translatedText": f"{TARGETS[0]}\n\n{TARGETS[1]}\n{TARGETS[2]}\n", "alternatives": []}


def test_a_text_is_encoded_once_and_not_in_the_event_loop(
    client: TestClient, service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded: list[tuple[str, bool]] = []
    original = Subwords.encode

    def encode(self: Subwords, texts: Sequence[str]) -> list[list[int]]:
        encoded.extend((text, asyncio._get_running_loop() is not None) for text in texts)
        return original(self, texts)

    monkeypatch.setattr(Subwords, "encode", encode)
    answer = client.post("/translate", json=GOOD | {"q": [f"{SOURCES[0]}\r\n{SOURCES[1]}", SOURCES[2]]}).json()
    assert answer == {"translatedText": [f"{TARGETS[0]}\n{TARGETS[1]}", TARGETS[2]]}
    assert sorted(encoded) == sorted((text, False) for text in SOURCES[:3])
    encoded.clear()
    name = service.runs[0].name
    assert client.post("/inspect", json={"run": name, "text": SOURCES[0]}).status_code == 200
    assert encoded == [(SOURCES[0], False)]


def test_languages_are_found_by_any_code(client: TestClient) -> None:
    for source, target in (("DE", "EN"), ("de-AT", "en_US"), ("auto", "en"), ("Auto", "EN-GB")):
        answer = client.post("/translate", json=GOOD | {"source": source, "target": target}).json()
        assert answer["translatedText"] == TARGETS[0]
        assert ("detectedLanguage" in answer) == (source.lower() == "auto")
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["en"]},
        {"code": "en", "name": "English", "targets": []},
    ]


def test_deepl_shape(client: TestClient) -> None:
    answer = client.post("/v2/translate", json={"text": SOURCES[:2], "target_lang": "EN-US"}).json()
    expected = [
        {"detected_source_language": "DE", "text": target, "billed_characters": len(source)}
        for source, target in zip(SOURCES[:2], TARGETS[:2], strict=True)
    ]
    assert answer == {"translations": expected}
    form = client.post("/v2/translate", data={"text": SOURCES[:2], "target_lang": "en", "source_lang": "DE"})
    assert form.json() == answer
    assert [one["language"] for one in client.get("/v2/languages?type=source").json()] == ["DE"]
    assert [one["language"] for one in client.get("/v2/languages?type=target").json()] == ["EN-US", "EN-GB"]
    assert client.get("/v2/usage").json()["character_count"] >= len(SOURCES[0])
    assert client.post("/v2/translate", json={"text": ["a"], "target_lang": "ja"}).json().keys() == {"message"}


def test_detection_knows_its_languages_from_the_model_alone(client: TestClient) -> None:
    """The stored run has no text beside it; 30 of its sentences and translations are told apart, except for a few."""
    for texts, code in ((SOURCES, "de"), (TARGETS, "en")):
        found = [client.post("/detect", data={"q": text}).json() for text in texts[:30]]
        assert sum(answer[0]["language"] == code for answer in found) >= 24
        assert all(answer[0]["confidence"] >= answer[1]["confidence"] for answer in found)
        assert all(99 < sum(one["confidence"] for one in answer) < 101 for answer in found)


def test_the_page_asks_about_runs(client: TestClient, service: Service) -> None:
    names = [run["name"] for run in client.get("/runs").json()]
    assert names == ["0.1.0", "0.1.0-2"]
    model = client.get("/runs/0.1.0").json()
    assert model == json.loads(json.dumps(describe(service.runs[0].translator)))
    training = client.get("/runs/0.1.0-2/training").json()
    lines = (RUN / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert training["metrics"] == [json.loads(line) for line in lines]
    assert (training["steps"], training["is_finished"], training["timing"]) == (1741, True, [])


def test_inspection_over_http_is_that_of_python(client: TestClient, service: Service) -> None:
    translator = service.runs[0].translator
    changed = Intervention(heads_off=frozenset({Head("cross", 0, 1)}), score_scale=0.5, positions=False, causal=False)
    question = Question(text=SOURCES[0], prefix="We", beam=2, alpha=1.0, intervention=changed)
    body = {"run": "0.1.0", "text": SOURCES[0], "prefix": "We", "beam": 2, "alpha": 1.0, "score_scale": 0.5}
    body |= {"heads_off": [["cross", 0, 1]], "positions": False, "causal": False}
    assert client.post("/inspect", json=body).json() == json.loads(json.dumps(look(translator, question)))
    head = client.post("/inspect/head", json=body | {"site": "decoder", "layer": 1, "head": 3}).json()
    assert head == json.loads(json.dumps(look_at_head(translator, question, Head("decoder", 1, 3))))
    usual = client.post("/inspect", json={"run": "0.1.0", "text": SOURCES[0]}).json()
    assert usual["target"]["text"] == TARGETS[0]


def test_numbers_that_json_has_not_become_null(client: TestClient) -> None:
    """The largest allowed scale gives no NaN with this model; if it did, there would be an answer."""
    for scale in (1000.0, -1000.0, 0.0):
        answer = client.post("/inspect", json={"run": "0.1.0", "text": SOURCES[0], "score_scale": scale})
        assert answer.status_code == 200
        json.loads(answer.text, parse_constant=pytest.fail)


MALFORMED = malformed("0.1.0")


@pytest.mark.parametrize("wrong", MALFORMED, ids=[wrong.what for wrong in MALFORMED])
def test_what_is_wrong_is_refused_in_a_sentence(client: TestClient, wrong: Wrong) -> None:
    headers = {"Content-Type": wrong.kind} | dict(wrong.headers)
    answer = client.request(wrong.method, wrong.path, content=wrong.body, headers=headers)
    assert 400 <= answer.status_code < 500
    assert len(answer.json()) == 1
    [sentence] = answer.json().values()
    assert sentence
    assert SECRET not in answer.text
    assert "Traceback" not in answer.text


def test_there_are_many_kinds_of_wrong_requests() -> None:
    assert len({wrong.what for wrong in MALFORMED}) == len(MALFORMED) >= 150


ODD = ["\0", "a\0b", "\ufeff", "\U0001f600" * 50, "\u202e", "a" * 5000, "</s>", "\u2581", "\ufb01", "\U0001f3f3\ufe0f\u200d"]


@pytest.mark.parametrize("text", ODD)
def test_odd_texts_are_translated(client: TestClient, text: str) -> None:
    answer = client.post("/translate", json=GOOD | {"q": text})
    assert answer.status_code == 200
    assert isinstance(answer.json()["translatedText"], str)
    assert client.post("/detect", json={"q": text}).status_code == 200


def test_a_body_is_cut_off_while_it_is_read(service: Service) -> None:
    """No length is announced, and only a part is read."""
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while sent < 1000:
            sent += 1
            yield b"x" * 1000

    small = with_settings(service, limits=Limits(body_bytes=5000))
    answer = small.post("/translate", content=endless(), headers={"Content-Type": "application/json"})
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"


def test_limits_can_be_set(service: Service) -> None:
    client = with_settings(service, limits=Limits(characters=10, texts=2, beam=5, alternatives=4))
    for change, words in (
        ({"q": "a" * 11}, "more than 10 characters"),
        ({"q": ["a"] * 3}, "at most 2 texts"),
        ({"q": "a", "beam": 6}, "at most 5 is allowed"),
        ({"q": "a", "alternatives": 5}, "at most 4 are given"),
    ):
        answer = client.post("/translate", json=GOOD | change)
        assert answer.status_code == 422
        assert words in answer.json()["error"]
    assert client.post("/translate", json=GOOD | {"q": ["a" * 10, "b"], "alternatives": 4}).status_code == 200


def test_a_full_queue_says_when_to_come_again(service: Service) -> None:
    """The worker is stopped, so nothing leaves this queue; requests are given up at the time limit."""
    batcher = Batcher(Queue(queue_tokens=20), 1024, Measurements("test"))
    batcher.close(10.0)
    batcher._is_closed = False
    settings = replace(service.settings, limits=Limits(seconds=0.2))
    client = TestClient(make_app(replace(service, settings=settings, batcher=batcher)), base_url=HERE)
    batcher.translate(next(iter(_wants(service))), service.runs[0].translator.encode(["a"] * 20))
    batcher.translate(next(iter(_wants(service))), service.runs[0].translator.encode(["a"] * 20))
    answer = client.post("/translate", json=GOOD)
    assert answer.status_code == 429
    assert 1 <= int(answer.headers["retry-after"]) <= 30
    batcher._jobs.clear()
    batcher._waiting = 0.0
    slow = client.post("/translate", json=GOOD)
    assert slow.status_code == 503
    assert "too long" in slow.json()["error"]
    assert client.get("/ready").status_code == 503
    assert client.get("/health").status_code == 200


def _wants(service: Service) -> Iterator[Any]:
    from regard.serve.batcher import Translate

    yield Translate("run", service.runs[0].translator, Search())


def test_keys_are_asked_for_where_they_are_configured(service: Service) -> None:
    client = with_settings(service, api_keys=("secret", "key2"))
    body = json.dumps(GOOD)
    offers = ((b"X", b""), (b"X-API-Key", b"wrong"), (b"Authorization", b"DeepL-Auth-Key wrong"), (b"X-API-Key", b"\xff"))
    for name, value in offers:
        answer = client.post("/translate", content=body, headers={name: value, b"Content-Type": b"application/json"})
        assert answer.status_code == 403
        assert "key" in answer.json()["error"]
    for path in ("/runs", "/runs/0.1.0", "/runs/0.1.0/training", "/metrics", "/v2/languages", "/v2/usage"):
        assert client.get(path).status_code == 403
        assert client.get(path, headers={"X-API-Key": "secret"}).status_code == 200
    assert client.post("/inspect", json={"run": "0.1.0", "text": "a"}).status_code == 403
    assert client.post("/detect", json={"q": "a"}).status_code == 403
    for path in ("/health", "/ready", "/languages", "/docs", "/openapi.json"):
        assert client.get(path).status_code == 200
    assert client.post("/translate", json=GOOD | {"api_key": "key2"}).status_code == 200
    assert client.post("/translate", data=GOOD | {"api_key": "secret"}).status_code == 200
    assert client.post("/translate?api_key=secret", json=GOOD).status_code == 200
    for header in ("DeepL-Auth-Key secret", "Bearer secret"):
        deepl = {"text": SOURCES[:1], "target_lang": "EN-US"}
        assert client.post("/v2/translate", json=deepl, headers={"Authorization": header}).status_code == 200


def test_any_key_will_do_where_none_is_configured(client: TestClient) -> None:
    assert client.post("/translate", json=GOOD | {"api_key": "whatever"}).status_code == 200
    assert client.get("/runs", headers={"Authorization": "DeepL-Auth-Key whatever"}).status_code == 200


def test_pages_from_elsewhere_may_not_ask(service: Service, client: TestClient) -> None:
    """Refuse requests by a DNS name that leads here, and by forms, unless keys or settings allow them."""
    wrong = ({"Host": "evil.example"}, {"Host": ""}, {"Host": "[::"}, {"Origin": "http://evil.example"}, {"Origin": "null"})
    for headers in wrong:
        answer = client.post("/translate", json=GOOD, headers=headers)
        assert answer.status_code == 403
        assert "start" in answer.json()["error"]
    right = ({"Host": "localhost:8000"}, {"Host": "[::1]:8000"}, {"Origin": HERE}, {"Host": "127.0.0.2"})
    for headers in right:
        assert client.post("/translate", json=GOOD, headers=headers).status_code == 200
    asked = {"Host": "proxy.example", "Origin": "https://proxy.example"}
    for changes in ({"names": ("proxy.example",)}, {"api_keys": ("secret",)}, {"host": "0.0.0.0"}):
        other = with_settings(service, **changes)
        assert other.post("/translate", json=GOOD | {"api_key": "secret"}, headers=asked).status_code == 200
    listed = with_settings(service, cors=("https://there.example",))
    assert listed.post("/translate", json=GOOD, headers={"Origin": "https://there.example"}).status_code == 200
    assert listed.post("/translate", json=GOOD, headers={"Origin": "https://here.example"}).status_code == 403


def test_a_long_list_of_nonsense_is_refused_at_once(client: TestClient) -> None:
    answer = client.post("/translate", json=GOOD | {"q": [1] * 200_000})
    assert answer.status_code == 422
    assert len(answer.content) < 200


def test_a_large_answer_is_the_same_in_parts(service: Service) -> None:
    answer = look(service.runs[0].translator, Question(text=SOURCES[0]))
    answer["odd"] = {"nan": [[float("nan"), 1.0]], "none": {}, "empty": [], "mixed": [[], [1]], "text": ["ä"]}
    whole = asyncio.run(large_json_response(answer))
    assert whole.body == json_response(answer).body


def test_the_page_keeps_its_key_in_a_cookie(service: Service) -> None:
    client = with_settings(service, api_keys=("secret",))
    assert client.get("/?api_key=wrong").status_code == 403
    led = client.get("/?api_key=secret", follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (303, "/"), "the key must not stay in an address that is shared"
    assert "httponly" in led.headers["set-cookie"].lower()
    page = client.get("/?api_key=secret")
    assert page.status_code == 200
    assert "default-src 'self'" in page.headers["content-security-policy"]
    assert client.get("/runs").status_code == 200


def test_other_origins_may_ask_only_where_they_are_named(service: Service, client: TestClient) -> None:
    origin = {"Origin": "https://example.org"}
    preflight = origin | {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    assert "access-control-allow-origin" not in client.post("/translate", json=GOOD, headers=origin).headers
    assert client.options("/translate", headers=preflight).status_code == 403
    asked = with_settings(service, cors=("https://example.org",))
    for answer in (asked.post("/translate", json=GOOD, headers=origin), asked.options("/translate", headers=preflight)):
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == "https://example.org"
    other = asked.post("/translate", json=GOOD, headers={"Origin": "https://example.com"})
    assert "access-control-allow-origin" not in other.headers


def test_metrics_are_prometheus_text(client: TestClient) -> None:
    client.get("/languages")
    lines = client.get("/metrics").text.splitlines()
    labels = r'[a-z]+="[^"]*"(,[a-z]+="[^"]*")*'
    for line in lines:
        assert re.fullmatch(r"# (HELP|TYPE) [a-z_]+ .+|[a-z_]+(\{" + labels + r"\})? [-+.\deE]+", line)
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert int(values['regard_requests_total{path="/languages",status="200"}']) >= 1
    assert values['regard_request_seconds_bucket{le="+Inf"}'] == values["regard_request_seconds_count"]
    assert sum("{path=" in name for name in values) < 100, "paths that people make up are labels"


def test_the_documentation_names_every_route_and_needs_no_other_machine(client: TestClient) -> None:
    page = client.get("/docs").text
    schema = client.get("/openapi.json").json()
    wanted = {"/translate", "/detect", "/languages", "/v2/translate", "/inspect", "/inspect/head", "/runs", "/metrics"}
    assert wanted <= set(schema["paths"])
    assert all(f"<code>{path}</code>" in page for path in schema["paths"])
    assert not re.search(r"(src|href)=\"(https?:)?//", page)


def test_the_page_and_nothing_else_is_given_out(client: TestClient) -> None:
    assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
    assert client.get("/page/index.html").status_code == client.get("/page/drawing.js").status_code == 200
    for path in ("/page/", "/page/nothing.js", "/page/../app.py", "/page/%2e%2e/app.py", "/index.html"):
        assert client.get(path).status_code == 404


def test_names_of_runs_stay_apart() -> None:
    runs = load_runs([RUN, RUN, RUN], "cpu")
    assert [run.name for run in runs] == ["0.1.0", "0.1.0-2", "0.1.0-3"]
