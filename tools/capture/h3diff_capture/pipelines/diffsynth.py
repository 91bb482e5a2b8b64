"""DiffSynth-Studio's MiniMaxH3DiT (raw layout), MiniMaxH3DiTComfy and MiniMaxH3DiTComfyPruned (Comfy layout, the
second the curve form)."""

import importlib
import inspect
import sys

import torch

from ..observer import rows_by_columns
from ..probes import MODULATIONS, ModelShape
from ..segments import layout_from_tensors
from .diffusers import sdpa_name

NAME = "diffsynth"

# Modules of one name in the checkpoint, the model and the probes; (module, weight of X.linear).
_TOP = (
    "video_patch_proj", "audio_patch_proj", "condition_proj", "token_refiner.final_norm", "time_embedder.proj_in",
    "time_embedder.proj_out", "final_layer.adaln_proj", "final_layer.norm", "final_layer.video_out",
    "final_layer.audio_out",
)  # fmt: skip


def _is_a(model, name):
    return any(cls.__name__ == name for cls in type(model).__mro__)


def _curve(model):
    return _is_a(model, "MiniMaxH3DiTComfyPruned")


def _comfy(model):
    return _is_a(model, "MiniMaxH3DiTComfy")


def compute_dtype(model):
    """The dtype of the block stack."""
    return model.blocks[0].mlp.fc2.weight.dtype


def loading_facts(dtype):
    """How `load` treats the weights."""
    return {"weights_as": "every parameter and buffer in the compute dtype, as diffsynth's loader does"}


def shape_of(model):
    attn, time = model.blocks[0].attn, model.blocks[0].adaln_proj.linear.in_features
    curve = _curve(model)
    embedder = model.time_embedder
    return ModelShape(
        num_layers=len(model.blocks), num_refiner_layers=len(model.token_refiner.blocks),
        hidden_size=model.hidden_size, num_attention_heads=attn.num_heads, attention_head_dim=attn.head_dim,
        ffn_dim=model.blocks[0].mlp.fc2.in_features, in_channels=model.num_channels_latents,
        audio_in_channels=model.audio_patch_proj.in_features, video_patch_dim=model.video_patch_proj.in_features,
        text_dim=model.condition_proj.in_features, freq_dim=0 if curve else embedder.proj_in.in_features,
        time_embed_hidden_dim=0 if curve else embedder.proj_in.out_features, time_embed_dim=time,
        rope_freq_dim=model.rope.inv_freq_len, curve_grid=model.adaln_t_table.shape[0] if curve else 0,
    )  # fmt: skip


def _blocks(model):
    for n, block in enumerate(model.token_refiner.blocks):
        yield f"token_refiner.blocks.{n}", block
    for n, block in enumerate(model.blocks):
        yield f"blocks.{n}", block


def _flat_qkv(weight, attn, comfy):
    """[q; k; v]; in the raw layout the rows come as [q k v] of each head."""
    if comfy:
        return weight
    return weight.view(attn.num_heads, 3, attn.head_dim, -1).transpose(0, 1).reshape(weight.shape)


def weights(model):
    def matrix(tensor):
        return tensor.detach() if tensor.dim() == 2 else tensor.detach().reshape(1, -1)

    def module_weights(probe, module):
        module = getattr(module, "linear", module)
        yield f"weights.{probe}", matrix(module.weight)
        if getattr(module, "bias", None) is not None:
            yield f"weights.{probe}.bias", matrix(module.bias)

    for probe in _TOP:
        if not (_curve(model) and probe.startswith("time_embedder.")):
            yield from module_weights(probe, model.get_submodule(probe))
    # The forward computes its frequencies anew; what the checkpoint holds is not used.
    yield "weights.rope.inv_freq", matrix(model.rope._build_inv_freq())
    if _curve(model):
        yield "weights.adaln_t_table", matrix(model.adaln_t_table)
    for prefix, block in _blocks(model):
        if hasattr(block, "adaln_proj"):
            yield from module_weights(f"{prefix}.adaln_proj", block.adaln_proj)
        yield f"weights.{prefix}.attn.qkv_proj", _flat_qkv(matrix(block.attn.qkv_proj.weight), block.attn, _comfy(model))
        for name in ("norm1", "norm2", "attn.q_norm", "attn.k_norm", "attn.out_proj", "mlp.fc1", "mlp.fc2"):
            yield from module_weights(f"{prefix}.{name}", block.get_submodule(name))


