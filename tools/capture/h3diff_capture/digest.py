"""128-bit digest of a 2-D tensor: docs/dump-format.md section 7.

Everything is int64 or int32 arithmetic that wraps, on whatever device the tensor is on. Two neighbouring 32-bit
words are handled as one int64 (the low half is the even word), so a unit of 16 words is 8 int64.
"""

import functools

import torch

_MASK32 = 0xFFFFFFFF
_P = (
    0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89,
    0x452821E6, 0x38D01377, 0xBE5466CF, 0x34E90C6C, 0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5, 0xB5470917,
)  # fmt: skip
_KA, _KB = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F
_L0, _L1 = 0x165667B19E3779F9, 0x27D4EB2F165667C5


def signed64(value):
    """The int64 with the bits of `value` modulo 2^64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


def signed32(value):
    value &= _MASK32
    return value - (1 << 32) if value >> 31 else value


_PAIRS = [signed64(_P[2 * i] | _P[2 * i + 1] << 32) for i in range(8)]


@functools.cache
def _pairs(device):
    return torch.tensor(_PAIRS, dtype=torch.int64, device=device)[:, None]


def shift_right_32(x, bits):
    """Logical shift of the 32-bit words in an int32 tensor."""
    return (x >> bits) & ((1 << (32 - bits)) - 1)


def mix32(x):
    """The finaliser that digest and sketch share, on an int32 tensor; x is overwritten."""
    x ^= shift_right_32(x, 16)
    x *= signed32(0x7FEB352D)
    x ^= shift_right_32(x, 15)
    x *= signed32(0x846CA68B)
    x ^= shift_right_32(x, 16)
    return x


def _unit_keys(first, count, device):
    """x | y << 32 of units first ... first + count - 1."""
    unit = torch.arange(first, first + count, dtype=torch.int64, device=device).to(torch.int32)
    x = mix32(unit * signed32(0x9E3779B1) + signed32(0x243F6A88))
    y = x * signed32(0x9E3779B1) + signed32(0x85A308D3)
    y ^= shift_right_32(y, 15)
    return (x.to(torch.int64) & _MASK32) | (y.to(torch.int64) << 32)


class _KeyCache:
    """Unit keys depend on nothing but the unit's number, and every segment starts at unit 0."""

    LIMIT = 1 << 20

    def __init__(self):
        self._tables = {}

    def get(self, first, count, device):
        end = first + count
        if end > self.LIMIT:
            return _unit_keys(first, count, device)
        table = self._tables.get(device)
        if table is None or table.numel() < end:
            size = min(self.LIMIT, max(1 << 12, 1 << (end - 1).bit_length()))
            table = self._tables[device] = _unit_keys(0, size, device)
        return table[first:end]


_keys = _KeyCache()


def _finalise(h, factor):
    h = h ^ ((h >> 32) & _MASK32)
    h *= signed64(factor)
    return h ^ ((h >> 32) & _MASK32)


