"""The application: addresses, and what happens at each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response, StreamingResponse
from starlette.exceptions import HTTPException

from regard import __version__
from regard.errors import RegardError
from regard.serve.asked import Action, Told
from regard.serve.asking import looking, predicting
from regard.serve.files import File, page_files
from regard.serve.schemas import Asking, Health, Map, Models, Refusal, answer_model, look_model, predict_model
from regard.serve.security import Guard, RequestError
from regard.serve.served import Served, named
from regard.serve.settings import ServeSettings
from regard.serve.waiting import told

DESCRIPTION = "Ask the models of this server, and look inside them. The page for people is at /."
NO_STORE = {"cache-control": "no-store", "x-accel-buffering": "no"}
JSON = json.JSONEncoder(allow_nan=False)
Telling = AsyncGenerator[Told, None]
Handler = TypeVar("Handler", bound=Callable[..., Any])

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": Refusal, "description": description}
    for status, description in {
        400: "The request is not JSON.",
        401: "A bearer token is needed.",
        408: "The request came too slowly.",
        413: "The request is too large.",
        415: "The request is not said to be JSON.",
        421: "The request is addressed to another server.",
        422: "Something in the request is wrong, or asks for too much.",
        500: "The server erred.",
        503: "The server has too much to do; the header Retry-After says when to try again.",
    }.items()
}
EVENTS = """The same answer while it grows, as server-sent events.

