from regard.bench.attention import AttentionRow, Cost, Growth
from regard.bench.report import check_targets, format_verdict, growth_over_linear, iter_notes


def test_a_miss_is_called_a_miss():
    assert format_verdict("dot forward, of SDPA", 1.04, 1.05) == "met   dot forward, of SDPA: 1.040x, at most 1.05x"
    assert format_verdict("dot forward, of SDPA", 1.06, 1.05) == "MISS  dot forward, of SDPA: 1.060x, at most 1.05x"
    assert format_verdict("dot forward, of SDPA", None, 1.05) == "not measured  dot forward, of SDPA: at most 1.05x"


def test_twice_the_memory_for_twice_the_length_is_linear():
    assert growth_over_linear([Growth("growth", 100, 10), Growth("growth", 200, 20), Growth("growth", 400, 40)]) == 1
    assert growth_over_linear([Growth("growth", 100, 10), Growth("growth", 200, 40)]) == 2
    assert growth_over_linear([]) is None


def test_targets_are_about_the_peer_they_name():
    def cost(ratio: float, size: int) -> Cost:
        return Cost(1.0, 5, True, {"plain torch": ratio}, "plain torch", size)

    plain = AttentionRow("additive", "plain torch", False, cost(1, 200), cost(1, 400))
    ours = AttentionRow("additive", "attend", True, cost(0.5, 2), cost(1.4, 10))
    assert list(check_targets([plain, ours], [])) == [
        "Targets:",
        "met   additive forward, of plain torch: 0.500x, at most 0.60x",
        "MISS  additive with backward, of plain torch: 1.400x, at most 1.30x",
        "met   additive memory, of plain torch: 0.025x, at most 0.05x",
        "not measured  memory growth, of linear: at most 1.10x",
    ]


def test_a_busy_machine_is_noted():
    idle, busy = Cost(), Cost(quiet=False)
    rows = [
        AttentionRow("dot", "SDPA", False, idle, busy),
        AttentionRow("dot", "attend", True, idle, busy),
        AttentionRow("hard", "attend", True, busy, idle, ("too large",)),
    ]
    assert list(iter_notes(rows)) == [
        "hard, attend: too large",
        "dot with backward, hard forward: other programs were running; these times are unreliable",
    ]
