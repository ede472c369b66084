"""From what a client sent to what a worker takes, with everything checked that can be before it waits."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from regard.errors import RegardError
from regard.serve.asked import Action, Asked
from regard.serve.served import Served
from regard.serve.settings import ServeSettings
from regard.tasks.options import names_of
from regard.tasks.predictor import Request

Sent = dict[str, Any]
"""What a client sent: a name and a value for each setting that it set."""


def predicting(sent: Sent, action: Action, model: Served, settings: ServeSettings) -> Asked:
    """A request for a prediction, or a `RegardError`."""
    predictor = model.predictor
    options = named_options(sent, predictor.task.options["request"])
    beside = named_options(sent, predictor.task.options.get("beside"))
    check_taken(sent, predictor.takes, model)
    check_sizes(sent, settings)
    made = predictor.task.options["request"](**options)
    predictor.check(made)
    return Asked(action, Request(predictor.subject(sent["text"], **beside), made))


def looking(sent: Sent, model: Served, settings: ServeSettings) -> Asked:
    """A request for a look, or a `RegardError`."""
    task = model.predictor.task
    beside = names_of(task.options["beside"]) if "beside" in task.options else set()
    check_taken(sent, names_of(task.options["look"]) - (beside - model.predictor.takes), model)
    check_sizes(sent, settings)
    options = task.options["look"](**named_options(sent, task.options["look"]))
    if attentions := model.predictor.model.attentions:
        options.kind_of(model.predictor.name, attentions)
    return Asked("look", Request(sent["text"], options))


def named_options(sent: Sent, kind: type | None) -> dict[str, Any]:
    """Of what was sent, that which is of a dataclass of options."""
    names = names_of(kind) if kind is not None else set()
    return {name: value for name, value in sent.items() if name in names}


def check_taken(sent: Sent, takes: Set[str], model: Served) -> None:
    """Raise a `RegardError` for what the model has no use for."""
    for name in sent:
        if name != "text" and name not in takes:
            known = ", ".join(sorted(takes)) or "nothing"
            does = model.predictor.task.does
            raise RegardError(f"{name}: is not for {model.name}, which {does}; besides a text it takes {known}")


def check_sizes(sent: Sent, settings: ServeSettings) -> None:
    """Raise a `RegardError` for a text that is too long, or a search that is too wide or too long."""
    for name, value in sent.items():
        text = value if isinstance(value, str) else "".join(value) if isinstance(value, tuple) else ""
        if len(text) > settings.most_characters:
            most = settings.most_characters
            raise RegardError(f"{name}: has {len(text)} characters; this server takes up to {most}")
    limits = {"beam": settings.most_beam, "nbest": settings.most_beam}
    limits |= {"tokens": settings.most_tokens, "longest": settings.most_tokens}
    for name, greatest in limits.items():
        if sent.get(name, 0) > greatest:
            raise RegardError(f"{name}: is {sent[name]}; this server takes up to {greatest}")
