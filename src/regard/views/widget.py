"""Notebook widget of an attention map, synchronized with Python.

    widget = build_widget(attention_map)
    widget  # in a cell
    widget.layer, widget.head = 2, "mean"  # updates the viewer; choices made there can be read back

Requires anywidget: pip install anywidget.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from regard.errors import RegardError
from regard.views.attention_map import AttentionMap, IndexOrMean, check_map
from regard.views.document import read_static
from regard.views.page import VIEWS, bundle_modules, limit_weights, resolve_initial_view


def build_widget(
    picture: AttentionMap, *, view: str = "matrix", layer: IndexOrMean = "mean", head: IndexOrMean = "mean"
) -> Any:
    """Build a widget with the traits `view`, `layer`, `head` and `record`.

    Raises:
        RegardError: anywidget is not installed, or the map has no such view, layer or head.
    """
    check_map("build_widget", picture)
    first = resolve_initial_view(picture, view, layer, head)
    return get_widget_class()(record=limit_weights(picture).record(), **first)


@cache
def get_widget_class() -> Any:
    """Return the widget class, created when anywidget is first needed."""
    try:
        from anywidget import AnyWidget
        from traitlets import Dict, Enum, Int, Union
    except ImportError:
        raise RegardError("the widget requires anywidget: pip install anywidget") from None

    class MapWidget(AnyWidget):
        """Notebook widget of an attention map."""

        _esm = bundle_modules("widget")
        _css = read_static("viewer.css")
        record = Dict().tag(sync=True)
        view = Enum(VIEWS, "matrix").tag(sync=True)
        layer = Union([Int(), Enum(("mean",))], default_value="mean").tag(sync=True)
        head = Union([Int(), Enum(("mean",))], default_value="mean").tag(sync=True)

    return MapWidget
