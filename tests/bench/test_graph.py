import torch

from regard.bench.graph import count_path, count_sequential_steps


def test_the_longest_chain_is_counted_through_the_slower_branch():
    x = torch.ones(2, requires_grad=True)
    short, long = x * 2, ((x + 1) * 3).exp()
    result = short + long
    assert count_sequential_steps(result) == 1 + 3 + 1  # the sum, three operations, and the leaf


def test_the_path_between_two_tensors_is_the_shortest():
    x, y = (torch.ones(2, requires_grad=True) for _ in range(2))
    result = (x * 2) * ((x + 1).exp() + y)
    assert count_path(result, x) == 2  # x * 2, and the product
    assert count_path(result, y) == 2  # the sum, and the product
    assert count_path(result, torch.ones(2, requires_grad=True)) is None


def test_steps_of_a_loop_wait_for_each_other_and_those_of_a_sum_do_not():
    x = [torch.ones(1, requires_grad=True) for _ in range(5000)]
    state = x[0]
    for step in x[1:]:
        state = state * step
    assert count_sequential_steps(state) == 4999 + 1
    assert count_path(state, x[0]) == 4999
    assert count_sequential_steps(torch.stack(x).sum()) == 3
