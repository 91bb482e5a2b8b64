"""Packing, position ids and row timesteps against diffusers' own, bit for bit."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from diffusers.modular_pipelines.minimax_h3.before_denoise import (
    MiniMaxH3PrepareLayoutStep,
    MiniMaxH3SetTimestepsStep,
)
from diffusers.modular_pipelines.minimax_h3 import before_denoise
from diffusers.schedulers import MiniMaxH3Scheduler

from conftest import tool

(REFERENCE_STEP,) = [step for step in vars(before_denoise).values() if hasattr(step, "build_ref2va_packed_sequence")]
TARGET = dict(patch_size=(1, 2, 2), audio_channels=2, audio_tag=2, video_tag=0)


def geometries():
    yield dict(text_rows=7, latent_frames=3, latent_height=8, latent_width=8, audio_latents=3)
    yield dict(text_rows=1, latent_frames=1, latent_height=2, latent_width=2, audio_latents=1)
    yield dict(text_rows=300, latent_frames=37, latent_height=48, latent_width=84, audio_latents=207)
    rng = random.Random(0)
    for frames in (2, 7, 8, 12, 17, 22, 128, 130, 300):  # the keyframe anchor sums pairwise from 8 and from 129 terms
        rows = rng.randrange(5, 60)
        yield dict(
            text_rows=rows, vision_rows=sorted(rng.sample(range(rows), 3)), latent_frames=frames,
            latent_height=2 * rng.randrange(1, 9), latent_width=2 * rng.randrange(1, 9), audio_latents=rng.randrange(1, 40),
            keyframes=rng.choice([["first"], ["last"], ["first", "last"]]),
        )  # fmt: skip


def tags(geometry):
    out = torch.ones(geometry["text_rows"], dtype=torch.long)
    out[geometry.get("vision_rows", [])] = 0
    return out


def check(got, expected):
    names = ["position_ids", "token_tags", "video_indices", "audio_indices", "text_indices"]
    for name, tensor in zip(names, expected):
        assert np.array_equal(np.array(got[name]).reshape(tensor.shape), tensor.numpy()), name
    assert (got["cond_video_rows"], got["cond_audio_rows"]) == tuple(expected[5:])


def latents(geometry):
    return {f"num_{k}" if k in ("latent_frames", "audio_latents") else k: geometry[k] for k in
            ("latent_frames", "latent_height", "latent_width", "audio_latents")}  # fmt: skip


@pytest.mark.parametrize("geometry", list(geometries()), ids=lambda g: f"{g['latent_frames']} frames")
def test_text_and_keyframes(case_file, geometry):
    got = tool("pack", case_file(geometry=geometry), 0.25, 0.5)
    expected = MiniMaxH3PrepareLayoutStep.build_packed_sequence(
        tags(geometry), **latents(geometry), **TARGET, keyframe_anchors=tuple(geometry.get("keyframes", ()))
    )
    check(got, expected)


@pytest.mark.parametrize("keyframes", [[], ["first"], ["first", "last"]])
def test_references(case_file, keyframes):
    geometry = dict(text_rows=20, vision_rows=[2, 3], keyframes=keyframes, reference_audio=[12, 5], latent_frames=7,
                    latent_height=6, latent_width=10, audio_latents=9)  # fmt: skip
    got = tool("pack", case_file(geometry=geometry), 0.25, 0.5)
    kinds = ["image"] * len(keyframes) + ["audio", "audio"]
    expected = REFERENCE_STEP.build_ref2va_packed_sequence(
        tags(geometry), [SimpleNamespace(kind=kind) for kind in kinds], [torch.zeros(1, 24, 1, 6, 10)] * len(keyframes),
        [torch.zeros(24, 32), torch.zeros(10, 32)], **latents(geometry), **TARGET,
    )  # fmt: skip
    check(got, expected)


@pytest.mark.parametrize("steps", [1, 4, 20])
def test_row_timesteps(case_file, steps):
    geometry = dict(text_rows=9, keyframes=["last"], reference_audio=[3], latent_frames=2, latent_height=4,
                    latent_width=4, audio_latents=4)  # fmt: skip
    schedules = []
    for shift in (12.0, 3.0):
        scheduler = MiniMaxH3Scheduler(shift=shift)
        scheduler.set_timesteps(steps + 1)
        schedules.append(scheduler.timesteps.tolist())
    for video_t, audio_t in [*zip(*schedules), (0.9995, 0.2), (0.999, 1.0)]:
        got = tool("pack", case_file(geometry=geometry), repr(video_t), repr(audio_t))
        timesteps, indices = MiniMaxH3SetTimestepsStep.build_row_timesteps(
            torch.tensor(got["video_indices"]), torch.tensor(got["audio_indices"]), got["cond_video_rows"],
            got["cond_audio_rows"], 9, video_t, audio_t, max(video_t, 0.999), 1.0,
        )  # fmt: skip
        assert np.array_equal(np.float32(got["timesteps"]), timesteps.numpy())
        assert got["timestep_indices"] == indices.tolist()
