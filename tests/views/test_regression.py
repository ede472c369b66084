import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from regard import RegardError
from regard.attention import Boxcar, Epanechnikov, Gaussian, Score
from regard.views.regression import build_panels, draw_regression, estimate_regression

KERNELS: dict[str, tuple[str | Score, Callable[[Any], Any]]] = {
    "gaussian": (Gaussian(0.4), lambda apart: np.exp(-((apart / 0.4) ** 2) / 2)),
    "boxcar": (Boxcar(0.7), lambda apart: (apart <= 0.7).astype(np.float64)),
    "epanechnikov": (Epanechnikov(1.0), lambda apart: np.maximum(0, 1 - apart)),
    "uniform": ("uniform", np.ones_like),
    "gaussian of width one": ("gaussian", lambda apart: np.exp(-(apart**2) / 2)),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_curve_is_the_kernel_average_of_the_points(name):
    score, kernel = KERNELS[name]
    result = estimate_regression(score, points=13, queries=31)
    strengths = kernel(np.abs(result.x_query[:, None] - result.x_train))
    weights = strengths / strengths.sum(1, keepdims=True)
    np.testing.assert_allclose(result.weights, weights, atol=1e-6)
    np.testing.assert_allclose(result.estimate, weights @ result.y_train, atol=1e-6)


def test_the_points_are_sorted_and_scattered_about_the_curve():
    result = estimate_regression("gaussian", noise=0.0)
    assert (result.x_train.shape, result.x_query.shape, result.weights.shape) == ((40,), (200,), (200, 40))
    assert (np.diff(result.x_train) > 0).all()
    np.testing.assert_allclose(result.y_train, 2 * np.sin(result.x_train) + result.x_train)
    np.testing.assert_allclose(result.truth, 2 * np.sin(result.x_query) + result.x_query)


def test_the_seed_decides_the_points():
    first, again, other = (estimate_regression("uniform", seed=seed).y_train for seed in (0, 0, 1))
    assert (first == again).all()
    assert (first != other).all()


def test_each_panel_is_a_score_with_its_formula():
    assert [name for name, _ in build_panels()] == ["gaussian", "boxcar", "epanechnikov", "uniform"]


def test_a_png_is_written_into_a_new_folder(tmp_path):
    path = draw_regression(tmp_path / "pictures" / "regression.png")
    assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
    assert path.stat().st_size < 200_000
    assert list(path.parent.iterdir()) == [path]  # nothing is left beside it


def test_the_same_picture_is_the_same_file(tmp_path):
    first, again = (draw_regression(tmp_path / name).read_bytes() for name in ("first.svg", "again.svg"))
    assert first.startswith(b"<?xml")
    assert b"<svg" in first
    assert first == again


@pytest.mark.parametrize(("name", "suffix"), [("look.pdf", ".pdf"), ("look", "")])
def test_another_suffix_is_refused(name, suffix):
    with pytest.raises(RegardError) as caught:
        draw_regression(Path(name))
    assert str(caught.value) == f'{name}: expected .png or .svg, got "{suffix}"'


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RegardError) as caught:
        draw_regression(tmp_path / "regression.png")
    assert str(caught.value) == "pictures require matplotlib: pip install matplotlib"
