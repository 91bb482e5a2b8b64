"""Named cases: every probe of the C++ forward is bitwise what diffusers computes, in all three layouts, float32 and
bfloat16, several seeds, 1 and 4 steps, 1 and 2 threads. H3DIFF_FULL=1 runs the whole matrix; without it `tiny` in full
for one seed, and of `small` what covers each dimension once.
"""

import itertools

import pytest

from conftest import FULL, assert_bitwise, candidate, capture, export

LAYOUTS = ("raw", "comfy", "diffusers")
PROBES_A_STEP = {"tiny": 205, "small": 250}

CELLS = list(itertools.product(("tiny", "small"), ("f32", "bf16"), (0, 1, 2), (1, 4), (1, 2)))
COVERING = {("tiny", dtype, 0, steps, threads) for dtype in ("f32", "bf16") for steps in (1, 4) for threads in (1, 2)}
COVERING |= {("tiny", "f32", 1, 1, 1), ("tiny", "bf16", 2, 1, 2), ("small", "f32", 1, 1, 2), ("small", "bf16", 2, 1, 1)}


@pytest.mark.parametrize("case,dtype,seed,steps,threads", [cell for cell in CELLS if FULL or cell in COVERING])
def test_bitwise_with_diffusers(case, dtype, seed, steps, threads, tmp_path, tmp_path_factory):
    bundles = tmp_path_factory.getbasetemp() / "bundles"
    bundles.mkdir(exist_ok=True)
    bundle = {
        layout: export(bundles / f"{case}-{seed}-{layout}", case, "--layout", layout, "--seed", seed) for layout in LAYOUTS
    }
    # Digests decide here, and are the quickest to take. One reference serves the three layouts of one set of weights.
    reference = capture(
        "diffusers", bundle["diffusers"], tmp_path / "reference.h5", dtype=dtype, steps=steps, threads=threads,
        capture="digest",
    )  # fmt: skip
    for layout in LAYOUTS:
        dump = candidate(
            bundle[layout], tmp_path / f"{layout}.h5", f"diffusers-{dtype}", "--threads", threads, "--steps", steps,
            "--capture", "digest",
        )  # fmt: skip
        assert_bitwise(reference, dump, PROBES_A_STEP[case] * steps)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_statistics_agree_too(layout, tmp_path):
    """The default capture, read by diffusers from each layout: statistics to rounding, sketches alike."""
    import h5py
    import numpy as np

    bundle = export(tmp_path / "tiny", "tiny", "--layout", layout)
    reference = capture("diffusers", bundle, tmp_path / "reference.h5", dtype="bf16", steps=2)
    dump = candidate(bundle, tmp_path / "candidate.h5", "diffusers-bf16", "--steps", 2)
    assert_bitwise(reference, dump, 400)
    with h5py.File(reference) as a, h5py.File(dump) as b:
        left, right = a["index"][:], b["index"][:]
        assert len(left) == len(right) > 900
        scale = np.maximum(left["l2"], 1e-300)
        count = np.maximum(left["rows"] * left["cols"], 1)
        for column in ("mean", "std", "l2"):
            per = scale if column == "l2" else scale / np.sqrt(count)
            assert np.nanmax(np.abs(left[column] - right[column]) / per) < 1e-12, column
        for column in ("zeros", "nan", "inf", "subnormal", "min", "max", "absmax", "absmax_row", "absmax_col"):
            assert np.array_equal(left[column], right[column]), column
        np.testing.assert_allclose(left["cosine"], right["cosine"], rtol=0, atol=1e-12, equal_nan=True)
        for table in ("k256",):
            x, y = a["sketches"][table][:], b["sketches"][table][:]
            assert x.shape == y.shape
            assert np.abs(x - y).max() <= 2**-23 * np.abs(x).max()
