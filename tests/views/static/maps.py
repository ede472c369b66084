"""Maps that the browser shows."""

import numpy as np

from regard.views.attention_map import AttentionMap

ROWS = ("katzen", "mögen", "hunde", "nicht")
COLUMNS = ("cats", "do", "not", "like", "dogs")
WEIGHTS = np.random.default_rng(4).dirichlet(np.ones(5), (2, 3, 4)).astype(np.float32)


def small(**more):
    """Two layers with three heads each."""
    return AttentionMap(ROWS, COLUMNS, WEIGHTS, title="look", **more)


def long(count=2000):
    """One layer and head: every token looks at itself, but one looks at the first as well."""
    indices = np.stack([np.arange(count), np.full(count, -1)], 1)
    values = np.stack([np.ones(count), np.zeros(count)], 1).astype(np.float32)
    indices[1500, 1], values[1500] = 0, 0.5
    received = np.bincount(indices[indices >= 0], values[indices >= 0], count).astype(np.float32)
    words = [f"w{place}" for place in range(count)]
    return AttentionMap.from_top(words, words, values[None, None], indices[None, None], received[None, None])
