import json
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from regard import RegardError
from regard.views.attention_map import AttentionMap, check_map

ROWS, COLUMNS = ("a", "b"), ("x", "y", "z")


def of(weights, rows=ROWS, columns=COLUMNS, **more):
    return AttentionMap(rows, columns, weights, **more)


def even(layers=1, heads=1):
    return np.full((layers, heads, 2, 3), 0.25)


def test_layers_and_heads_are_counted_on_their_axes():
    picture = of(even(5, 7))
    assert (picture.layers, picture.heads) == (5, 7)


def test_select_takes_one_or_averages():
    weights = np.zeros((2, 2, 2, 3))
    weights[:, :, 0, 0] = [[0.0, 0.25], [0.5, 1.0]]  # (layer, head)
    picture = of(weights)

    def first(layer, head):
        return picture.select(layer, head)[0, 0]

    assert (first(0, 1), first(1, 0), first(-1, -1)) == (0.25, 0.5, 1.0)
    assert (first("mean", 1), first(1, "mean"), first("mean", "mean")) == (0.625, 0.75, 0.4375)
    assert first(None, None) == 0.4375
    assert (picture.select().shape, picture.select().dtype) == ((2, 3), np.float32)


@pytest.mark.parametrize("layer", [2, -3, "last", "1"])
def test_a_layer_that_is_not_there(layer):
    with pytest.raises(RegardError) as caught:
        of(even(2)).select(layer)
    assert str(caught.value) == f'layer must be from 0 to 1 or "mean", got {layer}'


def test_the_caption_says_what_is_shown_where_there_is_a_choice():
    assert of(even()).caption() == ""
    assert of(even(), title="look").caption() == "look"
    assert of(even(6, 8), title="look").caption(-1, "mean") == "look · layer 5, mean of 8 heads"
    assert of(even(1, 8)).caption(0, 3) == "head 3"


def test_the_weights_cannot_be_changed_from_outside():
    given = np.full((1, 1, 2, 3), 0.25, np.float32)
    picture = of(given)
    given[:] = 1
    assert picture.weights.max() == 0.25
    with pytest.raises(ValueError, match="read-only"):
        picture.weights[0] = 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rows": "ab"}, "attention map: rows: expected a sequence of strings, got 'ab'"),
        ({"columns": [1, 2, 3]}, "attention map: columns: expected a sequence of strings, got [1, 2, 3]"),
        ({"rows": []}, "attention map: rows must not be empty"),
        (
            {"rows": ["a"]},
            "attention map: weights: expected shape (layers, heads, 1, 3), got (1, 1, 2, 3)",
        ),
        (
            {"weights": np.ones((2, 3))},
            "attention map: weights: expected shape (layers, heads, 2, 3), got (2, 3)",
        ),
        (
            {"weights": np.ones((0, 1, 2, 3))},
            "attention map: weights: expected shape (layers, heads, 2, 3), got (0, 1, 2, 3)",
        ),
        ({"weights": even() > 0}, "attention map: weights: expected numbers, got bool"),
        ({"merged": "word"}, 'attention map: unknown merged "word"; did you mean "words"?'),
        ({"title": 3}, "attention map: title: expected a string, got int"),
        ({"links": [(0, 0.5)]}, "attention map: links: expected pairs of integers (column, row), got [(0, 0.5)]"),
        (
            {"links": [(1, 2)]},  # a column 1 and a row 2, of which there are but two
            "attention map: link (column 1, row 2) is out of range; columns are 0 to 2, rows 0 to 1",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    with pytest.raises(RegardError) as caught:
        AttentionMap.from_record(of(even()).record() | change)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "said"), [(np.nan, "nan"), (np.inf, "inf"), (1e300, "inf"), (-0.5, "-0.5"), (1.02, "1.02")]
)
def test_a_weight_that_is_none(value, said):
    weights = even(1, 2)
    weights[0, 1, 0, 2] = value
    with pytest.raises(RegardError) as caught:
        of(weights)
    assert str(caught.value) == (
        f"attention map: weight at layer, head, row, column (0, 1, 0, 2) must be between 0 and 1, got {said}"
    )


def test_a_sum_may_pass_one_by_a_rounding():
    assert of(even() * 4.01).weights.max() == np.float32(1.0025)


tokens = st.text(max_size=5)


@given(
    arrays.arrays(np.float32, (2, 1, 2, 3), elements=st.floats(0, 1, width=32)),
    st.lists(tokens, min_size=2, max_size=2),
    st.lists(tokens, min_size=3, max_size=3),
    st.none() | st.sets(st.tuples(st.integers(0, 2), st.integers(0, 1))),
)
def test_a_saved_map_comes_back_to_the_bit(tmp_path_factory, weights, rows, columns, links):
    path = tmp_path_factory.mktemp("maps") / "look.json"
    links = None if links is None else frozenset(links)
    of(weights, tuple(rows), tuple(columns), title="t", merged="words", links=links).save(path)
    back = AttentionMap.load(path)
    assert back.weights.tobytes() == weights.tobytes()
    assert (back.rows, back.columns, back.title, back.merged) == (tuple(rows), tuple(columns), "t", "words")
    assert back.links == links


