"""Count in the graph of operations what must wait: the longest chain, and the path between two positions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

from torch import Tensor

Node = Any  # a node of autograd's graph: one operation


def iter_inputs(node: Node) -> Iterator[Node]:
    """Yield the operations whose results an operation reads."""
    return (before for before, _ in node.next_functions if before is not None)


def count_sequential_steps(output: Tensor) -> int:
    """Return the length of the longest chain of operations that wait for each other.

    However many processors there are, a result takes at least this many operations one after another.
    """
    assert output.grad_fn is not None
    depths: dict[Node, int] = {}
    stack: list[tuple[Node, bool]] = [(output.grad_fn, False)]
    while stack:
        node, inputs_done = stack.pop()
        if node in depths:
            continue
        if inputs_done:
            depths[node] = 1 + max((depths[before] for before in iter_inputs(node)), default=0)
        else:
            stack.append((node, True))
            stack.extend((before, False) for before in iter_inputs(node) if before not in depths)
    return depths[output.grad_fn]


def count_path(output: Tensor, leaf: Tensor) -> int | None:
    """Return the number of operations on the shortest path from a leaf to an output, None if there is no path.

    Args:
        output: A result, such as the last position of a layer's output.
        leaf: A tensor that requires a gradient, such as the input at the first position.
    """
    assert output.grad_fn is not None
    queue: deque[tuple[Node, int]] = deque([(output.grad_fn, 1)])
    visited = {output.grad_fn}
    while queue:
        node, length = queue.popleft()
        if getattr(node, "variable", None) is leaf:
            return length - 1  # the leaf itself is no operation
        for before in iter_inputs(node):
            if before not in visited:
                visited.add(before)
                queue.append((before, length + 1))
    return None
