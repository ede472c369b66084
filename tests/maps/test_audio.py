"""Attention to audio, on a small Whisper with random weights; the recording is made here."""

import numpy as np
import pytest
import torch

import regard
from regard import RegardError

pytest.importorskip("transformers")

from transformers import WhisperConfig, WhisperFeatureExtractor, WhisperForConditionalGeneration

from tests.maps.test_images import of_words_and_images, spread

SIZES = {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16}
IDS = {"decoder_start_token_id": 0, "bos_token_id": 0, "eos_token_id": 6, "pad_token_id": 5}
EXTRACTOR = WhisperFeatureExtractor(feature_size=8, chunk_length=1)
HALF = np.sin(np.arange(8000) ** 1.3).astype(np.float32)  # half a second


class Processor:
    """The two parts of Whisper's processor, with a tokenizer of a few words."""

    feature_extractor, tokenizer = EXTRACTOR, of_words_and_images("<pad>", "<end>")


def build_whisper():
    config = WhisperConfig(
        vocab_size=7, num_mel_bins=8, d_model=16, encoder_layers=1, decoder_layers=2, max_source_positions=50,
        max_target_positions=10, suppress_tokens=None, begin_suppress_tokens=None, **SIZES, **IDS,
    )  # fmt: skip
    return spread(WhisperForConditionalGeneration(config))


def read_eagerly(model, decoder_ids):
    features = EXTRACTOR(HALF, sampling_rate=16000, return_tensors="pt")["input_features"]
    model.set_attn_implementation("eager")
    outputs = model(features, decoder_input_ids=decoder_ids, output_attentions=True)
    return features, torch.stack(outputs.cross_attentions)[:, 0].detach()


def test_words_look_at_moments_of_the_spectrogram():
    model = build_whisper()
    picture = regard.look(model, Processor, HALF, "a red dog")
    assert (picture.rows, picture.images[0].grid) == (("a", "red", "dog"), (1, 25))  # 20 milliseconds each
    features, expected = read_eagerly(model, torch.tensor([[0, 2, 3]]))  # each word is written after those before it
    np.testing.assert_allclose(picture.weights, expected[..., :25], atol=1e-5)
    heard = features[0, :, :50].numpy()
    shades = (heard - heard.min()) / (heard.max() - heard.min())
    for channel in range(3):  # gray, low frequencies at the bottom
        np.testing.assert_allclose(picture.images[0].pixels[::-1, :, channel] / 255, shades, atol=0.502 / 255)


def test_a_model_writes_the_words():
    model = build_whisper()
    model.generation_config.suppress_tokens = [6]  # the end
    picture = regard.look(model, Processor, HALF)
    features = EXTRACTOR(HALF, sampling_rate=16000, return_tensors="pt")["input_features"]
    written = model.generate(input_features=features, do_sample=False, max_new_tokens=9)[0].tolist()
    written = written[1:] if written[0] == 0 else written
    assert picture.rows == tuple(Processor.tokenizer.convert_ids_to_tokens(written))
    _, expected = read_eagerly(model, torch.tensor([[0, *written[:-1]]]))
    np.testing.assert_allclose(picture.weights, expected[..., :25], atol=1e-5)


def test_what_does_not_fit_is_said():
    model = build_whisper()
    for arguments, options, message in (
        ((HALF,), {}, "look: WhisperForConditionalGeneration wrote no text"),
        ((HALF[None],), {}, "look: expected the samples of one recording, got an array of shape (1, 8000)"),
        ((np.zeros(16001),), {}, "look: WhisperForConditionalGeneration reads 1 seconds, got 16001 samples"),
        ((HALF,), {"top": 3}, "look: top is not an option of WhisperForConditionalGeneration, which reads audio"),
    ):
        with pytest.raises(RegardError) as error:
            regard.look(model, Processor, *arguments, **options)
        assert str(error.value) == message
