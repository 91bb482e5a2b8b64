"""Captures of small bundles through the real pipelines."""

import math

import pytest
import torch

import dumps
from bundles import inputs, make_bundle, random_model
from h3diff_capture.attachment import attach
from h3diff_capture.bundle import Bundle
from h3diff_capture.probes import ProbeList
from h3diff_capture.run import run
from h3diff_capture.segments import SEGMENTS
from layouts import bundle_of, raw_state

pytest.importorskip("diffusers")
PIPELINES = ["diffusers", "diffsynth"]
QUIET = {"progress": lambda _: None}


@pytest.fixture(params=PIPELINES)
def pipeline(request):
    pytest.importorskip(request.param)
    return request.param


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_observing_changes_nothing(bundle, tmp_path, pipeline, dtype):
    alone = run(pipeline, bundle, "", dtype, observe=False, **QUIET)
    observed = run(pipeline, bundle, str(tmp_path / "d.h5"), dtype, capture="full", **QUIET)
    for a, b in zip(alone, observed):
        assert torch.equal(a, b)
    again = run(pipeline, bundle, "", dtype, observe=False, **QUIET)
    assert all(torch.equal(a, b) for a, b in zip(alone, again))


def test_every_probe_is_seen_in_order(bundle, tmp_path, pipeline):
    path = str(tmp_path / "d.h5")
    run(pipeline, bundle, path, **QUIET)
    probes = ProbeList(Bundle(bundle).checkpoint.shape)
    expected = [(-1, name) for name in probes.names(step=False)]
    expected += [(step, name) for step in range(3) for name in probes.names(step=True)]
    rows = list(dumps.rows(path))
    seen = list(dict.fromkeys((step, probe) for step, probe, _ in rows))
    assert seen == expected
    assert dumps.table(path, "unobserved") == []
    # The segments of one probe stand in one order, each once.
    assert len(rows) == len(set(rows))
    for step, probe in seen:
        order = [SEGMENTS.index(s) for st, p, s in rows if (st, p) == (step, probe)]
        assert order == sorted(order)
    packed = [s for st, p, s in rows if (st, p) == (0, "packed")]
    assert packed == ["text", "vision", "cond_video", "cond_audio", "audio", "video"]
    assert [s for st, p, s in rows if (st, p) == (0, "blocks.1.adaln.gate_mlp")] == ["text", "audio", "video"]


def test_two_pipelines_agree_bit_for_bit_in_float32(bundle, tmp_path):
    pytest.importorskip("diffsynth")
    for pipeline in PIPELINES:
        run(pipeline, bundle, str(tmp_path / pipeline), **QUIET)
    assert dumps.digests(tmp_path / "diffusers") == dumps.digests(tmp_path / "diffsynth")


def test_bfloat16_first_differs_at_the_islands(bundle, tmp_path):
    pytest.importorskip("diffsynth")
    for pipeline in PIPELINES:
        run(pipeline, bundle, str(tmp_path / pipeline), "bf16", **QUIET)
    a, b = (dumps.rows(tmp_path / p) for p in PIPELINES)
    step = [k for k in a if k[0] == 0]
    first = next(k for k in step if a[k]["digest"] != b[k]["digest"])
    assert first[1] == "video_patch_proj"
    assert (a[first]["dtype"], b[first]["dtype"]) == (b"float32", b"bfloat16")
    refiner = [k for k in step if k[1].startswith("token_refiner.")]
    assert refiner and all(a[k]["digest"] == b[k]["digest"] for k in refiner)
    assert a[0, "adaln.t_emb", "all"]["dtype"] == b"float32"