The event "part" has, as part, what a language model wrote since the last one; or the beam of a translator, its
hypotheses so far. "answer" is what /api/predict gives, and "error" why there is none."""


def application(models: dict[str, Served], settings: ServeSettings) -> Guard:
    """What answers requests, behind its guard."""
    app = FastAPI(
        title="regard",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_refusals(app)
    add_page(app)
    add_models(app, models, settings)
    add_questions(app, models, settings)
    return Guard(app, settings)


def add_models(app: FastAPI, models: dict[str, Served], settings: ServeSettings) -> None:
    """What there is."""
    limits = {
        "bytes": settings.most_bytes,
        "characters": settings.most_characters,
        "beam": settings.most_beam,
        "tokens": settings.most_tokens,
        "seconds": settings.seconds,
    }
    record = {"models": [model.record() for model in models.values()], "limits": limits}

    @app.get("/health", response_model=Health, summary="Whether the server works")
    async def health() -> Response:
        return as_json({"status": "ok", "version": __version__})

    @app.get("/api/models", response_model=Models, responses=REFUSALS, summary="The models, and the limits")
    async def models_() -> Response:
        return as_json(record)


def add_questions(app: FastAPI, models: dict[str, Served], settings: ServeSettings) -> None:
    """What can be asked of a model."""
    to_predict, to_look = takes(predict_model()), takes(look_model())

    def asked_of(request: Request, wanted: Asking, action: Action) -> tuple[Served, Telling]:
        model = named(models, wanted.model)
        if action == "look":
            asked = looking(wanted.sent(), model, settings)
        else:
            asked = predicting(wanted.sent(), action, model, settings)
        log = {"model": model.name, "action": action, "characters": len(wanted.text)}
        request.scope["regard"] = log
        return model, told(model.worker, asked, request.receive, settings.seconds, log)

    @app.post("/api/predict", response_model=answer_model(), responses=REFUSALS, summary="Answer a text")
    @to_predict
    async def predict(request: Request, wanted: Asking) -> Response:
        model, events = asked_of(request, wanted, "predict")
        return as_json({"model": model.name, **await last(events)})

    @app.post("/api/look", response_model=Map, responses=REFUSALS, summary="Where a model looks, as an attention map")
    @to_look
    async def look(request: Request, wanted: Asking) -> Response:
        _, events = asked_of(request, wanted, "look")
        return await asyncio.to_thread(as_json, await last(events))

    stream_responses = {**REFUSALS, 200: {"content": {"text/event-stream": {}}, "description": "Events."}}

    @app.post(
        "/api/stream",
        response_class=StreamingResponse,
        responses=stream_responses,
        summary="Answer a text step by step",
        description=EVENTS,
    )
    @to_predict
    async def stream(request: Request, wanted: Asking) -> Response:
        model, events = asked_of(request, wanted, "stream")
        first = await anext(events)  # what is wrong has a status of its own
        return StreamingResponse(sent(model, first, events), media_type="text/event-stream", headers=NO_STORE)


def takes(kind: type[Asking]) -> Callable[[Handler], Handler]:
    """Let a handler take requests of a kind that is not known before the tasks are."""

    def mark(handler: Handler) -> Handler:
        handler.__annotations__["wanted"] = kind
        return handler

    return mark


async def last(events: Telling) -> dict[str, Any]:
    """The answer, which is told last."""
    async with aclosing(events):
        async for event in events:
            if event.whole:
                return event.content
    raise AssertionError("a request ends with an answer or an error")


async def sent(model: Served, first: Told, events: Telling) -> AsyncIterator[bytes]:
    """Server-sent events of all that is told."""
    async with aclosing(events):
        yield as_event(model, first)
        try:
            async for event in events:
                yield as_event(model, event)
        except RequestError as refused:
            yield server_sent("error", {"error": refused.line})


def as_event(model: Served, event: Told) -> bytes:
    """One thing that is told as a server-sent event."""
    if event.whole:
        return server_sent("answer", {"model": model.name, **event.content})
    return server_sent("part", event.content)


def server_sent(name: str, content: dict[str, Any]) -> bytes:
    """An event; JSON in ASCII has no line breaks."""
    return f"event: {name}\ndata: {json.dumps(content)}\n\n".encode("ascii")


def as_json(content: Any, status: int = 200) -> Response:
    """An answer in ASCII, whatever a model wrote: half a surrogate has no UTF-8."""
    text = "".join(json_parts(content))
    return Response(text.encode("ascii"), status, {"cache-control": "no-store"}, "application/json")


def json_parts(content: Any) -> Iterator[str]:
    """The text that `json.dumps` gives, in parts as small as a row of weights.

    While `json.dumps` works no other thread does, and all of a large map takes it a third of a second.
    """
    if isinstance(content, dict):
        yield "{"
        for place, (name, value) in enumerate(content.items()):
            yield (", " if place else "") + f"{JSON.encode(name)}: "
            yield from json_parts(value)
        yield "}"
    elif isinstance(content, list) and content and isinstance(content[0], dict | list):
        yield "["
        for place, value in enumerate(content):
            yield ", " if place else ""
            yield from json_parts(value)
        yield "]"
    else:
        yield JSON.encode(content)


def add_page(app: FastAPI) -> None:
    """The page and its files."""

    def answer(request: Request, address: str, file: File) -> Response:
        request.scope["regard"] = {"file": address}
        headers = {"etag": file.tag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.tag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.kind)

    for address, file in page_files().items():
        app.add_route(
            address, partial(answer, address=address, file=file), methods=["GET", "HEAD"], include_in_schema=False
        )


def add_refusals(app: FastAPI) -> None:
    """Every error as one line of JSON."""

    @app.exception_handler(RegardError)
    async def wrong(_: Request, error: RegardError) -> Response:
        return as_json({"error": " ".join(str(error).splitlines())}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        return as_json({"error": invalid_line(error)}, 422)

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        return as_json({"error": LINES.get(error.status_code, str(error.detail))}, error.status_code)

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        answer = as_json({"error": error.line}, error.status)
        answer.headers.update(error.headers)
        return answer


LINES = {
    400: "the request is not JSON in UTF-8, or is nested too deeply",
    404: "there is nothing at this address; /docs lists what there is",
    405: "this address does not take this method; /docs lists what there is",
}


def invalid_line(error: RequestValidationError) -> str:
    """What is wrong first of all, and where."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return f"the request is not JSON: {first['ctx']['error']}, at character {first['loc'][-1]}"
    where = ".".join(str(part) for part in first["loc"][1:]) or "the request"
    what = "there is no such setting" if first["type"] == "extra_forbidden" else str(first["msg"])
    return " ".join(f"{where}: {what[:1].lower()}{what[1:]}".splitlines())
