import copy
import json

import pytest

from regard import RegardError
from regard.text import KINDS, learn_tokenizer
from regard.text.learn import learn_lm_tokenizer
from regard.text.saved_model import parse_model

TEXTS = ["a small cat", "l'été 12 + 345\n☃", "a small dog"]


def content_of(kind, learn=learn_tokenizer):
    return json.loads(learn(kind, TEXTS).model.to_str())


CONTENT = {kind: content_of(kind) for kind in KINDS}


@pytest.mark.parametrize("learn", [learn_tokenizer, learn_lm_tokenizer])
@pytest.mark.parametrize("kind", KINDS)
def test_what_we_write_comes_back_as_it_was(kind, learn):
    content = content_of(kind, learn)
    assert json.loads(parse_model(content, kind, "here").to_str()) == content


def put(*steps):
    *before, name, value = steps

    def change(content):
        for step in before:
            content = content[step]
        content[name] = value

    return change


def rename(old, new):
    def change(content):
        vocab = content["model"]["vocab"]
        content["model"]["vocab"] = {new if entry == old else entry: number for entry, number in vocab.items()}

    return change


BACKTRACKING = {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "content": "x"}
GROWING = {"type": "Replace", "pattern": {"String": "a"}, "content": "aa"}
SPLIT = {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior": "Removed", "invert": False}

BROKEN = {
    "no object": ("words", lambda content: content.pop("model"), "expected an object with a model"),
    "backtracking": (
        "words",
        put("normalizer", BACKTRACKING),
        'unknown normalizer {"type": "Replace", "pattern": {"Regex": "(a*)*b"}, "conten…',
    ),
    "growing": (
        "bpe",
        put("normalizer", {"type": "Sequence", "normalizers": [GROWING] * 40}),
        'unknown normalizer {"type": "Sequence", "normalizers": [{"type": "Replace", "p…',
    ),
    "prepend": ("bpe", put("normalizer", "prepend", "xx"), 'unknown normalizer {"type": "Prepend", "prepend": "xx"}'),
    "split": (
        "words",
        put("pre_tokenizer", SPLIT),
        'unknown pre_tokenizer {"type": "Split", "pattern": {"Regex": "(a*)*b"}, "behavior…',
    ),
    "more": (
        "bytes",
        put("pre_tokenizer", "more", [1]),
        'unknown pre_tokenizer {"type": "ByteLevel", "add_prefix_space": false, "trim_offs…',
    ),
    "added": ("words", put("added_tokens", [{"id": 9}]), 'added_tokens must be null, got [{"id": 9}]'),
    "decoder": ("words", put("decoder", {"type": "Fuse"}), 'decoder must be null, got {"type": "Fuse"}'),
    "type": ("words", put("model", "type", "WordPiece"), 'type must be "WordLevel" for words, got "WordPiece"'),
    "unknown": ("words", put("model", "unk_token", "a"), 'unk_token must be " <unk>" for words, got "a"'),
    "dropout": ("bpe", put("model", "dropout", 2), '"dropout" is not supported, got 2'),
    "vocab": ("words", put("model", "vocab", 3), "vocab must be an object"),
    "gap": ("words", put("model", "vocab", "small", 99), "token ids must be 0 to 12 without gaps"),
    "true": ("words", put("model", "vocab", "small", True), "token ids must be 0 to 12 without gaps"),
    "reserved": ("words", rename(" <bos>", "<bos>"), "it does not start with <pad>, <unk>, <bos>, <eos>"),
    "surrogate": ("words", rename("small", "\ud800"), 'invalid entry "\\ud800" in the vocabulary'),
    "empty": ("characters", rename("a", ""), 'invalid entry "" in the vocabulary'),
    "bytes": ("bytes", rename("!", "€"), 'expected byte-level entries, got "\\u20ac"'),
    "missing byte": ("bytes", rename("!", "!!"), 'expected an entry for every byte, got none for "!"'),
    "merge": ("bpe", put("model", "merges", [["a", 1]]), 'expected a merge of two entries, got ["a", 1]'),
    "merged": ("bpe", put("model", "merges", ["q q"]), 'merge "q q": "qq" is not in the vocabulary'),
    "merges": ("bpe", put("model", "merges", {}), "merges must be a list of pairs"),
    "merges of bytes": ("bytes", lambda content: merge_bytes(content), "merges must be empty for bytes"),
    "score": (
        "unigram",
        put("model", "vocab", 9, ["%", float("nan")]),
        'expected an entry with its log-probability, got ["%", NaN]',
    ),
    "infinite score": (
        "unigram",
        put("model", "vocab", 9, ["%", float("-inf")]),
        'expected an entry with its log-probability, got ["%", -Infinity]',
    ),
    "twice": ("unigram", put("model", "vocab", 9, ["!", -1.0]), "the vocabulary has the same entry twice"),
    "unk_id": ("unigram", put("model", "unk_id", 10**6), "unk_id must be 1, got 1000000"),
    "list": ("unigram", put("model", "vocab", {}), "vocab must be a list"),
}


def merge_bytes(content):
    model = content["model"]
    model["vocab"]["ab"] = len(model["vocab"])
    model["merges"] = [["a", "b"]]


@pytest.mark.parametrize("name", BROKEN)
def test_what_we_do_not_write_is_refused(name):
    kind, change, message = BROKEN[name]
    content = copy.deepcopy(CONTENT[kind])
    change(content)
    with pytest.raises(RegardError) as error:
        parse_model(content, kind, "here")
    assert str(error.value) == f"here: the model is corrupt: {message}"


def test_settings_that_are_off_do_not_matter():  # another version of the library may write more or fewer
    content = copy.deepcopy(CONTENT["bpe"])
    content["model"]["added_later"] = content["later"] = None
    del content["model"]["fuse_unk"]
    assert json.loads(parse_model(content, "bpe", "here").to_str()) == CONTENT["bpe"]
