"""The FastAPI application: routes and error handlers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse, Response, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from regard import __version__
from regard.errors import RegardError
from regard.serve.event_stream import stream_events
from regard.serve.files import StaticFile, load_page_files
from regard.serve.messages import ActionName, Event
from regard.serve.metrics import CONTENT_TYPE, Metrics
from regard.serve.requests import parse_look_request, parse_predict_request
from regard.serve.schemas import (
    AttentionMapRecord,
    ErrorResponse,
    Health,
    ModelList,
    Ready,
    RequestBody,
    build_answer_type,
    build_look_body,
    build_predict_body,
)
from regard.serve.security import Guard, RequestError, build_busy_error
from regard.serve.served_models import ModelPool, ServedModel
from regard.serve.settings import ServeSettings
from regard.serve.validation import format_validation_error

DESCRIPTION = "Run the models of this server and inspect their attention. The web page is at /."
NO_STORE = {"cache-control": "no-store", "x-accel-buffering": "no"}
JSON = json.JSONEncoder(allow_nan=False)
EventStream = AsyncGenerator[Event, None]
Handler = TypeVar("Handler", bound=Callable[..., Any])
BodyMark = Callable[[Callable[..., Any]], Callable[..., Any]]
"""A decorator that sets the body type of a route."""

RequestStarter = Callable[[Request, RequestBody, ActionName], tuple[ServedModel, EventStream]]
"""Sends a request to its model; returns the model and the events of the answer."""

Responses = dict[int | str, dict[str, Any]]
"""Descriptions of responses by status."""

ERROR_RESPONSES: Responses = {
    status: {"model": ErrorResponse, "description": description}
    for status, description in {
        400: "The request is not valid HTTP, not UTF-8 or nested too deeply, or a header is malformed.",
        401: "The bearer token is missing or wrong.",
        408: "The request took too long to arrive.",
        413: "The request is too large.",
        415: "The Content-Type is not application/json.",
        421: "The Host header is not allowed.",
        422: "The request is invalid, or exceeds a limit of the server.",
        431: "The request headers are too large.",
        500: "Internal server error.",
        503: "The server is loading or busy; retry after the time in the Retry-After header.",
    }.items()
}
EVENTS = """The same answer as server-sent events.

