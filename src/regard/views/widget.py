"""An attention map as a notebook widget: the viewer of the page, tied to Python.

    shown = map_widget(picture)
    shown  # in a cell
    shown.layer, shown.head = 2, "mean"  # turns the viewer; a choice made there is read the same way

Needs anywidget: pip install 'regard[notebook]'.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.views.attention_map import AttentionMap, Choice, check_map, chosen
from regard.views.document import static
from regard.views.page import joined_modules, slim

VIEWS = ("matrix", "lines", "heads", "words", "time")


def map_widget(picture: AttentionMap, *, view: str = "matrix", layer: Choice = "mean", head: Choice = "mean") -> Any:
    """The map as a widget, which has `view`, `layer`, `head` and the `record` that is shown."""
    check_map("map_widget", picture)
    views = VIEWS if picture.alternatives else VIEWS[:-1]  # without them there is no time to show
    if view not in views:
        raise unknown_name("view", view, views)
    layer, head = counted("layer", layer, picture.layers), counted("head", head, picture.heads)
    return widget_class()(record=slim(picture).record(), view=view, layer=layer, head=head)


def counted(name: str, choice: Choice, count: int) -> int | str:
    """A layer or head by its number from 0, or "mean"."""
    start = chosen(name, choice, count).start
    return "mean" if choice in ("mean", None) else start


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
