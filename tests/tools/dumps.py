"""Hand-made dumps of a few probes, written with h5py alone. Digests are labels here: comparing only asks if they are equal."""

import hashlib

import h5py
import numpy as np

SHAPE = {
    "num_layers": 2,
    "num_refiner_layers": 2,
    "hidden_size": 84,
    "num_attention_heads": 4,
    "attention_head_dim": 32,
    "ffn_dim": 224,
    "in_channels": 24,
    "audio_in_channels": 32,
    "text_dim": 64,
    "freq_dim": 256,
    "time_embed_hidden_dim": 84,
    "time_embed_dim": 42,
    "rope_freq_dim": 4,
    "video_patch_dim": 96,
}

INDEX = np.dtype(
    [("step", "<i4"), ("probe", "S80"), ("segment", "S12"), ("dtype", "S16"), ("stored_dtype", "S16"), ("rows", "<i8"),
     ("cols", "<i8"), ("digest", "S32"), ("level", "S8"), ("zeros", "<i8"), ("nan", "<i8"), ("inf", "<i8"),
     ("subnormal", "<i8"), ("mean", "<f8"), ("std", "<f8"), ("l2", "<f8"), ("min", "<f8"), ("max", "<f8"),
     ("absmax", "<f8"), ("absmax_row", "<i8"), ("absmax_col", "<i8"), ("cosine", "<f8"), ("row_bands", "<f4", 16),
     ("col_groups", "<f4", 16), ("sketch_k", "<i4"), ("sketch_row", "<i8")]
)  # fmt: skip
STEPS = np.dtype(
    [("step", "<i4"), ("sigma_video", "<f8"), ("sigma_audio", "<f8"), ("sigma_video_next", "<f8"),
     ("sigma_audio_next", "<f8")]
)  # fmt: skip

# (step, probe, segment, rows, columns)
ROWS = [
    (-1, "weights.blocks.0.norm1", "all", 1, 84),
    (0, "input.video", "video", 8, 96),
    (0, "video_patch_proj", "video", 8, 84),
    (0, "blocks.0.norm1", "video", 8, 84),
    (0, "blocks.0.attn.q", "video", 8, 128),
    (0, "blocks.1.out", "video", 8, 84),
    (0, "pred.video", "video", 8, 96),
]


def values(step, probe, rows, cols):
    seed = int.from_bytes(hashlib.sha256(f"{step} {probe}".encode()).digest()[:4], "little")
    return np.random.Generator(np.random.Philox(seed)).standard_normal((rows, cols)).astype(np.float32)


def index_row(step, probe, segment, tensor, level="full"):
    row = np.zeros((), INDEX)
    wide = tensor.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    at = np.abs(np.where(np.isfinite(wide), wide, 0)).argmax()
    row["step"], row["probe"], row["segment"] = step, probe, segment
    row["dtype"] = row["stored_dtype"] = "float32"
    row["rows"], row["cols"] = tensor.shape
    row["digest"] = hashlib.sha256(tensor.tobytes()).hexdigest()[:32]
    row["level"] = level
    row["nan"], row["inf"] = np.isnan(wide).sum(), np.isinf(wide).sum()
    row["mean"], row["std"], row["l2"] = finite.mean(), finite.std(), np.sqrt((finite**2).sum())
    row["min"], row["max"], row["absmax"] = finite.min(), finite.max(), np.abs(finite).max()
    row["absmax_row"], row["absmax_col"] = np.unravel_index(at, tensor.shape)
    row["cosine"] = np.nan
    for name, parts in (("row_bands", np.array_split(wide, 16, 0)), ("col_groups", np.array_split(wide, 16, 1))):
        row[name] = [np.sqrt(np.nansum(part**2)) for part in parts]
    row["sketch_row"] = -1
    return row


def write(path, change=None, rows=ROWS, facts=None, finished=1):
    """`change(step, probe, tensor)` may edit a tensor in place before it is written."""
    with h5py.File(path, "w") as file:
        file.attrs["format"] = np.bytes_("h3diff-dump")
        file.attrs["version"] = np.int64(1)
        run = file.create_group("run")
        for name, value in SHAPE.items():
            run.attrs[name] = np.int64(value)
        for name, value in {
            "producer": "tests", "pipeline": "hand", "profile": "diffusers-f32", "compute_dtype": "float32",
            "device": "cpu", "adaln_form": "mlp", "case": "tiny", "case_digest": "0" * 64, **(facts or {}),
        }.items():  # fmt: skip
            run.attrs[name] = np.bytes_(value)
        run.attrs["finished"] = np.int64(finished)
        index = []
        for step, probe, segment, n, m in rows:
            tensor = values(step, probe, n, m)
            if change:
                change(step, probe, tensor)
            index.append(index_row(step, probe, segment, tensor))
            data = file.create_dataset(f"tensors/{step}/{probe}/{segment}", data=tensor)
            data.attrs["dtype"] = np.bytes_("float32")
        file.create_dataset("index", data=np.array(index, INDEX), maxshape=(None,), chunks=(64,))
        steps = sorted({row[0] for row in rows if row[0] >= 0})
        file.create_dataset(
            "steps", data=np.array([(step, 1, 1, 0, 0) for step in steps], STEPS), maxshape=(None,), chunks=(64,)
        )
    return path
