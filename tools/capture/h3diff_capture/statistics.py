"""One-pass statistics of a segment, over float64 copies of chunks of rows: docs/dump-format.md section 8."""

import math

import torch

# Smallest normal number; 0 where nothing is subnormal.
_SMALLEST_NORMAL = {
    torch.float64: 2.0**-1022,
    torch.float32: 2.0**-126,
    torch.bfloat16: 2.0**-126,
    torch.float16: 2.0**-14,
    torch.float8_e4m3fn: 2.0**-6,
    torch.float8_e5m2: 2.0**-14,
}


def to_float64(rows):
    """Exact float64 copy, contiguous."""
    if rows.dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        rows = rows.to(torch.float32)
    return torch.empty(rows.shape, dtype=torch.float64, device=rows.device).copy_(rows)


class Statistics:
    """The figures of one segment. Undefined figures are NaN, undefined positions -1."""

    __slots__ = (
        "zeros", "nan", "inf", "subnormal", "mean", "std", "l2", "min", "max", "absmax", "absmax_row", "absmax_col",
        "row_bands", "col_groups",
    )  # fmt: skip

    def __init__(self):
        self.zeros = self.nan = self.inf = self.subnormal = 0
        self.mean = self.std = self.l2 = self.min = self.max = self.absmax = math.nan
        self.absmax_row = self.absmax_col = -1
        self.row_bands = self.col_groups = [0.0] * 16


