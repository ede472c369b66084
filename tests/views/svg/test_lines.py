import numpy as np

from regard.views.attention_map import AttentionMap
from regard.views.svg.lines import lines_svg
from tests.views.svg.reading import every, parsed, texts, tooltip

ROWS, COLUMNS = ("it", "was", "tired"), ("the", "animal")
WEIGHTS = np.array([[[[0.25, 0.75], [0.992, 0.008], [0.988, 0.012]]]], np.float32)


def height(words, root):
    """The y of every word of one side, by the word."""
    return {text.text: float(text.get("y")) for text in every(root, "text") if text.text in words}


def test_every_line_leads_from_its_row_to_its_column():
    root = parsed(lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS)))
    rows, columns = height(ROWS, root), height(COLUMNS, root)
    found = {}
    for line in every(root, "line"):
        row = next(word for word, y in rows.items() if y == float(line.get("y1")))
        column = next(word for word, y in columns.items() if y == float(line.get("y2")))
        found[row, column] = (np.float32(line.get("data-weight")), float(line.get("stroke-opacity")))
        assert tooltip(line) == f"{row} → {column}: {found[row, column][0]:.4g}"
    assert found == {
        ("it", "the"): (0.25, 0.25),
        ("it", "animal"): (0.75, 0.75),
        ("was", "the"): (np.float32(0.992), 0.99),  # an opacity has two digits; 0.008 could not be seen
        ("tired", "the"): (np.float32(0.988), 0.99),
        ("tired", "animal"): (np.float32(0.012), 0.01),
    }


def test_a_stronger_line_lies_upon_a_fainter_one():
    weights = [
        float(line.get("data-weight"))
        for line in every(parsed(lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS))), "line")
    ]
    assert weights == sorted(weights)


def test_true_links_are_dashed():
    root = parsed(lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, links=frozenset({(1, 0)}))))
    (link,) = [line for line in every(root, "line") if line.get("class") == "link"]
    assert float(link.get("y1")) == height(ROWS, root)["it"]
    assert float(link.get("y2")) == height(COLUMNS, root)["animal"]
    assert link.get("stroke-dasharray")


def test_words_stand_on_both_sides():
    assert texts(parsed(lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, title="look")))) == ["look", *ROWS, *COLUMNS]


def test_a_long_title_is_cut_where_it_has_no_room_and_whole_in_the_tooltip():
    root = parsed(lines_svg(AttentionMap(ROWS, COLUMNS, WEIGHTS, title="look " * 40)))
    drawn = texts(root)[0]
    assert drawn.startswith("look look")
    assert drawn.endswith("…")
    assert len(drawn) * 7 < float(root.get("width"))
    assert tooltip(root) == "look " * 40
