"""A checkpoint in any of the three layouts, read in one internal form.

Internal names are the raw checkpoint's ("blocks.3.attn.qkv_proj.weight"); qkv rows are flat [q; k; v], fc1 rows
[gate; value].
"""

import hashlib
import json
import os
import re

import torch

from .errors import BadInput, UsageError
from .probes import ModelShape

LAYOUTS = ("raw", "comfy", "diffusers")
COMFY_PREFIX = "model.diffusion_model."
_FLOATS = ("F64", "F32", "F16", "BF16")

# Internal module -> diffusers' module. qkv_proj and fc1 are handled apart.
DIFFUSERS_MODULES = {
    "video_patch_proj": "proj_in",
    "audio_patch_proj": "audio_proj_in",
    "condition_proj": "context_embedder",
    "token_refiner.final_norm": "token_refiner.final_norm",
    "time_embedder.proj_in": "time_embedder.linear_1",
    "time_embedder.proj_out": "time_embedder.linear_2",
    "final_layer.norm": "norm_out.norm",
    "final_layer.adaln_proj.linear": "norm_out.linear",
    "final_layer.video_out": "proj_out",
    "final_layer.audio_out": "audio_proj_out",
}
_IN_BLOCK = {
    "norm1": "norm1",
    "norm2": "norm2",
    "attn.q_norm": "attn.norm_q",
    "attn.k_norm": "attn.norm_k",
    "attn.out_proj": "attn.to_out.0",
    "mlp.fc2": "ff.net.2",
    "adaln_proj.linear": "adaln_proj.linear",
}
_CONFIG_NAMES = {  # ModelShape's name -> the raw config.json's
    "num_layers": "num_layers", "num_refiner_layers": "token_refiner_num_layers", "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads", "attention_head_dim": "attention_head_dim",
    "ffn_dim": "ffn_hidden_size", "in_channels": "latents_dim", "audio_in_channels": "audio_latents_dim",
    "text_dim": "text_dim", "freq_dim": "timestep_input_dim", "time_embed_hidden_dim": "time_embed_hidden_size",
    "time_embed_dim": "time_embed_dim", "rope_freq_dim": "rope_inv_freq_len",
}  # fmt: skip


def diffusers_name(name):
    """diffusers' name of an internal tensor that it keeps whole, else None."""
    module, _, parameter = name.rpartition(".")
    if module in DIFFUSERS_MODULES:
        return f"{DIFFUSERS_MODULES[module]}.{parameter}"
    match = re.fullmatch(r"(token_refiner\.)?blocks\.(\d+)\.(.+)", module)
    if not match or match[3] not in _IN_BLOCK:
        return None
    return f"{_diffusers_block(match[1], match[2])}.{_IN_BLOCK[match[3]]}.{parameter}"


def _diffusers_block(refiner, number):
    return f"token_refiner.refiner_blocks.{number}" if refiner else f"transformer_blocks.{number}"


def open_safetensors(path):
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(path, framework="pt")
    except FileNotFoundError:
        raise BadInput(f"{path}: no such file") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise BadInput(f"{path}: not a readable safetensors file ({error})") from None


