"""The alias tables against the packages they speak of: every module and parameter is mapped, or listed here with the
reason why it has no probe of its own. Exits with 77, which CTest shows as skipped, where a package is missing."""

import importlib.metadata
import json
import pathlib
import re
import sys

ALIASES = pathlib.Path(__file__).parents[2] / "probes" / "aliases"

# Modules that give several probes, or none.
NOT_ONE_PROBE = {
    "diffusers": [
        r"",  # the model itself: two predictions
        r"rope",  # a pair: cos and sin
        r".*\.adaln_proj(\.linear)?",  # six modulations in one tensor
        r"norm_out\.linear",  # shift and scale in one tensor
        r".*\.(attn\.to_out|ff\.net)", r"transformer_blocks", r"token_refiner\.refiner_blocks",  # lists
        r".*\.attn\.to_[qkv]\.weight",  # thirds of weights...attn.qkv_proj
        r".*\.ff\.net\.0\.activation",  # half of a SwiGLU
    ],
    "diffsynth": [
        r"", r"rope", r".*adaln_proj(\.linear)?", r"blocks", r"token_refiner\.blocks",
        r".*\.attn\.qkv_proj",  # q, k and v in one tensor
        r"final_layer",  # two predictions
    ],
}  # fmt: skip


def canonical(names, foreign):
    for entry in names:
        pattern = re.escape(entry["name"]).replace(r"\{n\}", "(0|[1-9][0-9]*)")
        if re.fullmatch(pattern, foreign):
            return entry["probe"]
    return None


def models():
    import torch
    from diffsynth.models.minimax_h3_dit import MiniMaxH3DiT
    from diffusers import MiniMaxH3Transformer3DModel

    with torch.device("meta"):
        yield "diffusers", MiniMaxH3Transformer3DModel(num_layers=2, num_refiner_layers=1, hidden_size=64)
        yield "diffsynth", MiniMaxH3DiT(
            num_layers=2, token_refiner_num_layers=1, hidden_size=64, adaln_out_features=18 * 64, final_adaln_out_features=128
        )


def main():
    try:
        installed = {port: importlib.metadata.version(port) for port in NOT_ONE_PROBE}
    except importlib.metadata.PackageNotFoundError as missing:
        print(f"skipped: {missing}")
        return 77
    failures = []
    for port, model in models():
        table = json.loads((ALIASES / f"{port}.json").read_text())
        if table["version"] != installed[port]:
            failures.append(f"{port}: the table is of {table['version']}, installed is {installed[port]}")
        names = [name for name, _ in model.named_modules()] + [name for name, _ in model.named_parameters()]
        for name in names:
            excused = any(re.fullmatch(pattern, name) for pattern in NOT_ONE_PROBE[port])
            if (canonical(table["names"], name) is None) != excused:
                failures.append(f"{port}: {name or 'the model'} is {'mapped and excused' if excused else 'not mapped'}")
        print(f"{port}: {len(names)} modules and parameters")
    print("\n".join(failures))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
