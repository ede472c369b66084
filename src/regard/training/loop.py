"""The loop: which batches an update is made of, validation, checkpoints, stopping, and resuming at every step.

How an update is made is the engine's affair. What is random in a step depends on the seed and the
step's number alone, and the batches of an epoch on the seed and the epoch; so a step number and the
engine's state are all that is needed to resume to the same bits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, runtime_checkable

from torch import Tensor, nn

from regard.errors import RegardError
from regard.files import write_tensors
from regard.run import Checkpoint, Run, checkpoints_of, save_checkpoint
from regard.training.engines import Engine
from regard.training.schedule import rate_at
from regard.training.settings import TrainingSettings
from regard.training.stop import StopAsked
from regard.training.talk import Talk

PERFECT = {"exact": 1.0, "bleu": 100.0, "chrf": 100.0, "accuracy": 1.0, "f1": 1.0, "macro_f1": 1.0}
ENOUGH = 3  # perfect validations in a row
CHECK_EVERY = 50  # steps between looks at a GPU's loss: each look waits for all its work
MOST_LEFT_OUT = 20  # updates in a row without a finite gradient, at which training ends


@runtime_checkable
class Batches(Protocol):
    """Training data, as the loop needs it: batches by their place in an epoch."""

    def plan(self, epoch: int) -> Sequence[Any]:
        """The batches of an epoch, each the places of its examples."""

    def batch(self, places: Any, epoch: int) -> Any:
        """The tensors of one batch; it has `.to(device)`."""

    def name(self, places: Any) -> str:
        """A batch in words, for an error."""


class Findings(NamedTuple):
    """How good a model is: numbers by name, `loss` among them; and the values that suit some of its buffers best."""

    numbers: Mapping[str, float]
    buffers: Mapping[str, float] = MappingProxyType({})


Validate = Callable[[nn.Module], Findings]


@dataclass
class Counters:
    """Where training stands; saved with every checkpoint."""

    step: int = 0
    epoch: int = 0
    place: int = 0  # batches of this epoch that are done
    tokens: int = 0  # target tokens seen
    seconds: float = 0.0
    loss: float = 0.0  # summed since the last validation
    loss_tokens: int = 0
    left_out: int = 0  # updates whose gradient was not finite
    left_out_now: int = 0  # of these, the last ones in a row
    best: float | None = None
    best_loss: float = math.inf  # of the best; of two equally good ones that with the lower loss is better
    best_step: int = 0
    waited: int = 0  # validations since the best
    perfect: int = 0  # validations in a row at which nothing was wrong
    finished: bool = False


class Trainer:
    """Trains one model in one run folder.

    Args:
        engine: Makes the updates.
        batches: The training data.
        validate: How good the model is.
        settings: With nothing left open: no setting that suits the data is None.
        run: Where parameters, metrics and checkpoints go.
        talk: Whom to tell.
        section: Of the recipe, which has the learning rate; it names the phase of a training that has two.
    """

    def __init__(
        self,
        engine: Engine,
        batches: Batches,
        validate: Validate,
        settings: TrainingSettings,
        run: Run,
        talk: Talk,
        *,
        section: str = "training",
    ) -> None:
        self.engine, self.batches, self.validate = engine, batches, validate
        self.settings, self.run, self.talk, self.section = settings, run, talk, section
        self.counters = Counters()
        self.plan: Sequence[Any] = ()
        self.saved: int | None = None  # the step of the newest checkpoint
        self._clock = time.perf_counter()
        self._unchecked: list[tuple[int, Tensor, list[Any]]] = []

    def train(self) -> Counters:
        """Train to the end, from the newest checkpoint if there is one; say where a stopped training resumes."""
        try:
            return self.train_on()
        except KeyboardInterrupt:
            phase = "" if self.section == "training" else f" of the {self.section}"
            where = f"step {self.saved}{phase}" if self.saved else "the start"
            self.talk.say(f"stopped; the same command again goes on from {where}")
            raise

    def train_on(self) -> Counters:
        """Make updates until all are made, or a stop is asked for."""
        assert self.settings.steps is not None
        self.resume()
        with ExitStack() as stack:
            stop = stack.enter_context(StopAsked())
            events = stack.enter_context(self.talk.events(self.run, self.settings.tensorboard, self.counters.step))
            stack.enter_context(self.talk.progress(self.settings.steps, self.counters.step))
            while not self.is_over():
                self.update()
                if self.is_due(self.counters.step):
                    events(self.look())
                    if not self.is_over():
                        self.save()
                if stop and not self.is_over():
                    self.save()
                    raise KeyboardInterrupt
        if self.counters.finished:
            self.talk.say("this run is finished; ask for more --steps to go on")
        else:
            self.finish()
        return self.counters

    def update(self) -> None:
        """One update of the parameters."""
        counters = self.counters
        counters.step += 1
        taken = [self.next_places() for _ in range(self.settings.accumulate)]
        batches = (self.batches.batch(places, epoch) for epoch, places in taken)  # each made when it is needed
        found = self.engine.update(batches, counters.step, rate_at(counters.step, self.settings))
        self._unchecked.append((counters.step, found, [places for _, places in taken]))
        if found.is_cpu or len(self._unchecked) >= CHECK_EVERY:
            self.check()

    def next_places(self) -> tuple[int, Any]:
        """The next batch of this epoch, or the first of the next one, with the epoch's number."""
        counters = self.counters
        if not self.plan:
            self.plan = self.batches.plan(counters.epoch)
        if counters.place >= len(self.plan):
            counters.epoch, counters.place = counters.epoch + 1, 0
            self.plan = self.batches.plan(counters.epoch)
        counters.place += 1
        return counters.epoch, self.plan[counters.place - 1]

    def check(self) -> None:
        """Add up the losses of the last steps; one that is not finite ends training, with its batch named."""
        counters = self.counters
        for step, (loss, norm, tokens), taken in [(s, v.tolist(), t) for s, v, t in self._unchecked]:
            if not math.isfinite(loss):
                raise self.lost(step, "loss", loss, taken)
            self.count_left_out(step, norm, taken)
            counters.loss += loss
            counters.loss_tokens += int(tokens)
            counters.tokens += int(tokens)
            self.talk.step(step, loss / max(1.0, tokens))
        self._unchecked.clear()
        now = time.perf_counter()
        counters.seconds, self._clock = counters.seconds + now - self._clock, now

    def count_left_out(self, step: int, norm: float, taken: Sequence[Any]) -> None:
        """Note whether an update was left out, as it is where its gradient is not finite; too many end training."""
        counters = self.counters
        if math.isfinite(norm):
            counters.left_out_now = 0
            return
        counters.left_out, counters.left_out_now = counters.left_out + 1, counters.left_out_now + 1
        if counters.left_out_now >= MOST_LEFT_OUT:
            raise self.lost(step, f"gradient of {MOST_LEFT_OUT} updates in a row is not finite; the last", norm, taken)
        if counters.left_out == 1:
            self.talk.say(
                f"note: step {step}: the gradient is {norm}, with the batch {self.names(taken)}; "
                "this update is left out, as are others like it, which are counted"
            )

    def lost(self, step: int, what: str, value: float, taken: Sequence[Any]) -> RegardError:
        """What ends a training that learns no more."""
        return RegardError(
            f"step {step}: the {what} is {value}, with the batch {self.names(taken)}; "
            f"try a lower --{self.section}.rate (it was {rate_at(step, self.settings):.2g}) in another --out"
        )

    def names(self, taken: Sequence[Any]) -> str:
        """The batches of an update, in words."""
        return "; ".join(self.batches.name(places) for places in taken)

    def look(self) -> dict[str, float]:
        """Validate, keep the parameters if they are the best so far, and write down what was found."""
        self.check()
        counters = self.counters
        found, better = self.judge()
        counters.waited = 0 if better else counters.waited + 1
        perfect = found.get(self.settings.metric, 0.0) >= PERFECT.get(self.settings.metric, math.inf)
        counters.perfect = counters.perfect + 1 if perfect else 0
        self.check()
        line = {
            "step": counters.step,
            "epoch": counters.epoch,
            "train_loss": counters.loss / max(1, counters.loss_tokens),
            **{f"valid_{name}": value for name, value in found.items()},
            "rate": rate_at(counters.step, self.settings),
            "tokens": counters.tokens,
            "seconds": round(counters.seconds, 1),
            **({"left_out": counters.left_out} if counters.left_out else {}),
        }
        self.run.add_metrics(line)
        self.talk.validated(line, better=better)
        counters.loss, counters.loss_tokens = 0.0, 0
        return line

    def judge(self, parameters: Mapping[str, Tensor] | None = None) -> tuple[Mapping[str, float], bool]:
        """Validate the model, with other parameters if they are given: what is found, and whether it is the best."""
        with self.engine.evaluating(parameters) as model:
            found, fitted = self.validate(model)
            buffers = dict(model.named_buffers())
            for name, value in fitted.items():
                buffers[name].fill_(value)
            return found, self.keep_if_better(model, found)

    def keep_if_better(self, model: nn.Module, found: Mapping[str, float]) -> bool:
        """Write the parameters to the run if they are the best so far."""
        counters, metric = self.counters, self.settings.metric
        value = -found["loss"] if metric == "loss" else found[metric]
        better = counters.best is None or (value, -found["loss"]) > (counters.best, -counters.best_loss)
        if better:
            counters.best, counters.best_loss, counters.best_step = value, found["loss"], counters.step
            write_tensors(self.run.model_file, model.state_dict())
            seconds = round(counters.seconds, 1)
            self.run.note_best({"step": counters.step, "metric": metric, "value": found[metric], "seconds": seconds})
        return better

    def finish(self) -> None:
        """Try the mean of the last checkpoints, if that was asked for, and write down that training is over."""
        assert self.settings.steps is not None
        if self.counters.step < self.settings.steps:
            perfect = self.counters.perfect >= ENOUGH
            why = f"{ENOUGH} perfect validations" if perfect else f"{self.counters.waited} validations, none better"
            self.talk.say(f"ended early, after {why} (--patience 0 goes on)")
        if self.settings.average > 1:
            self.save()
            kept = [each for each in checkpoints_of(self.run) if self.is_due(each.step)][-self.settings.average :]
            found, better = self.judge(mean_of(kept))
            self.talk.averaged(len(kept), found, better=better)
        self.counters.finished = True
        self.save()

    def save(self) -> None:
        """Write a checkpoint."""
        self.check()
        step, keep = self.counters.step, max(2, self.settings.average + 1)
        save_checkpoint(self.run, step, self.engine.state(), asdict(self.counters), keep)
        self.saved = step
        for older in checkpoints_of(self.run)[:-1]:
            if not self.is_due(older.step):  # of a stop; only those of validations are averaged
                older.remove()

    def resume(self) -> None:
        """Go on from the newest whole checkpoint."""
        found = checkpoints_of(self.run)
        if not found:
            self.run.cut_metrics(0)
            return
        newest = found[-1]
        state = {part: newest.tensors(part) for part in newest.parts()}
        parameters, wanted = (each["model"].keys() for each in (state, self.engine.state()))
        if parameters != wanted:
            odd = min(parameters ^ wanted)
            where = "the checkpoint" if odd in parameters else "the model"
            raise RegardError(
                f"{self.run.path}: was begun by another version of regard, as only {where} has {odd}; "
                "choose another --out"
            )
        self.engine.restore(state)
        self.counters = Counters(**newest.state())
        self.counters.finished = self.counters.finished and self.is_over()  # or more steps were asked for since
        self.saved = newest.step
        self.run.cut_metrics(newest.step)

    def is_due(self, step: int) -> bool:
        """Whether a validation follows a step."""
        assert self.settings.validate_every is not None
        return step % self.settings.validate_every == 0 or step == self.settings.steps

    def is_over(self) -> bool:
        """Whether all steps are made, patience is at its end, or nothing is left to be better at."""
        assert self.settings.steps is not None
        counters, patience = self.counters, self.settings.patience
        enough = patience > 0 and (counters.waited >= patience or counters.perfect >= ENOUGH)
        return enough or counters.step >= self.settings.steps


def mean_of(checkpoints: Sequence[Checkpoint]) -> dict[str, Tensor]:
    """The mean of the parameters of several checkpoints."""
    total: dict[str, Tensor] = {}
    for checkpoint in checkpoints:
        for name, tensor in checkpoint.tensors("model").items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    first = checkpoints[0].tensors("model")
    return {name: (tensor / len(checkpoints)).to(first[name].dtype) for name, tensor in total.items()}
