"""A key-value cache whose rows have different lengths, for attention and short convolutions.

Rows are written where their own text ends, so nothing is padded inside; what lies beyond a row's
end is garbage that the attention mask hides and the next tokens overwrite.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_GROW = 64
"""Capacities are multiples of this, so that a cache is not copied for each token."""


class RaggedCache:
    """Stands in for a `transformers` cache; each forward call is between :meth:`expect` and
    :meth:`commit`. Keys and values are (rows, heads, capacity, head size), convolution states
    (rows, channels, kernel)."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._conv: dict[int, Tensor] = {}
        self._positions = torch.zeros(rows, 0, dtype=torch.long, device=device)
        self._new = self.lengths
        self._visible = 0

    @property
    def can_be_cut(self) -> bool:
        """True if a row's beginning can be had from it: keys and values of later tokens are hidden,
        a state that has moved on does not come back."""
        return not self._conv

    def expect(self, new: Tensor, width: int) -> tuple[Tensor, Tensor]:
        """Announces the next forward call, on padded input of this width.

        ``new``, int64 (rows,), is how many real tokens each row gets; 0 leaves a row as it is.
        Returns position ids (rows, width), and a boolean mask (rows, 1, width, visible), true where
        a token may look.
        """
        # Token j of row i lies at position lengths[i] + j, and sees columns up to there.
        steps = torch.arange(width, device=self.lengths.device)
        self._positions, self._new = self.lengths[:, None] + steps, new
        self._visible = int(self.lengths.max()) + width
        columns = torch.arange(self._visible, device=self.lengths.device)
        return self._positions, columns[None, None, None, :] <= self._positions[:, None, :, None]

    def commit(self) -> None:
        """After the forward call: the new tokens belong to their rows."""
        self.lengths = self.lengths + self._new

    @classmethod
    def gathered(
        cls,
        parts: Sequence[tuple[RaggedCache, Tensor]],
        room: int = 1,
        spent: Sequence[RaggedCache] = (),
    ) -> RaggedCache:
        """A copy of some rows, int64 (rows,), of each of some caches, with room for so many more
        tokens behind the longest row. A cache that no model has written to gives empty rows. Of
        ``spent`` caches, each layer is let go once it is copied: they and the copy are never whole
        at the same time."""
        lengths = [cache.lengths[rows] for cache, rows in parts]
        whole = cls(sum(map(len, lengths)), parts[0][0].lengths.device)
        whole.lengths = torch.cat(lengths)
        capacity = _capacity(whole.get_seq_length() + room)

        # Convolution states have one length for all.
        for name, length in (("_keys", capacity), ("_values", capacity), ("_conv", None)):
            stores = [getattr(cache, name) for cache, _ in parts]
            for layer in dict.fromkeys(layer for store in stores for layer in store):
                held = zip(stores, parts, strict=True)
                pieces = [(store.get(layer), rows) for store, (_, rows) in held]
                getattr(whole, name)[layer] = _rows(pieces, length)

                del pieces
                for cache in spent:
                    getattr(cache, name).pop(layer, None)
        return whole

    def select(self, rows: Tensor, *, spent: bool = False) -> RaggedCache:
        """A copy of some rows, int64 (rows,), in the given order, with room for one more token; see
        :meth:`gathered`."""
        return self.gathered([(self, rows)], spent=[self] if spent else [])

    # -- what models call ----------------------------------------------------------------------

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Writes new keys and values (rows, heads, width, size); returns all that are visible."""
        # Token j of row i goes to [i, :, positions[i, j]]. scatter_ would pay for the whole cache
        # where that is in half precision on a CPU.
        rows = torch.arange(len(keys), device=keys.device)[:, None]
        for store, new in ((self._keys, keys), (self._values, values)):
            if layer_idx not in store:
                store[layer_idx] = new.new_zeros(new.shape[0], new.shape[1], 0, new.shape[3])
            store[layer_idx] = _room(store[layer_idx], self._visible)
            store[layer_idx][rows, :, self._positions] = new.transpose(1, 2)

        keys, values = self._keys[layer_idx], self._values[layer_idx]
        return keys[:, :, : self._visible], values[:, :, : self._visible]

    def update_conv_state(
        self, states: Tensor, layer_idx: int, conv_kernel_size: int, **_: object
    ) -> Tensor:
        """Puts each row's state before its new inputs (rows, channels, width), and moves it on."""
        rows, channels, _width = states.shape
        if layer_idx not in self._conv:
            self._conv[layer_idx] = states.new_zeros(rows, channels, conv_kernel_size)

        # (rows, channels, kernel + width).
        joined = torch.cat([self._conv[layer_idx], states], dim=-1)
        # A row with n real inputs keeps the kernel's width up to its own n-th input, not up to the
        # padding.
        columns = self._new[:, None] + torch.arange(conv_kernel_size, device=states.device)
        self._conv[layer_idx] = joined.gather(2, columns[:, None, :].expand(-1, channels, -1))
        return joined

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        return self._conv.get(layer_idx)

    def has_previous_state(self, layer_idx: int) -> bool:
        """False: models (of `transformers` before 5.20) then never shift a state by themselves."""
        return False

    def is_recording_past(self, layer_idx: int) -> bool:
        """True: models then leave updates to :meth:`update_conv_state`, which knows idle rows."""
        return True

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Length of the longest row."""
        return int(self.lengths.max()) if len(self.lengths) else 0


def _rows(pieces: Sequence[tuple[Tensor | None, Tensor]], length: int | None) -> Tensor:
    """Some rows of some tensors (``None``: zeros), whose third dimension is cut or filled up to
    ``length``, unless that is ``None``."""
    model = next(tensor for tensor, _ in pieces if tensor is not None)
    size = model.shape[2] if length is None else length

    found = [
        model.new_zeros(len(rows), model.shape[1], size, *model.shape[3:])
        if tensor is None
        else _room(tensor[:, :, :size].index_select(0, rows), size)
        for tensor, rows in pieces
    ]
    return found[0] if len(found) == 1 else torch.cat(found)


def _room(tensor: Tensor, length: int) -> Tensor:
    """The tensor, with a capacity (dimension 2) of at least ``length``."""
    if tensor.shape[2] >= length:
        return tensor

    grown = tensor.new_zeros(*tensor.shape[:2], _capacity(length), tensor.shape[3])
    grown[:, :, : tensor.shape[2]] = tensor
    return grown


def _capacity(length: int) -> int:
    return -(-length // _GROW) * _GROW
