import pytest

from regard import RegardError, train
from regard.run import Run
from regard.tasks import to_recipe
from regard.tasks.loading import load

PAIRS = "".join(f"{a} {b}\t{a.upper()} {b.upper()}\n" for a in "abcdefgh" for b in "abcdefgh")
WORDS = {"tokenizer": "words"}
TINY = {"steps": 1, "batch_tokens": 200, "validate_every": 1, "max_validation": 2}
TIED = [
    ({"name": "simple-attention", "tied": True, "cell": "rnn", "hidden": 4, "embedding": 4}, "true"),
    ({"name": "transformer", "tied": "all", "width": 4, "heads": 1, "encoder_layers": 1, "decoder_layers": 1}, '"all"'),
]


@pytest.fixture
def pairs(tmp_path, monkeypatch):
    """Two sides without a word in common, but of as many words."""
    (tmp_path / "pairs.tsv").write_text(PAIRS)
    monkeypatch.chdir(tmp_path)
    return {"data": {"train": "pairs.tsv"}, "text": WORDS, "training": TINY}


@pytest.mark.parametrize(("model", "value"), TIED)
def test_tying_makes_one_vocabulary_and_says_so(model, value, pairs, tmp_path):
    train({**pairs, "model": model}, tmp_path / "run", quiet=True)
    tokenizers = load(tmp_path / "run").tokenizers
    assert tokenizers.shared_vocab
    assert tokenizers.source.size == 4 + 16  # the words of both sides
    assert not {*tokenizers.source.encode("a b c")} & {*tokenizers.target.encode("A B C")}
    log = Run(tmp_path / "run").log_file.read_text()
    assert "tokens: shared vocabulary: model.tied uses one embedding for both sides\n" in log


@pytest.mark.parametrize(("model", "value"), TIED)
def test_separate_vocabularies_cannot_be_tied(model, value, pairs):
    with pytest.raises(RegardError) as raised:
        to_recipe({**pairs, "text": {**WORDS, "shared_vocab": False}, "model": model}, "recipe")
    assert str(raised.value) == (
        f"recipe: model.tied = {value} requires a shared vocabulary; remove text.shared_vocab = false"
    )


def test_a_run_of_separate_vocabularies_cannot_be_tied_later(pairs, tmp_path):
    model = {**TIED[1][0], "tied": "target"}
    train({**pairs, "model": model}, tmp_path / "base", quiet=True)
    assert not load(tmp_path / "base").tokenizers.shared_vocab
    recipe = {"data": pairs["data"], "model": {"tied": "all"}, "training": TINY}
    with pytest.raises(RegardError) as raised:
        train(recipe, tmp_path / "run", base=tmp_path / "base", quiet=True)
    assert str(raised.value) == f"model.tied requires a shared vocabulary, but {tmp_path / 'base'} has one per side"


@pytest.mark.parametrize(("bidirectional", "notes"), [(True, 1), (False, 0)])
def test_a_projection_that_was_not_asked_for_is_mentioned(bidirectional, notes, pairs, tmp_path):
    model = {"name": "simple-attention", "hidden": 4, "embedding": 4, "bidirectional": bidirectional}
    train({**pairs, "model": model}, tmp_path / "run", quiet=True)
    note = "note: score Dot requires query and keys of one width, so the keys get a projection W^K\n"
    assert Run(tmp_path / "run").log_file.read_text().count(note) == notes


def test_whether_a_model_copies_is_said_once(pairs, tmp_path):
    run, model = tmp_path / "run", {"name": "simple-attention", "hidden": 4, "embedding": 4}
    for steps in (1, 1, 2):  # start, find complete, resume
        train({**pairs, "model": model, "training": {**TINY, "steps": steps}}, run, quiet=True)
        (line,) = (line for line in Run(run).log_file.read_text().splitlines() if "copy: " in line)
        assert "as configured" not in line
