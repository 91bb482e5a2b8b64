import json

import pytest

from conftest import h3diff, refused


def test_list_and_its_record(tmp_path):
    text = h3diff("case", "list", "--json", tmp_path / "cases.json").stdout
    record = json.loads((tmp_path / "cases.json").read_text())
    names = [case["name"] for case in record["cases"]]
    assert {"tiny", "small", "block", "full"} <= set(names)
    for name in names:
        assert name in text


def test_show_lists_every_probe(tmp_path):
    text = h3diff("case", "show", "tiny", "--probes", "--json", tmp_path / "tiny.json").stdout
    record = json.loads((tmp_path / "tiny.json").read_text())
    probes = {probe["probe"]: probe for probe in record["probes"]}
    block = ["adaln." + m for m in ("shift_msa", "scale_msa", "gate_msa", "shift_mlp", "scale_mlp", "gate_mlp")]
    block += ["norm1", "mod_msa", "attn.q", "attn.k", "attn.v", "attn.q_norm", "attn.k_norm", "attn.q_rope",
              "attn.k_rope", "attn.sdpa", "attn.out_proj", "residual_msa", "norm2", "mod_mlp", "mlp.fc1", "mlp.act",
              "mlp.fc2", "out"]  # fmt: skip
    wanted = [f"blocks.{n}.{name}" for n in range(6) for name in block]
    wanted += ["input.video", "video_patch_proj", "audio_patch_proj", "condition_proj", "adaln.t_emb", "final.mod",
               "token_refiner.blocks.1.attn.sdpa", "pred.video", "pred.audio", "latent.video", "latent.audio"]  # fmt: skip
    for name in wanted:
        assert name in probes and name in text
    # 7 text, 6 audio and 48 video rows
    assert probes["blocks.0.out"]["rows"] == 61 and probes["blocks.0.out"]["columns"] == 84
    assert probes["blocks.0.attn.q"]["columns"] == 4 * 32
    assert probes["condition_proj"]["rows"] == 7
    assert probes["pred.audio"]["rows"] == 6


def test_probe_table_is_aligned():
    lines = h3diff("case", "show", "full", "--probes").stdout.splitlines()
    (head,) = [line for line in lines if line.split() == "probe op space rows columns dtype meaning".split()]
    for line in lines[lines.index(head) + 1 :]:
        assert len(line) <= 200
        assert line[head.index("meaning") - 1] == " " and line[head.index("meaning")] != " ", line


def test_a_case_file(tmp_path):
    record = tmp_path / "record.json"
    h3diff("case", "show", "tiny", "--json", record)
    case = json.loads(record.read_text())["case"]
    case["seed"] = 77
    (tmp_path / "mine.json").write_text(json.dumps(case))
    assert "seed 77" in h3diff("case", "show", tmp_path / "mine.json").stdout
    h3diff("case", "export", tmp_path / "mine.json", "--layout", "raw", "-o", tmp_path / "mine")
    assert (tmp_path / "mine" / "inputs.safetensors").exists()


@pytest.mark.parametrize("verb", [("show",), ("export", "--layout", "raw", "-o", "out")])
def test_unknown_case(verb, tmp_path):
    refused("case", verb[0], "tinny", *verb[1:], code=2, says=["tinny", "tiny"], cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "x", "no_such_key": 1}', "\xff"])
def test_broken_case_file(text, tmp_path):
    (tmp_path / "broken.json").write_text(text, encoding="latin-1")
    refused("case", "show", "./broken.json", code=3, says=["broken.json"], cwd=tmp_path)
    refused("case", "show", "./absent.json", code=3, says=["absent.json"], cwd=tmp_path)


@pytest.mark.parametrize("layout", ["raw", "comfy", "diffusers"])
def test_export_in_each_layout_is_what_inspect_says(layout, tmp_path):
    out = tmp_path / layout
    h3diff("case", "export", "tiny", "--layout", layout, "--shard-size", "256KiB", "--seed", 5, "-o", out)
    shards = list((out / "transformer").glob("*.safetensors"))
    assert len(shards) > 1
    assert list((out / "transformer").glob("*.index.json"))
    record = tmp_path / "record.json"
    h3diff("inspect", out, "--layout", layout, "--json", record)
    found = json.loads(record.read_text())
    assert found["kind"] == "bundle" and found["layout"] == layout and found["seed"] == 5
    assert found["rows"] == 61 and found["shape"]["hidden_size"] == 84


def test_export_refuses_what_exists(tmp_path, bundle):
    before = sorted(p.name for p in bundle.rglob("*"))
    refused("case", "export", "tiny", "--layout", "raw", "-o", bundle, code=2, says=[bundle, "exists"])
    assert sorted(p.name for p in bundle.rglob("*")) == before


def test_export_overwrites_when_told(tmp_path):
    out = tmp_path / "b"
    for layout in ("diffusers", "raw"):
        h3diff("case", "export", "tiny", "--layout", layout, "--overwrite", "-o", out)
    assert json.loads(h3diff("inspect", out, "--layout", "raw", "--json", "-").stdout)["layout"] == "raw"


def test_export_curve_needs_another_layout(tmp_path):
    refused("case", "export", "tiny", "--layout", "diffusers", "--curve", "65x8", "-o", tmp_path / "x", code=2, says=["curve"])
    refused("case", "export", "tiny", "--layout", "comfy", "--curve", "65x8", "--pad-columns", 4, "-o", tmp_path / "x",
            code=2, says=["pad"])  # fmt: skip
    assert list(tmp_path.iterdir()) == []


def test_export_on_a_full_disk(tmp_path):
    """A file size limit stands in for the full disk: write() fails the same way."""
    import resource
    import signal

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))

    out = tmp_path / "full"
    refused("case", "export", "tiny", "--layout", "diffusers", "-o", out, code=5, says=["full"], preexec_fn=limit)
    assert not out.exists()


def test_export_into_a_missing_folder(tmp_path):
    refused("case", "export", "tiny", "--layout", "raw", "-o", tmp_path / "no" / "b", code=5, says=[tmp_path / "no"])
