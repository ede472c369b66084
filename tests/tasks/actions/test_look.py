import io
import re
import sys
from dataclasses import replace
from xml.etree import ElementTree

import jaxtyping
import numpy as np
import pytest

from regard.api import look
from regard.cli import main
from regard.errors import RegardError
from regard.tasks.loading import load
from regard.views.attention_map import AttentionMap
from regard.views.words import shade_words


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch):
    """Eighty columns without color, whatever the tests run in."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")


def output(capsys, *arguments: object) -> str:
    assert main(["look", *map(str, arguments)]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def refusal(capsys, *arguments: object) -> str:
    assert main(["look", *map(str, arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_the_matrix_in_the_terminal(reverse_run, capsys):
    lines = output(capsys, reverse_run, "a b c").splitlines()
    assert lines[0] == "bahdanau: a b c → c b a"
    rows = [re.fullmatch(r" *(\S+) \|(.*)\|", line) for line in lines]
    cells = {row[1]: row[2] for row in rows if row}
    assert list(cells) == ["c", "b", "a", "<eos>"]
    weights = look(load(reverse_run), "a b c").select() / float(lines[-1].split()[-1])  # the darkest shade
    for row, line in enumerate(cells.values()):  # three characters for each column, the darker the greater
        shades = [" .:-=+*#%@".index(line[3 * column]) for column in range(4)]
        assert shades == [round(9 * weight) for weight in weights[row].tolist()]


def test_gold_links_are_marked(reverse_run, capsys):
    lines = output(capsys, reverse_run, "a b c", "--gold", "0-2 1-1 2p0").splitlines()
    marked = {line.split()[0]: line.index("o", 7) for line in lines if re.match(r" *[abc] \|", line)}
    first = lines[5].index("a")
    assert marked == {"c": first + 6, "b": first + 3, "a": first}
    assert lines[-1].endswith("o gold alignment")


def test_the_text_comes_from_stdin_too(reverse_run, capsys, monkeypatch):
    given = output(capsys, reverse_run, "a b c")
    for argument in ([], ["-"]):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b c\n")))
        assert output(capsys, reverse_run, *argument) == given


def test_layer_head_and_kind(transformer_run, capsys):
    picture = look(load(transformer_run), "a b c", target="d a", kind="decoder")
    drawn = output(
        capsys, transformer_run, "a b c", "--target", "d a", "--kind", "decoder", "--layer", 1, "--head", "mean"
    )
    assert drawn == picture.draw(layer=1, head="mean") + "\n"
    assert drawn.startswith("transformer, decoder: d a · layer 1, mean of 2 heads\n")


def test_words_or_tokens(subword_run, capsys):
    model = load(subword_run)
    options = (subword_run, "The cats sleep", "--target", "sleep cats")
    for words, flags in ((True, []), (True, ["--words"]), (False, ["--tokens"])):
        picture = look(model, "The cats sleep", target="sleep cats", words=words)
        assert output(capsys, *options, *flags) == picture.draw() + "\n"


def test_words_shaded_by_what_they_get(gpt_run, label_runs, capsys):
    picture = look(load(gpt_run), "the cat")
    shares = picture.select().mean(0)
    expected = shade_words(picture.columns, shares, title="gpt: the cat · mean of 2 layers, mean of 2 heads")
    assert output(capsys, gpt_run, "the cat", "--view", "words") == expected + "\n"
    lines = output(capsys, label_runs["one"], "one good two").splitlines()  # one row: not a matrix but words
    assert lines[:2] == ["attentive-classifier: plus", "one good two"]


def test_the_time_goes_token_by_token(subword_run, reverse_run, capsys):
    steps = output(capsys, reverse_run, "a b c", "--view", "time").split("\n\n")
    picture = look(load(reverse_run), "a b c")
    assert len(steps) == 5
    assert steps.pop() == "0  .:-=+*#%@ 1\n"  # once for all
    for step, row, several in zip(steps, picture.rows, picture.alternatives, strict=True):
        *title, words, _ = step.split("\n")
        everything = ", ".join(f"{text} {probability:.2f}" for text, probability in several)
        assert " ".join(title) == f"{row}   {everything}"
        assert words == "a b c <eos>"
    assert max(step.count("\n") for step in steps) > 2  # a long title goes on in the next line
    tokens = output(capsys, subword_run, "The cats sleep", "--target", "sleep cats", "--view", "time")
    assert [step.split()[0] for step in tokens.split("\n\n")] == ["▁slee", "p", "▁cats", "<eos>", "0"]


def test_the_steps_of_a_text_say_what_is_read_and_written(gpt_run, capsys):
    steps = output(capsys, gpt_run, "the ca", "--view", "time").split("\n\n")[:-1]
    picture = look(load(gpt_run), "the ca", words=False)
    written = [*picture.rows[1:], "?"]
    assert len(steps) == len(picture.rows) == 7
    for step, read, write, several in zip(steps, picture.rows, written, picture.alternatives, strict=True):
        everything = ", ".join(f"{text} {probability:.2f}" for text, probability in several)
        assert " ".join(step.split("\n")).startswith(f"{read} → {write}   {everything}")


def test_files(reverse_run, capsys, tmp_path):
    png, svg, html, json = (tmp_path / f"look.{ending}" for ending in ("png", "svg", "html", "json"))
    arguments = ["--png", png, "--svg", svg, "--html", html, "--json", json, "--gold", "0-2"]
    assert main(["look", *map(str, [reverse_run, "a b c", *arguments])]) == 0
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"wrote {png} {svg} {html} {json}\n")
    picture = replace(look(load(reverse_run), "a b c"), links=frozenset({(0, 2)}))
    saved = AttentionMap.load(json)
    assert (saved.rows, saved.links, saved.alternatives) == (picture.rows, picture.links, picture.alternatives)
    np.testing.assert_allclose(saved.weights, picture.weights, atol=1e-6)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert ElementTree.fromstring(svg.read_text()).tag == "{http://www.w3.org/2000/svg}svg"
    assert 'id="record"' in html.read_text()
    assert output(capsys, reverse_run, "a b c", "--svg", svg, "--quiet") == ""


def test_a_page_opens_at_what_is_asked_for(transformer_run, label_runs, capsys, tmp_path):
    path = tmp_path / "look.html"
    for run, options, first in (
        (transformer_run, ("--target", "d a"), 'data-view="matrix" data-layer="mean" data-head="mean"'),
        (transformer_run, ("--view", "lines", "--layer", 1), 'data-view="lines" data-layer="1" data-head="mean"'),
        (transformer_run, ("--view", "time", "--head", 0), 'data-view="time" data-layer="mean" data-head="0"'),
        (label_runs["one"], (), 'data-view="words" data-layer="mean" data-head="mean"'),
    ):
        output(capsys, run, "a b c", *options, "--html", path, "--quiet")
        assert f'<main id="view" {first}>' in path.read_text()


@pytest.mark.parametrize("view", ["matrix", "lines", "heads", "words"])
def test_every_view_as_svg(view, transformer_run, capsys, tmp_path):
    path = tmp_path / "look.svg"
    output(capsys, transformer_run, "a b c", "--target", "d a", "--view", view, "--svg", path, "--quiet")
    picture = look(load(transformer_run), "a b c", target="d a")
    drawing = path.read_text()
    if view != "words":
        assert drawing == picture.to_svg(view)
    else:
        shown = re.findall(r'data-weight="([^"]+)"', drawing)
        np.testing.assert_allclose([float(weight) for weight in shown], picture.select().mean(0), atol=1e-6)


def test_what_is_wrong_is_said_in_one_line(reverse_run, plain_run, label_runs, capsys, tmp_path):
    cases = [
        ((reverse_run, "a", "b"), "unexpected argument b; put quotes around the text"),
        ((reverse_run, "a", "--view", "lines"), "--view lines requires --svg or --html"),
        ((reverse_run, "a", "--png", "a.svg"), "--png: expected a file that ends in .png, got a.svg"),
        ((reverse_run, "a", "--svg", "a.png"), "--svg: expected a file that ends in .svg, got a.png"),
        (
            (reverse_run, "a", "--png", "a.png", "--view", "lines"),
            "--png cannot show --view lines; choose from matrix",
        ),
        (
            (reverse_run, "a", "--svg", "a.svg", "--view", "time"),
            "--svg cannot show --view time; choose from matrix, lines, heads, words",
        ),
        (
            (reverse_run, "a", "--gold", "0:0"),
            '--gold: expected a link such as 3-4 (sure) or 3p4 (possible), got "0:0"',
        ),
        (
            (reverse_run, "a", "--target", "a", "--gold", "7-0"),
            "attention map: link (column 7, row 0) is out of range; columns are 0 to 1, rows 0 to 1",
        ),
        ((reverse_run, "a", "--head", 3), 'head must be from 0 to 0 or "mean", got 3'),
        (
            (reverse_run, "a", "--layer", 1, "--html", tmp_path / "no.html", "--json", tmp_path / "no.json"),
            'layer must be from 0 to 0 or "mean", got 1',
        ),
        (
            (label_runs["crf"], "a b", "--view", "time", "--html", tmp_path / "no.html"),
            "--view time requires a model that generates text",
        ),
        ((reverse_run, ""), "look: the text is empty"),
        (
            (label_runs["crf"], "a b", "--view", "time"),
            "--view time requires a model that generates text",
        ),
        (
            (plain_run, "a"),
            "seq2seq has no attention from target to source",
        ),
    ]
    for arguments, line in cases:
        assert refusal(capsys, *arguments) == f"regard: {line}\n"
    assert list(tmp_path.iterdir()) == []


def test_a_text_may_begin_with_a_hyphen(reverse_run, capsys):
    assert output(capsys, reverse_run, "-a b").startswith("bahdanau: -a b → ")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--bogus"], "look: unknown option --bogus; see regard look --help (to use it as the text, put -- before it)"),
        (["--hed=1", "a b"],
         "look: unknown option --hed; did you mean --head? (to use it as the text, put -- before it)"),
        (["a b", "--bogus", "c"],
         "look: unknown option --bogus; see regard look --help (to use it as the text, put -- before it)"),
    ],
)  # fmt: skip
def test_an_unknown_option_is_not_the_text(reverse_run, capsys, arguments, line):
    assert refusal(capsys, reverse_run, *arguments) == f"regard: {line}\n"


def test_a_text_or_a_value_may_begin_with_hyphens(reverse_run, capsys):
    assert output(capsys, reverse_run, "--", "--bogus").startswith("bahdanau: --bogus → ")
    assert output(capsys, reverse_run, "-- a").startswith("bahdanau: -- a → ")
    assert output(capsys, reverse_run, "a b", "--target", "--b").startswith("bahdanau: a b → --b")


def test_a_hugging_face_model_is_answered_with_the_command_that_shows_it(tmp_path, capsys):
    (tmp_path / "config.json").write_text("{}")
    assert refusal(capsys, tmp_path, "a") == (
        f'regard: {tmp_path} is a Hugging Face model, not a run; to look at it: regard look hf:{tmp_path} "TEXT"\n'
    )


def test_a_predictor_needs_no_options(reverse_run):
    model = load(reverse_run)
    np.testing.assert_array_equal(model.look("a b").weights, look(model, "a b").weights)


@pytest.mark.parametrize(("value", "line"), [(5, "expected a string, got int"), (" ", "the text is empty")])
def test_a_predictor_looks_at_a_text(reverse_run, value, line, monkeypatch):
    monkeypatch.setattr(jaxtyping.config, "jaxtyping_disable", True)  # as outside of tests, where any value may come
    with pytest.raises(RegardError, match=f"^look: {line}$"):
        load(reverse_run).look(value)


@pytest.mark.parametrize("command", ["look", "explain", "predict"])
def test_bytes_that_are_no_text_are_said(command, reverse_run, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a b\nc \xff\n")))
    assert main([command, str(reverse_run)]) == 2
    expected = "regard: standard input, line 2: byte 3 (0xff) is not valid UTF-8; save the file as UTF-8\n"
    assert capsys.readouterr().err == expected


def test_json_and_svg_are_written_to_stdout(reverse_run, tmp_path, capsys):
    for option in ("json", "svg"):
        file = tmp_path / f"look.{option}"
        assert main(["look", str(reverse_run), "a b", f"--{option}", str(file)]) == 0
        capsys.readouterr()
        assert output(capsys, reverse_run, "a b", f"--{option}", "-") == file.read_text()
        assert main(["look", str(reverse_run), "a b", f"--{option}", "-", "--html", str(tmp_path / "a.html")]) == 0
        assert capsys.readouterr() == (file.read_text(), f"wrote {tmp_path / 'a.html'}\n")


def test_stdout_takes_one_output(reverse_run, capsys):
    line = "regard: --svg and --json cannot both write to stdout\n"
    assert refusal(capsys, reverse_run, "a b", "--json", "-", "--svg", "-") == line
    line = 'regard: invalid value "--svg" for --json. Expected a file, or - for stdout.\n'
    assert refusal(capsys, reverse_run, "a b", "--json", "--svg", "x.svg") == line
