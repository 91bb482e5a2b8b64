"""Every malformed checkpoint and input: one sentence that names file and fact, exit code 3, through inspect and run."""

import json
import shutil
import struct

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from conftest import BIN, h3diff, refused


@pytest.fixture
def copy(bundle, tmp_path):
    return shutil.copytree(bundle, tmp_path / "copy")


def checkpoint(folder):
    (path,) = (folder / "transformer").glob("*.safetensors")
    return path


def refused_everywhere(folder, *says):
    words = [("inspect", folder)]
    out = folder.parent / "out.h5"
    if (BIN / "h3diff-torch").exists():
        words.append(("run", folder, "--profile", "diffusers-f32", "-o", out))
    for line in words:
        result = refused(*line, code=3, says=says)
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr
    assert not out.exists() and not out.with_name("out.h5.partial").exists()


def edit_header(path, change):
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    text = change(header)
    if text is None:
        text = json.dumps(header)
    text = text.encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def tensors_by_offset(header):
    return sorted((k for k in header if k != "__metadata__"), key=lambda k: header[k]["data_offsets"])


def overlapping(header):
    first, second = tensors_by_offset(header)[:2]
    header[second]["data_offsets"][0] -= 2


def hole(header):
    second = tensors_by_offset(header)[1]
    header[second]["data_offsets"][0] += 2


def out_of_range(header):
    last = tensors_by_offset(header)[-1]
    header[last]["data_offsets"][1] += 1 << 40


def reversed_offsets(header):
    header[tensors_by_offset(header)[0]]["data_offsets"].reverse()


def wrong_size(header):
    header[tensors_by_offset(header)[0]]["shape"].append(3)


def overflowing(header):
    header[tensors_by_offset(header)[0]]["shape"] = [1 << 62, 1 << 62]


def negative(header):
    header[tensors_by_offset(header)[0]]["shape"][0] *= -1


def unknown_dtype(header):
    header[tensors_by_offset(header)[0]]["dtype"] = "F17"


def duplicate_key(header):
    name = tensors_by_offset(header)[0]
    return json.dumps(header)[:-1] + f', "{name}": {json.dumps(header[name])}}}'


def not_an_object(header):
    return "[]"


def not_json(header):
    return json.dumps(header)[:-5]


@pytest.mark.parametrize(
    "change",
    [overlapping, hole, out_of_range, reversed_offsets, wrong_size, overflowing, negative, unknown_dtype, duplicate_key,
     not_an_object, not_json],
    ids=lambda change: change.__name__,
)  # fmt: skip
def test_safetensors_rules(copy, change):
    edit_header(checkpoint(copy), change)
    refused_everywhere(copy, checkpoint(copy).name)


@pytest.mark.parametrize("size", [2**60, 2**63, 2**64 - 1, 0, 101_000_000])
def test_header_size(copy, size):
    path = checkpoint(copy)
    path.write_bytes(struct.pack("<Q", size) + path.read_bytes()[8:])
    refused_everywhere(copy, path.name)


def test_truncated_checkpoint(copy):
    path = checkpoint(copy)
    data = path.read_bytes()
    for size in (0, 5, 8, 100, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:size])
        refused_everywhere(copy, path.name)
    path.write_bytes(data + b"\0")
    refused_everywhere(copy, path.name)


def test_missing_and_superfluous_tensors(copy):
    path = checkpoint(copy)
    data = load_raw(path)
    name = next(name for name in data if "to_q" in name)
    save_raw(path, {k: v for k, v in data.items() if k != name})
    refused_everywhere(copy, "to_q" if "to_q" in name else name)
    save_raw(path, {**data, "transformer_blocks.0.attn.surprise.weight": data[name]})
    refused_everywhere(copy, "surprise")


def load_raw(path):
    """name -> (dtype, shape, bytes): numpy knows no bfloat16."""
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    return {
        name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])])
        for name, entry in header.items() if name != "__metadata__"
    }  # fmt: skip


def save_raw(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def test_config_that_disagrees(copy):
    path = copy / "transformer" / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps({**config, "hidden_size": 96}))
    refused_everywhere(copy)
    path.write_text("{")
    refused_everywhere(copy, "config.json")


def test_shards_and_their_index(tmp_path):
    folder = tmp_path / "sharded"
    h3diff("case", "export", "tiny", "--layout", "diffusers", "--shard-size", "256KiB", "-o", folder)
    h3diff("inspect", folder)
    first, *_ = sorted((folder / "transformer").glob("*.safetensors"))
    kept = first.read_bytes()
    first.unlink()
    refused_everywhere(folder, first.name)
    first.write_bytes(kept)
    h3diff("inspect", folder)
    (index,) = (folder / "transformer").glob("*.index.json")
    table = json.loads(index.read_text())
    name = next(name for name, shard in table["weight_map"].items() if shard == first.name)
    table["weight_map"][name] = "../" + first.name
    index.write_text(json.dumps(table))
    refused_everywhere(folder)


def edit_inputs(folder, **changes):
    path = folder / "inputs.safetensors"
    tensors = load_file(path)
    for name, change in changes.items():
        value = change(tensors[name].copy())
        if value is None:
            del tensors[name]
        else:
            tensors[name] = np.ascontiguousarray(value)
    save_file(tensors, path)


def put(position, value):
    def change(tensor):
        tensor.reshape(-1)[position] = value
        return tensor

    return change


def narrower(tensor):
    return tensor[..., :-1]


def shorter(tensor):
    return tensor.reshape(-1)[:-1]


@pytest.mark.parametrize(
    "name, change",
    [("hidden_states", narrower), ("hidden_states", put(5, np.nan)), ("encoder_hidden_states", put(0, np.inf)),
     ("audio_hidden_states", lambda t: None), ("video_indices", put(0, 10_000)), ("video_indices", put(0, -1)),
     ("text_indices", put(0, 1)), ("token_tags", put(0, 7)), ("token_tags", shorter), ("timestep_indices", put(0, 99)),
     ("position_ids", put(0, np.nan)), ("timestep", put(0, np.nan))],
)  # fmt: skip
def test_inputs(copy, name, change):
    edit_inputs(copy, **{name: change})
    refused_everywhere(copy, "inputs.safetensors", name)


def test_missing_parts(copy):
    kept = (copy / "inputs.safetensors").read_bytes()
    (copy / "inputs.safetensors").write_bytes(kept[:50])
    refused_everywhere(copy, "inputs.safetensors")
    (copy / "inputs.safetensors").write_bytes(kept)
    (copy / "case.json").write_text("nonsense")
    refused_everywhere(copy, "case.json")
