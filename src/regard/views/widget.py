"""An attention map as a notebook widget: the viewer of the page, tied to Python.

    shown = map_widget(picture)
    shown  # in a cell
    shown.layer, shown.head = 2, "mean"  # turns the viewer; a choice made there is read the same way

Needs anywidget: pip install 'regard[notebook]'.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from regard.errors import RegardError
from regard.views.attention_map import AttentionMap, Choice, check_map
from regard.views.document import static
from regard.views.page import VIEWS, joined_modules, shown_first, slim


def map_widget(picture: AttentionMap, *, view: str = "matrix", layer: Choice = "mean", head: Choice = "mean") -> Any:
    """The map as a widget, which has `view`, `layer`, `head` and the `record` that is shown."""
    check_map("map_widget", picture)
    first = shown_first(picture, view, layer, head)
    return widget_class()(record=slim(picture).record(), **first)


@cache
def widget_class() -> Any:
    """The class of the widget, made when anywidget is first needed."""
    try:
        from anywidget import AnyWidget
        from traitlets import Dict, Enum, Int, Union
    except ImportError:
        raise RegardError("the widget needs anywidget: pip install 'regard[notebook]'") from None

    class MapWidget(AnyWidget):
        """An attention map in a notebook."""

        _esm = joined_modules("widget")
        _css = static("viewer.css")
        record = Dict().tag(sync=True)
        view = Enum(VIEWS, "matrix").tag(sync=True)
        layer = Union([Int(), Enum(("mean",))], default_value="mean").tag(sync=True)
        head = Union([Int(), Enum(("mean",))], default_value="mean").tag(sync=True)

    return MapWidget
