"""Labeled and tagged data that can be learned in seconds, and models that have learned it."""

import json
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

FILL = ("one", "two", "three", "four", "five", "six", "seven", "eight")
LABELS = {"good": "plus", "great": "plus", "bad": "minus", "awful": "minus", "odd": "other"}
NAMES = ("ann", "bob", "kim", "lee", "max")
PROGRAM = "import json, sys; from regard.cli import main; sys.exit(max(main(each) for each in json.load(sys.stdin)))"

USUAL = (
    "--quiet",
    "--device",
    "cpu",
    "--char-encoder",
    "none",
    "--word-dropout",
    "0",
    "--dropout",
    "0",
    "--learning-rate",
    "0.02",
)
SIZES = (
    "--hidden",
    "16",
    "--embedding",
    "16",
    "--batch-tokens",
    "300",
    "--validate-every",
    "20",
    "--validation-share",
    "0.2",
)
TASKS = {  # name: the file, the settings
    "one": ("one.tsv", "--task", "label", "--encoder", "embedding", "--steps", "80"),
    "several": ("several.tsv", "--task", "label", "--encoder", "embedding", "--steps", "120"),
    "context": ("context.tsv", "--task", "label", "--encoder", "embedding", "--context", "2", "--steps", "120"),
    "pairs": ("pairs.tsv", "--task", "label", "--encoder", "embedding", "--columns", "1,3,2", "--steps", "120"),
    "mean": ("one.tsv", "--task", "label", "--encoder", "embedding", "--pooling", "mean", "--steps", "20"),
    "crf": ("names.bio", "--attention-heads", "2", "--encoder", "both", "--steps", "120"),
    "plain": ("words.bio", "--encoder", "rnn", "--crf", "false", "--steps", "80"),
    "no-crf": ("names.bio", "--attention-heads", "2", "--encoder", "both", "--crf", "false", "--steps", "120"),
}
"""Every model that is trained."""


def text_with(draw: random.Random, keys: Sequence[str], most: int = 6) -> str:
    """Some words, among them those that decide."""
    words = draw.choices(FILL, k=draw.randint(2, most))
    for key in keys:
        words.insert(draw.randint(0, len(words)), key)
    return " ".join(words)


def write_data(folder: Path) -> None:
    """The file of every task; the label is decided by one word, a tag by the word before."""
    draw = random.Random(7)
    keys = list(LABELS)
    one = [(text_with(draw, [key]), LABELS[key]) for key in draw.choices(keys, k=240)]
    (folder / "one.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in one))
    chosen = [draw.sample(["good", "bad", "odd"], k=draw.randint(1, 2)) for _ in range(240)]
    several = [(text_with(draw, some, 3), "|".join(sorted(LABELS[key] for key in some))) for some in chosen]
    (folder / "several.tsv").write_text("".join(f"{text}\t{labels}\n" for text, labels in several))
    (folder / "context.tsv").write_text("\n".join("".join(dialogue(draw)) for _ in range(60)))
    both = [(draw.choice(keys), draw.choice(keys)) for _ in range(300)]
    pairs = [(text_with(draw, [a], 2), "same" if LABELS[a] == LABELS[b] else "other", b) for a, b in both]
    (folder / "pairs.tsv").write_text("".join(f"{text}\t{second}\t{label}\n" for text, label, second in pairs))
    sentences = [sentence(draw) for _ in range(320)]
    (folder / "names.bio").write_text("\n".join("".join(f"{w}\t{t}\n" for w, t in each) for each in sentences))
    plain = [[(word, "NAME" if word in NAMES else "WORD") for word, _ in each] for each in sentences]
    (folder / "words.bio").write_text("\n".join("".join(f"{w} {t}\n" for w, t in each) for each in plain))


def dialogue(draw: random.Random) -> list[str]:
    """Utterances, each of which is labeled by a word of the one before."""
    before, lines = "none", []
    for key in draw.choices(["good", "bad"], k=5):
        lines.append(f"{text_with(draw, [key], 2)}\t{before}\n")
        before = LABELS[key]
    return lines


def sentence(draw: random.Random) -> list[tuple[str, str]]:
    """Names, which are persons after mr and places after in, and nothing else."""
    result: list[tuple[str, str]] = []
    for _ in range(draw.randint(1, 3)):
        result += [(word, "O") for word in draw.choices((*FILL, *NAMES), k=draw.randint(0, 2))]
        kind, before = draw.choice([("PER", "mr"), ("LOC", "in")])
        result += [(before, "O"), (draw.choice(NAMES), f"B-{kind}")]
        if draw.random() < 0.5:
            result.append(("junior", f"I-{kind}"))
        result.append((draw.choice(FILL), "O"))
    return result[: len(result) - draw.randint(0, 1)]  # a name may be the last word


def train_all(folder: Path) -> None:
    """Train each task by the command, as a user runs it: without the checks of types that tests have; on one core."""
    write_data(folder)
    lines = [
        ["train", str(folder / file), "--out", str(folder / name), *USUAL, *SIZES, *settings]
        for name, (file, *settings) in TASKS.items()
    ]
    done = subprocess.run([sys.executable, "-c", PROGRAM], input=json.dumps(lines), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
