"""List malformed requests, which a server must answer with 4xx, never with 5xx."""

import json
from typing import Any, NamedTuple

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
SECRET = "zq7-never-echoed"  # a marker in requests that must not appear in answers
GOOD: dict[str, Any] = {"q": "Guten Morgen!", "source": "de", "target": "en"}
DEEPL: dict[str, Any] = {"text": ["Guten Morgen!"], "target_lang": "EN-US"}


class Wrong(NamedTuple):
    what: str
    path: str
    body: bytes = b""
    kind: str = JSON
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()


def wrong_fields(path: str, good: dict[str, Any], changes: dict[str, dict[str, Any]]) -> list[Wrong]:
    return [Wrong(f"{path}: {what}", path, json.dumps(good | change).encode()) for what, change in changes.items()]


def without(good: dict[str, Any], name: str) -> bytes:
    return json.dumps({key: value for key, value in good.items() if key != name}).encode()


def raw_bodies(path: str) -> list[Wrong]:
    """Return bodies that are not a JSON object or not valid JSON."""
    bodies = {
        "nothing": b"",
        "half an object": b'{"q": "Guten',
        "no JSON": SECRET.encode(),
        "a list": b'["Guten Morgen!"]',
        "a string": b'"Guten Morgen!"',
        "a number": b"1",
        "null": b"null",
        "NaN": b'{"q": NaN, "source": "de", "target": "en"}',
        "Infinity": b'{"q": "a", "source": "de", "target": "en", "alpha": -Infinity}',
        "a number beyond all floats": b'{"q": "a", "source": "de", "target": "en", "alpha": 1e999}',
        "an integer of 5,000 digits": b'{"q": "a", "source": "de", "target": "en", "beam": ' + b"9" * 5000 + b"}",
        "a lone surrogate": b'{"q": "\\ud800", "source": "de", "target": "en"}',
        "surrogates in the wrong order": b'{"q": "\\udc00\\ud800", "source": "de", "target": "en"}',
        "a lone surrogate as a language": b'{"q": "a", "source": "\\udfff", "target": "en"}',
        "100,000 lists in lists": b"[" * 100_000,
        "deep, and closed": b'{"q": ' + b"[" * 5000 + b"]" * 5000 + b"}",
        "900 objects in objects": b'{"q": ' + b'{"q": ' * 900 + b"1" + b"}" * 900 + b"}",
        "Latin-1": '{"q": "müde", "source": "de", "target": "en"}'.encode("latin-1"),
        "UTF-16": '{"q": "a", "source": "de", "target": "en"}'.encode("utf-16"),
        "a byte of no encoding": b'{"q": "\xff", "source": "de", "target": "en"}',
        "a control character": b'{"q": "a\x01", "source": "de", "target": "en"}',
        "a comma too many": b'{"q": "a", "source": "de", "target": "en",}',
        "single quotes": b"{'q': 'a'}",
        "two objects": b"{}{}",
        "an empty object": b"{}",
        "larger than is allowed": b'{"q": "' + b"a" * 2**20 + b'"}',
    }
    return [Wrong(f"{path}: {what}", path, body) for what, body in bodies.items()]


TRANSLATE: dict[str, dict[str, Any]] = {
    "q is null": {"q": None},
    "q is a number": {"q": 17},
    "q is true": {"q": True},
    "q is an object": {"q": {"text": SECRET}},
    "q has a number in it": {"q": ["a", 1]},
    "q has a list in it": {"q": [["a"]]},
    "q has null in it": {"q": ["a", None]},
    "too many texts": {"q": ["a"] * 65},
    "a text too long": {"q": SECRET * 1000},
    "source is a number": {"source": 1},
    "source is a list": {"source": ["de"]},
    "source is not served": {"source": SECRET},
    "source is empty": {"source": ""},
    "source is very long": {"source": "de" * 1000},
    "target is not served": {"target": SECRET},
    "target is null": {"target": None},
    "the other way round": {"source": "en", "target": "de"},
    "auto to what is not served": {"source": "auto", "target": SECRET},
    "alternatives is negative": {"alternatives": -1},
    "alternatives is too many": {"alternatives": 11},
    "alternatives is a text": {"alternatives": SECRET},
    "alternatives is half": {"alternatives": 0.5},
    "alternatives is true": {"alternatives": True},
    "alternatives is beyond 64 bits": {"alternatives": 10**30},
    "more alternatives than the beam is wide": {"beam": 2, "alternatives": 5},
    "beam is 0": {"beam": 0},
    "beam is too wide": {"beam": 17},
    "beam is a text": {"beam": "4"},
    "alpha is too large": {"alpha": 1e300},
    "alpha is a text": {"alpha": SECRET},
    "format is html": {"format": "html"},
    "format is unknown": {"format": SECRET},
    "api_key is a number": {"api_key": 5},
}
DEEPL_FIELDS: dict[str, dict[str, Any]] = {
    "text is null": {"text": None},
    "text is an object": {"text": {}},
    "text has a number in it": {"text": [1]},
    "too many texts": {"text": ["a"] * 65},
    "a text too long": {"text": ["a" * 5001]},
    "target_lang is not served": {"target_lang": SECRET},
    "target_lang is a list": {"target_lang": ["EN-US"]},
    "target_lang is empty": {"target_lang": ""},
    "source_lang is not served": {"source_lang": SECRET},
    "source_lang is a number": {"source_lang": 3},
}
INSPECT: dict[str, dict[str, Any]] = {
    "a run that is not there": {"run": SECRET},
    "run is a number": {"run": 1},
    "text is empty": {"text": ""},
    "text is white space": {"text": " \n "},
    "text is a list": {"text": ["a"]},
    "text has no such part": {"part": 1},
    "part is negative": {"part": -1},
    "target_pieces is a text": {"target_pieces": SECRET},
    "target_pieces are none": {"target_pieces": [SECRET]},
    "prefix_pieces have an end": {"prefix_pieces": ["</s>"]},
    "prefix_pieces are many": {"prefix_pieces": ["a"] * 900},
    "target is too long to draw": {"target": "and " * 400},
    "prefix is too long to draw": {"prefix": "and " * 400},
    "beam is too wide": {"beam": 1000},
    "beam is negative": {"beam": -4},
    "score_scale is beyond reason": {"score_scale": 1e30},
    "score_scale is a text": {"score_scale": SECRET},
    "heads_off is a text": {"heads_off": SECRET},
    "a head is no list": {"heads_off": [1]},
    "a head of two": {"heads_off": [["encoder", 0]]},
    "a head of four": {"heads_off": [["encoder", 0, 0, 0]]},
    "a head nowhere": {"heads_off": [[SECRET, 0, 0]]},
    "a head that is not there": {"heads_off": [["encoder", 99, 0]]},
    "a head below 0": {"heads_off": [["cross", -1, 0]]},
    "too many heads": {"heads_off": [["cross", 0, 0]] * 1001},
    "positions is a text": {"positions": "no"},
    "causal is a number": {"causal": 0},
}
HEAD: dict[str, dict[str, Any]] = {
    "site is unknown": {"site": SECRET},
    "layer is not there": {"layer": 99},
    "layer is negative": {"layer": -1},
    "head is not there": {"head": 99},
    "head is a text": {"head": SECRET},
}


