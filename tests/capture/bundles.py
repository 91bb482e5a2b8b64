"""Small bundles for the tests, made with diffusers and safetensors alone."""

import json
import os

import torch
from safetensors.torch import save_file

CONFIG = dict(
    num_attention_heads=3, attention_head_dim=32, hidden_size=84, num_layers=2, num_refiner_layers=1, ffn_dim=72,
    in_channels=6, audio_in_channels=8, patch_size=(1, 2, 2), text_dim=40, freq_dim=32, time_embed_hidden_dim=48,
    time_embed_dim=24, rope_freq_dim=4,
)  # fmt: skip


def random_model(seed=0, **changes):
    """A MiniMaxH3Transformer3DModel with random norms and biases: all-ones hide loading errors."""
    from diffusers import MiniMaxH3Transformer3DModel

    torch.manual_seed(seed)
    model = MiniMaxH3Transformer3DModel(**{**CONFIG, **changes})
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight") and parameter.dim() == 1:
                parameter.uniform_(0.5, 1.5)
            elif name.endswith("bias"):
                parameter.normal_(0, 0.2)
            else:
                parameter.normal_(0, parameter.shape[-1] ** -0.5)
    return model


def inputs(config=None, text=7, audio=6, video=16, cond_video=0, cond_audio=0, vision=0, seed=1, t_video=0.0, t_audio=0.0):
    """Arguments of diffusers' forward: [text | cond video | cond audio | audio | video]."""
    c = {**CONFIG, **(config or {})}
    g = torch.Generator().manual_seed(seed)
    rows = text + cond_video + cond_audio + audio + video
    at = text
    cond_v = torch.arange(at, at + cond_video)
    cond_a = torch.arange(at + cond_video, at + cond_video + cond_audio)
    at += cond_video + cond_audio
    target_a, target_v = torch.arange(at, at + audio), torch.arange(at + audio, rows)
    video_indices, audio_indices = torch.cat([cond_v, target_v]), torch.cat([cond_a, target_a])
    tags = torch.zeros(rows, dtype=torch.int64)
    tags[:text] = 1
    tags[1 : 1 + vision] = 0
    tags[audio_indices] = 2
    t = torch.full((rows,), t_video, dtype=torch.float32)
    t[cond_v] = max(t_video, 0.999)
    t[target_a] = t_audio
    t[cond_a] = 1.0
    timestep, timestep_indices = torch.unique(t, sorted=True, return_inverse=True)
    width = c["in_channels"] * 4
    return {
        "hidden_states": torch.randn(1, video_indices.numel(), width, generator=g),
        "audio_hidden_states": torch.randn(1, audio_indices.numel(), c["audio_in_channels"], generator=g),
        "encoder_hidden_states": torch.randn(1, text, c["text_dim"], generator=g),
        "timestep": timestep,
        "timestep_indices": timestep_indices,
        "token_tags": tags,
        "position_ids": torch.rand(rows, 3, generator=g, dtype=torch.float64) * 20,
        "video_indices": video_indices,
        "audio_indices": audio_indices,
        "text_indices": torch.arange(text),
    }


def write_inputs(path, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, os.path.join(path, "inputs.safetensors"))


def make_bundle(path, model=None, tensors=None, case=None, **shapes):
    os.makedirs(path)
    model = model or random_model()
    model.save_pretrained(os.path.join(path, "transformer"))
    write_inputs(path, tensors or inputs(model.config, **shapes))
    if case is not None:
        with open(os.path.join(path, "case.json"), "w") as file:
            json.dump(case, file)
    return str(path)
