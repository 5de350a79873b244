"""LibreTranslate's API: /translate, /languages, /detect."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from regard.serve.languages import languages_listed
from regard.serve.request_parsing import ApiKey, RefusalError, Texts, as_list, json_response, read
from regard.serve.service import Service, Translated
from regard.translate.search import MOST_ALPHA

Code = Annotated[str, Field(max_length=35)]  # the longest code that RFC 5646 expects


class TranslateRequest(BaseModel):
    """Texts to translate. Fields that are not listed are ignored."""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "Guten Morgen!", "source": "de", "target": "en"}})

    q: Texts = Field(description="a text, or several; lines of a text are translated one by one")
    source: Code = Field(description="language of the text, or `auto`")
    target: Code = Field(description="language to translate to")
    alternatives: int = Field(0, ge=0, description="number of further translations of each text of one line")
    format: Literal["text"] = Field("text", description="only plain text is translated")
    beam: int | None = Field(None, ge=1, description="width of the search; default 4, or what the alternatives need")
    alpha: float = Field(
        0.6, ge=-MOST_ALPHA, le=MOST_ALPHA, allow_inf_nan=False, description="exponent of the length penalty"
    )
    api_key: ApiKey = None


class DetectRequest(BaseModel):
    """A text whose language is to be detected."""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "Guten Morgen!"}})

    q: Texts = Field(description="a text; only the first of several is used")
    api_key: ApiKey = None


class Detected(BaseModel):
    language: str
    confidence: float = Field(description="0 to 100")


class TranslateResponse(BaseModel):
    """Translations: lists if `q` is a list."""

    translatedText: str | list[str]  # noqa: N815 - the name is LibreTranslate's
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """Return the OpenAPI description of a body that a route reads itself."""
    schema = model.model_json_schema()
    kinds = ("application/json", "application/x-www-form-urlencoded")
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["LibreTranslate"])
    settings = service.settings

    @router.post("/translate", response_model=TranslateResponse, openapi_extra=body_of(TranslateRequest))
    async def translate(request: Request) -> Response:
        """Translate a text, or several."""
        asked = await read(request, TranslateRequest, settings)
        search = service.search(asked.alternatives, asked.beam, asked.alpha)
        done = await service.translate(as_list(asked.q), asked.source, asked.target, search)
        return json_response(_answer(done, is_list=not isinstance(asked.q, str), alternatives=asked.alternatives > 0))

    @router.post("/detect", response_model=list[Detected], openapi_extra=body_of(DetectRequest))
    async def detect(request: Request) -> Response:
        """Return the served languages, the most probable first."""
        asked = await read(request, DetectRequest, settings)
        texts = as_list(asked.q)
        service.require_moderate(texts)
        if not texts:
            raise RefusalError(422, "q: give a text")
        return json_response([_detected(code, share) for code, share in service.detector.detect(texts[0])])

    @router.get("/languages", response_model=list[Language])
    async def languages() -> Response:
        """Return all languages, each with its possible target languages."""
        return json_response(languages_listed((run.src_lang, run.tgt_lang) for run in service.runs))

    return router


def _answer(done: list[Translated], *, is_list: bool, alternatives: bool) -> dict[str, Any]:
    answer: dict[str, Any] = {"translatedText": [one.text for one in done]}
    if alternatives:
        answer["alternatives"] = [list(one.alternatives) for one in done]
    if done and done[0].confidence is not None:
        answer["detectedLanguage"] = [_detected(one.source, one.confidence or 0.0) for one in done]
    return answer if is_list else {name: values[0] for name, values in answer.items()}


def _detected(code: str, share: float) -> dict[str, Any]:
    return {"language": code, "confidence": round(100 * share, 1)}
