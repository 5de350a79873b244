"""Parse and check requests, and write JSON responses. Error messages never repeat the input."""

import asyncio
import json
import math
import secrets
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qs

from pydantic import BaseModel, Field, ValidationError
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from regard.errors import UserError
from regard.serve.settings import MOST_TEXTS, Limits, ServeSettings

Fields = dict[str, Any]
Kind = Literal["json", "form"]
Model = TypeVar("Model", bound=BaseModel)
MOST_FIELDS = 1000  # in a form
KEY_COOKIE = "regard_key"
DEPTH_OF_PARTS = 5  # levels of a large answer that are serialised one by one: down to the weights of a head
# The bound limits the number of validation errors.
Texts = str | Annotated[list[str], Field(max_length=MOST_TEXTS)]

ApiKey = Annotated[str | None, Field(description="if the server requires one")]


class RefusalError(Exception):
    """A request is answered with an error status and a sentence."""

    def __init__(self, status: int, sentence: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.headers = headers or {}


async def read(request: Request, model: type[Model], settings: ServeSettings) -> Model:
    """Return the checked fields of a request that has a valid API key."""
    fields, kind = await read_fields(request, settings.limits)
    require_key(request, settings.api_keys, fields.get("api_key") or fields.get("auth_key"))
    return checked(model, fields, kind)


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the body; never read more than is allowed, whatever the headers say."""
    close = {"Connection": "close"}
    too_large = RefusalError(413, f"the request is larger than {limits.body_bytes:,} bytes; send less at once", close)
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and len(announced) < 20 and int(announced) > limits.body_bytes:
        raise too_large
    chunks, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.body_bytes:
                    raise too_large
                chunks.append(chunk)
    except TimeoutError as error:
        raise RefusalError(408, "the request did not arrive in time", close) from error
    except ClientDisconnect as error:  # nobody receives this answer
        raise RefusalError(400, "the request ended early") from error
    return b"".join(chunks)


async def read_fields(request: Request, limits: Limits) -> tuple[Fields, Kind]:
    """Parse a JSON object, or a form, in which a repeated field is a list."""
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    body = await read_body(request, limits)
    if kind == "application/x-www-form-urlencoded":
        return parse_form(body), "form"
    if kind in ("application/json", "") or kind.endswith("+json"):
        return parse_json(body), "json"
    raise RefusalError(415, "send application/json or application/x-www-form-urlencoded")


def parse_json(body: bytes) -> Fields:
    try:
        value = json.loads(body.decode("utf-8-sig"), parse_constant=_finite, parse_float=_finite)
        if b"\\ud" in body.lower():  # escapes may be lone surrogates, which are not text
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeError as error:
        raise RefusalError(400, "the request is not valid UTF-8") from error
    except RecursionError as error:
        raise RefusalError(400, "the request's JSON is too deep") from error
    except ValueError as error:
        raise RefusalError(400, "the request is not valid JSON") from error
    if not isinstance(value, dict):
        raise RefusalError(422, "the request must be a JSON object")
    return value


def _finite(digits: str) -> float:
    if not math.isfinite(value := float(digits)):
        raise UserError(f"{digits} is not a finite number")
    return value


def parse_form(body: bytes) -> Fields:
    try:
        fields = parse_qs(body.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=MOST_FIELDS)
    except UnicodeDecodeError as error:
        raise RefusalError(400, "the form is not UTF-8") from error
    except ValueError as error:
        raise RefusalError(400, f"the form has more than {MOST_FIELDS:,} fields, or is no form") from error
    return {name: values[0] if len(values) == 1 else values for name, values in fields.items()}


def checked(model: type[Model], fields: Fields, kind: Kind) -> Model:
    """Validate the fields: strictly those of JSON, which has types; those of a form are converted from text."""
    try:
        return model.model_validate(fields, strict=kind == "json")
    except ValidationError as error:
        problems = error.errors(include_url=False, include_context=False, include_input=False)
        raise RefusalError(422, "; ".join(dict.fromkeys(map(_sentence, problems[:3])))) from error
    except RecursionError as error:
        raise RefusalError(400, "the request is too deep") from error


def _sentence(problem: Any) -> str:
    """Return a validation error in words, from the two entries into which pydantic puts no input."""
    place = ".".join(str(part) for part in problem["loc"] if isinstance(part, int) or part.isidentifier())
    return f"{place or 'the request'}: {problem['msg'].removeprefix('Value error, ')}"


def require_key(request: Request, keys: Iterable[str], given: object = None) -> None:
    """Require one of the keys, if there are any: as a field or parameter `api_key`, in a header, or in the page's cookie."""
    wanted = [key.encode() for key in keys]
    if not wanted:
        return
    offers = [given, request.query_params.get("api_key"), request.headers.get("x-api-key"), request.cookies.get(KEY_COOKIE)]
    offers += [request.headers.get("authorization", "").rpartition(" ")[2]]
    offered = [offer.encode("utf-8", "surrogatepass") for offer in offers if isinstance(offer, str)]
    if any(secrets.compare_digest(offer, key) for offer in offered for key in wanted):
        return
    needed = "this server needs an API key; send it as api_key or as Authorization: Bearer KEY"
    raise RefusalError(
        403, "this API key is not known here" if any(offers) else f"{needed}; its page opens as /?api_key=KEY"
    )


def as_list(texts: str | list[str]) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def json_response(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(dumped(value).encode("utf-8"), status, headers, media_type="application/json")


def dumped(value: Any) -> str:
    """Return JSON, in which NaN and infinities (of models that were changed, say) are null."""
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_without_nan(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


async def large_json_response(value: dict[str, Any]) -> Response:
    """Serialise millions of numbers without blocking other requests: in a thread, and in parts, because one call of `dumps`
    holds the interpreter lock."""
    parts = await asyncio.to_thread(lambda: "".join(_in_parts(value, DEPTH_OF_PARTS)))
    return Response(parts.encode("utf-8"), media_type="application/json")


def _in_parts(value: Any, depth: int) -> Iterator[str]:
    if depth and isinstance(value, dict):
        for number, (name, one) in enumerate(value.items()):
            yield f"{',' if number else '{'}{json.dumps(name)}:"
            yield from _in_parts(one, depth - 1)
        yield "}" if value else "{}"
    elif depth and isinstance(value, list) and value and isinstance(value[0], list | dict):
        for number, one in enumerate(value):
            yield "," if number else "["
            yield from _in_parts(one, depth - 1)
        yield "]"
    else:
        yield dumped(value)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
