import sys
import warnings

import numpy as np
import pytest
from matplotlib.image import imread

from regard import RegardError
from regard.views.attention_map import AttentionMap
from regard.views.matrix import build_figure, save_matrix

ENGLISH, GERMAN = ("cats", "do", "not", "like", "dogs"), ("katzen", "mögen", "hunde", "nicht")
CROSSING = frozenset({(0, 0), (3, 1), (4, 2), (2, 3)})
PAPER, INK, FRAME = (242, 248, 252), (18, 36, 81), (213, 94, 0)


def crossing(**more):
    weights = np.zeros((1, 1, 4, 5))
    for column, row in CROSSING:
        weights[0, 0, row, column] = 1
    return AttentionMap(GERMAN, ENGLISH, weights, **more)


def even(rows, columns, **more):
    return AttentionMap(tuple(rows), tuple(columns), np.full((1, 1, len(rows), len(columns)), 0.5), **more)


def pixels(path):
    return np.round(imread(path)[:, :, :3] * 255).astype(int)


def cells(image, rows, columns):
    """The board of cells, detected as the widest run of paper and ink, split into cells."""
    board = (image == PAPER).all(2) | (image == INK).all(2)
    down = np.flatnonzero(board.sum(1) > 0.5 * board.sum(1).max())
    across = np.flatnonzero(board[down].mean(0) > 0.9)  # the color bar holds every shade, so few of these two
    board = image[down[0] : down[-1] + 1, across[0] : across[-1] + 1]
    return [np.array_split(line, columns, axis=1) for line in np.array_split(board, rows)]


def middle(cell):
    return tuple(cell[cell.shape[0] // 2, cell.shape[1] // 2])


def test_words_cross_as_they_do_in_the_sentence(tmp_path):
    board = cells(pixels(save_matrix(crossing(), tmp_path / "look.png")), 4, 5)
    dark = {(column, row) for row in range(4) for column in range(5) if middle(board[row][column]) == INK}
    light = {(column, row) for row in range(4) for column in range(5) if middle(board[row][column]) == PAPER}
    assert dark == CROSSING
    assert len(light) == 16


def test_cells_are_square(tmp_path):
    cell = cells(pixels(save_matrix(crossing(), tmp_path / "look.png")), 4, 5)[0][0]
    assert abs(cell.shape[0] - cell.shape[1]) <= 1


def test_linked_cells_are_framed(tmp_path):
    links = frozenset({(1, 3), (4, 0)})
    board = cells(pixels(save_matrix(crossing(links=links), tmp_path / "look.png")), 4, 5)
    framed = {
        (column, row)
        for row in range(4)
        for column in range(5)
        if (np.abs(board[row][column] - FRAME).max(2) < 20).mean() > 0.1
    }
    assert framed == links
    assert middle(board[0][4]) == PAPER  # the shade can still be seen


def test_the_chosen_layer_is_drawn(tmp_path):
    weights = np.zeros((2, 1, 2, 2))
    weights[0, 0] = np.eye(2)
    weights[1, 0] = 1 - np.eye(2)
    picture = AttentionMap(("a", "b"), ("x", "y"), weights)
    for layer, expected in ((0, [INK, PAPER]), (1, [PAPER, INK])):
        board = cells(pixels(save_matrix(picture, tmp_path / "look.png", layer=layer)), 2, 2)
        assert [middle(cell) for cell in board[0]] == expected
    assert build_figure(picture, layer=1).axes[0].get_title(loc="left") == "layer 1"


def test_words_stand_above_and_on_the_left():
    axes, bar = build_figure(crossing(title="look")).axes
    assert tuple(label.get_text() for label in axes.get_xticklabels()) == ENGLISH
    assert tuple(label.get_text() for label in axes.get_yticklabels()) == GERMAN
    assert axes.xaxis.get_ticks_position() == "top"
    assert axes.yaxis_inverted()  # the first row on top
    assert axes.get_title(loc="left") == "look"
    assert [label.get_text() for label in bar.get_yticklabels()] == ["0", "1"]


@pytest.mark.parametrize(
    ("name", "start"), [("a.png", b"\x89PNG"), ("a.svg", b"<?xml"), ("a.pdf", b"%PDF"), ("a.PNG", b"\x89PNG")]
)
def test_the_same_picture_is_the_same_file(tmp_path, name, start):
    picture = crossing(title="look", links=CROSSING)
    first, again = (save_matrix(picture, tmp_path / folder / name).read_bytes() for folder in ("first", "again"))
    assert first.startswith(start)
    assert first == again
    assert [path.name for path in (tmp_path / "first").iterdir()] == [name]  # nothing is left beside it


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_any_token_can_be_drawn(tmp_path, ending):
    words = [
        "日本",
        "שלום",
        "مرحبا",
        "हिन्दी",
        "$x",
        "$\\frac$",
        "a_{b}^c$",
        "\x1b[31m",
        "\n",
        "\ud800",
        "",
        "👍",
        "--><b>&",
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        path = save_matrix(even(words, words, title="$\\no$ 日"), tmp_path / f"look.{ending}")
    assert path.stat().st_size > 1000


def test_dollars_are_dollars():
    axes = build_figure(even(["$a$"], ["$b$", "c\n"], title="$t$")).axes[0]
    labels = [*axes.get_xticklabels(), *axes.get_yticklabels(), axes._left_title]
    assert [label.get_text() for label in labels] == ["$b$", "c␊", "$a$", "$t$"]
    assert not any(label.get_parse_math() for label in labels)


def test_the_size_grows_to_a_limit():
    def size(rows, columns):
        picture = even(["a"] * rows, ["b"] * columns)
        return [round(float(side), 3) for side in build_figure(picture).get_size_inches()]

    assert size(10, 20) == [6.8, 3.4]
    assert size(200, 100) == [12, 24]


def test_words_too_small_to_read_are_thinned_out():
    axes = build_figure(even(["a"] * 2, [str(place) for place in range(1000)])).axes[0]
    ticks = axes.get_xticks()
    assert ticks[0] == 0
    assert 1 < np.unique(np.diff(ticks)).item() < 10
    assert [label.get_text() for label in axes.get_xticklabels()] == [str(int(tick)) for tick in ticks]


def test_a_long_word_is_cut():
    axes = build_figure(even(["a" * 41], ["b" * 40])).axes[0]
    assert axes.get_yticklabels()[0].get_text() == "a" * 39 + "…"
    assert axes.get_xticklabels()[0].get_text() == "b" * 40


def test_matplotlib_is_left_as_it_was(tmp_path):
    import matplotlib

    before = dict(matplotlib.rcParams)
    save_matrix(crossing(), tmp_path / "look.svg")
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize(("name", "ending"), [("look.gif", ".gif"), ("look", "")])
def test_another_ending_is_refused(name, ending):
    with pytest.raises(RegardError) as caught:
        save_matrix(crossing(), name)
    assert str(caught.value) == f'{name}: expected .png, .svg or .pdf, got "{ending}"'


def test_a_place_that_cannot_be_written(tmp_path):
    (tmp_path / "look.png").mkdir()
    with pytest.raises(RegardError) as caught:
        save_matrix(crossing(), tmp_path / "look.png")
    assert str(caught.value) == f"cannot write {tmp_path / 'look.png'}: is a directory"
    assert [path.name for path in tmp_path.iterdir()] == ["look.png"]


def test_without_matplotlib_the_message_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(RegardError) as caught:
        save_matrix(crossing(), tmp_path / "look.png")
    assert str(caught.value) == "pictures require matplotlib: pip install matplotlib"
