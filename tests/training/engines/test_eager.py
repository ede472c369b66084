"""The eager engine: one update by hand, and its state between updates."""

import copy
from contextlib import suppress

import pytest
import torch

from regard.batch import Pair, TextBatch, collate
from regard.errors import RegardError
from regard.models import build
from regard.training.engines import ENGINES, EagerEngine, Engine, build_engine
from regard.training.loss import PairStep, TextStep
from regard.training.settings import TrainingSettings

PAIRS = [Pair([4, 5, 6], [6, 5]), Pair([7], [8, 4, 5, 4]), Pair([5, 5], [4])]
SETTINGS = TrainingSettings(steps=9, learning_rate=0.1, warmup_steps=0, ema_decay=0.5, precision="float32")


def pair_model(dropout=0.0):
    torch.manual_seed(0)
    return build("bahdanau", source_vocab_size=9, target_vocab_size=9, hidden=6, embedding=5, dropout=dropout)


def text_engine(name="lstm-lm"):
    torch.manual_seed(0)
    sizes = {"width": 8, "heads": 2, "layers": 1} if name == "gpt" else {"hidden": 6, "embedding": 5}
    return EagerEngine(TextStep(build(name, vocab_size=9, **sizes, dropout=0.3)), SETTINGS, "cpu")


def segments(count):
    torch.manual_seed(1)
    tokens = torch.randint(4, 9, (2, 4 * count + 1))
    starts = range(0, 4 * count, 4)
    return [TextBatch(tokens[:, a : a + 4], tokens[:, a + 1 : a + 5], fresh=a == 0) for a in starts]


def parameters_of(model):
    return copy.deepcopy(dict(model.named_parameters()))


@pytest.mark.parametrize("name", ENGINES)
def test_every_engine_has_a_name(name):
    assert isinstance(build_engine(PairStep(pair_model()), SETTINGS, "cpu", name), Engine)


def test_an_unknown_engine_is_refused_with_those_there_are():
    with pytest.raises(RegardError, match=r'^unknown engine "graph"; choose from eager$'):
        build_engine(PairStep(pair_model()), SETTINGS, "cpu", "graph")


def test_an_update_has_the_gradient_of_the_mean_loss_over_the_tokens_of_all_batches():
    model, settings = pair_model().double(), TrainingSettings(max_grad_norm=0.0, weight_decay=0.0)
    engine = EagerEngine(PairStep(copy.deepcopy(model)), settings, "cpu")
    loss, norm, tokens = engine.update((collate(part) for part in (PAIRS[:2], PAIRS[2:])), 1, 0.1).tolist()
    total, count, _ = PairStep(model)(collate(PAIRS))
    (total / count).backward()
    gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
    assert tokens == count.item() == 3 + 5 + 2
    assert loss == pytest.approx(total.item(), rel=1e-5)
    assert norm == pytest.approx(gradient.norm().item(), rel=1e-4)
    torch.optim.AdamW(model.parameters(), lr=0.1, betas=settings.betas, eps=1e-9, weight_decay=0.0).step()
    ours, theirs = (dict(each.named_parameters()) for each in (engine.model, model))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_what_is_random_depends_on_seed_and_step_alone():
    def update(step, seed=0):
        engine = EagerEngine(PairStep(pair_model(dropout=0.5)), TrainingSettings(seed=seed), "cpu")
        return engine.update([collate(PAIRS)], step, 0.1).tolist()

    assert update(1) == update(1)
    assert len({tuple(actual) for actual in (update(1), update(2), update(1, seed=1))}) == 3


@pytest.mark.parametrize("name", ["neural-lm", "lstm-lm", "attentive-lm", "gpt"])
def test_a_restored_engine_goes_on_to_the_same_bits(name):
    engine, batches = text_engine(name), segments(4)
    for step in (1, 2):
        engine.update([batches[step - 1]], step, 0.1)
    state = copy.deepcopy(engine.state_dict())
    assert list(state) == ["model", "optimizer", "average", *([] if name == "gpt" else ["memory"])]
    other = text_engine(name)
    other.load_state_dict({part: dict(reversed(tensors.items())) for part, tensors in state.items()})
    for step in (3, 4):
        ours, theirs = (each.update([batches[step - 1]], step, 0.1) for each in (engine, other))
        assert torch.equal(ours, theirs)
    torch.testing.assert_close(other.state_dict(), engine.state_dict(), rtol=0, atol=0)


def test_the_model_is_validated_with_its_average_and_has_its_parameters_back_afterwards():
    engine = EagerEngine(PairStep(pair_model()), SETTINGS, "cpu")
    engine.update([collate(PAIRS)], 1, 0.1)
    before, average = parameters_of(engine.model), copy.deepcopy(engine.state_dict()["average"])
    assert not torch.equal(before["bridge.states.0.weight"], average["bridge.states.0.weight"])
    with suppress(KeyboardInterrupt), engine.evaluation_mode() as model:
        assert not model.training
        assert torch.is_inference_mode_enabled()
        torch.testing.assert_close(dict(model.named_parameters()), average, rtol=0, atol=0)
        raise KeyboardInterrupt
    torch.testing.assert_close(dict(engine.model.named_parameters()), before, rtol=0, atol=0)
    torch.testing.assert_close(engine.state_dict()["average"], average, rtol=0, atol=0)
    assert engine.update([collate(PAIRS)], 2, 0.1).isfinite().all()  # inference mode is off again


def test_the_model_is_validated_with_the_parameters_that_are_given():
    engine = EagerEngine(PairStep(pair_model()), SETTINGS, "cpu")
    before = parameters_of(engine.model)
    given = {name: torch.full_like(tensor, 0.25) for name, tensor in engine.state_dict()["model"].items()}
    with engine.evaluation_mode(given) as model:
        assert all((parameter == 0.25).all() for parameter in model.parameters())
    torch.testing.assert_close(dict(engine.model.named_parameters()), before, rtol=0, atol=0)
