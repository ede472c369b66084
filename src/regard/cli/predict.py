"""`regard predict`: sources in, targets out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.counting import after, counted, parts
from regard.cli.devices import chosen_device
from regard.cli.label_runs import Output, print_labels, print_tags, refuse_for
from regard.cli.options import File, Flag
from regard.cli.remarks import Remarks
from regard.cli.text_runs import print_surprises, refuse_for_text, task_of_run
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.predictor import Options, Prediction

AT_ONCE = 2000
"""Sources read before the first is answered: enough to sort them by length, few enough for a stream of any size."""


def predict(
    run: Path,
    /,
    *,
    source: File = Path("-"),
    beam: int | None = None,
    nbest: int = 1,
    length_penalty: float | None = None,
    longest: int | None = None,
    log_probabilities: Flag = False,
    jsonl: Flag = False,
    weights: Flag = False,
    draw: Flag = False,
    picture: Path | None = None,
    tokens: Flag = False,
    threshold: float | None = None,
    why: Flag = False,
    html: Path | None = None,
    words: Flag = False,
    device: str = "auto",
    quiet: Flag = False,
) -> None:
    """Write the target of each line, its labels, the tags of its words, or for a language model its log-probability.

    Args:
        run: A run folder made by regard train.
        source: A file of sources, or of texts for a language model, one a line; - is stdin.
        beam: Hypotheses kept at each step, 1 is greedy; as in the run's recipe unless set.
        nbest: Targets for each source, the best first, one a line; empty lines where there are no more. Of a
            classifier, labels with their probabilities, on one line.
        length_penalty: 0 prefers short targets; as in the run's recipe unless set.
        longest: Tokens of a target at the most; twice those of its source and 50 more unless set.
        log_probabilities: Put the log-probability and a tab before each target.
        jsonl: Write a JSON object for each source, with tokens, log-probabilities and alternatives.
        weights: With --jsonl, also write the attention: layers, heads, target, source.
        draw: Draw the attention of each source's best target beneath it.
        picture: Of one source, draw the attention into this file: .png, .svg or .pdf.
        tokens: Of a language model, also write each token and how much it surprised the model, in nats.
        threshold: Of several labels, how probable they must be; as tuned on the validation data unless set.
        why: Of labels and tags, also show the words, shaded by their attention weights.
        html: Of labels and tags, write the shaded words into this file, a page that needs nothing else.
        words: Of a tagger, read a word a line, with a blank line after each sentence; as from a file named .bio or
            .conll.
        device: auto, cpu, cuda, cuda:1.
        quiet: Show no progress, and do not say that much of the text is unknown or holds a tab.
    """
    from regard.data.formats import read_lines
    from regard.loading import load_pairs
    from regard.views.matrix import check_ending

    task = task_of_run(run)
    if task in ("label", "tag"):
        others = {"beam": beam, "length-penalty": length_penalty, "longest": longest, "draw": draw, "picture": picture}
        others |= {"log-probabilities": log_probabilities, "weights": weights, "tokens": tokens}
        output = Output(nbest, threshold, why, html, jsonl)
        if task == "label":
            refuse_for("predict", run, task, {**others, "words": words})
            print_labels(run, source, output, device=device, quiet=quiet)
        else:
            refuse_for("predict", run, task, {**others, "nbest": nbest != 1, "threshold": threshold})
            print_tags(run, source, output, words=words, device=device, quiet=quiet)
        return
    for name, value in {"threshold": threshold, "why": why or None, "html": html, "words": words or None}.items():
        if value is not None:
            raise RegardError(f"--{name}: is for labels and tags; {run} has none")
    if task == "text":
        search = {"beam": beam, "nbest": nbest != 1, "length-penalty": length_penalty, "longest": longest}
        shown = {"log-probabilities": log_probabilities, "weights": weights, "draw": draw, "picture": picture}
        refuse_for_text("predict", run, {**search, **shown})
        print_surprises(run, source, tokens=tokens, jsonl=jsonl, device=device, quiet=quiet)
        return
    if tokens:
        raise RegardError("--tokens: is for language models; --jsonl has the tokens of both sides")
    if weights and not jsonl:
        raise RegardError("--weights: needs --jsonl; a line of text has no room for them")
    if draw and jsonl:
        raise RegardError("--draw: does not go with --jsonl; ask for --weights there")
    if picture is not None:
        check_ending(picture)
    model = load_pairs(run, chosen_device(device))
    options: Options = {
        "beam": beam,
        "nbest": nbest,
        "length_penalty": length_penalty,
        "longest": longest,
        "return_weights": weights or draw or picture is not None,
    }
    model.predict([], **options)  # what is wrong with them is said before any line is read
    by_hand = source == Path("-") and sys.stdin.isatty()
    lines, done, remarks = read_lines(source), 0, Remarks()
    if picture is not None:
        lines = only_line(lines)
    with counted(quiet) as show:
        for several in parts(lines, 1 if by_hand else AT_ONCE):
            options["progress"] = after(done, show)
            predictions = model.predict(several, **options)
            remarks.hear(predictions)
            for prediction in predictions:
                print(as_json(prediction, weights) if jsonl else as_lines(prediction, nbest, log_probabilities))
                if draw:
                    print(f"{model.attention_map(prediction).draw()}\n")
                if picture is not None:
                    model.attention_map(prediction).picture(picture)
            sys.stdout.flush()
            done += len(several)
    if not quiet:
        remarks.say()


def only_line(lines: Iterator[str]) -> Iterator[str]:
    """The only line there is, or a `RegardError`."""
    found = list(islice(lines, 2))
    if len(found) != 1:
        raise RegardError(f"--picture: there is {'more than one source' if found else 'no source'}; give one line")
    return iter(found)


def as_json(prediction: Prediction, weights: bool) -> str:
    """A prediction as a JSON object: the best target, and all that were asked for, itself first."""
    found = [record(each, weights) for each in prediction.alternatives]
    return json.dumps({"source": prediction.source, **found[0], "alternatives": found}, ensure_ascii=False)


def record(prediction: Prediction, weights: bool) -> dict[str, Any]:
    """One target as JSON has it."""
    found: dict[str, Any] = {
        "text": prediction.text,
        "log_probability": prediction.log_probability,
        "source_tokens": prediction.source_tokens,
        "target_tokens": prediction.target_tokens,
    }
    if weights and prediction.weights is not None:
        found["weights"] = prediction.weights.tolist()
    return found


def as_lines(prediction: Prediction, nbest: int, log_probabilities: bool) -> str:
    """As many lines as targets were asked for, so that it is known which belong to which source."""
    found = [(each.log_probability, in_line(each.text)) for each in prediction.alternatives]
    found += [(float("-inf"), "")] * (nbest - len(found))
    return "\n".join(f"{value:.4f}\t{text}" if log_probabilities else text for value, text in found)


def in_line(text: str) -> str:
    """A text that stays on its line, whatever the model wrote."""
    return text.replace("\n", " ").replace("\r", " ")
