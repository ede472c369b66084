import numpy as np
import pytest
import torch

from regard import RegardError
from regard.api import heads, look
from tests.interop.tiny_models import BERT, GPT2, LLAMA_GROUPED, MARIAN, T5, eager
from tests.sizes import Sizes

transformers = pytest.importorskip("transformers")

from tests.maps.tiny_tokenizers import ANIMAL, of_bytes, of_sentence_pieces, of_word_pieces  # noqa: E402


def stacked(layers):
    return torch.stack(list(layers))[:, 0].numpy()


def averaged(weights, *groups):
    """The mean of the rows of each group."""
    return np.stack([weights[:, :, group].mean(2) for group in map(list, groups)], 2)


def added(weights, *groups):
    """The sum of the columns of each group."""
    return np.stack([weights[..., group].sum(-1) for group in map(list, groups)], -1)


@pytest.mark.parametrize("tiny", [GPT2, LLAMA_GROUPED])
def test_a_decoder_by_tokens(tiny):
    model, tokenizer = tiny.new(vocab_size=300), of_bytes()
    picture = look(model, tokenizer, ANIMAL, words=False)
    tokens = ("the", "▁an", "im", "al", "▁s", "e", "e", "s", "▁it")
    assert picture.rows == picture.columns == tokens
    assert (picture.title, picture.merged) == (f"{type(model).__name__}: {ANIMAL}", "tokens")
    expected = eager(model, input_ids=tokenizer(ANIMAL, return_tensors="pt")["input_ids"])
    np.testing.assert_allclose(picture.weights, stacked(expected.attentions), atol=1e-5)
    assert picture.alternatives_for == "next"
    for place, considered in enumerate(picture.alternatives):  # after the last token, too
        shares = expected.logits[0, place].softmax(-1)
        assert considered[0][1] == pytest.approx(shares.max().item(), abs=1e-6)
        if place + 1 < len(tokens):
            number = tokenizer(ANIMAL)["input_ids"][place + 1]
            assert dict(considered)[tokens[place + 1]] == pytest.approx(shares[number].item(), abs=1e-6)
    assert len(picture.alternatives[-1]) == 5


def test_a_decoder_by_words():
    model, tokenizer = GPT2.new(vocab_size=300), of_bytes()
    picture = look(model, tokenizer, ANIMAL)
    assert picture.rows == picture.columns == ("the", "animal", "sees", "it")
    assert (picture.merged, picture.alternatives) == ("words", None)
    whole = stacked(eager(model, input_ids=tokenizer(ANIMAL, return_tensors="pt")["input_ids"]).attentions)
    groups = ([0], [1, 2, 3], [4, 5, 6, 7], [8])
    np.testing.assert_allclose(picture.weights, added(averaged(whole, *groups), *groups), atol=1e-5)


def test_an_encoder_keeps_its_special_tokens():
    model, tokenizer = BERT.new(), of_word_pieces()
    whole = stacked(eager(model, input_ids=tokenizer(ANIMAL, return_tensors="pt")["input_ids"]).attentions)
    tokens, words = (look(model, tokenizer, ANIMAL, words=merged) for merged in (False, True))
    assert tokens.rows == ("[CLS]", "the", "ani", "##mal", "sees", "it", "[SEP]")
    assert words.rows == words.columns == ("[CLS]", "the", "animal", "sees", "it", "[SEP]")
    assert tokens.alternatives is None  # it writes nothing
    np.testing.assert_allclose(tokens.weights, whole, atol=1e-5)
    groups = ([0], [1], [2, 3], [4], [5], [6])
    np.testing.assert_allclose(words.weights, added(averaged(whole, *groups), *groups), atol=1e-5)


@pytest.mark.parametrize("tiny", [T5, MARIAN])
def test_each_attention_of_encoder_and_decoder(tiny):
    model, tokenizer = tiny.new(), of_sentence_pieces()
    source, target = (tokenizer(text, return_tensors="pt")["input_ids"] for text in (ANIMAL, "das tierchen"))
    read = torch.tensor([[0, *target[0, :-1].tolist()]])  # it starts with <pad>
    expected = eager(model, input_ids=source, decoder_input_ids=read)
    given, written = ("▁the", "▁ani", "mal", "▁sees", "▁it", "</s>"), ("▁das", "▁tier", "chen", "</s>")
    sides = {
        "cross": (written, given),
        "encoder": (given, given),
        "decoder": (written, ("<pad>", "▁das", "▁tier", "chen")),
    }
    for kind, (rows, columns) in sides.items():
        picture = look(model, tokenizer, ANIMAL, target="das tierchen", kind=kind, words=False)
        assert (picture.rows, picture.columns) == (rows, columns)
        np.testing.assert_allclose(picture.weights, stacked(expected[f"{kind}_attentions"]), atol=1e-5)
    words = look(model, tokenizer, ANIMAL, target="das tierchen")
    assert (words.rows, words.columns) == (("das", "tierchen", "</s>"), ("the", "animal", "sees", "it", "</s>"))
    whole = averaged(stacked(expected.cross_attentions), [0], [1, 2], [3])
    np.testing.assert_allclose(words.weights, added(whole, [0], [1, 2], [3], [4], [5]), atol=1e-5)
    assert words.title == f"{type(model).__name__}: {ANIMAL} → das tierchen"


