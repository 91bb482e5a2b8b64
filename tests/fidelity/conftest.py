"""The C++ forward beside real pipelines. H3DIFF_BIN names the folder with h3diff and h3diff-torch."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("H3DIFF_BIN", ROOT / "build" / "release" / "bin"))
sys.path[:0] = [str(ROOT / "tools" / "capture"), str(ROOT / "tests" / "capture")]

FULL = os.environ.get("H3DIFF_FULL") == "1"


def pytest_collection_modifyitems(items):
    if not (BIN / "h3diff-torch").exists():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="this build has no h3diff-torch"))


def h3diff(*words, codes=(0,)):
    result = subprocess.run([str(BIN / "h3diff"), *map(str, words)], capture_output=True, text=True, timeout=900)
    assert result.returncode in codes, f"exit {result.returncode}\n{result.stdout}\n{result.stderr}"
    return result


def export(path, case, *options):
    if not path.exists():
        h3diff("case", "export", case, "-o", path, *options)
    return path


def capture(pipeline, bundle, out, **options):
    from h3diff_capture.run import run

    run(pipeline, str(bundle), str(out), progress=lambda text: None, **options)
    return out


def candidate(bundle, out, profile, *options):
    h3diff("run", bundle, "--profile", profile, "-o", out, "--overwrite", *options)
    return out


def record_of(reference, dump):
    path = dump.with_suffix(".json")
    h3diff("compare", reference, dump, "--json", path, codes=(0, 1, 4))
    return json.loads(path.read_text())


def assert_bitwise(reference, dump, probes):
    """Every probe of both sides compared and bitwise; at least `probes` of them."""
    record = record_of(reference, dump)
    off = [(p["step"], p["probe"], p["segment"], p["outcome"]) for p in record["probes"] if p["outcome"] != "bitwise"]
    assert not off, f"{len(off)} of {len(record['probes'])}, first {off[:4]}"
    coverage = record["coverage"]
    assert record["exit_code"] == 0 and coverage["compared"] == coverage["expected"] >= probes, coverage
    return record
