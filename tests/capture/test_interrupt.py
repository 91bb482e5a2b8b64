"""SIGINT and SIGKILL in the middle of a run: the finished steps stay readable in DUMP.partial."""

import os
import re
import signal
import subprocess
import sys
import time

import h5py
import pytest

import dumps
from conftest import PACKAGE

pytest.importorskip("diffusers")

STEPS = 400


def start(bundle, out, *options):
    command = [sys.executable, "-m", "h3diff_capture", "diffusers", bundle, "-o", out, "--steps", str(STEPS), *options]
    return subprocess.Popen(command, env={**os.environ, "PYTHONPATH": PACKAGE}, stderr=subprocess.PIPE, text=True)


def kill_at(process, step, number, wait=0.0):
    """Sends the signal once `step` has begun; returns what is left of stderr."""
    for line in process.stderr:
        if f"step {step} of" in line:
            time.sleep(wait)
            process.send_signal(number)
            break
    rest = process.stderr.read()
    process.wait()
    return rest


def check_partial(out, at_least):
    assert not os.path.exists(out)
    partial = out + ".partial"
    steps = [s[0] for s in dumps.table(partial, "steps")]
    assert steps == list(range(len(steps))) and at_least <= len(steps) < STEPS
    assert dumps.facts(partial)["finished"] == 0
    rows = dumps.rows(partial)
    first = {key[1:] for key in rows if key[0] == 0}
    with h5py.File(partial) as file:
        for step in steps:
            assert {key[1:] for key in rows if key[0] == step} == first
        for (step, probe, segment), row in rows.items():
            assert re.fullmatch(rb"[0-9a-f]{32}", row["digest"]), (step, probe)
            if row["level"] == b"full" and step in steps:
                assert file[f"tensors/{step}/{probe}/{segment}"].shape == (row["rows"], row["cols"])
            if row["sketch_k"]:
                assert row["sketch_row"] < len(file[f"sketches/k{row['sketch_k']}"])


def test_sigint(bundle, tmp_path):
    out = str(tmp_path / "d.h5")
    process = start(bundle, out)
    rest = kill_at(process, 3, signal.SIGINT)
    assert process.returncode == 5
    assert "interrupted" in rest and out + ".partial" in rest and "Traceback" not in rest
    check_partial(out, 2)


@pytest.mark.parametrize("wait", [0.0, 0.05, 0.13])
def test_sigkill(bundle, tmp_path, wait):
    out = str(tmp_path / "d.h5")
    process = start(bundle, out, "--capture", "stats,blocks.*=full")
    kill_at(process, 6, signal.SIGKILL, wait)
    check_partial(out, 5)
