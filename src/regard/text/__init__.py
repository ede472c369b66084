"""Text <-> numbers: characters, words, subwords and bytes."""

from regard.text.choose import Choice, choose_kind, choose_text_kind, vocabulary_size
from regard.text.learn import learn, learn_text
from regard.text.lexicon import Lexicon, learn_lexicon, words_of
from regard.text.pair import Tokenizers, learn_pair
from regard.text.steps import TextSteps
from regard.text.tokenizer import KINDS, Encoded, Tokenizer

__all__ = [
    "KINDS",
    "Choice",
    "Encoded",
    "Lexicon",
    "TextSteps",
    "Tokenizer",
    "Tokenizers",
    "choose_kind",
    "choose_text_kind",
    "learn",
    "learn_lexicon",
    "learn_pair",
    "learn_text",
    "vocabulary_size",
    "words_of",
]
