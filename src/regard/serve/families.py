"""What each kind of model does with the requests of its queue."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from regard.batch import Pair, collate
from regard.decoding.steps import limits_of
from regard.errors import RegardError
from regard.label_predictor import Labelling, LabelPredictor, Tagging, TagPredictor
from regard.loading import AnyPredictor
from regard.looking import look
from regard.models.transformer import Transformer
from regard.predictor import Prediction, Predictor
from regard.serve.asked import Asked, Event, Told
from regard.serve.batching import Family, Steps
from regard.serve.growing import BEAM, TOKENS, GrowingBeam, growing_texts
from regard.text_predictor import Text, TextPredictor
from regard.views.page import slim

SEARCH = ("beam", "nbest", "length_penalty", "longest")
DRAWING = ("temperature", "top_k", "top_p", "greedy", "seed")


def family_of(model: AnyPredictor, most_tokens: int) -> Translator | Writer | Classifier | Tagger:
    """What works on the requests of a model, and writes no more tokens for one than allowed."""
    if isinstance(model, Predictor):
        return Translator(model, most_tokens)
    if isinstance(model, TextPredictor):
        return Writer(model)
    return Classifier(model) if isinstance(model, LabelPredictor) else Tagger(model)


def looked(model: AnyPredictor, asked: Asked, longest: int | None = None) -> Told:
    """Where the model looks, as a record that the views draw; of very many weights the largest, whatever is asked."""
    options = asked.options
    top = options.pop("top", None)
    picture = slim(look(model, asked.text, second=asked.second, context=asked.context, longest=longest, **options))
    if top is not None and top < (picture.kept or math.inf):
        picture = picture.keep_top(top)
    return Told(picture.record())


class Translator(Family):
    """Answers a source by a target."""

    kind = "pairs"
    takes = frozenset(SEARCH)

    def __init__(self, model: Predictor, most_tokens: int) -> None:
        self.model, self.most_tokens = model, most_tokens
        further = ("encoder", "decoder") if isinstance(model.model, Transformer) else ()
        self.attention: tuple[str, ...] = ("cross", *further) if model.model.attended else ()

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise a `RegardError` for settings that do not go together."""
        self.model.predict([], **options)

    def key(self, asked: Asked) -> Hashable:
        return tuple(self._limited(asked).items()) if asked.action == "predict" else None

    def work(self, several: Sequence[Asked]) -> Steps:
        first, *_ = several
        if first.action == "look":
            yield [looked(self.model, first, **self._limit(first))]
        elif first.action == "stream" and first.text.strip():
            yield from self._grow(first)
        else:
            found = self.model.predict([asked.text for asked in several], **self._limited(first))
            yield [Told(self._answer(prediction)) for prediction in found]

    def _limit(self, asked: Asked) -> dict[str, int]:
        """A limit for a long source, whose target could become longer than allowed."""
        batch = collate([Pair(self.model.tokenizers.source.encode(asked.text))])
        usual = int(limits_of(self.model.model, batch, None))
        return {"longest": self.most_tokens} if usual > self.most_tokens else {}

    def _limited(self, asked: Asked) -> dict[str, Any]:
        """The settings, with a limit where one is needed."""
        return self._limit(asked) | asked.options

    def _grow(self, asked: Asked) -> Steps:
        """The beam after every step, and the answer that it has found."""
        usual, options = self.model.recipe.decoding, self._limited(asked)
        self.check(options)
        nbest = options.get("nbest", 1)
        growing = GrowingBeam(
            self.model,
            asked.text,
            beam=options.get("beam", max(usual.beam, nbest)),
            nbest=nbest,
            length_penalty=options.get("length_penalty", usual.length_penalty),
            longest=options.get("longest"),
        )
        for beam in growing.steps():
            yield [Told({"beam": [scored(text, value) for text, value in beam]}, whole=False)]
        yield [Told(self._answer(growing.answer()))]

    def _answer(self, prediction: Prediction) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "text": prediction.text,
            "log_probability": prediction.log_probability,
            "source_tokens": prediction.source_tokens,
            "target_tokens": prediction.target_tokens,
            "alternatives": [scored(each.text, each.log_probability) for each in prediction.alternatives],
        }


