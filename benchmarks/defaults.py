"""Train with no options on public data of several tasks, and score what users get by default.

    python benchmarks/defaults.py DATA --out results.jsonl --jobs 8 --device cuda
    python benchmarks/defaults.py DATA --out choice.jsonl --part choice --only g2p --options "" "--layers 2"
    python benchmarks/defaults.py DATA --out results.jsonl --seeds 0 1 2 --only inflection --table

DATA is a folder with the data sets, laid out as in `build_cases`. Each training is the command `regard train FILE` with
nothing but a seed, a device and the options of a variant; each score comes from `regard evaluate`.

There are two parts. The scores to report are those of `dev`: trained on all training data, scored on the development
data. Defaults are chosen on `choice`: the training data without a tenth, scored on that tenth, or, where the training
data is part of a larger set, on others of the larger set. No default is chosen on data that a score is
reported for.
Finished trainings are in the output file and are not repeated.
"""

import argparse
import contextlib
import gzip
import io
import json
import multiprocessing
import os
import shlex
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

G2P = ["ady", "arm", "bul", "dut", "fre", "geo", "gre", "hun", "ice", "jpn", "kor", "rum", "vie"]
INFLECTION = ["english", "finnish", "french", "german", "spanish", "turkish"]
MEASURES = {  # beginning of the name of a group -> what its score is
    "g2p": "word error rate, %",
    "inflection": "accuracy, %",
    "tag": "F1, %",
    "label": "accuracy, %",
    "multi-label": "micro F1, %",
    "translate": "BLEU",
    "book": "bits per character",
}
SIZES = {"low": 100, "medium": 1000, "high": 10_000}


@dataclass(frozen=True)
class Case:
    """Training and test data, and the score of `regard evaluate` that counts."""

    name: str
    group: str
    train: Sequence[str]
    test: Sequence[str]
    suffix: str
    score: tuple[str | int, ...]  # keys of the JSON report
    options: Sequence[str] = ()  # what the data need to be read
    evaluation: Sequence[str] = ()


@dataclass(frozen=True)
class Trial:
    """One training."""

    case: Case = field(repr=False)
    variant: str
    seed: int

    @property
    def key(self) -> tuple[str, str, int]:
        """What identifies the trial in the output."""
        return self.case.name, self.variant, self.seed


