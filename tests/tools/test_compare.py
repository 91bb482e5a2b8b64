import json
import os
import pty
import subprocess

import numpy as np
import pytest

import dumps
from conftest import BIN, check_width, h3diff, needs_torch, refused


def compare(reference, candidate, tmp_path, code, *options):
    record = tmp_path / "record.json"
    result = h3diff("compare", reference, candidate, "--json", record, *options, code=code)
    parsed = json.loads(record.read_text())
    assert parsed["exit_code"] == code
    check_width(result.stdout)
    return result.stdout, parsed


def test_equal_dumps_pass(dump, tmp_path):
    text, record = compare(dump, dump, tmp_path, 0)
    assert text.startswith("PASS ") and text.splitlines()[0].endswith("exit 0")
    assert record["verdict"] == "pass"
    assert record["first_difference"] is None and record["first_divergence"] is None
    assert record["coverage"] == {"compared": len(dumps.ROWS), "expected": len(dumps.ROWS)}


def spoil(probe, scale):
    def change(step, name, tensor):
        if name == probe:
            tensor *= 1 + scale * np.random.Generator(np.random.Philox(1)).standard_normal(tensor.shape).astype("f4")

    return change


def test_a_rounding_difference_is_within(dump, tmp_path):
    near = dumps.write(tmp_path / "near.h5", spoil("blocks.0.attn.q", 3e-7))
    text, record = compare(dump, near, tmp_path, 0)
    assert "within" in text and record["first_difference"]["probe"] == "blocks.0.attn.q"


def test_the_first_divergence_is_named_first(dump, tmp_path):
    def change(step, name, tensor):
        spoil("blocks.0.attn.q", 0.5)(step, name, tensor)
        spoil("pred.video", 0.5)(step, name, tensor)

    bad = dumps.write(tmp_path / "bad.h5", change)
    text, record = compare(dump, bad, tmp_path, 1)
    first = text.splitlines()[0]
    assert first.startswith("DIVERGED  blocks.0.attn.q") and first.endswith("exit 1")
    assert "allowed" in text and "relative L2" in text
    table = text[text.index("around it") :]
    assert "> " in table and "blocks.0.norm1" in table and "pred.video" in table
    divergence = record["first_divergence"]
    assert record["verdict"] == divergence["outcome"] == "diverged"
    assert divergence["probe"] == "blocks.0.attn.q" and divergence["segment"] == "video" and divergence["step"] == 0
    assert divergence["worst"] and divergence["worst"][0]["hex"]


def test_not_finite(dump, tmp_path):
    def change(step, name, tensor):
        if name == "video_patch_proj":
            tensor[3, 5] = np.nan

    text, record = compare(dump, dumps.write(tmp_path / "nan.h5", change), tmp_path, 1)
    assert text.startswith("NONFINITE  video_patch_proj")
    assert record["verdict"] == "nonfinite"
    assert "NaN" not in (tmp_path / "record.json").read_text().replace('"', "").split("reason")[0]


def test_other_inputs_are_input_drift(dump, tmp_path):
    text, record = compare(dump, dumps.write(tmp_path / "drift.h5", spoil("input.video", 0.1)), tmp_path, 1)
    assert text.startswith("INPUT DRIFT  input.video")
    assert record["verdict"] == "input_drift"


def test_missing_probes_are_not_a_pass(dump, tmp_path):
    part = dumps.write(tmp_path / "part.h5", rows=dumps.ROWS[:-2])
    text, record = compare(dump, part, tmp_path, 4)
    assert text.splitlines()[0].endswith("exit 4") and "PASS" not in text
    assert "not judged" in text and "pred.video" in text
    assert record["coverage"]["compared"] == len(dumps.ROWS) - 2
    # What was expected can be said.
    expected = tmp_path / "expected.txt"
    expected.write_text("# all but the end\nweights.*\ninput.*\nvideo_patch_proj\nblocks.0.*\n")
    compare(dump, part, tmp_path, 0, "--expect", expected)
    # What only the candidate has is told, not judged.
    compare(part, dump, tmp_path, 0)


def test_expect_file_is_read_with_care(dump, tmp_path):
    refused("compare", dump, dump, "--expect", tmp_path / "none.txt", code=3, says=["none.txt"])
    (tmp_path / "empty.txt").write_text("# nothing\n")
    refused("compare", dump, dump, "--expect", tmp_path / "empty.txt", code=3, says=["empty.txt"])