def attach(model, observer, taps, conditioning=(0, 0)):
    see, count = observer.see, observer.count

    def tap(module, probe, op=None):
        def look(output):
            if op:
                count(op)
            see(probe, rows_by_columns(output))

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
        positions = {kind: given[f"{kind}_pos_info"]["position_ids"].reshape(-1) for kind in ("img", "audio", "text")}
        sequence = layout_from_tensors(
            positions["img"], positions["audio"], positions["text"], given["token_tags"].clamp(min=0), *conditioning
        )

        def packed_rows(packed, kind):
            index = positions[kind].to(device=packed.device, dtype=torch.long)
            return packed.reshape(-1, packed.shape[-1]).index_select(0, index)

        inputs = {
            "input.video": packed_rows(given["x"], "img"),
            "input.audio": packed_rows(given["audio_x"], "audio"),
            "input.text": rows_by_columns(given["prompt_embeds"]),
            "input.timestep": given["unique_timesteps"].reshape(-1, 1),
            "input.timestep_indices": given["inverse_indices"].reshape(-1, 1),
            "input.token_tags": given["token_tags"].reshape(-1, 1),
            "input.position_ids": given["img_position_ids"].reshape(-1, 3),
        }
        observer.begin_step({**inputs, **observer.take_given_inputs()}, sequence)

    def rope(freqs):
        count("rope")
        see("rope.cos", torch.cos(freqs))
        see("rope.sin", torch.sin(freqs))

    taps.on_call(model, begin)
    taps.on_output(model.rope, rope)
    tap(model.video_patch_proj, "video_patch_proj", "linear")
    tap(model.audio_patch_proj, "audio_patch_proj", "linear")
    tap(model.condition_proj, "condition_proj", "linear")
    tap(model.token_refiner.final_norm, "token_refiner.final_norm", "rms_norm")
    tap_input(model.blocks[0], "packed")
    if _curve(model):
        tap(model.time_embedder, "adaln.t_emb", "adaln_curve")
    else:
        tap_input(model.time_embedder.proj_in, "time_embedder.sinusoid")
        tap(model.time_embedder.proj_in, "time_embedder.proj_in", "linear")
        tap_input(model.time_embedder.proj_out, "time_embedder.act")
        tap(model.time_embedder.proj_out, "adaln.t_emb", "linear")
    for prefix, block in _blocks(model):
        _attach_block(prefix, block, _comfy(model), observer, taps, tap, tap_input)
    _attach_attention(model, observer, taps)

    final = model.final_layer

    def final_adaln(output):
        count("adaln")
        see("final.adaln.shift", output[0])
        see("final.adaln.scale", output[1])

    tap_input(final.adaln_proj.linear, "final.adaln.input")
    taps.on_output(final.adaln_proj, final_adaln)
    tap(final.norm, "final.norm", "rms_norm")
    tap_input(final.video_out, "final.mod", "modulation")
    taps.on_output(final.video_out, lambda _: count("linear"))
    taps.on_output(final.audio_out, lambda _: count("linear"))

    def predictions(output):
        see("pred.video", rows_by_columns(output[0]))
        see("pred.audio", rows_by_columns(output[1]))

    taps.on_output(model, predictions)


def _attach_block(prefix, block, comfy, observer, taps, tap, tap_input):
    see, count = observer.see, observer.count
    attn, mlp = block.attn, block.mlp
    modulated = hasattr(block, "adaln_proj")
    if modulated:

        def adaln(output):
            count("adaln")
            for name, value in zip(MODULATIONS, output):
                see(f"{prefix}.adaln.{name}", value)

        tap_input(block.adaln_proj.linear, f"{prefix}.adaln.input")
        taps.on_output(block.adaln_proj, adaln)

    def qkv(output):
        count("linear")
        heads = output.view(-1, 3, attn.num_heads, attn.head_dim) if comfy else output.view(-1, attn.num_heads, 3, attn.head_dim).transpose(1, 2)
        for i, name in enumerate("qkv"):
            see(f"{prefix}.attn.{name}", heads[:, i].flatten(1))

    def head_norm(probe):
        def look(output):
            count("rms_norm")
            see(probe, output.flatten(-2))

        return look

    tap(block.norm1, f"{prefix}.norm1", "rms_norm")
    if modulated:
        tap_input(attn, f"{prefix}.mod_msa", "modulation")
    taps.on_output(attn.qkv_proj, qkv)
    taps.on_output(attn.q_norm, head_norm(f"{prefix}.attn.q_norm"))
    taps.on_output(attn.k_norm, head_norm(f"{prefix}.attn.k_norm"))
    tap(attn.out_proj, f"{prefix}.attn.out_proj", "linear")
    tap_input(block.norm2, f"{prefix}.residual_msa", "residual")
    tap(block.norm2, f"{prefix}.norm2", "rms_norm")
    if modulated:
        tap_input(mlp, f"{prefix}.mod_mlp", "modulation")
    tap(mlp.fc1, f"{prefix}.mlp.fc1", "linear")
    tap_input(mlp.fc2, f"{prefix}.mlp.act", "swiglu")
    tap(mlp.fc2, f"{prefix}.mlp.fc2", "linear")
    tap(block, f"{prefix}.out", "residual")


