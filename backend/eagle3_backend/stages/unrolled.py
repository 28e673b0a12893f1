"""The drafter's unrolled steps as a training needs them: loss and gradients, a part of the rows at a time.

After step 0 a row reads nothing of other rows but their step-0 keys and values. So all steps of a part of the rows are
made, judged and gone back through before the next part is begun; what stays of all rows is the state that comes out of
fc, the step-0 keys and values, and the gradients of these three. Memory grows by those few values for each row, not by
the layer's activations at every step, and nothing is computed twice but the step-0 keys. Row j takes in at step k what
row j + 1 does at step k - 1: queries, keys and values are made of it and of the hidden state, so what they have of the
token is made once for all steps. The formulas are those of `Drafter.forward`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import Tensor

from eagle3_backend.drafter.config import DrafterConfig
from eagle3_backend.stages.drafter_model import Drafter, RMSNorm, Rows
from eagle3_kernels import DraftLoss, Products, rms_norm, rotate, swiglu, ttt_attention

PART_ROWS, LEAST_ROWS = 512, 128
"""Rows that are unrolled together: enough for products at full speed, few enough for their activations to be small
beside the gradients of a wide drafter."""
KEPT_BYTES = 1 << 29
"""What attention's weights of a part may take on a CPU, which keeps them; parts get fewer rows for it, down to
`LEAST_ROWS`."""

Judge = Callable[[Tensor, slice], DraftLoss]
"""The loss of hidden states [K, m, H] of the used rows in a slice."""


@dataclass(frozen=True)
class Part:
    """Used rows that are unrolled together.

    ``places``: which of the used rows; ``lengths``: rows of each of their documents from the first that is used on;
    ``keys``: the rows, of all, whose step-0 keys these see, ``key_lengths`` of them in each document; ``among``: the
    used rows among the rows of ``lengths``, None where that is all of them; ``runs``: how many of the used rows follow
    each other.
    """

    places: slice
    lengths: tuple[int, ...]
    keys: slice
    key_lengths: tuple[int, ...]
    among: tuple[int, ...] | None
    runs: tuple[int, ...]


def part_rows(used: int, weight_bytes: int = 0) -> int:
    """Used rows in the largest part of so many, where each has ``weight_bytes`` of attention's weights that are kept:
    parts are all alike."""
    most = min(PART_ROWS, max(LEAST_ROWS, KEPT_BYTES // max(1, weight_bytes)))
    return -(-used // max(1, round(used / most)))


def weight_bytes(config: DrafterConfig, keys: int, steps: int, dtype: torch.dtype, device: str) -> int:
    """What attention keeps of a row of a document with so many ``keys`` from forward to backward, over all steps."""
    return keys * config.heads * steps * dtype.itemsize if device == "cpu" else 0


def parts_of(documents: Sequence[int], runs: Sequence[tuple[int, int]], size: int) -> Iterator[Part]:
    """The parts of used rows, of ``size`` each, that are given as ascending ranges, none over two documents."""
    starts = [0, *accumulate(documents)]
    place, document = 0, 0
    pieces: list[tuple[int, int, int]] = []
    for first, stop in runs:
        while starts[document + 1] <= first:
            document += 1
        while first < stop:
            end = min(stop, first + size - sum(piece[2] - piece[1] for piece in pieces))
            pieces.append((starts[document], first, end))
            first = end
            if sum(piece[2] - piece[1] for piece in pieces) == size:
                yield _part(place, pieces)
                place, pieces = place + size, []
    if pieces:
        yield _part(place, pieces)


def _part(place: int, pieces: Sequence[tuple[int, int, int]]) -> Part:
    """``pieces``: the start of a document, and first and last + 1 of a range of used rows in it."""
    spans: dict[int, tuple[int, int]] = {}
    for start, first, stop in pieces:
        spans[start] = (spans[start][0] if start in spans else first, stop)
    starts = tuple(spans)
    # Keys lie one behind the other, so every document but the last is looked at up to its end.
    ends = (*starts[1:], spans[starts[-1]][1])
    lengths = tuple(end - spans[start][0] for start, end in zip(starts, ends, strict=True))
    before = dict(zip(starts, [0, *accumulate(lengths)], strict=False))
    among = [before[start] + row - spans[start][0] for start, first, stop in pieces for row in range(first, stop)]
    return Part(
        places=slice(place, place + len(among)),
        lengths=lengths,
        keys=slice(starts[0], ends[-1]),
        key_lengths=tuple(end - start for start, end in zip(starts, ends, strict=True)),
        among=None if len(among) == sum(lengths) else tuple(among),
        runs=tuple(stop - first for _, first, stop in pieces),
    )


def unroll(
    drafter: Drafter, rows: Rows, runs: Sequence[tuple[int, int]], dtype: torch.dtype, judge: Judge
) -> list[DraftLoss]:
    """What ``judge`` finds for each part of the used rows; ``runs`` are these as ranges of rows that follow each other,
    so that in one of them each row's token of a step is the next row's of the step before.

    With gradients enabled, those of the parts' totals are added to ``grad`` of the drafter's weights. Matrix products
    are in ``dtype``, what lies between them in the weights' own.
    """
    return _Unrolling(drafter, rows, dtype).run(runs, judge)


class _Unrolling:
    def __init__(self, drafter: Drafter, rows: Rows, dtype: torch.dtype) -> None:
        self.drafter, self.rows, self.products = drafter, rows, Products(dtype)
        attention = drafter.midlayer.self_attn
        count, keys = len(rows.positions), (attention.kv_heads, attention.head_dim)
        self.hidden = drafter.embedding.new_empty(count, drafter.config.hidden_size, dtype=dtype)
        self.key, self.value = (self.hidden.new_empty(count, *keys) for _ in range(2))
        self.wide = drafter.norm.weight.dtype
        self.keys_values = attention.k_proj.weight, attention.v_proj.weight

    def run(self, runs: Sequence[tuple[int, int]], judge: Judge) -> list[DraftLoss]:
        with torch.no_grad():
            for piece in self._pieces():
                self.hidden[piece], self.key[piece], self.value[piece] = self._first(piece)
        learning, found = torch.is_grad_enabled(), []
        given = (self.hidden, self.key, self.value)
        slopes = [torch.zeros_like(entry, dtype=self.wide) for entry in given] if learning else []
        kept = weight_bytes(
            self.drafter.config,
            max(self.rows.documents),
            len(self.rows.tokens),
            self.products.dtype,
            self.hidden.device.type,
        )
        size = part_rows(len(self.rows.used), kept if learning else 0)
        for part in parts_of(self.rows.documents, runs, size):
            used = self.rows.used[part.places]
            leaves = [self.hidden[used], self.key[part.keys], self.value[part.keys]]
            leaves = [entry.detach().requires_grad_(learning) for entry in leaves]
            outcome = judge(self._unrolled(part, used, *leaves), part.places)
            if learning:
                outcome.total.backward()
                self.products.spread()
                for slope, place, leaf in zip(slopes, (used, part.keys, part.keys), leaves, strict=True):
                    assert leaf.grad is not None
                    slope[place] += leaf.grad
            found.append(outcome._replace(total=outcome.total.detach()))
        for piece in self._pieces() if learning else ():
            outputs = self._first(piece, self.hidden[piece])
            torch.autograd.backward(outputs, [entry[piece].to(self.products.dtype) for entry in slopes])
            self.products.spread()
        return found

    def _pieces(self) -> Iterator[slice]:
        for start in range(0, len(self.rows.positions), PART_ROWS):
            yield slice(start, start + PART_ROWS)

    def _first(self, piece: slice, known: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """State after fc, key and value of step 0 for a range of all rows."""
        drafter, rows = self.drafter, self.rows
        aux = (drafter.normed_aux(rows.aux[piece]) / drafter.aux_scale).to(self.products.dtype)
        hidden = self.products(aux, drafter.fc.weight, known=known)
        inputs = torch.cat(
            [self._embedded(rows.start_tokens[piece]), self._norm(drafter.midlayer.hidden_norm, hidden)], -1
        )
        turn = drafter.rotary.turn(rows.positions[piece], self.products.dtype)
        return hidden, *self._keys_values(self.products(inputs, *self.keys_values), turn)

    def _unrolled(self, part: Part, used: Tensor, hidden: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """Normed hidden states [K, m, H] of a part, from its state [m, H] and the keys and values that it sees."""
        drafter, layer, attention = self.drafter, self.drafter.midlayer, self.drafter.midlayer.self_attn
        among = None if part.among is None else torch.tensor(part.among, device=used.device)
        positions, steps, width = self.rows.positions[used], len(self.rows.tokens), drafter.config.hidden_size
        slots, tokens = self._slots(part)
        embedded = self._embedded(tokens)
        matrices = ((attention.q_proj.weight,), self.keys_values)[: 1 + (steps > 1)]
        shares = [self.products(embedded, *weights, columns=(0, width)) for weights in matrices]
        seen = [entry.transpose(0, 1)[None] for entry in (key, value)]
        own: tuple[list[Tensor], list[Tensor]] = ([], [])
        outputs = []
        for step in range(steps):
            normed = self._norm(layer.hidden_norm, hidden)
            turn = drafter.rotary.turn(positions + step, self.products.dtype)
            made = [
                self.products(normed, *weights, columns=(width, 2 * width), added=share.index_select(0, slots + step))
                for weights, share in zip(matrices[: 1 + (step > 0)], shares, strict=False)
            ]
            for entries, projected in zip(own, self._keys_values(made[1], turn) if step else (), strict=False):
                entries.append(_placed(projected, part, among))
            queries = _placed(rotate(made[0].unflatten(-1, (attention.heads, -1)), *turn), part, among)
            attended = ttt_attention(
                queries, seen[0], seen[1], *own, documents=part.lengths, key_documents=part.key_lengths
            )[0].transpose(0, 1)
            residual = normed if layer.norm_before_residual else hidden
            hidden = self._outputs(residual, (attended if among is None else attended[among]).flatten(1))
            outputs.append(self._norm(drafter.norm, hidden))
            if drafter.config.norm_output:
                hidden = outputs[-1]
        return torch.stack(outputs)

    def _slots(self, part: Part) -> tuple[Tensor, Tensor]:
        """Where among the tokens that a part takes in at any step those of its rows at step 0 are, [m] (step k's are k
        further), and these tokens; a run of n rows takes in n + K - 1."""
        tokens = self.rows.tokens[:, part.places]
        later = len(tokens) - 1
        runs = torch.tensor(part.runs, device=tokens.device)
        places = torch.arange(tokens.shape[1], device=tokens.device)
        slots = places + later * torch.arange(len(runs), device=tokens.device).repeat_interleave(
            runs, output_size=len(places)
        )
        taken = tokens.new_zeros(tokens.shape[1] + later * len(part.runs))
        for step, row in enumerate(tokens):
            taken[slots + step] = row
        return slots, taken

    def _embedded(self, tokens: Tensor) -> Tensor:
        embedding = torch.nn.functional.embedding(tokens, self.drafter.embedding)
        return self._norm(self.drafter.midlayer.input_layernorm, embedding)

    def _outputs(self, residual: Tensor, attended: Tensor) -> Tensor:
        layer, products = self.drafter.midlayer, self.products
        hidden = residual.to(self.wide) + products(attended, layer.self_attn.o_proj.weight)
        both = products(
            self._norm(layer.post_attention_layernorm, hidden), layer.mlp.gate_proj.weight, layer.mlp.up_proj.weight
        )
        return hidden + products(swiglu(both), layer.mlp.down_proj.weight)

    def _keys_values(self, both: Tensor, turn: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Keys and values from their product, side by side."""
        key, value = both.unflatten(-1, (2, self.drafter.midlayer.self_attn.kv_heads, -1)).unbind(1)
        return rotate(key, *turn), value

    def _norm(self, norm: RMSNorm, states: Tensor) -> Tensor:
        return rms_norm(states, norm.weight, norm.eps, self.products.dtype)


def _placed(states: Tensor, part: Part, among: Tensor | None) -> Tensor:
    """States [m, heads, size] of the used rows as [1, heads, rows, size] among the rows of a part, zeros at others."""
    if among is not None:
        states = states.new_zeros(sum(part.lengths), *states.shape[1:]).index_copy(0, among, states)
    return states.transpose(0, 1)[None]
