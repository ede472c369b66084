import pytest
import torch

from regard.batch import EOS, collate
from regard.data.example import Example
from regard.models import build
from regard.tasks.loading import load
from regard.tasks.pairs.batches import encode_examples
from regard.tasks.pairs.validation import PairValidation, compute_mean_loss
from regard.text import learn_tokenizer_pair

EXAMPLES = [Example("a b", "b a"), Example("a b c a", "A c b a"), Example("c", "c")]


@pytest.fixture(scope="module")
def tokenizers():
    return learn_tokenizer_pair([example.source for example in EXAMPLES], [e.target for e in EXAMPLES], kind="words")[0]


@pytest.fixture(scope="module")
def model(tokenizers):
    torch.manual_seed(0)
    sizes = {"source_vocab_size": tokenizers.source.size, "target_vocab_size": tokenizers.target.size}
    return build("luong-dot", **sizes, hidden=6, embedding=6).eval()


@torch.no_grad()
def test_the_loss_is_the_mean_over_all_tokens_however_they_are_batched(model, tokenizers):
    pairs = encode_examples(EXAMPLES, tokenizers)
    by_hand, count = 0.0, 0
    for pair in pairs:
        logits = model(collate([pair]))[0].log_softmax(-1)
        for index, token in enumerate([*pair.target, EOS]):
            by_hand, count = by_hand - logits[index, token].item(), count + 1
    assert count == 3 + 5 + 2
    for tokens in (5, 8, 100):
        assert compute_mean_loss(model, pairs, tokens, "cpu") == pytest.approx(by_hand / count, abs=1e-5)


def validation(model, examples, **options):
    pairs = encode_examples(examples, model.tokenizers)
    defaults = {"tokens": 50, "max_decoded": 10, "metrics": ["exact"], "device": "cpu"}
    return PairValidation(examples, pairs, model.tokenizers, **{**defaults, **options})


@torch.no_grad()
def test_predictions_are_compared_with_the_targets(reverse_run):
    model = load(reverse_run)
    right, wrong = Example("a b c", "c b a"), Example("d c", "d c")
    assert validation(model, [right, wrong, right, right]).score_predictions(model.model) == {"exact": 0.75}
    assert validation(model, [right, wrong, wrong], max_decoded=1).score_predictions(model.model) == {"exact": 1.0}
    scores, _ = validation(model, [right, wrong], metrics=["exact", "bleu", "chrf"])(model.model)
    assert list(scores) == ["loss", "exact", "bleu", "chrf"]
    assert scores["loss"] == compute_mean_loss(
        model.model, encode_examples([right, wrong], model.tokenizers), 50, "cpu"
    )
    log_probabilities = [forced.log_probability for forced in model.force(["a b c", "d c"], ["c b a", "d c"])]
    assert scores["loss"] == pytest.approx(-sum(log_probabilities) / (4 + 3), abs=1e-5)


@torch.no_grad()
def test_the_target_is_compared_as_far_as_a_model_can_know_it(subword_run):
    """Of text in lower case the model cannot know which letters were capitals."""
    model = load(subword_run)
    vocabulary = model.model.output(torch.zeros(1, model.model.config.hidden)).shape[-1]
    letters = [i for i in range(4, vocabulary) if model.tokenizers.target.decode([i]).strip() == "a"]
    with torch.no_grad():  # make it write lower case, whatever it has learned
        bias = next(p for n, p in model.model.named_parameters() if n.endswith("bias") and len(p) == vocabulary)
        bias[letters[0]] += 100
    text = model.predict("the cats sleep", beam=1).text
    assert text.upper() != text
    assert validation(model, [Example("the cats sleep", text.upper())]).score_predictions(model.model) == {"exact": 1.0}
