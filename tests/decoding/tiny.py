"""Tiny models whose logits depend on the source and on every token before."""

import itertools
import math

import torch
from torch import nn

from regard.attention import attend, causal, lengths
from regard.batch import BOS, EOS, PAD, UNKNOWN, Batch, Pair, collate
from regard.layers import MultiHeadAttention
from regard.models.language_model import LanguageModel
from regard.models.seq2seq import Seq2Seq

SOURCES, HISTORIES = 11, 1009  # primes, so that different sentences seldom share a number


def hash_tokens(tokens, below):
    """Hash all tokens in their order: (<bos> 4 5) is 356."""
    number = 0
    for token in tokens:
        number = (number * 10 + token + 1) % below
    return number


class TableState:
    """The hash of what each row has read; the source's own hash does not move with `select`."""

    def __init__(self, sources, copies, capacity):
        self.sources, self.copies, self.buffer = sources.repeat_interleave(copies), copies, capacity
        self.hashes = torch.zeros(len(sources) * copies, dtype=torch.long)

    def select(self, rows):
        assert torch.equal(rows // self.copies, torch.arange(len(rows)) // self.copies)  # each stays with its source
        self.hashes[:] = self.hashes[rows]


class TableModel(Seq2Seq):
    """Logits out of a table (hash of the source, hash of the tokens before, vocabulary)."""

    input_embedding = nn.Identity()  # it embeds nothing

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.steps = 0
        self.eval()

    def features(self, batch):
        rows = [
            [self.row(source, target[: position + 1]) for position in range(len(target))]
            for source, target in zip(get_sources(batch), batch.target_in.tolist(), strict=True)
        ]
        return torch.stack([torch.stack(row) for row in rows])

    def output(self, features):
        return features

    def start(self, batch, capacity, copies=1):
        return TableState(
            torch.tensor([hash_tokens(source, SOURCES) for source in get_sources(batch)]), copies, capacity
        )

    def step(self, tokens, state):
        assert state.buffer > 0, "more tokens than there is room for"
        self.steps += 1
        state.buffer -= 1
        state.hashes = (state.hashes * 10 + tokens + 1) % HISTORIES
        return self.table[state.sources, state.hashes], state

    def row(self, source, before):
        return self.table[hash_tokens(source, SOURCES), hash_tokens(before, HISTORIES)]


def get_sources(batch):
    return [row[:length] for row, length in zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True)]


def random_model(seed=0, ordinary=2, spread=2.0):
    generator = torch.Generator().manual_seed(seed)
    return TableModel(spread * torch.randn(SOURCES, HISTORIES, 4 + ordinary, generator=generator))


def constant_model(*logits):
    """Return a model with constant logits, of PAD, UNKNOWN, BOS, EOS, 4..."""
    return TableModel(torch.tensor(logits, dtype=torch.float).expand(SOURCES, HISTORIES, -1))


def sources(*rows) -> Batch:
    return collate([Pair(row) for row in rows])


def log_softmax(row):
    total = math.log(sum(math.exp(x) for x in row))
    return [x - total for x in row]


def log_probability(model, source, tokens):
    """By the definition, in double precision."""
    steps = [
        log_softmax(model.row([*source, EOS], [BOS, *tokens[:position]]).tolist()) for position in range(len(tokens))
    ]
    return sum(step[token] for step, token in zip(steps, tokens, strict=True))


def exhaustive(model, source, max_length, alpha, allowed=()):
    """All targets: those that end, best first, then those that do not; (tokens, log-probability, ended)."""
    return rank(
        model.table.shape[-1], max_length, alpha, allowed, lambda tokens: log_probability(model, source, tokens)
    )


def exhaustive_texts(model, prompt, max_length, alpha, allowed=()):
    """Return all continuations of a prompt, ended or not, best first."""
    actual = rank(
        model.table.shape[-1], max_length, alpha, allowed, lambda tokens: text_log_probability(model, prompt, tokens)
    )
    return sorted(actual, key=lambda item: -item[1] / ((5 + len(item[0])) / 6) ** alpha)


def rank(vocabulary, max_length, alpha, allowed, get_log_probability):
    ordinary = [token for token in range(vocabulary) if token not in {PAD, UNKNOWN, BOS, EOS} - set(allowed)]
    actual = []
    for length in range(max_length):
        actual += [((*tokens, EOS), True) for tokens in itertools.product(ordinary, repeat=length)]
    actual += [(tokens, False) for tokens in itertools.product(ordinary, repeat=max_length)]
    scored = [(tokens, get_log_probability(tokens), ended) for tokens, ended in actual]
    return sorted(scored, key=lambda item: (not item[2], -item[1] / ((5 + len(item[0])) / 6) ** alpha))


