"""No update of any model waits for the device, whether fake or real."""

from typing import Any

import pytest
import torch

from regard.batch import Pair, TextBatch, collate
from regard.layers.lengths import SequenceLengths
from regard.models import MODELS, build
from regard.models.bidirectional_lm import BidirectionalLm
from regard.models.text_encoder import TextEncoder, TextEncoderConfig
from regard.sentences import NO_TAG, EncodedWord, LabelBatch, TagBatch, group_by_length, stack_texts
from regard.tasks.words.pretrain import PretrainingStep
from regard.training.engines import ENGINES, build_engine
from regard.training.label_loss import LabelStep, TagStep
from regard.training.loss import PairStep, TextStep
from regard.training.settings import TrainingSettings
from tests.waiting import DEVICE, no_waiting, on_host, put_on_host, waits

RECURRENT = {"hidden": 8, "embedding": 6, "dropout": 0.2}
READER = {
    "words": 9, "pieces": 9, "labels": ("O", "B-X", "I-X"), "embedding": 6, "hidden": 4, "char_width": 4,
    "attention_heads": 2,
}  # fmt: skip
SIZES: dict[str, dict[str, Any]] = {
    "pairs": {"source_vocab_size": 9, "target_vocab_size": 9, **RECURRENT},
    "text": {"vocab_size": 9, **RECURRENT},
    "label": READER,
    "tag": {**READER, "scheme": "BIO"},
    "transformer": {"source_vocab_size": 9, "target_vocab_size": 9, "width": 8, "heads": 2},
    **{key: {"vocab_size": 9, "width": 8, "heads": 2, "context_length": 9} for key in ("gpt", "gpt2")},
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in MODELS},
    "seq2seq of tanh": ("seq2seq", {"cell": "rnn", "layers": 2}),
    "read from the end": ("simple-attention", {"reverse_source": True}),
    "lstm-lm that drops": ("lstm-lm", {"layers": 2, "weight_dropout": 0.2, "embedding_dropout": 0.1}),
    "several labels": ("attentive-classifier", {"multi_label": True, "char_encoder": "rnn", "char_boundaries": True}),
    "two texts": ("attentive-classifier", {"text_pairs": True, "encoder": "both", "pooling": "last"}),
    "texts before": ("attentive-classifier", {"context_size": 2, "encoder": "embedding", "pooling": "max"}),
    "tags each for itself": ("attentive-tagger", {"crf": False, "encoder": "attention", "char_ngrams": 20}),
    "tagger that drops": ("attentive-tagger", {"layers": 2, "variational_dropout": True, "weight_dropout": 0.2}),
    "tagger of tanh": ("attentive-tagger", {"layers": 2, "cell": "rnn"}),
    "reading": ("reading", {"layers": 2}),
    "reading of tanh": ("reading", {"layers": 2, "cell": "rnn"}),
}
TEXTS = [
    tuple(EncodedWord(number, tuple(range(3, 4 + number))) for number in row) for row in ([4, 5, 4], [5], [2, 4, 4, 5])
]


def words_batch(step):
    """Three texts to tag, to label, or to read."""
    if step is PretrainingStep:
        return stack_texts(TEXTS)
    if step is TagStep:
        return TagBatch(stack_texts(TEXTS), torch.tensor([[1, 2, 0, NO_TAG], [0, *[NO_TAG] * 3], [0, 1, 1, 2]]))
    groups, where = group_by_length(TEXTS)
    positions = torch.tensor(where)
    return LabelBatch(
        groups, positions, positions.flip(0), torch.stack([positions - 1, positions], 1), torch.eye(3).long()
    )


def made(name, settings):
    """Return a model with its loss, and two batches, the second of which continues the first."""
    torch.manual_seed(0)
    if name == "reading":
        reader = TextEncoder(TextEncoderConfig(**READER, **settings))
        return PretrainingStep(
            BidirectionalLm(reader, torch.arange(9) % 4, torch.full((9,), 0.2), dropout=0.2)
        ), PretrainingStep
    task = MODELS[name].task
    model = build(name, **SIZES.get(name, SIZES[task]), **settings)
    kind = {"pairs": PairStep, "text": TextStep, "label": LabelStep, "tag": TagStep}[task]
    return kind(model, *([0.1] if task == "pairs" else [])), kind


def batches_of(kind):
    if kind is PairStep:
        return [collate([Pair([4, 5, 6], [7]), Pair([4], [5, 6])])] * 2
    if kind is TextStep:
        tokens = torch.randint(4, 9, (2, 9))
        return [TextBatch(tokens[:, a : a + 4], tokens[:, a + 1 : a + 5], fresh=a == 0) for a in (0, 4)]
    return [words_batch(kind)] * 2


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
def test_an_update_does_not_wait(case, engine):
    step, kind = made(*CASES[case])
    settings = TrainingSettings(ema_decay=0.9, gradient_accumulation=2)
    trained, batches = build_engine(step, settings, str(DEVICE), engine), batches_of(kind)
    put_on_host(batches)
    with no_waiting():
        results = [trained.update(batches, number, 0.01) for number in (1, 2)]
    assert not any(map(on_host, results))
    assert torch.stack(results).isfinite().all()
    assert not torch.equal(*results)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype feature")
def test_an_update_does_not_wait_for_a_gpu(case, engine, precision):
    if "tanh" in case:
        pytest.skip("torch's own rnn_tanh waits for the GPU where texts are packed; its LSTM and GRU do not")
    step, kind = made(*CASES[case])
    settings = TrainingSettings(ema_decay=0.9, gradient_accumulation=2, precision=precision)
    trained, batches = build_engine(step, settings, "cuda", engine), batches_of(kind)
    results = [trained.update(batches, 1, 0.01)]  # libraries wait while they start
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        results.append(trained.update(batches, 2, 0.01))
    finally:
        torch.cuda.set_sync_debug_mode(before)
    assert torch.stack(results).isfinite().all()


X = torch.arange(6.0).view(2, 3)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        (lambda: X.sum().item(), "item"),
        (lambda: float(X.sum()), "__float__"),
        (lambda: bool((X > 1).any()), "__bool__"),
        (lambda: [1] if X.any() else [2], "__bool__"),
        (lambda: X.tolist(), "tolist"),
        (lambda: X.cpu(), "cpu"),
        (lambda: X.to("cpu"), "to the CPU"),
        (lambda: X[X > 2], "aten.index.Tensor by a mask"),
        (lambda: X.nonzero(), "nonzero"),
        (lambda: torch.repeat_interleave(X, X[0].long(), 1), "aten.repeat_interleave.Tensor"),
        (lambda: torch.tensor(3, device=X.device), "tensor copies numbers"),
        (lambda: X.new_tensor([3.0]), "new_tensor copies numbers"),
        (lambda: torch.tensor([3.0]).to(X.device), "to the device, from memory that is not pinned"),
        (lambda: X[torch.tensor([1])], "__getitem__ of tensors here and there"),
        (lambda: X * torch.ones(3), "mul of tensors here and there"),
        (lambda: int(torch.tensor([3, 4]).min()), None),
        (lambda: SequenceLengths.of(torch.tensor([3, 2]), X.device).real(3) * X[..., None], None),
        (lambda: SequenceLengths.of(torch.tensor([3, 2]), X.device).has_no_padding(3), None),
        (lambda: X.where(X > 2, 0).masked_fill(X < 1, 2.0), None),
        (lambda: X.sum() * torch.tensor(2.0), None),
    ],
)
def test_what_waits_is_seen(call, what):
    assert waits(call) == what
