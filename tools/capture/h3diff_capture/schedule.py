"""The steps of a run, by diffusers' own scheduler and plan of timesteps."""

from dataclasses import dataclass

import torch

from .errors import EnvironmentFailure, UsageError

# The t at which conditioning rows stand: video rows just short of clean, audio rows clean.
_CONDITION_VIDEO_T, _CONDITION_AUDIO_T = 0.999, 1.0


@dataclass
class Step:
    timestep: torch.Tensor  # distinct timesteps
    timestep_indices: torch.Tensor  # of every packed row
    video_timestep: torch.Tensor  # 0-dim, of the generated rows
    audio_timestep: torch.Tensor
    sigmas: tuple  # video, audio, and both of the next step


class Schedule:
    """`steps`, and `advance`, which moves the generated rows down their schedules.

    Step 0 takes the timesteps that came with the inputs. A bundle without case.json says nothing of a schedule: its
    one step goes from the given timesteps to sigma 0; more steps follow the model's schedule from its beginning.
    """

    def __init__(self, bundle, count, device):
        try:
            from diffusers import MiniMaxH3Scheduler
            from diffusers.modular_pipelines.minimax_h3.before_denoise import MiniMaxH3SetTimestepsStep
        except ImportError as error:
            raise EnvironmentFailure(f"diffusers 0.42 or later is needed for the schedule ({error})") from None
        self._sequence = bundle.sequence
        self._video = MiniMaxH3Scheduler(shift=bundle.shift_video)
        self._audio = MiniMaxH3Scheduler(shift=bundle.shift_audio)
        given = [bundle.inputs[name].to(device) for name in ("timestep", "timestep_indices")]
        if not bundle.has_case and count == 1:
            self.steps = [self._given_step(bundle, given, device)]
            return
        self._video.set_timesteps(count + 1, device=device)
        self._audio.set_timesteps(count + 1, device=device)
        available = min(len(self._video.timesteps), len(self._audio.timesteps))
        if available < count:
            raise UsageError(f"--steps: the schedule holds only {available} different sigmas, fewer than {count} steps")
        self.steps = []
        for i in range(count):
            t_video, t_audio = self._video.timesteps[i], self._audio.timesteps[i]
            plan = MiniMaxH3SetTimestepsStep.build_row_timesteps(
                bundle.inputs["video_indices"].long(), bundle.inputs["audio_indices"].long(),
                self._sequence.cond_video_rows, self._sequence.cond_audio_rows, bundle.inputs["text_indices"].numel(),
                float(t_video), float(t_audio), max(float(t_video), _CONDITION_VIDEO_T), _CONDITION_AUDIO_T,
            )  # fmt: skip
            plan = [tensor.to(device) for tensor in plan]
            if i == 0 and bundle.has_case:
                plan = given
            sigmas = tuple(float(s) for s in (
                self._video.sigmas[i], self._audio.sigmas[i], self._video.sigmas[i + 1], self._audio.sigmas[i + 1],
            ))  # fmt: skip
            self.steps.append(Step(*plan, t_video, t_audio, sigmas))

    def _given_step(self, bundle, given, device):
        """One step from wherever the bundle stands to sigma 0."""
        timestep, indices = given
        sigmas, timesteps = [], []
        for scheduler, rows, conditioning in (
            (self._video, self._sequence.video_indices, self._sequence.cond_video_rows),
            (self._audio, self._sequence.audio_indices, self._sequence.cond_audio_rows),
        ):
            if conditioning >= len(rows):
                sigma, t = float("nan"), torch.tensor(1.0, device=device)
            else:
                t = timestep[indices[rows[conditioning]]].to(torch.float32)
                sigma = float(1.0 - t)
            # At sigma 0 there is nothing left to do, and the scheduler has no such step.
            if sigma > 0:
                scheduler.set_timesteps(sigmas=[sigma, 0.0], device=device)
                scheduler.set_begin_index(0)
            sigmas.append(sigma)
            timesteps.append(t)
        return Step(timestep, indices, *timesteps, (*sigmas, 0.0, 0.0))

    def advance(self, i, video, audio, video_prediction, audio_prediction):
        """Changes the generated rows of `video` and `audio` [n, width] in place, as the pipeline does."""
        step = self.steps[i]
        for scheduler, t, rows, prediction, conditioning in (
            (self._video, step.video_timestep, video, video_prediction, self._sequence.cond_video_rows),
            (self._audio, step.audio_timestep, audio, audio_prediction, self._sequence.cond_audio_rows),
        ):
            if scheduler.sigmas is None:
                continue
            rows[conditioning:] = scheduler.step(
                prediction[0, conditioning:].float(), t, rows[conditioning:], return_dict=False
            )[0]
