"""Wrong input: one sentence that names the file and the fact, the documented exit code, nothing under DUMP's name."""

import os
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from bundles import inputs, make_bundle, random_model, write_inputs
from h3diff_capture.__main__ import main
from layouts import bundle_of, raw_state

pytest.importorskip("diffusers")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    return make_bundle(tmp_path_factory.mktemp("good") / "b", case={"name": "x", "cond_video_rows": 0})


@pytest.fixture
def broken(good, tmp_path):
    """A copy of a good bundle, to be broken."""
    return shutil.copytree(good, tmp_path / "b")


def refused(capsys, bundle, out, code, *facts, options=()):
    """Runs the command line; the message must be one line with every one of `facts`."""
    assert main(["diffusers", str(bundle), "-o", str(out), *options]) == code
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    for fact in facts:
        assert str(fact) in errors[0], errors[0]


def change(name, new):
    def edit(bundle):
        tensors = load_file(f"{bundle}/inputs.safetensors")
        if new is None:
            del tensors[name]
        else:
            tensors[name] = new(tensors[name])
        write_inputs(bundle, tensors)

    return edit


def at(index, value):
    def set_value(tensor):
        tensor = tensor.clone()
        tensor.view(-1)[index] = value
        return tensor

    return set_value


INPUTS = {
    "missing tensor": (change("token_tags", None), ["lacks token_tags"]),
    "wrong width": (change("hidden_states", lambda t: t[..., :-1]), ["hidden_states has shape [1, 16, 23], not [1, 16, 24]"]),
    "too few rows": (change("audio_hidden_states", lambda t: t[:, :-1]), ["audio_hidden_states has shape [1, 5, 8], not [1, 6, 8]"]),
    "batch of two": (change("encoder_hidden_states", lambda t: t.repeat(2, 1, 1)), ["encoder_hidden_states has shape [2, 7, 40]"]),
    "short positions": (change("position_ids", lambda t: t[:, :2]), ["position_ids has shape [29, 2], not [29, 3]"]),
    "index out of range": (change("video_indices", at(3, 29)), ["video_indices[3] is 29", "29 rows"]),
    "negative index": (change("text_indices", at(0, -1)), ["text_indices[0] is -1"]),
    "repeated index": (change("video_indices", at(3, 0)), ["is 0, a row that video_indices holds already"]),
    "timestep index": (change("timestep_indices", at(2, 5)), ["timestep_indices[2] is 5", "1 timesteps"]),
    "tag": (change("token_tags", at(2, 3)), ["token_tags[2] is 3"]),
    "NaN": (change("hidden_states", at(25, float("nan"))), ["hidden_states[0, 1, 1] is nan"]),
    "Inf": (change("encoder_hidden_states", at(0, float("inf"))), ["encoder_hidden_states[0, 0, 0] is inf"]),
    "float index": (change("token_tags", lambda t: t.float()), ["token_tags is torch.float32"]),
    "no timestep": (change("timestep", lambda t: t[:0]), ["timestep is empty"]),
}  # fmt: skip


@pytest.mark.parametrize("case", INPUTS)
def test_inputs(broken, tmp_path, capsys, case):
    edit, facts = INPUTS[case]
    edit(broken)
    out = tmp_path / "d.h5"
    refused(capsys, broken, out, 3, f"{broken}/inputs.safetensors", *facts)
    assert not out.exists() and not (tmp_path / "d.h5.partial").exists()


def cut(path, size):
    with open(path, "rb") as file:
        data = file.read(size)
    with open(path, "wb") as file:
        file.write(data)


@pytest.mark.parametrize("name", ["inputs.safetensors", "transformer/diffusion_pytorch_model.safetensors"])
@pytest.mark.parametrize("size", [0, 5, 300, 2000])
def test_truncated_safetensors(broken, tmp_path, capsys, name, size):
    cut(f"{broken}/{name}", size)
    refused(capsys, broken, tmp_path / "d.h5", 3, f"{broken}/{name}", "not a readable safetensors file")


def weights_edit(edit):
    def change_weights(bundle):
        path = f"{bundle}/transformer/diffusion_pytorch_model.safetensors"
        tensors = load_file(path)
        edit(tensors)
        save_file(tensors, path)

    return change_weights


