"""The models of a server: runs that are loaded, each with its queue and its worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.serve.batching import Worker
from regard.serve.settings import ServeSettings
from regard.serve.work import Work
from regard.tasks.loading import load
from regard.tasks.predictor import Predictor


@dataclass(frozen=True, eq=False)
class Served:
    """A model that answers."""

    name: str
    predictor: Predictor[Any]
    worker: Worker

    def record(self) -> dict[str, Any]:
        """What a client may know of it."""
        predictor = self.predictor
        return {
            "name": self.name,
            "kind": predictor.task_name,
            "does": predictor.task.does,
            "preset": predictor.name,
            "summary": predictor.summary,
            "parameters": predictor.parameters,
            "attention": list(predictor.model.attentions),
            "options": sorted(predictor.takes),
            "defaults": predictor.defaults,
        }


def serve_runs(runs: Sequence[Path], device: str, settings: ServeSettings) -> dict[str, Served]:
    """Load the runs, and let their workers wait for requests; the first is the one that is asked unless told."""
    return {name: served(name, load(run, device), settings) for name, run in names_of(runs).items()}


def served(name: str, predictor: Predictor[Any], settings: ServeSettings) -> Served:
    """A model with its worker, which waits for requests."""
    worker = Worker(Work(predictor, settings.most_tokens), name=name, places=settings.queue, batch=settings.batch)
    worker.start()
    return Served(name, predictor, worker)


def names_of(runs: Sequence[Path]) -> dict[str, Path]:
    """Runs by the names of their folders, or by their paths where these names are equal."""
    folders = [run.resolve() for run in runs]
    found: dict[str, Path] = {}
    for run, folder in zip(runs, folders, strict=True):
        if folders.count(folder) > 1:
            raise RegardError(f"{run}: is given twice; give each run once")
        alone = [other.name for other in folders].count(folder.name) == 1
        found[folder.name if alone else run.as_posix()] = run
    return found


def named(models: dict[str, Served], name: str | None) -> Served:
    """A model by its name, the first unless there is one; or a `RegardError`."""
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise unknown_name("model", name, models)
    return models[name]
