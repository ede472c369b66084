"""The classifier against results computed by hand, and its loss against torch's."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional
from torch.testing import assert_close

from regard.data.label_batches import build_label_batch
from regard.data.labeled import LabeledText
from regard.errors import RegardError
from regard.models.attentive_classifier import AttentiveClassifier, ClassifierConfig, label_loss
from regard.models.text_encoder import ENCODERS
from regard.sentences import LabelBatch
from regard.text.word_vocabulary import learn_word_vocabulary, split_words

TEXTS = ["a b c", "b", "c c d e f g h a b", "d e", "f a a a"]
LEXICON = learn_word_vocabulary([split_words(text) for text in TEXTS], ["x", "y", "z"])
SMALL: dict[str, Any] = {"embedding": 6, "char_width": 4, "hidden": 4, "attention_heads": 2}
PLAIN = {"encoder": "embedding", "char_encoder": "none", "pooling": "mean"}


def classifier(**changes: object) -> AttentiveClassifier:
    """Return a model with large random parameters."""
    torch.manual_seed(4)
    model = AttentiveClassifier(ClassifierConfig(**LEXICON.sizes(), **{**SMALL, **changes}))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.7)
        words = model.input_embedding
        for embedding in (words.words, *([words.char_encoder.letters] if words.char_encoder else [])):
            embedding.weight[0] = 0
    return model.double().eval()


def make_batch(examples: list[LabeledText], *, context_size: int = 0, text_pairs: bool = False) -> LabelBatch:
    return build_label_batch(examples, LEXICON, context_size=context_size, text_pairs=text_pairs, max_length=50)


def one_by_one(model: AttentiveClassifier, examples: list[LabeledText], **how: Any) -> torch.Tensor:
    return torch.cat([model(make_batch([example], **how)) for example in examples])


def test_the_mean_of_embeddings_is_a_linear_model():
    model = classifier(**PLAIN)
    actual = model(make_batch([LabeledText(text, ("x",)) for text in TEXTS]))
    for text, row in zip(TEXTS, actual, strict=True):
        ids = [LEXICON.words.index(word) + 4 for word in text.split()]
        mean = sum(model.reader.embedding.words.weight[number] for number in ids) / len(ids)
        assert_close(row, model.output.weight @ mean + model.output.bias)


def test_of_a_pair_the_label_is_made_of_both_their_difference_and_their_product():
    model = classifier(**PLAIN, text_pairs=True)
    examples = [LabeledText("a b", ("x",), "c"), LabeledText("c", ("y",), "a b")]
    actual = model(make_batch(examples, text_pairs=True))

    def mean(text: str) -> torch.Tensor:
        vectors = model.input_embedding.words.weight
        return torch.stack([vectors[LEXICON.words.index(word) + 4] for word in text.split()]).mean(0)

    a, b = mean("a b"), mean("c")
    for row, (one, other) in zip(actual, ((a, b), (b, a)), strict=True):
        features = torch.cat([one, other, (one - other).abs(), one * other])
        assert_close(row, model.output.weight @ features + model.output.bias)


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("spelling", ["max", "attention"])
def test_a_batch_gives_each_what_it_gets_alone(encoder, spelling):
    model = classifier(encoder=encoder, char_encoder=spelling, queries=2, heads=2, context_size=2, text_pairs=True)
    examples = [
        LabeledText("a b c", ("x",), "b", ()),
        LabeledText("b", ("x",), "a b c", ("a b c",)),  # shares texts with the other examples
        LabeledText("c c d e f g h a b h h h h a b c d e", ("x",), "b", ("a b c", "b", "f a a a")),
        LabeledText("f a a a", ("x",), "zz", ("c c", "b")),
    ]
    how = {"context_size": 2, "text_pairs": True}
    together = make_batch(examples, **how)
    assert sum(len(group) for group in together.groups) == 6  # distinct texts
    assert len(together.groups) > 1
    assert_close(model(together), one_by_one(model, examples, **how))


@settings(max_examples=25)
@given(st.lists(st.lists(st.sampled_from("abcdefghz"), min_size=1, max_size=24).map(" ".join), min_size=1, max_size=5))
def test_grouping_changes_nothing(texts):
    model = classifier(encoder="attention").requires_grad_(False)
    examples = [LabeledText(text, ("x",)) for text in texts]
    assert_close(model(make_batch(examples)), one_by_one(model, examples))


# Context


def test_a_text_before_counts_as_far_as_is_looked_back():
    model = classifier(context_size=2)

    def logits(*context: str) -> torch.Tensor:
        return model(make_batch([LabeledText("a b", ("x",), None, context)], context_size=2))

    assert_close(logits("f", "c", "d"), logits("e e", "c", "d"), rtol=0, atol=0)  # too far back
    assert not torch.allclose(logits("c", "d"), logits("e", "d"))
    assert not torch.allclose(logits("c", "d"), logits("d", "c"))  # how far back is known, too
    assert not torch.allclose(logits("d"), logits("c", "d"))
    assert not torch.allclose(logits(), logits("d"))


def test_where_there_is_no_text_before_nothing_is_found():
    model = classifier(context_size=2)
    batch = make_batch([LabeledText("a b", ("x",)), LabeledText("c", ("x",), None, ("a b",))], context_size=2)
    assert batch.context is not None
    assert batch.context.tolist()[0] == [-1, -1]
    assert batch.context.tolist()[1] == [-1, int(batch.texts[0])]
    text = model.summarize(batch.groups[0])[batch.texts[0]]
    turns, _ = model.turns.stack(torch.stack([torch.zeros_like(text), torch.zeros_like(text), text])[None])
    alone = torch.cat([text, turns[0, -1], torch.zeros_like(text)])
    assert_close(model(batch)[0], model.output.weight @ alone + model.output.bias)
    one = replace(batch, texts=batch.texts[1:], context=batch.context[1:], targets=None)
    assert_close(model(one)[0], model(batch)[1])


# Training


@pytest.mark.parametrize("several", [False, True])
def test_everything_is_learned(several):
    model = classifier(
        encoder="both", char_encoder="attention", context_size=2, text_pairs=True, multi_label=several
    ).train()
    examples = [LabeledText("abc bad", ("x",), "cab d", ("e", "f gh")), LabeledText("had", ("y",), "ab", ())]
    batch = make_batch(examples, context_size=2, text_pairs=True)
    assert batch.targets is not None
    label_loss(model(batch), batch.targets, multi_label=several).backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0, name


def test_in_training_some_words_are_made_unknown():
    model = classifier(**PLAIN, dropout=0.0, word_dropout=0.5)
    batch = make_batch([LabeledText("a b c d e f g h", ("x",))])
    calm = model(batch)
    model.train()
    assert len({tuple(model(batch)[0].tolist()) for _ in range(8)}) > 1
    with torch.no_grad():
        model.reader.embedding.words.weight[1] = 0
        model.reader.embedding.words.weight[4:] = 1  # so that the mean is the share of known words
        shares = torch.cat([model.summarize(batch.groups[0])[:, 0] for _ in range(200)])
    assert set((8 * shares).round().tolist()) <= set(range(9))
    assert 0.4 < shares.mean() < 0.6
    assert not torch.equal(model.eval()(batch), calm)


def test_probabilities_are_of_one_label_or_of_each():
    logits = torch.tensor([[0.0, 0.0, 2.0]])
    assert_close(classifier().probabilities(logits), logits.softmax(-1))
    assert_close(classifier(multi_label=True).probabilities(logits), torch.tensor([[0.5, 0.5, 0.8807971]]))


def test_the_paths_of_its_attention():
    layers = ("reader.stack.layers.0.attention", "reader.stack.layers.1.attention")
    assert classifier().attentions == {"pooling": ("pool.attention",)}
    assert classifier(pooling="mean").attentions == {}
    assert classifier(pooling="max", encoder="both", attention_layers=2).attentions == {"self": layers}
    model = classifier(encoder="attention", attention_layers=2, context_size=1)
    assert model.attentions == {"pooling": ("pool.attention",), "self": layers}
    assert model.get_submodule(model.context_attention) is model.look_back


# The loss

LOGITS = torch.tensor([[2.0, -1.0, 0.5], [0.0, 3.0, -2.0], [1.0, 1.0, -4.0], [0.3, -0.2, 0.1]])
ONE = torch.tensor([[1, 0, 0], [0, 0, 1], [0, 1, 0], [0, 1, 0]])
SEVERAL = torch.tensor([[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]])
WEIGHTS = torch.tensor([0.5, 2.0, 3.0])


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_of_one_label_is_the_cross_entropy(smoothing):
    labels = ONE.argmax(-1)
    losses = functional.cross_entropy(LOGITS, labels, label_smoothing=smoothing, reduction="none")
    assert_close(label_loss(LOGITS, ONE, multi_label=False, smoothing=smoothing), losses.sum())
    weighted = label_loss(LOGITS, ONE, multi_label=False, smoothing=smoothing, weights=WEIGHTS)
    assert_close(weighted, (losses * WEIGHTS[labels]).sum())
    if not smoothing:
        assert_close(weighted, functional.cross_entropy(LOGITS, labels, weight=WEIGHTS, reduction="sum"))


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_an_unknown_label_adds_nothing(weights):
    targets = torch.cat([ONE, torch.zeros(1, 3, dtype=torch.long)])
    logits = torch.cat([LOGITS, torch.tensor([[9.0, 8.0, 7.0]])]).requires_grad_()
    loss = label_loss(logits, targets, multi_label=False, smoothing=0.1, weights=weights)
    assert_close(loss, label_loss(LOGITS, ONE, multi_label=False, smoothing=0.1, weights=weights))
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[-1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("smoothing", [0.0, 0.2])
def test_the_loss_of_several_labels_is_that_of_each_by_itself(smoothing):
    smoothed = SEVERAL * (1 - smoothing) + smoothing / 2
    odds = LOGITS.sigmoid()
    yes, no = -smoothed * odds.log(), -(1 - smoothed) * (1 - odds).log()
    assert_close(label_loss(LOGITS, SEVERAL, multi_label=True, smoothing=smoothing), (yes + no).sum())
    weighted = label_loss(LOGITS, SEVERAL, multi_label=True, smoothing=smoothing, weights=WEIGHTS)
    assert_close(weighted, (WEIGHTS * yes + no).sum())


def test_the_loss_is_computed_in_float32():
    assert label_loss(LOGITS.bfloat16(), ONE, multi_label=False).dtype == torch.float32


# Errors


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"labels": ("x",)}, "expected at least 2 different labels, got ['x']"),
        ({"embedding": 0}, "embedding must be at least 1, got 0"),
        ({"queries": 0}, "queries must be at least 1, got 0"),
        ({"heads": -1}, "heads must be at least 1, got -1"),
        ({"context_size": -1}, "context_size must be at least 0, got -1"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1, got 1.0"),
        ({"word_dropout": -0.1}, "word_dropout must be at least 0 and below 1, got -0.1"),
        ({"encoder": "rn"}, 'unknown encoder "rn"; did you mean "rnn"?'),
        ({"char_encoder": "mx"}, 'unknown char_encoder "mx"; did you mean "max"?'),
        ({"score": "adition"}, 'unknown score "adition"; did you mean "additive"?'),
        ({"attention_score": "dt"}, 'unknown attention_score "dt"; did you mean "dot"?'),
        ({"normalizer": "softmx"}, 'unknown normalizer "softmx"; did you mean "softmax"?'),
        ({"project": ("value",)}, 'unknown project "value"; did you mean "values"?'),
        ({"score_rank": 0}, "score_rank must be at least 1, got 0"),
        ({"score_power": 0.0}, "score_power must be above 0, got 0.0"),
        ({"score_activation": "tan"}, 'unknown score_activation "tan"; did you mean "tanh"?'),
        ({"score_rank": 3}, "score_rank requires the score reduced_rank, got additive and scaled_dot"),
        (
            {"score": "dot", "score_hidden": 3},
            "score_hidden requires the score additive or concat, got dot and scaled_dot",
        ),
        (
            {"encoder": "both", "hidden": 5, "attention_heads": 4},
            "attention_heads must divide 2 * hidden (10), got 4",
        ),
    ],
)
def test_what_is_refused(changes, line):
    with pytest.raises(RegardError) as caught:
        ClassifierConfig(**{**LEXICON.sizes(), **changes})
    assert str(caught.value) == line


def test_settings_of_a_score_reach_the_attention_that_has_it():
    sizes = {**LEXICON.sizes(), "encoder": "both", "hidden": 4, "score_hidden": 3, "score_activation": "sigmoid"}
    model = AttentiveClassifier(ClassifierConfig(**sizes, attention_score="concat"))
    pooling, layer = model.pool.attention.score, model.reader.stack.layers[0].attention.score
    assert (pooling.energy.shape, pooling.activation) == ((3,), torch.sigmoid)
    assert layer.energy.shape == (4, 3)  # by head
