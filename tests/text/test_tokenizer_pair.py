import json

import pytest

from regard.errors import RegardError
from regard.text import KINDS, TextSteps, TokenizerPair, learn_tokenizer, learn_tokenizer_pair

SPELT = ["abbett", "abided", "aboud", "abrupt", "acmat"]
PHONES = ["AE B EH T", "AH B AY D IH D", "AH B AE B D", "AH B AH T", "AE D AH T"]


def written(pair):
    return json.loads(pair.to_json())


def test_each_side_gets_what_suits_it():
    pair, reasons = learn_tokenizer_pair(SPELT, PHONES * 3)
    assert (pair.source.kind, pair.target.kind, pair.shared_vocab) == ("characters", "words", False)
    assert reasons == [
        "source: characters: texts average 1.0 words and 6 characters",
        "target: words: only 8 distinct words, each seen 9 times on average",
    ]


def test_one_language_gets_one_vocabulary():
    pair, reasons = learn_tokenizer_pair(SPELT, [text[::-1] for text in SPELT])
    assert pair.shared_vocab
    assert pair.source.encode("tab") == pair.target.encode("tab")
    assert reasons[2] == "shared vocabulary: the sides share 100% of their characters"


def test_two_languages_get_two():  # of the source 1 word in 4 is shared, of the target 1 in 3
    pair, reasons = learn_tokenizer_pair(["a x y z"], ["a u v"], kind="words")
    assert not pair.shared_vocab
    assert (pair.source.size, pair.target.size) == (8, 7)
    assert reasons == [
        "source: words: as configured",
        "target: words: as configured",
        "separate vocabularies: the sides share 25% of their words",
    ]


def test_joint_if_asked():
    pair, reasons = learn_tokenizer_pair(["a x"], ["a u"], kind="words", shared_vocab=True)
    assert pair.shared_vocab
    assert pair.source.size == pair.target.size == 7
    assert len(reasons) == 2
    assert not learn_tokenizer_pair(["a"], ["a"], kind="words", shared_vocab=False)[0].shared_vocab


def test_a_side_can_have_its_own_kind_and_steps():
    steps = TextSteps(lowercase=True)
    pair, _ = learn_tokenizer_pair(["A b"], ["A b"], kind="words", target_kind="bytes", source_steps=steps)
    assert (pair.source.kind, pair.target.kind) == ("words", "bytes")
    assert pair.source.decode(pair.source.encode("A B")) == "a b"
    assert pair.target.decode(pair.target.encode("A B")) == "A B"


def test_joint_wants_one_kind():
    with pytest.raises(RegardError) as caught:
        learn_tokenizer_pair(["a"], ["a"], kind="words", target_kind="bytes", shared_vocab=True)
    assert str(caught.value) == "shared_vocab requires the same tokenizer for both sides, got words and bytes"


def test_an_unknown_kind():
    with pytest.raises(RegardError) as caught:
        learn_tokenizer_pair(["a"], ["a"], kind="bpee")
    assert str(caught.value) == 'unknown kind "bpee"; did you mean "bpe"?'


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_holds_all(kind, tmp_path):
    texts = ["der Hund  bellt", "die Katze schläft ☃", "<eos> der Hund"] * 5
    steps = TextSteps(lowercase=True)
    pair = TokenizerPair(learn_tokenizer(kind, texts), learn_tokenizer("words", texts, steps=steps))
    pair.save(tmp_path / "tokenizer.json")
    again = TokenizerPair.load(tmp_path / "tokenizer.json")
    assert again.to_json() == pair.to_json()
    assert (again.source.kind, again.target.steps, again.shared_vocab) == (kind, steps, False)
    assert again.source.encode_all(texts) == pair.source.encode_all(texts)
    if kind == "bpe":
        assert again.source.encode_all(texts, 0.5, 3) == pair.source.encode_all(texts, 0.5, 3)


def test_a_joint_pair_stays_joint(tmp_path):
    pair, _ = learn_tokenizer_pair(
        ["A b"], ["b A"], kind="words", shared_vocab=True, target_steps=TextSteps(lowercase=True)
    )
    pair.save(tmp_path / "tokenizer.json")
    again = TokenizerPair.load(str(tmp_path / "tokenizer.json"))
    assert again.shared_vocab
    assert again.target.steps == TextSteps(lowercase=True)
    assert written(pair)["target"]["model"] is None


def broken(change):
    content = written(learn_tokenizer_pair(["a"], ["b"], kind="words", shared_vocab=False)[0])
    change(content)
    return json.dumps(content)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("[]", "expected tokenizers of version 1, got none"),
        ('{"version": 2}', "expected tokenizers of version 1, got 2"),
        ('{"version": 1}', "source: missing tokenizer"),
        (
            broken(lambda content: content["target"].update(kind="wurds")),
            'target: unknown kind "wurds"; did you mean "words"?',
        ),
        (
            broken(lambda content: content["source"]["steps"].update(lowercase="yes")),
            'source: steps.lowercase: expected true or false, got "yes"',
        ),
        (
            broken(lambda content: content["source"]["steps"].update(upper=True)),
            'source: steps: unknown setting "upper"; '
            "choose from lowercase, moses, normal_form, normalize_punctuation, separator",
        ),
        (
            broken(lambda content: content["target"]["model"]["model"].update(vocab={"a": 0})),
            "target: the model is corrupt: it does not start with <pad>, <unk>, <bos>, <eos>",
        ),
    ],
)
def test_a_broken_file_is_named(tmp_path, text, message):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with pytest.raises(RegardError) as caught:
        TokenizerPair.load(path)
    assert str(caught.value) == f"{path}{' ' if message.startswith('is ') else ': '}{message}"


def test_a_shared_vocabulary_has_one_kind():
    content = written(learn_tokenizer_pair(["a"], ["a"], kind="words", shared_vocab=True)[0])
    content["target"]["kind"] = "characters"
    with pytest.raises(RegardError) as error:
        TokenizerPair.from_json(json.dumps(content), "here")
    assert str(error.value) == "here: target: kind must be words, that of the shared vocabulary, got characters"


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(RegardError) as caught:
        TokenizerPair.load(tmp_path / "none.json")
    assert str(caught.value) == f"cannot read {tmp_path / 'none.json'}: not found"
    (tmp_path / "latin.json").write_bytes(b'{"\xe9": 1}')
    with pytest.raises(RegardError) as caught:
        TokenizerPair.load(tmp_path / "latin.json")
    assert str(caught.value) == f"{tmp_path / 'latin.json'} is not valid UTF-8: byte 2"
