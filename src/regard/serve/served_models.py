"""Models of a server: loaded runs, each with a queue and a worker thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import RegardError, unknown_name
from regard.run import Run
from regard.serve.batching import Worker
from regard.serve.handler import PredictorHandler
from regard.serve.security import RequestError, build_busy_error
from regard.serve.settings import ServeSettings
from regard.tasks.loading import load
from regard.tasks.predictor import Predictor


@dataclass(frozen=True, eq=False)
class ServedModel:
    """A loaded model and its worker."""

    name: str
    predictor: Predictor[Any]
    worker: Worker
    run: Run | None = None

    def find_problem(self) -> str | None:
        """Return why the model is not ready, or None if it is."""
        if not self.worker.is_alive():
            return f'model "{self.name}" has stopped after an internal error; see the server log'
        if self.run is not None and not self.predictor.is_ensemble and not self.run.has_model():
            return f'the run folder of model "{self.name}" is missing or incomplete'
        return None

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


class ModelPool:
    """The models of a server: those that are loaded, and the runs that still have to be."""

    def __init__(self, models: dict[str, ServedModel] | None = None, runs: Mapping[str, Path] | None = None) -> None:
        self.models, self.runs = dict(models or {}), dict(runs or {})

    def load(self, device: str, settings: ServeSettings) -> None:
        """Load all runs in order and start their workers."""
        for name, run in list(self.runs.items()):
            self.models[name] = start_model(name, load(run, device), settings, Run(run.resolve()))
            del self.runs[name]

    def find_problem(self) -> str | None:
        """Return why the server is not ready, or None if all models can answer."""
        if self.runs:
            loaded, total = len(self.models), len(self.models) + len(self.runs)
            return f"the server is loading its models ({loaded} of {total} loaded); retry later"
        problems = (model.find_problem() for model in self.models.values())
        return next((problem for problem in problems if problem is not None), None)

    def check_loaded(self) -> None:
        """Raise a `RequestError` while models are loading."""
        if self.runs:
            raise build_busy_error(self.find_problem() or "")

    def find(self, name: str | None) -> ServedModel:
        """Return the model with this name (default: the first) to send a request to.

        Raises:
            RegardError: If there is no such model.
            RequestError: If models are still loading, or the worker of this one has stopped.
        """
        self.check_loaded()
        if name is not None and name not in self.models:
            raise unknown_name("model", name, self.models)
        model = next(iter(self.models.values())) if name is None else self.models[name]
        if not model.worker.is_alive():
            raise RequestError(503, model.find_problem() or "")
        return model

    def stop(self, seconds: float) -> None:
        """Stop the workers after the requests they have accepted."""
        for model in list(self.models.values()):
            model.worker.stop(seconds)


def start_model(name: str, predictor: Predictor[Any], settings: ServeSettings, run: Run | None = None) -> ServedModel:
    """Start the worker of a model."""
    worker = Worker(
        PredictorHandler(predictor, settings.max_tokens),
        name=name,
        capacity=settings.queue_size,
        batch=settings.batch_size,
    )
    worker.start()
    return ServedModel(name, predictor, worker, run)


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
