import json
import os
import signal
import subprocess
import time

import h5py
import pytest

from conftest import BIN, h3diff, needs_torch, refused

pytestmark = needs_torch


def steps_of(path):
    return [step["step"] for step in json.loads(h3diff("inspect", path, "--json", "-").stdout)["steps"]]


def test_a_run_writes_a_finished_dump(run_dump):
    record = json.loads(h3diff("inspect", run_dump, "--json", "-").stdout)
    assert record["finished"] and record["facts"]["profile"] == "diffusers-f32"
    assert [step["step"] for step in record["steps"] if step["step"] >= 0] == [0, 1]
    assert record["levels"]["full"] > 0


def test_run_says_what_it_wrote(bundle, tmp_path):
    record = tmp_path / "r.json"
    text = h3diff("run", bundle, "--profile", "diffusers-bf16", "--steps", 1, "--json", record, "-o", tmp_path / "d.h5").stdout
    assert str(tmp_path / "d.h5") in text
    assert json.loads(record.read_text())["steps"] == 1


@pytest.mark.parametrize(
    "words, code, says",
    [
        (("nothing", "--profile", "diffusers-f32"), 2, ["nothing"]),
        (("tiny", "--profile", "fast"), 2, ["fast", "diffusers-f32"]),
        (("tiny", "--profile", "diffusers-f32", "--capture", "blocks.77.*=full"), 2, ["blocks.77.*"]),
        (("tiny", "--profile", "diffusers-f32", "--capture", "everything"), 2, ["everything"]),
        (("tiny", "--profile", "diffusers-f32", "--zero-columns", "nowhere:0-8"), 2, ["nowhere"]),
        (("tiny", "--profile", "diffusers-f32", "--zero-columns", "*adaln_proj"), 2, ["adaln_proj"]),
        (("tiny", "--profile", "diffusers-f32", "--device", "tpu"), 2, ["tpu"]),
        (("tiny", "--profile", "diffusers-f32", "--device", "cuda:63"), 5, ["cuda:63"]),
        (("tiny", "--profile", "diffusers-f32", "--threads", "0"), 2, ["--threads"]),
        (("tiny", "--profile", "diffusers-f32", "--steps", "-1"), 2, ["--steps"]),
    ],
)
def test_wrong_usage(words, code, says, tmp_path):
    refused("run", *words, "-o", "out.h5", code=code, says=says, cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_output_that_exists_is_left_alone(bundle, tmp_path):
    out = tmp_path / "mine.h5"
    out.write_text("precious")
    words = ("run", bundle, "--profile", "diffusers-f32", "--steps", 1, "-o", out)
    refused(*words, code=2, says=["mine.h5", "exists"])
    assert out.read_text() == "precious" and len(list(tmp_path.iterdir())) == 1
    h3diff(*words, "--overwrite")
    assert steps_of(out)[-1] == 0


def test_output_into_a_missing_folder(bundle, tmp_path):
    refused("run", bundle, "--profile", "diffusers-f32", "-o", tmp_path / "no" / "d.h5", code=5, says=["d.h5"])


def test_full_disk(bundle, tmp_path):
    import resource

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))

    out = tmp_path / "d.h5"
    refused("run", bundle, "--profile", "diffusers-f32", "-o", out, code=5, says=["d.h5"], preexec_fn=limit)
    assert not out.exists()


def start_long_run(bundle, out):
    process = subprocess.Popen(
        [BIN / "h3diff", "run", bundle, "--profile", "diffusers-f32", "--steps", "400", "-o", out],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    partial = out.with_name(out.name + ".partial")
    size = 0
    for _ in range(600):  # until a few steps have been flushed
        time.sleep(0.1)
        size = partial.stat().st_size if partial.exists() else 0
        if size > 3_000_000 or process.poll() is not None:
            break
    assert process.poll() is None, process.communicate()
    return process, partial


def check_partial(out, partial):
    assert not out.exists() and partial.exists()
    steps = [step for step in steps_of(partial) if step >= 0]
    assert steps and steps == list(range(len(steps))) and len(steps) < 400
    assert "did not finish" in h3diff("inspect", partial).stdout
    with h5py.File(partial, "r") as file:
        assert set(steps) <= set(file["index"]["step"])


def test_sigint_keeps_the_finished_steps(bundle, tmp_path):
    out = tmp_path / "long.h5"
    process, partial = start_long_run(bundle, out)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "interrupted" in errors and str(partial) in errors
    check_partial(out, partial)


def test_sigkill_keeps_the_finished_steps(bundle, tmp_path):
    out = tmp_path / "long.h5"
    process, partial = start_long_run(bundle, out)
    process.kill()
    process.wait()
    assert process.returncode == -signal.SIGKILL
    check_partial(out, partial)
    # A later run of the same name is not hindered by what the killed one left.
    h3diff("run", bundle, "--profile", "diffusers-f32", "--steps", 1, "-o", out)
    assert steps_of(out)[-1] == 0 and not partial.exists()
    assert not os.path.exists(str(out) + ".partial")