WEIGHTS = {
    "missing": (lambda t: t.pop("transformer_blocks.1.ff.net.2.weight"), ["lacks transformer_blocks.1.ff.net.2.weight"]),
    "left over": (lambda t: t.update(lora=torch.zeros(2)), ["holds lora"]),
    "wrong shape": (lambda t: t.update({"proj_out.bias": torch.zeros(3)}), ["proj_out.bias has shape [3], not [24]"]),
    "quantised": (
        lambda t: t.update({"transformer_blocks.0.attn.to_q.weight": torch.zeros(96, 84, dtype=torch.int8)}),
        ["transformer_blocks.0.attn.to_q.weight is stored as I8"],
    ),
    "gap in the blocks": (
        lambda t: [t.pop(n) for n in list(t) if n.startswith("transformer_blocks.0.")],
        ["transformer_blocks.1 but no transformer_blocks.0"],
    ),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_weights(broken, tmp_path, capsys, case):
    edit, facts = WEIGHTS[case]
    weights_edit(edit)(broken)
    refused(capsys, broken, tmp_path / "d.h5", 3, f"{broken}/transformer", *facts)


def test_config_against_tensors(broken, tmp_path, capsys):
    path = f"{broken}/transformer/config.json"
    with open(path) as file:
        text = file.read()
    with open(path, "w") as file:
        file.write(text.replace('"ffn_dim": 72', '"ffn_dim": 80'))
    refused(capsys, broken, tmp_path / "d.h5", 3, path, "ffn_dim 80", "72")


def test_files_that_are_not_there(tmp_path, broken, capsys):
    out = tmp_path / "d.h5"
    refused(capsys, tmp_path / "none", out, 3, tmp_path / "none", "no such folder")
    os.remove(f"{broken}/inputs.safetensors")
    refused(capsys, broken, out, 3, "inputs.safetensors", "no such file")
    write_inputs(broken, inputs())
    shutil.rmtree(f"{broken}/transformer")
    refused(capsys, broken, out, 3, "transformer", "no such folder")
    os.mkdir(f"{broken}/transformer")
    refused(capsys, broken, out, 3, "transformer", "no safetensors file")


def test_shard_that_is_not_there(tmp_path, capsys):
    bundle = bundle_of(tmp_path / "b", raw_state(random_model()), shards=3)
    os.remove(f"{bundle}/transformer/model-00002-of-00003.safetensors")
    refused(capsys, bundle, tmp_path / "d.h5", 3, "index.json", "model-00002-of-00003.safetensors", options=["--layout", "raw"])


@pytest.mark.parametrize("text, fact", [
    ("{", "not readable as JSON"), ("[]", "not a JSON object"), ('{"steps": 0}', "steps is 0"), ('{"steps": "2"}', "steps"),
    ('{"cond_video_rows": 99}', "cond_video_rows is 99"), ('{"layout": "odd"}', "layout is 'odd'"), ('{"shift_video": -1}', "shift"),
])  # fmt: skip
def test_case_json(broken, tmp_path, capsys, text, fact):
    with open(f"{broken}/case.json", "w") as file:
        file.write(text)
    refused(capsys, broken, tmp_path / "d.h5", 3, fact)


def test_usage(good, tmp_path, capsys):
    out = tmp_path / "d.h5"
    refused(capsys, good, out, 2, "blocks.7.*", options=["--capture", "blocks.7.*=full"])
    refused(capsys, good, out, 2, "'loud'", options=["--capture", "loud"])
    refused(capsys, good, out, 2, "--steps", options=["--steps", "0"])
    refused(capsys, good, out, 2, "--threads", options=["--threads", "0"])
    refused(capsys, good, out, 2, "--device", options=["--device", "tpu"])
    raw = bundle_of(tmp_path / "raw", raw_state(random_model()))
    refused(capsys, raw, out, 2, "--layout")
    out.write_text("precious")
    refused(capsys, good, out, 2, out, "exists already")
    assert out.read_text() == "precious"
    for arguments in (["diffusers"], ["pytorch", str(good), "-o", str(out)], ["diffusers", str(good), "-o", str(out), "--dtype", "f64"]):
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        assert stop.value.code == 2


def test_layout_against_names(good, tmp_path, capsys):
    refused(capsys, good, tmp_path / "d.h5", 3, "diffusers' names", options=["--layout", "raw"])


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_no_such_device(good, tmp_path, capsys):
    refused(capsys, good, tmp_path / "d.h5", 5, "cuda", options=["--device", "cuda:0"])


def test_output_folder_that_is_not_there(good, tmp_path, capsys):
    refused(capsys, good, tmp_path / "none" / "d.h5", 5, tmp_path / "none")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
def test_full_disk(good, tmp_path, capsys):
    os.symlink("/dev/full", tmp_path / "d.h5.partial")
    refused(capsys, good, tmp_path / "d.h5", 5, "d.h5.partial", "cannot be written")
    assert not (tmp_path / "d.h5").exists()


def test_overwrite(good, tmp_path, capsys):
    out = tmp_path / "d.h5"
    out.write_text("old")
    assert main(["diffusers", good, "-o", str(out), "--overwrite"]) == 0
    assert out.read_bytes()[:4] == b"\x89HDF"
    progress = capsys.readouterr()
    assert "step 1 of 1" in progress.err and progress.out == ""
