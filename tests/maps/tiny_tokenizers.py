"""Tokenizers of the three common kinds with a handful of tokens, so that what they do can be worked out by hand."""

import pytest

pytest.importorskip("transformers")

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

ANIMAL = "the animal sees it"


def of_bytes():
    """Byte-level BPE without special tokens around a text, as of GPT-2."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = "t h, th e, a n, Ġ an, a l, i m, Ġ s, i t, Ġ it"
    merges = [tuple(pair.split()) for pair in pairs.split(", ")]
    entries = ["<end>", *alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(models.BPE({entry: number for number, entry in enumerate(entries)}, merges))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>")


def of_word_pieces():
    """WordPiece between [CLS] and [SEP], as of BERT."""
    entries = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "ani", "##mal", "sees", "it", "##s"]
    ids = {entry: number for number, entry in enumerate(entries)}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", pad_token="[PAD]"
    )


def of_sentence_pieces():
    """A unigram model with </s> at the end, as of T5 and Marian."""
    entries = ["<pad>", "<unk>", "</s>", "▁the", "▁ani", "mal", "▁sees", "▁it", "▁das", "▁tier", "chen"]
    tokenizer = Tokenizer(models.Unigram([(entry, -1.0) for entry in entries], unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>", pad_token="<pad>")