def read_lines(path: Path) -> list[str]:
    """The lines of a text file, gzipped or not, with their ends."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return text.decode().splitlines(keepends=True)


def read_sentences(path: Path) -> list[str]:
    """The sentences of a file with one word per line and blank lines between sentences."""
    return [sentence.strip("\n") + "\n\n" for sentence in path.read_text().split("\n\n") if sentence.strip()]


def split(train: Sequence[str], test: Sequence[str], part: str) -> tuple[Sequence[str], Sequence[str]]:
    """The training and test data of a part; the data may be sorted, so every tenth item is held out."""
    if part == "dev":
        return train, test
    return [item for i, item in enumerate(train) if i % 10 != 9], train[9::10]


def sample(items: Sequence[str], count: int) -> Sequence[str]:
    """Items at equal distances, since the data may be sorted."""
    return [items[i * len(items) // count] for i in range(count)]


def build_g2p_cases(data: Path, part: str) -> Iterator[Case]:
    """Letters to phones in 13 languages, with all 3,600 words, and with 800 and 200 of some."""
    for language in G2P:
        words = read_lines(data / f"sigmorphon2020_g2p/{language}_train.tsv")
        dev = read_lines(data / f"sigmorphon2020_g2p/{language}_dev.tsv")
        score = ("text", "whole_word_error_rate", "value")
        yield Case(f"g2p-{language}", "g2p", *split(words, dev, part), ".tsv", score)
        if language in ("fre", "gre", "hun", "kor"):
            for size in (800, 200):
                kept, held_out = split(words, dev, part)
                yield Case(f"g2p-{language}-{size}", f"g2p-{size}", sample(kept, size), held_out, ".tsv", score)


def build_inflection_cases(data: Path, part: str) -> Iterator[Case]:
    """Lemma and features to form, in six languages and three sizes."""
    folder = data / "conll2017_inflection"
    for language in INFLECTION:
        dev = read_lines(folder / f"{language}.dev.tsv")
        high = read_lines(folder / f"{language}.train-high.tsv")
        for size in SIZES:
            train: Sequence[str] = read_lines(folder / f"{language}.train-{size}.tsv")
            known = set(train)
            if part == "choice" and size != "high":
                test: Sequence[str] = [line for line in high[-600:] if line not in known]
            else:
                train, test = split(train, dev, part)
            options = ("--columns", "1+3,2")
            yield Case(
                f"inflection-{language}-{size}",
                f"inflection-{size}",
                train,
                test,
                ".tsv",
                ("text", "exact_match", "value"),
                options,
                options,
            )


def build_word_cases(data: Path, part: str) -> Iterator[Case]:
    """Labels of texts, and tags of words."""
    for name, train, dev in (("wnut17", "train", "dev"), ("wikiann", "en.train", "en.dev")):
        sentences = read_sentences(data / name / f"{train}.bio"), read_sentences(data / name / f"{dev}.bio")
        yield Case(f"tag-{name}", f"tag-{name}", *split(*sentences, part), ".bio", ("f1", "value"))
    questions = read_lines(data / "trec/train.tsv")
    held_out = questions[::10]
    rest = [line for i, line in enumerate(questions) if i % 10]
    label = ("--task", "label")
    accuracy = ("accuracy", "value")
    trec = split(rest, held_out, part)
    yield Case("label-trec", "label", *trec, ".tsv", accuracy, (*label, "--columns", "3,1"))
    terms = split(read_lines(data / "debtags/train.tsv"), read_lines(data / "debtags/dev.tsv"), part)
    yield Case("label-debtags", "multi-label", *terms, ".tsv", ("micro_f1", "value"), label)


def build_text_cases(data: Path, part: str) -> Iterator[Case]:
    """Translation of captions with 5,000 and 29,000 pairs, and a book by letters."""
    captions = read_captions(data, "train")
    for size in (5000, len(captions)):
        pairs = split(sample(captions, size), read_captions(data, "val"), part)
        yield Case(f"translate-{size}", f"translate-{size}", *pairs, ".tsv", ("text", "bleu", "value"))
    book = read_lines(data / "tinyshakespeare/train.txt"), read_lines(data / "tinyshakespeare/valid.txt")
    score = ("scores", 3, "value")
    yield Case("book", "book", *split(*book, part), ".txt", score)


def read_captions(data: Path, name: str) -> list[str]:
    """English and German captions, as lines of a table."""
    sides = [(data / f"multi30k/{name}.{language}").read_text().splitlines() for language in ("en", "de")]
    return [f"{source}\t{target}\n" for source, target in zip(*sides, strict=True)]


def build_cases(data: Path, part: str) -> list[Case]:
    """All cases, the largest first, so that no long training starts last."""
    builders = (build_g2p_cases, build_inflection_cases, build_word_cases, build_text_cases)
    cases = [case for build in builders for case in build(data, part)]
    return sorted(cases, key=lambda case: -sum(map(len, case.train)))


def call_regard(*arguments: str) -> str:
    """Run the command in this process and return what it prints."""
    from regard.cli import main

    with contextlib.redirect_stdout(io.StringIO()) as output:
        status = main(list(arguments))
    if status:
        raise RuntimeError(f"regard {shlex.join(arguments)} ended with status {status}")
    return output.getvalue()


def run_trial(trial: Trial, device: str) -> dict[str, object]:
    """Train and score."""
    case = trial.case
    record: dict[str, object] = {"case": case.name, "group": case.group, "variant": trial.variant, "seed": trial.seed}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        train, test, run = folder / f"train{case.suffix}", folder / f"test{case.suffix}", str(folder / "run")
        train.write_text("".join(case.train))
        test.write_text("".join(case.test))
        clock = time.process_time if device == "cpu" else time.perf_counter  # a core's time, whatever else it does
        start = clock()
        settings = ["--seed", str(trial.seed), "--device", device, "--quiet", "--threads", "1"]
        try:
            call_regard("train", str(train), "--out", run, *case.options, *shlex.split(trial.variant), *settings)
            record["seconds"] = round(clock() - start, 1)
            report = json.loads(call_regard("evaluate", run, str(test), "--json", "--device", device, *case.evaluation))
            for key in case.score:
                report = report[key]
            metrics = (folder / "run/metrics.jsonl").read_text().splitlines()
            record |= {"score": report, "steps": json.loads(metrics[-1])["step"]}
        except Exception as error:
            record["error"] = repr(error)[:500]
    return record


def run_in_worker(arguments: tuple[Trial, str]) -> dict[str, object]:
    """Run a trial in a process of the pool."""
    return run_trial(*arguments)


def run_trials(trials: Sequence[Trial], out: Path, jobs: int, device: str) -> None:
    """Run trials side by side, and append each result to the file as soon as it is there."""
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    with context.Pool(jobs) as pool, out.open("a") as file:
        results = pool.imap_unordered(run_in_worker, [(trial, device) for trial in trials])
        for i, record in enumerate(results, 1):
            print(json.dumps(record), file=file, flush=True)
            print(f"{i}/{len(trials)}", json.dumps(record), file=sys.stderr, flush=True)


def read_results(path: Path) -> list[dict[str, Any]]:
    """The results so far, without trials that failed."""
    records = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    return [record for record in records if "error" not in record]


@dataclass(frozen=True)
class Measured:
    """The score and the time of one training: that of its core on a CPU, that of the clock on a GPU."""

    seed: int
    score: float
    seconds: float


@dataclass(frozen=True)
class Row:
    """A line of the table: a case, or the mean of a group, with one variant and several seeds."""

    name: str
    measure: str
    variant: str
    results: Sequence[Measured]

    def cells(self) -> list[str]:
        """Name, options, measure, mean score, its standard deviation over the seeds, seeds, and mean minutes."""
        factor, digits = (100, 1) if "%" in self.measure else (1, 1 if self.measure == "BLEU" else 3)
        scores = [factor * each.score for each in self.results]
        spread = f"{statistics.stdev(scores):.{digits}f}" if len(scores) > 1 else ""
        mean, minutes = statistics.mean(scores), statistics.mean(each.seconds for each in self.results) / 60
        options = self.variant or "none"
        return [self.name, options, self.measure, f"{mean:.{digits}f}", spread, str(len(scores)), f"{minutes:.1f}"]


def build_rows(records: Iterable[dict[str, Any]]) -> list[Row]:
    """The rows of all cases; after those of a group their macro mean, for the seeds that all of its cases have."""
    groups: dict[tuple[str, str], dict[str, list[Measured]]] = defaultdict(lambda: defaultdict(list))
    for row in records:
        measured = Measured(int(row["seed"]), float(row["score"]), float(row["seconds"]))
        groups[row["group"], row["variant"]][row["case"]].append(measured)
    rows = []
    for (group, variant), cases in sorted(groups.items()):
        measure = next(name for prefix, name in MEASURES.items() if group.startswith(prefix))
        rows += [Row(case, measure, variant, results) for case, results in sorted(cases.items())]
        if len(cases) > 1:
            rows.append(Row(f"**{group}**, mean of {len(cases)}", measure, variant, average_cases(cases.values())))
    return rows


def average_cases(cases: Iterable[Sequence[Measured]]) -> list[Measured]:
    """The mean over cases for each seed that all of them have."""
    by_seed = [{each.seed: each for each in results} for results in cases]
    return [
        Measured(
            seed,
            statistics.mean(results[seed].score for results in by_seed),
            statistics.mean(results[seed].seconds for results in by_seed),
        )
        for seed in sorted(set.intersection(*(set(results) for results in by_seed)))
    ]


def print_table(records: Iterable[dict[str, Any]]) -> None:
    """Print a Markdown table of all cases and of the means of their groups."""
    print("| data | options | measure | score | standard deviation | seeds | minutes |\n|---|---|---|---|---|---|---|")
    for row in build_rows(records):
        if row.results:
            print(f"| {' | '.join(row.cells())} |")


def parse_arguments() -> argparse.Namespace:
    """The arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="JSON Lines, one training each")
    parser.add_argument("--part", choices=("dev", "choice"), default="dev")
    parser.add_argument(
        "--only", nargs="*", default=[], help="names of cases, or the beginning of their names, to train or to print"
    )
    parser.add_argument("--options", nargs="*", default=[""], help="variants: options of regard train, one string each")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--table", action="store_true", help="print the table of the output file and stop")
    return parser.parse_args()


def is_chosen(case: str, only: Sequence[str]) -> bool:
    """Whether the name of a case begins with one of some words; any name does if there are none."""
    return not only or case.startswith(tuple(only))


def main() -> None:
    """Run what is missing, then print the table."""
    arguments = parse_arguments()
    if not arguments.table:
        cases = build_cases(arguments.data, arguments.part)
        chosen = [case for case in cases if is_chosen(case.name, arguments.only)]
        trials = [
            Trial(case, variant, seed) for seed in arguments.seeds for case in chosen for variant in arguments.options
        ]
        done = {(row["case"], row["variant"], row["seed"]) for row in read_results(arguments.out)}
        missing = [trial for trial in trials if trial.key not in done]
        run_trials(missing, arguments.out, arguments.jobs, arguments.device)
    print_table(row for row in read_results(arguments.out) if is_chosen(str(row["case"]), arguments.only))


if __name__ == "__main__":
    main()
