"""The layout table against the real packages: what we write they load, what they write we read."""

import json
import random
import subprocess
import os

import pytest
import torch
from diffsynth.models.minimax_h3_dit import MiniMaxH3DiT
from diffsynth.models.minimax_h3_dit_comfy import MiniMaxH3DiTComfy, MiniMaxH3DiTComfyPruned
from diffusers import MiniMaxH3Transformer3DModel
from safetensors.torch import load_file, save_file

from conftest import call


def raw_arguments(bundle):
    case = json.loads((bundle / "case.json").read_text())
    shape = case["shape"]
    names = {
        "num_layers": "num_layers", "token_refiner_num_layers": "num_refiner_layers", "hidden_size": "hidden_size",
        "num_attention_heads": "num_attention_heads", "attention_head_dim": "attention_head_dim",
        "ffn_hidden_size": "ffn_dim", "latents_dim": "in_channels", "audio_latents_dim": "audio_in_channels",
        "text_dim": "text_dim", "timestep_input_dim": "freq_dim", "time_embed_hidden_size": "time_embed_hidden_dim",
        "time_embed_dim": "time_embed_dim", "rope_inv_freq_len": "rope_freq_dim",
    }  # fmt: skip
    return {ours: shape[theirs] for ours, theirs in names.items()} | {
        "adaln_out_features": 18 * shape["hidden_size"], "final_adaln_out_features": 2 * shape["hidden_size"],
    }  # fmt: skip


def forward_diffsynth(model, bundle):
    x = load_file(bundle / "inputs.safetensors")
    rows = x["token_tags"].shape[0]
    video, audio = torch.zeros(1, rows, 96), torch.zeros(1, rows, 32)
    video[0, x["video_indices"]] = x["hidden_states"][0]
    audio[0, x["audio_indices"]] = x["audio_hidden_states"][0]
    text = x["text_indices"].shape[0]
    place = lambda name: {"position_ids": x[name]}  # noqa: E731
    lengths = lambda n: {"cu_seqlens_q": torch.tensor([0, n]), "max_seqlen_q": n}  # noqa: E731
    with torch.inference_mode():
        return model(
            video, audio, x["position_ids"][None], x["timestep"], x["timestep_indices"], None, x["token_tags"],
            x["encoder_hidden_states"][0], place("video_indices"), place("audio_indices"), place("text_indices"),
            place("video_indices"), lengths(rows), lengths(text), skip_mask_out_condition=True,
        )  # fmt: skip


def forward_diffusers(bundle):
    model = MiniMaxH3Transformer3DModel.from_pretrained(bundle / "transformer", torch_dtype=torch.float32)
    with torch.inference_mode():
        video, audio = model(**load_file(bundle / "inputs.safetensors"), return_dict=False)
    return video[0], audio[0]


def load_diffsynth(kind, bundle, **more):
    model = kind(**raw_arguments(bundle), **more)
    (file,) = (bundle / "transformer").glob("*.safetensors")
    model.load_state_dict(load_file(file), strict=True)
    return model.float()


def test_one_model_in_three_layouts(case_file, tmp_path):
    case = case_file(geometry={"vision_rows": [1, 2], "keyframes": ["first"], "reference_audio": [2]}, seed=11)
    for layout in ("raw", "comfy", "diffusers"):
        call("export", case, layout, tmp_path / layout)
    expected = forward_diffusers(tmp_path / "diffusers")
    assert all(torch.isfinite(t).all() and t.std() > 0.5 for t in expected)
    for layout, kind in (("raw", MiniMaxH3DiT), ("comfy", MiniMaxH3DiTComfy)):
        got = forward_diffsynth(load_diffsynth(kind, tmp_path / layout), tmp_path / layout)
        assert torch.equal(got[0], expected[0]) and torch.equal(got[1], expected[1]), layout
    # The same file read in the other order is another model: the comparison above would notice.
    wrong = forward_diffsynth(load_diffsynth(MiniMaxH3DiTComfy, tmp_path / "raw"), tmp_path / "raw")
    assert not torch.allclose(wrong[0], expected[0], atol=0.1)

    weights = []
    for layout in ("raw", "comfy", "diffusers"):
        call("weights", tmp_path / layout, "-", tmp_path / "w")
        weights.append(load_file(tmp_path / "w"))
    assert torch.equal(weights[0].pop("rope.inv_freq"), weights[1].pop("rope.inv_freq"))
    for name, tensor in weights[0].items():
        assert tensor.dtype == weights[1][name].dtype == weights[2][name].dtype
        assert torch.equal(tensor, weights[1][name]) and torch.equal(tensor, weights[2][name]), name
    assert weights[0].keys() == weights[1].keys() == weights[2].keys()


