"""What the page asks for: the runs, how they trained, and what happens inside them."""

from typing import Annotated, Any

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from regard.inspection.look import Question, describe
from regard.model.trace import Head, Intervention, Site
from regard.serve.batcher import Look
from regard.serve.libretranslate import body_of
from regard.serve.reading import RefusalError, json_response, large_json_response, read, require_key
from regard.serve.runs import ServedRun
from regard.serve.service import Service
from regard.translate.search import MOST_ALPHA

MOST_SCALE = 1000.0  # of scores; far beyond, numbers overflow
Pieces = Annotated[list[str], Field(max_length=1000)]
Place = Annotated[int, Field(ge=0, le=1000)]  # a layer, or a head
# JSON has no tuples, and strict checks want them.
HeadOff = Annotated[tuple[Site, Place, Place], BeforeValidator(lambda head: tuple(head) if isinstance(head, list) else head)]


class InspectRequest(BaseModel):
    """A sentence to look at, and what to change in the model while it is translated."""

    model_config = ConfigDict(json_schema_extra={"example": {"run": "mine", "text": "Guten Morgen!"}})

    run: str = Field(description="one of /runs")
    text: str = Field(description="a sentence")
    part: int = Field(0, ge=0, description="which part of a text that is translated in several; 0: the first")
    target: str = Field("", description="a translation to look at instead of the model's own")
    target_pieces: Pieces | None = Field(None, description="the same as subwords, which decide where a text does not")
    prefix: str = Field("", description="what the translation must begin with")
    prefix_pieces: Pieces | None = Field(None, description="the same as subwords")
    beam: int = Field(4, ge=1, description="width of the search")
    alpha: float = Field(0.6, ge=-MOST_ALPHA, le=MOST_ALPHA, allow_inf_nan=False, description="of the length penalty")
    heads_off: list[HeadOff] = Field([], max_length=1000, description="[site, layer, head] of each")
    score_scale: float | None = Field(
        None, ge=-MOST_SCALE, le=MOST_SCALE, allow_inf_nan=False, description="of q·k, instead of 1/√d_k"
    )
    positions: bool = Field(True, description="whether positions are added")
    causal: bool = Field(True, description="whether the decoder is kept from seeing later words")
    api_key: str | None = Field(None, description="where the server asks for one")


class HeadRequest(InspectRequest):
    """The same, and which head."""

    model_config = ConfigDict(
        json_schema_extra={"example": {"run": "mine", "text": "Guten Morgen!", "site": "cross", "layer": 1, "head": 0}}
    )

    site: Site
    layer: Place
    head: Place


class RunSummary(BaseModel):
    name: str
    src_lang: str
    tgt_lang: str


class Training(BaseModel):
    metrics: list[dict[str, Any]]
    timing: list[dict[str, Any]]
    steps: int
    is_finished: bool


def routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["studio"])
    keys = service.settings.api_keys

    @router.get("/runs", response_model=list[RunSummary])
    async def runs(request: Request) -> Response:
        """The runs that are served."""
        require_key(request, keys)
        found = [{"name": run.name, "src_lang": run.src_lang, "tgt_lang": run.tgt_lang} for run in service.runs]
        return json_response(found)

    @router.get("/runs/{name}")
    async def run(request: Request, name: str) -> Response:
        """A run's languages, sizes and options."""
        require_key(request, keys)
        return json_response(describe(service.run_named(name).translator))

    @router.get("/runs/{name}/training", response_model=Training)
    def training(request: Request, name: str) -> Response:
        """How a run trained, or trains now: the lines of metrics.jsonl and timing.jsonl."""
        require_key(request, keys)
        try:
            return json_response(service.run_named(name).training())
        except (OSError, ValueError) as error:  # which may name a place on this machine
            raise RefusalError(503, "the run's files cannot be read at the moment", {"Retry-After": "5"}) from error

    @router.post("/inspect", openapi_extra=body_of(InspectRequest))
    async def inspect(request: Request) -> Response:
        """All there is to see in a sentence's way through a model."""
        asked = await read(request, InspectRequest, service.settings)
        run = service.run_named(asked.run)
        answer = await service.look(Look(run.name, run.translator, _question(service, run, asked)))
        return await large_json_response(answer)

    @router.post("/inspect/head", openapi_extra=body_of(HeadRequest))
    async def inspect_head(request: Request) -> Response:
        """One head's queries, keys, values, scores and weights."""
        asked = await read(request, HeadRequest, service.settings)
        run = service.run_named(asked.run)
        head = Head(asked.site, asked.layer, asked.head)
        answer = await service.look(Look(run.name, run.translator, _question(service, run, asked), head))
        return await large_json_response(answer)

    return router


def _question(service: Service, run: ServedRun, asked: InspectRequest) -> Question:
    if asked.beam > service.settings.limits.beam:
        raise RefusalError(422, f"beam: at most {service.settings.limits.beam} is allowed")
    for name in ("target_pieces", "prefix_pieces"):
        try:
            run.translator.ids_of(getattr(asked, name) or [], name)
        except ValueError as error:  # which says which one
            raise RefusalError(422, f"{name}: these are no subwords of this model") from error
    intervention = Intervention(
        heads_off=frozenset(Head(*head) for head in asked.heads_off),
        score_scale=asked.score_scale,
        positions=asked.positions,
        causal=asked.causal,
    )
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
