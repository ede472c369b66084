"""Record attention written out by hand: a softmax whose result is contracted with values.

The flow of data decides, names do not: the result of a softmax is followed through views, casts, masks, slices and
dropout. If it meets a batch of matrices that is no parameter in a product that sums over the axis of the softmax, it
was attention, and these were its weights. A single matrix of weights may meet a single matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor
from torch.nn import functional

from regard.attention.intercept.axes import PRODUCTS, REORDERING, find_contracted, move_axis
from regard.attention.intercept.captured import Captured
from regard.attention.intercept.frames import Frame
from regard.attention.intercept.functions import (
    CHANGES,
    DIVISIONS,
    DROPOUTS,
    FOLLOWED,
    LOG_SOFTMAXES,
    LOG_SUMS,
    MIXING,
    MULTIPLIED,
    SUMS,
    find_normalized,
    has_values,
    is_change,
    is_in_vmap,
    iter_tensors,
    shares_values,
    writes_in_place,
)
from regard.attention.intercept.recorded_weights import HeldWeights
from regard.attention.intercept.weak_tensors import WeakTensors
from regard.attention.intercept.written_softmax import WrittenSoftmax
from regard.attention.lazy_weights import get_version

NAME = "softmax"


@dataclass(eq=False)
class Softmax:
    """One softmax that a model computed."""

    frame: Frame
    matrix: Tensor
    axis: int
    features: dict[str, object] = field(default_factory=dict)
    uses: dict[int, Matrix] = field(default_factory=dict)  # the matrices that were contracted with values

    def keep_used(self) -> None:
        """Copy what was contracted so far, since the model is about to write into it."""
        if self.uses:
            self.matrix = self.matrix.clone()
            copies = [Matrix(use.tensor.clone(), use.axis) for use in self.uses.values() if not use.is_written()]
            written = [use for use in self.uses.values() if use.is_written()]
            self.uses = {id(use.tensor): use for use in (*copies, *written)}


@dataclass(frozen=True, eq=False)
class Matrix:
    """Weights as far as they were changed before dropout, and the axis of the keys."""

    tensor: Tensor
    axis: int
    version: int = 0  # of the tensor when it was used

    def is_written(self) -> bool:
        """Return whether the tensor was written into since it was used."""
        return get_version(self.tensor) != self.version


@dataclass(frozen=True, eq=False)
class Track:
    """A tensor made from the result of a softmax."""

    softmax: Softmax
    matrix: Matrix
    axis: int | None  # of the keys in this tensor, if it is known
    dropped: bool = False
    weighted: bool = False  # whether values were multiplied with it, elementwise
    gate: bool = False  # whether they may be the outputs of experts, one set for each row of weights
    normalized: frozenset[int] = frozenset()  # other axes over which it was divided by one number each


class SoftmaxFlow:
    """Follows the results of softmaxes through a running model.

    Args:
        locate: Returns the innermost running frame, or None.
        settle: Records softmaxes of a frame that were attention and that nothing can use any more.
        grad: Whether the weights keep their gradient.
    """

    def __init__(
        self, locate: Callable[[], Frame | None], settle: Callable[[Frame, list[Softmax]], None], *, grad: bool
    ) -> None:
        self.locate, self.settle, self.grad = locate, settle, grad
        self.tracks: WeakTensors[Track] = WeakTensors()
        self.written = WrittenSoftmax()
        self.mapped: list[str] = []  # paths of modules that compute a softmax, or attention, inside torch.vmap
        self.gates: list[str] = []  # paths of modules whose softmax may be a gate or pool a sequence

    def clear(self) -> None:
        """Forget all tensors; the outermost module has returned."""
        self.tracks.clear()
        self.written.clear()

    def start(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Follow the result of a softmax, or of a logarithm of one."""
        axis = kwargs.get("dim", args[1] if len(args) > 1 else -1)
        axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
        scores = args[0] if args else kwargs.get("input")
        if function is functional.gumbel_softmax:
            axis = kwargs.get("dim", args[4] if len(args) > 4 else -1)
        if not isinstance(output, Tensor) or not isinstance(axis, int) or not isinstance(scores, Tensor):
            return
        if scores.ndim < 2:
            return
        axis %= scores.ndim
        if function in LOG_SUMS:
            self.written.add_log_sum(output, scores, axis)
        elif function in LOG_SOFTMAXES:
            self.written.add_logarithm(output, axis)
        else:
            self.begin(output, axis)

    def begin(self, output: Tensor, axis: int) -> None:
        """Follow weights from where they were computed."""
        frame = self.locate()
        if frame is not None and is_in_vmap():
            self.mapped.append(frame.path)
        elif frame is not None:
            frame.softmaxes += 1
            alias = self.share(output)
            self.tracks[output] = Track(Softmax(frame, alias, axis), Matrix(alias, axis), axis)

    def share(self, tensor: Tensor) -> Tensor:
        """Return a tensor in the same memory, which without gradient does not keep the other alive."""
        return tensor.view_as(tensor) if self.grad else tensor.detach()

    def follow_written(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Follow the steps of a softmax that is written out, and its result where it is complete."""
        axis = self.written.follow(name, args, kwargs, output)
        if axis is not None:
            self.begin(output, axis)

    def before(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Copy weights that are about to be overwritten, by dropout or after they were used."""
        name = function.__name__
        written = args[:1] if writes_in_place(name, kwargs) else ()
        for _, _, operand in iter_tensors((*written, kwargs.get("out"))):
            track = self.tracks.get(operand)
            if track is not None:
                track.softmax.keep_used()
        if name not in DROPOUTS or not args or not isinstance(args[0], Tensor):
            return
        training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
        in_place = name.endswith("_") or kwargs.get("inplace", args[3] if len(args) > 3 else False)
        track = self.tracks.get(args[0])
        if track is not None and in_place and training:
            matrix = replace(track.matrix, tensor=track.matrix.tensor.clone())
            self.tracks[args[0]] = replace(track, matrix=matrix, dropped=True)

    def follow(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Follow what a function makes of tracked tensors."""
        name = function.__name__
        if name not in FOLLOWED and name not in PRODUCTS and name not in SUMS and name not in MIXING:
            return
        given = (*args, *kwargs.values())
        for place, number, operand in iter_tensors(given):
            track = self.tracks.get(operand)
            if track is None:
                continue
            if name in PRODUCTS:
                self.contract(track, operand, find_contracted(name, given, place, number, operand), given)
            elif name in MIXING:
                self.mix(track, operand, output, MIXING[name] % operand.ndim)
            elif name in SUMS:
                if track.weighted:
                    self.sum_up(track, operand, args, kwargs)
            else:
                for _, _, result in iter_tensors((output,)):
                    self.step(function, args, kwargs, operand, result, track)

    def step(
        self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], operand: Tensor,
        result: Tensor, track: Track,
    ) -> None:  # fmt: skip
        """Follow a tensor to what a function made of it."""
        name, axis = function.__name__, track.axis
        if name in MULTIPLIED and result.shape != operand.shape:
            self.multiply(args, operand, result, track)
            return
        if axis is not None:
            axis = move_axis(function, args, kwargs, operand, result, axis)
        if name in DROPOUTS:
            overwritten = self.tracks.get(operand) if result is operand else None
            dropped = track.dropped or (result is not operand and result.data_ptr() != operand.data_ptr())
            self.tracks[result] = overwritten or replace(track, axis=axis, dropped=dropped)
            return
        if name in CHANGES and axis is not None and is_change(operand, result, axis):
            if not track.dropped:
                track = replace(track, matrix=Matrix(self.share(result), axis))
            elif operand.shape == track.matrix.tensor.shape == result.shape and not name.endswith("_"):
                again = [track.matrix.tensor if part is operand else part for part in args]
                track = replace(track, matrix=Matrix(function(*again, **kwargs), axis))
            if name in DIVISIONS:
                track = replace(track, normalized=find_normalized(args, operand))
        matrix = track.matrix
        if name in REORDERING and axis == result.ndim - 1 and operand.shape == matrix.tensor.shape:
            given = [matrix.tensor if part is operand else part for part in args]
            track = replace(track, matrix=Matrix(function(*given, **kwargs), axis))  # the queries may have moved
        self.tracks[result] = replace(track, axis=axis)

    def mix(self, track: Track, operand: Tensor, result: Tensor, summed: int) -> None:
        """Follow weights whose heads are mixed by a parameter: the mixed ones are used."""
        axis = track.axis
        if axis is not None and axis != summed and axis < result.ndim and result.shape[axis] == operand.shape[axis]:
            self.tracks[result] = replace(track, matrix=Matrix(self.share(result), axis))

    def multiply(self, args: tuple[Any, ...], operand: Tensor, result: Tensor, track: Track) -> None:
        """Follow an elementwise product with values, as pooling over a sequence computes it.

        Where no two rows of weights share values, and the softmax is over the last axis, it may as well be a gate
        that weighs the outputs of experts.
        """
        if track.axis is not None and has_values(args, operand):
            gate = track.softmax.axis == track.softmax.matrix.ndim - 1 and not shares_values(args, operand, track.axis)
            axis = track.axis + result.ndim - operand.ndim
            self.tracks[result] = replace(track, axis=axis, weighted=True, gate=gate)

    def sum_up(self, track: Track, operand: Tensor, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Note the sum of weighted values."""
        axes = kwargs.get("dim", args[1] if len(args) > 1 else ())
        axes = axes if isinstance(axes, (tuple, list)) else (axes,)
        if track.axis not in {axis % operand.ndim for axis in axes if isinstance(axis, int)}:
            return
        if track.gate:
            self.gates.append(track.softmax.frame.path)
        else:
            self.note(track)

    def contract(self, track: Track, operand: Tensor, contracted: set[int], args: tuple[Any, ...]) -> None:
        """Note a product of weights and values that sums over the keys."""
        if not contracted or not has_values(args, operand):
            return
        if track.axis is None or track.axis in contracted:
            self.note(track, operand)
        elif operand.shape == track.matrix.tensor.shape:
            for axis in contracted & track.normalized:  # a softmax over the queries, then normalized over the keys
                self.note(replace(track, matrix=Matrix(track.matrix.tensor, axis)), operand)

    def note(self, track: Track, operand: Tensor | None = None) -> None:
        """Note that a softmax was attention; it is recorded when the module around both returns."""
        frame, softmax, matrix = track.softmax.frame.find_active(), track.softmax, track.matrix
        running = self.locate()
        if frame is None or frame.samples or (running is not None and running.samples):
            return
        single = operand is not None and operand.ndim > 2 and operand.numel() == matrix.tensor.numel()
        if matrix.tensor.ndim == 2 and single:
            matrix = Matrix(matrix.tensor.unsqueeze(-2), 2)  # one query for each row
        if not softmax.uses:
            alive = {id(track.softmax) for track in self.tracks.get_facts()}
            self.settle(frame, [other for other in frame.pending if id(other) not in alive])
            frame.pending.append(softmax)
        softmax.uses[id(track.matrix.tensor)] = replace(matrix, version=get_version(matrix.tensor))


def capture(softmax: Softmax, *, grad: bool) -> Captured | None:
    """Return the weights of a softmax that was attention: what was contracted, or all if parts were.

    None if they were overwritten after that, in a way that could not be seen before.
    """
    uses = list(softmax.uses.values())
    if any(use.is_written() for use in uses):
        return None
    matrix = uses[0] if len(uses) == 1 else Matrix(softmax.matrix, softmax.axis)
    whole = softmax.matrix.shape[softmax.axis]
    features = dict(softmax.features)
    if len(uses) == 1 and matrix.tensor.shape[matrix.axis] == whole - 1:
        features["sinks"] = True
    weights = matrix.tensor.movedim(matrix.axis, -1)
    return Captured(HeldWeights(weights if grad else weights.detach()), NAME, features)
