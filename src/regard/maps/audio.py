"""Maps of the attention to audio, of Transformers models such as Whisper that write text from a spectrogram."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from regard.attention.weights import Weights
from regard.errors import RegardError
from regard.maps.build import TITLE
from regard.maps.hugging_face import encode_target, is_encoder_decoder
from regard.maps.images import run_watched
from regard.text.steps import check_characters
from regard.views.display import truncate
from regard.views.image_map import ImageMap, PatchImage

MAX_TOKENS = 200
"""Maximum number of tokens that a model writes for its map."""


def reads_audio(processor: Any) -> bool:
    """Return whether a processor prepares audio."""
    return hasattr(getattr(processor, "feature_extractor", processor), "sampling_rate")


def look_at_audio(model: Any, processor: Any, audio: Any, text: str | None) -> ImageMap:
    """Return which moments of a recording each token looked at, over its spectrogram.

    Args:
        model: A Transformers model such as Whisper, whose decoder attends to an encoder of spectrograms.
        processor: Its processor.
        audio: The samples, at the sampling rate of the processor.
        text: The text that the decoder reads (default: what it writes). Row t is the step that writes token t.
    """
    name = type(model).__name__
    if model.training:
        raise RegardError("look: the model is in training mode; call model.eval() first")
    samples = np.asarray(audio, dtype=np.float32)
    if samples.ndim != 1 or not len(samples):
        raise RegardError(f"look: expected the samples of one recording, got an array of shape {samples.shape}")
    extractor = processor.feature_extractor
    inputs = extractor(samples, sampling_rate=extractor.sampling_rate, return_tensors="pt")
    if not is_encoder_decoder(model) or "input_features" not in inputs:
        raise RegardError(f"look: {name} has no words that look at a spectrogram; regard.watch records its attention")
    if len(samples) > extractor.n_samples:
        raise RegardError(f"look: {name} reads {extractor.chunk_length} seconds, got {len(samples)} samples")
    features = inputs["input_features"].to(model.device)
    if text is None:
        decoder_ids, target_ids = write_text(model, features)
    else:
        check_characters(text)
        decoder_ids, target_ids = encode_target(model, processor.tokenizer, text)
    used = -(-len(samples) // extractor.hop_length)  # the rest of the spectrogram is padding
    layers = read_cross_attention(model, features, decoder_ids, used)
    labels = tuple(processor.tokenizer.convert_ids_to_tokens(target_ids[0].tolist()))
    image = PatchImage(draw_spectrogram(features[0, :, :used].cpu()), (1, layers.shape[-1]))
    decoded = processor.tokenizer.decode(target_ids[0].tolist(), skip_special_tokens=True)
    return ImageMap(labels, (image,), layers.numpy(), f"{name}: {truncate(str(decoded), TITLE)}")


def write_text(model: Any, features: Tensor) -> tuple[Tensor, Tensor]:
    """Let a model write the text; return the decoder input ids and the target ids."""
    longest = min(MAX_TOKENS, model.config.max_target_positions - 1)
    with torch.no_grad():
        tokens = model.generate(input_features=features, do_sample=False, max_new_tokens=longest)
    start = tokens.new_tensor([[model.config.decoder_start_token_id]])
    if not torch.equal(tokens[:, :1], start):
        tokens = torch.cat([start, tokens], 1)
    if tokens.shape[1] < 2:
        raise RegardError(f"look: {type(model).__name__} wrote no text")
    return tokens[:, :-1], tokens[:, 1:]


def read_cross_attention(
    model: Any, features: Tensor, decoder_ids: Tensor, used: int
) -> Float[Tensor, "layers heads tokens moments"]:
    """Return the weights from each step to the moments of the recording, those of the padding left out."""
    frames = features.shape[-1]
    with torch.no_grad():
        states = model.get_encoder()(features)
    moments = states.last_hidden_state.shape[1]
    last = -(-used * moments // frames)

    def keep(weights: Weights) -> Tensor | None:
        return weights[0, :, :, :last].cpu().float() if weights.shape[-1] == moments else None

    layers = run_watched(model, {"encoder_outputs": states, "decoder_input_ids": decoder_ids, "use_cache": False}, keep)
    if decoder_ids.shape[1] == moments:  # self-attention, which comes first in each layer, has the same shape
        layers = layers[1::2]
    return torch.stack(layers)


def draw_spectrogram(features: Float[Tensor, "channels frames"]) -> np.ndarray:
    """Return a spectrogram in gray, low frequencies at the bottom."""
    low, high = features.min(), features.max()
    shades = (features.flip(0) - low) / (high - low).clamp(min=1e-6)
    return np.repeat((shades * 255).round().to(torch.uint8).numpy()[..., None], 3, 2)
