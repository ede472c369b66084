"""`attend` in code compiled by `torch.compile`: what Dynamo can trace, and an operator for what it cannot.

A dot product is a call of torch's function, which torch can trace. So is the formula of a small or unknown score. All
else runs the same kernels as in uncompiled code, in memory linear in queries + keys, behind `regard::attend` and
`regard::attend_backward`. These operators take tensors and plain values only.
"""

from __future__ import annotations

from functools import reduce
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.attention.base_score import Score, upcast
from regard.attention.call import Call, Terms, join_biases
from regard.attention.kernel_scores import Boxcar, Epanechnikov, Exact
from regard.attention.kernels.dispatch import KERNELS, get_kernel, run_forward
from regard.attention.kernels.fused import SDPA, attend_alone
from regard.attention.kernels.kernel import AttentionKernel, Result
from regard.attention.kernels.mean import MEAN
from regard.attention.kernels.reference import REFERENCE, is_small
from regard.attention.kernels.tiled import TILED
from regard.attention.normalizers import (
    Entmax15,
    HardMax,
    KernelSum,
    Normalizer,
    PlainKernelSum,
    PlainSum,
    Softmax,
    Sparsemax,
)
from regard.attention.scores import PreparedAdditive, get_fixed_dot
from regard.attention.sink import sink_gradient
from regard.attention.visible import And, Causal, Documents, Lengths, Rule, TensorRule, Window, split_conjunction

OPERATOR_NORMALIZERS: dict[str, type[Normalizer]] = {
    kind.__name__: kind for kind in (Entmax15, HardMax, KernelSum, PlainKernelSum, PlainSum, Softmax, Sparsemax)
}
OPERATOR_KERNELS = {kind.__name__: kind for kind in (Boxcar, Epanechnikov, Exact)}

TENSORS = (
    "Tensor query, Tensor keys, Tensor values, Tensor? bias, Tensor? sink, Tensor? parameter, Tensor? lengths, "
    "Tensor? row_documents, Tensor? col_documents, Tensor? matrix, Tensor? seed"
)
VALUES = (
    "SymInt[] shape, SymInt? left, SymInt? right, str score, float number, str normalizer, float dropout, "
    "ScalarType? autocast, bool learned_bias, str? path"
)


class Arguments(NamedTuple):
    """The arguments of the operators: a prepared call and its values."""

    query: Tensor
    keys: Tensor
    values: Tensor
    bias: Tensor | None
    sink: Tensor | None
    parameter: Tensor | None  # the energy of an additive score, or the width of a kernel
    lengths: Tensor | None
    row_documents: Tensor | None
    col_documents: Tensor | None
    matrix: Tensor | None
    seed: Tensor | None  # of dropout
    shape: torch.Size
    left: int | None  # of a window
    right: int | None
    score: str  # "dot", "additive" or the name of a kernel
    number: float  # the scale of a dot product, or the power of an Epanechnikov kernel
    normalizer: str
    dropout: float
    autocast: torch.dtype | None
    learned_bias: bool  # whether the bias gets a gradient
    path: str | None

    def build_call(self) -> Call:
        """Build the prepared call."""
        score, rules = self.build_score(), self.build_rules()
        terms = Terms(
            score,
            reduce(And, rules) if rules else None,
            OPERATOR_NORMALIZERS[self.normalizer](),
            torch.Size(self.shape),
            dropout=self.dropout,
            autocast=self.autocast,
        )
        parameters = () if self.parameter is None else (self.parameter,)
        bias = None if self.bias is None else self.bias.detach().requires_grad_(self.learned_bias)
        return Call(terms, self.query, self.keys, bias, parameters, self.sink, is_prepared=True).bind_parameters()

    def build_score(self) -> Score:
        """Build the score of a prepared call."""
        if self.score == "dot":
            return get_fixed_dot(self.number)
        assert self.parameter is not None
        if self.score == "additive":
            return PreparedAdditive(self.parameter)
        score = Epanechnikov(power=self.number) if self.score == "Epanechnikov" else OPERATOR_KERNELS[self.score]()
        score.width = nn.Parameter(self.parameter.detach(), requires_grad=False)
        return score

    def build_rules(self) -> list[Rule]:
        """Build the rules that must all hold."""
        rules: list[Rule] = []
        if self.left is None and self.right in (0, -1):
            rules.append(Causal(strict=self.right == -1))
        elif self.left is not None or self.right is not None:
            rules.append(Window(self.left, self.right))
        if self.lengths is not None:
            rules.append(Lengths(self.lengths))
        if self.row_documents is not None and self.col_documents is not None:
            rules.append(Documents(self.col_documents, self.row_documents))
        return rules if self.matrix is None else [*rules, TensorRule(self.matrix)]

    def choose_kernel(self, call: Call) -> AttentionKernel:
        """Return the fastest kernel with a gradient of its own that supports the call."""
        kernels = (kernel for kernel in KERNELS if kernel.forward is not None and not kernel.differentiable)
        return next(
            kernel
            for kernel in kernels
            if self.path in (None, kernel.name)
            and kernel.get_unsupported_reason(call, "forward") is None
            and (self.path is not None or kernel.worthwhile is None or kernel.worthwhile(call))
        )

    def run(self, kernel: AttentionKernel, call: Call) -> Result:
        """Run the forward of a kernel, with the same dropout each time."""
        if self.seed is None:
            return run_forward(kernel, call, self.values)
        with torch.random.fork_rng([]):
            torch.manual_seed(int(self.seed))
            return run_forward(kernel, call, self.values)


