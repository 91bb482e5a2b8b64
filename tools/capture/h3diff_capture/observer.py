"""What happens to a value that a tap sees: it is measured at once, since pipelines overwrite tensors in place."""

import collections
import math

import torch

from .dump import DumpWriter, dtype_name
from .measure import chunks, measure
from .segments import SEGMENTS
from .statistics import Statistics, cosine

# How the arguments of a forward become probes: canonical dtype of each input.
_INDEX_INPUTS = ("input.timestep_indices", "input.token_tags")
_SEGMENT_ORDER = {name: i for i, name in enumerate(SEGMENTS)}


def rows_by_columns(tensor):
    """[1, rows, ...] or [rows, ...] as 2-D, trailing dimensions flattened."""
    return tensor.reshape(-1, tensor.shape[-1])


def take(tensor, ranges):
    return torch.cat([tensor[begin:end] for begin, end in ranges])


class Observer:
    """Collects one dump. `sequence` must be set (SequenceLayout) before a step's first probe."""

    def __init__(self, path, probes, capture, facts, steps=None, overwrite=False):
        capture.check(probes)
        self.probes, self.capture, self.steps = probes, capture, steps
        self.step = -1
        self.in_step = False
        self.calls = collections.Counter()  # (op, implementation) -> calls
        self.reasons = {}  # probe or glob -> why it is not seen
        self._seen = collections.Counter()
        self._bytes = self._over_budget = 0
        self._sequence = self._timesteps = None
        self._model_inputs = {}
        self._given_inputs = {}
        self._writer = DumpWriter(path, {**facts, "capture": capture.text}, overwrite)

    # What pipelines call

    def count(self, op, implementation="torch"):
        self.calls[op, implementation] += 1

    @torch.no_grad()
    def see(self, name, tensor, stored_dtype=None):
        """`tensor`: the probe's value in canonical form, 2-D, any strides."""
        probe = self.probes[name]
        self._seen[name] += 1
        level = self.capture.level(name)
        if level == "off":
            return
        tensor = tensor.detach()
        statistics = level != "digest"
        sketch_k = self.capture.sketch(self.step, self.steps) if self.step >= 0 else (self.capture.sketch_k or 256)
        for segment, ranges in self._segments(probe, tensor.shape[0]):
            measurement = measure(tensor, ranges, statistics, sketch_k, probe.per_column and statistics)
            stored_level = self._capture_tensor(name, segment, tensor, ranges, level, measurement.rows)
            row = {
                "step": self.step, "probe": name, "segment": segment, "dtype": dtype_name(tensor.dtype),
                "stored_dtype": dtype_name(stored_dtype or tensor.dtype), "rows": measurement.rows,
                "cols": measurement.cols, "digest": measurement.digest, "level": stored_level,
                "cosine": self._cosine(name, tensor, ranges) if statistics else math.nan,
            }  # fmt: skip
            figures = measurement.statistics or Statistics()
            row.update((field, getattr(figures, field)) for field in Statistics.__slots__)
            order = (self.probes.position[name], _SEGMENT_ORDER[segment])
            sketch = measurement.sketch.numpy() if measurement.sketch is not None else None
            self._writer.add(order, row, sketch)
            if measurement.columns:
                self._writer.add_columns(order, name, measurement.columns)

    def give_inputs(self, inputs):
        """Inputs of the next step by probe name, where the forward's own arguments are no longer as given."""
        self._given_inputs = dict(inputs)

    def take_given_inputs(self):
        given, self._given_inputs = self._given_inputs, {}
        return given

    def end_weights(self):
        self._writer.end_weights()

    @torch.no_grad()
    def begin_step(self, inputs, sequence):
        """`inputs`: the arguments by probe name ("input.video": [rows, width], ...) as the caller gave them."""
        if self.in_step:
            self.end_step()
        self.step += 1
        self.in_step = True
        self._sequence = sequence
        self._timesteps = inputs["input.timestep"].detach().reshape(-1).tolist()
        self._timestep_indices = inputs["input.timestep_indices"].detach().reshape(-1).tolist()
        # The model's inputs are wanted again: for the predictions' cosine, and for the latents after the step.
        self._model_inputs = {kind: inputs[f"input.{kind}"].detach().clone() for kind in ("video", "audio")}
        for name, tensor in inputs.items():
            given = tensor.dtype
            if name in _INDEX_INPUTS:
                tensor = tensor.to(torch.int32)
            elif name == "input.position_ids":
                tensor = tensor.to(torch.float32)
            self.see(name, tensor, stored_dtype=given)

    def end_step(self, latents=None, sigmas=None):
        """`latents`: {"video": rows, "audio": rows} after the step; `sigmas`: of video and audio, now and next."""
        for kind in ("video", "audio"):
            if latents is not None:
                self.see(f"latent.{kind}", rows_by_columns(latents[kind]))
        self._writer.end_step(self.step, sigmas or (*self.given_sigmas(), math.nan, math.nan))
        self.in_step = False
        self._model_inputs = {}

    def given_sigmas(self):
        """1 - t of the first generated video and audio row, in float32 as the scheduler computes it."""
        sequence = self._sequence

        def sigma(indices, conditioning):
            if conditioning >= len(indices):
                return math.nan
            t = self._timesteps[self._timestep_indices[indices[conditioning]]]
            return float(1.0 - torch.tensor(t, dtype=torch.float32))

        return (
            sigma(sequence.video_indices, sequence.cond_video_rows),
            sigma(sequence.audio_indices, sequence.cond_audio_rows),
        )

    def model_input(self, kind):
        """A copy of the step's input rows, "video" or "audio"."""
        return self._model_inputs[kind]

    def set_fact(self, name, value):
        self._writer.set_fact(name, value)

    def finish(self):
        if self.in_step:
            self.end_step()
        self._writer.set_fact("tensors_over_budget", self._over_budget)
        dispatch = [(op, name, name, calls, 0) for (op, name), calls in sorted(self.calls.items())]
        self._writer.finish(dispatch, self._unobserved())

    def abandon(self):
        self._writer.abandon()

    @property
    def partial_path(self):
        return self._writer.partial_path

    # Inside

    def _segments(self, probe, rows):
        if probe.space == "other":
            return [("all", [(0, rows)])]
        return self._sequence.table(probe.space, self._timesteps)

    def _capture_tensor(self, name, segment, tensor, ranges, level, rows):
        if level not in ("rows", "full"):
            return level
        cols = tensor.shape[1]
        taken = rows if level == "full" else min(rows, self.capture.sample_rows)
        size = taken * cols * tensor.element_size()
        if self._bytes + size > self.capture.budget_bytes:
            self._over_budget += 1
            return "stats"
        self._bytes += size
        if level == "full":
            per_chunk = max(1, (1 << 22) // max(1, cols))
            pieces = chunks(tensor, ranges, per_chunk)
        else:
            numbers = torch.cat([torch.arange(begin, end) for begin, end in ranges])
            wanted = numbers[torch.arange(taken) * rows // taken]
            pieces = [tensor.index_select(0, wanted.to(tensor.device))]
        self._writer.add_tensor(
            self.step, name, segment, pieces, taken, cols, tensor.dtype, rows if level == "rows" else 0
        )
        return level

    def _cosine(self, name, tensor, ranges):
        if not name.startswith("pred."):
            return math.nan
        given = self._model_inputs[name.removeprefix("pred.")]
        return cosine(take(tensor, ranges), take(given.to(tensor.device), ranges))

    def _unobserved(self):
        steps = self.step + 1
        rows = []
        for probe in self.probes.probes:
            seen = self._seen[probe.name]
            if seen and (not probe.step or seen >= steps):
                continue
            reason = self.reasons.get(probe.name)
            if reason is None:
                reason = "not seen: the pipeline did not pass here" if not seen else f"seen in {seen} of {steps} steps"
            if probe.step and not steps:
                continue
            rows.append((probe.name, reason))
        return rows
