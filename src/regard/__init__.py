"""Attention you can see, at the speed of attention you can't.

The public names load on first use, so that `import regard` costs nothing and does
not import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "AttentionMap": "regard.views.attention_map",
    "Explanation": "regard.explaining",
    "LabelPredictor": "regard.label_predictor",
    "Labelling": "regard.label_predictor",
    "Prediction": "regard.predictor",
    "Predictor": "regard.predictor",
    "Reading": "regard.text_predictor",
    "RegardError": "regard.errors",
    "TagPredictor": "regard.label_predictor",
    "Tagging": "regard.label_predictor",
    "Text": "regard.text_predictor",
    "TextPredictor": "regard.text_predictor",
    "Weights": "regard.attention.weights",
    "attend": "regard.attention.functional",
    "causal": "regard.attention.visible",
    "documents": "regard.attention.visible",
    "explain": "regard.explaining",
    "lengths": "regard.attention.visible",
    "load": "regard.loading",
    "look": "regard.looking",
    "train": "regard.api",
    "watch": "regard.attention.watch",
    "window": "regard.attention.visible",
}

__all__ = [*_HOME, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from regard.api import train as train
    from regard.attention.functional import attend as attend
    from regard.attention.visible import causal as causal
    from regard.attention.visible import documents as documents
    from regard.attention.visible import lengths as lengths
    from regard.attention.visible import window as window
    from regard.attention.watch import watch as watch
    from regard.attention.weights import Weights as Weights
    from regard.errors import RegardError as RegardError
    from regard.explaining import Explanation as Explanation
    from regard.explaining import explain as explain
    from regard.label_predictor import Labelling as Labelling
    from regard.label_predictor import LabelPredictor as LabelPredictor
    from regard.label_predictor import Tagging as Tagging
    from regard.label_predictor import TagPredictor as TagPredictor
    from regard.loading import load as load
    from regard.looking import look as look
    from regard.predictor import Prediction as Prediction
    from regard.predictor import Predictor as Predictor
    from regard.text_predictor import Reading as Reading
    from regard.text_predictor import Text as Text
    from regard.text_predictor import TextPredictor as TextPredictor
    from regard.views.attention_map import AttentionMap as AttentionMap


def __getattr__(name: str) -> object:
    if name in ("attention", "layers", "models"):
        return import_module(f"regard.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
