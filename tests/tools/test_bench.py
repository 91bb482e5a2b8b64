import json
import shutil
import sys

import pytest

from conftest import BIN, h3diff, needs_torch, refused


@pytest.mark.skipif(shutil.which("h5diff") is None, reason="h5diff is not installed")
def test_bench_compare(tmp_path):
    record = tmp_path / "bench.json"
    folder = tmp_path / "dumps"
    folder.mkdir()
    text = h3diff("bench", "compare", "--size", "64MiB", "--rounds", 1, "--python", sys.executable, "--folder", folder,
                  "--json", record).stdout  # fmt: skip
    results = {result["name"]: result for result in json.loads(record.read_text())["results"]}
    assert set(results) == {"h3diff compare", "h5diff", "numpy + h5py"}
    for name, result in results.items():
        assert result["not_measured"] == "" and result["median_seconds"] > 0 and result["peak_bytes"] > 0
        assert name in text
    assert list(folder.iterdir()) == []


def test_bench_compare_without_room(tmp_path):
    refused("bench", "compare", "--size", "900TiB", "--folder", tmp_path, code=5, says=[tmp_path, "free"])
    assert list(tmp_path.iterdir()) == []


@needs_torch
def test_bench_probe(tmp_path):
    record = tmp_path / "bench.json"
    text = h3diff("bench", "probe", "--size", "8MiB", "--rounds", 1, "--json", record).stdout
    results = json.loads(record.read_text())["results"]
    assert [result["tensor"] for result in results] == [
        "float32", "float32, strided", "bfloat16", "bfloat16, strided",
    ]  # fmt: skip
    assert all(result["probe_seconds"] > 0 and result["four_over_probe"] > 0 for result in results)
    assert "x probe" in text


def test_doctor(tmp_path):
    record = tmp_path / "doctor.json"
    text = h3diff("doctor", "--json", record).stdout
    found = json.loads(record.read_text())["found"]
    for what in ("built with", "processor", "data folder", "cases", "profiles", "h3diff-torch"):
        assert what in found and what in text
    assert "HDF5" in found["built with"]["found"] and "diffusers-f32" in found["profiles"]["found"]
    if (BIN / "h3diff-torch").exists():
        assert "libtorch" in found


def test_doctor_without_data(tmp_path):
    import os

    environment = {**os.environ, "H3DIFF_DATA": str(tmp_path / "nowhere")}
    result = h3diff("doctor", code=5, env=environment)
    assert "BAD" in result.stdout and "nowhere" in result.stdout
