import pytest

from conftest import BIN, h3diff, refused

VERBS = [
    ("case",), ("case", "list"), ("case", "show"), ("case", "export"), ("compare",), ("import",), ("export",), ("inspect",), ("bench",),
    ("bench", "compare"), ("doctor",),
]  # fmt: skip
TORCH_VERBS = [("run",), ("bench", "probe")]


@pytest.mark.parametrize("verb", VERBS + TORCH_VERBS, ids=" ".join)
def test_every_verb_has_help_with_an_example_and_exit_codes(verb):
    if verb in TORCH_VERBS and not (BIN / "h3diff-torch").exists():
        refused(*verb, "x", "--profile", "p", "-o", "y", code=5 if verb == ("run",) else 2, says=[])
        return
    text = h3diff(*verb, "--help").stdout
    assert "Example:\n  h3diff " in text
    assert "Exit codes:" in text
    for code in ("  2  ", " 70  "):
        assert code in text
    if verb not in (("case",), ("bench",)):
        assert "--json FILE" in text
    assert max(map(len, text.splitlines())) <= 130


def test_the_front_lists_only_verbs_that_work():
    text = h3diff("--help").stdout
    listed = [line.split()[0] for line in text[text.index("Subcommands:") :].splitlines()[1:] if line.startswith("  ")]
    wanted = {"case", "compare", "import", "export", "inspect", "bench", "doctor"}
    if (BIN / "h3diff-torch").exists():
        wanted.add("run")
    assert set(listed) == wanted


def test_version():
    assert h3diff("--version").stdout.startswith("h3diff ")


@pytest.mark.parametrize(
    "words, says",
    [
        ((), "Usage"),
        (("lockstep",), "no verb 'lockstep'"),
        (("case",), "a verb is missing"),
        (("case", "delete"), "no verb 'delete'"),
        (("compare", "a.h5"), "CANDIDATE"),
        (("compare", "a.h5", "b.h5", "--fast"), "--fast"),
        (("compare", "a.h5", "b.h5", "--factor", "wide"), "--factor"),
        (("case", "export", "tiny", "--layout", "sideways", "-o", "x"), "--layout"),
        (("case", "export", "tiny", "--layout", "raw", "--pad-columns", "16", "-o", "x"), "--curve"),
        (("case", "export", "tiny", "--layout", "comfy", "--curve", "1025", "-o", "x"), "GxR"),
        (("case", "export", "tiny", "--layout", "raw", "--shard-size", "many", "-o", "x"), "--shard-size"),
    ],
)
def test_wrong_usage_is_2_and_says_what(words, says, tmp_path):
    refused(*words, code=2, says=[says], cwd=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_the_torch_half(tmp_path):
    import shutil

    alone = tmp_path / "bin"
    alone.mkdir()
    shutil.copy(BIN / "h3diff", alone / "h3diff")
    import subprocess

    words = ["run", "tiny", "--profile", "diffusers-f32", "-o", "x.h5"]
    result = subprocess.run([alone / "h3diff", *words], capture_output=True, text=True, cwd=tmp_path)
    assert result.returncode == 5
    assert "h3diff-torch" in result.stderr and "not installed" in result.stderr
    listing = subprocess.run([alone / "h3diff", "--help"], capture_output=True, text=True).stdout
    assert "\n  run " not in listing