def test_against_plain_torch(bundle, tmp_path):
    """Tensors in the dump are what the model gives when it is called without this package."""
    import h5py
    from diffusers import MiniMaxH3Transformer3DModel
    from safetensors.torch import load_file

    path = str(tmp_path / "d.h5")
    run("diffusers", bundle, path, capture="full", steps=1, **QUIET)
    model = MiniMaxH3Transformer3DModel.from_pretrained(f"{bundle}/transformer")
    for p in model.parameters():
        p.data = p.data.clone()
    given = load_file(f"{bundle}/inputs.safetensors")
    kept = {}
    block = model.transformer_blocks[1]
    block.ff.net[0].proj.register_forward_hook(lambda m, a, o: kept.update(fc1=o[0]))
    block.attn.to_v.register_forward_hook(lambda m, a, o: kept.update(v=o[0]))
    block.register_forward_pre_hook(lambda m, a: kept.update(before=a[0][0]))
    with torch.no_grad():
        video, audio = model(**given, return_dict=False)
    with h5py.File(path) as file:
        def segment(probe, name):
            return torch.from_numpy(file[f"tensors/0/{probe}/{name}"][:])

        at = given["video_indices"][4:]
        assert torch.equal(segment("pred.video", "video"), video[0, 4:])
        assert torch.equal(segment("pred.audio", "cond_audio"), audio[0, :2])
        assert torch.equal(segment("blocks.1.attn.v", "video"), kept["v"][at])
        assert torch.equal(segment("blocks.0.out", "video"), kept["before"][at])
        value, gate = kept["fc1"][at].chunk(2, -1)
        assert torch.equal(segment("blocks.1.mlp.fc1", "video"), torch.cat([gate, value], -1))
        vision = [i for i in given["text_indices"] if given["token_tags"][i] == 0]
        assert torch.equal(segment("input.text", "vision"), given["encoder_hidden_states"][0, vision])
        # One step from sigma 1 to 0: the latents are x + v, and conditioning rows stay.
        x = given["hidden_states"][0]
        assert torch.equal(segment("latent.video", "cond_video"), x[:4])
        assert torch.allclose(segment("latent.video", "video"), x[4:] + video[0, 4:], atol=1e-6)
        assert torch.equal(segment("input.timestep_indices", "video")[:, 0].long(), given["timestep_indices"][at])


def test_steps_follow_the_schedule(bundle, tmp_path):
    path = str(tmp_path / "d.h5")
    run("diffusers", bundle, path, steps=4, **QUIET)
    steps = dumps.table(path, "steps")
    grid = [1 - i / 4 for i in range(5)]
    for shift, now, after in ((12, 1, 3), (3, 2, 4)):
        sigmas = [shift * u / (1 + (shift - 1) * u) for u in grid]
        assert [s[now] for s in steps] == pytest.approx(sigmas[:-1], abs=1e-6)
        assert [s[after] for s in steps] == pytest.approx(sigmas[1:], abs=1e-6)
    rows = dumps.rows(path)
    for step in range(1, 4):
        for kind in ("video", "audio", "cond_video", "cond_audio"):
            probe = "video" if "video" in kind else "audio"
            assert rows[step, f"input.{probe}", kind]["digest"] == rows[step - 1, f"latent.{probe}", kind]["digest"]
    assert [int(rows[s, "packed", "video"]["sketch_k"]) for s in range(4)] == [256, 256, 64, 256]


def test_bundle_without_case_runs_one_step_from_where_it_stands(tmp_path):
    bundle = make_bundle(tmp_path / "b", tensors=inputs(t_video=0.25, t_audio=0.5))
    path = str(tmp_path / "d.h5")
    run("diffusers", bundle, path, **QUIET)
    assert dumps.table(path, "steps") == [(0, 0.75, 0.5, 0.0, 0.0)]
    facts = dumps.facts(path)
    assert "case" not in facts and "seed" not in facts and facts["steps_planned"] == 1
    rows = dumps.rows(path)
    assert not math.isnan(rows[0, "pred.video", "video"]["cosine"])
    assert math.isnan(rows[0, "packed", "video"]["cosine"])


