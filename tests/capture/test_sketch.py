"""The sketch against a plain reading of docs/dump-format.md section 9, and its error bound."""

import math

import numpy as np
import pytest
import torch

from h3diff_capture.measure import measure
from h3diff_capture.sketch import fold
from test_digest import random_of

M32 = (1 << 32) - 1


def plain(x):
    """Section 9, element by element, in Python's integers."""

    def mix(v):
        v ^= v >> 16
        v = v * 0x7FEB352D & M32
        v ^= v >> 15
        v = v * 0x846CA68B & M32
        return v ^ v >> 16

    rows, cols = len(x), len(x[0])
    tr = 8 if rows >= 512 else 1
    buckets = [0.0] * 256
    for r in range(rows):
        for c in range(cols):
            h = mix((r // tr * 0x9E3779B1 + c // 256 * 0x85EBCA6B + 0x3C6EF372) & M32) >> 27
            word = mix(mix((r // 4 * 0x9E3779B1 + 0x243F6A88) & M32) ^ ((c // 8 * 0x85EBCA6B + 0x13198A2E) & M32))
            sign = -1 if word >> (r % 4 * 8 + c % 8) & 1 else 1
            value = x[r][c] if math.isfinite(x[r][c]) else 0.0
            buckets[(c // 8 % 32 ^ h) + 32 * ((c + r) % 8)] += sign * value
    return buckets


def sketch(tensor, k=256):
    return measure(tensor, [(0, tensor.shape[0])], sketch_k=k).sketch


@pytest.mark.parametrize("rows, cols", [(1, 1), (7, 84), (9, 300), (511, 3), (512, 3), (530, 10), (5, 1000)])
def test_against_the_definition(rows, cols):
    x = random_of(torch.float32, rows, cols)
    x[0, 0] = math.nan
    assert np.allclose(sketch(x), plain(x.double().tolist()), rtol=0, atol=1e-12 * float(x.nan_to_num().norm()))


def test_chunks_and_strides_make_no_difference(monkeypatch):
    import importlib

    x = random_of(torch.bfloat16, 600, 40)
    whole = sketch(x)
    monkeypatch.setitem(importlib.import_module("h3diff_capture.measure")._CHUNK, "cpu", 40 * 16)
    assert np.allclose(sketch(x), whole, atol=1e-10)
    assert np.allclose(sketch(x.t().contiguous().t()), whole, atol=1e-10)


def test_linear_and_folded():
    a, b = random_of(torch.float32, 60, 70, 1), random_of(torch.float32, 60, 70, 2)
    assert np.allclose(sketch(a.double() - b.double()), sketch(a) - sketch(b), atol=1e-10)
    full = sketch(a)
    for k in (64, 128):
        assert torch.equal(sketch(a, k), fold(full, k))
        assert np.allclose(fold(full, k), [sum(full[i].item() for i in range(b, 256, k)) for b in range(k)])


FAMILIES = {
    "dense": lambda g, d: d,
    "outlier channel": lambda g, d: d * torch.where(torch.arange(d.shape[1]) == 5, 1000.0, 1.0),
    "sink row": lambda g, d: d * torch.where(torch.arange(d.shape[0]) == 0, 1000.0, 1.0)[:, None],
    "tail band": lambda g, d: d * (torch.arange(d.shape[0]) >= d.shape[0] - 9)[:, None],
    "rank one": lambda g, d: d[:, :1] * d[:1],
    "one element": lambda g, d: d * ((torch.arange(d.numel()) == 77).view(d.shape)),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_distance_stays_within_its_bound(family):
    exceeded = 0
    for seed in range(200):
        g = torch.Generator().manual_seed(seed)
        difference = FAMILIES[family](g, torch.randn(300, 40, generator=g, dtype=torch.float64))
        b = sketch(difference)
        squared, true = float((b * b).sum()), float((difference * difference).sum())
        exceeded += abs(squared - true) > 3 * math.sqrt(2 * float((b**4).sum()))
    assert exceeded <= 1  # 0.5 % of the pairs
