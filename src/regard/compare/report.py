"""The results of a comparison: scores with intervals, tests against the first model, curves and attention maps."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from regard.compare.plan import Plan, Variant
from regard.compare.worker import get_result_file
from regard.errors import RegardError
from regard.files import read_json_table
from regard.metrics.items import (
    ITEM_METRICS,
    Interval,
    ItemComparison,
    ItemCounts,
    ItemMetric,
    LengthBand,
    bootstrap_interval,
    choose_edges,
    compare_items,
    score_bands,
)
from regard.views.attention_map import AttentionMap


@dataclass(frozen=True)
class Look:
    """The attention of a model for one text, or why there is none."""

    text: str
    map: AttentionMap | None
    reason: str


@dataclass(frozen=True, kw_only=True)
class ModelResult:
    """All results of one model, as means over its seeds unless said otherwise."""

    name: str
    seeds: int
    parameters: int
    items: Sequence[ItemCounts]  # one per seed
    score: Interval
    spread: float | None  # standard deviation of the score over seeds; None for one seed
    against_first: ItemComparison | None  # None for the first model, or if it was tested on other items
    bands: Sequence[LengthBand]
    known_bands: Sequence[LengthBand]  # without items that contain unknown words; empty if there are none
    scores: Mapping[str, float]
    curves: Sequence[Sequence[Mapping[str, float]]]  # validation by validation, one per seed
    curve_metric: str
    steps: int
    tokens: float
    seconds: float
    memory: float  # bytes
    test_tokens_per_second: float
    looks: Sequence[Look]  # of the first seed

    @property
    def tokens_per_second(self) -> float:
        """Target tokens per second of training, validations included."""
        return self.tokens / max(self.seconds, 1e-9)


@dataclass(frozen=True, kw_only=True)
class Report:
    """A finished comparison."""

    plan: Plan
    models: Sequence[ModelResult]
    failures: Mapping[str, str]  # training -> reason
    part: str  # the test data, in words
    optimistic: bool  # whether the best model was chosen on the test data
    jobs: int  # trainings that ran at the same time
    versions: Sequence[str]  # of regard, torch and Python that trained the models; more than one if they changed

    @property
    def metric(self) -> ItemMetric:
        """The metric of all scores."""
        return ITEM_METRICS[self.models[0].items[0].metric]

    @property
    def curve_metric(self) -> ItemMetric:
        """The metric of the curves by length, which for language models is the loss."""
        return self.metric if self.models[0].items[0].metric != "perplexity" else ITEM_METRICS["loss"]


def build_report(plan: Plan, folder: Path, failures: Mapping[str, str], *, jobs: int = 1) -> Report:
    """Read the results of all trainings and compute intervals, tests and curves."""
    records = {variant.name: read_results(plan, folder, variant) for variant in plan.variants}
    records = {name: results for name, results in records.items() if results}
    if not records:
        raise RegardError(f"{folder}: no training has a result")
    everything = [record for results in records.values() for record in results]
    same_tokens = len({record["tokenizer"] for record in everything}) == 1
    tests = {name: [parse_items(record, same_tokens) for record in results] for name, results in records.items()}
    first = next(iter(tests.values()))
    edges = choose_edges(ItemCounts.from_json(everything[0]["test"]["curve"]).lengths)
    models = [build_model_result(name, results, tests[name], first, edges) for name, results in records.items()]
    part = everything[0]["test"]["part"]
    optimistic = plan.test is None and "validation" in part
    versions = sorted({record["versions"] for record in everything})
    return Report(
        plan=plan, models=models, failures=failures, part=part, optimistic=optimistic, jobs=jobs, versions=versions
    )


def read_results(plan: Plan, folder: Path, variant: Variant) -> list[dict[str, Any]]:
    """Read the results of one variant, for all seeds that have one."""
    files = [get_result_file(folder, variant, seed) for seed in plan.seeds]
    return [read_result(file) for file in files if file.exists()]


RESULT_FIELDS = (
    *("versions", "parameters", "tokenizer", "steps", "tokens", "seconds", "memory", "test_seconds"),
    *("curve", "metric", "test", "looks"),
)
"""What a report needs of a result."""


def read_result(file: Path) -> dict[str, Any]:
    """Read the result of a training; raise a `RegardError` if it lacks something, as one of another version may."""
    record = read_json_table(file)
    if missing := [name for name in RESULT_FIELDS if name not in record]:
        raise RegardError(
            f"{file}: missing {', '.join(missing)}; remove the file and run the same command again to test the model "
            "again"
        )
    return record


def parse_items(record: Mapping[str, Any], same_tokens: bool) -> ItemCounts:
    """Return the test items of a result; where tokenizers differ, a text is scored by bits per character."""
    items = ItemCounts.from_json(record["test"]["items"])
    return replace(items, metric="bits_per_character") if items.metric == "perplexity" and not same_tokens else items


def build_model_result(
    name: str,
    records: Sequence[Mapping[str, Any]],
    items: Sequence[ItemCounts],
    first: Sequence[ItemCounts],
    edges: Sequence[int],
) -> ModelResult:
    """Summarize the results of one model over its seeds."""
    curves = [ItemCounts.from_json(record["test"]["curve"]) for record in records]
    same_items = items[0].metric != "bits_per_character" and len(items[0]) == len(first[0])  # blocks of other tokens

    def mean(key: str) -> float:
        return float(np.mean([record[key] for record in records]))

    names = set.intersection(*(set(record["test"]["scores"]) for record in records))
    return ModelResult(
        name=name,
        seeds=len(records),
        parameters=records[0]["parameters"],
        items=items,
        score=bootstrap_interval(items),
        spread=float(np.std([one.value for one in items], ddof=1)) if len(items) > 1 else None,
        against_first=compare_items(first, items) if same_items and items is not first else None,
        bands=score_bands(curves, edges),
        known_bands=score_bands(curves, edges, known_only=True) if curves[0].unknown.any() else [],
        scores={key: float(np.mean([record["test"]["scores"][key] for record in records])) for key in sorted(names)},
        curves=[record["curve"] for record in records],
        curve_metric=records[0]["metric"],
        steps=records[0]["steps"],
        tokens=mean("tokens"),
        seconds=mean("seconds"),
        memory=mean("memory"),
        test_tokens_per_second=float(
            np.mean([record["test"]["output_tokens"] / max(record["test_seconds"], 1e-9) for record in records])
        ),
        looks=[parse_look(look) for look in records[0]["looks"]],
    )


def parse_look(record: Mapping[str, Any]) -> Look:
    """Return the attention of a result for one text."""
    attention_map = AttentionMap.from_record(record["map"]) if "map" in record else None
    return Look(record["text"], attention_map, record.get("reason", ""))


def list_commands(plan: Plan, folder: Path) -> list[str]:
    """Return the command that repeats the training of each variant with the first seed, from its own recipe."""
    recipes = [shlex.quote(str(folder / "recipes" / f"{variant.slug}.toml")) for variant in plan.variants]
    threads = "" if plan.threads is None else f" --threads {plan.threads}"
    return [
        f"regard train {recipe} --seed {plan.seeds[0]} --out RUN --device {plan.device}{threads}" for recipe in recipes
    ]
