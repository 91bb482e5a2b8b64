"""Raw and Comfy checkpoints made from a diffusers model, written out plainly (not with the package's own tables)."""

import json
import os

import torch
from safetensors.torch import save_file

from bundles import random_model, write_inputs
from bundles import inputs as make_inputs


def raw_state(model, comfy=False):
    """The checkpoint's own names; `comfy` leaves the qkv rows flat."""
    heads, dim = model.config.num_attention_heads, model.config.attention_head_dim
    state = {k: v.detach().clone() for k, v in model.state_dict().items()}
    out = {"rope.inv_freq": model.rope.inv_freq.clone()}

    def move(old, new, both=True):
        out[new + ".weight"] = state.pop(old + ".weight")
        if both:
            out[new + ".bias"] = state.pop(old + ".bias")

    move("proj_in", "video_patch_proj")
    move("audio_proj_in", "audio_patch_proj")
    move("context_embedder", "condition_proj")
    move("time_embedder.linear_1", "time_embedder.proj_in")
    move("time_embedder.linear_2", "time_embedder.proj_out")
    move("norm_out.linear", "final_layer.adaln_proj.linear")
    move("norm_out.norm", "final_layer.norm", both=False)
    move("proj_out", "final_layer.video_out")
    move("audio_proj_out", "final_layer.audio_out")
    move("token_refiner.final_norm", "token_refiner.final_norm", both=False)
    blocks = [(f"token_refiner.refiner_blocks.{n}", f"token_refiner.blocks.{n}") for n in range(model.config.num_refiner_layers)]
    blocks += [(f"transformer_blocks.{n}", f"blocks.{n}") for n in range(model.config.num_layers)]
    for old, new in blocks:
        q, k, v = (state.pop(f"{old}.attn.to_{x}.weight") for x in "qkv")
        if comfy:
            out[f"{new}.attn.qkv_proj.weight"] = torch.cat([q, k, v])
        else:
            rows = []
            for h in range(heads):
                rows += [x[h * dim : (h + 1) * dim] for x in (q, k, v)]
            out[f"{new}.attn.qkv_proj.weight"] = torch.cat(rows)
        fc1 = state.pop(f"{old}.ff.net.0.proj.weight")
        half = fc1.shape[0] // 2
        out[f"{new}.mlp.fc1.weight"] = torch.cat([fc1[half:], fc1[:half]])
        move(f"{old}.ff.net.2", f"{new}.mlp.fc2", both=False)
        move(f"{old}.attn.to_out.0", f"{new}.attn.out_proj", both=False)
        for a, b in (("norm1", "norm1"), ("norm2", "norm2"), ("attn.norm_q", "attn.q_norm"), ("attn.norm_k", "attn.k_norm")):
            move(f"{old}.{a}", f"{new}.{b}", both=False)
        if new.startswith("blocks"):
            move(f"{old}.adaln_proj.linear", f"{new}.adaln_proj.linear")
    assert not state, list(state)
    return {k: v.contiguous() for k, v in out.items()}


def curve_state(model, grid, width, pad=0):
    """The Comfy layout with a table [grid, width + pad]; the projections' padding columns are `pad` random ones."""
    state = {k: v for k, v in raw_state(model, comfy=True).items() if not k.startswith("time_embedder.")}
    g = torch.Generator().manual_seed(5)
    state["adaln_t_table"] = torch.randn(grid, width, generator=g)
    for name in [k for k in state if k.endswith("adaln_proj.linear.weight")]:
        state[name] = torch.randn(state[name].shape[0], width, generator=g) * width**-0.5
    if pad:
        state["adaln_t_table"] = torch.cat([state["adaln_t_table"], torch.randn(grid, pad, generator=g)], 1)
        for name in [k for k in state if k.endswith("adaln_proj.linear.weight")]:
            state[name] = torch.cat([state[name], torch.randn(state[name].shape[0], pad, generator=g) * 10], 1)
    return state


def bundle_of(path, state, config=None, tensors=None, case=None, prefix="", shards=1, layout_config=None):
    folder = os.path.join(path, "transformer")
    os.makedirs(folder)
    names = sorted(state)
    if shards == 1:
        save_file({prefix + n: state[n] for n in names}, os.path.join(folder, "model.safetensors"))
    else:
        weight_map = {}
        for i in range(shards):
            shard = f"model-{i + 1:05}-of-{shards:05}.safetensors"
            part = names[i::shards]
            save_file({prefix + n: state[n] for n in part}, os.path.join(folder, shard))
            weight_map.update({prefix + n: shard for n in part})
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as file:
            json.dump({"metadata": {}, "weight_map": weight_map}, file)
    if layout_config is not None:
        with open(os.path.join(folder, "config.json"), "w") as file:
            json.dump(layout_config, file)
    write_inputs(path, tensors or make_inputs(config))
    if case is not None:
        with open(os.path.join(path, "case.json"), "w") as file:
            json.dump(case, file)
    return str(path)


__all__ = ["bundle_of", "curve_state", "random_model", "raw_state"]