class Headless(nn.Module):
    """Dot-product attention."""

    def forward(self, query, keys, *, visible):
        return attend(query, keys, keys, "dot", visible=visible)


class AttentiveModel(Seq2Seq):
    """A decoder that sums its embeddings and attends to those of the source, at once or step by step."""

    def __init__(self, layers, *, by_steps=False):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.layers = nn.ModuleList(layers)
        self.attentions = {"cross": tuple(f"layers.{position}" for position in range(len(layers)))}
        self.by_steps = by_steps
        self.eval()

    @property
    def input_embedding(self):
        return self.embedding

    def features(self, batch):
        queries = self.embedding(batch.target_in).cumsum(1)
        parts = queries.split(1, dim=1) if self.by_steps else [queries]
        return torch.cat([self.look(part, batch) for part in parts], 1)

    def look(self, query, batch):
        keys = self.embedding(batch.source)
        for layer in self.layers:
            query = query + layer(query, keys, visible=lengths(batch.source_lengths.on_device))
        return query

    def output(self, features):
        return features @ self.embedding.weight.T

    def start(self, batch, capacity, copies=1):
        raise NotImplementedError

    step = start


def two_layers(*, by_steps=False):
    torch.manual_seed(3)
    return AttentiveModel([MultiHeadAttention(6, 2), MultiHeadAttention(6, 2, score="additive")], by_steps=by_steps)


class TextTable(LanguageModel):
    """Logits out of a table (hash of all tokens so far, vocabulary)."""

    input_embedding = nn.Identity()  # it embeds nothing

    def __init__(self, table):
        super().__init__()
        self.table = table
        self.steps = 0
        self.eval()

    def read(self, tokens, carried=None):
        rows = [[self.row(row[: position + 1]) for position in range(len(row))] for row in tokens.tolist()]
        return torch.stack([torch.stack(row) for row in rows]), ()

    def output(self, features):
        return features

    def start(self, tokens, capacity, copies=1):
        state = TableState(torch.arange(len(tokens)), copies, capacity)
        read = torch.tensor([hash_tokens(row[:-1], HISTORIES) for row in tokens.tolist()])
        state.hashes = read.repeat_interleave(copies)
        return state

    def step(self, tokens, state):
        assert state.buffer > 0, "more tokens than there is room for"
        self.steps += 1
        state.buffer -= 1
        state.hashes = (state.hashes * 10 + tokens + 1) % HISTORIES
        return self.table[state.hashes], state

    def row(self, before):
        return self.table[hash_tokens(before, HISTORIES)]


def random_text_model(seed=0, ordinary=2, spread=2.0):
    return TextTable(random_model(seed, ordinary, spread).table[0])


def constant_text_model(*logits):
    return TextTable(constant_model(*logits).table[0])


def text_log_probability(model, prompt, tokens):
    """By the definition, in double precision."""
    whole = [*prompt, *tokens]
    steps = [log_softmax(model.row(whole[:position]).tolist()) for position in range(len(prompt), len(whole))]
    return sum(step[token] for step, token in zip(steps, tokens, strict=True))


class AttentiveText(LanguageModel):
    """Layers of causal attention over embeddings, for a whole text or step by step."""

    def __init__(self, layers, *, by_steps=False):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.layers = nn.ModuleList(layers)
        self.attentions = {"self": tuple(f"layers.{position}" for position in range(len(layers)))}
        self.by_steps = by_steps
        self.eval()

    @property
    def input_embedding(self):
        return self.embedding

    def read(self, tokens, carried=None):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = hidden + self.attend_back(layer, hidden)
        return hidden, ()

    def attend_back(self, layer, hidden):
        if not self.by_steps:
            return layer(hidden, hidden, visible=causal())
        steps = [layer(hidden[:, t : t + 1], hidden[:, : t + 1], visible=None) for t in range(hidden.shape[1])]
        return torch.cat(steps, 1)

    def output(self, features):
        return features @ self.embedding.weight.T

    def start(self, tokens, capacity, copies=1):
        raise NotImplementedError

    step = start


def two_layers_of_text(*, by_steps=False):
    torch.manual_seed(3)
    return AttentiveText([MultiHeadAttention(6, 2), MultiHeadAttention(6, 2, score="additive")], by_steps=by_steps)