def run_compiled(
    call: Call, values: Float[Tensor, "*values_batch keys width"], path: str | None, *, weights: bool
) -> Result:
    """Compute attention with what can be compiled; weights, if asked for, as a matrix."""
    if path is not None:
        get_kernel(path, call, "forward" if weights else "output")
    if weights or path == "reference":
        return REFERENCE.forward(call, values)  # type: ignore[misc]
    if path in (None, "sdpa") and SDPA.get_unsupported_reason(call, "output") is None:
        output = attend_alone(call, values)
        if output is not None:
            return Result(output, None)
    if path in (None, "mean") and MEAN.get_unsupported_reason(call, "output") is None:
        return MEAN.forward(call, values)  # type: ignore[misc]
    arguments = None if path is None and is_small(call) else build_arguments(call, values, path)
    if arguments is None:
        return REFERENCE.forward(call, values)  # type: ignore[misc]
    output, statistic, _ = torch.ops.regard.attend(*arguments)
    return Result(output, statistic)


def build_arguments(call: Call, values: Tensor, path: str | None) -> Arguments | None:
    """Return the arguments of the operators; None for a score that they do not know."""
    terms, score, bias = call.terms, call.terms.score, call.bias
    form, number = call.dot, 0.0
    parameter: Any = None
    if form is not None:
        name, number, query, keys = "dot", float(form.scale), form.query, form.keys
        bias = join_biases(bias, form.key_bias)
    elif score.form == "additive":
        name, parameter = "additive", score.energy
        query, keys = score.prepare(call.query, call.keys)
    elif type(score) in OPERATOR_KERNELS.values():
        name, parameter, query, keys = type(score).__name__, score.width, call.query, call.keys
        number = float(score.power) if isinstance(score, Epanechnikov) else 0.0
    else:
        return None
    rule = describe_rule(terms.visible, terms.shape, query.device)
    return Arguments(
        query,
        keys,
        values,
        bias,
        call.sink,
        parameter,
        *rule[:4],
        torch.randint(2**31, ()) if terms.dropout else None,
        terms.shape,
        *rule[4:],
        name,
        number,
        type(terms.normalizer).__name__,
        float(terms.dropout),
        terms.autocast,
        bias is not None and bias.requires_grad and torch.is_grad_enabled(),
        path,
    )


class RuleArguments(NamedTuple):
    """A rule as arguments of the operators: a key must be visible by all that are not None."""

    lengths: Tensor | None = None
    row_documents: Tensor | None = None
    col_documents: Tensor | None = None
    matrix: Tensor | None = None
    left: int | None = None
    right: int | None = None


def describe_rule(rule: Rule | None, shape: torch.Size, device: torch.device) -> RuleArguments:
    """Return a rule as arguments; what is neither causal nor a window, lengths or documents becomes a matrix."""
    lengths = row_documents = col_documents = matrix = left = right = None
    for part in split_conjunction(rule):
        if isinstance(part, (Causal, Window)) and left is None and right is None:
            left, right = (None, -int(part.strict)) if isinstance(part, Causal) else (part.left, part.right)
        elif isinstance(part, Lengths) and lengths is None:
            lengths = part.counts
        elif isinstance(part, Documents) and row_documents is None:
            row_documents, col_documents = part.queries, part.keys
        else:
            tile = part.tile(slice(0, shape[-2]), slice(0, shape[-1]), shape, device)
            matrix = tile if matrix is None else matrix & tile
    return RuleArguments(lengths, row_documents, col_documents, matrix, left, right)


