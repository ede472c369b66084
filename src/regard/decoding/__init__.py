"""Decoding: greedy, sampling, beam search, and scoring of given targets, for every model.

Models implement `start` and `step` of `regard.models.Seq2Seq` or `regard.models.LanguageModel`.
<pad>, <bos> and, unless allowed, <unk> are never generated. The probabilities of the other
tokens are not renormalized.
"""

from regard.decoding.beam import BeamSearch, beam_search, iter_beam_search
from regard.decoding.corpus import decode_all
from regard.decoding.forced import forced_weights, generate_probabilities, score_targets, token_log_probabilities
from regard.decoding.generate import generate, generate_beam, generate_hypotheses, text_weights
from regard.decoding.greedy import greedy
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.sample import sample
from regard.decoding.score_text import text_log_probabilities
from regard.decoding.steps import default_max_length, target_log_probabilities

__all__ = [
    "BeamSearch",
    "Hypothesis",
    "beam_search",
    "decode_all",
    "default_max_length",
    "forced_weights",
    "generate",
    "generate_beam",
    "generate_hypotheses",
    "generate_probabilities",
    "greedy",
    "iter_beam_search",
    "sample",
    "score_targets",
    "target_log_probabilities",
    "text_log_probabilities",
    "text_weights",
    "token_log_probabilities",
]
