"""Which rows of a tensor belong to which kind of token: docs/dump-format.md section 1."""

from dataclasses import dataclass, field

import torch

from .errors import BadInput

# In the order in which the index rows of one probe are written.
SEGMENTS = ("all", "text", "vision", "cond_video", "cond_audio", "audio", "video")
TAG_VIDEO, TAG_TEXT, TAG_AUDIO = 0, 1, 2


def row_ranges(rows):
    """Half-open ranges that cover a list of row numbers, in its order."""
    ranges = []
    for row in rows:
        if ranges and ranges[-1][1] == row:
            ranges[-1][1] = row + 1
        else:
            ranges.append([row, row + 1])
    return [tuple(r) for r in ranges]


@dataclass
class SequenceLayout:
    """What the index tensors say: positions in the packed sequence, in the order of the rows of input.video,
    input.audio and input.text. The first `cond_*_rows` of video and audio are conditioning."""

    video_indices: list
    audio_indices: list
    text_indices: list
    token_tags: list  # per packed row: 0 video, 1 text, 2 audio
    cond_video_rows: int = 0
    cond_audio_rows: int = 0
    _tables: dict = field(default_factory=dict, repr=False)

    def check(self, where):
        """Raises BadInput; `where` names the file."""
        rows = len(self.token_tags)
        owner = {}
        for name in ("video_indices", "audio_indices", "text_indices"):
            for i, index in enumerate(getattr(self, name)):
                if not 0 <= index < rows:
                    raise BadInput(f"{where}: {name}[{i}] is {index}, but the packed sequence has {rows} rows")
                if index in owner:
                    raise BadInput(f"{where}: {name}[{i}] is {index}, a row that {owner[index]} holds already")
                owner[index] = name
        if len(owner) != rows:
            missing = next(i for i in range(rows) if i not in owner)
            raise BadInput(f"{where}: no index tensor holds row {missing} of the packed sequence of {rows} rows")
        for i, tag in enumerate(self.token_tags):
            if tag not in (TAG_VIDEO, TAG_TEXT, TAG_AUDIO):
                raise BadInput(f"{where}: token_tags[{i}] is {tag}, not 0 (video), 1 (text) or 2 (audio)")
        for kind in ("video", "audio"):
            conditioning, count = getattr(self, f"cond_{kind}_rows"), len(getattr(self, f"{kind}_indices"))
            if not 0 <= conditioning <= count:
                raise BadInput(f"{where}: cond_{kind}_rows is {conditioning}, but there are {count} {kind} rows")

    def _members(self, space):
        """segment -> rows of a tensor in `space`, each in sequence order."""
        tags = self.token_tags
        vision = [tags[p] == TAG_VIDEO for p in self.text_indices]
        kinds = {
            "text": (self.text_indices, ["vision" if v else "text" for v in vision]),
            "video": (self.video_indices, ["cond_video"] * self.cond_video_rows
                      + ["video"] * (len(self.video_indices) - self.cond_video_rows)),
            "audio": (self.audio_indices, ["cond_audio"] * self.cond_audio_rows
                      + ["audio"] * (len(self.audio_indices) - self.cond_audio_rows)),
        }  # fmt: skip
        members = {}
        for kind in kinds if space == "packed" else (space,):
            positions, segments = kinds[kind]
            for row, (position, segment) in enumerate(zip(positions, segments)):
                members.setdefault(segment, []).append((position, position if space == "packed" else row))
        return {segment: [row for _, row in sorted(pairs)] for segment, pairs in members.items()}

    def table(self, space, timesteps, other_rows=0):
        """[(segment, ranges)] of a tensor in `space`, in the order of SEGMENTS, without empty segments.
        `timesteps` are the distinct timesteps as the model got them."""
        if space == "other":
            return [("all", [(0, other_rows)])] if other_rows else []
        if space in ("timesteps", "modulation"):
            order = sorted(range(len(timesteps)), key=lambda i: timesteps[i])
            if space == "timesteps":
                return [("all", row_ranges(order))]
            tags = (("text", TAG_TEXT), ("audio", TAG_AUDIO), ("video", TAG_VIDEO))
            return [(name, row_ranges([i * 3 + tag for i in order])) for name, tag in tags]
        if space not in self._tables:
            members = self._members(space)
            self._tables[space] = [(s, row_ranges(members[s])) for s in SEGMENTS if s in members]
        return self._tables[space]


def layout_from_tensors(video_indices, audio_indices, text_indices, token_tags, cond_video_rows=0, cond_audio_rows=0):
    def numbers(x):
        return x.reshape(-1).to(device="cpu", dtype=torch.int64).tolist()

    return SequenceLayout(
        numbers(video_indices), numbers(audio_indices), numbers(text_indices), numbers(token_tags),
        cond_video_rows, cond_audio_rows,
    )  # fmt: skip