def test_factor_widens_the_tolerance(dump, tmp_path):
    bad = dumps.write(tmp_path / "bad.h5", spoil("blocks.0.attn.q", 1e-3))
    compare(dump, bad, tmp_path, 1)
    compare(dump, bad, tmp_path, 0, "--factor", 1e5)


def test_all_lists_every_probe(dump, tmp_path):
    text, _ = compare(dump, dump, tmp_path, 0, "--all")
    for _, probe, *_ in dumps.ROWS:
        assert probe in text


def test_json_to_standard_output_is_json_alone(dump):
    json.loads(h3diff("compare", dump, dump, "--json", "-").stdout)


def test_a_failure_leaves_a_record_too(dump, tmp_path):
    record = tmp_path / "record.json"
    refused("compare", dump, tmp_path / "none.h5", "--json", record, code=3, says=["none.h5"])
    assert json.loads(record.read_text())["exit_code"] == 3


def test_reports_that_cannot_be_written(dump, tmp_path):
    refused("compare", dump, dump, "--json", tmp_path / "no" / "r.json", code=5, says=["r.json"])
    refused("compare", dump, dump, "--json", "/dev/full", code=5, says=["/dev/full"])
    with open("/dev/full", "w") as full:
        result = subprocess.run([BIN / "h3diff", "compare", dump, dump], stdout=full, stderr=subprocess.PIPE, text=True)
    assert result.returncode == 5 and "standard output" in result.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.h5"]


@pytest.mark.parametrize("no_color, coloured", [("", True), ("1", False)])
def test_colour_only_on_a_terminal(dump, no_color, coloured):
    master, slave = pty.openpty()
    environment = {**os.environ, "NO_COLOR": no_color, "TERM": "xterm"}
    process = subprocess.Popen([BIN / "h3diff", "compare", dump, dump], stdout=slave, env=environment)
    os.close(slave)
    text = b""
    while True:
        try:
            part = os.read(master, 65536)
        except OSError:
            break
        if not part:
            break
        text += part
    assert process.wait() == 0
    assert (b"\x1b[" in text) == coloured
    assert b"PASS" in text


def test_text_from_a_dump_is_escaped(dump, tmp_path):
    hostile = dumps.write(tmp_path / "hostile.h5", facts={"case": "x\x1b[31mred\x07", "pipeline": "a\nb"})
    for words in (("compare", dump, hostile), ("compare", hostile, dump), ("inspect", hostile)):
        result = subprocess.run([BIN / "h3diff", *words], capture_output=True)
        assert result.returncode in (0, 1, 4)
        assert b"\x1b" not in result.stdout + result.stderr and b"\x07" not in result.stdout + result.stderr


@needs_torch
def test_two_runs_of_one_profile_are_bitwise(bundle, run_dump, tmp_path):
    again = tmp_path / "again.h5"
    h3diff("run", bundle, "--profile", "diffusers-f32", "--steps", 2, "-o", again)
    text, record = compare(run_dump, again, tmp_path, 0)
    assert record["first_difference"] is None and record["coverage"]["compared"] > 200
    assert all(probe["outcome"] == "bitwise" for probe in record["probes"])


@needs_torch
def test_padding_that_was_never_loaded_is_named(tmp_path):
    """The main job, small: random padding of the AdaLN projections against zeros."""
    for pad in ("zero", "random"):
        h3diff("case", "export", "tiny", "--layout", "comfy", "--curve", "65x8", "--pad-columns", 16, "--pad", pad, "-o", tmp_path / pad)  # fmt: skip
        h3diff("run", tmp_path / pad, "--layout", "comfy", "--profile", "diffusers-f32", "-o", tmp_path / f"{pad}.h5")
    text, record = compare(tmp_path / "zero.h5", tmp_path / "random.h5", tmp_path, 1)
    divergence = record["first_divergence"]
    assert divergence["probe"] == "weights.blocks.0.adaln_proj" and divergence["columns"] == [8, 15]
    assert "columns 8-15" in text.splitlines()[0]
    assert "blocks.0.adaln.shift_msa" in text
    assert "adaln_padding" in {hypothesis["kind"] for hypothesis in record["hypotheses"]}
    # The confirmation that the report proposes: those columns set to zero, and all is well.
    fixed = tmp_path / "fixed.h5"
    h3diff("run", tmp_path / "random", "--layout", "comfy", "--profile", "diffusers-f32", "--zero-columns",
           "*adaln_proj:8-16", "-o", fixed)  # fmt: skip
    compare(tmp_path / "zero.h5", fixed, tmp_path, 0)
