"""The models of a server: runs that are loaded, each with its queue and its worker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.label_predictor import LabelPredictor
from regard.loading import AnyPredictor, load
from regard.predictor import Predictor
from regard.serve.batching import Worker
from regard.serve.families import Classifier, Tagger, Translator, Writer, family_of
from regard.serve.settings import ServeSettings


@dataclass(frozen=True, eq=False)
class Served:
    """A model that answers."""

    name: str
    family: Translator | Writer | Classifier | Tagger
    worker: Worker

    @property
    def model(self) -> AnyPredictor:
        """What the run folder holds."""
        return self.family.model

    def record(self) -> dict[str, Any]:
        """What a client may know of it."""
        return {
            "name": self.name,
            "kind": self.family.kind,
            "preset": self.model.name,
            "parameters": sum(parameter.numel() for parameter in self.model.model.parameters()),
            "attention": list(self.model.model.attentions),
            "options": sorted(self.family.takes),
            "beam": self.model.recipe.decoding.beam if isinstance(self.model, Predictor) else None,
            "labels": len(self.model.labels) if isinstance(self.model, LabelPredictor) else None,
        }


def serve_runs(runs: Sequence[Path], device: str, settings: ServeSettings) -> dict[str, Served]:
    """Load the runs, and let their workers wait for requests; the first is the one that is asked unless told."""
    found = {}
    for name, run in names_of(runs).items():
        found[name] = served(name, load(run, device), settings)
    return found


def served(name: str, model: AnyPredictor, settings: ServeSettings) -> Served:
    """A model with its worker, which waits for requests."""
    family = family_of(model, settings.most_tokens)
    worker = Worker(family, name=name, places=settings.queue, batch=settings.batch)
    worker.start()
    return Served(name, family, worker)


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
