"""A bundle: a folder with transformer/ (a checkpoint), inputs.safetensors (the arguments of diffusers' forward, by
its names) and optionally case.json."""

import hashlib
import os

import torch

from .checkpoint import LAYOUTS, Checkpoint, open_safetensors, read_json
from .errors import BadInput, UsageError
from .segments import layout_from_tensors

_INPUTS = (
    "hidden_states", "audio_hidden_states", "encoder_hidden_states", "timestep", "timestep_indices", "token_tags",
    "position_ids", "video_indices", "audio_indices", "text_indices",
)  # fmt: skip
_INTEGERS = (torch.int64, torch.int32)


class Bundle:
    def __init__(self, path, layout=None):
        self.path = path
        self.name = os.path.basename(os.path.abspath(path))
        if not os.path.isdir(path):
            raise BadInput(f"{path}: no such folder")
        self.inputs_path = os.path.join(path, "inputs.safetensors")
        self.inputs = self._read_inputs()
        case_path = os.path.join(path, "case.json")
        self.case_path = case_path
        self.has_case = os.path.isfile(case_path)
        self._case = read_json(case_path) if self.has_case else {}
        self.case_name = self._value("name", str, "")
        self.seed = self._value("seed", int, None)
        self.steps = self._value("steps", int, 1)
        self.shift_video = float(self._value("shift_video", (int, float), 12.0))
        self.shift_audio = float(self._value("shift_audio", (int, float), 3.0))
        if self.steps < 1:
            raise BadInput(f"{case_path}: steps is {self.steps}, not at least 1")
        if not (self.shift_video > 0 and self.shift_audio > 0):
            raise BadInput(f"{case_path}: shift_video and shift_audio must be positive")
        said = self._value("layout", str, None)
        if said is not None and said not in LAYOUTS:
            raise BadInput(f"{case_path}: layout is '{said}', not one of {', '.join(LAYOUTS)}")
        self.checkpoint = Checkpoint(os.path.join(path, "transformer"), layout or said)
        self.sequence = self._check_inputs()

    def case_digest(self):
        with open(self.inputs_path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() if hasattr(hashlib, "file_digest") else hashlib.sha256(file.read()).hexdigest()

    def _value(self, name, kind, default):
        value = self._case.get(name, default)
        if value is not default and (not isinstance(value, kind) or isinstance(value, bool)):
            raise BadInput(f"{self.case_path}: {name} has the wrong type")
        return value

    def _read_inputs(self):
        file = open_safetensors(self.inputs_path)
        held = set(file.keys())
        for name in _INPUTS:
            if name not in held:
                raise BadInput(f"{self.inputs_path}: lacks {name}")
        # A copy, so that no tensor has the alignment of its place in the file.
        return {name: file.get_tensor(name).clone() for name in _INPUTS}

    def _check_inputs(self):
        shape = self.checkpoint.shape
        counts = {kind: self._vector(f"{kind}_indices", _INTEGERS) for kind in ("video", "audio", "text")}
        rows = self._vector("token_tags", _INTEGERS)
        for name, kind, width in (
            ("hidden_states", "video", shape.video_patch_dim),
            ("audio_hidden_states", "audio", shape.audio_in_channels),
            ("encoder_hidden_states", "text", shape.text_dim),
        ):
            self._expect_shape(name, (1, counts[kind], width))
        self._expect_shape("timestep_indices", (rows,))
        self._expect_shape("position_ids", (rows, 3))
        distinct = self._vector("timestep", None)
        if not distinct:
            raise BadInput(f"{self.inputs_path}: timestep is empty")
        if self.inputs["timestep_indices"].dtype not in _INTEGERS:
            raise BadInput(f"{self.inputs_path}: timestep_indices is {self.inputs['timestep_indices'].dtype}, not an integer type")
        for name in ("hidden_states", "audio_hidden_states", "encoder_hidden_states", "timestep", "position_ids"):
            tensor = self.inputs[name]
            if not tensor.is_floating_point():
                raise BadInput(f"{self.inputs_path}: {name} is {tensor.dtype}, not a floating type")
            bad = ~torch.isfinite(tensor)
            if bool(bad.any()):
                where = bad.nonzero()[0].tolist()
                raise BadInput(f"{self.inputs_path}: {name}{where} is {float(tensor[tuple(where)])}")
        indices = self.inputs["timestep_indices"].tolist()
        for i, index in enumerate(indices):
            if not 0 <= index < distinct:
                raise BadInput(f"{self.inputs_path}: timestep_indices[{i}] is {index}, but there are {distinct} timesteps")
        sequence = layout_from_tensors(
            self.inputs["video_indices"], self.inputs["audio_indices"], self.inputs["text_indices"],
            self.inputs["token_tags"], self._value("cond_video_rows", int, 0), self._value("cond_audio_rows", int, 0),
        )  # fmt: skip
        sequence.check(self.inputs_path)
        return sequence

    def _vector(self, name, dtypes):
        tensor = self.inputs[name]
        if tensor.dim() != 1:
            raise BadInput(f"{self.inputs_path}: {name} has shape {list(tensor.shape)}, not one dimension")
        if dtypes and tensor.dtype not in dtypes:
            raise BadInput(f"{self.inputs_path}: {name} is {tensor.dtype}, not an integer type")
        return tensor.shape[0]

    def _expect_shape(self, name, shape):
        if tuple(self.inputs[name].shape) != shape:
            raise BadInput(f"{self.inputs_path}: {name} has shape {list(self.inputs[name].shape)}, not {list(shape)}")


def step_count(bundle, wanted):
    """Evaluations of the network: what the caller wants, else what the bundle says."""
    if wanted is not None and wanted < 1:
        raise UsageError(f"--steps: {wanted} is not at least 1")
    return wanted or bundle.steps