def attend_op(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Compute output, statistic and the mean for backward (empty if that is the output)."""
    inputs = Arguments(*arguments)
    call = inputs.build_call()
    result = inputs.run(inputs.choose_kernel(call), call)
    assert result.statistic is not None
    mean = result.output.new_empty(0) if result.mean is None else result.mean.contiguous()
    return result.output.contiguous(), result.statistic.contiguous(), mean


def fake_attend(*arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Return empty tensors of the shapes and types that `attend_op` returns."""
    inputs = Arguments(*arguments)
    values = inputs.values
    output = values.new_empty(*inputs.shape[:-1], values.shape[-1])
    shares = OPERATOR_NORMALIZERS[inputs.normalizer].shares_by_weight
    mean = values.new_empty(0) if shares else torch.empty_like(output)
    return output, values.new_empty(*inputs.shape[:-1], 1, dtype=upcast(values).dtype), mean


def attend_backward_op(
    gradient: Tensor, output: Tensor, statistic: Tensor, mean: Tensor, needs: list[bool], *arguments: Any
) -> list[Tensor]:
    """Compute the gradients of values, sink, query, keys, bias and parameter, each if it is needed."""
    inputs = Arguments(*arguments)
    call = inputs.build_call()
    kernel = inputs.choose_kernel(call)
    is_known = inputs.seed is None and call.query.is_cpu  # then the kernels save no extra data
    extra = None if is_known else inputs.run(kernel, call).extra
    result = Result(output, statistic, mean if mean.numel() else None, extra=extra)
    if kernel.backward is None:
        kernel, result = TILED, result._replace(extra=None)
    assert kernel.backward is not None
    needs_values, needs_sink, *needs_inputs = needs
    of_values, *of_inputs = kernel.backward(
        call, inputs.values, result, gradient, (needs_values, *needs_inputs[: 3 + len(call.parameters)])
    )
    of_sink = None
    if needs_sink:
        assert inputs.sink is not None
        of_sink = sink_gradient(inputs.sink, statistic, (upcast(gradient) * output).sum(-1, keepdim=True))
    gradients = of_values, of_sink, *of_inputs
    return [
        torch.zeros_like(tensor) if tensor_gradient is None else tensor_gradient.contiguous()
        for tensor, tensor_gradient in select_needed(inputs, needs, gradients)
    ]


def select_needed(inputs: Arguments, needs: list[bool], gradients: Any) -> list[tuple[Tensor, Any]]:
    """Return the differentiable inputs that need a gradient, each with its part of `gradients`."""
    tensors = inputs.values, inputs.sink, inputs.query, inputs.keys, inputs.bias, inputs.parameter
    pairs = zip(tensors, needs, (*gradients, *[None] * (len(tensors) - len(gradients))), strict=True)
    return [(tensor, gradient) for tensor, needed, gradient in pairs if needed and tensor is not None]


def fake_attend_backward(
    gradient: Tensor, output: Tensor, statistic: Tensor, mean: Tensor, needs: list[bool], *arguments: Any
) -> list[Tensor]:
    """Return empty tensors of the shapes and types that `attend_backward_op` returns."""
    return [tensor.new_empty(tensor.shape) for tensor, _ in select_needed(Arguments(*arguments), needs, ())]


def save_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    """Save what backward needs."""
    tensors = Arguments._fields.index("shape")
    ctx.save_for_backward(*output, *inputs[:tensors])
    ctx.plain_values = inputs[tensors:]


def differentiate(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
    """Return the gradients of all arguments of `regard::attend`."""
    output, statistic, mean, *tensors = ctx.saved_tensors
    names = ("values", "sink", "query", "keys", "bias", "parameter")
    indices = [Arguments._fields.index(name) for name in names]
    needs = [bool(ctx.needs_input_grad[index]) for index in indices]
    computed = iter(
        torch.ops.regard.attend_backward(gradient, output, statistic, mean, needs, *tensors, *ctx.plain_values)
    )
    gradients: list[Tensor | None] = [None] * len(Arguments._fields)
    for index, needed in zip(indices, needs, strict=True):
        gradients[index] = next(computed) if needed else None
    return tuple(gradients)


def register_operators() -> None:
    """Register the operators with torch.

    The backward is no `torch.library.custom_op`, in which autograd is off: tiles differentiate scores by autograd.
    """
    results = "Tensor gradient, Tensor output, Tensor statistic, Tensor mean, bool[] needs"
    torch.library.define("regard::attend", f"({TENSORS}, {VALUES}) -> (Tensor, Tensor, Tensor)")
    torch.library.define("regard::attend_backward", f"({results}, {TENSORS}, {VALUES}) -> Tensor[]")
    torch.library.impl("regard::attend", "default", attend_op)
    torch.library.impl("regard::attend_backward", "default", attend_backward_op)
    torch.library.register_fake("regard::attend", fake_attend)
    torch.library.register_fake("regard::attend_backward", fake_attend_backward)
    torch.library.register_autograd("regard::attend", differentiate, setup_context=save_context)


register_operators()
