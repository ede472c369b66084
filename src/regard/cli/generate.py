"""`regard generate`: a beginning in, texts out."""

from __future__ import annotations

import json
import secrets
import sys
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from regard.cli.devices import chosen_device
from regard.cli.options import Flag
from regard.errors import RegardError

if TYPE_CHECKING:
    from regard.text_predictor import Text, TextPredictor

SEEDS = 2**32
"""How many seeds there are."""

BETWEEN = "\n---\n"
"""What stands between two texts."""

Beginning = Annotated[str, Parameter(allow_leading_hyphen=True)]
"""A text, which may begin with a hyphen; - alone is stdin."""


def generate(
    run: Path,
    /,
    *,
    prompt: Beginning = "",
    tokens: int = 200,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    greedy: Flag = False,
    beam: int | None = None,
    nbest: int | None = None,
    count: int = 1,
    seed: int | None = None,
    jsonl: Flag = False,
    device: str = "auto",
    quiet: Flag = False,
) -> None:
    """Write texts that begin with a prompt.

    Args:
        run: A run folder of a language model, made by regard train.
        prompt: What the text begins with; - is stdin.
        tokens: The most tokens to write.
        temperature: Below 1 the probable becomes more probable, above 1 less; 1 unless set.
        top_k: Draw from so many most probable tokens only.
        top_p: Draw only from the fewest most probable tokens that have this share together.
        greedy: Draw nothing, take the most probable token each time.
        beam: Draw nothing, search for the most probable text with so many hypotheses.
        nbest: With --beam, so many texts, the best first; 1 unless set.
        count: How many texts to draw.
        seed: Of the first text drawn, the others have those that follow; each time another unless set.
        jsonl: Write a JSON object for each text, with its log-probability.
        device: auto, cpu, cuda, cuda:1.
        quiet: Do not say which seed was taken, nor what of the prompt is unknown.
    """
    from regard.loading import load_text

    check_numbers(tokens=tokens, top_k=top_k, beam=beam, nbest=nbest, count=count)
    check_drawing(temperature, top_p, seed)
    drawn = {"--temperature": temperature, "--top-k": top_k, "--top-p": top_p, "--seed": seed}
    check_together([name for name, value in drawn.items() if value is not None], greedy, beam, nbest, count)
    model = load_text(run, chosen_device(device))
    prompt = from_stdin() if prompt == "-" else prompt
    if not quiet:
        say_unknown(model, prompt)
    if beam is not None:
        found = model.continuations(prompt, tokens=tokens, beam=beam, nbest=nbest or 1)
        texts = [as_json(prompt, text) if jsonl else prompt + text.text for text in found]
        print(*texts, sep="\n" if jsonl else BETWEEN)
        return
    how: dict[str, Any] = {"tokens": tokens, "top_k": top_k, "top_p": top_p, "greedy": greedy}
    how["temperature"] = 1.0 if temperature is None else temperature
    first = secrets.randbelow(SEEDS) if seed is None else seed
    seeds = [(first + place) % SEEDS for place in range(count)]
    write = write_records if jsonl else write_texts
    write(model, prompt, seeds, how)
    if seed is None and not greedy and not quiet:
        print(f"drawn with --seed {first}", file=sys.stderr)


def check_numbers(**numbers: int | None) -> None:
    """Raise a `RegardError` for a number of things that is below 1."""
    for name, number in numbers.items():
        if number is not None and number < 1:
            raise RegardError(f"--{name.replace('_', '-')}: {number} is too few; 1 is the least")


def check_drawing(temperature: float | None, top_p: float | None, seed: int | None) -> None:
    """Raise a `RegardError` for settings that nothing can be drawn with."""
    if temperature is not None and not 0 < temperature < inf:
        raise RegardError(
            f"--temperature: found {temperature}; a number above 0 is needed (--greedy is its limit at 0)"
        )
    if top_p is not None and not 0 < top_p <= 1:
        raise RegardError(f"--top-p: found {top_p}; a share above 0 and at most 1 is needed")
    if seed is not None and not 0 <= seed < SEEDS:
        raise RegardError(f"--seed: found {seed}; a number from 0 to {SEEDS - 1} is needed")


def check_together(drawn: list[str], greedy: bool, beam: int | None, nbest: int | None, count: int) -> None:
    """Raise a `RegardError` for options that contradict each other."""
    way = "--beam" if beam is not None else "--greedy" if greedy else None
    if beam is not None and greedy:
        raise RegardError("--greedy: does not go with --beam; a beam of 1 is greedy")
    if way is not None and drawn:
        raise RegardError(f"{way}: does not go with {', '.join(drawn)}; it draws nothing")
    if way is not None and count > 1:
        raise RegardError(f"{way}: does not go with --count; it draws nothing, so that all texts would be one")
    if nbest is not None and beam is None:
        raise RegardError("--nbest: needs --beam; drawn texts are counted by --count")
    if nbest is not None and beam is not None and nbest > beam:
        raise RegardError(f"--nbest: {nbest} best of a beam of {beam} are too many; set --beam to {nbest} or more")


def from_stdin() -> str:
    """All of stdin, without the end of its last line."""
    from regard.data.formats import read_lines

    return "\n".join(read_lines(Path("-")))


def say_unknown(model: TextPredictor, prompt: str) -> None:
    """Say on stderr how much of a prompt the model does not know."""
    from regard.batch import UNKNOWN

    tokens = model.tokenizer.encode(prompt)
    if UNKNOWN in tokens:
        unknown = f"{tokens.count(UNKNOWN)} of {len(tokens)} tokens"
        print(f"{unknown} of the prompt are unknown to the model", file=sys.stderr)


def write_texts(model: TextPredictor, prompt: str, seeds: list[int], how: dict[str, Any]) -> None:
    """Write one text after another, each piece as soon as it is there."""
    for place, seed in enumerate(seeds):
        pieces = model.stream(prompt, seed=seed, **how)  # says what is wrong with the prompt
        print(BETWEEN if place else "", prompt, sep="", end="", flush=True)
        for piece in pieces:
            print(piece, end="", flush=True)
    print()


def write_records(model: TextPredictor, prompt: str, seeds: list[int], how: dict[str, Any]) -> None:
    """Write one JSON object a line, with the seed of each text unless nothing was drawn."""
    for seed in seeds:
        text = model.generate(prompt, seed=seed, **how)
        print(as_json(prompt, text, None if how["greedy"] else seed), flush=True)


def as_json(prompt: str, text: Text, seed: int | None = None) -> str:
    """A text as a JSON object: what it began with, and what follows."""
    drawn = {} if seed is None else {"seed": seed}
    found = {
        "prompt": prompt,
        "text": text.text,
        "log_probability": text.log_probability,
        "ended": text.ended,
        "tokens": text.tokens,
    }
    return json.dumps({**found, **drawn}, ensure_ascii=False)
