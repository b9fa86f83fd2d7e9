"""A cache whose rows have different lengths, for attention, short convolutions and recurrences.

Rows are written where their own text ends, so nothing is padded inside and a column is a position;
what lies beyond a row's end is garbage that masks hide and the next tokens overwrite.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

_GROW = 64
"""Capacities are multiples of this, so that a cache is not copied for each token."""


class RaggedCache:
    """Stands in for a `transformers` cache; each forward call is between :meth:`expect` and
    :meth:`commit`. Keys and values are (rows, heads, capacity, head size), keys of an index that
    chooses among them (rows, 1, capacity, size), convolution states (rows, channels, kernel),
    recurrent states (rows, ...).

    A recurrent state is moved on by every token of its row that a model reads, padding included:
    see :attr:`recurrent`. Rows that idle keep theirs.

    Two rows, of three tokens and of one, whose keys are those of a layer with one head of size 1;
    then the second row alone goes on, and overwrites its padding:

    >>> cache = RaggedCache(2, torch.device("cpu"))
    >>> positions = cache.expect(torch.tensor([3, 1]), width=3)
    >>> keys = torch.tensor([[1, 2, 3], [7, 0, 0]])[:, None, :, None]  # (rows, heads, width, size)
    >>> seen, _ = cache.update(keys, keys, layer_idx=0)
    >>> cache.commit()
    >>> cache.expect(torch.tensor([0, 1]), width=1)[1]
    tensor([1])
    >>> keys = torch.tensor([[0], [8]])[:, None, :, None]
    >>> cache.update(keys, keys, layer_idx=0)[0][1, 0, :, 0]
    tensor([7, 8, 0, 0])
    >>> cache.commit()
    >>> cache.lengths
    tensor([3, 2])
    """

    # What models ask of any cache.
    is_compileable = False
    is_sliding: Sequence[bool] = ()
    layers: Sequence[object] = ()

    def __init__(self, rows: int, device: torch.device) -> None:
        self.lengths = torch.zeros(rows, dtype=torch.long, device=device)
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._indexed: dict[int, Tensor] = {}
        # By layer and number of the state within it.
        self._conv: dict[tuple[int, int], Tensor] = {}
        self._recurrent: dict[tuple[int, int], Tensor] = {}
        self._idle: list[int] = []
        self._before: dict[tuple[int, int], Tensor] = {}
        self._positions = torch.zeros(rows, 0, dtype=torch.long, device=device)
        self._new = self.lengths
        self._visible = 0

    @property
    def recurrent(self) -> bool:
        """True if a model keeps recurrent states here: it is to read as many tokens of all rows
        that do not idle, without padding."""
        return bool(self._recurrent)

    @property
    def can_be_cut(self) -> bool:
        """True if a row's beginning can be had from it: keys and values of later tokens are hidden,
        a state that has moved on does not come back."""
        return not (self._conv or self._recurrent)

    def expect(self, new: Tensor, width: int) -> Tensor:
        """Announces the next forward call, on padded input of this width.

        ``new``, int64 (rows,), is how many real tokens each row gets; 0 leaves a row as it is.
        Returns position ids (rows, width).
        """
        # Token j of row i lies at position lengths[i] + j, and sees columns up to there.
        steps = torch.arange(width, device=self.lengths.device)
        self._positions, self._new = self.lengths[:, None] + steps, new
        # Columns that attention may look at: up to the longest row's end, padding included.
        self._visible = int(self.lengths.max()) + width
        if self._recurrent:
            # Some models move a state on in place, so what rows that idle had is put aside.
            self._idle = (new == 0).nonzero().flatten().tolist()
            kept = self._recurrent.items() if self._idle else ()
            self._before = {place: state[self._idle] for place, state in kept}
        return self._positions

    def commit(self) -> None:
        """After the forward call: the new tokens belong to their rows."""
        self.lengths = self.lengths + self._new
        for place, state in self._before.items():
            self._recurrent[place][self._idle] = state
        self._before = {}

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

        # Other states have one shape for all.
        grow = dict.fromkeys(("_keys", "_values", "_indexed"), capacity)
        # Layer by layer, so that one can be let go as soon as it is copied.
        for name, length in {**grow, "_conv": None, "_recurrent": None}.items():
            stores = [getattr(cache, name) for cache, _ in parts]
            for layer in dict.fromkeys(layer for store in stores for layer in store):
                stored = zip(stores, parts, strict=True)
                pieces = [(store.get(layer), rows) for store, (_, rows) in stored]
                getattr(whole, name)[layer] = _rows(pieces, length)

                del pieces
                for cache in spent:
                    getattr(cache, name).pop(layer, None)
        return whole

    def select(self, rows: Tensor, *, spent: bool = False) -> RaggedCache:
        """A copy of some rows, int64 (rows,), in the given order, with room for one more token; see
        :meth:`gathered`."""
        return self.gathered([(self, rows)], spent=[self] if spent else [])

    def put(self, rows: Tensor, part: RaggedCache) -> None:
        """Writes a cache's rows in the place of these rows, int64 (rows,)."""
        self.lengths = self.lengths.index_copy(0, rows, part.lengths)
        for name in ("_keys", "_values", "_indexed", "_conv", "_recurrent"):
            whole, grows = getattr(self, name), name not in ("_conv", "_recurrent")
            for place, new in getattr(part, name).items():
                if place not in whole:
                    # Rows that no pass has reached yet are zeros.
                    whole[place] = new.new_zeros(len(self.lengths), *new.shape[1:])
                if grows:
                    whole[place] = _room(whole[place], new.shape[2])
                    whole[place][rows, :, : new.shape[2]] = new
                else:
                    whole[place][rows] = new

    # -- what models call ----------------------------------------------------------------------

    def update(
        self, keys: Tensor, values: Tensor, layer_idx: int, *_: object, **__: object
    ) -> tuple[Tensor, Tensor]:
        """Writes new keys and values (rows, heads, width, size); returns all that are visible."""
        return (
            self._write(self._keys, keys, layer_idx),
            self._write(self._values, values, layer_idx),
        )

    def update_indexer(self, keys: Tensor, layer_idx: int) -> Tensor:
        """The same for an index's keys (rows, width, size)."""
        return self._write(self._indexed, keys[:, None], layer_idx)[:, 0]

    def _write(self, store: dict[int, Tensor], new: Tensor, layer: int) -> Tensor:
        if layer not in store:
            store[layer] = new.new_zeros(new.shape[0], new.shape[1], 0, new.shape[3])
        store[layer] = _room(store[layer], self._visible)
        # Token j of row i goes to [i, :, positions[i, j]]. scatter_ would pay for the whole cache
        # where that is in half precision on a CPU.
        rows = torch.arange(len(new), device=new.device)[:, None]
        # The two indices become the first dimensions of it: (rows, width, heads, size).
        store[layer][rows, :, self._positions] = new.transpose(1, 2)
        return store[layer][:, :, : self._visible]

    def update_conv_state(
        self,
        states: Tensor,
        layer_idx: int,
        state_idx: int = 0,
        *,
        conv_kernel_size: int | None = None,
        **_: object,
    ) -> Tensor:
        """Puts each row's state before its new inputs (rows, channels, width), and moves it on. A
        model that names no kernel has moved it on itself, as a recurrent one."""
        if conv_kernel_size is None:
            # ~i = -1 - i, which no recurrent state of the layer has as its number.
            return self.update_recurrent_state(states, layer_idx, ~state_idx)
        rows, channels, _width = states.shape
        place = layer_idx, state_idx
        if place not in self._conv:
            self._conv[place] = states.new_zeros(rows, channels, conv_kernel_size)

        # (rows, channels, kernel + width).
        joined = torch.cat([self._conv[place], states], dim=-1)
        # A row with n real inputs keeps the kernel's width up to its own n-th input, not up to the
        # padding.
        columns = self._new[:, None] + torch.arange(conv_kernel_size, device=states.device)
        self._conv[place] = joined.gather(2, columns[:, None, :].expand(-1, channels, -1))
        return joined

    def get_conv_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """The state of a model that moves it on itself. To others nothing: they then leave all to
        :meth:`update_conv_state`, which knows idle rows."""
        return self.get_recurrent_state(layer_idx, ~state_idx)

    def update_recurrent_state(
        self, states: Tensor, layer_idx: int, state_idx: int = 0, **_: object
    ) -> Tensor:
        """Takes each row's state (rows, ...) behind its new tokens."""
        self._recurrent[layer_idx, state_idx] = states
        return states

    def get_recurrent_state(self, layer_idx: int, state_idx: int = 0) -> Tensor | None:
        """Each row's state, zero where it has read nothing; models may move it on in place."""
        return self._recurrent.get((layer_idx, state_idx))

    def has_previous_state(
        self, layer_idx: int | None = None, state_idx: int | None = None
    ) -> bool:
        """False: models (of `transformers` before 5.20) then never shift a state by themselves."""
        return False

    def is_recording_past(self, layer_idx: int) -> bool:
        """True: models then leave updates to :meth:`update_conv_state`, which knows idle rows."""
        return True

    @property
    def is_initialized(self) -> bool:
        """True once a model has written to it."""
        return bool(self._keys)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Length of the longest row."""
        return int(self.lengths.max()) if len(self.lengths) else 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        """Position of the longest row's first new token."""
        return self.get_seq_length()

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Number of columns that masks are about, and the first of them."""
        return self._visible, 0


def _rows(pieces: Sequence[tuple[Tensor | None, Tensor]], length: int | None) -> Tensor:
    """Some rows of some tensors (``None``: zeros), whose third dimension is cut or filled up to
    ``length``, unless that is ``None``."""
    model = next(tensor for tensor, _ in pieces if tensor is not None)
    shape = model.shape[1:] if length is None else (model.shape[1], length, *model.shape[3:])

    parts = []
    for tensor, rows in pieces:
        if tensor is None:
            parts.append(model.new_zeros(len(rows), *shape))
        elif length is None:
            parts.append(tensor.index_select(0, rows))
        else:
            parts.append(_room(tensor[:, :, :length].index_select(0, rows), length))
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def _room(tensor: Tensor, length: int) -> Tensor:
    """The tensor, with a capacity (dimension 2) of at least ``length``."""
    if tensor.shape[2] >= length:
        return tensor

    grown = tensor.new_zeros(*tensor.shape[:2], _capacity(length), tensor.shape[3])
    grown[:, :, : tensor.shape[2]] = tensor
    return grown


def _capacity(length: int) -> int:
    return -(-length // _GROW) * _GROW
