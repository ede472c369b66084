"""Read the contents of a drawing with an independent parser."""

import base64
import io
from xml.etree import ElementTree

import numpy as np
from matplotlib.image import imread

SVG = "{http://www.w3.org/2000/svg}"


def parsed(text):
    return ElementTree.fromstring(text)


def every(root, tag):
    return list(root.iter(f"{SVG}{tag}"))


def texts(root):
    return [element.text for element in every(root, "text")]


def tooltip(element):
    return element.find(f"{SVG}title").text


def pixels(image):
    """The colors of an embedded PNG."""
    kind, content = image.get("href").split(",", 1)
    assert kind == "data:image/png;base64"
    return np.round(imread(io.BytesIO(base64.b64decode(content)))[:, :, :3] * 255).astype(int)


def color(text):
    """The channels of #rrggbb."""
    return tuple(int(text[place : place + 2], 16) for place in (1, 3, 5))
