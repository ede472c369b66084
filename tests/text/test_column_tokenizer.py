import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import RegardError
from regard.batch import UNKNOWN
from regard.text import TextSteps, TokenizerPair, learn_tokenizer
from regard.text.column_tokenizer import ColumnTokenizer, join_tokenizers
from regard.text.pieces import WHITESPACE

FEATURES = TextSteps(separator=";")


@pytest.fixture
def tokenizer() -> ColumnTokenizer:
    """Letters V, a, b (ids 4 to 6 by frequency), then features V, PL, PST (ids 7 to 9)."""
    letters = learn_tokenizer("characters", ["bbbaaV"])
    features = learn_tokenizer("words", ["V;PL", "V;PST", "V;PL"], steps=FEATURES)
    return join_tokenizers(["lemma", "features"], [letters, features])


def saved_and_loaded(tokenizer: ColumnTokenizer) -> TokenizerPair:
    pair = TokenizerPair(tokenizer, learn_tokenizer("characters", ["ab"]))
    return TokenizerPair.from_json(pair.to_json(), "tokenizer.json")


def test_features_are_whole_and_clash_with_no_letter(tokenizer):
    assert tokenizer.size == 4 + 3 + 3
    assert tokenizer.encode("baV\tV;PST") == [4, 5, 6, 7, 9]  # the letter V is not the feature V
    assert tokenizer.ids_to_tokens([4, 5, 6, 7, 9, 8]) == ["b", "a", "V", "V", "PST", "PL"]
    assert tokenizer.encode("ab\tPL;V") == [5, 4, 8, 7]  # in the order of the line
    assert tokenizer.encode_to_pieces("aü\tPL") == ([5, UNKNOWN, 8], [b"a", "ü".encode(), b""])
    pieces = [tokenizer.id_to_piece(number) for number in range(4, 10)]
    assert pieces == [b"b", b"a", b"V", b"", b"", b""]  # no text has a feature, so none is copied


def test_tokens_and_words_of_a_line(tokenizer):
    encoded = tokenizer.encode_with_words("b a\tV;XYZ")
    assert encoded.ids == [4, UNKNOWN, 5, 7, UNKNOWN]  # the space is not in the vocabulary
    assert encoded.tokens == ["b", "▁", "a", "V", "XYZ"]
    assert encoded.word_indices == [0, None, 1, 2, 3]
    assert tokenizer.steps.apply("b a\tV;XYZ").split() == ["b", "a", "V", "XYZ"]
    assert tokenizer.ids_to_word_indices([7, 4, 9, 5]) == [1, 0, 2, 0]  # of "ba", V, PST
    assert tokenizer.find_unknown_tokens("ü\tV;XYZ;PST;NEW") == ["XYZ", "NEW"]
    assert tokenizer.select_text("b a\tV;PL") == "b a"


def test_it_decodes_to_the_line_it_encoded(tokenizer):
    assert tokenizer.decode(tokenizer.encode("abba\tV;PST")) == "abba\tV;PST"
    assert tokenizer.decode([7, 4, 9, 5, 2, 3]) == "ba\tV;PST"  # the columns of a model's output come in any order
    assert tokenizer.decode([4, UNKNOWN, 7, UNKNOWN]) == "b<unk>\tV;<unk>"
    assert tokenizer.decode([]) == "\t"


def test_it_survives_saving(tokenizer):
    pair = saved_and_loaded(tokenizer)
    assert not pair.shared_vocab
    assert isinstance(pair.source, ColumnTokenizer)
    assert pair.source.names == ("lemma", "features")
    assert pair.source.description == "characters + words"
    assert pair.source.encode("baV\tV;PST") == tokenizer.encode("baV\tV;PST")
    assert pair.source.decode([4, 7, 8]) == "b\tV;PL"
    assert pair.to_json() == saved_and_loaded(pair.source).to_json()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([], "columns must be a list of 2 to 100 tokenizers"),
        ({}, "columns must be a list of 2 to 100 tokenizers"),
        ([{}, {}], "every column must have a name"),
        ([{"name": "a", "columns": []}] * 2, 'column 1: unknown kind "None"; choose from bpe, bytes, '),
    ],
)
def test_a_damaged_file_is_refused(tokenizer, columns, message):
    content = json.loads(TokenizerPair(tokenizer, tokenizer.columns[0]).to_json())
    content["source"] = {"columns": columns}
    with pytest.raises(RegardError) as caught:
        TokenizerPair.from_json(json.dumps(content), "t.json")
    assert str(caught.value).startswith(f"t.json: source: {message}")


