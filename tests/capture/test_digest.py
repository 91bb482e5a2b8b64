"""The digest against the check values of docs/dump-format.md section 7, and against a plain reading of its text."""

import pytest
import torch

from h3diff_capture.digest import ColumnDigestAccumulator, DigestAccumulator, digest

M32, M64 = (1 << 32) - 1, (1 << 64) - 1
P = [
    0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0, 0x082EFA98, 0xEC4E6C89,
    0x452821E6, 0x38D01377, 0xBE5466CF, 0x34E90C6C, 0xC0AC29B7, 0xC97C50DD, 0x3F84D5B5, 0xB5470917,
]  # fmt: skip


def plain(data, rows, row_bytes):
    """Section 7, word by word, in Python's integers."""
    chunks = -(-row_bytes // 16)
    padded = [data[r * row_bytes : (r + 1) * row_bytes].ljust(chunks * 16, b"\0") for r in range(rows)]
    padded += [bytes(chunks * 16)] * (-rows % 4)

    def f(h, k):
        h ^= h >> 32
        h = h * k & M64
        return h ^ h >> 32

    a = b = 0
    for u in range(len(padded) // 4 * chunks):
        group, chunk = divmod(u, chunks)
        w = []
        for r in range(4):
            part = padded[group * 4 + r][chunk * 16 : chunk * 16 + 16]
            w += [int.from_bytes(part[i : i + 4], "little") for i in (0, 4, 8, 12)]
        x = (u * 0x9E3779B1 + 0x243F6A88) & M32
        x ^= x >> 16
        x = x * 0x7FEB352D & M32
        x ^= x >> 15
        x = x * 0x846CA68B & M32
        x ^= x >> 16
        y = (x * 0x9E3779B1 + 0x85A308D3) & M32
        y ^= y >> 15
        m = [w[j] ^ (y if j % 2 else x) ^ P[j] for j in range(16)]
        a += f(sum(m[j] * m[j + 1] for j in range(0, 16, 2)) & M64, 0x9E3779B97F4A7C15)
        b += f(sum(m[j] * m[(j + 3) % 16] for j in range(0, 16, 2)) & M64, 0xC2B2AE3D27D4EB4F)
    l0, l1 = 0x165667B19E3779F9, 0x27D4EB2F165667C5
    a += rows * l0 + row_bytes * l1
    b += rows * l1 + row_bytes * l0
    return f"{a & M64:016x}{b & M64:016x}"


def plain_of(tensor):
    tensor = tensor.contiguous()
    data = bytes(tensor.view(torch.uint8).reshape(-1).tolist())
    return plain(data, tensor.shape[0], tensor.shape[1] * tensor.element_size())


@pytest.mark.parametrize(
    "rows, row_bytes, value, expected",
    [
        (0, 0, lambda i: 0, "00000000000000000000000000000000"),
        (1, 1, lambda i: 0, "821295fcf5ed867af1004d6131041cc8"),
        (1, 1, lambda i: 1, "4aa3f135b3f95c3f911ba4c5589b4dbe"),
        (3, 5, lambda i: i, "45055e580eb0ce0751968991355bffa6"),
        (5, 40, lambda i: 7 * i % 256, "5c7859a5bf99f55936ee8e4df01591b0"),
    ],
)
def test_check_values(rows, row_bytes, value, expected):
    data = torch.tensor([value(i) for i in range(rows * row_bytes)], dtype=torch.uint8).view(rows, row_bytes)
    assert digest(data) == expected


def test_check_value_bfloat16():
    values = ((torch.arange(120, dtype=torch.float32) - 60) / 7).to(torch.bfloat16).view(10, 12)
    assert digest(values) == "5768b19506bc73200d364461cdae5680"


DTYPES = [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8,
    torch.uint8, torch.int32, torch.int64, torch.bool,
]  # fmt: skip


def random_of(dtype, rows, cols, seed=0):
    g = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(rows, cols, generator=g) > 0.5
    if dtype.is_floating_point:
        return (torch.randn(rows, cols, generator=g) * 8).to(dtype)
    return torch.randint(-100 if dtype != torch.uint8 else 0, 100, (rows, cols), generator=g).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rows, cols", [(1, 1), (3, 7), (4, 16), (5, 17), (9, 33), (130, 3), (2, 301)])
def test_every_dtype_and_odd_sizes(dtype, rows, cols):
    values = random_of(dtype, rows, cols)
    assert digest(values) == plain_of(values)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool], ids=str)
def test_strided_views(dtype):
    base = random_of(dtype, 24, 30)
    for view in (base[::2], base[:, ::3], base.t(), base[3:17, 5:22], base[:1].expand(6, 30)):
        assert digest(view) == digest(view.clone(memory_format=torch.contiguous_format)) == plain_of(view)


def test_bits_matter_not_values():
    zero = torch.tensor([[0.0, -0.0]])
    assert digest(zero) != digest(zero.abs())
    quiet = torch.tensor([[0x7FC00000, 0x7FC00001]], dtype=torch.int32).view(torch.float32)
    same = torch.tensor([[0x7FC00000, 0x7FC00000]], dtype=torch.int32).view(torch.float32)
    assert torch.isnan(quiet).all() and digest(quiet) != digest(same)
    assert digest(quiet) == plain_of(quiet)


def test_position_and_shape_matter():
    values = random_of(torch.float32, 8, 8)
    assert len({digest(v) for v in (values, values.flip(0), values.flip(1), values.t(), values.view(4, 16))}) == 5


def test_chunks_make_no_difference():
    values = random_of(torch.bfloat16, 37, 19)
    accumulator = DigestAccumulator(19 * 2)
    for begin, end in ((0, 4), (4, 24), (24, 37)):
        accumulator.add(values[begin:end])
    assert accumulator.hex() == digest(values)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_columns(dtype):
    values = random_of(dtype, 23, 5)
    accumulator = ColumnDigestAccumulator(5, values.element_size(), values.device)
    accumulator.add(values[:12])
    accumulator.add(values[12:])
    assert accumulator.hex() == [digest(values[:, c : c + 1]) for c in range(5)]


def test_units_beyond_the_key_cache(monkeypatch):
    from h3diff_capture import digest as module

    values = random_of(torch.float32, 400, 20)
    expected = digest(values)
    monkeypatch.setattr(module._KeyCache, "LIMIT", 16)
    monkeypatch.setattr(module, "_keys", module._KeyCache())
    assert digest(values) == expected
