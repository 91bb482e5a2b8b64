"""The generator, written again from docs/cases.md."""

import hashlib

import numpy as np
import pytest

from conftest import tool

MASK = 0xFFFFFFFF


def philox(counter, key):
    c, k = list(counter), list(key)
    for _ in range(10):
        high0, low0 = divmod(0xD2511F53 * c[0], 1 << 32)
        high1, low1 = divmod(0xCD9E8D57 * c[2], 1 << 32)
        c = [high1 ^ c[1] ^ k[0], low1, high0 ^ c[3] ^ k[1], low0]
        k = [(k[0] + 0x9E3779B9) & MASK, (k[1] + 0xBB67AE85) & MASK]
    return c


def normal(seed, name, index):
    key = np.frombuffer(hashlib.sha256(f"{seed}\n{name}".encode()).digest()[:8], dtype="<u4")
    words = philox([index & MASK, index >> 32, 0, 0], [int(k) for k in key])
    total = sum((word & 0xFFFF) + (word >> 16) for word in words)
    return np.float32(total - 262140) * np.float32(1 / np.sqrt(8 * (2**32 - 1) / 12))


@pytest.mark.parametrize("seed, name, begin", [(0, "hidden_states", 0), (2**64 - 1, "blocks.0.mlp.fc1.weight", 2**32 - 5)])
def test_normals(seed, name, begin):
    got = tool("normals", seed, name, begin, 10)
    assert got == [float(normal(seed, name, begin + i)) for i in range(10)]


def test_distribution():
    values = np.array(tool("normals", 3, "x", 0, 200_000))
    assert abs(values.mean()) < 0.01 and abs(values.std() - 1) < 0.01
    assert abs((np.abs(values) < 1).mean() - 0.6827) < 0.01
    assert np.abs(values).max() < 4.9
    assert abs(np.corrcoef(values[:-1], values[1:])[0, 1]) < 0.01