def test_facts(bundle, tmp_path, pipeline):
    import hashlib
    import json
    import struct

    path = str(tmp_path / "d.h5")
    run(pipeline, bundle, path, "bf16", **QUIET)
    facts = dumps.facts(path)
    with open(f"{bundle}/inputs.safetensors", "rb") as file:
        assert facts["case_digest"] == hashlib.sha256(file.read()).hexdigest()
    with open(f"{bundle}/transformer/diffusion_pytorch_model.safetensors", "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
    header.pop("__metadata__", None)
    lines = sorted(f"{n} {t['dtype']} [{','.join(map(str, t['shape']))}]" for n, t in header.items())
    assert facts["checkpoint_digest"] == hashlib.sha256("\n".join(lines).encode()).hexdigest()
    assert (facts["case"], facts["seed"], facts["bundle"]) == ("tiny", 3, "every-segment")
    assert (facts["pipeline"], facts["profile"], facts["compute_dtype"]) == (pipeline, f"{pipeline}-bf16", "bfloat16")
    assert (facts["threads"], facts["deterministic"], facts["finished"]) == (1, 1, 1)
    assert (facts["hidden_size"], facts["ffn_dim"], facts["video_patch_dim"]) == (84, 72, 24)
    calls = {row[0]: row for row in dumps.table(path, "dispatch")}
    # 3 blocks and 3 steps: one attention each.
    assert calls["attention"] == ("attention", "sdpa", "sdpa", 9, 0)
    assert {"linear", "rms_norm", "rope", "adaln", "swiglu", "residual", "modulation"} <= set(calls)


def test_per_column_figures_of_adaln_weights(bundle, tmp_path):
    path = str(tmp_path / "d.h5")
    run("diffusers", bundle, path, **QUIET)
    columns = dumps.table(path, "columns")
    probes = list(dict.fromkeys(c[0] for c in columns))
    assert probes == ["weights.blocks.0.adaln_proj", "weights.blocks.1.adaln_proj", "weights.final_layer.adaln_proj"]
    weight = Bundle(bundle).checkpoint.internal("blocks.1.adaln_proj.linear.weight").double()
    mine = [c for c in columns if c[0] == "weights.blocks.1.adaln_proj"]
    assert [c[1] for c in mine] == list(range(24))
    assert [c[8] for c in mine] == pytest.approx(weight.norm(dim=0).tolist(), rel=1e-12)


def test_taps_are_gone_afterwards(tmp_path):
    import diffusers.models.transformers.transformer_minimax_h3 as module

    model, original = random_model(), module.dispatch_attention_fn
    with attach(model, str(tmp_path / "d.h5")):
        assert module.dispatch_attention_fn is not original
        assert any(m._forward_hooks for m in model.modules())
    assert module.dispatch_attention_fn is original
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


@pytest.mark.parametrize("changes", [
    dict(num_layers=1, num_refiner_layers=0),
    dict(num_attention_heads=5, attention_head_dim=16, rope_freq_dim=2, hidden_size=33, ffn_dim=7, time_embed_dim=5),
    dict(in_channels=3, audio_in_channels=5, text_dim=17, freq_dim=6, patch_size=(1, 1, 4)),
])  # fmt: skip
def test_other_shapes(tmp_path, changes):
    bundle = make_bundle(tmp_path / "b", random_model(7, **changes), text=3, audio=2, video=9)
    path = str(tmp_path / "d.h5")
    run("diffusers", bundle, path, "bf16", **QUIET)
    assert dumps.table(path, "unobserved") == []


def test_unsorted_timesteps_are_listed_ascending(tmp_path):
    """The order in which the caller lists the distinct timesteps leaves no trace but in input.timestep_indices."""
    model = random_model()
    given = inputs(t_video=0.1, t_audio=0.6)
    flipped = dict(given, timestep=given["timestep"].flip(0), timestep_indices=1 - given["timestep_indices"])
    found = []
    for name, tensors in (("a", given), ("b", flipped)):
        run("diffusers", make_bundle(tmp_path / name, model, tensors), str(tmp_path / f"{name}.h5"), **QUIET)
        found.append(dumps.digests(tmp_path / f"{name}.h5"))
    different = {key[1] for key in found[0] if found[0][key] != found[1][key]}
    assert different == {"input.timestep_indices"}


def test_checkpoint_of_the_raw_layout_in_bfloat16_files(tmp_path):
    """Islands that a file stores in bfloat16 are widened, as from_pretrained does."""
    state = {k: v.to(torch.bfloat16) if k != "rope.inv_freq" else v for k, v in raw_state(random_model()).items()}
    path = str(tmp_path / "d.h5")
    run("diffusers", bundle_of(tmp_path / "b", state), path, "bf16", layout="raw", **QUIET)
    rows = dumps.rows(path)
    assert rows[-1, "weights.video_patch_proj", "all"]["dtype"] == b"float32"
    assert rows[-1, "weights.condition_proj", "all"]["dtype"] == b"bfloat16"
