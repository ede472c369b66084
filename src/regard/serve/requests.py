"""Parse and validate request bodies before they enter the queue."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from regard.errors import RegardError
from regard.serve.messages import ActionName, ServerRequest
from regard.serve.served_models import ServedModel
from regard.serve.settings import ServeSettings
from regard.tasks.options import get_field_names
from regard.tasks.predictor import Request

RequestFields = dict[str, Any]
"""Fields that the client set, by name."""


def parse_predict_request(
    fields: RequestFields, action: ActionName, model: ServedModel, settings: ServeSettings
) -> ServerRequest:
    """Build a predict or stream request, or raise `RegardError`."""
    predictor = model.predictor
    options = select_options(fields, predictor.task.options["request"])
    text_fields = select_options(fields, predictor.task.options.get("beside"))
    check_supported(fields, predictor.accepted_options, model)
    check_limits(fields, settings)
    request_options = predictor.task.options["request"](**options)
    predictor.check(request_options)
    return ServerRequest(action, Request(predictor.build_input(fields["text"], **text_fields), request_options))


def parse_look_request(fields: RequestFields, model: ServedModel, settings: ServeSettings) -> ServerRequest:
    """Build a look request, or raise `RegardError`."""
    task = model.predictor.task
    text_fields = get_field_names(task.options["beside"]) if "beside" in task.options else set()
    check_supported(
        fields, get_field_names(task.options["look"]) - (text_fields - model.predictor.accepted_options), model
    )
    check_limits(fields, settings)
    options = task.options["look"](**select_options(fields, task.options["look"]))
    if attentions := model.predictor.model.attentions:
        options.resolve_kind(model.predictor.name, attentions)
    return ServerRequest("look", Request(fields["text"], options))


def select_options(fields: RequestFields, options_type: type | None) -> dict[str, Any]:
    """Return the fields that belong to an options dataclass."""
    names = get_field_names(options_type) if options_type is not None else set()
    return {name: value for name, value in fields.items() if name in names}


def check_supported(fields: RequestFields, supported: Set[str], model: ServedModel) -> None:
    """Raise `RegardError` for a field that the model does not support."""
    for name in fields:
        if name != "text" and name not in supported:
            supported_names = ", ".join(["text", *sorted(supported)])
            raise RegardError(f'model "{model.name}" does not support "{name}"; choose from {supported_names}')


def check_limits(fields: RequestFields, settings: ServeSettings) -> None:
    """Raise `RegardError` for a text, beam or output length above the limits of the server."""
    for name, value in fields.items():
        text = value if isinstance(value, str) else "".join(value) if isinstance(value, tuple) else ""
        if len(text) > settings.max_characters:
            raise RegardError(f"{name} must be at most {settings.max_characters} characters long, got {len(text)}")
    limits = {"beam": settings.max_beam, "nbest": settings.max_beam}
    limits |= {"max_tokens": settings.max_tokens, "max_length": settings.max_tokens}
    for name, limit in limits.items():
        if fields.get(name, 0) > limit:
            raise RegardError(f"{name} must be at most {limit} on this server, got {fields[name]}")
