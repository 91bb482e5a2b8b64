"""diffusers' MiniMaxH3Transformer3DModel."""

import importlib
import inspect

import torch

from ..checkpoint import DIFFUSERS_MODULES
from ..errors import BadInput, UsageError
from ..observer import rows_by_columns
from ..probes import MODULATIONS, ModelShape
from ..segments import layout_from_tensors

NAME = "diffusers"
MODEL_CLASS = "MiniMaxH3Transformer3DModel"

def shape_of(model):
    c = model.config
    patch = c.patch_size
    return ModelShape(
        num_layers=c.num_layers, num_refiner_layers=c.num_refiner_layers, hidden_size=c.hidden_size,
        num_attention_heads=c.num_attention_heads, attention_head_dim=c.attention_head_dim, ffn_dim=c.ffn_dim,
        in_channels=c.in_channels, audio_in_channels=c.audio_in_channels,
        video_patch_dim=c.in_channels * patch[0] * patch[1] * patch[2], text_dim=c.text_dim, freq_dim=c.freq_dim,
        time_embed_hidden_dim=c.time_embed_hidden_dim, time_embed_dim=c.time_embed_dim, rope_freq_dim=c.rope_freq_dim,
    )  # fmt: skip


def compute_dtype(model):
    """The dtype of the block stack, whatever islands stand in float32."""
    return model.transformer_blocks[0].ff.net[2].weight.dtype


def loading_facts(dtype):
    """How `load` treats the weights."""
    return {"weights_as": "from_pretrained(torch_dtype), float32 islands kept"}


def _blocks(model):
    for n, block in enumerate(model.token_refiner.refiner_blocks):
        yield f"token_refiner.blocks.{n}", block
    for n, block in enumerate(model.transformer_blocks):
        yield f"blocks.{n}", block


def gate_first(tensor, dim):
    """diffusers keeps fc1 as [value; gate]; the canonical form is [gate; value]."""
    value, gate = tensor.chunk(2, dim=dim)
    return torch.cat((gate, value), dim=dim)


def weights(model):
    def matrix(tensor):
        return tensor.detach() if tensor.dim() == 2 else tensor.detach().reshape(1, -1)

    def linear(probe, module):
        yield f"weights.{probe}", matrix(module.weight)
        if getattr(module, "bias", None) is not None:
            yield f"weights.{probe}.bias", matrix(module.bias)

    for name, path in DIFFUSERS_MODULES.items():
        yield from linear(name.removesuffix(".linear"), model.get_submodule(path))
    yield "weights.rope.inv_freq", matrix(model.rope.inv_freq)
    for prefix, block in _blocks(model):
        attn = block.attn
        if hasattr(block, "adaln_proj"):
            yield from linear(f"{prefix}.adaln_proj", block.adaln_proj.linear)
        qkv = attn.to_qkv.weight if attn.fused_projections else torch.cat(
            [attn.to_q.weight, attn.to_k.weight, attn.to_v.weight]
        )
        yield f"weights.{prefix}.attn.qkv_proj", matrix(qkv)
        for probe, module in (
            ("norm1", block.norm1), ("norm2", block.norm2), ("attn.q_norm", attn.norm_q), ("attn.k_norm", attn.norm_k),
            ("attn.out_proj", attn.to_out[0]), ("mlp.fc2", block.ff.net[2]),
        ):  # fmt: skip
            yield f"weights.{prefix}.{probe}", matrix(module.weight)
        yield f"weights.{prefix}.mlp.fc1", gate_first(matrix(block.ff.net[0].proj.weight), 0)