@pytest.mark.parametrize(
    ("text", "ids"),
    [("ba\tPL", [4, 5, 8]), (" ba \t PL \n", [4, 5, 8]), ("ba PL", [4, 5, 8]), ("", []), ("ba\t", [4, 5])],
)
def test_a_line_has_its_columns_between_tabs_or_as_words(tokenizer, text, ids):
    assert tokenizer.encode(text) == ids


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ba", 'expected 2 columns separated by tabs, lemma and features, got 1: "ba"'),
        ("b a PL", 'expected 2 columns separated by tabs, lemma and features, got 1: "b a PL"'),
        ("b\ta\tPL", 'expected 2 columns separated by tabs, lemma and features, got 3: "b <TAB> a <TAB> PL"'),
    ],
)
def test_other_lines_are_refused(tokenizer, text, message):
    for call in (tokenizer.encode, tokenizer.encode_with_words, tokenizer.check_text, tokenizer.steps.apply):
        with pytest.raises(RegardError) as caught:
            call(text)
        assert str(caught.value) == message


def test_subwords_beside_a_tag():
    words = learn_tokenizer("bpe", ["the cat sleeps", "the dog sleeps"] * 3)
    tags = learn_tokenizer("words", ["de", "fr"])
    tokenizer = join_tokenizers(["text", "language"], [words, tags])
    assert tokenizer.kind == "bpe"
    encoded = tokenizer.encode_with_words("the cat\tfr")
    assert encoded.tokens == ["▁the", "▁cat", "fr"]
    assert encoded.word_indices == [0, 1, 2]
    dropped = tokenizer.encode("the cat\tfr", dropout=1.0)
    assert len(dropped) == 8 + 1  # a byte each: every merge is skipped; the tag is whole
    assert dropped[-1] == encoded.ids[-1] == words.size + 1


def test_the_kind_does_not_depend_on_the_order_of_the_columns():
    letters, tags = learn_tokenizer("characters", ["ab"]), learn_tokenizer("words", ["N PL"])
    assert join_tokenizers(["lemma", "tags"], [letters, tags]).kind == "characters"
    assert join_tokenizers(["tags", "lemma"], [tags, letters]).kind == "characters"
    assert join_tokenizers(["tags", "more"], [tags, tags]).kind == "words"


CELL = st.text(st.characters(exclude_categories=("Cs", "Z", "C")), min_size=1, max_size=8)
TOKEN = st.text(st.sampled_from("abV.1;+"), min_size=1, max_size=3).filter(lambda token: ";" not in token)


@given(st.lists(st.tuples(CELL, st.lists(TOKEN, min_size=1, max_size=4)), min_size=1, max_size=5))
def test_every_line_survives_a_round_trip(rows):
    lines = ["\t".join((cell, ";".join(tokens))) for cell, tokens in rows]
    letters = learn_tokenizer("characters", [cell for cell, _ in rows])
    features = learn_tokenizer("words", [";".join(tokens) for _, tokens in rows], steps=FEATURES)
    tokenizer = join_tokenizers(["a", "b"], [letters, features])
    for (cell, tokens), line in zip(rows, lines, strict=True):
        ids = tokenizer.encode(line)
        assert len(ids) == len(cell) + len(tokens)
        assert max(ids) < tokenizer.size
        assert UNKNOWN not in ids
        assert tokenizer.decode(ids) == line
        encoded = tokenizer.encode_with_words(line)
        assert encoded.ids == ids
        assert tokenizer.ids_to_word_indices(ids) == encoded.word_indices
        assert tokenizer.ids_to_tokens(ids)[len(cell) :] == tokens
    assert not any(character in token for _, tokens in rows for token in tokens for character in WHITESPACE)