def test_half_a_surrogate_can_be_saved(tmp_path):
    of(even(), rows=("\ud800", "b")).save(tmp_path / "look.json")
    assert AttentionMap.load(tmp_path / "look.json").rows == ("\ud800", "b")
    assert [path.name for path in tmp_path.iterdir()] == ["look.json"]  # nothing is left beside it


def test_the_file_is_plain_json(tmp_path):
    of(even(), links=frozenset({(2, 0), (0, 1)})).save(tmp_path / "look.json")
    assert json.loads((tmp_path / "look.json").read_text()) == {
        "format": "regard.attention_map/1",
        "title": "",
        "merged": "tokens",
        "rows": ["a", "b"],
        "columns": ["x", "y", "z"],
        "links": [[0, 1], [2, 0]],
        "weights": [[[[0.25, 0.25, 0.25], [0.25, 0.25, 0.25]]]],
    }


GOOD = of(even()).record()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", " is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", ": expected a JSON object, got list"),
        ("{}", ': not an attention map: expected format "regard.attention_map/1", got null'),
        (
            '{"format": "regard.weights/1"}',
            ': not an attention map: expected format "regard.attention_map/1", got "regard.weights/1"',
        ),
        (
            '{"format": "regard.attention_map/12"}',
            ': format "regard.attention_map/12" requires a newer regard; this one reads "regard.attention_map/1"',
        ),
        (
            '{"format": "regard.attention_map/1", "title": ""}',
            ': attention map: "merged" is required',
        ),
        (json.dumps(GOOD | {"row": 1}), ': attention map: unknown field "row"; did you mean "rows"?'),
        (json.dumps(GOOD | {"rows": [1, 2]}), ": attention map: rows: expected a sequence of strings, got [1, 2]"),
        (json.dumps(GOOD | {"weights": "0"}), ": attention map: weights: expected numbers, got <U1"),
        (json.dumps(GOOD | {"weights": None}), ": attention map: weights: expected numbers, got object"),
        (
            json.dumps(GOOD | {"links": [1]}),
            ": attention map: links: expected pairs of integers (column, row), got [1]",
        ),
    ],
)
def test_a_broken_file_says_what_is_wrong(tmp_path, text, message):
    path = tmp_path / "look.json"
    path.write_text(text)
    with pytest.raises(RegardError) as caught:
        AttentionMap.load(path)
    assert str(caught.value) == f"{path}{message}"


def test_ragged_weights_in_a_file(tmp_path):
    (tmp_path / "look.json").write_text(json.dumps(GOOD | {"weights": [[[[1, 2], [1]]]]}))
    with pytest.raises(RegardError, match=r"look\.json: attention map: weights cannot be converted to an array: "):
        AttentionMap.load(tmp_path / "look.json")


def test_a_file_that_is_not_there_or_not_text(tmp_path):
    path = tmp_path / "look.json"
    with pytest.raises(RegardError) as caught:
        AttentionMap.load(path)
    assert str(caught.value) == f"cannot read {path}: not found"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(RegardError) as caught:
        AttentionMap.load(str(path))
    assert str(caught.value) == f"{path} is not valid JSON: not UTF-8 text"


def test_a_folder_is_made_and_what_cannot_be_written_is_said(tmp_path):
    of(even()).save(tmp_path / "new" / "look.json")
    assert AttentionMap.load(tmp_path / "new" / "look.json") == of(even())
    with pytest.raises(RegardError) as caught:
        of(even()).save(tmp_path / "new")
    assert str(caught.value) == f"cannot write {tmp_path / 'new'}: is a directory"