def attach(model, observer, taps, conditioning=(0, 0)):
    see, count = observer.see, observer.count

    def tap(module, probe, op=None, form=rows_by_columns):
        def look(output):
            if op:
                count(op)
            see(probe, form(output))

        taps.on_output(module, look)

    def tap_input(module, probe, op=None):
        def look(value):
            if op:
                count(op)
            see(probe, rows_by_columns(value))

        taps.on_input(module, look)

    signature = inspect.signature(type(model).forward)

    def begin(args, kwargs):
        given = signature.bind(model, *args, **kwargs).arguments
        if given["hidden_states"].shape[0] != 1:
            raise UsageError(f"the capture takes a batch of 1, got {given['hidden_states'].shape[0]}")
        sequence = layout_from_tensors(
            given["video_indices"], given["audio_indices"], given["text_indices"], given["token_tags"], *conditioning
        )
        observer.begin_step(
            {
                "input.video": rows_by_columns(given["hidden_states"]),
                "input.audio": rows_by_columns(given["audio_hidden_states"]),
                "input.text": rows_by_columns(given["encoder_hidden_states"]),
                "input.timestep": given["timestep"].reshape(-1, 1),
                "input.timestep_indices": given["timestep_indices"].reshape(-1, 1),
                "input.token_tags": given["token_tags"].reshape(-1, 1),
                "input.position_ids": given["position_ids"].reshape(-1, 3),
            },
            sequence,
        )

    def rope(output):
        count("rope")
        see("rope.cos", output[0])
        see("rope.sin", output[1])

    taps.on_call(model, begin)
    taps.on_output(model.rope, rope)
    tap(model.proj_in, "video_patch_proj", "linear")
    tap(model.audio_proj_in, "audio_patch_proj", "linear")
    tap(model.context_embedder, "condition_proj", "linear")
    tap(model.token_refiner.final_norm, "token_refiner.final_norm", "rms_norm")
    tap_input(model.time_embedder.linear_1, "time_embedder.sinusoid")
    tap(model.time_embedder.linear_1, "time_embedder.proj_in", "linear")
    tap_input(model.time_embedder.linear_2, "time_embedder.act")
    tap(model.time_embedder.linear_2, "adaln.t_emb", "linear")
    if len(model.transformer_blocks):
        tap_input(model.transformer_blocks[0], "packed")
    for prefix, block in _blocks(model):
        _attach_block(prefix, block, observer, taps, tap, tap_input)
    _attach_attention(model, observer, taps)

    def final_adaln(output):
        count("adaln")
        shift, scale = output.chunk(2, dim=-1)
        see("final.adaln.shift", shift)
        see("final.adaln.scale", scale)

    tap_input(model.norm_out.linear, "final.adaln.input")
    taps.on_output(model.norm_out.linear, final_adaln)
    tap(model.norm_out.norm, "final.norm", "rms_norm")
    tap(model.norm_out, "final.mod", "modulation")
    taps.on_output(model.proj_out, lambda _: count("linear"))
    taps.on_output(model.audio_proj_out, lambda _: count("linear"))

    def predictions(output):
        video, audio = (output[0], output[1]) if isinstance(output, tuple) else (output.sample, output.audio_sample)
        see("pred.video", rows_by_columns(video))
        see("pred.audio", rows_by_columns(audio))

    taps.on_output(model, predictions)


def _attach_block(prefix, block, observer, taps, tap, tap_input):
    see, count = observer.see, observer.count
    attn, ff = block.attn, block.ff
    modulated = hasattr(block, "adaln_proj")
    if modulated:

        def adaln(output):
            count("adaln")
            for name, value in zip(MODULATIONS, output):
                see(f"{prefix}.adaln.{name}", value)

        tap_input(block.adaln_proj.linear, f"{prefix}.adaln.input")
        taps.on_output(block.adaln_proj, adaln)
    tap(block.norm1, f"{prefix}.norm1", "rms_norm")
    if modulated:
        tap_input(attn, f"{prefix}.mod_msa", "modulation")
    if attn.fused_projections:

        def qkv(output):
            count("linear")
            for name, value in zip("qkv", rows_by_columns(output).chunk(3, dim=-1)):
                see(f"{prefix}.attn.{name}", value)

        taps.on_output(attn.to_qkv, qkv)
    else:
        for name in "qkv":
            tap(getattr(attn, f"to_{name}"), f"{prefix}.attn.{name}", "linear")

    def heads_flat(value):
        return value.flatten(-2).flatten(0, -2)

    tap(attn.norm_q, f"{prefix}.attn.q_norm", "rms_norm", heads_flat)
    tap(attn.norm_k, f"{prefix}.attn.k_norm", "rms_norm", heads_flat)
    tap(attn.to_out[0], f"{prefix}.attn.out_proj", "linear")
    tap_input(block.norm2, f"{prefix}.residual_msa", "residual")
    tap(block.norm2, f"{prefix}.norm2", "rms_norm")
    if modulated:
        tap_input(ff, f"{prefix}.mod_mlp", "modulation")
    tap(ff.net[0].proj, f"{prefix}.mlp.fc1", "linear", lambda value: gate_first(rows_by_columns(value), 1))
    tap(ff.net[0], f"{prefix}.mlp.act", "swiglu")
    tap(ff.net[2], f"{prefix}.mlp.fc2", "linear")
    tap(block, f"{prefix}.out", "residual")


