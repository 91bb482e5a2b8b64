"""One set of weights through diffusers and through diffsynth, and the C++ forward beside diffsynth's pruned class."""

import pytest

from conftest import assert_bitwise, candidate, capture, export, record_of


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pipelines")


@pytest.mark.parametrize("layout", ("raw", "comfy"))
def test_float32_is_bitwise(folder, layout):
    bundle = export(folder / f"tiny-{layout}", "tiny", "--layout", layout)
    diffusers = capture("diffusers", bundle, folder / f"diffusers-{layout}.h5", dtype="f32", steps=2)
    diffsynth = capture("diffsynth", bundle, folder / f"diffsynth-{layout}.h5", dtype="f32", steps=2)
    assert_bitwise(diffusers, diffsynth, 400)
    dump = candidate(bundle, folder / f"h3diff-{layout}.h5", "diffsynth-f32", "--steps", 2)
    assert_bitwise(diffsynth, dump, 400)


def test_bfloat16_differs_where_diffsynth_leaves_the_float32_islands(folder):
    bundle = export(folder / "tiny-raw", "tiny", "--layout", "raw")
    diffusers = capture("diffusers", bundle, folder / "diffusers-bf16.h5", dtype="bf16")
    diffsynth = capture("diffsynth", bundle, folder / "diffsynth-bf16.h5", dtype="bf16")
    record = record_of(diffusers, diffsynth)
    assert record["exit_code"] == 1 and record["verdict"] in ("dtype", "diverged")
    assert record["first_divergence"]["probe"] == "video_patch_proj"
    culprits = {culprit["probe"] for culprit in record["culprits"]}
    assert any(probe.startswith("time_embedder.") or probe == "adaln.t_emb" for probe in culprits), culprits
    refiner = [p["outcome"] for p in record["probes"] if p["probe"].startswith("token_refiner.")]
    assert refiner and set(refiner) == {"bitwise"}
    modulations = [p for p in record["probes"] if p["probe"] == "blocks.0.adaln.shift_msa"]
    assert all(1e-3 < p["rel_l2"] < 2e-2 for p in modulations) and modulations


@pytest.mark.parametrize("form", ("8", "16-zero", "16-random"))
@pytest.mark.parametrize("grid", (1025, 4097))
def test_curve_form_is_bitwise_with_the_pruned_class(folder, grid, form):
    width, _, pad = form.partition("-")
    options = ("--pad-columns", width, "--pad", pad) if pad else ()
    bundle = export(folder / f"curve-{grid}-{form}", "tiny", "--layout", "comfy", "--curve", f"{grid}x8", *options)
    diffsynth = capture("diffsynth", bundle, folder / f"pruned-{grid}-{form}.h5", dtype="f32", steps=2)
    dump = candidate(bundle, folder / f"curve-{grid}-{form}.h5", "diffusers-f32", "--steps", 2)
    assert_bitwise(diffsynth, dump, 400)


def curve(folder, form):
    path = folder / f"pruned-1025-{form}.h5"
    if not path.exists():
        test_curve_form_is_bitwise_with_the_pruned_class(folder, 1025, form)
    return path


def test_random_padding_is_refused_with_its_columns(folder):
    record = record_of(curve(folder, "16-zero"), curve(folder, "16-random"))
    first = record["first_divergence"]
    assert (record["exit_code"], record["verdict"]) == (1, "diverged")
    assert (first["probe"], first["columns"]) == ("weights.blocks.0.adaln_proj", [8, 15])
    assert "adaln_padding" in {hypothesis["kind"] for hypothesis in record["hypotheses"]}


def test_a_wider_table_is_shape_with_its_equal_prefix_told(folder):
    record = record_of(curve(folder, "8"), curve(folder, "16-random"))
    outcomes = {p["probe"]: p for p in record["probes"] if p["step"] == -1}
    table = outcomes["weights.adaln_t_table"]
    assert record["exit_code"] == 1 and record["first_divergence"]["probe"] == "weights.adaln_t_table"
    assert table["outcome"] == "shape" and "columns 0-7 are bitwise the reference's, 8-15 are new" in table["reason"]
    for block in range(6):
        weight = outcomes[f"weights.blocks.{block}.adaln_proj"]
        assert weight["outcome"] == "shape" and "8-15" in weight["reason"], weight