class Writer(Family):
    """A language model, which goes on with a text."""

    kind = "text"
    takes = frozenset({"tokens", "beam", "nbest", *DRAWING})

    def __init__(self, model: TextPredictor) -> None:
        self.model = model
        self.attention = ("self",) if model.model.attended else ()

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise a `RegardError` for settings that do not go together."""
        drawn = [name for name in DRAWING if name in options]
        if not searches(options):
            own = {name: value for name, value in options.items() if name in DRAWING}
            self.model.stream("", tokens=1, **own).close()  # type: ignore[attr-defined]  # it is a generator
        elif drawn:
            raise RegardError(f"{drawn[0]}: a beam draws nothing; leave it out, or beam and nbest")

    def key(self, asked: Asked) -> Hashable:
        """Texts of equally many tokens go on together, whatever their settings."""
        if asked.action == "look" or searches(asked.options):
            return None
        return len(self.model.tokenizer.encode(asked.text))

    def work(self, several: Sequence[Asked]) -> Steps:
        first, *_ = several
        if first.action == "look":
            yield [looked(self.model, first)]
        elif searches(first.options):
            yield [Told(self._best(first))]
        else:
            yield from self._write(several)

    def _write(self, several: Sequence[Asked]) -> Steps:
        """The texts, step by step."""
        told = [False] * len(several)
        for texts in growing_texts(self.model, several):
            events: list[Event | None] = []
            for row, (asked, text) in enumerate(zip(several, texts, strict=True)):
                if text.over:
                    tokens, scores = text.tokens(self.model, asked.text), scored(text.text, text.log_probability)
                    answer = Told(self._answer(scores, text.ended, tokens, [scores]))
                    events.append(None if told[row] else answer)
                    told[row] = True
                else:
                    events.append(Told({"part": text.part}, whole=False))
            yield events

    def _best(self, asked: Asked) -> dict[str, Any]:
        """The most probable ways to go on."""
        options = asked.options
        nbest = options.get("nbest", 1)
        beam = options.get("beam", max(nbest, BEAM))
        tokens = options.get("tokens", TOKENS)
        found: list[Text] = self.model.continuations(asked.text, tokens=tokens, beam=beam, nbest=nbest)
        best = [scored(each.text, each.log_probability) for each in found]
        return self._answer(best[0], found[0].ended, list(found[0].tokens), best)

    def _answer(
        self, best: dict[str, Any], ended: bool, tokens: list[str], alternatives: list[dict[str, Any]]
    ) -> dict[str, Any]:
        return {"kind": self.kind, **best, "ended": ended, "tokens": tokens, "alternatives": alternatives}


class Classifier(Family):
    """Labels texts."""

    kind = "label"

    def __init__(self, model: LabelPredictor) -> None:
        self.model = model
        config = model.model.config
        further = {"threshold": config.several, "second": config.pairs, "context": bool(config.before)}
        self.attention = ("pooling",) * (config.pooling == "attention") + ("self",) * bool(model.model.reader.attended)
        self.takes = frozenset({"nbest", *(name for name, used in further.items() if used)})

    def check(self, options: Mapping[str, Any]) -> None:
        """Raise a `RegardError` for settings that do not go together."""
        self.model.predict([], **options)

    def key(self, asked: Asked) -> Hashable:
        return None if asked.action == "look" else (asked.settings, asked.second is None, asked.context is None)

    def work(self, several: Sequence[Asked]) -> Steps:
        first, *_ = several
        if first.action == "look":
            yield [looked(self.model, first)]
            return
        found = self.model.predict(
            [asked.text for asked in several],
            second=None if first.second is None else [asked.second or "" for asked in several],
            context=None if first.context is None else [asked.context or () for asked in several],
            **first.options,
        )
        yield [Told(self._answer(labelling)) for labelling in found]

    def _answer(self, labelling: Labelling) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "labels": labelling.labels,
            "ranked": [each._asdict() for each in labelling.ranked],
            "words": labelling.words,
        }


class Tagger(Family):
    """Tags the words of texts."""

    kind = "tag"
    takes: frozenset[str] = frozenset()

    def __init__(self, model: TagPredictor) -> None:
        self.model = model
        self.attention = ("self",) if model.model.attended else ()

    def check(self, options: Mapping[str, Any]) -> None:
        """There are no settings."""

    def key(self, asked: Asked) -> Hashable:
        return None if asked.action == "look" else ()

    def work(self, several: Sequence[Asked]) -> Steps:
        if several[0].action == "look":
            yield [looked(self.model, several[0])]
            return
        yield [Told(self._answer(tagging)) for tagging in self.model.predict([asked.text for asked in several])]

    def _answer(self, tagging: Tagging) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "words": tagging.words,
            "tags": tagging.tags,
            "probabilities": tagging.probabilities,
            "spans": [span._asdict() for span in tagging.spans],
        }


def searches(options: Mapping[str, Any]) -> bool:
    """Whether the most probable texts are asked for."""
    return "beam" in options or "nbest" in options


def scored(text: str, log_probability: float) -> dict[str, Any]:
    """A text and how probable it is."""
    return {"text": text, "log_probability": log_probability}