def _attach_attention(model, observer, taps):
    """q and k after the rotary and the attention's result are no module's output: the one function that
    diffusers' processor calls for attention is wrapped while the taps are on."""
    current = []  # prefix of the attention module that is running
    for prefix, block in _blocks(model):
        taps.on_call(block.attn, lambda _args, _kwargs, prefix=prefix: current.append(prefix))
        taps.on_output(block.attn, lambda _output: current.pop())

    def flat(value):
        return value.flatten(2).flatten(0, 1)

    def around(original):
        def dispatch_attention_fn(query, key, value, *args, **kwargs):
            if not current:
                return original(query, key, value, *args, **kwargs)
            prefix = current[-1]
            if prefix.startswith("blocks."):
                observer.count("rope")
                observer.count("rope")
                observer.see(f"{prefix}.attn.q_rope", flat(query))
                observer.see(f"{prefix}.attn.k_rope", flat(key))
            result = original(query, key, value, *args, **kwargs)
            observer.count("attention", _implementation(kwargs.get("backend"), query, key, value))
            observer.see(f"{prefix}.attn.sdpa", flat(result))
            return result

        return dispatch_attention_fn

    module = importlib.import_module(type(model).__module__)
    taps.wrap(module, "dispatch_attention_fn", around)


def _implementation(backend, query, key, value):
    if backend is None:
        registry = importlib.import_module("diffusers.models.attention_dispatch")._AttentionBackendRegistry
        backend = registry.get_active_backend()[0]
    name = getattr(backend, "value", str(backend))
    return sdpa_name(*(x.transpose(1, 2) for x in (query, key, value))) if name == "native" else name


def sdpa_name(query, key, value):
    """The kernel that torch's scaled_dot_product_attention picks; the tensors are [batch, heads, rows, dim]."""
    if query.device.type != "cuda":
        return "sdpa"
    choice = torch._fused_sdp_choice(query, key, value)
    kernels = {0: "math", 1: "flash", 2: "efficient", 3: "cudnn"}
    return f"sdpa-{kernels.get(choice, choice)}"


# Loading


def _model_class():
    from diffusers import MiniMaxH3Transformer3DModel

    return MiniMaxH3Transformer3DModel


def load(bundle, dtype, device):
    if bundle.checkpoint.shape.curve:
        raise UsageError(f"{bundle.checkpoint.path}: has the curve form of AdaLN (adaln_t_table), which diffusers does not run; use diffsynth")
    cls = _model_class()
    if bundle.checkpoint.layout == "diffusers":
        # Keeps the float32 islands, which model.to(torch.bfloat16) would destroy.
        model = cls.from_pretrained(bundle.checkpoint.path, torch_dtype=dtype, local_files_only=True)
    else:
        model = _from_state(cls, bundle.checkpoint, dtype)
    return model.eval().to(device)


def _from_state(cls, checkpoint, dtype):
    """What from_pretrained gives for a checkpoint of another layout, without writing one to disk."""
    with torch.device("meta"):
        model = cls(**checkpoint.diffusers_config())
    # The rotary frequencies are computed, never loaded.
    model.rope = type(model.rope)(model.config.rope_freq_dim, model.config.rope_theta)
    _check_rotary(checkpoint, model)
    state = {}
    for name, tensor in checkpoint.diffusers_state():
        island = any(module in name.split(".") for module in cls._keep_in_fp32_modules)
        state[name] = tensor.to(torch.float32 if island else dtype)
    model.load_state_dict(state, strict=True, assign=True)
    return model


def _check_rotary(checkpoint, model):
    stored = checkpoint.internal("rope.inv_freq")
    if stored.dtype == torch.float32 and not torch.equal(stored, model.rope.inv_freq):
        raise BadInput(f"{checkpoint.path}: rope.inv_freq is not what diffusers computes for theta {model.config.rope_theta:g}")


class Forward:
    def __init__(self, bundle, model, dtype, device):
        inputs = bundle.inputs
        self._model = model
        self._fixed = {
            name: inputs[name].to(device)
            for name in (
                "encoder_hidden_states", "token_tags", "position_ids", "video_indices", "audio_indices", "text_indices",
            )
        }  # fmt: skip

    def announce(self, observer, video, audio, step):
        """Nothing to tell: the arguments of the forward are the bundle's."""

    def __call__(self, video, audio, timestep, timestep_indices):
        """Rows [n, width] of video and audio; returns predictions [1, n, width]."""
        return self._model(
            hidden_states=video[None], audio_hidden_states=audio[None], timestep=timestep,
            timestep_indices=timestep_indices, return_dict=False, **self._fixed,
        )  # fmt: skip
