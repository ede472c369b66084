"""Tokenizers: characters, words, subwords and bytes."""

from regard.text.choose import KindChoice, choose_kind, choose_text_kind, choose_vocabulary_size
from regard.text.learn import learn_lm_tokenizer, learn_tokenizer
from regard.text.steps import TextSteps
from regard.text.tokenizer import KINDS, EncodedText, Tokenizer
from regard.text.tokenizer_pair import TokenizerPair, learn_tokenizer_pair
from regard.text.word_vocabulary import WordVocabulary, learn_word_vocabulary, split_words

__all__ = [
    "KINDS",
    "EncodedText",
    "KindChoice",
    "TextSteps",
    "Tokenizer",
    "TokenizerPair",
    "WordVocabulary",
    "choose_kind",
    "choose_text_kind",
    "choose_vocabulary_size",
    "learn_lm_tokenizer",
    "learn_tokenizer",
    "learn_tokenizer_pair",
    "learn_word_vocabulary",
    "split_words",
]
