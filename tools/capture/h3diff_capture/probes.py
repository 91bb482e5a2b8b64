"""The probes of one run: names, order, row spaces. docs/probes.md is the same list in prose."""

from dataclasses import dataclass, fields
import re


@dataclass
class ModelShape:
    """Shape of an H3 transformer, by diffusers' names. `curve_grid` > 0: the curve form, a table
    [curve_grid, time_embed_dim] in place of the time embedder."""

    num_layers: int
    num_refiner_layers: int
    hidden_size: int
    num_attention_heads: int
    attention_head_dim: int
    ffn_dim: int
    in_channels: int
    audio_in_channels: int
    video_patch_dim: int
    text_dim: int
    freq_dim: int
    time_embed_hidden_dim: int
    time_embed_dim: int
    rope_freq_dim: int
    curve_grid: int = 0

    @property
    def curve(self):
        return self.curve_grid > 0

    @property
    def inner_dim(self):
        return self.num_attention_heads * self.attention_head_dim

    def facts(self):
        """Run facts, docs/dump-format.md section 3."""
        facts = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "curve_grid"}
        facts["adaln_form"] = "curve" if self.curve else "mlp"
        if self.curve:
            facts["curve_grid"] = self.curve_grid
            del facts["freq_dim"], facts["time_embed_hidden_dim"]
        return facts


@dataclass(frozen=True)
class Probe:
    name: str
    op: str
    space: str  # packed, text, video, audio, modulation, timesteps, other
    step: bool = True  # False: a weight, at step -1
    per_column: bool = False


MODULATIONS = ("shift_msa", "scale_msa", "gate_msa", "shift_mlp", "scale_mlp", "gate_mlp")


class ProbeList:
    """All probes in execution order, weights first."""

    def __init__(self, shape):
        self.shape = shape
        self.probes = [*_weights(shape), *_step(shape)]
        self.position = {probe.name: i for i, probe in enumerate(self.probes)}

    def __getitem__(self, name):
        return self.probes[self.position[name]]

    def names(self, step):
        """Names of the weights (step False) or of one step's probes (True)."""
        return [probe.name for probe in self.probes if probe.step == step]


def _weights(shape):
    def weight(module, bias=False, per_column=False):
        yield Probe(f"weights.{module}", "weight", "other", step=False, per_column=per_column)
        if bias:
            yield Probe(f"weights.{module}.bias", "weight", "other", step=False)

    def block(prefix):
        for module in ("norm1", "attn.qkv_proj", "attn.q_norm", "attn.k_norm", "attn.out_proj", "norm2", "mlp.fc1", "mlp.fc2"):
            yield from weight(f"{prefix}.{module}")

    for module in ("video_patch_proj", "audio_patch_proj", "condition_proj"):
        yield from weight(module, bias=True)
    for n in range(shape.num_refiner_layers):
        yield from block(f"token_refiner.blocks.{n}")
    yield from weight("token_refiner.final_norm")
    yield from weight("rope.inv_freq")
    if shape.curve:
        yield from weight("adaln_t_table", per_column=True)
    else:
        yield from weight("time_embedder.proj_in", bias=True)
        yield from weight("time_embedder.proj_out", bias=True)
    for n in range(shape.num_layers):
        yield from weight(f"blocks.{n}.adaln_proj", bias=True, per_column=True)
        yield from block(f"blocks.{n}")
    yield from weight("final_layer.adaln_proj", bias=True, per_column=True)
    yield from weight("final_layer.norm")
    yield from weight("final_layer.video_out", bias=True)
    yield from weight("final_layer.audio_out", bias=True)


def _step(shape):
    for name, space in (
        ("video", "video"), ("audio", "audio"), ("text", "text"), ("timestep", "timesteps"),
        ("timestep_indices", "packed"), ("token_tags", "packed"), ("position_ids", "packed"),
    ):  # fmt: skip
        yield Probe(f"input.{name}", "input", space)
    yield Probe("rope.cos", "rope", "packed")
    yield Probe("rope.sin", "rope", "packed")
    yield Probe("video_patch_proj", "linear", "video")
    yield Probe("audio_patch_proj", "linear", "audio")
    yield Probe("condition_proj", "linear", "text")
    for n in range(shape.num_refiner_layers):
        prefix = f"token_refiner.blocks.{n}"
        yield Probe(f"{prefix}.norm1", "rms_norm", "text")
        yield from _attention(prefix, "text", rope=False)
        yield Probe(f"{prefix}.residual_msa", "residual", "text")
        yield Probe(f"{prefix}.norm2", "rms_norm", "text")
        yield from _mlp(prefix, "text")
    yield Probe("token_refiner.final_norm", "rms_norm", "text")
    yield Probe("packed", "pack", "packed")
    if not shape.curve:
        yield Probe("time_embedder.sinusoid", "time_embed", "timesteps")
        yield Probe("time_embedder.proj_in", "linear", "timesteps")
        yield Probe("time_embedder.act", "silu", "timesteps")
    yield Probe("adaln.t_emb", "adaln_curve" if shape.curve else "linear", "timesteps")
    for n in range(shape.num_layers):
        prefix = f"blocks.{n}"
        yield Probe(f"{prefix}.adaln.input", "adaln", "timesteps")
        for name in MODULATIONS:
            yield Probe(f"{prefix}.adaln.{name}", "adaln", "modulation")
        yield Probe(f"{prefix}.norm1", "rms_norm", "packed")
        yield Probe(f"{prefix}.mod_msa", "modulation", "packed")
        yield from _attention(prefix, "packed", rope=True)
        yield Probe(f"{prefix}.residual_msa", "residual", "packed")
        yield Probe(f"{prefix}.norm2", "rms_norm", "packed")
        yield Probe(f"{prefix}.mod_mlp", "modulation", "packed")
        yield from _mlp(prefix, "packed")
    yield Probe("final.adaln.input", "adaln", "timesteps")
    yield Probe("final.adaln.shift", "adaln", "timesteps")
    yield Probe("final.adaln.scale", "adaln", "timesteps")
    yield Probe("final.norm", "rms_norm", "packed")
    yield Probe("final.mod", "modulation", "packed")
    yield Probe("pred.video", "linear", "video")
    yield Probe("pred.audio", "linear", "audio")
    yield Probe("latent.video", "euler", "video")
    yield Probe("latent.audio", "euler", "audio")


def _attention(prefix, space, rope):
    for name in ("q", "k", "v"):
        yield Probe(f"{prefix}.attn.{name}", "linear", space)
    for name in ("q_norm", "k_norm"):
        yield Probe(f"{prefix}.attn.{name}", "rms_norm", space)
    if rope:
        yield Probe(f"{prefix}.attn.q_rope", "rope", space)
        yield Probe(f"{prefix}.attn.k_rope", "rope", space)
    yield Probe(f"{prefix}.attn.sdpa", "attention", space)
    yield Probe(f"{prefix}.attn.out_proj", "linear", space)


def _mlp(prefix, space):
    yield Probe(f"{prefix}.mlp.fc1", "linear", space)
    yield Probe(f"{prefix}.mlp.act", "swiglu", space)
    yield Probe(f"{prefix}.mlp.fc2", "linear", space)
    yield Probe(f"{prefix}.out", "residual", space)


def glob_pattern(pattern):
    """Shell-style: * any run of characters, ? one character, everything else literal."""
    text = "".join(".*" if c == "*" else "." if c == "?" else re.escape(c) for c in pattern)
    return re.compile(text, re.DOTALL)
