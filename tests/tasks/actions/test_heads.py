import re

import pytest
import torch

import regard
from regard.batch import BOS
from regard.cli import main
from regard.errors import RegardError
from regard.tasks.loading import load


def test_heads_of_a_run_are_those_of_its_weights(gpt_run, tmp_path, capsys):
    (tmp_path / "text.txt").write_text("the cat the cat\n")
    assert main(["heads", str(gpt_run), "--text", str(tmp_path / "text.txt"), "--device", "cpu"]) == 0
    predictor = load(gpt_run)
    scores = regard.heads(predictor, "the cat the cat")
    assert capsys.readouterr().out == f"{scores}\n"
    picture = regard.look(predictor, "the cat the cat", words=False)
    entropy = torch.special.entr(torch.tensor(picture.weights).double()).sum(-1).mean(-1)
    torch.testing.assert_close(torch.from_numpy(scores.select("entropy")), entropy, rtol=1e-4, atol=1e-5)
    assert scores.tokens == len([BOS, *predictor.tokenizer.encode("the cat the cat")])


def test_heads_of_another_task_are_said(reverse_run, capsys):
    assert main(["heads", str(reverse_run), "--text", "a.txt"]) == 2
    assert capsys.readouterr().err == f"regard: heads is for the task text; {reverse_run} is of the task pairs\n"
    expected = "heads: bahdanau is not a language model; regard.look shows its attention"
    with pytest.raises(RegardError, match=f"^{re.escape(expected)}$"):
        regard.heads(load(reverse_run), "abc")
