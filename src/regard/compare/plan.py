"""The plan of a comparison: which models to train, with which settings and seeds, under which budget."""

from __future__ import annotations

import json
import math
import re
import tempfile
import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from regard.errors import RegardError
from regard.files import read_json_table, write_text
from regard.memory import on_meta_device
from regard.recipe import build_model
from regard.run import Run
from regard.settings import Table, parse_settings
from regard.tasks import find_task, to_recipe
from regard.training.engines import build_engine
from regard.training.prepared import Prepared
from regard.training.reporter import Reporter
from regard.training.schedule import compute_learning_rate
from regard.training.train import initialize_model, resolve_epochs

FORMAT = 1
WIDTHS = ("width", "hidden", "embedding", "feed_forward")
"""Settings that scale a model, to match the number of parameters; the first that a model has is the leading one."""

MAX_WIDTH = 8192

WARMUP_UPDATES, TIMED_UPDATES = 5, 20
"""Updates to time for a budget in minutes."""


def to_file_name(name: str) -> str:
    """Return the name of a variant as a file name."""
    return re.sub(r"[^\w.-]+", "-", name).strip("-")


@dataclass(frozen=True)
class Variant:
    """One model of a comparison: its name in tables and pictures, and its recipe as plain values."""

    name: str
    table: Table

    @property
    def slug(self) -> str:
        """The name as a file name."""
        return to_file_name(self.name)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """All trainings of a comparison, and how to test them."""

    variants: tuple[Variant, ...]
    seeds: tuple[int, ...]
    test: str | None  # test data; by default new examples of a built-in corpus, or the validation part
    texts: tuple[str, ...] = ()  # texts whose attention to show; by default three test items
    device: str = "cpu"
    threads: int | None = None  # CPU threads of each training; None for those that torch chooses
    command: str = ""  # the command that started the comparison

    def __post_init__(self) -> None:
        slugs = [variant.slug for variant in self.variants]
        for slug in slugs:
            if slugs.count(slug) > 1:
                raise RegardError(f"compare: {slug} is given twice")

    @property
    def trainings(self) -> list[tuple[Variant, int]]:
        """All trainings: seed by seed, so that every model has a result early."""
        return [(variant, seed) for seed in self.seeds for variant in self.variants]

    def save(self, folder: Path) -> None:
        """Write the plan to a folder, or check that the plan there is the same.

        Raises:
            RegardError: The folder holds another comparison.
        """
        content = json.dumps({"format": FORMAT, **asdict(self)}, indent=2, ensure_ascii=False) + "\n"
        if get_plan_file(folder).exists():
            saved = read_plan(folder)
            if differing := self.find_differences(saved):
                raise RegardError(
                    f"{folder} holds another comparison ({differing[0]} differs); choose another --out, "
                    "or run the same command to resume it"
                )
            if replace(saved, command=self.command) == self:
                return
        elif folder.exists() and any(folder.iterdir()):
            raise RegardError(f"{folder} is not empty and not a comparison; choose another folder")
        write_text(get_plan_file(folder), content)

    def find_differences(self, saved: Plan) -> list[str]:
        """Return what differs from a saved plan; models, seeds, texts, device and threads may change."""
        known = {variant.name: variant.table for variant in saved.variants}
        changed = [variant.name for variant in self.variants if known.get(variant.name, variant.table) != variant.table]
        return [*changed, *(["the test data"] if self.test != saved.test else [])]


def get_plan_file(folder: Path) -> Path:
    """Return the file of the plan in the folder of a comparison."""
    return folder / "plan.json"


def read_plan(folder: Path) -> Plan:
    """Read the plan of a comparison."""
    path = get_plan_file(folder)
    record = read_json_table(path)
    if record.pop("format", None) != FORMAT:
        raise RegardError(f"{path}: expected a plan of format {FORMAT}")
    return parse_settings(Plan, record, f"{path} is corrupt: plan")


