"""From what a client sent to what a worker takes, with everything checked that can be before it waits."""

from __future__ import annotations

from typing import Any

from regard.errors import RegardError
from regard.serve.asked import Action, Asked
from regard.serve.schemas import Asking, Look, Predict
from regard.serve.served import Served
from regard.serve.settings import ServeSettings

KINDS = {"pairs": "answers texts", "text": "goes on with texts", "label": "labels texts", "tag": "tags words"}
OF_A_TEXT = ("second", "context")  # the rest are settings, which texts that are worked on together have in common


def predicting(wanted: Predict, action: Action, model: Served, settings: ServeSettings) -> Asked:
    """A request for a prediction, or a `RegardError`."""
    given = {name: value for name, value in wanted.model_dump(exclude={"model", "text"}).items() if value is not None}
    check_taken(given, model)
    check_texts(wanted, settings)
    check_search(given, settings)
    options = {name: value for name, value in given.items() if name not in OF_A_TEXT}
    model.family.check(options)
    return Asked(action=action, **texts_of(wanted), settings=tuple(sorted(options.items())))


def looking(wanted: Look, model: Served, settings: ServeSettings) -> Asked:
    """A request for a look, or a `RegardError`."""
    check_taken({name: getattr(wanted, name) for name in OF_A_TEXT if getattr(wanted, name) is not None}, model)
    check_texts(wanted, settings)
    options = wanted.model_dump(include={"target", "words", "kind", "top"})
    return Asked(action="look", **texts_of(wanted), settings=tuple(options.items()))


def texts_of(wanted: Asking) -> dict[str, Any]:
    """The text and what belongs to it."""
    context = None if wanted.context is None else tuple(wanted.context)
    return {"text": wanted.text, "second": wanted.second, "context": context}


def check_taken(given: dict[str, Any], model: Served) -> None:
    """Raise a `RegardError` for what the model has no use for."""
    for name in given:
        if name not in model.family.takes:
            takes = ", ".join(sorted(model.family.takes)) or "nothing"
            kind = KINDS[model.family.kind]
            raise RegardError(f"{name}: is not for {model.name}, which {kind}; besides a text it takes {takes}")


def check_texts(wanted: Asking, settings: ServeSettings) -> None:
    """Raise a `RegardError` for a text that is too long."""
    texts = {"text": wanted.text, "second": wanted.second, "context": "".join(wanted.context or ())}
    texts["target"] = getattr(wanted, "target", None)
    for name, text in texts.items():
        if text is not None and len(text) > settings.most_characters:
            most = settings.most_characters
            raise RegardError(f"{name}: has {len(text)} characters; this server takes up to {most}")


def check_search(given: dict[str, Any], settings: ServeSettings) -> None:
    """Raise a `RegardError` for a search that is too wide or too long."""
    most = {"beam": settings.most_beam, "nbest": settings.most_beam}
    most |= {"tokens": settings.most_tokens, "longest": settings.most_tokens}
    for name, greatest in most.items():
        if given.get(name, 0) > greatest:
            raise RegardError(f"{name}: is {given[name]}; this server takes up to {greatest}")
