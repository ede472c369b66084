"""From a model to targets: greedy, sampled, the best of a beam, or given ones scored; written once for every model.

A model takes part by the step protocol of `regard.models.seq2seq`, or of
`regard.models.language` where it writes texts without a source. <pad>, <bos> and,
unless allowed, <unk> are never chosen; the probabilities of all other tokens stay those
of the model's own softmax, in which these have their share.
"""

from regard.decoding.beam import Search, beam_search, search_steps
from regard.decoding.corpus import decode_all
from regard.decoding.forced import forced_weights, score_targets, token_log_probabilities
from regard.decoding.generate import continuations, generate, generate_whole, text_weights
from regard.decoding.greedy import greedy
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.reading import text_log_probabilities
from regard.decoding.sample import sample
from regard.decoding.steps import default_longest, target_log_probabilities

__all__ = [
    "Hypothesis",
    "Search",
    "beam_search",
    "continuations",
    "decode_all",
    "default_longest",
    "forced_weights",
    "generate",
    "generate_whole",
    "greedy",
    "sample",
    "score_targets",
    "search_steps",
    "target_log_probabilities",
    "text_log_probabilities",
    "text_weights",
    "token_log_probabilities",
]
