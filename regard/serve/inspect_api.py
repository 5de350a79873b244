"""The API of the page: runs, their training curves, and inspection of their models."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from regard.errors import UserError
from regard.inspection.look import Question, describe
from regard.model.trace import Head, Intervention, Site
from regard.serve.batcher import Look
from regard.serve.libretranslate import body_of
from regard.serve.request_parsing import ApiKey, RefusalError, json_response, large_json_response, read, require_key
from regard.serve.service import Service
from regard.translate.search import MOST_ALPHA
from regard.translate.translator import Translator

MOST_SCALE = 1000.0  # of scores; numbers overflow far beyond it
Pieces = Annotated[list[str], Field(max_length=1000)]
HeadPlace = Annotated[int, Field(ge=0, le=1000)]  # the index of a layer or of a head
# Strict validation wants tuples, which JSON does not have.
HeadOff = Annotated[
    tuple[Site, HeadPlace, HeadPlace], BeforeValidator(lambda head: tuple(head) if isinstance(head, list) else head)
]


class InspectRequest(BaseModel):
    """A sentence to inspect, and changes of the model while it translates."""

    model_config = ConfigDict(json_schema_extra={"example": {"run": "mine", "text": "Guten Morgen!"}})

    run: str = Field(description="a name from /runs")
    text: str = Field(description="a sentence")
    part: int = Field(0, ge=0, description="index of the part, if the text is translated in several parts")
    target: str = Field("", description="a translation to inspect instead of the model's own")
    target_pieces: Pieces | None = Field(None, description="the same as subwords, which a text may not determine")
    prefix: str = Field("", description="a beginning that the translation must have")
    prefix_pieces: Pieces | None = Field(None, description="the same as subwords")
    beam: int = Field(4, ge=1, description="width of the search")
    alpha: float = Field(
        0.6, ge=-MOST_ALPHA, le=MOST_ALPHA, allow_inf_nan=False, description="exponent of the length penalty"
    )
    heads_off: list[HeadOff] = Field([], max_length=1000, description="[site, layer, head] of each")
    score_scale: float | None = Field(
        None, ge=-MOST_SCALE, le=MOST_SCALE, allow_inf_nan=False, description="factor of q·k, instead of 1/√d_k"
    )
    positions: bool = Field(True, description="add positions")
    causal: bool = Field(True, description="mask later words in the decoder")
    api_key: ApiKey = None


class HeadRequest(InspectRequest):
    """A sentence to inspect, and the head of interest."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"run": "mine", "text": "Guten Morgen!", "site": "cross", "layer": 1, "head": 0}}
    )

    site: Site
    layer: HeadPlace
    head: HeadPlace


class RunSummary(BaseModel):
    name: str
    src_lang: str
    tgt_lang: str


class TrainingCurves(BaseModel):
    """The lines of a run's metrics.jsonl and timing.jsonl, and whether its training has finished."""

    metrics: list[dict[str, Any]]
    timing: list[dict[str, Any]]
    steps: int
    is_finished: bool


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["studio"])
    keys = service.settings.api_keys

    @router.get("/runs", response_model=list[RunSummary])
    async def runs(request: Request) -> Response:
        """Return the served runs."""
        require_key(request, keys)
        found = [{"name": run.name, "src_lang": run.src_lang, "tgt_lang": run.tgt_lang} for run in service.runs]
        return json_response(found)

    @router.get("/runs/{name}")
    async def run(request: Request, name: str) -> Response:
        """Return a run's languages, sizes and options."""
        require_key(request, keys)
        return json_response(describe(service.run_named(name).translator))

    @router.get("/runs/{name}/training", response_model=TrainingCurves)
    def training(request: Request, name: str) -> Response:
        """Return the lines of metrics.jsonl and timing.jsonl, also while the run is training."""
        require_key(request, keys)
        try:
            return json_response(service.run_named(name).training())
        except (OSError, UserError) as error:  # its message may contain a path
            raise RefusalError(503, "the run's files cannot be read at the moment", {"Retry-After": "5"}) from error

    @router.post("/inspect", openapi_extra=body_of(InspectRequest))
    async def inspect(request: Request) -> Response:
        """Return the search, and the attention weights and states of a forward pass."""
        return await _answer(service, await read(request, InspectRequest, service.settings))

    @router.post("/inspect/head", openapi_extra=body_of(HeadRequest))
    async def inspect_head(request: Request) -> Response:
        """Return one head's queries, keys, values, scores and weights."""
        asked = await read(request, HeadRequest, service.settings)
        return await _answer(service, asked, Head(asked.site, asked.layer, asked.head))

    return router


async def _answer(service: Service, asked: InspectRequest, head: Head | None = None) -> Response:
    run = service.run_named(asked.run)
    service.require_beam(asked.beam)
    question = _question(run.translator, asked)
    return await large_json_response(await service.look(Look(run.name, run.translator, question, head)))


def _question(translator: Translator, asked: InspectRequest) -> Question:
    for name in ("target_pieces", "prefix_pieces"):
        try:
            translator.ids_of(getattr(asked, name) or [], name)
        except UserError as error:  # its message repeats the subword
            raise RefusalError(422, f"{name}: these are not subwords of this model") from error
    off, scale = frozenset(Head(*head) for head in asked.heads_off), asked.score_scale
    intervention = Intervention(heads_off=off, score_scale=scale, positions=asked.positions, causal=asked.causal)
    return Question(
        text=asked.text,
        part=asked.part,
        target=asked.target,
        target_pieces=None if asked.target_pieces is None else tuple(asked.target_pieces),
        prefix=asked.prefix,
        prefix_pieces=None if asked.prefix_pieces is None else tuple(asked.prefix_pieces),
        beam=asked.beam,
        alpha=asked.alpha,
        intervention=intervention,
    )
