"""The API in the shape of LibreTranslate: /translate, /languages, /detect."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from regard.serve.languages import languages_listed
from regard.serve.reading import RefusalError, Texts, json_response, read
from regard.serve.service import Service, Translated
from regard.translate.search import MOST_ALPHA

Code = Annotated[str, Field(max_length=35)]  # the longest that RFC 5646 counts on


class TranslateRequest(BaseModel):
    """What is to be translated. Fields that are not listed are ignored."""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "Guten Morgen!", "source": "de", "target": "en"}})

    q: Texts = Field(description="a text, or several; lines of a text are translated one by one")
    source: Code = Field(description="language of the text, or `auto`")
    target: Code = Field(description="language to translate to")
    alternatives: int = Field(0, ge=0, description="how many more translations to give of each text of one line")
    format: Literal["text"] = Field("text", description="only plain text is translated")
    beam: int | None = Field(None, ge=1, description="width of the search; default 4, or what the alternatives need")
    alpha: float = Field(0.6, ge=-MOST_ALPHA, le=MOST_ALPHA, allow_inf_nan=False, description="of the length penalty")
    api_key: str | None = Field(None, description="where the server asks for one")


class DetectRequest(BaseModel):
    """What language is this?"""

    model_config = ConfigDict(json_schema_extra={"example": {"q": "Guten Morgen!"}})

    q: Texts = Field(description="a text; of several, the first")
    api_key: str | None = Field(None, description="where the server asks for one")


class Detected(BaseModel):
    language: str
    confidence: float = Field(description="0 to 100")


class TranslateResponse(BaseModel):
    """Lists where `q` was one."""

    translatedText: str | list[str]  # noqa: N815 - the name is LibreTranslate's
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None  # noqa: N815


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]


def body_of(model: type[BaseModel]) -> dict[str, Any]:
    """How a route that reads its own body tells of it in the documentation."""
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
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        search = service.search(asked.alternatives, asked.beam, asked.alpha)
        done = await service.translate(texts, asked.source, asked.target, search)
        return json_response(_answer(done, is_list=not isinstance(asked.q, str), alternatives=asked.alternatives > 0))

    @router.post("/detect", response_model=list[Detected], openapi_extra=body_of(DetectRequest))
    async def detect(request: Request) -> Response:
        """The served languages by how probable it is that the text is in them."""
        asked = await read(request, DetectRequest, settings)
        texts = [asked.q] if isinstance(asked.q, str) else asked.q
        service.require_moderate(texts)
        if not texts:
            raise RefusalError(422, "q: give a text")
        return json_response([_detected(code, share) for code, share in service.detector.detect(texts[0])])

    @router.get("/languages", response_model=list[Language])
    async def languages() -> Response:
        """All languages, each with those that it can be translated to."""
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
