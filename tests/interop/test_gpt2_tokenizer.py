import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard import RegardError
from regard.interop.gpt2_tokenizer import (
    END_TOKEN,
    EndToken,
    build_tokenizer_files,
    from_gpt2,
    is_gpt2_tokenizer,
    read_vocabulary,
)
from regard.text import KINDS, TextSteps, Tokenizer, TokenizerPair, learn_tokenizer
from regard.text.learn import learn_lm_tokenizer

TEXTS = ["the little dog doesn't see the cat", "l'été, naïve Zoë, 12 + 345 = 357\n\nthe cat", "सीता 两只 猫 ☃☃"] * 4
any_text = st.text(max_size=40) | st.lists(st.sampled_from([*TEXTS[0].split(), " ", "\n", "é", END_TOKEN])).map("".join)


def new_tokenizer(special=(END_TOKEN,)):
    """Train a GPT-2 tokenizer with Hugging Face's library, with special tokens after the others."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    model.train_from_iterator(TEXTS, trainer)
    model.add_special_tokens(list(special))
    return model


def get_content(model):
    return json.loads(model.to_str())


def written(path, content):
    (path / "tokenizer.json").write_text(json.dumps(content))
    return path


REFERENCE = new_tokenizer()


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    path = written(tmp_path_factory.mktemp("gpt2"), get_content(REFERENCE))
    return from_gpt2(read_vocabulary(path), EndToken(300, END_TOKEN), path)


@given(text=any_text)
def test_a_text_has_the_tokens_that_it_has_there(converted, text):
    reference = tokenizers.Tokenizer.from_str(REFERENCE.to_str())
    reference.encode_special_tokens = True  # text is never encoded as a special token
    ids = converted.encode(text)
    assert ids == [number + 4 for number in reference.encode(text).ids]
    assert converted.decode(ids) == text


def test_it_is_kept_in_a_file(converted):
    again = TokenizerPair.from_json(TokenizerPair(converted, converted).to_json(), "file").target
    assert is_gpt2_tokenizer(again)
    assert again.encode(TEXTS[1]) == converted.encode(TEXTS[1])
    assert (again.kind, again.size, again.starts_with_space) == ("bpe", 304, False)


def test_the_older_form_of_a_file_is_read_too(tmp_path):
    content = get_content(REFERENCE)
    expected = read_vocabulary(written(tmp_path, content))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    del content["pre_tokenizer"]["use_regex"]
    assert read_vocabulary(written(tmp_path, content)) == expected
    assert len(expected.entries) == 301
    assert expected.merges[0] == tuple(get_content(REFERENCE)["model"]["merges"][0])


@pytest.mark.parametrize("end", [300, 301])
def test_further_special_tokens_keep_their_order(end, tmp_path):
    reference = new_tokenizer([END_TOKEN, "[PAD]"])
    vocabulary = read_vocabulary(written(tmp_path, get_content(reference)))
    assert vocabulary.entries[300:] == [END_TOKEN, "[PAD]"]
    tokenizer = from_gpt2(vocabulary, EndToken(end, vocabulary.entries[end]), tmp_path)
    assert tokenizer.ids_to_tokens([3, 304]) == ["<eos>", vocabulary.entries[601 - end]]
    assert tokenizer.encode("the [PAD]") == [number + 4 for number in REFERENCE.encode("the [PAD]").ids]
    files = build_tokenizer_files(tokenizer, EndToken(end, vocabulary.entries[end]), 16)
    assert tokenizers.Tokenizer.from_str(files["tokenizer.json"]).get_vocab() == reference.get_vocab()


@pytest.mark.parametrize("number", [0, 7, 300])
def test_there_and_back_is_the_same(number, tmp_path):
    content = get_content(REFERENCE)
    entries = list(content["model"]["vocab"])
    entries.insert(number, END_TOKEN)
    content["model"]["vocab"] = {entry: position for position, entry in enumerate(entries)}
    content["added_tokens"][0]["id"] = number
    vocabulary, end = read_vocabulary(written(tmp_path, content)), EndToken(number, END_TOKEN)
    assert vocabulary.entries == entries
    files = build_tokenizer_files(from_gpt2(vocabulary, end, tmp_path), end, 16)
    assert read_vocabulary(written(tmp_path, json.loads(files["tokenizer.json"]))) == vocabulary
    back = tokenizers.Tokenizer.from_str(files["tokenizer.json"])
    assert back.token_to_id(END_TOKEN) == number
    assert back.encode(f"the cat{END_TOKEN}").ids[-1] == number
    config = json.loads(files["tokenizer_config.json"])
    assert (config["eos_token"], config["bos_token"], config["model_max_length"]) == (END_TOKEN, END_TOKEN, 16)


@pytest.mark.parametrize("learned", [learn_tokenizer, learn_lm_tokenizer])
@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text)
def test_ours_are_put_together_there_as_here(kind, learned, text):
    converted, reference = make_pair(kind, learned)
    ids = reference.encode(text).ids
    assert ids == [2, *converted.encode(text)]
    known = [number for number in ids if number != 1]  # in Transformers, <unk> is special too
    assert reference.decode(known, skip_special_tokens=True) == converted.decode(known)


PAIRS: dict[tuple[str, object], tuple[Tokenizer, tokenizers.Tokenizer]] = {}


def make_pair(kind, learned):
    """Return a tokenizer and its exported version, cached."""
    if (kind, learned) not in PAIRS:
        converted = learned(kind, TEXTS, vocab_size=None if kind == "bytes" else 300)
        reference = tokenizers.Tokenizer.from_str(build_tokenizer_files(converted, None, 16)["tokenizer.json"])
        reference.encode_special_tokens = True  # as its config says
        PAIRS[kind, learned] = converted, reference
    return PAIRS[kind, learned]


def without_byte(content):
    content["model"]["merges"] = []
    content["model"]["vocab"] = {
        entry: number - (number > 0) for entry, number in content["model"]["vocab"].items() if entry != "!"
    }
    content["added_tokens"] = []


def with_a_gap(content):
    content["added_tokens"] = []
    content["model"]["vocab"][list(content["model"]["vocab"])[-1]] = 400


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_byte, "expected a token for every byte, got none for byte 33"),
        (with_a_gap, "token ids must be 0 to 299 without gaps"),
        (
            lambda content: content["model"].update(type="Unigram", vocab=[["a", 0.0]]),
            'type must be "BPE" for GPT-2, got "Unigram"',
        ),
        (
            lambda content: content["model"].update(end_of_word_suffix="</w>", merges=[]),
            'end_of_word_suffix must be null for GPT-2, got "</w>"',
        ),
        (
            lambda content: content.update(
                normalizer={"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": ""}
            ),
            'normalizer must be null for GPT-2, got {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "conten…',
        ),
        (
            lambda content: content.update(pre_tokenizer={}),
            'pre_tokenizer type must be "ByteLevel" for GPT-2, got null',
        ),
        (lambda content: content["model"].update(vocab=[]), "vocab must be an object"),
        (lambda content: content["model"].update(merges=[["a"]]), 'expected a merge of two entries, got ["a"]'),
        (
            lambda content: content["model"].update(merges=["a qqq"]),
            'merge "a qqq": "qqq" is not in the vocabulary',
        ),
        (lambda content: content.update(added_tokens=[3]), "expected an added token with its content, got 3"),
        (
            lambda content: content["added_tokens"][0].update(special=False),
            'added tokens that are not special are not supported, got "<|endoftext|>"',
        ),
    ],
)
def test_another_kind_is_refused(change, message, tmp_path):
    content = get_content(REFERENCE)
    change(content)
    with pytest.raises(RegardError) as error:
        read_vocabulary(written(tmp_path, content))
    assert str(error.value) == f"{tmp_path / 'tokenizer.json'}: {message}"


def test_what_cannot_be_taken_over_is_said(tmp_path):
    vocabulary = read_vocabulary(written(tmp_path, get_content(new_tokenizer([END_TOKEN, "<a b>"]))))
    with pytest.raises(RegardError) as error:
        from_gpt2(vocabulary, EndToken(300, END_TOKEN), tmp_path)
    assert str(error.value) == f'{tmp_path}: expected byte-level tokens, got "<a b>"'
    with pytest.raises(RegardError) as error:
        from_gpt2(vocabulary, EndToken(0, "!"), tmp_path)
    assert str(error.value) == f'{tmp_path}: expected byte-level tokens, got "<a b>"'
    vocabulary = read_vocabulary(written(tmp_path, get_content(REFERENCE)))
    with pytest.raises(RegardError) as error:
        from_gpt2(vocabulary, EndToken(0, "!"), tmp_path)
    assert str(error.value) == f'{tmp_path}: expected an end token that is no part of words, got "!"'
    with pytest.raises(RegardError) as error:
        build_tokenizer_files(learn_tokenizer("bytes", [], steps=TextSteps(lowercase=True)), None, 16)
    assert str(error.value) == "cannot export a tokenizer with preprocessing steps; GPT-2 does not support them"


@pytest.mark.parametrize("change", [{"model": None}, {"model": {}}, {"added_tokens": {"a": 1}}, {"pre_tokenizer": [1]}])
def test_a_file_without_its_parts_is_refused(change, tmp_path):
    with pytest.raises(RegardError) as error:
        read_vocabulary(written(tmp_path, {**get_content(REFERENCE), **change}))
    parts = "model and pre_tokenizer must be objects, and added_tokens a list"
    assert str(error.value) == f"{tmp_path}/tokenizer.json is corrupt: {parts}"