class Draft:
    """A variant that is not yet trained: its data is read once, to choose settings and to count parameters."""

    def __init__(self, variant: Variant, device: str) -> None:
        self.variant, self.device = variant, device

    @cached_property
    def prepared(self) -> Prepared:
        """The data and settings of the training, with defaults filled in."""
        with tempfile.TemporaryDirectory() as folder:
            recipe = to_recipe(self.variant.table, self.variant.name)
            task = find_task(self.variant.table, self.variant.name)
            run = Run(Path(folder) / "run")
            return resolve_epochs(task.prepare(recipe, run, None, self.device, Reporter(quiet=True)))

    def count_parameters(self, **settings: Any) -> int:
        """Count the parameters of the model, with some settings changed, without building it."""
        recipe = self.prepared.recipe
        changed: Any = replace(recipe, model={**recipe.model, **settings})  # type: ignore[type-var]
        with on_meta_device():
            model = build_model(changed, self.prepared.tokenizers)
        return sum(parameter.numel() for parameter in model.parameters())

    def measure_update(self) -> tuple[float, float]:
        """Return the seconds and the target tokens of one update, as means over some updates."""
        prepared = self.prepared
        training = prepared.recipe.training
        model = initialize_model(prepared, None, Reporter(quiet=True))
        engine = build_engine(prepared.step(model, training.label_smoothing or 0.0), training, self.device)
        plan, start, tokens = prepared.batches.plan(0), 0.0, 0.0
        for step in range(1, WARMUP_UPDATES + TIMED_UPDATES + 1):
            batches = (prepared.batches.batch(indices, 0) for indices in [plan[step % len(plan)]])
            result = engine.update(batches, step, compute_learning_rate(step, training))
            tokens += result.tolist()[2]  # waits for a GPU
            if step == WARMUP_UPDATES:
                start, tokens = time.perf_counter(), 0.0
        accumulation = training.gradient_accumulation
        seconds = time.perf_counter() - start
        return accumulation * seconds / TIMED_UPDATES, accumulation * tokens / TIMED_UPDATES


def set_budget(drafts: Sequence[Draft], *, tokens: int | None = None, minutes: float | None = None) -> list[Variant]:
    """Give all models the same budget: target tokens, minutes of training, or else the updates of the first model.

    Only the data of the first model is read, unless the budget is in minutes. Early stopping is off unless a recipe
    sets `patience`.
    """
    first = drafts[0].prepared.recipe.training
    count = first.steps
    assert count is not None
    if tokens is not None:  # all models have the same batches
        count = max(1, round(tokens / drafts[0].measure_update()[1]))
    variants = []
    for draft in drafts:
        if minutes is not None:
            count = max(1, round(60 * minutes / draft.measure_update()[0]))
        settings = {
            "patience": 0,
            "validate_every": max(1, min(first.validate_every or count, -(-count // 10))),
            **draft.variant.table.get("training", {}),
            "steps": count,
            "batch_tokens": first.batch_tokens,
        }
        settings.pop("epochs", None)
        variants.append(merge_settings(draft.variant, "training", settings))
    return variants


def match_parameters(drafts: Sequence[Draft]) -> list[Variant]:
    """Scale the width of each model so that it has about as many parameters as the first."""
    target = drafts[0].count_parameters()
    return [drafts[0].variant, *(scale_width(draft, target) for draft in drafts[1:])]


def scale_width(draft: Draft, target: int) -> Variant:
    """Return a variant scaled such that its number of parameters is as near as possible to the target.

    All widths of the model are scaled in proportion, in steps that its heads divide.
    """
    prepared = draft.prepared
    with on_meta_device():
        config: Any = build_model(prepared.recipe, prepared.tokenizers).config
    widths = {name: value for name in WIDTHS if isinstance(value := getattr(config, name, None), int)}
    if not widths:
        raise RegardError(f"--match-parameters: {draft.variant.name} has no width to change")
    rotary = getattr(config, "positions", "") == "rotary"  # rotates pairs of numbers of each head
    step = math.lcm(2, (2 if rotary else 1) * (getattr(config, "heads", None) or 1))
    leading = next(iter(widths.values()))

    def scale(multiple: int) -> dict[str, int]:
        return {name: max(step, round(value * multiple / leading) * step) for name, value in widths.items()}

    multiple = bisect_left(
        range(MAX_WIDTH // step), target, lo=1, key=lambda multiple: draft.count_parameters(**scale(multiple))
    )
    best = min(
        (scale(candidate) for candidate in (max(1, multiple - 1), multiple)),
        key=lambda settings: abs(draft.count_parameters(**settings) - target),
    )
    return merge_settings(draft.variant, "model", {**prepared.recipe.model, **best})


def merge_settings(variant: Variant, section: str, settings: Mapping[str, Any]) -> Variant:
    """Return a variant with a section of its recipe replaced."""
    return Variant(variant.name, {**variant.table, section: dict(settings)})
