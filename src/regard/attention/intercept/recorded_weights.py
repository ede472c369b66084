"""Weights of attention that a model computed itself: from its query and keys, or from its own matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor

from regard.attention.base_score import broadcast_shapes
from regard.attention.call import Call, Terms
from regard.attention.combined_weights import MergedWeights
from regard.attention.indexing import expand_index, resolve_index
from regard.attention.inputs import prepare_bias
from regard.attention.kernels.dispatch import choose_kernel, run_kernel
from regard.attention.kernels.reference import compute_weights
from regard.attention.lazy_weights import LazyWeights, build_weights, get_version
from regard.attention.normalizers import Softmax
from regard.attention.products import multiply
from regard.attention.reductions import Rows
from regard.attention.scores import get_fixed_dot
from regard.attention.visible import FirstKeys, Index, Rule, count_indices, map_tensor_rules, select_index
from regard.attention.weights import DenseWeights, Weights
from regard.errors import RegardError

HIDING = 0.5  # a bias below this fraction of the lowest number of its type hides a key
ABSORBING = -1e30  # added to a score, this leaves nothing of it in float32

FEW_ROWS = 8  # of so many rows, one is computed by itself
FEW_WEIGHTS = 2**22  # up to so many weights at once

STALE = (
    "weights: query, keys or mask were modified in place after the recorded call; use the weights before that, "
    'or watch with a reduction such as keep="top:8"'
)


class RecordedWeights(Weights):
    """Softmax weights of a recorded query and keys, prepared when they are first asked for.

    Args:
        query: The queries, (*batch, heads, queries, width), or without heads.
        keys: The keys, with as many heads or, if `grouped`, with a divisor of them.
        scale: The factor of the dot products.
        visible: The keys each query may attend to; None for all.
        bias: A tensor added to the scores.
        grouped: Whether several heads share the keys of a group.
        grad: Whether the weights have a gradient.
        lse: The log-sum-exp of each row, if it is known; otherwise it is computed when first used.
    """

    def __init__(
        self,
        query: Float[Tensor, "*query_batch queries width"],
        keys: Float[Tensor, "*keys_batch keys width"],
        scale: float,
        visible: Rule | None = None,
        bias: Float[Tensor, "..."] | None = None,
        *,
        grouped: bool = False,
        grad: bool = False,
        lse: Float[Tensor, "*batch queries"] | None = None,
    ) -> None:
        self.query, self.keys, self.bias, self.visible, self.lse = query, keys, bias, visible, lse
        self.scale, self.grouped, self.grad = scale, grouped, grad
        batch = query.shape[:-2] if grouped else broadcast_shapes(query.shape[:-2], keys.shape[:-2])
        self.shape, self.ranked = torch.Size((*batch, query.shape[-2], keys.shape[-2])), True
        self.device, self.dtype = query.device, torch.promote_types(query.dtype, torch.float32)
        self._versions = [get_version(tensor) for tensor in self.iter_tensors()]

    def iter_tensors(self) -> Iterator[Tensor]:
        """Iterate over the tensors that the weights are computed from."""
        yield from (self.query, self.keys)
        if self.bias is not None:
            yield self.bias
        if self.visible is not None:
            yield from self.visible.iter_tensors()

    def check_unchanged(self) -> None:
        """Raise a `RegardError` if a tensor was modified in place after the call."""
        if [get_version(tensor) for tensor in self.iter_tensors()] != self._versions:
            raise RegardError(STALE)

    @property
    def groups(self) -> int:
        """The number of groups of heads that share keys."""
        return self.keys.shape[-3] if self.keys.ndim > 2 else 1

    def build_call(self) -> Call:
        """Build the attention call: grouped heads get an axis of their own."""
        self.check_unchanged()
        query, keys, visible, bias = self.query, self.keys, self.visible, self.bias
        if self.grouped:
            query, keys = query.unflatten(-3, (self.groups, -1)), keys.unsqueeze(-3)
            visible = (
                None if visible is None else map_tensor_rules(visible, partial(add_group_axis, groups=self.groups))
            )
            bias = None if bias is None else add_group_axis(bias, self.groups)
        shape = torch.Size((*broadcast_shapes(query.shape[:-2], keys.shape[:-2]), *self.shape[-2:]))
        if visible is not None:
            visible.check(shape)
        if bias is not None:
            query = forget_absorbed(query, bias, shape)
        bias = prepare_bias(bias, Softmax(), visible, query, shape)
        return Call(Terms(get_fixed_dot(self.scale), visible, Softmax(), shape), query, keys, bias)

    @cached_property
    def base(self) -> Weights:
        """The weights, with the log-sum-exp of each row, which is computed now if it is not known."""
        with self.autograd(), no_autocast(self.device):
            call = self.build_call()
            if self.lse is not None:
                return LazyWeights(call.prepared, self.lse.unsqueeze(-1))
            weights = build_weights(call, run_kernel(choose_kernel(call), call, call.keys))
        return MergedWeights(weights, len(self.shape) - 3) if self.grouped else weights

    def autograd(self) -> torch.set_grad_enabled:
        """Return the context in which the weights are computed, with gradient if they have one."""
        return torch.set_grad_enabled(self.grad and torch.is_grad_enabled())

    def materialize(self) -> Weights:
        if self.shape[-2] > 1:
            return super().materialize()
        with self.autograd(), no_autocast(self.device):  # one row needs no log-sum-exp
            matrix = compute_weights(self.build_call())
        return DenseWeights(matrix.reshape(self.shape))

    def hold(self) -> Weights:
        """Return weights that later changes of the model's tensors cannot make wrong without an error.

        A single row is computed at once. Query and keys in memory that is written in place, such as a static
        cache, are copied, and so is every inference tensor, whose changes leave no trace.
        """
        if self.shape[-2] == 1:
            return self.materialize()
        query, keys = (copy_if_written(tensor) for tensor in (self.query, self.keys))
        bias = None if self.bias is None else copy_if_inference(self.bias)
        visible = None if self.visible is None else self.visible.map_tensors(copy_if_inference)
        lse = None if self.lse is None else copy_if_inference(self.lse)
        return RecordedWeights(query, keys, self.scale, visible, bias, grouped=self.grouped, grad=self.grad, lse=lse)

    def find_last_key(self) -> Bool[Tensor, " keys"] | None:
        """Return which keys the last query sees, from the mask; None without one.

        A static cache has unused slots after these.
        """
        mask = self.bias if self.bias is not None else getattr(self.visible, "matrix", None)
        if mask is None or mask.shape[-1] != self.shape[-1]:
            return None
        mask = torch.atleast_2d(mask.detach())[..., -1, :]
        if mask.dtype != torch.bool:
            mask = mask > HIDING * torch.finfo(mask.dtype).min
        return mask.flatten(0, -2).any(0) if mask.ndim > 1 else mask

    def first_keys(self, count: int) -> RecordedWeights:
        """Return the weights of the first keys, if the others are hidden from all queries."""
        visible, bias = self.visible, self.bias
        visible = None if visible is None else FirstKeys(visible, self.shape[-1])
        bias = bias if bias is None or bias.shape[-1] == 1 else bias[..., :count]
        keys = self.keys[..., :count, :]
        return RecordedWeights(self.query, keys, self.scale, visible, bias, grouped=self.grouped, grad=self.grad)

    def row_blocks(self) -> Iterator[Rows]:
        return self.base.row_blocks()

    def compute_reductions(self, names: Sequence[str]) -> dict[str, Any]:
        return self.base.compute_reductions(names)

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return self.base.block(rows, cols)

    def multiply(self, factor: Float[Tensor, "*#batch keys width"]) -> Float[Tensor, "*batch queries width"]:
        call = self.build_call()
        call = call if self.grad else call.detach()
        if not self.grouped:
            return multiply(call, factor)
        return multiply(call, add_group_axis(factor, self.groups)).flatten(-4, -3)

    def multiply_transposed(self, factor: Float[Tensor, "*#batch queries width"]) -> Float[Tensor, "*batch keys width"]:
        return self.base.multiply_transposed(factor)

    def __getitem__(self, index: Any) -> Tensor:
        *leading, rows, cols = expand_index(index, len(self.shape))
        which_rows, local_rows = resolve_index(rows, self.shape[-2], self.device)
        if not self.are_few(which_rows):
            return super().__getitem__(index)
        which_cols, local_cols = resolve_index(cols, self.shape[-1], self.device)
        with self.autograd(), no_autocast(self.device):
            block = compute_weights(self.build_call(), which_rows)
        block = select_index(block.reshape(*self.shape[:-2], *block.shape[-2:]), -1, which_cols)
        return block[(*leading, local_rows, local_cols)]

    def are_few(self, rows: Index) -> bool:
        """Return whether some rows cost less by themselves than the weights of all."""
        count = count_indices(rows)
        few = FEW_ROWS * count <= self.shape[-2] and count * self.shape[-1] * self.shape[:-2].numel() <= FEW_WEIGHTS
        return few and "base" not in self.__dict__

    def select_batch(self, leading: list[Any]) -> Weights:
        narrowed = self.base.select_batch(leading)
        return self if narrowed is self.base else narrowed

    def clone(self) -> Weights:
        return self.map(lambda tensor: tensor.clone()) if self.shape[-2] > 1 else self.materialize()

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        self.check_unchanged()
        visible = None if self.visible is None else self.visible.map_tensors(change)
        bias = None if self.bias is None else change(self.bias)
        query, keys = change(self.query), change(self.keys)
        lse = None if self.lse is None else change(self.lse)
        return RecordedWeights(query, keys, self.scale, visible, bias, grouped=self.grouped, grad=self.grad, lse=lse)


class HeldWeights(DenseWeights):
    """The matrix that a model computed itself, in at least float32 when asked for."""

    def __init__(self, matrix: Float[Tensor, "*batch queries keys"]) -> None:
        super().__init__(matrix)
        self.dtype = torch.promote_types(matrix.dtype, torch.float32)
        self._version = get_version(matrix)

    def get_matrix(self) -> Float[Tensor, "*batch queries keys"]:
        """Return the matrix; raise a `RegardError` if it was modified in place."""
        if get_version(self.matrix) != self._version:
            raise RegardError(STALE)
        return self.matrix

    def materialize(self) -> Weights:
        return DenseWeights(self.get_matrix().to(self.dtype))

    def find_last_key(self) -> Bool[Tensor, " keys"] | None:
        """Return which keys the last query sees."""
        return (self.matrix.detach()[..., -1, :] != 0).reshape(-1, self.shape[-1]).any(0) if self.shape[-2] else None

    def hold(self) -> Weights:
        """Return weights that later changes of the matrix cannot make wrong without an error."""
        return HeldWeights(copy_if_inference(self.matrix))

    def row_blocks(self) -> Iterator[Rows]:
        self.get_matrix()
        for block in super().row_blocks():
            yield Rows(block.rows, block.span, block.weights.to(self.dtype))

    def block(self, rows: Index, cols: Index) -> Float[Tensor, "*batch rows cols"]:
        return select_index(select_index(self.get_matrix(), -2, rows), -1, cols).to(self.dtype)

    def map(self, change: Callable[[Tensor], Tensor]) -> Weights:
        return HeldWeights(change(self.get_matrix()))


def add_group_axis(tensor: Shaped[Tensor, "..."], groups: int) -> Shaped[Tensor, "..."]:
    """Split the head axis, if there is one, so that it broadcasts to (groups, heads in a group)."""
    if tensor.ndim < 3:
        return tensor
    return tensor.unsqueeze(-3) if tensor.shape[-3] == 1 else tensor.unflatten(-3, (groups, -1))


def forget_absorbed(
    query: Float[Tensor, "*query_batch queries width"], bias: Float[Tensor, "..."], shape: torch.Size
) -> Float[Tensor, "*batch queries width"]:
    """Set the queries to zero whose scores vanish beside a bias such as the lowest number for all keys.

    Rounding leaves nothing of such scores in the model either: every key gets the same weight.
    """
    bias = torch.atleast_2d(bias)
    if bias.dtype in (torch.float16, torch.float8_e4m3fn) or not bias.numel():
        return query
    absorbed = bias.detach().amax(-1, keepdim=True)
    absorbed = (absorbed <= ABSORBING) & absorbed.isfinite()
    if not absorbed.any():
        return query
    return query.expand(*shape[:-2], *query.shape[-2:]).masked_fill(absorbed, 0)


def no_autocast(device: torch.device) -> torch.autocast:
    """Return a context without autocast, so that weights are computed in the type of the recorded tensors."""
    return torch.autocast(device.type, enabled=False)


def copy_if_inference(tensor: Tensor) -> Tensor:
    """Return a normal copy of an inference tensor, whose changes leave no trace; else the tensor."""
    if not tensor.is_inference():
        return tensor
    with torch.inference_mode(mode=False):
        return tensor.clone()


def copy_if_written(tensor: Tensor) -> Tensor:
    """Return a copy of a tensor in memory that is written in place, such as a static cache; else the tensor."""
    if tensor.is_inference():
        return copy_if_inference(tensor)
    return tensor.clone() if tensor._version else tensor
