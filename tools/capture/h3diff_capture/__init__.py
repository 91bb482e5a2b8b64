"""Records what the probes of a MiniMax-H3 forward saw, from a real pipeline, as an h3diff dump.

From a shell, for a bundle:

    python -m h3diff_capture diffusers BUNDLE -o reference.h5 --dtype bf16

Around your own pipeline; each forward of the transformer is a step:

    import h3diff_capture

    pipe = ...                      # any pipeline that calls a MiniMaxH3Transformer3DModel
    with h3diff_capture.attach(
        pipe.transformer, out="mine.h5", steps=8, cond_video_rows=0,
        scheduler=pipe.scheduler, audio_scheduler=pipe.audio_scheduler,
    ):
        pipe(prompt="...")

Nothing that the model computes is changed: values are looked at through module hooks and, where a value is no
module's output, through a wrapper around one function, all removed at the end of the `with`.
"""

__version__ = "0.1.0"

__all__ = ["attach", "CaptureError", "__version__"]


def __getattr__(name):
    # Importing torch takes seconds; --help must not wait for it.
    if name == "attach":
        from .attachment import attach

        return attach
    if name == "CaptureError":
        from .errors import CaptureError

        return CaptureError
    raise AttributeError(name)
