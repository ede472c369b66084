"""Korean to sounds and back, whose syllables a model reads and writes as parts, and people as syllables."""

import json
import unicodedata
from itertools import product

import pytest
import torch

from regard import train
from regard.cli import main
from regard.maps.options import TargetLookOptions
from regard.run import Run
from regard.tasks.loading import load
from regard.tasks.pairs.options import PairExplainOptions
from regard.tasks.pairs.score_items import score_pair_items

INITIALS, VOWELS = {"\u1100": "k", "\u1102": "n", "\u1103": "t"}, {"\u1161": "a", "\u1169": "o"}
SYLLABLES = {
    unicodedata.normalize("NFC", initial + vowel): (INITIALS[initial], VOWELS[vowel])
    for initial, vowel in product(INITIALS, VOWELS)
}
WORDS = [first + second for first, second in product(SYLLABLES, repeat=2)]
PHONES = [" ".join((*SYLLABLES[word[0]], *SYLLABLES[word[1]])) for word in WORDS]
TINY = {"model": {"name": "bahdanau", "hidden": 8, "embedding": 8}}
STEPS = {"steps": 1, "batch_tokens": 400, "validate_every": 1, "max_validation": 4}
LONGER = {**STEPS, "steps": 40, "validate_every": 40, "learning_rate": 0.03}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run of one step from Korean to sounds, and one back that has learned to write something."""
    path = tmp_path_factory.mktemp("korean")
    for name, sides, training in (("sounds", (WORDS, PHONES), STEPS), ("hangul", (PHONES, WORDS), LONGER)):
        (path / f"{name}.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in zip(*sides, strict=True)))
        recipe = {**TINY, "data": {"train": str(path / f"{name}.tsv")}, "training": training}
        train(recipe, path / name, quiet=True)
    return path


def test_the_choice_is_said_and_saved(folder):
    log = Run(folder / "sounds").log_file.read_text()
    assert (
        "tokens: source: nfd: the target has 2.0 symbols per syllable, so 6 characters are taken apart: "
        "5 instead of 6 distinct ones (--source-normal-form nfc keeps them whole)\n"
    ) in log
    tokenizers = load(folder / "sounds").tokenizers
    assert (tokenizers.source.steps.normal_form, tokenizers.target.steps.normal_form) == ("nfd", "nfc")
    assert tokenizers.source.size == 4 + 5


def test_the_form_can_be_set(folder, tmp_path):
    text = {"normal_form": "nfkd", "source_normal_form": "nfc"}
    recipe = {**TINY, "data": {"train": str(folder / "sounds.tsv")}, "training": STEPS, "text": text}
    train(recipe, tmp_path / "run", quiet=True)
    tokenizers = load(tmp_path / "run").tokenizers
    assert (tokenizers.source.steps.normal_form, tokenizers.target.steps.normal_form) == ("nfc", "nfkd")
    assert tokenizers.source.size == 4 + 6


def test_composed_and_decomposed_input_are_the_same(folder):
    model = load(folder / "sounds")
    apart = unicodedata.normalize("NFD", WORDS[7])
    one, other = model.predict(WORDS[7]), model.predict(apart)
    assert (one.pair, one.log_probability) == (other.pair, other.log_probability)
    forced = load(folder / "hangul").force([PHONES[7]] * 2, [WORDS[7], apart])
    assert forced[0].log_probability == forced[1].log_probability
    assert forced[1].raw_text == WORDS[7]


def test_maps_and_explanations_show_syllables(folder):
    word, phones = WORDS[7], PHONES[7]
    sounds, hangul = load(folder / "sounds"), load(folder / "hangul")
    parts, whole = (sounds.look(word, TargetLookOptions(target=phones, words=words)) for words in (False, True))
    assert parts.columns == (*unicodedata.normalize("NFD", word), "<eos>")
    assert whole.columns == (*word, "<eos>")
    weights = torch.tensor(parts.weights[0, 0])
    summed = torch.stack([weights[:, :2].sum(1), weights[:, 2:4].sum(1), weights[:, 4]], 1)
    torch.testing.assert_close(torch.tensor(whole.weights[0, 0]), summed)
    rows = hangul.look(phones, TargetLookOptions(target=word))
    assert rows.rows == (*word, "<eos>")
    assert sounds.explain(word, PairExplainOptions(target=phones)).words == tuple(word)


def test_links_connect_syllables(folder, capsys):
    (folder / "pair.tsv").write_text(f"{WORDS[7]}\t{PHONES[7]}\n")
    (folder / "gold").write_text("0-0 0-1 1-2 1-3\n")
    run = folder / "sounds"
    assert main(["align", str(run), str(folder / "pair.tsv"), "--text"]) == 0
    links = [link.split("-") for link in capsys.readouterr().out.split()]
    assert {source for source, _ in links} <= {*WORDS[7]}
    assert sorted(target for _, target in links) == sorted(PHONES[7].split())
    assert main(["evaluate", str(run), str(folder / "pair.tsv"), "--gold", str(folder / "gold"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["alignment"]["units"] == "source characters and target words"


def test_references_are_composed_before_they_are_compared(folder, capsys):
    model = load(folder / "hangul")
    predicted = [prediction.text for prediction in model.predict(PHONES)]
    assert all(unicodedata.is_normalized("NFC", text) for text in predicted)
    data = folder / "apart.tsv"
    rows = zip(PHONES, predicted, strict=True)
    data.write_text("".join(f"{source}\t{unicodedata.normalize('NFD', text)}\n" for source, text in rows if text))
    assert main(["evaluate", str(folder / "hangul"), str(data), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == ["text"]
    assert report["text"]["exact_match"]["value"] == 1.0
    assert score_pair_items(model, str(data)).items.counts[:, 0].min() == 1.0


@pytest.mark.parametrize("columns", ["1:letters+3:tokens,2:letters", "3:tokens+1:letters,2:letters"])
def test_features_beside_the_letters_do_not_count_as_sounds(tmp_path, columns):
    rows = [f"{word}\t{word}{ending}\tV;{tag}\n" for word in WORDS for ending, tag in (("", "PRS"), ("다", "PST"))]
    (tmp_path / "forms.tsv").write_text(40 * "".join(rows))
    data = {"train": str(tmp_path / "forms.tsv"), "columns": columns.split(",")}
    train({**TINY, "data": data, "training": {**STEPS, "max_validation": 1}}, tmp_path / "run", quiet=True)
    tokenizers = load(tmp_path / "run").tokenizers
    assert not tokenizers.source.steps.takes_apart
    assert not tokenizers.target.steps.takes_apart
