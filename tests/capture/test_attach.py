"""The context manager around somebody's own pipeline."""

import math

import pytest
import torch

import dumps
import h3diff_capture
from bundles import inputs, random_model

pytest.importorskip("diffusers")


def test_example_of_the_docstring(tmp_path):
    """A pipeline's loop with two schedulers and in-place latents: sigmas and latents are seen from the schedulers."""
    from diffusers import MiniMaxH3Scheduler

    model, given, path = random_model(), inputs(cond_video=4), str(tmp_path / "mine.h5")
    video_scheduler, audio_scheduler = MiniMaxH3Scheduler(12.0), MiniMaxH3Scheduler(3.0)
    video_scheduler.set_timesteps(4)
    audio_scheduler.set_timesteps(4)
    latents, audio = given.pop("hidden_states")[0].clone(), given.pop("audio_hidden_states")[0].clone()
    first = latents.clone()
    with torch.no_grad(), h3diff_capture.attach(
        model, out=path, steps=3, cond_video_rows=4, scheduler=video_scheduler, audio_scheduler=audio_scheduler,
        facts={"case": "mine"},
    ):  # fmt: skip
        for i, t in enumerate(video_scheduler.timesteps):
            v, a = model(hidden_states=latents[None], audio_hidden_states=audio[None], return_dict=False, **given)
            latents[4:] = video_scheduler.step(v[0, 4:].float(), t, latents[4:], return_dict=False)[0]
            audio[:] = audio_scheduler.step(a[0].float(), audio_scheduler.timesteps[i], audio).prev_sample
    assert "step" not in vars(video_scheduler)
    rows = dumps.rows(path)
    assert dumps.table(path, "unobserved") == []
    assert [s[0] for s in dumps.table(path, "steps")] == [0, 1, 2]
    assert [s[1] for s in dumps.table(path, "steps")] == [float(s) for s in video_scheduler.sigmas[:-1]]
    for step in (1, 2):
        assert rows[step, "input.video", "video"]["digest"] == rows[step - 1, "latent.video", "video"]["digest"]
    from h3diff_capture.digest import digest

    assert rows[2, "latent.video", "video"]["digest"].decode() == digest(latents[4:])
    assert rows[2, "latent.video", "cond_video"]["digest"].decode() == digest(first[:4])
    assert dumps.facts(path)["case"] == "mine"


def test_without_schedulers_the_latents_are_unobserved(tmp_path):
    model, path = random_model(), str(tmp_path / "mine.h5")
    given = inputs(t_video=0.25, t_audio=0.5)
    with torch.no_grad(), h3diff_capture.attach(model, out=path):
        for _ in range(2):
            assert model(**given).sample.shape == given["hidden_states"].shape
    steps = dumps.table(path, "steps")
    assert [s[:3] for s in steps] == [(0, 0.75, 0.5), (1, 0.75, 0.5)] and math.isnan(steps[0][3])
    assert [row[0] for row in dumps.table(path, "unobserved")] == ["latent.video", "latent.audio"]


def test_fused_projections(tmp_path):
    model, given = random_model(), inputs()
    paths = [str(tmp_path / name) for name in ("split.h5", "fused.h5")]
    with torch.no_grad():
        with h3diff_capture.attach(model, out=paths[0]):
            model(**given)
        model.fuse_qkv_projections()
        with h3diff_capture.attach(model, out=paths[1]):
            model(**given)
    split, fused = (dumps.rows(p) for p in paths)
    assert split.keys() == fused.keys()
    key = -1, "weights.blocks.0.attn.qkv_proj", "all"
    assert split[key]["digest"] == fused[key]["digest"]
    assert abs(split[0, "pred.video", "video"]["l2"] - fused[0, "pred.video", "video"]["l2"]) < 1e-4


def test_an_exception_leaves_the_finished_steps(tmp_path):
    model, path = random_model(), str(tmp_path / "mine.h5")
    given = inputs()

    class Stop(Exception):
        pass

    with pytest.raises(Stop), torch.no_grad(), h3diff_capture.attach(model, out=path):
        model(**given)
        model(**given)
        raise Stop
    assert not (tmp_path / "mine.h5").exists()
    # The second step was not closed by anything.
    assert [s[0] for s in dumps.table(path + ".partial", "steps")] == [0]
    assert dumps.facts(path + ".partial")["finished"] == 0
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_other_models_are_refused(tmp_path):
    with pytest.raises(h3diff_capture.CaptureError, match="Linear") as error:
        with h3diff_capture.attach(torch.nn.Linear(2, 2), out=str(tmp_path / "x.h5")):
            pass
    assert error.value.exit_code == 2


def test_in_place_pipelines_are_seen_before_they_overwrite(tmp_path):
    """A tap reduces at once: what a later hook does to the tensor is not in the dump."""
    model, given = random_model(), inputs()
    paths = [str(tmp_path / name) for name in ("a.h5", "b.h5")]
    with torch.no_grad():
        with h3diff_capture.attach(model, out=paths[0]):
            model(**given)
        with h3diff_capture.attach(model, out=paths[1]):

            def overwrite(_module, _args, output):
                output.mul_(2.0)

            handle = model.transformer_blocks[0].norm2.register_forward_hook(overwrite)
            model(**given)
            handle.remove()
    a, b = (dumps.digests(p) for p in paths)
    assert a[0, "blocks.0.norm2", "video"] == b[0, "blocks.0.norm2", "video"]
    assert a[0, "blocks.0.mod_mlp", "video"] != b[0, "blocks.0.mod_mlp", "video"]
