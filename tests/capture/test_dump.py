"""The file itself: tables, types and tensors as docs/dump-format.md describes them, read by h5py and h5dump."""

import re
import shutil
import subprocess

import h5py
import numpy as np
import pytest
import torch

import dumps
from conftest import REPOSITORY
from h3diff_capture.capture_spec import CaptureSpec
from h3diff_capture.dump import DumpWriter
from h3diff_capture.observer import Observer
from h3diff_capture.probes import ProbeList
from h3diff_capture.segments import layout_from_tensors
from test_capture_spec import SHAPE
from test_digest import random_of

ROWS = 40


def write(path, capture="full", steps=1, value=None, **changes):
    """A dump of `packed` alone, all of it in the segment text."""
    observer = Observer(str(path), ProbeList(SHAPE), CaptureSpec(capture), {"case": "t", "seed": 7, **changes}, steps)
    observer.see("weights.final_layer.norm", torch.ones(1, 84))
    observer.end_weights()
    index = torch.arange(ROWS)
    sequence = layout_from_tensors(index[:0], index[:0], index, torch.ones(ROWS))
    inputs = {
        "input.video": torch.zeros(0, 24), "input.audio": torch.zeros(0, 8), "input.text": torch.zeros(ROWS, 40),
        "input.timestep": torch.zeros(1, 1), "input.timestep_indices": torch.zeros(ROWS, 1, dtype=torch.int64),
        "input.token_tags": torch.ones(ROWS, 1, dtype=torch.int64), "input.position_ids": torch.zeros(ROWS, 3, dtype=torch.float64),
    }  # fmt: skip
    for _ in range(steps):
        observer.begin_step(inputs, sequence)
        observer.see("packed", random_of(torch.bfloat16, ROWS, 84) if value is None else value)
        observer.end_step()
    observer.finish()
    return str(path)


def documented_columns(section):
    with open(f"{REPOSITORY}/docs/dump-format.md", encoding="utf-8") as file:
        text = file.read()
    body = text.split(f"## {section}. ")[1].split("\n## ")[0]
    return [name for line in body.splitlines() if line.startswith("| `") for name in re.findall(r"`(\w+)`", line.split("|")[1])]


def test_tables(bundle, tmp_path):
    from h3diff_capture.run import run

    path = str(tmp_path / "d.h5")
    run("diffusers", bundle, path, steps=1, progress=lambda _: None)
    with h5py.File(path) as file:
        assert file.attrs["format"] == b"h3diff-dump" and file.attrs["version"] == 1
        assert list(file["index"].dtype.names) == documented_columns(4)
        kinds = {"probe": "S80", "segment": "S12", "dtype": "S16", "digest": "S32", "level": "S8", "step": "<i4",
                 "rows": "<i8", "mean": "<f8", "sketch_k": "<i4", "sketch_row": "<i8"}  # fmt: skip
        for name, kind in kinds.items():
            assert file["index"].dtype[name] == np.dtype(kind), name
        assert file["index"].dtype["row_bands"] == np.dtype(("<f4", (16,)))
        assert file["columns"].dtype.names == (
            "probe", "column", "digest", "zeros", "nan", "inf", "mean", "std", "l2", "min", "max", "absmax",
        )  # fmt: skip
        for name in ("index", "steps", "columns", "dispatch"):
            assert file[name].maxshape == (None,) and file[name].chunks and file[name].compression is None
        used = file["index"]["sketch_row"][file["index"]["sketch_k"] == 256]
        assert sorted(used) == list(range(len(file["sketches/k256"])))
        for name, value in file["run"].attrs.items():
            assert isinstance(value, (bytes, np.int64, np.float64)), name


DTYPES = [
    torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.int8,
    torch.int32, torch.bool,
]  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_captured_tensors(tmp_path, dtype):
    value = random_of(dtype, ROWS, 84)
    path = write(tmp_path / "d.h5", value=value)
    with h5py.File(path) as file:
        data = file["tensors/0/packed/text"]
        assert data.chunks is None and data.shape == (ROWS, 84)
        name = data.attrs["dtype"].decode()
        assert getattr(torch, name) == dtype
        if dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bool):
            assert data.dtype == np.uint8
            assert np.array_equal(data[:], value.view(torch.uint8).numpy())
        else:
            assert np.array_equal(data[:], value.double().numpy())
        row = next(r for r in file["index"][:] if r["probe"] == b"packed")
        assert row["dtype"].decode() == name and row["level"] == b"full"


