"""The tagger against the CRF, torch's loss and the tagging schemes."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close

from regard.data.label_batches import build_tag_batch
from regard.data.tagged import TaggedSentence
from regard.errors import RegardError
from regard.layers.crf import Crf
from regard.models.attentive_tagger import AttentiveTagger, TaggerConfig
from regard.models.text_encoder import ENCODERS
from regard.schemes import Scheme, build_transitions, repair_tags
from regard.sentences import TagBatch
from regard.text.word_vocabulary import learn_word_vocabulary

TAGS: dict[Scheme, list[str]] = {
    "BIO": ["O", "B-X", "I-X", "B-Y", "I-Y"],
    "BIOES": ["O", "B-X", "I-X", "E-X", "S-X", "S-Y"],
    "BILOU": ["O", "B-X", "L-X", "U-Y"],
    "IOB1": ["O", "I-X", "B-X", "I-Y"],
    "IO": ["O", "I-X", "I-Y"],
    "plain": ["N", "V", "D"],
}
SMALL: dict[str, Any] = {"embedding": 6, "char_width": 4, "hidden": 4, "attention_heads": 2}
SENTENCES = [("a", "b", "c", "d"), ("b",), ("c", "a")]


def tagger(scheme: Scheme = "BIO", seed: int = 5, **settings: object) -> AttentiveTagger:
    """Return a model with large random parameters."""
    torch.manual_seed(seed)
    sizes = learn_word_vocabulary(SENTENCES, TAGS[scheme]).sizes()
    model = AttentiveTagger(TaggerConfig(**sizes, scheme=scheme, **{**SMALL, **settings}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_()
        if not model.config.crf:
            for parameter in model.crf.parameters():
                parameter.zero_()
        model.reader.embedding.words.weight[0] = 0
        if model.reader.embedding.char_encoder is not None:
            model.reader.embedding.char_encoder.letters.weight[0] = 0
    return model.double().eval()


def make_batch(scheme: Scheme, *sentences: tuple[str, ...], tags: bool = True) -> TagBatch:
    first = {"BILOU": "O", "plain": "V"}.get(scheme, "O")
    lexicon = learn_word_vocabulary(SENTENCES, TAGS[scheme])
    return build_tag_batch(
        [TaggedSentence(words, (first,) * len(words)) for words in sentences], lexicon, with_tags=tags
    )


def rules(scheme: Scheme) -> dict[str, torch.Tensor]:
    start, between, end = build_transitions(TAGS[scheme], scheme)
    return {"allowed": between, "allowed_start": start, "allowed_end": end}


@pytest.mark.parametrize("scheme", TAGS)
def test_without_a_crf_it_is_the_best_of_the_tags_that_may_follow(scheme):
    model = tagger(scheme, crf=False)
    batch = make_batch(scheme, *SENTENCES)
    scores = model(batch)
    assert_close(scores, model.output(model.reader(batch.sentences)).log_softmax(-1))
    lengths = batch.sentences.lengths
    unlearned = Crf(len(TAGS[scheme]), **rules(scheme))
    assert torch.equal(model.decode(scores, batch), unlearned.decode(scores.float(), lengths)[0])
    assert batch.tags is not None
    expected = functional.nll_loss(scores.flatten(0, 1), batch.tags.flatten(), ignore_index=-1, reduction="sum")
    assert_close(model.loss(scores, batch), expected.float())


def test_with_a_crf_it_is_that():
    model, batch = tagger(), make_batch("BIO", *SENTENCES)
    crf = Crf(5, **rules("BIO"))
    crf.load_state_dict({name: tensor.float() for name, tensor in model.crf.state_dict().items()}, strict=True)
    crf.allowed, crf.allowed_start, crf.allowed_end = (
        allowed.bool() for allowed in (crf.allowed, crf.allowed_start, crf.allowed_end)
    )
    scores, lengths = model(batch), batch.sentences.lengths
    assert_close(scores, model.output(model.reader(batch.sentences)))
    assert torch.equal(model.decode(scores, batch), crf.decode(scores.float(), lengths)[0])
    assert batch.tags is not None
    expected = -crf.log_likelihood(scores.float(), batch.tags, lengths).sum()
    assert_close(model.loss(scores, batch).double(), expected.double(), rtol=1e-5, atol=1e-5)
    actual = model.probabilities(scores, batch)
    assert_close(actual.double(), crf.marginals(scores.float(), lengths).double(), rtol=1e-5, atol=1e-6)
    assert_close(actual.sum(-1).float(), torch.tensor([[1.0, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]))


def test_weights_and_smoothing_are_those_of_torch():
    model, batch = tagger(crf=False), make_batch("BIO", *SENTENCES)
    batch = TagBatch(batch.sentences, torch.tensor([[0, 1, 2, -1], [3, -1, -1, -1], [-1, 4, -1, -1]]))
    weights = torch.tensor([1.0, 2.0, 0.5, 4.0, 3.0])
    scores = model(batch)
    known = [(0, 0, 0), (0, 1, 1), (0, 2, 2), (1, 0, 3), (2, 1, 4)]
    rows, tags = (
        torch.stack([scores[row, word] for row, word, _ in known]).float(),
        torch.tensor([t for _, _, t in known]),
    )
    expected = functional.cross_entropy(rows, tags, weight=weights, label_smoothing=0.1, reduction="sum")
    assert_close(model.loss(scores, batch, smoothing=0.1, weights=weights), expected)


@given(
    st.sampled_from(list(TAGS)),
    st.booleans(),
    st.integers(0, 10**6),
    st.lists(st.lists(st.sampled_from("abcdz"), min_size=1, max_size=7).map(tuple), min_size=1, max_size=3),
)
def test_what_is_answered_keeps_to_the_scheme(scheme, crf, seed, sentences):
    model = tagger(scheme, seed, crf=crf, encoder="embedding", char_encoder="none").requires_grad_(False)
    batch = make_batch(scheme, *sentences, tags=False)
    best = model.decode(model(batch), batch)
    answers = [
        tuple(TAGS[scheme][tag] for tag in row[: len(words)])
        for row, words in zip(best.tolist(), sentences, strict=True)
    ]
    assert repair_tags(answers, scheme) == (answers, 0)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_batch_gives_each_what_it_gets_alone(encoder):
    model = tagger(encoder=encoder, char_encoder="attention")
    together = make_batch("BIO", *SENTENCES)
    scores = model(together)
    for row, words in enumerate(SENTENCES):
        alone = make_batch("BIO", words)
        assert_close(scores[row, : len(words)], model(alone)[0])
        assert (
            model.decode(scores, together)[row, : len(words)].tolist() == model.decode(model(alone), alone)[0].tolist()
        )


@pytest.mark.parametrize("crf", [True, False])
def test_everything_is_learned_but_a_crf_that_is_not_asked_for(crf):
    model = tagger(crf=crf, encoder="both").train()
    batch = make_batch("BIO", *SENTENCES)
    model.loss(model(batch), batch).backward()
    for name, parameter in model.named_parameters():
        if name.startswith("crf.") and not crf:
            assert parameter.grad is None
            assert parameter.abs().max() == 0
        else:
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


def test_the_paths_of_its_attention():
    assert tagger(encoder="rnn").attentions == {}
    assert tagger(attention_layers=2).attentions == {
        "self": ("reader.stack.layers.0.attention", "reader.stack.layers.1.attention")
    }


def test_what_is_refused():
    with pytest.raises(RegardError, match=r"^hidden must be at least 1, got 0$"):
        TaggerConfig(words=9, pieces=9, labels=("O", "B-X"), hidden=0)
