import json

from conftest import check_width, h3diff, needs_torch, refused


def test_a_dump_by_content_not_by_name(dump, tmp_path):
    odd_name = tmp_path / "weights.safetensors"
    dump.rename(odd_name)
    text = h3diff("inspect", odd_name).stdout
    assert "index rows" in text and "blocks.*.attn.q" in text
    check_width(text)


def test_statistics_of_some_probes(dump):
    text = h3diff("inspect", dump, "--probe", "blocks.0.*").stdout
    assert "blocks.0.attn.q" in text and "pred.video" not in text and "8x128" in text
    refused("inspect", dump, "--probe", "blocks.9.*", code=2, says=["blocks.9.*"])
    record = json.loads(h3diff("inspect", dump, "--probe", "blocks.0.attn.q", "--json", "-").stdout)
    assert [row["probe"] for row in record["index"]] == ["blocks.0.attn.q"]
    assert record["index"][0]["rows"] == 8 and record["index"][0]["absmax"] > 1


@needs_torch
def test_a_run(run_dump):
    text = h3diff("inspect", run_dump).stdout
    for word in ("dispatch", "sigma video", "profile", "diffusers-f32", "blocks.*.attn.sdpa"):
        assert word in text


def test_a_bundle_and_its_parts(bundle):
    assert "bundle, layout diffusers" in h3diff("inspect", bundle).stdout
    assert "checkpoint, layout diffusers" in h3diff("inspect", bundle / "transformer").stdout


def test_raw_or_comfy_is_said_not_guessed(tmp_path):
    h3diff("case", "export", "tiny", "--layout", "comfy", "-o", tmp_path / "b")
    (tmp_path / "b" / "case.json").unlink()
    text = h3diff("inspect", tmp_path / "b" / "transformer").stdout
    assert "raw or comfy" in text and "--layout" in text
    assert "layout comfy" in h3diff("inspect", tmp_path / "b" / "transformer", "--layout", "comfy").stdout


def test_what_is_no_file_of_ours(tmp_path):
    refused("inspect", tmp_path / "none", code=3, says=["none"])
    (tmp_path / "empty").write_bytes(b"")
    refused("inspect", tmp_path / "empty", code=3, says=["empty"])
    (tmp_path / "text").write_text("hello, this is a text and nothing else")
    refused("inspect", tmp_path / "text", code=3, says=["text"])
    (tmp_path / "folder").mkdir()
    refused("inspect", tmp_path / "folder", code=3, says=["folder"])
