"""DeepL's API: /v2/translate, and the other routes that its clients use."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from regard.serve.languages import AUTO, base, name_of
from regard.serve.libretranslate import Code, body_of
from regard.serve.request_parsing import Texts, as_list, checked, json_response, read, read_fields, require_key
from regard.serve.service import Service
from regard.translate.translator import DEFAULT_SEARCH

UNLIMITED = 10**12  # characters; DeepL's value for accounts without a limit
# DeepL's clients refuse to translate to plain English or Portuguese.
VARIANTS = {"EN": ("EN-US", "EN-GB"), "PT": ("PT-BR", "PT-PT")}


class DeeplRequest(BaseModel):
    """Texts to translate. DeepL's other settings (formality, glossaries, …) are ignored."""

    model_config = ConfigDict(json_schema_extra={"example": {"text": ["Guten Morgen!"], "target_lang": "EN-US"}})

    text: Texts = Field(description="texts; lines of a text are translated one by one")
    target_lang: Code = Field(description="language to translate to; EN-US means en")
    source_lang: Annotated[Code | None, Field(description="language of the texts; detected if it is not given")] = None
    auth_key: str | None = Field(None, description="the API key as old clients send it; newer ones send a header")


class DeeplTranslation(BaseModel):
    detected_source_language: str
    text: str
    billed_characters: int


class DeeplResponse(BaseModel):
    translations: list[DeeplTranslation]


class DeeplLanguage(BaseModel):
    language: str
    name: str
    supports_formality: bool


class Usage(BaseModel):
    character_count: int
    character_limit: int


class LanguagesRequest(BaseModel):
    type: str = "source"


def routes(service: Service) -> APIRouter:
    router = APIRouter(prefix="/v2", tags=["DeepL"])
    settings = service.settings

    @router.post("/translate", response_model=DeeplResponse, openapi_extra=body_of(DeeplRequest))
    async def translate(request: Request) -> Response:
        """Translate texts."""
        asked = await read(request, DeeplRequest, settings)
        texts = as_list(asked.text)
        done = await service.translate(texts, asked.source_lang or AUTO, asked.target_lang, DEFAULT_SEARCH)
        answers = [
            {"detected_source_language": one.source.upper(), "text": one.text, "billed_characters": len(text)}
            for one, text in zip(done, texts, strict=True)
        ]
        return json_response({"translations": answers})

    @router.get("/languages", response_model=list[DeeplLanguage])
    async def languages(request: Request) -> Response:
        """Return the source languages, or with `type=target` the target languages. The Python client sends `type` in the
        body."""
        require_key(request, settings.api_keys)
        fields: dict[str, Any] = dict(request.query_params)
        if request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
            fields |= (await read_fields(request, settings.limits))[0]
        asked = checked(LanguagesRequest, fields, "form")
        if asked.type == "target":
            targets = dict.fromkeys(run.tgt_lang.upper() for run in service.runs)
            codes = [one for code in targets for one in VARIANTS.get(code, (code,))]
        else:
            codes = [code.upper() for code in dict.fromkeys(run.src_lang for run in service.runs)]
        return json_response([_language(code) for code in codes])

    @router.get("/usage", response_model=Usage)
    async def usage(request: Request) -> Response:
        """Return the number of characters translated since the server started."""
        require_key(request, settings.api_keys)
        return json_response({"character_count": service.measurements.characters, "character_limit": UNLIMITED})

    return router


def _language(code: str) -> dict[str, Any]:
    place = f" ({code.partition('-')[2]})" if "-" in code else ""
    return {"language": code, "name": f"{name_of(base(code))}{place}", "supports_formality": False}
