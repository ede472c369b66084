"""Built-in corpora of every task: train, evaluate on new examples, and what is refused."""

import json

import numpy as np
import pytest

import regard
from regard.cli import main
from regard.data.corpora import CORPORA, generate_built_in
from regard.data.corpora.base import get_input
from regard.data.example import Contrast, LinkedText
from regard.errors import RegardError
from regard.run import Run
from regard.tasks import find_task
from regard.tasks.built_in import choose_corpus_settings, list_corpora, sample_new_examples
from regard.tasks.label.gold_attention import score_label_attention
from regard.tasks.label.settings import LabelData, LabelRecipe
from regard.tasks.tag.gold_attention import score_tag_attention
from regard.tasks.text.gold_attention import score_contrasts, score_text_attention
from regard.tasks.text.settings import TextData, TextRecipe

NAMES = ("acts", "terms", "entities", "agreement", "coreference")


def evaluate(run, *options, capsys):
    assert main(["evaluate", str(run), *options, "--json", "--quiet"]) == 0
    return json.loads(capsys.readouterr().out)


def refused(command, capsys):
    assert main(command) == 2
    return capsys.readouterr().err


@pytest.mark.parametrize("name", CORPORA)
def test_a_corpus_has_a_task(name):
    assert find_task({"data": {"train": name}}).name == CORPORA[name].task
    assert name in list_corpora(CORPORA[name].task)


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_without_data_takes_new_examples(name, corpus_runs, capsys):
    report = evaluate(corpus_runs[name], "--count", "40", capsys=capsys)
    same = evaluate(corpus_runs[name], "--count", "40", "--data", name, "--seed", "1", capsys=capsys)
    assert report == same
    assert report != evaluate(corpus_runs[name], "--count", "40", "--seed", "2", capsys=capsys)
    assert 0 < report["gold_attention"]["uniform"] < 0.5
    assert 0 < report["gold_attention"]["rows"] <= 4 * 40


@pytest.mark.parametrize("name", NAMES)
def test_new_examples_are_not_those_of_the_training(name, corpus_runs):
    recipe = regard.load(corpus_runs[name]).recipe
    new = sample_new_examples(recipe, name, count=50)
    train, valid = generate_built_in(name, train=recipe.data.corpus_size, valid=10, **recipe.data.corpus)
    assert len(new) == 50
    assert not {get_input(example) for example in new} & {get_input(example) for example in train}
    assert new != valid


@pytest.mark.parametrize("name", NAMES)
def test_items_are_new_examples_with_their_attention(name, corpus_runs, monkeypatch, capsys):
    monkeypatch.setattr("regard.tasks.built_in.COUNT", 30)
    predictor = regard.load(corpus_runs[name])
    scores = predictor.task.score_items(predictor, None)
    report = evaluate(corpus_runs[name], capsys=capsys)
    assert scores.part == f"30 new examples of the built-in corpus {name}"
    assert scores.scores["gold_attention"] == report["gold_attention"]["weight"]
    if predictor.task_name == "text":
        assert scores.scores["right_word"] == report["contrasts"]["share"]
        assert scores.items.value == pytest.approx(report["scores"][1]["value"], rel=1e-6)
    else:
        assert len(scores.items) == 30


def test_attention_on_acts_is_learned(corpus_runs, capsys):
    gold = evaluate(corpus_runs["acts"], capsys=capsys)["gold_attention"]
    assert gold["weight"] > 1.8 * gold["uniform"]


def test_attention_of_a_classifier_is_the_sum_over_gold_words(corpus_runs):
    predictor = regard.load(corpus_runs["terms"])
    (example,) = sample_new_examples(predictor.recipe, "terms", count=1)
    weights = regard.look(predictor, example.text).weights[0, 0, 0]
    gold = sorted({word for word, _ in example.links})
    score = score_label_attention(predictor, [example])
    assert score.weight == pytest.approx(float(weights[gold].sum()), abs=1e-6)
    assert score.uniform == len(gold) / len(example.text.split())


def test_attention_of_a_tagger_is_that_of_its_linked_words(corpus_runs):
    predictor = regard.load(corpus_runs["entities"])
    sentence = next(s for s in sample_new_examples(predictor.recipe, "entities", count=50) if len(s.links) > 1)
    weights = regard.look(predictor, " ".join(sentence.words)).weights
    rows = sorted({row for _, row in sentence.links})
    sums = [sum(weights[..., row, cue] for cue, one in sentence.links if one == row) for row in rows]
    score = score_tag_attention(predictor, [sentence])
    assert score.weight == pytest.approx(np.mean(sums, axis=0).max(), abs=1e-6)
    assert score.mean == pytest.approx(np.mean(sums), abs=1e-6)
    assert score.rows == len(rows)


def test_attention_of_a_language_model_is_from_the_last_token_of_a_word_to_all_tokens_of_another(corpus_runs):
    predictor = regard.load(corpus_runs["coreference"])  # of subwords
    (text,) = sample_new_examples(predictor.recipe, "coreference", count=1)
    encoded = predictor.tokenizer.encode_with_words(text.text)
    ((gold, row),) = text.links
    tokens = [index for index, word in enumerate(encoded.word_indices, 1) if word == gold]
    last = max(index for index, word in enumerate(encoded.word_indices, 1) if word == row)
    weights = regard.look(predictor, text.text, words=False).weights
    score = score_text_attention(predictor, [text])
    assert score.weight == pytest.approx(float(weights[:, :, last, tokens].sum(-1).max()), abs=1e-6)
    assert score.uniform == len(tokens) / (last + 1)


