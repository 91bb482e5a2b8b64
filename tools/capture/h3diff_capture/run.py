"""Runs a bundle through a real pipeline and captures it."""

import os
import sys

import torch

from .attachment import attach, pipeline_module
from .bundle import Bundle, step_count
from .capture_spec import CaptureSpec
from .errors import EnvironmentFailure, UsageError
from .facts import bundle_facts
from .probes import ProbeList
from .schedule import Schedule

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


def _device(name):
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device: '{name}' is not a device") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device: '{name}' is neither cpu nor cuda")
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise EnvironmentFailure(f"--device: there is no {name}; torch sees {count} CUDA devices")
    return device


def _own_memory(model):
    """Every parameter and buffer in fresh memory. A tensor mapped from a file keeps the file's alignment, which
    changes what matrix kernels compute."""
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.data = tensor.data.clone()
            if tensor.data_ptr() % 64:
                raise AssertionError("torch's allocator gave memory that is not aligned to 64 bytes")


def _set_determinism():
    # Read when CUDA starts; without it cuBLAS may split a product differently on every run.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # costs time, changes no value that is read
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def _progress(text):
    print(text, file=sys.stderr, flush=True)


def run(
    pipeline_name, bundle_path, out, dtype="f32", steps=None, capture="stats", threads=1, device="cpu", layout=None,
    overwrite=False, observe=True, progress=_progress,
):  # fmt: skip
    """Returns the rows of video and audio after the last step. `observe` False runs the same without a dump."""
    capture_spec = CaptureSpec(capture)
    device = _device(device)
    if observe and os.path.exists(out) and not overwrite:
        raise UsageError(f"{out}: exists already; give --overwrite to replace it")
    bundle = Bundle(bundle_path, layout)
    count = step_count(bundle, steps)
    capture_spec.check(ProbeList(bundle.checkpoint.shape))
    torch.set_num_threads(threads)
    _set_determinism()
    pipeline = _import(pipeline_name)
    with torch.no_grad():
        progress(f"{pipeline_name}: loading {bundle.checkpoint.path}")
        model = pipeline.load(bundle, DTYPES[dtype], device)
        _own_memory(model)
        schedule = Schedule(bundle, count, device)
        forward = pipeline.Forward(bundle, model, DTYPES[dtype], device)
        video = bundle.inputs["hidden_states"][0].to(device).clone()
        audio = bundle.inputs["audio_hidden_states"][0].to(device).clone()

        def step(i, observer=None):
            now = schedule.steps[i]
            if observer:
                forward.announce(observer, video, audio, now)
            predictions = forward(video, audio, now.timestep, now.timestep_indices)
            schedule.advance(i, video, audio, *predictions)
            if observer:
                observer.end_step({"video": video, "audio": audio}, now.sigmas)

        if not observe:
            for i in range(count):
                step(i)
            return video, audio
        progress(f"{pipeline_name}: probing the weights")
        sequence = bundle.sequence
        with attach(
            model, out, capture, count, sequence.cond_video_rows, sequence.cond_audio_rows,
            facts={**bundle_facts(bundle), **pipeline.loading_facts(DTYPES[dtype])}, overwrite=overwrite,
        ) as observer:  # fmt: skip
            for i in range(count):
                progress(f"{pipeline_name}: step {i + 1} of {count}")
                step(i, observer)
    progress(f"{pipeline_name}: wrote {out}")
    return video, audio


def _import(name):
    try:
        return pipeline_module(name)
    except ImportError as error:
        raise EnvironmentFailure(f"{name} is not installed here ({error})") from None
