"""Record attention written out by hand: a softmax whose result is contracted with values.

The flow of data decides, names do not: the result of a softmax is followed through views, casts, masks, slices and
dropout. If it meets a batch of matrices that is no parameter in a product that sums over the axis of the softmax, it
was attention, and these were its weights. A single matrix of weights may meet a single matrix.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from torch import Tensor
from torch.nn import functional

from regard.attention.intercept.axes import PRODUCTS, REORDERING, find_contracted, move_axis
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
from regard.attention.intercept.tracks import FunctionCall, Matrix, Softmax, Track
from regard.attention.intercept.weak_tensors import WeakTensors
from regard.attention.intercept.written_softmax import WrittenSoftmax
from regard.attention.lazy_weights import get_version


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

    def start(self, call: FunctionCall, output: Any) -> None:
        """Follow the result of a softmax, or of a logarithm of one."""
        axis = call.get("dim", 4 if call.function is functional.gumbel_softmax else 1, -1)
        axis = axis[0] if isinstance(axis, (tuple, list)) and len(axis) == 1 else axis
        scores = call.get("input", 0, None)
        if not isinstance(output, Tensor) or not isinstance(axis, int) or not isinstance(scores, Tensor):
            return
        if scores.ndim < 2:
            return
        axis %= scores.ndim
        if call.function in LOG_SUMS:
            self.written.add_log_sum(output, scores, axis)
        elif call.function in LOG_SOFTMAXES:
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

    def before(self, call: FunctionCall) -> None:
        """Copy weights that are about to be overwritten, by dropout or after they were used."""
        written = call.args[:1] if writes_in_place(call.name, call.kwargs) else ()
        for _, _, operand in iter_tensors((*written, call.kwargs.get("out"))):
            track = self.tracks.get(operand)
            if track is not None:
                track.softmax.keep_used()
        track = self.tracks.get(call.args[0]) if call.name in DROPOUTS and call.args else None
        in_place = call.name.endswith("_") or call.get("inplace", 3, False)
        if track is not None and in_place and call.get("training", 2, call.kwargs.get("train", True)):
            matrix = replace(track.matrix, tensor=track.matrix.tensor.clone())
            self.tracks[call.args[0]] = replace(track, matrix=matrix, dropped=True)

    def follow(self, call: FunctionCall, output: Any) -> None:
        """Follow what a function makes of tracked tensors, and where it completes a softmax that is written out."""
        if call.name in FOLLOWED | PRODUCTS | SUMS | MIXING.keys():
            for place, number, operand in iter_tensors(call.given):
                track = self.tracks.get(operand)
                if track is not None:
                    self.follow_operand(call, output, track, operand, (place, number))
        axis = self.written.follow(call.name, call.args, call.kwargs, output)
        if axis is not None:
            self.begin(output, axis)

    def follow_operand(
        self, call: FunctionCall, output: Any, track: Track, operand: Tensor, place: tuple[int, int]
    ) -> None:
        """Follow what a function makes of one tracked tensor, at some place among its arguments."""
        if call.name in PRODUCTS:
            self.contract(track, operand, find_contracted(call.name, call.given, *place, operand), call.given)
        elif call.name in MIXING:
            self.mix(track, operand, output, MIXING[call.name] % operand.ndim)
        elif call.name in SUMS:
            if track.weighted:
                self.sum_up(track, operand, call)
        else:
            for _, _, result in iter_tensors((output,)):
                self.step(call, operand, result, track)

    def step(self, call: FunctionCall, operand: Tensor, result: Tensor, track: Track) -> None:
        """Follow a tensor to what a function made of it."""
        if call.name in MULTIPLIED and result.shape != operand.shape:
            self.multiply(call.args, operand, result, track)
            return
        axis = track.axis
        if axis is not None:
            axis = move_axis(call.function, call.args, call.kwargs, operand, result, axis)
        if call.name in DROPOUTS:
            overwritten = self.tracks.get(operand) if result is operand else None
            dropped = track.dropped or (result is not operand and result.data_ptr() != operand.data_ptr())
            self.tracks[result] = overwritten or replace(track, axis=axis, dropped=dropped)
            return
        if call.name in CHANGES and axis is not None and is_change(operand, result, axis):
            track = self.change(call, operand, result, track, axis)
        whole = track.matrix.tensor
        if call.name in REORDERING and axis == result.ndim - 1 and operand.shape == whole.shape:
            track = replace(track, matrix=Matrix(call.repeat(operand, whole), axis))  # the queries may have moved
        self.tracks[result] = replace(track, axis=axis)

    def change(self, call: FunctionCall, operand: Tensor, result: Tensor, track: Track, axis: int) -> Track:
        """Return the track of changed weights; after dropout, the same change is made to those before it."""
        whole = track.matrix.tensor
        if not track.dropped:
            track = replace(track, matrix=Matrix(self.share(result), axis))
        elif operand.shape == whole.shape == result.shape and not call.name.endswith("_"):
            track = replace(track, matrix=Matrix(call.repeat(operand, whole), axis))
        return replace(track, normalized=find_normalized(call.args, operand)) if call.name in DIVISIONS else track

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

    def sum_up(self, track: Track, operand: Tensor, call: FunctionCall) -> None:
        """Note the sum of weighted values."""
        axes = call.get("dim", 1, ())
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
