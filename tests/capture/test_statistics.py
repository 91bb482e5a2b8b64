"""Statistics against numpy in float64."""

import math

import numpy as np
import pytest
import torch

from h3diff_capture.measure import measure
from h3diff_capture.statistics import ColumnStatisticsAccumulator, cosine
from test_digest import random_of


def reference(x, smallest_normal):
    """docs/dump-format.md section 8 of a float64 array."""
    finite = np.isfinite(x)
    v = x[finite]
    out = {
        "nan": int(np.isnan(x).sum()), "inf": int(np.isinf(x).sum()), "zeros": int((v == 0).sum()),
        "subnormal": int(((v != 0) & (np.abs(v) < smallest_normal)).sum()), "l2": math.sqrt(np.sum(v * v)),
    }  # fmt: skip
    if v.size:
        out.update(mean=v.mean(), std=v.std(), min=v.min(), max=v.max(), absmax=np.abs(v).max())
        flat = np.where(finite, np.abs(x), -1).ravel()
        out["absmax_row"], out["absmax_col"] = divmod(int(flat.argmax()), x.shape[1])
    clean = np.where(finite, x, 0)
    r, c = x.shape
    out["row_bands"] = [np.linalg.norm(clean[b * r // 16 : (b + 1) * r // 16]) for b in range(16)]
    out["col_groups"] = [np.linalg.norm(clean[:, b * c // 16 : (b + 1) * c // 16]) for b in range(16)]
    return out


def check(tensor, smallest_normal=2.0**-126, ranges=None):
    ranges = ranges or [(0, tensor.shape[0])]
    x = torch.cat([tensor[a:b] for a, b in ranges]).to(torch.float64).numpy()
    got, want = measure(tensor, ranges).statistics, reference(x, smallest_normal)
    n = max(1, np.isfinite(x).sum())
    tolerance = {"mean": 1e-12 * want["l2"] / math.sqrt(n), "std": 1e-12 * want["l2"], "l2": 1e-12 * want["l2"]}
    for name in ("nan", "inf", "zeros", "subnormal", "absmax_row", "absmax_col", "min", "max", "absmax"):
        if name in want:
            assert getattr(got, name) == want[name], name
    for name, bound in tolerance.items():
        if name in want:
            assert abs(getattr(got, name) - want[name]) <= bound, name
    assert np.allclose(got.row_bands, want["row_bands"], rtol=1e-12, atol=0)
    assert np.allclose(got.col_groups, want["col_groups"], rtol=1e-12, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.int32, torch.bool], ids=str)
@pytest.mark.parametrize("rows, cols", [(1, 1), (7, 5), (15, 40), (700, 33), (3, 3000)])
def test_against_numpy(dtype, rows, cols):
    smallest = {torch.float16: 2.0**-14, torch.int32: 0.0, torch.bool: 0.0}.get(dtype, 2.0**-126)
    check(random_of(dtype, rows, cols), smallest)


@pytest.mark.parametrize("name, smallest", [("float8_e4m3fn", 2.0**-6), ("float8_e5m2", 2.0**-14)])
def test_float8(name, smallest):
    every = torch.arange(256, dtype=torch.uint8).view(16, 16).view(getattr(torch, name))
    check(every.clone(), smallest)


def test_several_chunks(monkeypatch):
    import importlib

    module = importlib.import_module("h3diff_capture.measure")
    monkeypatch.setitem(module._CHUNK, "cpu", 64)
    check(random_of(torch.float32, 103, 9))
    check(random_of(torch.float32, 103, 9), ranges=[(90, 103), (3, 40), (50, 51)])


def test_non_finite_and_subnormal():
    x = random_of(torch.float32, 20, 6)
    x[3, 2], x[4, 0], x[19, 5] = math.nan, math.inf, -math.inf
    x[0, 0], x[0, 1], x[0, 2], x[0, 3] = 0.0, -0.0, 1e-40, -1e-45
    check(x)


def test_nothing_finite():
    s = measure(torch.full((3, 4), math.nan), [(0, 3)]).statistics
    assert (s.nan, s.l2, s.absmax_row) == (12, 0.0, -1)
    assert all(math.isnan(v) for v in (s.mean, s.std, s.min, s.max, s.absmax))


def test_zeros_beside_non_finite():
    x = torch.zeros(4, 4)
    x[0, 0] = math.inf
    check(x)
    s = measure(x, [(0, 4)]).statistics
    assert (s.absmax, s.absmax_row, s.absmax_col, s.zeros) == (0.0, 0, 1, 15)


def test_std_of_a_large_mean():
    x = torch.full((1000, 16), 1e6, dtype=torch.float64)
    x[::2] += 1e-3
    assert abs(measure(x, [(0, 1000)]).statistics.std - 5e-4) < 1e-9


def test_columns_against_numpy():
    x = random_of(torch.float32, 90, 7)
    x[3, 2], x[:, 4], x[5, 5] = math.nan, math.inf, 0.0
    accumulator = ColumnStatisticsAccumulator(7, x.device)
    accumulator.add(x[:40].double())
    accumulator.add(x[40:].double())
    for c, got in enumerate(accumulator.finish()):
        got = dict(zip(ColumnStatisticsAccumulator.FIELDS, got))
        want = reference(x[:, c : c + 1].double().numpy(), 2.0**-126)
        for name in ("zeros", "nan", "inf", "min", "max", "absmax"):
            if name in want:
                assert got[name] == want[name], (c, name)
        for name in ("mean", "std", "l2"):
            if name in want:
                assert abs(got[name] - want[name]) <= 1e-12 * want["l2"], (c, name)
        if c == 4:
            assert all(math.isnan(got[n]) for n in ("mean", "std", "min", "max", "absmax")) and got["l2"] == 0


def test_cosine():
    a, b = random_of(torch.float32, 9, 5, 1), random_of(torch.float32, 9, 5, 2)
    want = float((a.double() * b.double()).sum() / (a.double().norm() * b.double().norm()))
    assert abs(cosine(a, b) - want) < 1e-14
    assert math.isnan(cosine(a, torch.zeros_like(a)))
    a[0, 0] = math.nan
    b[0, 0] = 1e9
    assert abs(cosine(a, b)) < 1