def _bands(squares):
    """l2 of 16 equal parts of a vector of sums of squares."""
    squares = squares.cpu().numpy()
    edges = [b * squares.size // 16 for b in range(17)]
    return [math.sqrt(squares[lo:hi].sum()) for lo, hi in zip(edges, edges[1:])]


class StatisticsAccumulator:
    """Feeds chunks of rows in order; `finish` gives the Statistics. `values` of `add` are left finite."""

    def __init__(self, dtype, cols, device):
        self._smallest_normal = _SMALLEST_NORMAL.get(dtype, 0.0)
        self._result = Statistics()
        self._rows, self._cols = 0, cols
        self._n, self._mean, self._m2 = 0, 0.0, 0.0
        self._min, self._max, self._absmax = math.inf, -math.inf, -1.0
        self._row_squares = []
        self._col_squares = torch.zeros(cols, dtype=torch.float64, device=device)

    def add(self, values):
        """`values`: float64 [n, columns], scratch; non-finite elements are set to 0 in it."""
        result = self._result
        count = values.numel()
        if count == 0:
            self._rows += values.shape[0]
            return
        magnitude = values.abs()
        # NaN propagates through max: one test tells whether anything is not finite.
        if math.isfinite(float(magnitude.max())):
            low, high = (float(v) for v in torch.aminmax(values))
            finite = count
        else:
            nan, inf = torch.isnan(values), torch.isinf(values)
            result.nan += int(nan.sum())
            result.inf += int(inf.sum())
            bad = nan | inf
            finite = count - int(bad.sum())
            low = float(values.masked_fill(bad, math.inf).min())
            high = float(values.masked_fill(bad, -math.inf).max())
            values.masked_fill_(bad, 0.0)
            # -1 keeps the position of a non-finite element from being taken for absmax when all else is 0.
            magnitude.masked_fill_(bad, -1.0)
        zeros = count - int(torch.count_nonzero(values)) - (count - finite)
        result.zeros += zeros
        absmax = max(abs(low), abs(high)) if finite else -1.0
        if absmax > self._absmax:
            self._absmax = absmax
            position = int((magnitude.view(-1) == absmax).to(torch.uint8).argmax())
            result.absmax_row = self._rows + position // self._cols
            result.absmax_col = position % self._cols
        self._min, self._max = min(self._min, low), max(self._max, high)
        if self._smallest_normal and finite > zeros:
            # Counts everything below, zeros included.
            below = int((magnitude < self._smallest_normal).sum()) - (count - finite)
            result.subnormal += below - zeros
        if finite:
            mean = float(values.sum()) / finite
            torch.sub(values, mean, out=magnitude)
            # The zeros that stand for non-finite elements are no part of the sum.
            m2 = float(magnitude.square_().sum()) - (count - finite) * mean * mean
            total = self._n + finite
            delta = mean - self._mean
            self._mean += delta * finite / total
            self._m2 += max(0.0, m2) + delta * delta * self._n * finite / total
            self._n = total
        squares = torch.mul(values, values, out=magnitude)
        self._row_squares.append(squares.sum(1))
        self._col_squares += squares.sum(0)
        self._rows += values.shape[0]

    def finish(self):
        result = self._result
        rows = torch.cat(self._row_squares) if self._row_squares else torch.zeros(self._rows)
        result.l2 = math.sqrt(float(rows.sum()))
        result.row_bands = _bands(rows)
        result.col_groups = _bands(self._col_squares)
        if self._n:
            result.mean, result.std = self._mean, math.sqrt(self._m2 / self._n)
            result.min, result.max, result.absmax = self._min, self._max, self._absmax
        return result


class ColumnStatisticsAccumulator:
    """The same figures for every column, without positions and bands."""

    FIELDS = ("zeros", "nan", "inf", "mean", "std", "l2", "min", "max", "absmax")

    def __init__(self, cols, device):
        def full(value, dtype=torch.float64):
            return torch.full((cols,), value, dtype=dtype, device=device)

        self._zeros, self._nan, self._inf, self._n = (full(0, torch.int64) for _ in range(4))
        self._mean, self._m2, self._squares = full(0.0), full(0.0), full(0.0)
        self._min, self._max = full(math.inf), full(-math.inf)

    def add(self, values):
        """`values`: float64 [n, columns], as converted; it is not changed."""
        if values.numel() == 0:
            return
        nan, inf = torch.isnan(values), torch.isinf(values)
        bad = nan | inf
        self._nan += nan.sum(0)
        self._inf += inf.sum(0)
        self._zeros += (values == 0).sum(0)
        self._min = torch.minimum(self._min, values.masked_fill(bad, math.inf).amin(0))
        self._max = torch.maximum(self._max, values.masked_fill(bad, -math.inf).amax(0))
        finite = values.masked_fill(bad, 0.0)
        n = (~bad).sum(0)
        mean = finite.sum(0) / n.clamp(min=1)
        m2 = (finite - mean).masked_fill(bad, 0.0).square().sum(0)
        total = self._n + n
        delta = torch.where(n > 0, mean - self._mean, 0.0)
        self._mean = self._mean + delta * n / total.clamp(min=1)
        self._m2 = self._m2 + m2 + delta * delta * self._n * n / total.clamp(min=1)
        self._n = total
        self._squares = self._squares + finite.square().sum(0)

    def finish(self):
        """A list of columns, each a tuple in the order of FIELDS."""
        some = self._n > 0
        undefined = torch.full_like(self._mean, math.nan)

        def defined(x):
            return torch.where(some, x, undefined).tolist()

        return list(
            zip(
                self._zeros.tolist(), self._nan.tolist(), self._inf.tolist(),
                defined(self._mean), defined((self._m2 / self._n.clamp(min=1)).sqrt()), self._squares.sqrt().tolist(),
                defined(self._min), defined(self._max), defined(torch.maximum(self._min.abs(), self._max.abs())),
            )
        )  # fmt: skip


def cosine(a, b):
    """Cosine of two tensors of one shape over the pairs in which both are finite; NaN if a norm is 0."""
    a, b = to_float64(a), to_float64(b)
    bad = ~(torch.isfinite(a) & torch.isfinite(b))
    a.masked_fill_(bad, 0.0)
    b.masked_fill_(bad, 0.0)
    norm = math.sqrt(float((a * a).sum())) * math.sqrt(float((b * b).sum()))
    return float((a * b).sum()) / norm if norm > 0 else math.nan