def read_json(path):
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError) as error:
        raise BadInput(f"{path}: not readable as JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadInput(f"{path}: not a JSON object")
    return value


class Checkpoint:
    """`path` is a folder with one safetensors file, shards and an index, or shards alone."""

    def __init__(self, path, layout=None):
        self.path = path
        self._tensors = {}  # name without Comfy's prefix -> (open file, name in it, file's path)
        self._sizes = {}  # the same name -> (safetensors dtype, shape)
        for file_path in self._files():
            self._index_file(file_path)
        if not self._tensors:
            raise BadInput(f"{path}: holds no tensors")
        config_path = os.path.join(path, "config.json")
        self.config_path = config_path
        self.config = read_json(config_path) if os.path.isfile(config_path) else None
        self.layout = self._find_layout(layout)
        self._refuse_quantised()
        self.shape = self._read_shape()
        self._check_config()
        self._check_names()

    # Files and names

    def _files(self):
        if not os.path.isdir(self.path):
            raise BadInput(f"{self.path}: no such folder")
        names = sorted(os.listdir(self.path))
        shards = [n for n in names if n.endswith(".safetensors")]
        indices = [n for n in names if n.endswith(".safetensors.index.json")]
        if len(indices) > 1:
            raise BadInput(f"{self.path}: has {len(indices)} index files, {indices[0]} and {indices[1]} among them")
        self._weight_map = None
        if indices:
            index_path = os.path.join(self.path, indices[0])
            self._weight_map = read_json(index_path).get("weight_map")
            if not isinstance(self._weight_map, dict):
                raise BadInput(f"{index_path}: has no weight_map")
            wanted = sorted(set(self._weight_map.values()))
            for name in wanted:
                if name not in shards:
                    raise BadInput(f"{index_path}: names the shard {name}, which the folder lacks")
            shards = wanted
        if not shards:
            raise BadInput(f"{self.path}: has no safetensors file")
        return [os.path.join(self.path, name) for name in shards]

    def _index_file(self, file_path):
        file = open_safetensors(file_path)
        for name in file.keys():
            plain = name.removeprefix(COMFY_PREFIX)
            if plain in self._tensors:
                raise BadInput(f"{file_path}: holds {name}, which {self._tensors[plain][2]} holds too")
            piece = file.get_slice(name)
            self._tensors[plain] = (file, name, file_path)
            self._sizes[plain] = (piece.get_dtype(), tuple(piece.get_shape()))
        if self._weight_map is not None:
            held = set(file.keys())
            for name, shard in self._weight_map.items():
                if shard == os.path.basename(file_path) and name not in held:
                    raise BadInput(f"{file_path}: lacks {name}, which the index places there")

    def _find_layout(self, layout):
        by_names = "diffusers" if any(n.startswith("transformer_blocks.") or n.startswith("proj_in.") for n in self._tensors) else None
        if by_names is None and not any(n.startswith("video_patch_proj.") for n in self._tensors):
            raise BadInput(f"{self.path}: has neither proj_in nor video_patch_proj, so it is no MiniMax-H3 transformer")
        if by_names == "diffusers":
            if layout not in (None, "diffusers"):
                raise BadInput(f"{self.path}: has diffusers' names, but the layout is said to be {layout}")
            return "diffusers"
        if layout == "diffusers":
            raise BadInput(f"{self.path}: has the raw checkpoint's names, but the layout is said to be diffusers")
        if layout is None:
            raise UsageError(
                f"{self.path}: raw and Comfy checkpoints differ only in the order of the qkv rows, which nothing here "
                "tells; give --layout raw or --layout comfy"
            )
        return layout

    def _refuse_quantised(self):
        for name, (dtype, _) in self._sizes.items():
            if dtype not in _FLOATS:
                raise BadInput(f"{self._tensors[name][2]}: {name} is stored as {dtype}; the capture reads float weights only")

    def digest(self):
        """SHA-256 of the sorted lines "NAME DTYPE [d0,d1]" of the tensors as the files hold them."""
        lines = []
        for plain, (_, name, _) in self._tensors.items():
            dtype, shape = self._sizes[plain]
            lines.append(f"{name} {dtype} [{','.join(map(str, shape))}]")
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()

    # Shape

    def _size(self, name, dims):
        """Shape of an internal tensor that is kept whole in every layout."""
        if self.layout == "diffusers":
            name = diffusers_name(name)
        if name not in self._sizes:
            raise BadInput(f"{self.path}: lacks {name}")
        shape = self._sizes[name][1]
        if len(shape) != dims:
            raise BadInput(f"{self.path}: {name} has shape {list(shape)}, not {dims} dimensions")
        return shape

    def _count(self, prefix):
        numbers = {int(m[1]) for n in self._tensors if (m := re.match(re.escape(prefix) + r"\.(\d+)\.", n))}
        count = len(numbers)
        if numbers != set(range(count)):
            missing = next(i for i in range(count) if i not in numbers)
            raise BadInput(f"{self.path}: has {prefix}.{max(numbers)} but no {prefix}.{missing}")
        return count

    def _config_value(self, name, default=None):
        if self.config is None:
            return default
        key = name if name in self.config else _CONFIG_NAMES.get(name, name)
        return self.config.get(key, default)

    def _read_shape(self):
        diffusers = self.layout == "diffusers"
        if diffusers and self.config is None:
            raise BadInput(f"{self.config_path}: missing; a checkpoint in diffusers' layout needs it")
        blocks = self._count("transformer_blocks" if diffusers else "blocks")
        refiners = self._count("token_refiner.refiner_blocks" if diffusers else "token_refiner.blocks")
        if not blocks:
            raise BadInput(f"{self.path}: has no blocks")
        curve = "adaln_t_table" in self._sizes
        hidden, text_dim = self._size("condition_proj.weight", 2)
        head_dim = self._size("blocks.0.attn.q_norm.weight", 1)[0]
        inner = self._size("blocks.0.attn.out_proj.weight", 2)[1]
        video_width = self._size("video_patch_proj.weight", 2)[1]
        self.patch_size = tuple(self._config_value("patch_size", (1, 2, 2)))
        patch = self.patch_size[0] * self.patch_size[1] * self.patch_size[2]
        if video_width % patch:
            raise BadInput(f"{self.path}: video rows are {video_width} wide, which a patch {self.patch_size} does not divide")
        if inner % head_dim:
            raise BadInput(f"{self.path}: attention is {inner} wide, which heads of {head_dim} do not divide")
        if curve:
            grid, time_dim = self._table_size()
            freq = time_hidden = 0
        else:
            grid = 0
            time_hidden, freq = self._size("time_embedder.proj_in.weight", 2)
            time_dim = self._size("time_embedder.proj_out.weight", 2)[0]
        if diffusers:
            rope = int(self._config_value("rope_freq_dim", 16))
        else:
            rope = self._size_plain("rope.inv_freq", 1)[0]
        return ModelShape(
            num_layers=blocks, num_refiner_layers=refiners, hidden_size=hidden, num_attention_heads=inner // head_dim,
            attention_head_dim=head_dim, ffn_dim=self._size("blocks.0.mlp.fc2.weight", 2)[1],
            in_channels=video_width // patch, audio_in_channels=self._size("audio_patch_proj.weight", 2)[1],
            video_patch_dim=video_width, text_dim=text_dim, freq_dim=freq, time_embed_hidden_dim=time_hidden,
            time_embed_dim=time_dim, rope_freq_dim=rope, curve_grid=grid,
        )  # fmt: skip

    def _size_plain(self, name, dims):
        if name not in self._sizes:
            raise BadInput(f"{self.path}: lacks {name}")
        shape = self._sizes[name][1]
        if len(shape) != dims:
            raise BadInput(f"{self.path}: {name} has shape {list(shape)}, not {dims} dimensions")
        return shape

    def _table_size(self):
        if any(n.startswith("time_embedder.") for n in self._tensors):
            raise BadInput(f"{self.path}: has both adaln_t_table and a time embedder")
        grid, width = self._size_plain("adaln_t_table", 2)
        if grid < 2:
            raise BadInput(f"{self.path}: adaln_t_table has {grid} rows; a curve needs at least 2")
        return grid, width

    def _check_config(self):
        if self.config is None:
            return
        for name in _CONFIG_NAMES:
            said = self._config_value(name)
            here = getattr(self.shape, name)
            if self.shape.curve and name in ("freq_dim", "time_embed_hidden_dim", "time_embed_dim"):
                continue
            if said is not None and said != here:
                raise BadInput(f"{self.config_path}: says {name} {said}, but the tensors say {here}")

    # Tensors

    def internal_shapes(self):
        """Internal name -> shape of every tensor that this shape must have."""
        s = self.shape
        h, inner, e = s.hidden_size, s.inner_dim, s.time_embed_dim
        shapes = {}

        def linear(module, rows, cols, bias=False):
            shapes[f"{module}.weight"] = (rows, cols)
            if bias:
                shapes[f"{module}.bias"] = (rows,)

        linear("video_patch_proj", h, s.video_patch_dim, True)
        linear("audio_patch_proj", h, s.audio_in_channels, True)
        linear("condition_proj", h, s.text_dim, True)
        if s.curve:
            shapes["adaln_t_table"] = (s.curve_grid, e)
        else:
            linear("time_embedder.proj_in", s.time_embed_hidden_dim, s.freq_dim, True)
            linear("time_embedder.proj_out", e, s.time_embed_hidden_dim, True)
        prefixes = [f"token_refiner.blocks.{n}" for n in range(s.num_refiner_layers)]
        blocks = [f"blocks.{n}" for n in range(s.num_layers)]
        for prefix in prefixes + blocks:
            for norm, width in (("norm1", h), ("norm2", h), ("attn.q_norm", s.attention_head_dim), ("attn.k_norm", s.attention_head_dim)):
                shapes[f"{prefix}.{norm}.weight"] = (width,)
            linear(f"{prefix}.attn.qkv_proj", 3 * inner, h)
            linear(f"{prefix}.attn.out_proj", h, inner)
            linear(f"{prefix}.mlp.fc1", 2 * s.ffn_dim, h)
            linear(f"{prefix}.mlp.fc2", h, s.ffn_dim)
        for prefix in blocks:
            linear(f"{prefix}.adaln_proj.linear", 18 * h, e, True)
        shapes["token_refiner.final_norm.weight"] = shapes["final_layer.norm.weight"] = (h,)
        linear("final_layer.adaln_proj.linear", 2 * h, e, True)
        linear("final_layer.video_out", s.video_patch_dim, h, True)
        linear("final_layer.audio_out", s.audio_in_channels, h, True)
        if self.layout != "diffusers":
            shapes["rope.inv_freq"] = (s.rope_freq_dim,)
        return shapes

    def _stored_shapes(self):
        """The same by the names that the files hold."""
        if self.layout != "diffusers":
            return self.internal_shapes()
        stored = {}
        for name, shape in self.internal_shapes().items():
            prefix, part = _split_block(name)
            if part == "attn.qkv_proj.weight":
                for letter in "qkv":
                    stored[f"{prefix}.attn.to_{letter}.weight"] = (shape[0] // 3, shape[1])
            elif part == "mlp.fc1.weight":
                stored[f"{prefix}.ff.net.0.proj.weight"] = shape
            else:
                stored[diffusers_name(name)] = shape
        return stored

    def _check_names(self):
        wanted = self._stored_shapes()
        for name, shape in wanted.items():
            if name not in self._sizes:
                raise BadInput(f"{self.path}: lacks {name}")
            if self._sizes[name][1] != shape:
                raise BadInput(f"{self._tensors[name][2]}: {name} has shape {list(self._sizes[name][1])}, not {list(shape)}")
        for name in self._sizes:
            if name not in wanted:
                raise BadInput(f"{self._tensors[name][2]}: holds {name}, which a transformer of this shape does not have")

    def _stored(self, name):
        file, name_in_file, file_path = self._tensors[name]
        try:
            return file.get_tensor(name_in_file)
        except Exception as error:  # safetensors raises its own class or RuntimeError
            raise BadInput(f"{file_path}: {name} cannot be read ({error})") from None

    def internal(self, name):
        """An internal tensor, as stored but for the order of rows."""
        s = self.shape
        if self.layout == "diffusers":
            prefix, part = _split_block(name)
            if part == "attn.qkv_proj.weight":
                return torch.cat([self._stored(f"{prefix}.attn.to_{letter}.weight") for letter in "qkv"])
            if part == "mlp.fc1.weight":
                return swap_halves(self._stored(f"{prefix}.ff.net.0.proj.weight"))
            return self._stored(diffusers_name(name))
        tensor = self._stored(name)
        if self.layout == "raw" and name.endswith(".attn.qkv_proj.weight"):
            heads = tensor.view(s.num_attention_heads, 3, s.attention_head_dim, -1)
            return heads.transpose(0, 1).reshape(tensor.shape)
        return tensor

    def tensor_as(self, name, layout):
        """An internal tensor in the row order of a raw or Comfy checkpoint."""
        tensor = self.internal(name)
        if layout == "raw" and name.endswith(".attn.qkv_proj.weight"):
            s = self.shape
            flat = tensor.view(3, s.num_attention_heads, s.attention_head_dim, -1)
            return flat.transpose(0, 1).reshape(tensor.shape)
        return tensor

    def diffusers_state(self):
        """(diffusers' name, tensor as stored) of every tensor."""
        inner = self.shape.inner_dim
        for name in self.internal_shapes():
            if name == "rope.inv_freq":
                continue
            tensor = self.internal(name)
            prefix, part = _split_block(name)
            if part == "attn.qkv_proj.weight":
                for i, letter in enumerate("qkv"):
                    yield f"{prefix}.attn.to_{letter}.weight", tensor[i * inner : (i + 1) * inner]
            elif part == "mlp.fc1.weight":
                yield f"{prefix}.ff.net.0.proj.weight", swap_halves(tensor)
            else:
                yield diffusers_name(name), tensor

    def diffusers_config(self):
        s = self.shape
        config = {name: getattr(s, name) for name in _CONFIG_NAMES}
        config["patch_size"] = self.patch_size
        for name in ("rope_theta", "norm_eps", "qk_norm_eps", "final_norm_eps"):
            value = self._config_value(name)
            if value is not None:
                config[name] = value
        return config

    def raw_config(self):
        """Arguments of DiffSynth-Studio's classes, which are the raw config.json's names."""
        s = self.shape
        config = {raw: getattr(s, name) for name, raw in _CONFIG_NAMES.items()}
        config["patch_size"] = self.patch_size
        config["adaln_out_features"], config["final_adaln_out_features"] = 18 * s.hidden_size, 2 * s.hidden_size
        for name in ("norm_eps", "qk_norm_eps", "final_norm_eps"):
            value = self._config_value(name)
            if value is not None:
                config[name] = value
        return config


def _split_block(name):
    """("transformer_blocks.3", "attn.qkv_proj.weight") of an internal block tensor, else ("", name)."""
    match = re.fullmatch(r"(token_refiner\.)?blocks\.(\d+)\.(.+)", name)
    return (_diffusers_block(match[1], match[2]), match[3]) if match else ("", name)


def swap_halves(tensor):
    first, second = tensor.chunk(2, dim=0)
    return torch.cat((second, first))
