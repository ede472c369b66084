import pytest

from regard import RegardError
from regard.text import TextSteps
from regard.text.column_units import ColumnUnit, choose_column_unit
from regard.text.learn_columns import Column, learn_column_tokenizer, select_spelled

LEMMAS, FORMS = ["gehen", "laufen", "sehen", "stehen"], ["gingst", "liefen", "sah", "stand"]
SENTENCES = [f"the {a} cat sees a {b} dog in the garden" for a in LEMMAS for b in FORMS]


@pytest.mark.parametrize(
    ("cells", "beside", "unit"),
    [
        (["V;PST;2;SG", "V;PST;1;PL", "V;PST;3;SG", "V;PST"] * 2, FORMS * 2, ColumnUnit("tokens", ";")),
        (["V|PST", "V|PRS"] * 4, FORMS * 2, ColumnUnit("tokens", "|")),
        (["pos=V,num=SG", "pos=V,num=PL"] * 4, FORMS * 2, ColumnUnit("tokens", ",")),
        (["PL", "PST"] * 5, ["cats", "walked"] * 5, ColumnUnit("tokens")),  # tags without a separator
        (["V PST", "V PRS"] * 10, ["ging", "geht"] * 10, ColumnUnit("words")),  # spaces: words are whole, too
        (LEMMAS, FORMS, ColumnUnit("letters")),
        (["gehen"] * 20, ["gehst", "geht"] * 10, ColumnUnit("letters")),  # few lemmas with many forms are no tags
        (SENTENCES, SENTENCES, ColumnUnit("words")),
        ([f"no, {text}" for text in FORMS], FORMS, ColumnUnit("letters")),  # a comma separates nothing that repeats
    ],
)
def test_the_unit_is_seen_in_the_cells(cells, beside, unit):
    assert choose_column_unit(cells, beside) == unit


def learn(*columns: Column, texts: list[str], beside: list[str], **options):
    return learn_column_tokenizer(columns, texts, beside, **options)


def test_letters_beside_features():
    texts = [f"{lemma}\tV;{number}" for lemma in LEMMAS for number in ("SG", "PL")]
    forms = [form for form in FORMS for _ in range(2)]
    side = learn(Column("lemma", None, "1"), Column("tags"), texts=texts, beside=forms)
    assert side.description == "1 lemma (letters) + tags (whole tokens separated by ;)"
    assert side.tokenizer.encode_with_words("sehen\tV;PL").tokens == ["s", "e", "h", "e", "n", "V", "PL"]


def test_what_is_given_is_taken():
    texts = ["ab\tV;PL", "cd\tV;SG"] * 4
    side = learn(Column("a", "words"), Column("b", "letters"), texts=texts, beside=["x"] * 8)
    assert side.description == "a (words) + b (letters)"
    assert side.tokenizer.encode_with_words("ab\tV;PL").tokens == ["ab", "V", ";", "P", "L"]
    side = learn(Column("a"), Column("b", "tokens"), texts=texts, beside=["abcd"] * 8, kind="bytes")
    assert side.description == "a (bytes) + b (whole tokens separated by ;)"


def test_what_is_spelled_leaves_out_whole_tokens_unless_there_is_nothing_else():
    texts, forms = ["N;PL\tgo on", "N;SG\tgo"] * 4, ["going on", "go"] * 4
    tags, lemma = Column("tags", "tokens"), Column("lemma", "letters")
    assert select_spelled([tags, lemma], texts, forms) == (["go on", "go"] * 4, "characters")
    assert select_spelled([lemma], forms, texts) == (forms, "characters")
    assert select_spelled([tags, Column("more", "tokens")], texts, forms) == (texts, "words")


def test_tokens_of_one_column_are_separated_by_what_is_there():
    phones = learn(Column("phones", "tokens"), texts=["a b ʒ̃", "d ʒ"], beside=["x", "y"])
    assert phones.description == "phones (whole tokens)"
    assert phones.tokenizer.encode_with_words("d ʒ ʒ̃").tokens == ["d", "ʒ", "ʒ̃"]
    tags = learn(Column("tags", "tokens"), texts=["N;PL"] * 2, beside=["x"] * 2).tokenizer
    assert tags.decode(tags.encode("PL;N")) == "PL;N"


def test_steps_do_not_touch_whole_tokens():
    steps = TextSteps(lowercase=True)
    tokenizer = learn(Column("a"), Column("b"), texts=["Ab\tV;PL"] * 3, beside=["ab"] * 3, steps=steps).tokenizer
    assert tokenizer.encode_with_words("AB\tV;PL").tokens == ["a", "b", "V", "PL"]
    assert tokenizer.steps.apply("AB\tV;PL") == "ab\tV PL"


def test_a_space_inside_a_token_does_not_split_it():
    assert TextSteps(separator=";").apply("past participle; PL;") == "past_participle PL"


@pytest.mark.parametrize("separator", [" ", "", ";;"])
def test_a_separator_is_one_character(separator):
    with pytest.raises(RegardError) as caught:
        TextSteps(separator=separator)
    assert str(caught.value) == f'separator: expected one character that is not a space, got "{separator}"'


def test_an_unknown_kind_is_refused():
    with pytest.raises(RegardError) as caught:
        learn(Column("a"), Column("b", "tokens"), texts=["x\ty"] * 2, beside=["x"] * 2, kind="sounds")
    assert str(caught.value) == ('unknown kind "sounds"; choose from bpe, bytes, characters, unigram, words')
