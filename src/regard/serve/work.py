"""What a model does with the requests of its queue, whatever its task."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from regard.looking.options import check_text
from regard.serve.asked import Asked, Event, Told
from regard.serve.batching import Steps
from regard.tasks.predictor import Part, Predictor, Request
from regard.views.page import slim


class Work:
    """Answers and looks by a predictor, and writes no more tokens for a request than allowed."""

    def __init__(self, predictor: Predictor[Any], most_tokens: int) -> None:
        self.predictor, self.most_tokens = predictor, most_tokens

    def key(self, asked: Asked) -> Hashable:
        """Requests with equal keys can be worked on together; None is like no other."""
        if asked.action == "look":
            return None
        return self.predictor.batch_key(self.limited(asked.request), streamed=asked.action == "stream")

    def work(self, several: Sequence[Asked]) -> Steps:
        """What to tell each after every step; nothing to one whose answer is there."""
        if several[0].action == "look":
            yield [self.look(several[0].request)]
            return
        requests = [self.limited(asked.request) for asked in several]
        for events in self.predictor.steps(requests, streamed=several[0].action == "stream"):
            yield [self.told(event) for event in events]

    def limited(self, request: Request) -> Request:
        """The same, with options by which no more tokens are written than allowed."""
        return Request(request.subject, self.predictor.limited(request.options, request.subject, self.most_tokens))

    def told(self, event: Any) -> Event | None:
        """A part or an answer as the client is told it."""
        if event is None:
            return None
        if isinstance(event, Part):
            return Told(event.content, whole=False)
        return Told({"kind": self.predictor.task_name, **event.record()})

    def look(self, request: Request) -> Told:
        """Where the model looks, as a record that the views draw; of very many weights the largest alone."""
        top, text = request.options.top, check_text(request.subject)
        allowed = self.limited(Request(text, replace(request.options, top=None)))
        picture = slim(self.predictor.look(text, allowed.options))
        if top is not None and top < (picture.kept or math.inf):
            picture = picture.keep_top(top)
        return Told(picture.record())
