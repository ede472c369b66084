import numpy as np

from regard.views.attention_map import AttentionMap
from regard.views.svg.lines import draw_lines_svg
from tests.views.svg.reading import every, parsed, texts, tooltip

ROWS, COLUMNS = ("it", "was", "tired"), ("the", "animal")
WEIGHTS = np.array([[[[0.25, 0.75], [0.992, 0.008], [0.988, 0.012]]]], np.float32)


def height(words, root):
    """The y of every word of one side, by the word."""
    return {text.text: float(text.get("y")) for text in every(root, "text") if text.text in words}


def test_every_line_leads_from_its_row_to_its_column():
    root = parsed(draw_lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS)))
    rows, columns = height(ROWS, root), height(COLUMNS, root)
    lines = {}
    for line in every(root, "line"):
        row = next(word for word, y in rows.items() if y == float(line.get("y1")))
        column = next(word for word, y in columns.items() if y == float(line.get("y2")))
        lines[row, column] = (np.float32(line.get("data-weight")), float(line.get("stroke-opacity")))
        assert tooltip(line) == f"{row} → {column}: {lines[row, column][0]:.4g}"
    assert lines == {
        ("it", "the"): (0.25, 0.25),
        ("it", "animal"): (0.75, 0.75),
        ("was", "the"): (np.float32(0.992), 0.99),  # an opacity has two digits; 0.008 could not be seen
        ("tired", "the"): (np.float32(0.988), 0.99),
        ("tired", "animal"): (np.float32(0.012), 0.01),
    }


def test_a_stronger_line_lies_upon_a_fainter_one():
    weights = [
        float(line.get("data-weight"))
        for line in every(parsed(draw_lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS))), "line")
    ]
    assert weights == sorted(weights)


def test_true_links_are_dashed():
    root = parsed(draw_lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, links=frozenset({(1, 0)}))))
    (link,) = [line for line in every(root, "line") if line.get("class") == "link"]
    assert float(link.get("y1")) == height(ROWS, root)["it"]
    assert float(link.get("y2")) == height(COLUMNS, root)["animal"]
    assert link.get("stroke-dasharray")


def test_words_stand_on_both_sides():
    assert texts(parsed(draw_lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, title="look")))) == [
        "look",
        *ROWS,
        *COLUMNS,
    ]


def test_a_long_title_takes_lines_above_and_moves_nothing():
    short, tall = (parsed(draw_lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, title="look " * n))) for n in (1, 20))
    drawn = texts(tall)[:3]
    assert " ".join(drawn).split() == ["look"] * 20
    assert max(map(len, drawn)) * 7 < float(tall.get("width"))
    left, top, width, height = map(float, tall.get("viewBox").split())
    assert (left, top, width) == (0, -40, float(tall.get("width")))
    assert height == float(tall.get("height")) == float(short.get("height")) + 40
    ends = [[dict(line.attrib) for line in every(root, "line")] for root in (short, tall)]
    assert ends[0] == ends[1]


def test_a_longer_title_is_cut_and_whole_in_the_tooltip():
    root = parsed(draw_lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, title="look " * 90)))
    assert [text.endswith("…") for text in texts(root)[:4]] == [False, False, False, True]
    assert texts(root)[4] == ROWS[0]
    assert tooltip(root) == "look " * 90
