import json

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from regard import RegardError
from regard.interop.gpt2_tokenizer import END_TOKEN, End, from_gpt2, is_gpt2, read_vocabulary, tokenizer_files
from regard.text import KINDS, TextSteps, Tokenizer, Tokenizers, learn
from regard.text.learn import learn_text

TEXTS = ["the little dog doesn't see the cat", "l'été, naïve Zoë, 12 + 345 = 357\n\nthe cat", "सीता 两只 猫 ☃☃"] * 4
any_text = st.text(max_size=40) | st.lists(st.sampled_from([*TEXTS[0].split(), " ", "\n", "é", END_TOKEN])).map("".join)


def new_tokenizer(special=(END_TOKEN,)):
    """A tokenizer as Hugging Face trains them for GPT-2, its special tokens behind the others."""
    model = tokenizers.Tokenizer(models.BPE())
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    model.train_from_iterator(TEXTS, trainer)
    model.add_special_tokens(list(special))
    return model


def content_of(model):
    return json.loads(model.to_str())


def written(path, content):
    (path / "tokenizer.json").write_text(json.dumps(content))
    return path


THEIRS = new_tokenizer()


@pytest.fixture(scope="module")
def ours(tmp_path_factory):
    path = written(tmp_path_factory.mktemp("gpt2"), content_of(THEIRS))
    return from_gpt2(read_vocabulary(path), End(300, END_TOKEN), path)


@given(text=any_text)
def test_a_text_has_the_tokens_that_it_has_there(ours, text):
    theirs = tokenizers.Tokenizer.from_str(THEIRS.to_str())
    theirs.encode_special_tokens = True  # which takes no text for a special token
    ids = ours.encode(text)
    assert ids == [number + 4 for number in theirs.encode(text).ids]
    assert ours.decode(ids) == text


def test_it_is_kept_in_a_file(ours):
    again = Tokenizers.from_json(Tokenizers(ours, ours).to_json(), "file").target
    assert is_gpt2(again)
    assert again.encode(TEXTS[1]) == ours.encode(TEXTS[1])
    assert (again.kind, again.size, again.starts_with_space) == ("bpe", 304, False)


def test_the_older_form_of_a_file_is_read_too(tmp_path):
    content = content_of(THEIRS)
    wanted = read_vocabulary(written(tmp_path, content))
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    del content["pre_tokenizer"]["use_regex"]
    assert read_vocabulary(written(tmp_path, content)) == wanted
    assert len(wanted.entries) == 301
    assert wanted.merges[0] == tuple(content_of(THEIRS)["model"]["merges"][0])


@pytest.mark.parametrize("end", [300, 301])
def test_further_special_tokens_keep_their_order(end, tmp_path):
    theirs = new_tokenizer([END_TOKEN, "[PAD]"])
    vocabulary = read_vocabulary(written(tmp_path, content_of(theirs)))
    assert vocabulary.entries[300:] == [END_TOKEN, "[PAD]"]
    tokenizer = from_gpt2(vocabulary, End(end, vocabulary.entries[end]), tmp_path)
    assert tokenizer.tokens_of([3, 304]) == ["<eos>", vocabulary.entries[601 - end]]
    assert tokenizer.encode("the [PAD]") == [number + 4 for number in THEIRS.encode("the [PAD]").ids]
    files = tokenizer_files(tokenizer, End(end, vocabulary.entries[end]), 16)
    assert tokenizers.Tokenizer.from_str(files["tokenizer.json"]).get_vocab() == theirs.get_vocab()


@pytest.mark.parametrize("number", [0, 7, 300])
def test_there_and_back_is_the_same(number, tmp_path):
    content = content_of(THEIRS)
    entries = list(content["model"]["vocab"])
    entries.insert(number, END_TOKEN)
    content["model"]["vocab"] = {entry: place for place, entry in enumerate(entries)}
    content["added_tokens"][0]["id"] = number
    vocabulary, end = read_vocabulary(written(tmp_path, content)), End(number, END_TOKEN)
    assert vocabulary.entries == entries
    files = tokenizer_files(from_gpt2(vocabulary, end, tmp_path), end, 16)
    assert read_vocabulary(written(tmp_path, json.loads(files["tokenizer.json"]))) == vocabulary
    back = tokenizers.Tokenizer.from_str(files["tokenizer.json"])
    assert back.token_to_id(END_TOKEN) == number
    assert back.encode(f"the cat{END_TOKEN}").ids[-1] == number
    config = json.loads(files["tokenizer_config.json"])
    assert (config["eos_token"], config["bos_token"], config["model_max_length"]) == (END_TOKEN, END_TOKEN, 16)


@pytest.mark.parametrize("learnt", [learn, learn_text])
@pytest.mark.parametrize("kind", KINDS)
@given(text=any_text)
def test_ours_are_put_together_there_as_here(kind, learnt, text):
    ours, theirs = pair_of(kind, learnt)
    ids = theirs.encode(text).ids
    assert ids == [2, *ours.encode(text)]
    known = [number for number in ids if number != 1]  # there, what is unknown is special too
    assert theirs.decode(known, skip_special_tokens=True) == ours.decode(known)


PAIRS: dict[tuple[str, object], tuple[Tokenizer, tokenizers.Tokenizer]] = {}


def pair_of(kind, learnt):
    """A tokenizer of ours, and what is written of it; made once."""
    if (kind, learnt) not in PAIRS:
        ours = learnt(kind, TEXTS, size=None if kind == "bytes" else 300)
        theirs = tokenizers.Tokenizer.from_str(tokenizer_files(ours, None, 16)["tokenizer.json"])
        theirs.encode_special_tokens = True  # as its config says
        PAIRS[kind, learnt] = ours, theirs
    return PAIRS[kind, learnt]


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
        (without_byte, "the byte 33 has no token; GPT-2 has one for each"),
        (with_a_gap, "numbers are left out; 300 tokens need those from 0 on"),
        (
            lambda content: content["model"].update(type="Unigram", vocab=[["a", 0.0]]),
            'type is "Unigram"; GPT-2 has "BPE"',
        ),
        (
            lambda content: content["model"].update(end_of_word_suffix="</w>", merges=[]),
            'end_of_word_suffix is "</w>"; GPT-2 has none',
        ),
    ],
)
def test_another_kind_is_refused(change, message, tmp_path):
    content = content_of(THEIRS)
    change(content)
    with pytest.raises(RegardError) as error:
        read_vocabulary(written(tmp_path, content))
    assert str(error.value) == f"{tmp_path / 'tokenizer.json'}: {message}"


def test_what_cannot_be_taken_over_is_said(tmp_path):
    vocabulary = read_vocabulary(written(tmp_path, content_of(new_tokenizer([END_TOKEN, "<a b>"]))))
    with pytest.raises(RegardError) as error:
        from_gpt2(vocabulary, End(300, END_TOKEN), tmp_path)
    assert str(error.value) == f'{tmp_path}: the token "<a b>" is not made of bytes as GPT-2\'s are'
    with pytest.raises(RegardError) as error:
        tokenizer_files(learn("bytes", [], steps=TextSteps(lowercase=True)), None, 16)
    assert str(error.value) == "the tokenizer changes texts before it cuts them; GPT-2 has no such steps"
