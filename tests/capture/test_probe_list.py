"""The probe list against docs/probes.md, and the copies of the alias tables."""

import json
import os
import re

import pytest

from conftest import PACKAGE, REPOSITORY
from h3diff_capture.probes import MODULATIONS, ProbeList
from test_capture_spec import SHAPE

DOCS = os.path.join(REPOSITORY, "docs", "probes.md")
ALIASES = os.path.join(REPOSITORY, "probes", "aliases")


def documented_step(known):
    """Names of the step's table, one block and one refiner block, in its order. A name that begins with a dot is
    relative to the block, else to its neighbour; `known` tells which."""
    with open(DOCS, encoding="utf-8") as file:
        lines = file.read().split("| probe | op |")[1].splitlines()
    names, block = [], ""
    for line in lines:
        for name in re.findall(r"`([^`]+)`", line.split("|")[1] if line.startswith("| `") else ""):
            if name == "gate_mlp":  # "... (six, in checkpoint order)"
                names += [f"{block}.adaln.{m}" for m in MODULATIONS[1:]]
                continue
            if name.startswith("."):
                relative = block + "." + name.lstrip(".")
                name = relative if relative in known else names[-1].rsplit(".", 1)[0] + name
            block = (re.match(r"(token_refiner\.)?blocks\.N", name) or [block])[0]
            names.append(name)
    return names


def test_step_probes_are_the_documented_ones_in_order():
    ours = []
    for name in ProbeList(SHAPE).names(step=True):
        name = re.sub(r"blocks\.\d+", "blocks.N", name)
        if name not in ours:
            ours.append(name)
    assert ours == documented_step(set(ours))


def test_weight_probes_are_the_documented_ones():
    with open(DOCS, encoding="utf-8") as file:
        block = re.search(r"\n((?:    weights\..*\n)+)", file.read())[1]
    documented = set()
    for token in block.split():
        if token == "or":
            continue
        for name in _expand(token):
            documented |= {name.removesuffix("[.bias]"), name.replace("[.bias]", ".bias")}
    ours = {re.sub(r"blocks\.\d+", "blocks.N", name) for name in ProbeList(SHAPE).names(step=False)}
    assert ours == documented - {"weights.adaln_t_table"}


def _expand(token):
    match = re.search(r"\{(.*)", token)
    if match is None and "{" not in token and not token.startswith("weights."):
        return [_expand.prefix + token.strip(",}")]
    if match is None:
        return [token]
    _expand.prefix = token[: match.start()]
    return [_expand.prefix + match[1].strip(",}")]


def test_curve_form_has_no_time_embedder():
    from dataclasses import replace

    names = ProbeList(replace(SHAPE, curve_grid=33)).position
    assert "weights.adaln_t_table" in names and not any("time_embedder" in n for n in names)


@pytest.mark.skipif(not os.path.isdir(ALIASES), reason="no probes/aliases beside this package")
def test_alias_tables_are_copies():
    ours = os.path.join(PACKAGE, "h3diff_capture", "aliases")
    assert sorted(os.listdir(ours)) == sorted(n for n in os.listdir(ALIASES) if n.endswith(".json"))
    for name in os.listdir(ours):
        with open(os.path.join(ours, name), "rb") as a, open(os.path.join(ALIASES, name), "rb") as b:
            assert a.read() == b.read(), name


def test_aliases_name_known_probes():
    """Every alias leads to a probe of the list."""
    folder = os.path.join(PACKAGE, "h3diff_capture", "aliases")
    from dataclasses import replace

    known = set(ProbeList(SHAPE).position) | set(ProbeList(replace(SHAPE, curve_grid=33)).position)
    for name in os.listdir(folder):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            for entry in json.load(file)["names"]:
                assert entry["probe"].replace("{n}", "0") in known, (name, entry)
