import pytest

from bundles import CONFIG
from h3diff_capture.capture_spec import CaptureSpec
from h3diff_capture.errors import UsageError
from h3diff_capture.probes import ModelShape, ProbeList

SHAPE = ModelShape(
    **{k: v for k, v in CONFIG.items() if k != "patch_size"}, video_patch_dim=CONFIG["in_channels"] * 4
)


def test_later_items_override():
    spec = CaptureSpec("digest, blocks.0.*=full ,blocks.0.out=off,budget=4GiB,rows=8,sketch=128")
    assert spec.level("packed") == "digest"
    assert spec.level("blocks.0.attn.q") == "full"
    assert spec.level("blocks.0.out") == "off"
    assert spec.level("blocks.01.out") == "digest"
    assert (spec.budget_bytes, spec.sample_rows) == (4 << 30, 8)
    assert spec.sketch(3, 9) == 128


def test_automatic_sketch_size():
    assert [CaptureSpec("stats").sketch(step, 5) for step in range(5)] == [256, 256, 64, 64, 256]


@pytest.mark.parametrize("item", ["", "nothing", "=full", "packed=loud", "budget=many", "budget=4TB", "rows=0", "sketch=100", "stats,,"])
def test_refused_items_are_quoted(item):
    with pytest.raises(UsageError, match="--capture"):
        CaptureSpec(item)


def test_pattern_without_a_probe():
    CaptureSpec("weights.*=digest,blocks.?.attn.q=full").check(ProbeList(SHAPE))
    with pytest.raises(UsageError, match="blocks.9"):
        CaptureSpec("blocks.9.*=full").check(ProbeList(SHAPE))


def test_brackets_are_literal():
    with pytest.raises(UsageError):
        CaptureSpec("blocks.[01].out=full").check(ProbeList(SHAPE))
