"""The context manager around somebody's own pipeline."""

import contextlib
import importlib

import torch

from .capture_spec import CaptureSpec
from .errors import UsageError
from .facts import environment_facts, pipeline_facts
from .observer import Observer
from .probes import ProbeList
from .taps import Taps

_PIPELINES = {"MiniMaxH3Transformer3DModel": "diffusers", "MiniMaxH3DiT": "diffsynth"}


def pipeline_module(name):
    return importlib.import_module(f".pipelines.{name}", __package__)


def _pipeline_of(model):
    for cls in type(model).__mro__:
        if cls.__name__ in _PIPELINES:
            return pipeline_module(_PIPELINES[cls.__name__])
    raise UsageError(f"cannot attach to a {type(model).__name__}; known are {', '.join(_PIPELINES)}")


@contextlib.contextmanager
def attach(
    model, out, capture="stats", steps=None, cond_video_rows=0, cond_audio_rows=0, scheduler=None, audio_scheduler=None,
    facts=None, overwrite=False,
):  # fmt: skip
    """Observes every forward of `model` inside the `with`, one step each, and writes the dump `out`.

    model           diffusers' MiniMaxH3Transformer3DModel or DiffSynth-Studio's MiniMaxH3DiT, ...Comfy, ...ComfyPruned
    capture         what is kept, see capture_spec.py
    steps           number of forwards that will come, if known (the sketch of the last one is kept large)
    cond_*_rows     leading video and audio rows that are conditioning, if any
    scheduler, audio_scheduler
                    the pipeline's two MiniMaxH3Scheduler; with them sigmas and the latents after each step are seen
    facts           more run facts by name (docs/dump-format.md section 3)
    overwrite       replace `out` if it exists

    If the `with` ends by an exception, `out.partial` stays, and the steps that were complete are readable in it.
    """
    pipeline = _pipeline_of(model)
    probes = ProbeList(pipeline.shape_of(model))
    dtype = pipeline.compute_dtype(model)
    device = next(model.parameters()).device
    known = {**environment_facts(device), **pipeline_facts(pipeline.NAME, dtype), **probes.shape.facts()}
    if steps is not None:
        known["steps_planned"] = steps
    observer = Observer(out, probes, CaptureSpec(capture), {**known, **(facts or {})}, steps, overwrite)
    try:
        with Taps() as taps:
            for name, tensor in pipeline.weights(model):
                if tensor.device.type == "meta":
                    observer.reasons[name] = "the weight is not in memory (meta device)"
                else:
                    observer.see(name, tensor)
            observer.end_weights()
            if scheduler is not None and audio_scheduler is not None:
                _attach_schedulers(observer, taps, {"video": scheduler, "audio": audio_scheduler},
                                   {"video": cond_video_rows, "audio": cond_audio_rows})  # fmt: skip
            else:
                for kind in ("video", "audio"):
                    observer.reasons[f"latent.{kind}"] = "the pipeline's schedulers were not given to the capture"
            pipeline.attach(model, observer, taps, (cond_video_rows, cond_audio_rows))
            yield observer
    except BaseException:
        observer.abandon()
        raise
    observer.finish()


def _attach_schedulers(observer, taps, schedulers, conditioning):
    """A step is complete when both schedulers have moved on from it."""
    stepped = {}

    def around(kind, scheduler):
        def wrap(original):
            def step(*args, **kwargs):
                result = original(*args, **kwargs)
                rows = observer.model_input(kind).clone()
                rows[conditioning[kind] :] = result[0] if isinstance(result, tuple) else result.prev_sample
                at = scheduler.step_index
                stepped[kind] = (rows, float(scheduler.sigmas[at - 1]), float(scheduler.sigmas[at]))
                if len(stepped) == 2:
                    video, audio = stepped.pop("video"), stepped.pop("audio")
                    observer.end_step({"video": video[0], "audio": audio[0]}, (video[1], audio[1], video[2], audio[2]))
                return result

            return step

        return wrap

    for kind, scheduler in schedulers.items():
        taps.wrap(scheduler, "step", around(kind, scheduler))