@pytest.mark.skipif(shutil.which("h5dump") is None, reason="no h5dump")
def test_h5dump_shows_bfloat16_as_numbers(tmp_path):
    value = torch.zeros(ROWS, 84, dtype=torch.bfloat16)
    value[0, :3] = torch.tensor([1.5, -0.25, 3e38])
    path = write(tmp_path / "d.h5", value=value)
    text = subprocess.run(["h5dump", "-d", "/tensors/0/packed/text", path], capture_output=True, text=True, check=True).stdout
    assert "(0,0): 1.5, -0.25, 3.00406e+38" in text
    whole = subprocess.run(["h5dump", path], capture_output=True, text=True)
    assert whole.returncode == 0 and "h3diff-dump" in whole.stdout


def test_bfloat16_special_values_keep_their_bits(tmp_path):
    bits = torch.arange(1 << 16, dtype=torch.int32).to(torch.int16)[: ROWS * 84].view(ROWS, 84)
    bits[0, :4] = torch.tensor([0x7F80, 0xFF80 - (1 << 16), 0x7FC1, 0x8000 - (1 << 16)], dtype=torch.int16)
    path = write(tmp_path / "d.h5", value=bits.view(torch.bfloat16))
    with h5py.File(path) as file:
        data = file["tensors/0/packed/text"]
        raw = np.empty((ROWS, 84), np.uint16)
        data.id.read(h5py.h5s.ALL, h5py.h5s.ALL, raw, mtype=data.id.get_type())
        assert np.array_equal(raw, bits.numpy().view(np.uint16))


def test_sampled_rows(tmp_path):
    value = random_of(torch.float32, ROWS, 84)
    path = write(tmp_path / "d.h5", "stats,packed=rows,rows=7", value=value)
    with h5py.File(path) as file:
        data = file["tensors/0/packed/text"]
        assert data.attrs["sampled_of"] == ROWS
        assert np.array_equal(data[:], value[[i * ROWS // 7 for i in range(7)]].numpy())
        row = next(r for r in file["index"][:] if r["probe"] == b"packed")
        assert row["level"] == b"rows"
        assert "weights.final_layer.norm" not in file.get("tensors/-1", {})


def test_levels(tmp_path):
    path = write(tmp_path / "d.h5", "stats,packed=digest,input.*=off")
    rows = dumps.rows(path)
    assert not any(probe.startswith("input.") for _, probe, _ in rows)
    row = rows[0, "packed", "text"]
    assert row["level"] == b"digest" and np.isnan(row["l2"]) and row["absmax_row"] == -1
    assert (row["sketch_k"], row["sketch_row"]) == (0, -1)


def test_byte_budget(tmp_path):
    size = ROWS * 84 * 2
    path = write(tmp_path / "d.h5", f"stats,packed=full,budget={2 * size}", steps=3)
    levels = [dumps.rows(path)[step, "packed", "text"]["level"] for step in range(3)]
    assert levels == [b"full", b"full", b"stats"]
    assert dumps.facts(path)["tensors_over_budget"] == 1
    with h5py.File(path) as file:
        assert sorted(file["tensors"]) == ["0", "1"]


def test_facts_of_every_type(tmp_path):
    path = write(tmp_path / "d.h5", mkl_cbwr="", case="näme", share=0.5)
    facts = dumps.facts(path)
    assert (facts["mkl_cbwr"], facts["case"], facts["seed"], facts["share"]) == ("", "näme", 7, 0.5)


def test_partial_until_finished(tmp_path):
    path = str(tmp_path / "d.h5")
    writer = DumpWriter(path, {})
    assert not (tmp_path / "d.h5").exists()
    writer.finish([], [])
    assert (tmp_path / "d.h5").exists() and not (tmp_path / "d.h5.partial").exists()
    with h5py.File(path) as file:
        assert len(file["index"]) == len(file["steps"]) == 0