def _attach_attention(model, observer, taps):
    """q and k after the rotary and the attention's result are no module's output: the function that both attention
    forwards call is wrapped while the taps are on, in every module that has its name."""
    current = []  # prefix of the attention module that is running
    for prefix, block in _blocks(model):
        taps.on_call(block.attn, lambda _args, _kwargs, prefix=prefix: current.append(prefix))
        taps.on_output(block.attn, lambda _output: current.pop())

    def around(original):
        def _sdpa_varlen_attention(q, k, v, *args, **kwargs):
            if not current:
                return original(q, k, v, *args, **kwargs)
            prefix = current[-1]
            if prefix.startswith("blocks."):
                observer.count("rope")
                observer.count("rope")
                observer.see(f"{prefix}.attn.q_rope", q.flatten(1))
                observer.see(f"{prefix}.attn.k_rope", k.flatten(1))
            result = original(q, k, v, *args, **kwargs)
            observer.count("attention", _implementation(q, k, v))
            observer.see(f"{prefix}.attn.sdpa", result.flatten(1))
            return result

        return _sdpa_varlen_attention

    for name in ("diffsynth.models.minimax_h3_dit", "diffsynth.models.minimax_h3_dit_comfy"):
        if name in sys.modules:
            taps.wrap(sys.modules[name], "_sdpa_varlen_attention", around)


def _implementation(q, k, v):
    name = importlib.import_module("diffsynth.core.attention.attention").ATTENTION_IMPLEMENTATION
    return sdpa_name(*(x.transpose(0, 1)[None] for x in (q, k, v))) if name == "torch" else name


# Loading


def load(bundle, dtype, device):
    """The class that reads the bundle's form; a diffusers checkpoint is converted to the raw layout in memory."""
    from diffsynth.models.minimax_h3_dit import MiniMaxH3DiT
    from diffsynth.models.minimax_h3_dit_comfy import MiniMaxH3DiTComfy, MiniMaxH3DiTComfyPruned

    checkpoint = bundle.checkpoint
    config = checkpoint.raw_config()
    if checkpoint.shape.curve:
        cls, layout = MiniMaxH3DiTComfyPruned, "comfy"
        config["adaln_curve_grid"] = checkpoint.shape.curve_grid
        # The time embedder that the base class builds before it is replaced wants a size.
        config.update(timestep_input_dim=2, time_embed_hidden_size=2)
    elif checkpoint.layout == "comfy":
        cls, layout = MiniMaxH3DiTComfy, "comfy"
    else:
        cls, layout = MiniMaxH3DiT, "raw"
    with torch.device("meta"):
        model = cls(**config)
    state = {name: checkpoint.tensor_as(name, layout) for name in checkpoint.internal_shapes()}
    if "rope.inv_freq" not in state:
        state["rope.inv_freq"] = model.rope._build_inv_freq(torch.device("cpu"))
    model.load_state_dict(state, strict=True, assign=True)
    return model.to(dtype=dtype, device=device).eval()


class Forward:
    """Calls the model with the arguments that diffsynth's own model function builds."""

    def __init__(self, bundle, model, dtype, device):
        inputs = {name: tensor.to(device) for name, tensor in bundle.inputs.items()}
        rows, text_rows = inputs["token_tags"].shape[0], inputs["text_indices"].shape[0]
        self._model, self._rows = model, rows
        self._given = {"input.text": rows_by_columns(inputs["encoder_hidden_states"])}
        self._video_at, self._audio_at = inputs["video_indices"].long(), inputs["audio_indices"].long()
        text_at = {"position_ids": inputs["text_indices"].long()}

        def document(n):
            return {"cu_seqlens_q": torch.tensor([0, n, n], dtype=torch.int32, device=device), "max_seqlen_q": n}

        self._fixed = {
            "img_position_ids": inputs["position_ids"][None],
            "token_tags": inputs["token_tags"],
            # The text sets the dtype that everything else is cast to.
            "prompt_embeds": inputs["encoder_hidden_states"][0].to(dtype),
            "img_pos_info": {"position_ids": self._video_at},
            "audio_pos_info": {"position_ids": self._audio_at},
            "text_pos_info": text_at,
            "img_pos_for_infer_output_info": {"position_ids": self._video_at},
            "packed_seq_params": document(rows),
            "refiner_packed_seq_params": document(text_rows),
            "update_mask": None,
            "skip_mask_out_condition": True,
        }

    def announce(self, observer, video, audio, step):
        """The text as the bundle has it: the forward gets it in the compute dtype."""
        observer.give_inputs(self._given)

    def _packed(self, rows, at):
        packed = torch.zeros(1, self._rows, rows.shape[1], dtype=rows.dtype, device=rows.device)
        packed[0].index_copy_(0, at, rows)
        return packed

    def __call__(self, video, audio, timestep, timestep_indices):
        """Rows [n, width] of video and audio; returns predictions [1, n, width]."""
        predictions = self._model(
            x=self._packed(video, self._video_at), audio_x=self._packed(audio, self._audio_at),
            unique_timesteps=timestep, inverse_indices=timestep_indices, **self._fixed,
        )  # fmt: skip
        return tuple(prediction[None] for prediction in predictions)