def malformed(run: str) -> list[Wrong]:
    """Return all malformed requests for a server of this run, which translates German to English."""
    sentence = {"run": run, "text": "Guten Morgen!"}
    one_head = sentence | {"site": "cross", "layer": 0, "head": 0}
    found = [wrong for path in ("/translate", "/v2/translate", "/detect", "/inspect") for wrong in raw_bodies(path)]
    found += wrong_fields("/translate", GOOD, TRANSLATE)
    found += wrong_fields("/v2/translate", DEEPL, DEEPL_FIELDS)
    found += wrong_fields("/inspect", sentence, INSPECT)
    found += wrong_fields("/inspect/head", one_head, HEAD)
    found += wrong_fields("/detect", {}, {"q is null": {"q": None}, "q is no text": {"q": [1]}, "no q": {"q": []}})
    found += [Wrong(f"/translate without {name}", "/translate", without(GOOD, name)) for name in GOOD]
    found += [Wrong(f"/v2/translate without {name}", "/v2/translate", without(DEEPL, name)) for name in DEEPL]
    forms = {
        "nothing": b"",
        "JSON that says it is a form": json.dumps(GOOD).encode(),
        "bytes that are no UTF-8": b"q=%ff&source=de&target=en",
        "raw bytes that are no UTF-8": b"q=\xff&source=de&target=en",
        "a surrogate": b"q=%ed%a0%80&source=de&target=en",
        "too many fields": b"&".join(b"x%d=1" % number for number in range(2000)),
        "source twice": b"q=a&source=de&source=en&target=en",
        "beam is no number": b"q=a&source=de&target=en&beam=wide",
        "beam is half": b"q=a&source=de&target=en&beam=1.5",
        "only separators": b"&&&===",
    }
    found += [Wrong(f"a form: {what}", "/translate", body, FORM) for what, body in forms.items()]
    good = json.dumps(GOOD).encode()
    found += [
        Wrong("a type that is not read", "/translate", good, "text/xml"),
        Wrong("a type that is none", "/translate", good, "\x7f;;/"),
        Wrong("a form in parts", "/translate", b"--x\r\n\r\n--x--", "multipart/form-data; boundary=x"),
        Wrong(
            "a body that is said to be compressed",
            "/translate",
            b"\x1f\x8b\x08",
            JSON,
            headers=(("Content-Encoding", "gzip"),),
        ),
        Wrong("GET /translate", "/translate", method="GET"),
        Wrong("PUT /translate", "/translate", good, method="PUT"),
        Wrong("DELETE /runs", "/runs", method="DELETE"),
        Wrong("an unknown method", "/translate", good, method="BREW"),
        Wrong("an unknown path", f"/{SECRET}", method="GET"),
        Wrong("an unknown run", f"/runs/{SECRET}", method="GET"),
        Wrong("an unknown run's training", f"/runs/{SECRET}/training", method="GET"),
        Wrong("a run of no encoding", "/runs/%ff%fe", method="GET"),
        Wrong("a run with a zero byte", "/runs/%00/training", method="GET"),
        Wrong("a way out of the page", "/page/../../checkpoint.py", method="GET"),
        Wrong("an encoded way out of the page", "/page/%2e%2e/%2e%2e/checkpoint.py", method="GET"),
        Wrong("a file of the machine", "/page//etc/passwd", method="GET"),
        Wrong("a zero byte in a path", "/page/%00", method="GET"),
        Wrong("a very long path", "/" + "a" * 8000, method="GET"),
    ]
    return found
