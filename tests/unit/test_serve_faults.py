"""Tests that a fault of regard is answered with 500 only, logged with its traceback, and counted in `/metrics`."""

import json
import logging
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from starlette.testclient import TestClient

from regard.errors import UserError
from regard.serve.app import make_app
from regard.serve.batcher import FAULT
from regard.serve.service import Service, load_service
from regard.serve.settings import ServeSettings
from regard.translate.translator import Translator
from tests.oracles.injected import SECRET, TOLD, broken, owner_and_name
from tests.unit.test_serve_api import GOOD, HERE, RUN, SOURCES, TARGETS

DEEPL = {"text": [SOURCES[0]], "target_lang": "EN"}
LOOK = {"run": "0.1.0", "text": SOURCES[0]}
# (a function of a layer, the exception raised in it, the request, whether the worker was unaffected)
CASES: list[tuple[str, str, str, dict[str, Any], bool]] = [
    ("regard.text.tokenizer:Subwords.encode", "unicode", "/translate", GOOD, True),
    ("regard.translate.translator:normalise", "key", "/translate", GOOD, True),
    ("regard.model.transformer:Transformer.start", "runtime", "/translate", GOOD, False),
    (
        "regard.model.cache:DecoderCache.select",
        "assertion",
        "/v2/translate",
        DEEPL,
        False,
    ),
    ("regard.translate.search:beam", "zip", "/translate", GOOD, False),
    ("regard.translate.translator:Translator._batches", "value", "/translate", GOOD, False),
    ("regard.serve.batcher:Batcher._take", "library", "/translate", GOOD, True),
    ("regard.serve.service:run_for", "json", "/translate", GOOD, True),
    ("regard.serve.libretranslate:_answer", "value", "/translate", GOOD, True),
    ("regard.serve.detection:Detector.detect", "zip", "/detect", {"q": SOURCES[0]}, True),
    ("regard.serve.request_parsing:checked", "value", "/translate", GOOD, True),
    ("regard.inspection.look:predictions", "zip", "/inspect", LOOK, True),
    ("regard.model.sequence:EncoderDecoder.trace", "descriptor", "/inspect", LOOK, True),
]


@pytest.fixture
def service() -> Iterator[Service]:
    made = load_service(ServeSettings(runs=(RUN,), device="cpu"))
    yield made
    made.batcher.close(10.0)


@pytest.fixture
def client(service: Service) -> TestClient:
    return TestClient(make_app(service), base_url=HERE)


def faults(client: TestClient) -> int:
    found = re.search(r"^regard_faults_total (\d+)$", client.get("/metrics").text, flags=re.MULTILINE)
    assert found
    return int(found[1])


@pytest.mark.parametrize(("where", "what", "path", "asked", "is_able"), CASES, ids=[case[0] for case in CASES])
def test_a_fault_of_any_layer_is_answered_with_500_logged_and_counted(
    client: TestClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    where: str,
    what: str,
    path: str,
    asked: dict[str, Any],
    is_able: bool,
) -> None:
    owner, name = owner_and_name(where)
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING):
        patch.setattr(owner, name, broken(what))
        answer = client.post(path, json=asked)
    assert answer.status_code == 500, answer.text
    assert list(answer.json().values()) == [FAULT]
    assert SECRET not in answer.text and SECRET not in str(answer.headers)
    logged = [record for record in caplog.records if record.exc_info]
    assert len(logged) == faults(client) >= 1
    assert all(record.name == "regard.serve" and record.levelno == logging.ERROR for record in logged)
    assert client.get("/ready").status_code == (200 if is_able else 503)
    assert client.post("/translate", json=GOOD).json() == {"translatedText": TARGETS[0]}
    assert client.get("/ready").status_code == 200


@pytest.mark.parametrize("where", ["regard.translate.search:beam", "regard.inspection.look:predictions"])
def test_what_a_user_did_is_answered_with_its_sentence(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    owner, name = owner_and_name(where)
    monkeypatch.setattr(owner, name, broken("user"))
    asked = ("/translate", GOOD) if name == "beam" else ("/inspect", LOOK)
    answer = client.post(asked[0], json=asked[1])
    assert (answer.status_code, answer.json()) == (422, {"error": TOLD})
    assert faults(client) == 0 and not caplog.records
    assert client.get("/ready").status_code == 200


def test_others_in_the_same_batch_and_in_others_are_answered(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Translator._translations

    def half(self: Translator, parts: Any, *others: Any) -> Any:
        return [1 / 0] if any(SECRET in part.source for part in parts) else whole(self, parts, *others)

    monkeypatch.setattr(Translator, "_translations", half)
    asked = [GOOD | {"q": SECRET if number % 4 == 0 else SOURCES[number], "beam": 1 + number % 2} for number in range(16)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda one: client.post("/translate", json=one), asked))
    assert [answer.status_code for answer in answers] == [500 if number % 4 == 0 else 200 for number in range(16)]
    for number in range(1, 16, 4):
        assert answers[number].json() == client.post("/translate", json=asked[number]).json()
    assert faults(client) >= 4
    assert client.get("/ready").status_code == 200


def test_the_training_of_a_damaged_run_is_no_fault(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    def damaged(_: object) -> None:
        raise UserError(f"/a/place/{SECRET} is damaged")

    monkeypatch.setattr("regard.serve.runs.read_lines", damaged)
    answer = client.get("/runs/0.1.0/training")
    assert answer.status_code == 503 and SECRET not in answer.text
    monkeypatch.setattr("regard.serve.runs.read_lines", broken("json"))
    answer = client.get("/runs/0.1.0/training")
    assert (answer.status_code, json.loads(answer.text)) == (500, {"error": FAULT})
    assert faults(client) == 1