def test_views_need_no_torch():
    program = (
        "import sys, numpy, regard.views.terminal as t, regard.views.matrix, regard.views.attention_map as m;"
        "picture = m.AttentionMap(('a',), ('b',), numpy.ones((1, 1, 1, 1)));"
        "t.draw(picture), picture.to_svg(), picture.to_html(), regard.views.matrix.save_matrix;"
        "assert not {'torch', 'matplotlib', 'anywidget'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_map_equals_what_was_saved_of_it(tmp_path):
    picture = of(even(), title="look", links=frozenset({(0, 1)}))
    picture.save(tmp_path / "look.json")
    again = AttentionMap.load(tmp_path / "look.json")
    assert again == picture
    assert hash(again) == hash(picture)
    assert picture != of(even() / 2, title="look", links=frozenset({(0, 1)}))
    assert picture != of(even(), title="other", links=frozenset({(0, 1)}))
    assert picture != "look"


def test_a_map_is_described_in_a_line():
    assert repr(of(even(2, 4), title="look")) == "AttentionMap('look': layers 2, heads 4, rows 2, columns 3, by tokens)"


def test_a_map_draws_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    rows = [line[:2] for line in of(even()).draw().splitlines() if "|" in line]
    assert rows == ["a ", "b "]
    path = of(even()).save_picture(tmp_path / "look.svg", view="lines")
    assert path.read_text() == of(even()).to_svg("lines")
    path = of(even()).save_html(tmp_path / "look.html")
    assert path.read_text() == of(even()).to_html()


def test_a_picture_is_not_saved_as_json(tmp_path):
    path = tmp_path / "look.PNG"
    with pytest.raises(RegardError) as caught:
        of(even()).save(path)
    assert str(caught.value) == f'{path}: save writes JSON; use save_picture("{path}") for a picture'
    assert not path.exists()


def test_what_is_no_map_is_named():
    with pytest.raises(RegardError) as caught:
        check_map("draw", "a b")
    assert str(caught.value) == "draw: expected an AttentionMap, got str; call model.attention_map(...)"


def top(**more):
    values = np.array([[[[0.5, 0.25], [1.0, 0.0]]]], np.float32)
    indices = np.array([[[[2, 0], [1, -1]]]])
    received = np.array([[[0.25, 1.0, 0.75]]], np.float32)
    return AttentionMap.from_top(ROWS, COLUMNS, values, indices, received, **more)


def test_the_largest_weights_stand_in_for_all():
    picture = top(title="look")
    assert (picture.layers, picture.heads, picture.top_k) == (1, 1, 2)
    assert picture.select().tolist() == [[0.25, 0, 0.5], [0, 1, 0]]
    assert picture.received().tolist() == [0.25, 1, 0.75]
    assert picture.caption() == "look · top 2 weights per row"
    assert (
        repr(picture) == "AttentionMap('look': layers 1, heads 1, rows 2, columns 3, by tokens, top 2 weights per row)"
    )


def test_the_largest_weights_are_saved(tmp_path):
    picture = top(links=frozenset({(2, 1)}))
    picture.save(tmp_path / "look.json")
    assert AttentionMap.load(tmp_path / "look.json") == picture
    assert json.loads((tmp_path / "look.json").read_text())["weights"] == {
        "values": [[[[0.5, 0.25], [1, 0]]]],
        "indices": [[[[2, 0], [1, -1]]]],
        "received": [[[0.25, 1, 0.75]]],
    }


def test_all_weights_are_not_the_largest_alone():
    whole = of(even())
    assert whole.top_k is None
    assert whole != whole.keep_top(3)
    assert whole.keep_top(3) == whole.keep_top(3)
    assert whole.keep_top(3) != whole.keep_top(2)


def test_received_sums_over_rows():
    weights = np.zeros((2, 1, 2, 3))
    weights[0, 0] = [[0.5, 0.25, 0.25], [0, 1, 0]]
    picture = of(weights)
    assert picture.received(layer=0).tolist() == [0.5, 1.25, 0.25]
    assert picture.received().tolist() == [0.25, 0.625, 0.125]
    assert picture.keep_top(1).received().tolist() == [0.25, 0.625, 0.125]


def test_none_can_be_kept():
    with pytest.raises(RegardError) as caught:
        of(even()).keep_top(0)
    assert str(caught.value) == "keep_top: count must be a positive integer, got 0"


def test_words_and_largest_weights_have_the_same_sizes():
    values, indices = np.ones((1, 1, 2, 1)), np.zeros((1, 1, 2, 1), int)
    with pytest.raises(RegardError) as caught:
        AttentionMap.from_top(("a", "b", "c"), COLUMNS, values, indices, np.ones((1, 1, 3)))
    assert str(caught.value) == ("attention map: weights: expected shape (layers, heads, 3, 3), got (1, 1, 2, 3)")


def test_a_record_of_the_largest_weights_has_three_parts():
    record = top().record()
    record["weights"]["columns"] = record["weights"].pop("values")
    with pytest.raises(RegardError) as caught:
        AttentionMap.from_record(record)
    assert str(caught.value) == (
        "attention map: weights: expected values, indices, received, got indices, received, columns"
    )


@pytest.mark.parametrize("text", ["[" * 200_000, "1" * 5000])
def test_json_that_python_does_not_read_is_said_in_a_line(tmp_path, text):
    (tmp_path / "map.json").write_text(text)
    with pytest.raises(RegardError, match=r"map\.json is not valid JSON: "):
        AttentionMap.load(tmp_path / "map.json")
