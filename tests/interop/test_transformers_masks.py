import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

transformers = pytest.importorskip("transformers")
masking = pytest.importorskip("transformers.masking_utils")

from regard.interop.transformers_masks import RuleMask, build_rule_mask  # noqa: E402

FUNCTIONS = {
    "causal": lambda _: masking.causal_mask_function,
    "all": lambda _: masking.bidirectional_mask_function,
    "window": masking.sliding_window_causal_mask_function,
    "both sides": masking.sliding_window_bidirectional_mask_function,
}


def whole(mask):
    """Return the matrix of a mask's rule, with unused keys as not visible."""
    batch, _, queries, _ = mask.shape
    sight, shape = mask.attention_mask, torch.Size((batch, 1, queries, mask.attention_mask.keys))
    actual = torch.zeros(mask.shape, dtype=torch.bool)
    tile = (slice(0, queries), slice(0, sight.keys))
    actual[..., : sight.keys] = True if sight.rule is None else sight.rule.tile(*tile, shape, torch.device("cpu"))
    return actual


@given(st.sampled_from([*FUNCTIONS]), st.data())
def test_rules_say_what_the_mask_of_sdpa_says(name, data):
    number = st.integers(0, 5)
    window, queries, past = data.draw(number) + 1, data.draw(number) + 1, data.draw(number)
    dropped, room = data.draw(st.integers(0, past)), data.draw(number)
    if name == "both sides":
        room = 0
    keys = past + queries - dropped + room
    padding = data.draw(st.none() | st.lists(st.booleans(), min_size=1, max_size=past + queries))
    given = {
        "batch_size": 2,
        "q_length": queries,
        "kv_length": keys,
        "q_offset": data.draw(st.sampled_from([past, torch.tensor(past)])),  # as passed by a static cache
        "kv_offset": dropped,
        "mask_function": FUNCTIONS[name](window),
        "attention_mask": None if padding is None else torch.tensor([padding, [True] * len(padding)]),
    }
    mask = build_rule_mask(**given, dtype=torch.float32, local_size=window)
    expected = masking.sdpa_mask(**given, allow_is_causal_skip=False)
    assert isinstance(mask, RuleMask)
    assert torch.equal(whole(mask), expected.expand(mask.shape))
    assert torch.equal(mask & True, expected)  # using its values builds the tensor
    assert mask.attention_mask.first == dropped


def test_packed_documents_are_a_rule():
    document_ids = torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]])
    function = masking.and_masks(masking.causal_mask_function, masking.packed_sequence_mask_function(document_ids))
    mask = build_rule_mask(2, 5, 5, mask_function=function)
    assert torch.equal(whole(mask), masking.sdpa_mask(2, 5, 5, mask_function=function, allow_is_causal_skip=False))


@pytest.mark.parametrize(
    "given",
    [
        {"mask_function": masking.chunked_causal_mask_function(2, torch.zeros(2, dtype=torch.long))},
        {"mask_function": masking.and_masks(lambda b, h, q, k: k != 1, masking.causal_mask_function), "use_vmap": True},
        {"mask_function": masking.sliding_window_bidirectional_mask_function(1), "q_offset": 1},  # out of line
        {"mask_function": masking.causal_mask_function, "q_offset": 2},  # more positions than keys
    ],
    ids=["chunks", "own", "out of line", "beyond"],
)
def test_other_masks_are_made_as_for_sdpa(given):
    mask = build_rule_mask(2, 4, 4, **given)
    assert torch.equal(whole(mask), masking.sdpa_mask(2, 4, 4, **given, allow_is_causal_skip=False))
    assert mask.attention_mask.keys == 4


def test_other_masks_leave_out_what_a_cache_has_room_for():
    function = masking.chunked_causal_mask_function(3, torch.zeros(1, dtype=torch.long))
    mask = build_rule_mask(1, 2, 8, q_offset=4, kv_offset=1, mask_function=function)
    assert torch.equal(whole(mask), masking.sdpa_mask(1, 2, 8, 4, 1, mask_function=function))
    assert (mask.attention_mask.first, mask.attention_mask.keys) == (1, 5)


def test_a_mask_takes_no_memory_until_it_is_looked_at():
    mask = build_rule_mask(1, 10**6, 10**6)  # as a tensor, a terabyte
    assert (mask.shape, mask.ndim, mask.dtype) == ((1, 1, 10**6, 10**6), 4, torch.bool)
    assert mask.contiguous() is mask


def test_a_part_of_a_mask_is_a_plain_tensor():
    mask = build_rule_mask(1, 3, 3)
    assert type(mask[:, :, 1:]) is torch.Tensor
    assert mask[0, 0, 1:].tolist() == [[True, True, False], [True, True, True]]
    assert torch.where(mask, 0.0, 1.0).sum() == 3
