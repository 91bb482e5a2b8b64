"""Linear sketch of a segment, 256 signed buckets: docs/dump-format.md section 9.

The bucket of an element needs only r mod 8, h(r / TR, c / 256), c / 8 mod 32 and c mod 8. So rows are first summed
into a [8, 32, 256] table by (r mod 8, h), columns modulo 256, which is one index_add of whole rows, and the skew and
the exclusive-or are applied once to that table at the end.
"""

import functools

import torch

from .digest import mix32, signed32

_A, _B = signed32(0x9E3779B1), signed32(0x85EBCA6B)


@functools.cache
def _signs(device):
    """[256, 8]: the signs that the 8 bits of a byte stand for, lowest bit first."""
    byte = torch.arange(256, device=device)[:, None]
    return 1.0 - 2.0 * ((byte >> torch.arange(8, device=device)) & 1).to(torch.float64)


@functools.cache
def _buckets():
    """[8, 32, 32, 8]: the bucket of row r mod 8, h, octet c / 8 mod 32 and column c mod 8."""
    k, h, b, e = torch.meshgrid(*(torch.arange(n) for n in (8, 32, 32, 8)), indexing="ij")
    return (b ^ h) + 32 * ((e + k) % 8)


def _arange32(begin, end, device):
    return torch.arange(begin, end, dtype=torch.int64, device=device).to(torch.int32)


class SketchAccumulator:
    """Feeds chunks of rows in order: every call but the last must bring a multiple of 8 rows."""

    def __init__(self, rows, cols, device):
        self._group = 8 if rows >= 512 else 1
        self._cols, self._row = cols, 0
        self._width = min(256, -(-cols // 8) * 8)      # columns of one tile
        self._tiles = -(-cols // 256)
        self._table = torch.zeros(8 * 32, self._width, dtype=torch.float64, device=device)

    def add(self, values):
        """`values`: finite float64 [n, columns], contiguous; left unchanged."""
        count, cols = values.shape
        if count == 0 or cols == 0:
            return
        device, first = values.device, self._row
        octets = self._tiles * self._width // 8
        if octets * 8 != cols:
            values = torch.nn.functional.pad(values, (0, octets * 8 - cols))
        quads = -(-count // 4)
        word = mix32(_arange32(first // 4, first // 4 + quads, device) * _A + signed32(0x243F6A88))[:, None]
        word = word ^ (_arange32(0, octets, device) * _B + signed32(0x13198A2E))
        word = mix32(word)
        # Byte r mod 4 of a word holds the signs of row r: [quad, octet, byte] -> [quad, byte, octet].
        byte = word.view(torch.uint8).view(quads, octets, 4).permute(0, 2, 1).reshape(-1).to(torch.int32)
        signed = _signs(device).index_select(0, byte).view(quads * 4, octets * 8)[:count]
        signed *= values
        tile = _arange32(0, self._tiles, device)
        row = torch.arange(first, first + count, dtype=torch.int64, device=device)
        h = mix32((row // self._group).to(torch.int32)[:, None] * _A + tile * _B + signed32(0x3C6EF372))
        h = (h >> 27) & 31
        index = ((row % 8).to(torch.int32)[:, None] * 32 + h).view(-1)
        self._table.index_add_(0, index, signed.view(-1, self._width))
        self._row += count

    def finish(self):
        """float64 [256], on the CPU."""
        table, octets = self._table.cpu(), self._width // 8
        bucket = _buckets()[:, :, :octets].reshape(-1)
        return torch.bincount(bucket, table.view(-1), minlength=256)


def fold(buckets, k):
    """Folds 256 buckets to k = 256, 128 or 64."""
    return buckets.view(256 // k, k).sum(0)
