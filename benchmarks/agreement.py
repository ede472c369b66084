"""Measure how far attention agrees with leaving words out, on the predictions of a trained sequence-to-sequence model.

python benchmarks/agreement.py RUN SOURCES [SENTENCES] [DEVICE]

For each predicted word, each source word is left out in turn, and the drop of the log-probability of the predicted
word is compared with the attention on that source word: the order of the magnitudes, and which word is first. A
diagonal, which knows nothing but positions, is the baseline.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

import regard
from regard.alignment import to_numpy
from regard.attribution.explanation import rank_correlation
from regard.attribution.methods import drop_unit
from regard.batch import Pair, collate
from regard.decoding.forced import token_log_probabilities
from regard.tasks.pairs.prediction import Prediction
from regard.tasks.pairs.predictor import PairPredictor
from regard.text.units import TextUnit, split_into_units

ROWS = 400
"""Maximum number of shortened sources in a batch."""

MATTERS = 0.5
"""A drop in nats from which a source word matters."""


def split_sides(predictor: PairPredictor, prediction: Prediction) -> tuple[list[TextUnit], list[TextUnit]]:
    """Split source and predicted target into words with their tokens."""
    source, target = predictor.tokenizers.source, predictor.tokenizers.target
    text, target_tokens = (
        source.steps.apply(prediction.source),
        prediction.target_tokens[: len(prediction.pair[1] or ())],
    )
    return (
        split_into_units(source.kind, text, prediction.source_tokens[:-1], prediction.source_words),
        split_into_units(target.kind, prediction.raw_text, target_tokens, prediction.target_words),
    )


def sum_tokens(matrix: Float[np.ndarray, "*rows tokens"], units: list[TextUnit]) -> Float[np.ndarray, "*rows words"]:
    """Sum the columns of the tokens of each word."""
    return np.stack([matrix[..., list(unit.token_indices)].sum(-1) for unit in units], -1)


@torch.no_grad()
def measure_drops(predictor: PairPredictor, predictions: list[Prediction]) -> list[Float[np.ndarray, "target source"]]:
    """Return how much the log-probability of each predicted word drops without each source word."""
    splits = [split_sides(predictor, prediction) for prediction in predictions]
    pairs = [
        Pair(drop_unit(prediction.pair.source, units, index), prediction.pair.target)
        for prediction, (units, _) in zip(predictions, splits, strict=True)
        for index in (None, *range(len(units)))
    ]
    rows: list[Float[np.ndarray, " tokens"]] = []
    for at in range(0, len(pairs), ROWS):
        batch = collate(pairs[at : at + ROWS]).to(predictor.device)
        rows.extend(to_numpy(token_log_probabilities(predictor.model, batch).double()))
    drops = []
    for units, targets in splits:
        whole, *without = (sum_tokens(row, targets) for row in rows[: len(units) + 1])
        rows = rows[len(units) + 1 :]
        drops.append((whole - np.stack(without)).T)
    return drops


def merge_attention(predictor: PairPredictor, prediction: Prediction) -> dict[str, Float[np.ndarray, "target source"]]:
    """Return attention by words, averaged over heads: of each layer, and of all layers if there are several."""
    assert prediction.weights is not None
    units, targets = split_sides(predictor, prediction)
    layers = sum_tokens(to_numpy(prediction.weights.double().mean(1)), units).swapaxes(-1, -2)
    counts = np.array([len(target.token_indices) for target in targets])
    by_layer = (sum_tokens(layers, targets) / counts).swapaxes(-1, -2)
    named = {f"layer {index}": matrix for index, matrix in enumerate(by_layer, 1)}
    return {"attention": by_layer.mean(0), **(named if len(named) > 1 else {})}


def draw_diagonal(rows: int, columns: int) -> Float[np.ndarray, "target source"]:
    """Return weights that fall with the distance from the diagonal."""
    target, source = (np.arange(rows) + 0.5) / rows, (np.arange(columns) + 0.5) / columns
    return -np.abs(target[:, None] - source)


def kendall(first: Float[np.ndarray, " words"], second: Float[np.ndarray, " words"]) -> float | None:
    """Return Kendall's tau-b, or None if all values of one side are equal."""
    one, other = (np.sign(values[:, None] - values) for values in (first, second))
    size = np.sqrt((one**2).sum() * (other**2).sum())
    return float((one * other).sum() / size) if size else None


def compare_rows(
    looks: Float[np.ndarray, "rows words"], drops: Float[np.ndarray, "rows words"]
) -> Iterator[dict[str, float]]:
    """Compare the two rankings of the source words, for each predicted word."""
    for look, drop in zip(looks, drops, strict=True):
        spearman, tau = rank_correlation(look, np.abs(drop)), kendall(look, np.abs(drop))
        if spearman is not None and tau is not None:
            yield {
                "spearman": spearman,
                "kendall": tau,
                "top": float(look.argmax() == drop.argmax()),
                "chance": 1 / len(drop),
                "matters": float(drop.max() > MATTERS),
            }


def summarize(rows: list[dict[str, float]]) -> dict[str, float]:
    """Average the comparisons of all predicted words; there are none if all weights of each word are equal."""
    if not rows:
        return {"words": 0}
    mattering = [row for row in rows if row["matters"]]
    means = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    return {
        "words": len(rows),
        **means,
        "top where a word matters": float(np.mean([row["top"] for row in mattering] or [0])),
    }


def main(run: str, sources: str, sentences: str = "300", device: str = "cpu") -> None:
    """Print the agreement as JSON, a line for each kind of weights."""
    predictor = regard.load(run, device=device)
    lines = [line.split("\t")[0].strip() for line in Path(sources).read_text(encoding="utf-8").splitlines()]
    texts = [line for line in lines if len(line.split()) > 2][: int(sentences)]
    predictions = [
        each for each in predictor.predict(texts, beam=1, return_weights=True) if len(each.raw_text.split()) > 1
    ]
    drops = measure_drops(predictor, predictions)
    looks = [merge_attention(predictor, prediction) for prediction in predictions]
    for kind in looks[0]:
        rows = [row for look, drop in zip(looks, drops, strict=True) for row in compare_rows(look[kind], drop)]
        print(json.dumps({"run": run, "weights": kind, **summarize(rows)}))
    rows = [row for drop in drops for row in compare_rows(draw_diagonal(*drop.shape), drop)]
    print(json.dumps({"run": run, "weights": "diagonal", **summarize(rows)}))


if __name__ == "__main__":
    main(*sys.argv[1:])