@pytest.mark.parametrize("tiny", [T5, MARIAN])
def test_a_target_that_the_model_writes(tiny):
    model, tokenizer = tiny.new(), of_sentence_pieces()
    source = tokenizer(ANIMAL, return_tensors="pt")["input_ids"]
    written = model.generate(input_ids=source, attention_mask=torch.ones_like(source), max_new_tokens=62)
    expected = eager(model, input_ids=source, decoder_input_ids=written[:, :-1])
    picture = look(model, tokenizer, ANIMAL, words=False)
    np.testing.assert_allclose(picture.weights, stacked(expected.cross_attentions), atol=1e-5)
    for row, several in zip(picture.rows, picture.alternatives, strict=True):
        assert several[0][0] == row  # the most probable token is the one that greedy decoding writes
    assert look(model, tokenizer, ANIMAL, words=False, max_length=3).rows == picture.rows[:3]


def test_tokens_without_marks_and_letters_of_two_bytes():
    model, tokenizer = GPT2.new(vocab_size=300), of_bytes()
    tokens = look(model, tokenizer, "thé", words=False)
    assert tokens.rows == ("th", "Ã", "©")  # neither is a letter alone
    assert look(model, tokenizer, "thé it").rows == ("thé", "it")


def test_a_long_text_makes_no_matrix(monkeypatch):
    monkeypatch.setattr("regard.maps.weights.AT_ONCE", 2**17)
    monkeypatch.setattr("regard.attention.kernels.sdpa.MASK_NUMBERS", 2**16)
    model, tokenizer = GPT2.new(vocab_size=300, n_positions=1100, n_layer=1), of_bytes()
    text = " ".join(["the it"] * 350)  # the, ▁it, ▁, the, ▁it, ...: 1,049 tokens
    with Sizes() as sizes:
        picture = look(model, tokenizer, text)
    assert (picture.layers, picture.heads, len(picture.rows), picture.top_k) == (1, 4, 700, 64)
    assert sizes.most < 1049 * 1049 / 2
    whole = stacked(eager(model, input_ids=tokenizer(text, return_tensors="pt")["input_ids"]).attentions)
    groups = [[0], [1], *(group for first in range(2, 1049, 3) for group in ([first, first + 1], [first + 2]))]
    words = added(averaged(whole, *groups), *groups)
    np.testing.assert_allclose(picture.weights.values, np.sort(words, -1)[..., :-65:-1], atol=1e-5)
    np.testing.assert_allclose(picture.weights.received, words.sum(-2), rtol=1e-3, atol=1e-4)


def test_no_cache_is_filled():
    model, tokenizer, caches = GPT2.new(vocab_size=300), of_bytes(), []
    model.base_model.register_forward_hook(lambda *call: caches.append(call[-1].past_key_values))
    look(model, tokenizer, ANIMAL)
    heads(model, tokenizer(ANIMAL, return_tensors="pt")["input_ids"])
    assert caches == [None, None]


def test_layers_that_share_their_parameters():
    settings = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "embedding_size": 8}
    config = transformers.AlbertConfig(vocab_size=40, num_hidden_layers=3, num_hidden_groups=2, **settings)
    model, tokenizer = transformers.AlbertModel(config).eval(), of_word_pieces()
    picture = look(model, tokenizer, ANIMAL, words=False)
    expected = eager(model, input_ids=tokenizer(ANIMAL, return_tensors="pt")["input_ids"])
    np.testing.assert_allclose(picture.weights, stacked(expected.attentions), atol=1e-5)


def test_positions_that_begin_after_that_of_padding():
    settings = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    config = transformers.RobertaConfig(vocab_size=40, max_position_embeddings=12, pad_token_id=1, **settings)
    model, tokenizer = transformers.RobertaModel(config).eval(), of_word_pieces()
    assert len(look(model, tokenizer, "it " * 8).rows) == 10
    with pytest.raises(RegardError) as error:
        look(model, tokenizer, "it " * 9)
    assert str(error.value) == "look: the text must have at most 10 tokens for RobertaModel, got 11"


