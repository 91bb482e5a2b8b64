"""`import`: the toy runtime's streams become dumps that `inspect` and `compare` read."""

import json
import subprocess

import pytest

from conftest import BIN, h3diff, refused

pytestmark = pytest.mark.skipif(not (BIN / "toy_runtime").exists(), reason="this build has no toy_runtime")


def stream(path, *words):
    subprocess.run([BIN / "toy_runtime", path, *words], check=True, capture_output=True, timeout=60)
    return path


def test_a_stream_becomes_a_dump(tmp_path):
    source = stream(tmp_path / "good.h3stream")
    record = tmp_path / "record.json"
    text = h3diff("import", source, "-o", tmp_path / "good.h5", "--json", record).stdout
    told = json.loads(record.read_text())
    assert told["finished"] and told["steps"] >= 1 and told["rows"] > 10
    assert f"{told['steps']} step" in text
    assert "index rows" in h3diff("inspect", tmp_path / "good.h5").stdout
    refused("import", source, "-o", tmp_path / "good.h5", code=2, says=["good.h5"])
    h3diff("import", source, "-o", tmp_path / "good.h5", "--overwrite")


def test_equal_runs_compare_bitwise(tmp_path):
    for name in ("a", "b"):
        h3diff("import", stream(tmp_path / f"{name}.h3stream"), "-o", tmp_path / f"{name}.h5")
    h3diff("compare", tmp_path / "a.h5", tmp_path / "b.h5", "--json", tmp_path / "record.json")
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["coverage"]["compared"] > 5
    assert {probe["outcome"] for probe in record["probes"]} == {"bitwise"}


def test_a_cut_stream_is_read_up_to_the_cut(tmp_path):
    whole = stream(tmp_path / "whole.h3stream").read_bytes()
    cut = tmp_path / "cut.h3stream"
    cut.write_bytes(whole[:-40])
    assert "unfinished" in h3diff("import", cut, "-o", tmp_path / "cut.h5").stdout


def test_what_is_no_stream_is_refused(tmp_path):
    other = tmp_path / "other.h3stream"
    other.write_bytes(b"not a stream, but long enough to look at")
    refused("import", other, "-o", tmp_path / "x.h5", code=3, says=[other, "not a probe stream"])
    refused("import", tmp_path / "absent", "-o", tmp_path / "x.h5", code=3, says=["absent", "no such file"])
    assert not (tmp_path / "x.h5").exists()
