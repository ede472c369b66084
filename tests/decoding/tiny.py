"""Tiny models that are real: their logits depend on the source and on every token before."""

import itertools
import math

import torch
from torch import nn

from regard.attention import attend, causal, lengths
from regard.batch import BOS, EOS, PAD, UNKNOWN, Batch, Pair, collate
from regard.layers import MultiHeadAttention
from regard.models.language import LanguageModel
from regard.models.seq2seq import Seq2Seq

SOURCES, HISTORIES = 11, 1009  # primes, so that different sentences seldom share a number


def hashed(tokens, below):
    """A number that depends on all tokens and their order: (<bos> 4 5) is 356."""
    number = 0
    for token in tokens:
        number = (number * 10 + token + 1) % below
    return number


class TableState:
    """The hash of what each row has read; the source's own hash does not move with `select`."""

    def __init__(self, sources, copies, capacity):
        self.sources, self.copies, self.room = sources.repeat_interleave(copies), copies, capacity
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
            [self.row(source, target[: place + 1]) for place in range(len(target))]
            for source, target in zip(sources_of(batch), batch.target_in.tolist(), strict=True)
        ]
        return torch.stack([torch.stack(row) for row in rows])

    def output(self, features):
        return features

    def start(self, batch, capacity, copies=1):
        return TableState(torch.tensor([hashed(source, SOURCES) for source in sources_of(batch)]), copies, capacity)

    def step(self, tokens, state):
        assert state.room > 0, "more tokens than there is room for"
        self.steps += 1
        state.room -= 1
        state.hashes = (state.hashes * 10 + tokens + 1) % HISTORIES
        return self.table[state.sources, state.hashes], state

    def row(self, source, before):
        return self.table[hashed(source, SOURCES), hashed(before, HISTORIES)]


def sources_of(batch):
    return [row[:length] for row, length in zip(batch.source.tolist(), batch.source_lengths.tolist(), strict=True)]


def random_model(seed=0, ordinary=2, spread=2.0):
    generator = torch.Generator().manual_seed(seed)
    return TableModel(spread * torch.randn(SOURCES, HISTORIES, 4 + ordinary, generator=generator))


def constant_model(*logits):
    """The same logits, those of PAD, UNKNOWN, BOS, EOS, 4..., whatever came before."""
    return TableModel(torch.tensor(logits, dtype=torch.float).expand(SOURCES, HISTORIES, -1))


def sources(*rows) -> Batch:
    return collate([Pair(row) for row in rows])


def log_softmax(row):
    total = math.log(sum(math.exp(x) for x in row))
    return [x - total for x in row]


def log_probability(model, source, tokens):
    """By the definition, in double precision."""
    steps = [log_softmax(model.row([*source, EOS], [BOS, *tokens[:place]]).tolist()) for place in range(len(tokens))]
    return sum(step[token] for step, token in zip(steps, tokens, strict=True))


def exhaustive(model, source, longest, alpha, allowed=()):
    """All targets: those that end, best first, then those that do not; (tokens, log-probability, ended)."""
    return ranked(model.table.shape[-1], longest, alpha, allowed, lambda tokens: log_probability(model, source, tokens))


def exhaustive_texts(model, beginning, longest, alpha, allowed=()):
    """The same for all that can follow a beginning, whether they end or not."""
    found = ranked(
        model.table.shape[-1], longest, alpha, allowed, lambda tokens: text_log_probability(model, beginning, tokens)
    )
    return sorted(found, key=lambda each: -each[1] / ((5 + len(each[0])) / 6) ** alpha)


def ranked(vocabulary, longest, alpha, allowed, log_probability_of):
    ordinary = [token for token in range(vocabulary) if token not in {PAD, UNKNOWN, BOS, EOS} - set(allowed)]
    found = []
    for length in range(longest):
        found += [((*tokens, EOS), True) for tokens in itertools.product(ordinary, repeat=length)]
    found += [(tokens, False) for tokens in itertools.product(ordinary, repeat=longest)]
    scored = [(tokens, log_probability_of(tokens), ended) for tokens, ended in found]
    return sorted(scored, key=lambda each: (not each[2], -each[1] / ((5 + len(each[0])) / 6) ** alpha))


class Headless(nn.Module):
    """Dot-product attention, as it stands."""

    def forward(self, query, keys, *, visible):
        return attend(query, keys, keys, "dot", visible=visible)


class AttentiveModel(Seq2Seq):
    """A decoder that sums its embeddings and looks at those of the source, for the whole target or step by step."""

    def __init__(self, layers, *, by_steps=False):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.layers = nn.ModuleList(layers)
        self.attentions = {"cross": tuple(f"layers.{place}" for place in range(len(layers)))}
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
        rows = [[self.row(row[: place + 1]) for place in range(len(row))] for row in tokens.tolist()]
        return torch.stack([torch.stack(row) for row in rows]), ()

    def output(self, features):
        return features

    def start(self, tokens, capacity, copies=1):
        state = TableState(torch.arange(len(tokens)), copies, capacity)
        read = torch.tensor([hashed(row[:-1], HISTORIES) for row in tokens.tolist()])
        state.hashes = read.repeat_interleave(copies)
        return state

    def step(self, tokens, state):
        assert state.room > 0, "more tokens than there is room for"
        self.steps += 1
        state.room -= 1
        state.hashes = (state.hashes * 10 + tokens + 1) % HISTORIES
        return self.table[state.hashes], state

    def row(self, before):
        return self.table[hashed(before, HISTORIES)]


def random_text_model(seed=0, ordinary=2, spread=2.0):
    return TextTable(random_model(seed, ordinary, spread).table[0])


def constant_text_model(*logits):
    return TextTable(constant_model(*logits).table[0])


def text_log_probability(model, beginning, tokens):
    """By the definition, in double precision."""
    whole = [*beginning, *tokens]
    steps = [log_softmax(model.row(whole[:place]).tolist()) for place in range(len(beginning), len(whole))]
    return sum(step[token] for step, token in zip(steps, tokens, strict=True))


class AttentiveText(LanguageModel):
    """Layers that look back from embeddings to embeddings, for a whole text or step by step."""

    def __init__(self, layers, *, by_steps=False):
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.layers = nn.ModuleList(layers)
        self.attentions = {"self": tuple(f"layers.{place}" for place in range(len(layers)))}
        self.by_steps = by_steps
        self.eval()

    @property
    def input_embedding(self):
        return self.embedding

    def read(self, tokens, carried=None):
        hidden = self.embedding(tokens)
        for layer in self.layers:
            hidden = hidden + self.looked(layer, hidden)
        return hidden, ()

    def looked(self, layer, hidden):
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