def test_what_is_wrong_is_said_in_a_line():
    tokenizer, pieces = of_bytes(), of_sentence_pieces()
    gpt, bert = GPT2.new(vocab_size=300), BERT.new(vocab_size=300)
    bare = transformers.T5Model(T5.new().config).eval()
    cases = [
        ((gpt.train(), tokenizer, "it"), {}, "look: the model is in training mode; call model.eval() first"),
        (
            (GPT2.new(vocab_size=300), tokenizer, "it" + " it" * 70),
            {},
            "look: the text must have at most 64 tokens for GPT2LMHeadModel, got 71",
        ),
        ((bert, tokenizer, "it"), {"target": "it"}, "look: target is not an option of BertModel"),
        (
            (bert, tokenizer, "it"),
            {"kind": "cross"},
            'look: BertModel: unknown kind "cross"; choose from self',
        ),
        ((bare, pieces, "it"), {}, "look: T5Model cannot generate text; pass a target"),
        (
            (torch.nn.Linear(2, 2), tokenizer, "it"),
            {},
            "look: expected a Transformers model, its tokenizer and a text, got Linear",
        ),
        (
            (bert, len, "it"),
            {},
            "look: expected a Transformers model, its tokenizer and a text, got builtin_function_or_method",
        ),
        ((bert, tokenizer, "i\ud800t"), {}, "text: character 2 is U+D800, an unpaired surrogate"),
        ((bert, "it"), {}, "look: expected a tokenizer and a text after the model, got str"),
    ]
    for given, options, line in cases:
        with pytest.raises(RegardError) as error:
            look(*given, **options)
        assert str(error.value) == line
    assert look(bare, pieces, "it", target="das").rows == ("das", "</s>")


def test_a_model_without_a_maximum_number_of_tokens():
    config = transformers.XLNetConfig(vocab_size=300, d_model=16, n_layer=2, n_head=2, d_inner=32)
    picture = look(transformers.XLNetModel(config).eval(), of_bytes(), "it" + " it" * 19)
    assert (picture.layers, picture.heads, picture.rows) == (2, 2, ("it",) * 20)


def test_heads_that_a_model_merges_with_the_batch_are_told_apart():
    config = transformers.LEDConfig(
        vocab_size=40, d_model=16, encoder_layers=1, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=4, encoder_ffn_dim=16, decoder_ffn_dim=16, attention_window=4, decoder_start_token_id=2,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.LEDForConditionalGeneration(config).eval()
    picture = look(model, of_sentence_pieces(), ANIMAL, target="das tier", words=False)
    ids = of_sentence_pieces()(ANIMAL, return_tensors="pt")["input_ids"]
    targets = of_sentence_pieces()("das tier", return_tensors="pt")["input_ids"]
    outputs = model(input_ids=ids, labels=targets, output_attentions=True)
    expected = torch.cat(outputs.cross_attentions).detach()
    assert (picture.layers, picture.heads) == (1, 4)
    np.testing.assert_allclose(picture.weights[0], expected[0], atol=1e-5)


def test_weights_over_blocks_are_refused():
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.LongformerConfig(vocab_size=300, attention_window=4, max_position_embeddings=66, **sizes)
    with pytest.raises(RegardError) as error:
        look(transformers.LongformerModel(config).eval(), of_bytes(), "it it it")
    assert str(error.value) == (
        "look: LongformerModel computes no weights over all pairs of tokens, but over blocks or pooled tokens; "
        "regard.watch records them"
    )


def test_a_decoder_that_merges_its_attentions():
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    text = {**sizes, "vocab_size": 40, "num_hidden_layers": 2, "num_key_value_heads": 2, "head_dim": 8}
    eyes = {**sizes, "model_type": "siglip_vision_model", "num_hidden_layers": 1, "image_size": 8, "patch_size": 4}
    encoder = {"text_config": text, "vision_config": eyes, "mm_tokens_per_image": 1}
    config = transformers.T5Gemma2Config(encoder=encoder, decoder=text, image_token_index=39)
    model, tokenizer = transformers.T5Gemma2ForConditionalGeneration(config).eval(), of_sentence_pieces()
    for kind in (None, "cross", "decoder"):
        with pytest.raises(RegardError) as error:
            look(model, tokenizer, ANIMAL, target="das", kind=kind)
        assert str(error.value) == (
            "look: T5Gemma2ForConditionalGeneration has joint decoder attention over target and source, which is not "
            'supported; pass kind="encoder"'
        )
    picture = look(model, tokenizer, ANIMAL, target="das", kind="encoder")
    assert (picture.rows, picture.layers) == (("the", "animal", "sees", "it", "</s>"), 2)


def test_a_model_without_attention():
    config = transformers.MambaConfig(vocab_size=300, hidden_size=8, state_size=4, num_hidden_layers=1, expand=1)
    model = transformers.MambaForCausalLM(config).eval()
    with pytest.raises(RegardError) as error:
        look(model, of_bytes(), "it")
    assert str(error.value) == "look: MambaForCausalLM has no attention"
