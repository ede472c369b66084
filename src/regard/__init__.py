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
    "Batch": "regard.batch",
    "Example": "regard.data.example",
    "Explanation": "regard.explaining.explanation",
    "Hypothesis": "regard.decoding.hypothesis",
    "LabelPredictor": "regard.tasks.label.predictor",
    "Labelling": "regard.tasks.label.predictor",
    "PairPredictor": "regard.tasks.pairs.predictor",
    "Prediction": "regard.tasks.pairs.predictor",
    "Predictor": "regard.tasks.predictor",
    "Reading": "regard.tasks.text.predictor",
    "RegardError": "regard.errors",
    "Run": "regard.run",
    "TagPredictor": "regard.tasks.tag.predictor",
    "Tagging": "regard.tasks.tag.predictor",
    "Text": "regard.tasks.text.predictor",
    "TextPredictor": "regard.tasks.text.predictor",
    "Weights": "regard.attention.weights",
    "attend": "regard.attention.functional",
    "causal": "regard.attention.visible",
    "documents": "regard.attention.visible",
    "explain": "regard.api",
    "lengths": "regard.attention.visible",
    "load": "regard.api",
    "look": "regard.api",
    "train": "regard.api",
    "watch": "regard.attention.watch",
    "window": "regard.attention.visible",
}

__all__ = [*_HOME, "__version__"]  # pyright: ignore[reportUnsupportedDunderAll]

if TYPE_CHECKING:
    from regard.api import explain as explain
    from regard.api import load as load
    from regard.api import look as look
    from regard.api import train as train
    from regard.attention.functional import attend as attend
    from regard.attention.visible import causal as causal
    from regard.attention.visible import documents as documents
    from regard.attention.visible import lengths as lengths
    from regard.attention.visible import window as window
    from regard.attention.watch import watch as watch
    from regard.attention.weights import Weights as Weights
    from regard.batch import Batch as Batch
    from regard.data.example import Example as Example
    from regard.decoding.hypothesis import Hypothesis as Hypothesis
    from regard.errors import RegardError as RegardError
    from regard.explaining.explanation import Explanation as Explanation
    from regard.run import Run as Run
    from regard.tasks.label.predictor import Labelling as Labelling
    from regard.tasks.label.predictor import LabelPredictor as LabelPredictor
    from regard.tasks.pairs.predictor import PairPredictor as PairPredictor
    from regard.tasks.pairs.predictor import Prediction as Prediction
    from regard.tasks.predictor import Predictor as Predictor
    from regard.tasks.tag.predictor import Tagging as Tagging
    from regard.tasks.tag.predictor import TagPredictor as TagPredictor
    from regard.tasks.text.predictor import Reading as Reading
    from regard.tasks.text.predictor import Text as Text
    from regard.tasks.text.predictor import TextPredictor as TextPredictor
    from regard.views.attention_map import AttentionMap as AttentionMap


def __getattr__(name: str) -> object:
    if name in ("attention", "layers", "models"):
        return import_module(f"regard.{name}")
    if name not in _HOME:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