def test_a_batch_of_texts_scores_as_its_texts(corpus_runs):
    predictor = regard.load(corpus_runs["agreement"])
    texts = [text for text in sample_new_examples(predictor.recipe, "agreement", count=20) if text.links]
    alone = [score_text_attention(predictor, [text]).mean for text in texts]
    assert score_text_attention(predictor, texts).mean == pytest.approx(np.mean(alone), abs=1e-6)


def test_contrasts_compare_the_probabilities_of_both_words(corpus_runs):
    predictor = regard.load(corpus_runs["agreement"])
    texts = sample_new_examples(predictor.recipe, "agreement", count=20)
    right = 0
    for text in texts:
        (contrast,) = text.contrasts
        words = text.text.split()
        scored = [
            predictor.score_texts(" ".join([*words[: contrast.word], word])).log_probabilities[contrast.word]
            for word in (words[contrast.word], contrast.wrong)
        ]
        right += scored[0] > scored[1]
    score = score_contrasts(predictor, texts)
    assert (score.right, score.count, score.share) == (right, 20, right / 20)
    assert str(score) == f"right word preferred {right / 20:.4f} (right:{right}|count:20)"


def test_what_has_no_gold_has_no_score(corpus_runs, label_runs, text_run):
    predictor = regard.load(corpus_runs["agreement"])
    texts = [LinkedText("the chef was late .", frozenset())]
    assert score_contrasts(predictor, texts) is None
    assert score_text_attention(predictor, texts) is None
    linked = [LinkedText("the cat", frozenset({(0, 1)}), (Contrast(1, "dog"),))]
    assert score_text_attention(regard.load(text_run), linked) is None  # has no attention


def test_look_takes_the_gold_links_of_an_example(corpus_runs, capsys):
    assert main(["look", str(corpus_runs["acts"]), "can you open the window", "--gold", "0-0 1-0"]) == 0
    assert "window" in capsys.readouterr().out


def test_a_run_is_resumed_and_described(tmp_path, capsys):
    command = ["train", "agreement", "--out", str(tmp_path / "run"), "--corpus-size", "100", "--width", "16"]
    short = ["--validate-every", "2", "--max-distance", "3", "--quiet"]
    assert main([*command, *short, "--steps", "2"]) == 0
    assert main([*command, *short, "--steps", "4"]) == 0
    recipe = Run(tmp_path / "run").read_recipe()
    assert recipe["text"]["tokenizer"] == "words"
    assert recipe["model"] == {"name": "gpt", "layers": 2, "width": 16, "dropout": 0.0}
    assert recipe["training"]["learning_rate"] == 3e-3
    assert main(["inspect", str(tmp_path / "run")]) == 0
    assert "data: the built-in corpus agreement, seed 0; " in capsys.readouterr().out


def test_settings_of_the_recipe_come_before_those_of_the_corpus():
    recipe = LabelRecipe(data=LabelData(train="acts"), model={"encoder": "rnn"})
    assert choose_corpus_settings(recipe).model == {"encoder": "rnn"}
    for model in ({"name": "lstm-lm"}, {"hidden": 8}):
        other = TextRecipe(data=TextData(train="agreement"), model=model)
        assert choose_corpus_settings(other) == other


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["acts", "--task", "tag"],
         "data: acts is a built-in corpus for the task label, not tag; choose from entities"),
        (["acts", "--model", "gpt"],
         "data: acts is a built-in corpus for the task label, not text; choose from agreement, coreference"),
        (["entities", "--task", "pairs"],
         "data: entities is a built-in corpus for the task tag, not pairs; "
         "choose from copy, dates, numbers, reverse, sort, toy-en-de"),
        (["agreement", "--max-distance", "-1"], "agreement: max_distance must be at least 0, got -1"),
        (["acts", "--validation", "terms"], "data: --validation must be a file, got the built-in corpus terms"),
    ],
)  # fmt: skip
def test_what_is_refused(words, line, tmp_path, capsys):
    assert refused(["train", *words, "--out", str(tmp_path / "run")], capsys) == f"regard: {line}\n"


def test_other_data_are_still_required(label_runs, gpt_run, corpus_runs, capsys):
    line = "regard: --data is required: a file of texts and labels\n"
    assert refused(["evaluate", str(label_runs["one"])], capsys) == line
    line = "regard: --data is required: a text file or a folder of text files\n"
    assert refused(["evaluate", str(gpt_run)], capsys) == line
    line = "regard: --count must be at least 1, got 0\n"
    assert refused(["evaluate", str(corpus_runs["acts"]), "--count", "0"], capsys) == line


def test_a_setting_that_no_corpus_has(tmp_path):
    recipe = {"data": {"train": "acts", "corpus": {"filler": 0.5}}}
    with pytest.raises(RegardError) as caught:
        regard.train(recipe, tmp_path / "run", quiet=True)
    assert str(caught.value) == 'acts: unknown setting "filler"; did you mean "fillers"?'
