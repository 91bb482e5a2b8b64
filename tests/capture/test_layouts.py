"""One set of weights in three layouts gives one dump, through either pipeline; the curve form through diffsynth."""

import pytest
import torch

import dumps
from bundles import inputs, make_bundle, random_model
from h3diff_capture import CaptureError
from h3diff_capture.bundle import Bundle
from h3diff_capture.run import run
from layouts import bundle_of, curve_state, raw_state

pytest.importorskip("diffusers")


def capture(pipeline, bundle, out, **options):
    run(pipeline, bundle, str(out), progress=lambda _: None, **options)
    return dumps.digests(out)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_diffusers_runs_every_layout_alike(tmp_path, dtype):
    model = random_model(2)
    tensors = inputs()
    reference = capture("diffusers", make_bundle(tmp_path / "diffusers", model, tensors), tmp_path / "d.h5", dtype=dtype)
    raw = bundle_of(tmp_path / "raw", raw_state(model), tensors=tensors, shards=3)
    comfy = bundle_of(tmp_path / "comfy", raw_state(model, comfy=True), tensors=tensors, prefix="model.diffusion_model.")
    assert capture("diffusers", raw, tmp_path / "r.h5", dtype=dtype, layout="raw") == reference
    assert capture("diffusers", comfy, tmp_path / "c.h5", dtype=dtype, layout="comfy") == reference
    # The wrong one of the two is a different model, which is why it is never guessed.
    assert capture("diffusers", comfy, tmp_path / "w.h5", dtype=dtype, layout="raw") != reference


def test_state_built_in_memory_is_what_from_pretrained_builds(tmp_path):
    from h3diff_capture.pipelines import diffusers

    model = random_model(2)
    bundles = [
        Bundle(make_bundle(tmp_path / "diffusers", model)),
        Bundle(bundle_of(tmp_path / "raw", raw_state(model)), "raw"),
    ]
    for dtype in (torch.float32, torch.bfloat16):
        loaded = [diffusers.load(b, dtype, torch.device("cpu")) for b in bundles]
        states = [{**m.state_dict(), "inv_freq": m.rope.inv_freq} for m in loaded]
        assert states[0].keys() == states[1].keys()
        for name in states[0]:
            assert states[0][name].dtype == states[1][name].dtype, name
            assert torch.equal(states[0][name], states[1][name]), name


@pytest.mark.parametrize("layout", ["raw", "comfy"])
def test_diffsynth_reads_its_layouts(tmp_path, layout):
    pytest.importorskip("diffsynth")
    model = random_model(2)
    tensors = inputs()
    reference = capture("diffusers", make_bundle(tmp_path / "diffusers", model, tensors), tmp_path / "d.h5")
    other = bundle_of(tmp_path / layout, raw_state(model, comfy=layout == "comfy"), tensors=tensors)
    assert capture("diffsynth", other, tmp_path / "s.h5", layout=layout) == reference


def test_layout_from_case_json(tmp_path):
    bundle = bundle_of(tmp_path / "b", raw_state(random_model()), case={"name": "x", "layout": "raw"})
    assert Bundle(bundle).checkpoint.layout == "raw"


def test_raw_or_comfy_is_never_guessed(tmp_path):
    bundle = bundle_of(tmp_path / "b", raw_state(random_model()))
    with pytest.raises(CaptureError, match="--layout") as error:
        Bundle(bundle)
    assert error.value.exit_code == 2


def test_raw_config_gives_eps_and_must_agree(tmp_path):
    state = raw_state(random_model())
    good = bundle_of(tmp_path / "good", state, layout_config={"num_layers": 2, "latents_dim": 6, "norm_eps": 1e-3, "ffn_hidden_size": 72})
    assert Bundle(good, "raw").checkpoint.raw_config()["norm_eps"] == 1e-3
    bad = bundle_of(tmp_path / "bad", state, layout_config={"ffn_hidden_size": 73})
    with pytest.raises(CaptureError, match="ffn_dim 73") as error:
        Bundle(bad, "raw")
    assert error.value.exit_code == 3


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_curve_form(tmp_path, dtype):
    pytest.importorskip("diffsynth")
    model = random_model(2)
    tensors = inputs(t_video=0.3, t_audio=0.7)
    bundle = bundle_of(tmp_path / "b", curve_state(model, 33, 8), tensors=tensors)
    digests = capture("diffsynth", bundle, tmp_path / "c.h5", dtype=dtype, layout="comfy")
    facts = dumps.facts(tmp_path / "c.h5")
    assert facts["adaln_form"] == "curve" and facts["curve_grid"] == 33 and facts["time_embed_dim"] == 8
    assert (0, "adaln.t_emb", "all") in digests and not any("time_embedder" in probe for _, probe, _ in digests)
    columns = dumps.table(tmp_path / "c.h5", "columns")
    assert [c[1] for c in columns if c[0] == "weights.adaln_t_table"] == list(range(8))
    assert dumps.table(tmp_path / "c.h5", "unobserved") == []
    with pytest.raises(CaptureError, match="curve") as error:
        capture("diffusers", bundle, tmp_path / "x.h5", layout="comfy")
    assert error.value.exit_code == 2


def test_padded_curve_differs_only_from_its_columns_on(tmp_path):
    pytest.importorskip("diffsynth")
    model = random_model(2)
    tensors = inputs(t_video=0.3)
    paths = []
    for pad in (0, 8):
        bundle = bundle_of(tmp_path / f"b{pad}", curve_state(model, 33, 8, pad), tensors=tensors)
        paths.append(str(tmp_path / f"{pad}.h5"))
        capture("diffsynth", bundle, paths[-1], layout="comfy")
    narrow, wide = (
        [c for c in dumps.table(p, "columns") if c[0] == "weights.blocks.0.adaln_proj"] for p in paths
    )
    assert len(narrow) == 8 and len(wide) == 16
    assert [c[2] for c in narrow] == [c[2] for c in wide[:8]]
