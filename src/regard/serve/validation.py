"""Messages for request bodies that do not match their schema."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches

from fastapi.exceptions import RequestValidationError

from regard.views.display import truncate

MAX_VALUE_WIDTH = 40  # characters of a value in a message

OTHER_NAMES = {
    "text": ("prompt", "input", "inputs", "query", "sentence", "source", "src", "texts"),
    "max_tokens": ("max_new_tokens", "max_output_tokens", "length"),
    "beam": ("num_beams", "beam_size", "beam_width"),
    "nbest": ("n", "n_best", "num_return_sequences"),
    "model": ("model_name",),
}
"""Our field names -> those of other APIs."""

EXPECTED_TYPES = {
    "string_type": "a string",
    "int_type": "an integer",
    "float_type": "a number",
    "bool_type": "a boolean",
    "list_type": "a list",
    "model_attributes_type": "a JSON object",
}
"""Pydantic's error types for a wrong type -> the type that was expected."""

BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
}
"""Pydantic's error types for a value out of bounds -> the bound in words, and its name in the error's context."""


def format_validation_error(error: RequestValidationError, names: Collection[str]) -> str:
    """Format the first validation error as one line; an unknown field comes first, as it is often a misnamed one.

    Args:
        error: The errors of Pydantic.
        names: The fields of the request.
    """
    errors = error.errors()
    first = next((item for item in errors if item["type"] == "extra_forbidden"), errors[0])
    kind, value, context = first["type"], first.get("input"), first.get("ctx", {})
    field = ".".join(str(part) for part in first["loc"][1:])
    if kind == "json_invalid":
        message = f"the request is not valid JSON: {context['error']}, at character {first['loc'][-1]}"
    elif kind == "extra_forbidden":
        message = f'unknown field "{field}"; {suggest_field(field, names)}'
    elif kind == "missing":
        message = f"{field or 'a JSON object'} is required"
    elif kind in EXPECTED_TYPES:
        type_name = "null" if value is None else type(value).__name__
        message = f"{field or 'request'}: expected {EXPECTED_TYPES[kind]}, got {type_name}"
    elif kind in BOUNDS:
        words, bound = BOUNDS[kind]
        message = f"{field} must be {words} {context[bound]:g}, got {truncate(str(value), MAX_VALUE_WIDTH)}"
    else:
        message = f"{field or 'request'}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return " ".join(message.splitlines())


def suggest_field(name: str, names: Collection[str]) -> str:
    """Suggest the field that an unknown name most likely means."""
    synonyms = [field for field, others in OTHER_NAMES.items() if name.lower() in others and field in names]
    suggestions = synonyms or get_close_matches(name, names, n=1)
    return f'did you mean "{suggestions[0]}"?' if suggestions else "see /docs for the API"
