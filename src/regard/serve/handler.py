"""Handle the requests of a worker with a predictor of any task."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from regard.maps.options import check_not_empty
from regard.serve.batching import Steps
from regard.serve.messages import Event, ServerRequest, WorkerEvent
from regard.tasks.predictor import PartialAnswer, Predictor, Request
from regard.views.page import limit_weights


class PredictorHandler:
    """Predicts and looks with a predictor, up to a maximum number of generated tokens."""

    def __init__(self, predictor: Predictor[Any], max_tokens: int) -> None:
        self.predictor, self.max_tokens = predictor, max_tokens

    def batch_key(self, request: ServerRequest) -> Hashable:
        """Return a key; requests with equal keys can share a batch. None means no batching."""
        if request.action == "look":
            return None
        return self.predictor.batch_key(self.limit_request(request.request), streamed=request.action == "stream")

    def handle(self, requests: Sequence[ServerRequest]) -> Steps:
        """Yield the events of all requests after every step; None for those already answered."""
        if requests[0].action == "look":
            yield [self.look(requests[0].request)]
            return
        predictor_requests = [self.limit_request(request.request) for request in requests]
        for events in self.predictor.answer_in_steps(predictor_requests, streamed=requests[0].action == "stream"):
            yield [self.to_event(event) for event in events]

    def limit_request(self, request: Request) -> Request:
        """Return the request with its output length limited to `max_tokens`."""
        return Request(request.input, self.predictor.limit_tokens(request.options, request.input, self.max_tokens))

    def to_event(self, event: Any) -> WorkerEvent | None:
        """Convert a partial or final answer to an event."""
        if event is None:
            return None
        if isinstance(event, PartialAnswer):
            return Event(event.content, final=False)
        content = {"kind": self.predictor.task_name, **event.record()}
        return Event(content, tokens=self.count_tokens(content))

    def count_tokens(self, content: dict[str, Any]) -> int:
        """Return the number of generated tokens of an answer: its target, or its text after the prompt."""
        if "prompt" in content:
            return len(content["tokens"]) - 1 - len(self.predictor.tokenizers.target.encode(content["prompt"]))
        return len(content.get("target_tokens", ()))

    def look(self, request: Request) -> Event:
        """Return the attention map as a record; only the largest weights if it has very many."""
        top, text = request.options.top, check_not_empty(request.input)
        allowed = self.limit_request(Request(text, replace(request.options, top=None)))
        attention_map = limit_weights(self.predictor.look(text, allowed.options))
        if top is not None and top < (attention_map.top_k or math.inf):
            attention_map = attention_map.keep_top(top)
        return Event(attention_map.record())