def test_diffusers_finds_every_weight_and_its_islands(case_file, tmp_path):
    call("export", case_file(), "diffusers", tmp_path / "b")
    model, info = MiniMaxH3Transformer3DModel.from_pretrained(
        tmp_path / "b" / "transformer", torch_dtype=torch.bfloat16, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    (file,) = (tmp_path / "b" / "transformer").glob("*.safetensors")
    stored = load_file(file)
    for name, parameter in model.state_dict().items():
        assert parameter.dtype == stored[name].dtype and torch.equal(parameter, stored[name]), name


@pytest.mark.parametrize("frequencies", [4, 16])
def test_inverse_frequencies(case_file, tmp_path, frequencies):
    shape = {"attention_head_dim": 8 * frequencies, "rope_freq_dim": frequencies}
    call("export", case_file(shape=shape), "raw", tmp_path / "b")
    call("weights", tmp_path / "b", "-", tmp_path / "w")
    model = MiniMaxH3Transformer3DModel(num_layers=1, hidden_size=8, num_attention_heads=1, rope_freq_dim=frequencies,
                                        ffn_dim=8, text_dim=8, time_embed_dim=8, time_embed_hidden_dim=8)  # fmt: skip
    assert torch.equal(load_file(tmp_path / "w")["rope.inv_freq"], model.rope.inv_freq)


def internal_form(state):
    """diffusers' state dict in internal names and row order, written independently of the C++ table."""
    out, state = {}, dict(state)
    for name in list(state):
        if name.endswith("to_q.weight"):
            stem = name[: -len("to_q.weight")]
            out[stem + "qkv_proj.weight"] = torch.cat([state.pop(f"{stem}to_{x}.weight") for x in "qkv"])
        elif name.endswith("net.0.proj.weight"):
            value, gate = state.pop(name).chunk(2)
            out[name.replace("ff.net.0.proj", "mlp.fc1")] = torch.cat([gate, value])
    out |= state
    renames = [
        ("audio_proj_in.", "audio_patch_proj."), ("audio_proj_out.", "final_layer.audio_out."),
        ("context_embedder.", "condition_proj."), ("norm_out.linear.", "final_layer.adaln_proj.linear."),
        ("norm_out.norm.", "final_layer.norm."), ("time_embedder.linear_1", "time_embedder.proj_in"),
        ("time_embedder.linear_2", "time_embedder.proj_out"), ("refiner_blocks", "blocks"), ("transformer_blocks", "blocks"),
        ("norm_q", "q_norm"), ("norm_k", "k_norm"), ("to_out.0", "out_proj"), ("ff.net.2", "mlp.fc2"),
    ]  # fmt: skip
    named = {}
    for name, tensor in out.items():
        if name.startswith("proj_in."):
            name = name.replace("proj_in.", "video_patch_proj.")
        elif name.startswith("proj_out."):
            name = name.replace("proj_out.", "final_layer.video_out.")
        else:
            for old, new in renames:
                name = name.replace(old, new)
        named[name] = tensor
    return named


def random_bundle(folder, rng, dtype):
    heads, dim = rng.randrange(1, 5), 8 * rng.randrange(1, 5)
    model = MiniMaxH3Transformer3DModel(
        num_attention_heads=heads, attention_head_dim=dim, hidden_size=4 * rng.randrange(2, 20),
        num_layers=rng.randrange(1, 12), num_refiner_layers=rng.randrange(0, 3), ffn_dim=rng.randrange(5, 60),
        in_channels=rng.randrange(1, 25), audio_in_channels=rng.randrange(1, 33), text_dim=rng.randrange(3, 50),
        freq_dim=2 * rng.randrange(2, 20), time_embed_hidden_dim=rng.randrange(3, 40), time_embed_dim=rng.randrange(3, 40),
        rope_freq_dim=rng.randrange(1, dim // 8 + 1),
    )  # fmt: skip
    if dtype == torch.bfloat16:
        for name, parameter in model.named_parameters():
            if not any(part in name for part in model._keep_in_fp32_modules):
                parameter.data = parameter.data.bfloat16()
    model.save_pretrained(folder / "transformer", max_shard_size=rng.choice(["5GB", "20KB"]))
    config = model.config
    text, video, audio = 3, 4, 2
    order = torch.randperm(text + video + audio)
    indices = {"text": order[:3], "video": order[3:7], "audio": order[7:]}
    tags = torch.empty(9, dtype=torch.long)
    for kind, tag in (("video", 0), ("text", 1), ("audio", 2)):
        tags[indices[kind]] = tag
    save_file(
        {
            "hidden_states": torch.randn(1, video, config.in_channels * 4).bfloat16(),
            "audio_hidden_states": torch.randn(1, audio, config.audio_in_channels).half(),
            "encoder_hidden_states": torch.randn(1, text, config.text_dim),
            "timestep": torch.tensor([0.5, 0.25]), "timestep_indices": torch.randint(0, 2, (9,)), "token_tags": tags,
            "position_ids": torch.rand(9, 3, dtype=torch.float64), "video_indices": indices["video"].contiguous(),
            "audio_indices": indices["audio"].contiguous(), "text_indices": indices["text"].contiguous(),
        },
        folder / "inputs.safetensors",
    )  # fmt: skip
    return model


@pytest.mark.parametrize("seed", range(6))
def test_bundles_that_diffusers_alone_makes(tmp_path, seed):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    bundle = tmp_path / "theirs"
    bundle.mkdir()
    model = random_bundle(bundle, rng, torch.bfloat16 if seed % 2 else torch.float32)
    call("weights", bundle, "-", tmp_path / "w")
    got, expected = load_file(tmp_path / "w"), internal_form(model.state_dict())
    assert got.keys() == expected.keys()
    for name, tensor in expected.items():
        assert got[name].dtype == tensor.dtype and torch.equal(got[name], tensor), name


def test_curve_form(case_file, tmp_path):
    case = case_file(seed=3)
    folders = {}
    for name, more in {"g8": (65, 8), "zero": (65, 8, 16, "zero"), "random": (65, 8, 16, "random")}.items():
        folders[name] = tmp_path / name
        call("export", case, "comfy", folders[name], *more)
    predictions, tables = {}, {}
    for name, folder in folders.items():
        model = load_diffsynth(MiniMaxH3DiTComfyPruned, folder, adaln_curve_grid=65)
        predictions[name] = forward_diffsynth(model, folder)
        call("weights", folder, "comfy", tmp_path / "w")
        tables[name] = load_file(tmp_path / "w")
    adaln = [name for name in tables["g8"] if name.endswith("adaln_proj.linear.weight") or name == "adaln_t_table"]
    assert len(adaln) == 8  # 6 blocks, the final layer, the table
    for name in adaln:
        base = tables["g8"][name]
        assert base.dtype == torch.float32 and base.shape[1] == 8
        for other in ("zero", "random"):
            assert tables[other][name].shape[1] == 16 and torch.equal(tables[other][name][:, :8], base)
        if name != "adaln_t_table":
            assert not tables["zero"][name][:, 8:].any()
            assert 5 < tables["random"][name][:, 8:].abs().max() < 12.3
    assert torch.equal(tables["zero"]["adaln_t_table"], tables["random"]["adaln_t_table"])
    for name in tables["g8"]:
        if name not in adaln:
            assert torch.equal(tables["g8"][name], tables["zero"][name]) and torch.equal(tables["g8"][name], tables["random"][name])
    # Zero padding is harmless up to the order of a sum, random padding is not.
    assert torch.allclose(predictions["zero"][0], predictions["g8"][0], atol=1e-4)
    assert not torch.allclose(predictions["random"][0], predictions["g8"][0], atol=0.1)


def test_nothing_tells_raw_from_comfy(case_file, tmp_path):
    call("export", case_file(), "comfy", tmp_path / "b")
    case = json.loads((tmp_path / "b" / "case.json").read_text())
    del case["layout"]
    (tmp_path / "b" / "case.json").write_text(json.dumps(case))
    words = [os.environ["H3DIFF_CASE_TOOL"], "weights", tmp_path / "b", "-", tmp_path / "w"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 2 and "--layout" in done.stderr
    call("weights", tmp_path / "b", "comfy", tmp_path / "w")
