"""Bundles that diffusers and safetensors make alone (save_pretrained, save_file; no case.json), in random shapes."""

import random

import pytest
import torch

from conftest import FULL, assert_bitwise, candidate, capture


def random_shape(seed):
    pick = random.Random(seed)
    head_dim = pick.choice((16, 24, 32, 40, 64))
    return dict(
        num_attention_heads=pick.randint(1, 5), attention_head_dim=head_dim, hidden_size=pick.randint(20, 130),
        num_layers=pick.randint(1, 4), num_refiner_layers=pick.randint(1, 3), ffn_dim=pick.randint(17, 150),
        in_channels=pick.randint(1, 9), audio_in_channels=pick.randint(1, 20), text_dim=pick.randint(5, 90),
        freq_dim=2 * pick.randint(3, 40), time_embed_hidden_dim=pick.randint(9, 70), time_embed_dim=pick.randint(5, 60),
        rope_freq_dim=pick.randint(1, head_dim // 6),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(24 if FULL else 8))
@pytest.mark.parametrize("dtype", ("f32", "bf16"))
def test_random_shapes(seed, dtype, tmp_path):
    import bundles

    pick = random.Random(1000 + seed)
    shape = random_shape(seed)
    model = bundles.random_model(seed, **shape)
    rows = dict(
        text=pick.randint(2, 40), audio=pick.randint(1, 30), video=pick.randint(1, 70), vision=pick.randint(0, 1),
        cond_video=pick.randint(0, 9), cond_audio=pick.randint(0, 5), t_video=pick.random(), t_audio=pick.random(),
    )  # fmt: skip
    tensors = bundles.inputs(shape, seed=seed, **rows)
    if seed % 2:  # distinct timesteps in any order, video rows in any order
        order = torch.randperm(len(tensors["timestep"]), generator=torch.Generator().manual_seed(seed))
        tensors["timestep"] = tensors["timestep"][order]
        tensors["timestep_indices"] = torch.argsort(order)[tensors["timestep_indices"]]
        shuffled = torch.randperm(len(tensors["video_indices"]), generator=torch.Generator().manual_seed(seed))
        tensors["video_indices"] = tensors["video_indices"][shuffled]
    bundle = bundles.make_bundle(tmp_path / "bundle", model, tensors)
    threads = 1 + seed % 2
    reference = capture("diffusers", bundle, tmp_path / "reference.h5", dtype=dtype, threads=threads, capture="digest")
    dump = candidate(bundle, tmp_path / "candidate.h5", f"diffusers-{dtype}", "--threads", threads, "--capture", "digest")
    assert_bitwise(reference, dump, 80)
