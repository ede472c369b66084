"""Models of a server: loaded runs, each with a queue and a worker thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.serve.batching import Worker
from regard.serve.handler import PredictorHandler
from regard.serve.settings import ServeSettings
from regard.tasks.loading import load
from regard.tasks.predictor import Predictor


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model and its worker."""

    name: str
    predictor: Predictor[Any]
    worker: Worker

    def record(self) -> dict[str, Any]:
        """Return the entry of the model in /api/models."""
        predictor = self.predictor
        return {
            "name": self.name,
            "kind": predictor.task_name,
            "description": predictor.task.description,
            "preset": predictor.name,
            "summary": predictor.summary,
            "parameters": predictor.parameters,
            "attention": list(predictor.model.attentions),
            "options": sorted(predictor.accepted_options),
            "defaults": predictor.default_options,
        }


def serve_runs(runs: Sequence[Path], device: str, settings: ServeSettings) -> dict[str, ServedModel]:
    """Load runs and start their workers. The first model is the default of requests."""
    return {name: start_model(name, load(run, device), settings) for name, run in name_runs(runs).items()}


def start_model(name: str, predictor: Predictor[Any], settings: ServeSettings) -> ServedModel:
    """Start the worker of a model."""
    worker = Worker(
        PredictorHandler(predictor, settings.max_tokens),
        name=name,
        capacity=settings.queue_size,
        batch=settings.batch_size,
    )
    worker.start()
    return ServedModel(name, predictor, worker)


def name_runs(runs: Sequence[Path]) -> dict[str, Path]:
    """Map model names to runs: the folder name, or the path if two folders share a name."""
    folders = [run.resolve() for run in runs]
    named_runs: dict[str, Path] = {}
    for run, folder in zip(runs, folders, strict=True):
        if folders.count(folder) > 1:
            raise RegardError(f"{run} is listed twice")
        unique = [other.name for other in folders].count(folder.name) == 1
        named_runs[folder.name if unique else run.as_posix()] = run
    return named_runs


def find_model(models: dict[str, ServedModel], name: str | None) -> ServedModel:
    """Return the model with this name (default: the first), or raise `RegardError`."""
    if name is None:
        return next(iter(models.values()))
    if name not in models:
        raise unknown_name("model", name, models)
    return models[name]