A "part" event has the text generated since the last one in "part" (language models), or the current hypotheses in
"beam" (translation). The last event is "answer", with the response of /api/predict, or "error"."""


def create_app(pool: ModelPool, settings: ServeSettings) -> Guard:
    """Create the ASGI application, wrapped in its `Guard`."""
    metrics = Metrics()
    app = FastAPI(
        title="regard",
        version=__version__,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    add_error_handlers(app)
    add_page_routes(app)
    add_model_routes(app, pool, settings)
    add_request_routes(app, pool, settings)
    add_status_routes(app, pool, metrics)
    return Guard(app, settings, metrics, {route.path for route in app.routes if isinstance(route, Route)})


def add_status_routes(app: FastAPI, pool: ModelPool, metrics: Metrics) -> None:
    """Add /health, /ready and /metrics."""
    not_ready: Responses = {503: {"model": ErrorResponse, "description": "A model is loading or cannot answer."}}
    text: Responses = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The metrics."}}

    @app.get("/health", response_model=Health, summary="Check that the server is running")
    async def health() -> Response:
        return build_json_response({"status": "ok", "version": __version__})

    @app.get("/ready", response_model=Ready, responses=not_ready, summary="Check that all models can answer")
    async def ready() -> Response:
        problem = pool.find_problem()
        if problem is not None:
            raise build_busy_error(problem)
        return build_json_response({"status": "ready", "models": list(pool.models)})

    @app.get(
        "/metrics",
        response_class=PlainTextResponse,
        responses={**text, 401: ERROR_RESPONSES[401]},
        summary="Return metrics in the text format of Prometheus",
    )
    async def metrics_() -> Response:
        models = list(pool.models.values())
        return Response(metrics.render(models), headers={"cache-control": "no-store"}, media_type=CONTENT_TYPE)


def add_model_routes(app: FastAPI, pool: ModelPool, settings: ServeSettings) -> None:
    """Add /api/models."""
    limits = {
        "max_bytes": settings.max_bytes,
        "max_characters": settings.max_characters,
        "max_beam": settings.max_beam,
        "max_tokens": settings.max_tokens,
        "timeout": settings.timeout,
    }

    @app.get("/api/models", response_model=ModelList, responses=ERROR_RESPONSES, summary="List the models and limits")
    async def models_() -> Response:
        pool.check_loaded()
        return build_json_response({"models": [model.record() for model in pool.models.values()], "limits": limits})


def add_request_routes(app: FastAPI, pool: ModelPool, settings: ServeSettings) -> None:
    """Add /api/predict, /api/look and /api/stream."""

    def start_request(request: Request, body: RequestBody, action: ActionName) -> tuple[ServedModel, EventStream]:
        model = pool.find(body.model)
        if action == "look":
            server_request = parse_look_request(body.to_fields(), model, settings)
        else:
            server_request = parse_predict_request(body.to_fields(), action, model, settings)
        log = {"model": model.name, "action": action, "characters": len(body.text)}
        request.scope["regard"] = log
        return model, stream_events(model.worker, server_request, request.receive, settings.timeout, log)

    to_predict = accept_body(build_predict_body())
    add_predict_route(app, start_request, to_predict)
    add_look_route(app, start_request)
    add_stream_route(app, start_request, to_predict)


def add_predict_route(app: FastAPI, start_request: RequestStarter, to_predict: BodyMark) -> None:
    """Add /api/predict."""

    @app.post(
        "/api/predict",
        response_model=build_answer_type(),
        responses=ERROR_RESPONSES,
        summary="Predict the output for a text",
    )
    @to_predict
    async def predict(request: Request, body: RequestBody) -> Response:
        model, events = start_request(request, body, "predict")
        return build_json_response({"model": model.name, **await wait_for_answer(events)})


def add_look_route(app: FastAPI, start_request: RequestStarter) -> None:
    """Add /api/look."""

    @app.post(
        "/api/look",
        response_model=AttentionMapRecord,
        responses=ERROR_RESPONSES,
        summary="Return the attention map of a text",
    )
    @accept_body(build_look_body())
    async def look(request: Request, body: RequestBody) -> Response:
        _, events = start_request(request, body, "look")
        return await asyncio.to_thread(build_json_response, await wait_for_answer(events))


def add_stream_route(app: FastAPI, start_request: RequestStarter, to_predict: BodyMark) -> None:
    """Add /api/stream."""
    stream_responses = {**ERROR_RESPONSES, 200: {"content": {"text/event-stream": {}}, "description": "Events."}}

    @app.post(
        "/api/stream",
        response_class=StreamingResponse,
        responses=stream_responses,
        summary="Predict with partial results",
        description=EVENTS,
    )
    @to_predict
    async def stream(request: Request, body: RequestBody) -> Response:
        model, events = start_request(request, body, "stream")
        first = await anext(events)  # so that an early error gets its own status
        return StreamingResponse(
            iter_server_sent_events(model, first, events), media_type="text/event-stream", headers=NO_STORE
        )


def accept_body(body_type: type[RequestBody]) -> Callable[[Handler], Handler]:
    """Return a decorator that sets the body type of a route at run time."""

    def mark(handler: Handler) -> Handler:
        handler.__annotations__["body"] = body_type
        return handler

    return mark


async def wait_for_answer(events: EventStream) -> dict[str, Any]:
    """Return the content of the final event."""
    async with aclosing(events):
        async for event in events:
            if event.final:
                return event.content
    raise AssertionError("the event stream ended without a final event")


async def iter_server_sent_events(model: ServedModel, first: Event, events: EventStream) -> AsyncIterator[bytes]:
    """Yield all events as server-sent events."""
    async with aclosing(events):
        yield format_event(model, first)
        try:
            async for event in events:
                yield format_event(model, event)
        except RequestError as refused:
            yield format_server_sent_event("error", {"error": refused.line})


def format_event(model: ServedModel, event: Event) -> bytes:
    """Format an event as a server-sent event."""
    if event.final:
        return format_server_sent_event("answer", {"model": model.name, **event.content})
    return format_server_sent_event("part", event.content)


def format_server_sent_event(name: str, content: dict[str, Any]) -> bytes:
    """Format a server-sent event. ASCII JSON contains no line breaks."""
    return f"event: {name}\ndata: {json.dumps(content)}\n\n".encode("ascii")


def build_json_response(content: Any, status: int = 200) -> Response:
    """Return an ASCII JSON response, since a lone surrogate in a generated text cannot be encoded as UTF-8."""
    text = "".join(iter_json(content))
    return Response(text.encode("ascii"), status, {"cache-control": "no-store"}, "application/json")


def iter_json(content: Any) -> Iterator[str]:
    """Yield the output of `json.dumps` in parts as small as a row of weights.

    `json.dumps` holds the GIL, and a whole map can take it a third of a second.
    """
    if isinstance(content, dict):
        yield "{"
        for index, (name, value) in enumerate(content.items()):
            yield (", " if index else "") + f"{JSON.encode(name)}: "
            yield from iter_json(value)
        yield "}"
    elif isinstance(content, list) and content and isinstance(content[0], dict | list):
        yield "["
        for index, value in enumerate(content):
            yield ", " if index else ""
            yield from iter_json(value)
        yield "]"
    else:
        yield JSON.encode(content)


def add_page_routes(app: FastAPI) -> None:
    """Add the web page and its static files."""

    def send_file(request: Request, address: str, file: StaticFile) -> Response:
        request.scope["regard"] = {"file": address}
        headers = {"etag": file.etag, "cache-control": "no-cache"}
        if request.headers.get("if-none-match") == file.etag:
            return Response(status_code=304, headers=headers)
        return Response(file.content, headers=headers, media_type=file.media_type)

    for address, file in load_page_files().items():
        app.add_route(
            address, partial(send_file, address=address, file=file), methods=["GET", "HEAD"], include_in_schema=False
        )


def add_error_handlers(app: FastAPI) -> None:
    """Return every error as JSON with a one-line message."""

    @app.exception_handler(RegardError)
    async def wrong(_: Request, error: RegardError) -> Response:
        return build_json_response({"error": " ".join(str(error).splitlines())}, 422)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        body_type = request.scope["route"].endpoint.__annotations__["body"]
        return build_json_response({"error": format_validation_error(error, body_type.model_fields)}, 422)

    @app.exception_handler(HTTPException)
    async def other(_: Request, error: HTTPException) -> Response:
        return build_json_response({"error": ERROR_LINES.get(error.status_code, str(error.detail))}, error.status_code)

    @app.exception_handler(RequestError)
    async def refused(_: Request, error: RequestError) -> Response:
        response = build_json_response({"error": error.line}, error.status)
        response.headers.update(error.headers)
        return response


ERROR_LINES = {
    400: "the request is not valid UTF-8 JSON, or is nested too deeply",
    404: "not found; see /docs for the API",
    405: "method not allowed; see /docs for the API",
}
