"""Digest, statistics, sketch and columns of one segment, in chunks of rows so that memory stays bounded."""

from dataclasses import dataclass, field

import torch

from .digest import ColumnDigestAccumulator, DigestAccumulator
from .sketch import SketchAccumulator, fold
from .statistics import ColumnStatisticsAccumulator, Statistics, StatisticsAccumulator, to_float64

# Elements per chunk: small enough for a core's cache, large enough to amortise a call into torch; on an
# accelerator large enough to fill it.
_CHUNK = {"cpu": 1 << 18, "cuda": 1 << 23}


@dataclass
class Measurement:
    rows: int
    cols: int
    digest: str
    statistics: Statistics | None = None
    sketch: torch.Tensor | None = None  # float64 [k]
    columns: list = field(default_factory=list)  # (digest, then ColumnStatisticsAccumulator.FIELDS) of each column


def chunks(tensor, ranges, rows_per_chunk):
    """Contiguous pieces of `rows_per_chunk` rows (the last may be shorter) of the rows that `ranges` select."""
    if len(ranges) == 1:
        begin, end = ranges[0]
        for row in range(begin, end, rows_per_chunk):
            yield tensor[row : min(row + rows_per_chunk, end)].contiguous()
        return
    held, held_rows = [], 0
    for begin, end in ranges:
        while begin < end:
            take = min(end - begin, rows_per_chunk - held_rows)
            held.append(tensor[begin : begin + take])
            held_rows += take
            begin += take
            if held_rows == rows_per_chunk:
                yield torch.cat(held)
                held, held_rows = [], 0
    if held:
        yield torch.cat(held)


def measure(tensor, ranges, statistics=True, sketch_k=256, columns=False):
    """`tensor` is canonical 2-D, any strides; `ranges` are half-open row ranges in the segment's order."""
    rows, cols = sum(end - begin for begin, end in ranges), tensor.shape[1]
    device = tensor.device
    limit = _CHUNK.get(device.type, 1 << 20)
    per_chunk = max(8, limit // max(1, cols) // 8 * 8)
    digest = DigestAccumulator(cols * tensor.element_size())
    stats = StatisticsAccumulator(tensor.dtype, cols, device) if statistics else None
    sketch = SketchAccumulator(rows, cols, device) if statistics and sketch_k else None
    column_digest = ColumnDigestAccumulator(cols, tensor.element_size(), device) if columns else None
    column_stats = ColumnStatisticsAccumulator(cols, device) if columns else None
    for piece in chunks(tensor, ranges, per_chunk):
        digest.add(piece)
        if column_digest:
            column_digest.add(piece)
        if stats or column_stats:
            values = to_float64(piece)
            if column_stats:
                column_stats.add(values)
            if stats:
                stats.add(values)
                if sketch:
                    sketch.add(values)
    result = Measurement(rows, cols, digest.hex())
    if stats:
        result.statistics = stats.finish()
    if sketch:
        result.sketch = fold(sketch.finish(), sketch_k)
    if columns:
        result.columns = [(d, *s) for d, s in zip(column_digest.hex(), column_stats.finish())]
    return result
