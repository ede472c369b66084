"""Models in local folders of Hugging Face Transformers, for `regard look hf:FOLDER` and `regard heads hf:FOLDER`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch

from regard.errors import RegardError, is_out_of_memory
from regard.maps.heads import score_transformer_heads
from regard.maps.hugging_face import get_max_positions, get_options_type, look_at_transformer
from regard.maps.options import LookOptions
from regard.views.attention_map import AttentionMap
from regard.views.head_scores import HeadScores


@dataclass(frozen=True)
class HuggingFaceModel:
    """A Transformers model with its tokenizer, with the methods of a predictor that commands use."""

    model: Any
    tokenizer: Any

    attentions: ClassVar[tuple[str, ...]] = ()  # known only when the model runs
    card: ClassVar[dict[str, Any]] = {}

    @property
    def name(self) -> str:
        """The name of the model's class."""
        return type(self.model).__name__

    def look(self, text: str, options: LookOptions) -> AttentionMap:
        """Return the attention map of a text."""
        fields = get_options_type(self.model).__dataclass_fields__
        for name in ("target", "max_length"):
            if name not in fields and getattr(options, name, None) is not None:
                raise RegardError(f"look: {name} is not an option of {self.name}, which has no decoder")
        known = {name: getattr(options, name) for name in fields}
        return look_at_transformer(self.model, self.tokenizer, text, get_options_type(self.model)(**known))

    def encode_start(self, text: str, max_tokens: int) -> tuple[torch.Tensor, int]:
        """Return the first tokens of a text, at most as many as the model can read, and how many the text has."""
        limit = min(max_tokens, get_max_positions(self.model) or max_tokens)
        ids = self.tokenizer(text, return_tensors="pt", verbose=False)["input_ids"]
        return ids[:, :limit].to(self.model.device), ids.shape[1]

    def score_heads(self, tokens: torch.Tensor, queries: int | None) -> HeadScores:
        """Measure the heads while the model reads tokens."""
        return score_transformer_heads(self.model, tokens, queries)


def load_hugging_face(folder: Path, device: str) -> HuggingFaceModel:
    """Load a model and its tokenizer from a local folder; raise a `RegardError` if it holds none."""
    if not folder.is_dir():
        raise RegardError(f"{folder}: not found; expected a local folder with a Hugging Face model")
    if not (folder / "config.json").is_file():
        raise RegardError(f"{folder} is not a Hugging Face model: config.json is missing")
    try:
        import transformers
    except ImportError:
        raise RegardError("models of Hugging Face require transformers: pip install transformers") from None
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True)
        model, loaded = find_class(transformers, config).from_pretrained(
            folder, local_files_only=True, dtype=torch.float32, output_loading_info=True
        )
    except Exception as error:  # Transformers raises errors of many types for a folder that it cannot read
        if is_out_of_memory(error):
            raise
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise RegardError(f"{folder}: Transformers cannot load it: {reason}") from None
    if loaded["missing_keys"]:
        raise RegardError(f"{folder}: parameters are missing, such as {min(loaded['missing_keys'])}")
    return HuggingFaceModel(model.to(device).eval(), tokenizer)


def find_class(transformers: Any, config: Any) -> Any:
    """Return the class that the config names as the architecture, or the class of the bare model."""
    for name in config.architectures or ():
        kind = getattr(transformers, name, None)
        if isinstance(kind, type) and issubclass(kind, transformers.PreTrainedModel):
            return kind
    return transformers.AutoModel
