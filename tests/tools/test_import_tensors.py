"""`import` of tensors and `export`: a port whose tensors were saved by plain code of its own."""

import csv
import json
import struct

import numpy as np
import pytest

from conftest import h3diff, needs_torch, refused

PROFILE = "diffusers-f32"


def compare(reference, candidate, tmp_path, code, *words):
    record = tmp_path / "record.json"
    h3diff("compare", reference, candidate, "--json", record, *words, code=code)
    return json.loads(record.read_text())


def dump_json(folder, **content):
    (folder / "dump.json").write_text(json.dumps(content))


# A port outside this project's code: diffusers with plain torch hooks.

QKV = ["to_q", "to_k", "to_v"]
PORT_MAP = {
    "inherits": "diffusers",
    "tensors": [
        {"name": "transformer_blocks.{n}.attn.qkv", "probe": "blocks.{n}.attn." + name,
         "transforms": [{"op": "transpose", "order": [1, 0]}, {"op": "slice", "axis": 1, "part": part, "of": 3}]}
        for part, name in enumerate("qkv")
    ],
}  # fmt: skip


@pytest.fixture(scope="session")
def port(bundle, tmp_path_factory):
    """Every module's output under diffusers' own name; a block's q, k and v fused to one transposed tensor."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("diffusers")
    from diffusers import MiniMaxH3Transformer3DModel
    from safetensors.torch import load_file, save_file

    torch.set_num_threads(1)
    model = MiniMaxH3Transformer3DModel.from_pretrained(bundle / "transformer", torch_dtype=torch.float32).eval()
    with torch.no_grad():
        for value in (*model.parameters(), *model.buffers()):
            value.data = value.data.clone()  # a mapped file's alignment changes what matrix kernels compute
    saved = {}

    def hook(name):
        def keep(module, arguments, output):
            if isinstance(output, torch.Tensor):
                saved[name] = output.detach().clone()

        return keep

    for name, module in model.named_modules():
        if name:
            module.register_forward_hook(hook(name))
    inputs = {name: value.clone() for name, value in load_file(bundle / "inputs.safetensors").items()}
    with torch.no_grad():
        model(**inputs)
    for n in range(len(model.transformer_blocks)):
        prefix = f"transformer_blocks.{n}.attn."
        fused = torch.cat([saved.pop(prefix + part)[0] for part in QKV], dim=1)
        saved[prefix + "qkv"] = fused.T.contiguous()
    saved |= {name: inputs[name] for name in ("hidden_states", "audio_hidden_states", "encoder_hidden_states", "timestep",
                                               "timestep_indices", "token_tags", "position_ids")}  # fmt: skip
    folder = tmp_path_factory.mktemp("port")
    save_file({name: tensor.contiguous() for name, tensor in saved.items()}, folder / "port.safetensors")
    (folder.parent / "port-map.json").write_text(json.dumps(PORT_MAP))
    return folder, folder.parent / "port-map.json"


@pytest.fixture(scope="session")
def reference(bundle, tmp_path_factory):
    path = tmp_path_factory.mktemp("reference") / "full.h5"
    h3diff("run", bundle, "--profile", PROFILE, "--capture", "full", "-o", path)
    return path


@needs_torch
def test_a_port_outside_our_code_compares_bitwise(bundle, port, reference, tmp_path):
    folder, port_map = port
    done = tmp_path / "import.json"
    h3diff("import", folder, "--bundle", bundle, "--map", port_map, "-o", tmp_path / "port.h5", "--json", done)
    imported = json.loads(done.read_text())
    # The many taps are compared with the full reference: what the port does not show is not a pass by itself.
    record = compare(reference, tmp_path / "port.h5", tmp_path, 4)
    compared = [probe for probe in record["probes"] if probe["outcome"] not in ("missing", "extra")]
    print(f"{imported['probes']} probes imported, {len(compared)} rows compared, "
          f"{sum(p['outcome'] == 'bitwise' for p in compared)} bitwise; not imported {imported['not_imported']}")  # fmt: skip
    assert len(compared) > 150 and {probe["outcome"] for probe in compared} == {"bitwise"}
    fused = {f"blocks.{n}.attn.{part}" for n in range(6) for part in "qkv"}
    assert fused <= {probe["probe"] for probe in compared}
    assert {"blocks.0.mlp.fc1", "blocks.5.adaln.gate_mlp", "final.adaln.scale", "pred.video"} <= {p["probe"] for p in compared}
    expected = tmp_path / "expected.txt"
    expected.write_text("\n".join(sorted({probe["probe"] for probe in compared})))
    compare(reference, tmp_path / "port.h5", tmp_path, 0, "--expect", expected)


@needs_torch
def test_a_wrong_map_is_found_by_compare(bundle, port, reference, tmp_path):
    swapped = json.loads(json.dumps(PORT_MAP).replace("attn.q\"", "attn.x\"").replace("attn.k\"", "attn.q\"").replace("attn.x\"", "attn.k\""))
    (tmp_path / "swapped.json").write_text(json.dumps(swapped))
    h3diff("import", port[0], "--bundle", bundle, "--map", tmp_path / "swapped.json", "-o", tmp_path / "swapped.h5")
    record = compare(reference, tmp_path / "swapped.h5", tmp_path, 1)
    assert record["first_divergence"]["probe"] in ("blocks.0.attn.q", "blocks.0.attn.k")


# Ten taps.

TAPS = ["input.video", "input.audio", "input.text", "input.timestep", "video_patch_proj", "blocks.0.out", "blocks.2.out",
        "blocks.5.out", "pred.video", "pred.audio"]  # fmt: skip


@pytest.fixture(scope="session")
def exported(reference, tmp_path_factory):
    path = tmp_path_factory.mktemp("exported") / "expected.safetensors"
    h3diff("export", reference, "--as", "safetensors", "-o", path)
    return path


def taps_of(exported, folder, change=None):
    from safetensors.numpy import load_file, save_file

    tensors = {k: v for k, v in load_file(exported).items() if k.split("/")[1:2] and k.split("/")[1] in TAPS}
    assert len({k.split("/")[1] for k in tensors}) == 10
    if change:
        change(tensors)
    folder.mkdir()
    save_file(tensors, folder / "taps.safetensors")
    return folder


@needs_torch
def test_ten_taps_are_compared_on_ten(bundle, reference, exported, tmp_path):
    taps = taps_of(exported, tmp_path / "taps")
    h3diff("import", taps, "--bundle", bundle, "-o", tmp_path / "taps.h5")
    record = compare(reference, tmp_path / "taps.h5", tmp_path, 4)
    assert record["first_divergence"] is None
    (tmp_path / "expect.txt").write_text("\n".join(TAPS))
    record = compare(reference, tmp_path / "taps.h5", tmp_path, 0, "--expect", tmp_path / "expect.txt")
    compared = [p for p in record["probes"] if p["outcome"] == "bitwise"]
    assert record["coverage"] == {"compared": 10, "expected": 10}
    assert {p["probe"] for p in compared} == set(TAPS)


@needs_torch
def test_ten_taps_name_what_lies_between(bundle, reference, exported, tmp_path):
    def spoil(tensors):
        for name in tensors:
            if name.split("/")[1] in ("blocks.2.out", "blocks.5.out", "pred.video", "pred.audio"):
                tensors[name] = tensors[name] * np.float32(1.5)

    taps = taps_of(exported, tmp_path / "taps", spoil)
    h3diff("import", taps, "--bundle", bundle, "-o", tmp_path / "taps.h5")
    divergence = compare(reference, tmp_path / "taps.h5", tmp_path, 1)["first_divergence"]
    assert divergence["probe"] == "blocks.2.out" and divergence["last_good"].startswith("blocks.0.out")
    assert any(name.startswith("blocks.1.") for name in divergence["ops_between"]) and divergence["probe_next"]


# Export.


@needs_torch
def test_export_round_trip(bundle, reference, exported, tmp_path):
    from safetensors import safe_open

    with safe_open(exported, "np") as file:
        names = set(file.keys())
        described = json.loads(file.metadata()["tensors"])
    assert "step0/blocks.0.attn.q/video" in names and "weights.blocks.0.norm1" in names
    assert described["step0/blocks.0.attn.q/video"]["dtype"] == "float32"
    folder = tmp_path / "all"
    folder.mkdir()
    (folder / "all.safetensors").write_bytes(exported.read_bytes())
    h3diff("import", folder, "--bundle", bundle, "-o", tmp_path / "again.h5")
    record = compare(reference, tmp_path / "again.h5", tmp_path, 0)
    assert {probe["outcome"] for probe in record["probes"]} == {"bitwise"}


@needs_torch
def test_export_csv(reference, tmp_path):
    h3diff("export", reference, "--as", "csv", "--probe", "blocks.0.attn.*", "-o", tmp_path / "s.csv")
    with open(tmp_path / "s.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows and all(row["probe"].startswith("blocks.0.attn.") and float(row["l2"]) > 0 for row in rows)
    assert all(None not in row and None not in row.values() for row in rows)


def test_export_refuses(dump, tmp_path):
    out = tmp_path / "out"
    refused("export", dump, "--as", "csv", "--probe", "nothing.*", "-o", out, code=2, says=["nothing.*"])
    refused("export", tmp_path / "none.h5", "--as", "csv", "-o", out, code=3, says=["none.h5"])
    refused("export", dump, "--as", "csv", "-o", tmp_path / "no" / "out", code=5, says=["cannot be written"])
    refused("export", dump, "--as", "csv", "-o", dump, code=2, says=["exists already"])
    assert sorted(p.name for p in tmp_path.iterdir()) == ["small.h5"]


# What dump.json and the file formats say.


def tensor(rows, cols, seed=0, dtype=np.float32):
    return np.random.Generator(np.random.Philox(seed)).standard_normal((rows, cols)).astype(dtype)


def index_rows(path):
    import h5py

    with h5py.File(path) as file:
        return {(r["probe"].decode(), r["segment"].decode()): r for r in file["index"][:]}


@pytest.fixture
def packed_rows(bundle):
    from safetensors.numpy import load_file

    return len(load_file(bundle / "inputs.safetensors")["token_tags"])


def digests(path):
    return {key: row["digest"] for key, row in index_rows(path).items()}


def test_formats_and_transforms_agree(bundle, packed_rows, tmp_path):
    """One tensor in many forms gives one digest."""
    value = tensor(packed_rows, 84)
    found = []

    def imported(name, write, map_entry=None, **description):
        folder = tmp_path / name
        folder.mkdir()
        write(folder)
        words = []
        if map_entry:
            (tmp_path / f"{name}.json").write_text(json.dumps({"tensors": [map_entry]}))
            words = ["--map", tmp_path / f"{name}.json"]
        if description:
            dump_json(folder, **description)
        h3diff("import", folder, "--bundle", bundle, *words, "-o", tmp_path / f"{name}.h5")
        found.append(digests(tmp_path / f"{name}.h5"))
        assert found[-1] == found[0], name

    def entry(*transforms, **more):
        return {"name": "t", "probe": "blocks.0.norm1", "transforms": list(transforms), **more}

    save = lambda array, name="blocks.0.norm1": lambda folder: np.save(folder / f"{name}.npy", array)
    imported("plain", save(value))
    imported("fortran", save(np.asfortranarray(value)))
    imported("batch", save(value[None]))
    imported("raw", lambda f: (f / "x.bin").write_bytes(value.tobytes()),
             tensors={"blocks.0.norm1": {"file": "x.bin", "dtype": "float32", "shape": list(value.shape)}})  # fmt: skip
    imported("transposed", save(value.T.copy(), "t"), entry({"op": "transpose"}))
    imported("padded", save(np.pad(value, ((0, 5), (0, 0))), "t"), entry({"op": "crop", "axis": 0, "to": "rows"}))
    imported("padded-front", save(np.pad(value, ((0, 0), (3, 0))), "t"),
             entry({"op": "crop", "axis": 1, "to": "cols", "from": "end"}))  # fmt: skip
    imported("negated", save(-value, "t"), entry({"op": "negate"}))
    imported("scaled", save(value * 4, "t"), entry({"op": "scale", "by": 0.25}))
    imported("halves", save(np.concatenate([value[:, 42:], value[:, :42]], 1), "t"),
             entry({"op": "reorder", "axis": 1, "blocks": [1, 0]}))  # fmt: skip
    order = np.random.Generator(np.random.Philox(9)).permutation(packed_rows)
    inverse = np.argsort(order)

    def shuffled(folder):
        np.save(folder / "t.npy", value[order])
        np.save(folder / "order.npy", inverse)

    imported("shuffled", shuffled, entry({"op": "reorder", "axis": 0, "tensor": "order"}))
    imported("listed", save(value[order], "t"), entry({"op": "reorder", "axis": 0, "order": inverse.tolist()}))
    imported("sliced", save(np.concatenate([value + 1, value, value - 1], 1), "t"),
             entry({"op": "slice", "axis": 1, "part": 1, "of": 3}))  # fmt: skip
    imported("bounds", save(np.concatenate([value + 1, value], 1), "t"),
             entry({"op": "slice", "axis": 1, "begin": 84, "end": 168}))  # fmt: skip
    by_head = np.stack([value.reshape(-1, 4, 21), value.reshape(-1, 4, 21) + 1], 2).reshape(len(value), -1)
    imported("by-head", save(by_head, "t"), entry({"op": "slice", "axis": 1, "part": 0, "of": 2, "groups": 4}))
    imported("reshaped", save(value.reshape(-1), "t"), entry({"op": "reshape", "shape": [-1, "hidden_size"]}))
    imported("cast", save(value.astype(np.float64), "t"), entry({"op": "cast", "dtype": "float32"}))

    def shards(folder):
        np.save(folder / "r0.npy", value[:, :40])
        np.save(folder / "r1.npy", value[:, 40:])

    imported("tensor-parallel", shards,
             {"names": ["r0", "r1"], "probe": "blocks.0.norm1", "transforms": [{"op": "concatenate", "axis": 1}]})  # fmt: skip

    def partial_sums(folder):
        half = np.ldexp(np.round(np.ldexp(value, 8)), -8).astype(np.float32)  # exact differences
        np.save(folder / "r0.npy", half)
        np.save(folder / "r1.npy", value - half)

    imported("added", partial_sums, {"names": ["r0", "r1"], "probe": "blocks.0.norm1", "transforms": [{"op": "add"}]})

    def two_files(folder):
        (folder / "step0").mkdir()
        np.save(folder / "step0" / "blocks.0.norm1.npy", value)

    imported("step-folder", two_files)


def bf16(values):
    return (values.view(np.uint32) & 0xFFFF0000).view(np.float32)


def test_stored_and_compute_dtype_are_two_facts(bundle, packed_rows, tmp_path):
    rounded = bf16(tensor(packed_rows, 84))
    mixed = rounded.copy()
    mixed[-1, -1] = np.float32(1) / 3

    def imported(name, value, **description):
        folder = tmp_path / name
        folder.mkdir()
        np.save(folder / "blocks.0.norm1.npy", value)
        dump_json(folder, **description)
        text = h3diff("import", folder, "--bundle", bundle, "-o", tmp_path / f"{name}.h5").stdout
        return text, index_rows(tmp_path / f"{name}.h5")

    _, wide = imported("wide", rounded)
    assert {r["dtype"] for r in wide.values()} == {b"float32"}
    _, narrow = imported("narrow", rounded, compute_dtype="bfloat16")
    assert {(r["dtype"], r["stored_dtype"]) for r in narrow.values()} == {(b"bfloat16", b"float32")}
    # The bytes of the same values held as bfloat16.
    folder = tmp_path / "held"
    folder.mkdir()
    (folder / "x.bin").write_bytes((rounded.view(np.uint32) >> 16).astype("<u2").tobytes())
    dump_json(folder, tensors={"blocks.0.norm1": {"file": "x.bin", "dtype": "bfloat16", "shape": list(rounded.shape)}})
    h3diff("import", folder, "--bundle", bundle, "-o", tmp_path / "held.h5")
    assert digests(tmp_path / "held.h5") == {key: row["digest"] for key, row in narrow.items()}
    # Lossless by segment; what is not is told and kept.
    text, both = imported("mixed", mixed, tensors={"blocks.0.norm1": {"compute_dtype": "bfloat16"}})
    assert both["blocks.0.norm1", "video"]["dtype"] == b"float32"
    assert both["blocks.0.norm1", "text"]["dtype"] == b"bfloat16"
    assert "1 segment holds values that the compute dtype has not" in " ".join(text.split())


def test_dump_json_says_what_ran(bundle, packed_rows, tmp_path):
    folder = tmp_path / "f"
    folder.mkdir()
    for probe in ("blocks.0.norm1", "blocks.0.out"):
        np.save(folder / f"{probe}.npy", tensor(packed_rows, 84))
    dump_json(
        folder, pipeline="port", step=0, order=["blocks.0.out", "blocks.0.norm1"], facts={"device": "metal"},
        sigmas=[{"step": 0, "sigma_video": 1.0, "sigma_audio": 0.5}],
        dispatch=[{"op": "attention", "implementation": "flash", "calls": 3}],
        unobserved=[{"probe": "*.mlp.act", "reason": "fused"}],
    )  # fmt: skip
    h3diff("import", folder, "--bundle", bundle, "-o", tmp_path / "d.h5")
    record = json.loads(h3diff("inspect", tmp_path / "d.h5", "--json", "-").stdout)
    assert record["facts"]["pipeline"] == "port" and record["facts"]["device"] == "metal"
    import h5py

    with h5py.File(tmp_path / "d.h5") as file:
        assert file["index"][0]["probe"] == b"blocks.0.out"
        assert file["steps"][0]["sigma_audio"] == 0.5
        assert file["dispatch"][0]["implementation"] == b"flash" and file["unobserved"][0]["reason"] == b"fused"


# Bad input: one sentence each, and nothing under the final name.


class Bad:
    def __init__(self, bundle, tmp_path, rows):
        self.bundle, self.path, self.rows = bundle, tmp_path, rows
        self.folder = tmp_path / "in"
        self.folder.mkdir()

    def save(self, name="t", rows=None, cols=84, **more):
        np.save(self.folder / f"{name}.npy", tensor(rows or self.rows, cols, **more))
        return self

    def refused(self, *says, code=3, entries=None, map_words=None, **description):
        words = []
        if entries is not None:
            (self.path / "map.json").write_text(json.dumps({"tensors": entries}))
            words = ["--map", self.path / "map.json"]
        if description:
            dump_json(self.folder, **description)
        before = sorted(p.name for p in self.path.iterdir())
        refused("import", self.folder, "--bundle", self.bundle, *(map_words or words), "-o", self.path / "o.h5", code=code, says=says)
        assert sorted(p.name for p in self.path.iterdir()) == before


@pytest.fixture
def bad(bundle, tmp_path, packed_rows):
    return Bad(bundle, tmp_path, packed_rows)


PROBE = "blocks.0.norm1"


@pytest.mark.parametrize(
    "entry, says",
    [
        ({"name": "absent", "probe": PROBE}, ["map.json", "tensors[0]", "absent", "does not hold"]),
        ({"names": ["t", "absent"], "probe": PROBE, "transforms": [{"op": "add"}]}, ["absent", "does not hold"]),
        ({"names": ["t", "t"], "probe": PROBE}, ["concatenate or add"]),
        ({"name": "t", "probe": "blocks.77.norm1"}, ["blocks.77.norm1", "does not have"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "transpose"}]}, ["is not the probe's"]),
        ({"name": "t", "probe": "blocks.0.attn.q"}, ["is not the probe's"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "reshape", "shape": [5, 5]}]}, ["does not reshape"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "slice", "axis": 4, "part": 0, "of": 3}]}, ["axis 4"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "slice", "axis": 1, "part": 0, "of": 5}]}, ["does not split"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "slice", "axis": 1, "begin": 80, "end": 90}]}, ["outside axis 1"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "crop", "axis": 0, "to": 100000}]}, ["cannot be cropped"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "reorder", "axis": 0, "tensor": "o"}]}, ["row order o is absent"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "reorder", "axis": 0, "order": [0, 0]}]}, ["permutation"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "rotate"}]}, ["rotate", "known are"]),
        ({"name": "t", "probe": PROBE, "transforms": [{"op": "negate", "by": 2}]}, ["by", "not a known key"]),
        ({"name": "t", "probe": PROBE, "segment": "cond_audio"}, ["no segment cond_audio"]),
        ({"name": "t", "probe": PROBE, "guess": "its shape"}, ["still a guess"]),
        ({"name": "t", "probe": PROBE, "compute_dtype": "int8"}, ["int8", "no floating dtype"]),
        ({"name": "b{n}", "probe": PROBE}, ["{n}"]),
        ({"name": "t"}, ["probe"]),
    ],
)  # fmt: skip
def test_bad_maps(bad, entry, says):
    bad.save().refused(*says, entries=[entry])


def test_two_onto_one(bad):
    bad.save("a").save("b", seed=1).refused("a and b", "both mapped onto", entries=[{"name": n, "probe": PROBE} for n in "ab"])


def test_unknown_and_cyclic_maps(bad):
    bad.save().refused("nonesuch", "diffusers", code=2, map_words=["--map", "nonesuch"])
    (bad.path / "m.json").write_text(json.dumps({"inherits": "nonesuch"}))
    bad.refused("m.json", "nonesuch", map_words=["--map", bad.path / "m.json"])
    (bad.path / "m.json").write_text(json.dumps({"inherits": str(bad.path / "m.json")}))
    bad.refused("inherits itself", map_words=["--map", bad.path / "m.json"])


def test_nothing_is_mapped(bad):
    bad.save().refused("none of its 1 tensors is mapped")


@pytest.mark.parametrize(
    "description, says",
    [
        (dict(tensors={"t": {"dtype": "bfloat16"}}), ["dump.json", "bfloat16", "contradicts"]),
        (dict(tensors={"t": {"shape": [1, 2]}}), ["dump.json", "[1,2]", "contradicts"]),
        (dict(tensors={"u": {"dtype": "float32"}}), ["dump.json", "u", "does not hold"]),
        (dict(order=["t", "u"]), ["order", "u"]),
        (dict(order=["t", "t"]), ["twice"]),
        (dict(compute_dtype="float31"), ["float31"]),
        (dict(sigmas=[{"step": 5, "sigma_video": 1, "sigma_audio": 1}]), ["step 5"]),
        (dict(sigmas=[{"step": 0}]), ["missing"]),
        (dict(colour="red"), ["colour"]),
        (dict(facts={"num_layers": 3}), ["num_layers"]),
        (dict(tensors={"t": {"file": "../x.bin"}}), ["without '/'"]),
        (dict(tensors={"t": {"step": -1}}), ["step -1", "no weight"]),
    ],
)
def test_bad_dump_json(bad, description, says):
    bad.save().refused(*says, entries=[{"name": "t", "probe": PROBE}], **description)


def test_raw_files(bad):
    (bad.folder / "t.bin").write_bytes(b"\0" * 10)
    bad.refused("t.bin", "dtype and shape")
    dump_json(bad.folder, tensors={"t": {"dtype": "float32", "shape": [2, 2]}})
    bad.refused("t.bin", "10 bytes long", "needs 16")


def npy(header, data=b"", version=1):
    text = header.encode()
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


@pytest.mark.parametrize(
    "content, says",
    [
        (b"not an array at all", ["no .npy file"]),
        (npy("{}", version=9), ["version 9"]),
        (b"\x93NUMPY\x01\x00\xff\xff{}", ["claims a header of 65535"]),
        (npy("{'descr': '<f4', 'shape': (2,)}"), ["dictionary"]),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}"), ["dictionary"]),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }", b"\0" * 7), ["7 bytes of data", "need 8"]),
        (npy("{'descr': '<f4', 'fortran_order': False, 'shape': (4611686018427387904, 16), }"), ["overflows"]),
        (npy("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", b"\0" * 8), ["big-endian"]),
        (npy("{'descr': '|O', 'fortran_order': False, 'shape': (2,), }", b"\0" * 8), ["Python objects"]),
        (npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }", b"\0" * 8), ["structure"]),
        (npy("{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }", b"\0" * 8), ["<c8"]),
        (npy("{'descr': '|V2', 'fortran_order': False, 'shape': (1,), }", b"\0" * 2), ["must say their dtype"]),
    ],
)
def test_bad_npy(bad, content, says):
    (bad.folder / "t.npy").write_bytes(content)
    bad.refused("t.npy", *says)


def test_import_usage(bad, bundle, tmp_path):
    bad.save(PROBE)
    refused("import", bad.folder, "-o", tmp_path / "o.h5", code=2, says=["--bundle"])
    refused("import", bad.folder, "--propose-map", "-o", tmp_path / "o.json", code=2, says=["--like"])
    (tmp_path / "o.h5").write_text("mine")
    refused("import", bad.folder, "--bundle", bundle, "-o", tmp_path / "o.h5", code=2, says=["o.h5"])
    assert (tmp_path / "o.h5").read_text() == "mine"


# The draft of a map.


@needs_torch
def test_a_proposed_map_is_a_draft(bundle, port, reference, tmp_path):
    from safetensors.numpy import load_file, save_file

    saved = load_file(port[0] / "port.safetensors")
    anonymous = {
        "n00_norm": saved["transformer_blocks.0.norm1"],
        "n01_qkv": saved["transformer_blocks.0.attn.qkv"],
        "n02_out": np.ascontiguousarray(saved["transformer_blocks.0"][0].T),
        "proj_in": saved["proj_in"],
        "blocks.1.norm1": saved["transformer_blocks.1.norm1"],
        "zz": np.zeros((3, 5), np.float32),
    }
    folder = tmp_path / "in"
    folder.mkdir()
    save_file(anonymous, folder / "t.safetensors")
    draft = tmp_path / "draft.json"
    text = h3diff("import", folder, "--propose-map", "--like", reference, "-o", draft).stdout
    assert "nothing was imported" in text
    entries = json.loads(draft.read_text())["tensors"]
    assert all(entry["guess"] for entry in entries)
    found = {}
    for entry in entries:
        found.setdefault(entry["name"], []).append(entry.get("probe"))
    assert found["n00_norm"] == ["blocks.0.norm1"] and found["n02_out"] == ["blocks.0.out"]
    assert found["n01_qkv"] == ["blocks.0.attn.q", "blocks.0.attn.k", "blocks.0.attn.v"]
    assert found["proj_in"] == ["video_patch_proj"] and found["blocks.1.norm1"] == ["blocks.1.norm1"]
    assert found["zz"] == [None]
    refused("import", folder, "--bundle", bundle, "--map", draft, "-o", tmp_path / "o.h5", code=3, says=["still a guess"])
    # Accepted by a person, who deletes the guesses and what nothing fits.
    accepted = [{k: v for k, v in entry.items() if k != "guess"} for entry in entries if "probe" in entry]
    (tmp_path / "map.json").write_text(json.dumps({"tensors": accepted}))
    h3diff("import", folder, "--bundle", bundle, "--map", tmp_path / "map.json", "-o", tmp_path / "o.h5")
    record = compare(reference, tmp_path / "o.h5", tmp_path, 4)
    compared = [p for p in record["probes"] if p["outcome"] != "missing"]
    assert {p["outcome"] for p in compared} == {"bitwise"}


@pytest.mark.parametrize("name", ["diffusers", "diffsynth", "comfyui", "sdcpp", "mlx"])
def test_built_in_maps_load(bad, bundle, name):
    """Each map gives a tensor that its port would have; the names stand in docs/importing.md."""
    value = tensor(bad.rows, 84)
    names = {"diffusers": "transformer_blocks.3.norm1", "diffsynth": "blocks.3.norm1", "mlx": "model.blocks.3.norm1"}
    shape = value.shape[::-1] if name == "sdcpp" else value.shape
    prefixed = names.get(name, "model.diffusion_model.blocks.3.norm1")
    np.save(bad.folder / f"{prefixed}.npy", value.reshape(shape))
    h3diff("import", bad.folder, "--bundle", bundle, "--map", name, "-o", bad.path / "o.h5")
    assert {probe for probe, _ in index_rows(bad.path / "o.h5")} == {"blocks.3.norm1"}


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float64"])
def test_cast_rounds_as_torch_does(bundle, packed_rows, tmp_path, dtype):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    value = tensor(packed_rows, 84)
    value[1] *= 1e-3
    value[2] *= 1e-6  # subnormal in the narrow types
    value[3] *= 100
    value[4, :4] = [0.0, -0.0, np.inf if dtype != "float8_e4m3fn" else 1.0, np.nan]
    value[5] = np.arange(84) / 16 + 1  # ties
    folder = tmp_path / "in"
    folder.mkdir()
    np.save(folder / "t.npy", value)
    (tmp_path / "map.json").write_text(json.dumps(
        {"tensors": [{"name": "t", "probe": PROBE, "transforms": [{"op": "cast", "dtype": dtype}]}]}
    ))  # fmt: skip
    h3diff("import", folder, "--bundle", bundle, "--map", tmp_path / "map.json", "--capture", "full", "-o", tmp_path / "d.h5")
    h3diff("export", tmp_path / "d.h5", "--as", "safetensors", "-o", tmp_path / "e.safetensors")
    segments = load_file(tmp_path / "e.safetensors")
    got = torch.cat([segments[f"step0/{PROBE}/{segment}"] for segment in ("text", "audio", "video")])
    want = torch.from_numpy(value).to(getattr(torch, dtype))
    assert got.dtype == want.dtype
    nan = want.isnan()
    assert torch.equal(got.isnan(), nan)
    bits = {1: torch.uint8, 2: torch.int16, 8: torch.int64}[want.element_size()]
    assert torch.equal(got.view(bits)[~nan], want.view(bits)[~nan])