class DigestAccumulator:
    """Feeds rows in order: every call but the last must bring a multiple of 4 rows."""

    def __init__(self, row_bytes):
        self.row_bytes = row_bytes
        self.chunks = -(-row_bytes // 16)
        self.rows = 0
        self._a = self._b = 0

    def add(self, rows):
        """`rows`: contiguous [n, columns] tensor of any dtype whose rows are `row_bytes` long."""
        count = rows.shape[0]
        if count == 0 or self.row_bytes == 0:
            self.rows += count
            return
        if self.rows % 4:
            raise AssertionError("rows after a partial group of 4")
        device = rows.device
        groups, chunks = -(-count // 4), self.chunks
        data = rows.contiguous().view(torch.uint8).view(count, self.row_bytes)
        if count % 4 or self.row_bytes % 16:
            padded = torch.zeros(groups * 4, chunks * 16, dtype=torch.uint8, device=device)
            padded[:count, : self.row_bytes] = data
            data = padded
        elif data.data_ptr() % 8:
            data = data.clone()
        # [group, row, chunk, pair] -> [row, pair, group, chunk]: each of the 8 pairs becomes one contiguous plane.
        pairs = data.view(-1).view(torch.int64).view(groups, 4, chunks, 2).permute(1, 3, 0, 2)
        key = _keys.get(self.rows // 4 * chunks, groups * chunks, device).view(groups, chunks)
        m = torch.empty(4, 2, groups, chunks, dtype=torch.int64, device=device)
        torch.bitwise_xor(pairs, key, out=m)
        m = m.view(8, groups * chunks)
        m ^= _pairs(device)
        low = m & _MASK32
        high = m.bitwise_right_shift_(32)
        high &= _MASK32
        s, t = low[0] * high[0], low[0] * high[1]
        for i in range(1, 8):
            s.addcmul_(low[i], high[i])
            t.addcmul_(low[i], high[(i + 1) % 8])
        self._a += int(_finalise(s, _KA).sum())
        self._b += int(_finalise(t, _KB).sum())
        self.rows += count

    def hex(self):
        rows, size = self.rows, self.row_bytes
        a = (self._a + rows * _L0 + size * _L1) & ((1 << 64) - 1)
        b = (self._b + rows * _L1 + size * _L0) & ((1 << 64) - 1)
        return f"{a:016x}{b:016x}"


def digest(tensor):
    """Digest of a 2-D tensor, any dtype and strides."""
    rows, cols = tensor.shape
    accumulator = DigestAccumulator(cols * tensor.element_size())
    step = max(4, (1 << 20) // max(16, accumulator.row_bytes) // 4 * 4)
    for begin in range(0, rows, step):
        accumulator.add(tensor[begin : begin + step].contiguous())
    return accumulator.hex()


class ColumnDigestAccumulator:
    """Digest of every column as a [rows, 1] tensor of its own. Rows are fed as for DigestAccumulator."""

    def __init__(self, cols, item_size, device):
        self.cols, self.item_size, self.rows = cols, item_size, 0
        self._a = torch.zeros(cols, dtype=torch.int64, device=device)
        self._b = torch.zeros(cols, dtype=torch.int64, device=device)

    def add(self, rows):
        count, cols = rows.shape
        if count == 0 or cols == 0:
            self.rows += count
            return
        if self.rows % 4:
            raise AssertionError("rows after a partial group of 4")
        device = rows.device
        groups = -(-count // 4)
        if self.item_size == 8:
            words = rows.contiguous().view(torch.int64)
        else:
            kind = {4: torch.int32, 2: torch.int16, 1: torch.uint8}[self.item_size]
            words = rows.contiguous().view(kind).to(torch.int64) & ((1 << 8 * self.item_size) - 1)
        if count % 4:
            words = torch.nn.functional.pad(words, (0, 0, 0, groups * 4 - count))
        words = words.view(groups, 4, cols)
        key = _keys.get(self.rows // 4, groups, device)
        # An item fills the first pair of each row at most; the second pair is the same for every column.
        first = [words[:, r] ^ (key ^ _PAIRS[2 * r])[:, None] for r in range(4)]
        second = [key ^ _PAIRS[2 * r + 1] for r in range(4)]

        def low(x):
            return x & _MASK32

        def high(x):
            return (x >> 32) & _MASK32

        s = torch.zeros(groups, cols, dtype=torch.int64, device=device)
        t = torch.zeros(groups, cols, dtype=torch.int64, device=device)
        for r in range(4):
            s += low(first[r]) * high(first[r]) + (low(second[r]) * high(second[r]))[:, None]
            t += low(first[r]) * high(second[r])[:, None]
            t += low(second[r])[:, None] * high(first[(r + 1) % 4])
        self._a += _finalise(s, _KA).sum(0)
        self._b += _finalise(t, _KB).sum(0)
        self.rows += count

    def hex(self):
        a_extra = self.rows * _L0 + self.item_size * _L1
        b_extra = self.rows * _L1 + self.item_size * _L0
        mask = (1 << 64) - 1
        return [
            f"{(a + a_extra) & mask:016x}{(b + b_extra) & mask:016x}"
            for a, b in zip(self._a.tolist(), self._b.tolist())
        ]
