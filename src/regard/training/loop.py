"""The training loop: batches, validation, checkpoints, stopping and resuming.

The engine makes the updates. Randomness in a step depends only on the seed and the step, and the
batches of an epoch only on the seed and the epoch, so a step number and the engine's state are
enough to resume with bit-identical results.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence, Set
from contextlib import ExitStack
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from regard.checkpoint import average_parameters, list_checkpoints, save_checkpoint
from regard.data.pair_check import pluralize
from regard.errors import RegardError, format_json, refuse_less
from regard.run import Run
from regard.settings import parse_settings
from regard.training.engines import Engine
from regard.training.optimizer import check_same_tensors
from regard.training.reporter import Reporter, format_metric
from regard.training.schedule import compute_learning_rate
from regard.training.settings import TrainingSettings
from regard.training.stop import StopRequest

PERFECT_SCORES = {"exact": 1.0, "bleu": 100.0, "chrf": 100.0, "accuracy": 1.0, "f1": 1.0, "macro_f1": 1.0}
ENOUGH_PERFECT = 3  # perfect validations in a row
CHECK_EVERY = 50  # steps between reading losses from a GPU, which waits for it
MAX_SKIPPED = 20  # training fails after this many consecutive updates without a finite gradient


@runtime_checkable
class Batches(Protocol):
    """Training data in batches."""

    def plan(self, epoch: int) -> Sequence[Any]:
        """Return the batches of an epoch, each as the indices of its examples."""

    def batch(self, indices: Any, epoch: int) -> Any:
        """Return the tensors of one batch, with a method `to(device)`."""

    def name(self, indices: Any) -> str:
        """Describe a batch, for an error message."""


class ValidationResult(NamedTuple):
    """Metrics by name, including `loss`, and values fitted for buffers of the model, such as a threshold."""

    metrics: Mapping[str, float]
    buffers: Mapping[str, float] = MappingProxyType({})


Validate = Callable[[nn.Module], ValidationResult]


@dataclass
class Counters:
    """The progress of training, saved with every checkpoint."""

    step: int = 0
    epoch: int = 0
    batch_index: int = 0  # batches of this epoch already used
    tokens: int = 0  # target tokens seen
    seconds: float = 0.0
    loss: float = 0.0  # summed since the last validation
    loss_tokens: int = 0
    skipped: int = 0  # updates whose gradient was not finite
    skipped_in_a_row: int = 0
    best: float | None = None
    best_loss: float = math.inf  # loss of the best model; breaks ties
    best_step: int = 0
    patience_used: int = 0  # validations since the best
    perfect_validations: int = 0  # consecutive validations with a perfect score
    finished: bool = False

    def __post_init__(self) -> None:
        counts = {name: value for name, value in vars(self).items() if type(value) is int}
        refuse_less("counters", 0, **counts)


class Trainer:
    """The training loop of one model in one run folder.

    Args:
        engine: Makes the updates.
        batches: The training data.
        validate: Evaluates the model on the validation data.
        settings: Training settings, without None.
        run: The run that parameters, metrics and checkpoints are written to.
        reporter: Reports progress.
        section: The recipe section of the settings: "training", or "pretraining" for the first of two phases.
    """

    def __init__(
        self,
        engine: Engine,
        batches: Batches,
        validate: Validate,
        settings: TrainingSettings,
        run: Run,
        reporter: Reporter,
        *,
        section: str = "training",
    ) -> None:
        self.engine, self.batches, self.validate = engine, batches, validate
        self.settings, self.run, self.reporter, self.section = settings, run, reporter, section
        self.counters = Counters()
        self.plan: Sequence[Any] = ()
        self.saved_step: int | None = None  # the step of the newest checkpoint
        self._clock = time.perf_counter()
        self._unchecked: list[tuple[int, Tensor, list[Any]]] = []

    def train(self) -> Counters:
        """Train to the end, from the newest checkpoint if any; when stopped, log how to resume."""
        try:
            return self.run_loop()
        except KeyboardInterrupt:
            self.report_stop()
            raise

    def report_stop(self) -> None:
        """Log what is kept of a stopped training, and how to resume it."""
        phase = "" if self.section == "training" else f" of {self.section}"
        if not self.saved_step:
            self.reporter.info("kept: nothing; no checkpoint was written yet")
        elif self.section == "training":
            best = self.describe_best() or f"model of step {self.saved_step:,}, not validated"
            self.reporter.info(f"kept: checkpoint of step {self.saved_step:,}; {best}")
        resume_point = f"step {self.saved_step:,}{phase}" if self.saved_step else "the start"
        self.reporter.info(f"stopped; run the same command again to resume at {resume_point}")
        self.reporter.stop_reported = True

    def report_wait(self) -> None:
        """Log what a stop waits for, and what a second signal does."""
        kept = f"keeps the checkpoint of step {self.saved_step:,}" if self.saved_step else "keeps nothing so far"
        self.reporter.info(f"stopping after the running update, to save it; a second Ctrl-C stops at once and {kept}")

    def report_exit(self) -> None:
        """Log what is kept of a training whose process is ended."""
        self.reporter.close_progress()
        self.report_stop()

    def describe_best(self) -> str:
        """Describe the best validation so far; empty if there is none."""
        counters, metric = self.counters, self.settings.metric
        if counters.best is None:
            return ""
        value = format_metric(f"valid_{metric}", -counters.best if metric == "loss" else counters.best)
        return f"best so far: {value} at step {counters.best_step:,}"

    def run_loop(self) -> Counters:
        """Make updates until training is over or a stop is requested."""
        assert self.settings.steps is not None
        self.resume()
        with ExitStack() as stack:
            stop = stack.enter_context(StopRequest(self.report_wait, self.report_exit))
            events = stack.enter_context(
                self.reporter.open_tensorboard(self.run, self.settings.tensorboard, self.counters.step)
            )
            stack.enter_context(self.reporter.progress(self.settings.steps, self.counters.step))
            while not self.is_over():
                self.update()
                if self.is_validation_due(self.counters.step):
                    events(self.run_validation())
                    if not self.is_over():
                        self.save()
                if stop and not self.is_over():
                    self.save()
                    self.save_unvalidated()
                    stop.raise_interrupt()
        if self.counters.finished:
            self.reporter.info(self.describe_end())
        else:
            self.finish()
        return self.counters

    def describe_end(self) -> str:
        """Return why a complete run is not continued, and how to continue it."""
        assert self.settings.steps is not None
        steps = pluralize(self.counters.step, "step")
        if self.counters.step >= self.settings.steps:
            return f"run is complete ({steps}); pass a larger --steps to continue training"
        return (
            f"run is complete: stopped early ({steps} of {self.settings.steps:,}) after {self.describe_early_stop()}; "
            "pass --patience 0 to continue training"
        )

    def describe_early_stop(self) -> str:
        """Return the reason for stopping before the last step."""
        if self.counters.perfect_validations >= ENOUGH_PERFECT:
            return f"{ENOUGH_PERFECT} perfect validations"
        return f"{pluralize(self.counters.patience_used, 'validation')} without improvement"

    def update(self) -> None:
        """Make one update of the parameters."""
        counters, start = self.counters, time.perf_counter()
        counters.step += 1
        batch_indices = [self.next_batch_indices() for _ in range(self.settings.gradient_accumulation)]
        batches = (self.batches.batch(indices, epoch) for epoch, indices in batch_indices)
        result = self.engine.update(batches, counters.step, compute_learning_rate(counters.step, self.settings))
        self._unchecked.append((counters.step, result, [indices for _, indices in batch_indices]))
        if result.is_cpu or len(self._unchecked) >= CHECK_EVERY:
            self.check_losses()
        if result.is_cpu:
            self.reporter.time_update(time.perf_counter() - start)

    def next_batch_indices(self) -> tuple[int, Any]:
        """Return the epoch and the indices of the next batch."""
        counters = self.counters
        if not self.plan:
            self.plan = self.batches.plan(counters.epoch)
        if counters.batch_index >= len(self.plan):
            counters.epoch, counters.batch_index = counters.epoch + 1, 0
            self.plan = self.batches.plan(counters.epoch)
        counters.batch_index += 1
        return counters.epoch, self.plan[counters.batch_index - 1]

    def check_losses(self) -> None:
        """Add up the losses of the last steps; raise a `RegardError` if one is not finite."""
        counters = self.counters
        for step, (loss, norm, tokens), batch_indices in [(s, v.tolist(), t) for s, v, t in self._unchecked]:
            if not math.isfinite(loss):
                raise self.build_divergence_error(step, "loss", loss, batch_indices)
            self.count_skipped(step, norm, batch_indices)
            counters.loss += loss
            counters.loss_tokens += int(tokens)
            counters.tokens += int(tokens)
            self.reporter.step(step, loss / max(1.0, tokens))
        self._unchecked.clear()
        now = time.perf_counter()
        counters.seconds, self._clock = counters.seconds + now - self._clock, now

    def count_skipped(self, step: int, norm: float, batch_indices: Sequence[Any]) -> None:
        """Count updates skipped because their gradient is not finite; raise a `RegardError` after too many."""
        counters = self.counters
        if math.isfinite(norm):
            counters.skipped_in_a_row = 0
            return
        counters.skipped, counters.skipped_in_a_row = counters.skipped + 1, counters.skipped_in_a_row + 1
        if counters.skipped_in_a_row >= MAX_SKIPPED:
            raise self.build_divergence_error(
                step, f"gradient norm (not finite for {MAX_SKIPPED} updates in a row)", norm, batch_indices
            )
        if counters.skipped == 1:
            self.reporter.info(
                f"note: step {step:,}: gradient norm is {norm} for the batch {self.describe_batches(batch_indices)}; "
                "such updates are skipped and counted"
            )

    def build_divergence_error(
        self, step: int, quantity: str, value: float, batch_indices: Sequence[Any]
    ) -> RegardError:
        """Build the error for a loss or gradient that is not finite, with its likely cause and what to do."""
        learning_rate = compute_learning_rate(step, self.settings)
        precise = self.settings.precision == "bfloat16" and self.section == "training"
        return RegardError(
            f"step {step:,}: {quantity} is {value}; the likely cause is a learning rate that is too high "
            f"({learning_rate:.2g} at this step){', or the precision bfloat16' if precise else ''}; "
            f"try a lower --{self.section}.learning-rate{' or --training.precision float32' if precise else ''} "
            f"in another --out (batch {self.describe_batches(batch_indices)})"
        )

    def describe_batches(self, batch_indices: Sequence[Any]) -> str:
        """Describe the batches of an update."""
        return "; ".join(self.batches.name(indices) for indices in batch_indices)

    def run_validation(self) -> dict[str, float]:
        """Validate, save the parameters if they are the best so far, and record the metrics."""
        self.check_losses()
        counters = self.counters
        metrics, better = self.evaluate()
        counters.patience_used = 0 if better else counters.patience_used + 1
        perfect = metrics.get(self.settings.metric, 0.0) >= PERFECT_SCORES.get(self.settings.metric, math.inf)
        counters.perfect_validations = counters.perfect_validations + 1 if perfect else 0
        self.check_losses()
        line = {
            "step": counters.step,
            "epoch": counters.epoch,
            "train_loss": counters.loss / max(1, counters.loss_tokens),
            **{f"valid_{name}": value for name, value in metrics.items()},
            "learning_rate": compute_learning_rate(counters.step, self.settings),
            "tokens": counters.tokens,
            "seconds": round(counters.seconds, 1),
            **({"skipped": counters.skipped} if counters.skipped else {}),
        }
        self.run.add_metrics(line)
        self.reporter.report_validation(line, better=better)
        counters.loss, counters.loss_tokens = 0.0, 0
        return line

    def evaluate(self, parameters: Mapping[str, Tensor] | None = None) -> tuple[Mapping[str, float], bool]:
        """Validate the model, with other parameters if given; return the metrics and whether they are the best."""
        with self.engine.evaluation_mode(parameters) as model:
            metrics, fitted = self.validate(model)
            buffers = dict(model.named_buffers())
            for name, value in fitted.items():
                buffers[name].fill_(value)
            return metrics, self.save_if_better(model, metrics)

    def save_if_better(self, model: nn.Module, metrics: Mapping[str, float]) -> bool:
        """Save the parameters in the run if they are the best so far; return whether they are."""
        counters, metric = self.counters, self.settings.metric
        value = -metrics["loss"] if metric == "loss" else metrics[metric]
        better = counters.best is None or (value, -metrics["loss"]) > (counters.best, -counters.best_loss)
        if better:
            counters.best, counters.best_loss, counters.best_step = value, metrics["loss"], counters.step
            seconds = round(counters.seconds, 1)
            best = {"step": counters.step, "metric": metric, "value": metrics[metric], "seconds": seconds}
            self.run.save_model(model.state_dict(), {"best": best})
        return better

    def save_unvalidated(self) -> None:
        """Save the parameters in the run if training stops before the first validation."""
        if self.counters.best is None:
            with self.engine.evaluation_mode() as model:
                self.run.save_model(model.state_dict(), {"unvalidated": {"step": self.counters.step}})

    def finish(self) -> None:
        """Validate the average of the last checkpoints, if enabled, and mark the run as complete."""
        assert self.settings.steps is not None
        if self.counters.step < self.settings.steps:
            reason = self.describe_early_stop()
            self.reporter.info(f"stopped early after {reason}; pass --patience 0 to train all steps")
        if self.settings.average_checkpoints > 1:
            self.save()
            checkpoints = [
                checkpoint for checkpoint in list_checkpoints(self.run) if self.is_validation_due(checkpoint.step)
            ][-self.settings.average_checkpoints :]
            metrics, better = self.evaluate(average_parameters(checkpoints))
            self.reporter.report_average(len(checkpoints), metrics, better=better)
        self.counters.finished = True
        self.save()

    def save(self) -> None:
        """Save a checkpoint."""
        self.check_losses()
        step, keep = self.counters.step, max(2, self.settings.average_checkpoints + 1)
        save_checkpoint(self.run, step, self.engine.state_dict(), asdict(self.counters), keep)
        self.saved_step = step
        for older in list_checkpoints(self.run)[:-1]:
            if not self.is_validation_due(older.step):  # saved by a stop; only checkpoints of validations are averaged
                older.remove()

    def resume(self) -> None:
        """Resume from the newest complete checkpoint, if any."""
        checkpoints = list_checkpoints(self.run)
        if not checkpoints:
            self.check_nothing_to_lose()
            self.run.reset_metrics(b"")
            return
        newest = checkpoints[-1]
        counters = newest.load_state()
        self.check_same_version(set(counters), {field.name for field in fields(Counters)}, "counter")
        state = {part: newest.load_tensors(part) for part in newest.list_parts()}
        expected = self.engine.state_dict()["model"]
        self.check_same_version(set(state.get("model", {})), set(expected), "parameter")
        check_same_tensors(state["model"], expected, newest.path / "model.safetensors")
        self.engine.load_state_dict(state)
        self.counters = parse_settings(Counters, counters, str(newest.path / "state.json"))
        self.counters.finished = self.counters.finished and self.is_over()  # false if steps was raised since
        self.saved_step = newest.step
        if self.run.reset_metrics(newest.load_metrics()):
            self.reporter.info(
                f"note: metrics.jsonl was damaged; restored it from the checkpoint of step {newest.step:,}"
            )
        if not self.is_over():
            best = self.describe_best() or "not validated yet"
            self.reporter.info(f"resuming at step {newest.step:,} of {self.settings.steps:,}; {best}")

    def check_nothing_to_lose(self) -> None:
        """Raise a `RegardError` if training would start over, and replace a model that took longer to train."""
        assert self.settings.steps is not None and self.settings.validate_every is not None
        best = self.run.read_card().get("best", {}) if self.run.card_file.exists() else {}
        best_step = best.get("step", 0)
        if type(best_step) is not int:
            raise RegardError(f"{self.run.card_file}: best.step: expected an integer, got {format_json(best_step)}")
        if best_step > min(self.settings.steps, self.settings.validate_every):
            raise RegardError(
                f"{self.run.path}: cannot resume: training/ has no intact checkpoint, and starting over would replace "
                f"the model of step {best_step:,}; choose another --out, or pass --from {self.run.path}"
            )

    def check_same_version(self, saved: Set[str], expected: Set[str], kind: str) -> None:
        """Raise a `RegardError` if the checkpoint and this version of regard differ in the names of a kind."""
        if saved != expected:
            mismatch = min(saved ^ expected)
            owner = "the checkpoint" if mismatch in saved else "the model" if kind == "parameter" else "this version"
            raise RegardError(
                f"{self.run.path}: cannot resume: run was started by another version of regard "
                f"(only {owner} has the {kind} {mismatch}); choose another --out"
            )

    def is_validation_due(self, step: int) -> bool:
        """Return whether to validate after a step."""
        assert self.settings.validate_every is not None
        return step % self.settings.validate_every == 0 or step == self.settings.steps

    def is_over(self) -> bool:
        """Return whether all steps are made, patience is used up, or the metric is perfect."""
        assert self.settings.steps is not None
        counters, patience = self.counters, self.settings.patience
        enough = patience > 0 and (counters.patience_used >= patience or counters.perfect_validations >= ENOUGH_PERFECT)
        return enough or counters.step >= self.settings.steps
