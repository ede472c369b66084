"""Train attention models and look inside them.

Public names load on first use, so `import regard` is fast and does not import torch.

Example:
    >>> import regard
    >>> out, weights = regard.attend(query, keys, values, visible=regard.causal(), return_weights=True)
    >>> predictor = regard.load("runs/reverse")
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

_HOME = {
    "AttentionMap": "regard.views.attention_map",
    "Batch": "regard.batch",
    "Example": "regard.data.example",
    "Explanation": "regard.attribution.explanation",
    "GeneratedText": "regard.tasks.text.predictor",
    "Hypothesis": "regard.decoding.hypothesis",
    "LabelPredictor": "regard.tasks.label.predictor",
    "Labeling": "regard.tasks.label.predictor",
    "PairPredictor": "regard.tasks.pairs.predictor",
    "Prediction": "regard.tasks.pairs.prediction",
    "Predictor": "regard.tasks.predictor",
    "RegardError": "regard.errors",
    "Run": "regard.run",
    "ScoredText": "regard.tasks.text.predictor",
    "TagPredictor": "regard.tasks.tag.predictor",
    "Tagging": "regard.tasks.tag.predictor",
    "TextPredictor": "regard.tasks.text.predictor",
    "Weights": "regard.attention.weights",
    "attend": "regard.attention.functional",
    "causal": "regard.attention.visible",
    "documents": "regard.attention.visible",
    "explain": "regard.api",
    "heads": "regard.api",
    "key_indices": "regard.attention.visible",
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
    from regard.api import heads as heads
    from regard.api import load as load
    from regard.api import look as look
    from regard.api import train as train
    from regard.attention.functional import attend as attend
    from regard.attention.visible import causal as causal
    from regard.attention.visible import documents as documents
    from regard.attention.visible import key_indices as key_indices
    from regard.attention.visible import lengths as lengths
    from regard.attention.visible import window as window
    from regard.attention.watch import watch as watch
    from regard.attention.weights import Weights as Weights
    from regard.attribution.explanation import Explanation as Explanation
    from regard.batch import Batch as Batch
    from regard.data.example import Example as Example
    from regard.decoding.hypothesis import Hypothesis as Hypothesis
    from regard.errors import RegardError as RegardError
    from regard.run import Run as Run
    from regard.tasks.label.predictor import Labeling as Labeling
    from regard.tasks.label.predictor import LabelPredictor as LabelPredictor
    from regard.tasks.pairs.prediction import Prediction as Prediction
    from regard.tasks.pairs.predictor import PairPredictor as PairPredictor
    from regard.tasks.predictor import Predictor as Predictor
    from regard.tasks.tag.predictor import Tagging as Tagging
    from regard.tasks.tag.predictor import TagPredictor as TagPredictor
    from regard.tasks.text.predictor import GeneratedText as GeneratedText
    from regard.tasks.text.predictor import ScoredText as ScoredText
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
