"""Writes the dump: docs/dump-format.md.

Rows of a step are held in memory and appended, in execution order, when the step ends; then the file is flushed.
Captured tensors are written at once.
"""

import contextlib
import functools
import os
import signal
import threading

import h5py
import numpy as np
import torch

from .errors import EnvironmentFailure, UsageError

VERSION = 1


def _text(size):
    return h5py.string_dtype("utf-8", size)


INDEX = np.dtype(
    [
        ("step", "<i4"), ("probe", _text(80)), ("segment", _text(12)), ("dtype", _text(16)), ("stored_dtype", _text(16)),
        ("rows", "<i8"), ("cols", "<i8"), ("digest", _text(32)), ("level", _text(8)),
        ("zeros", "<i8"), ("nan", "<i8"), ("inf", "<i8"), ("subnormal", "<i8"),
        ("mean", "<f8"), ("std", "<f8"), ("l2", "<f8"), ("min", "<f8"), ("max", "<f8"), ("absmax", "<f8"),
        ("absmax_row", "<i8"), ("absmax_col", "<i8"), ("cosine", "<f8"),
        ("row_bands", "<f4", (16,)), ("col_groups", "<f4", (16,)), ("sketch_k", "<i4"), ("sketch_row", "<i8"),
    ]
)  # fmt: skip
COLUMNS = np.dtype(
    [
        ("probe", _text(80)), ("column", "<i4"), ("digest", _text(32)), ("zeros", "<i8"), ("nan", "<i8"), ("inf", "<i8"),
        ("mean", "<f8"), ("std", "<f8"), ("l2", "<f8"), ("min", "<f8"), ("max", "<f8"), ("absmax", "<f8"),
    ]
)  # fmt: skip
DISPATCH = np.dtype(
    [("op", _text(32)), ("implementation", _text(64)), ("declared", _text(64)), ("calls", "<i8"), ("fallbacks", "<i8")]
)
STEPS = np.dtype(
    [("step", "<i4"), ("sigma_video", "<f8"), ("sigma_audio", "<f8"), ("sigma_video_next", "<f8"), ("sigma_audio_next", "<f8")]
)
UNOBSERVED = np.dtype([("probe", _text(80)), ("reason", _text(160))])

# Rows per HDF5 chunk.
_CHUNK_ROWS = {"index": 256, "columns": 1024}


def dtype_name(dtype):
    return {torch.bool: "bool"}.get(dtype) or str(dtype).removeprefix("torch.")


def _bfloat16():
    """A 16-bit float that HDF5 tools print as numbers."""
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    return kind


def _storage(dtype):
    """HDF5 element type, and the torch dtype in which the bytes are handed over."""
    if dtype == torch.bfloat16:
        return _bfloat16(), torch.int16
    if dtype in (torch.float8_e4m3fn, torch.float8_e5m2, torch.bool):
        return h5py.h5t.STD_U8LE, torch.uint8
    numpy_type = torch.empty(0, dtype=dtype).numpy().dtype
    return h5py.h5t.py_create(numpy_type), dtype


@contextlib.contextmanager
def _uninterrupted():
    """Holds SIGINT back: between two calls into HDF5 a table may have rows that are not written yet."""
    previous = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or previous is None:
        yield  # signals go to the main thread, or to a handler that is not Python's
        return
    held = []
    signal.signal(signal.SIGINT, lambda number, frame: held.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous)
        if held and callable(previous):
            previous(*held[0])
        elif held and previous == signal.SIG_DFL:
            signal.raise_signal(signal.SIGINT)


def _writes(method):
    """A method that writes: not interrupted, and a failing disk is told as such."""

    @functools.wraps(method)
    def wrapper(self, *args, **kwargs):
        with _uninterrupted():
            try:
                return method(self, *args, **kwargs)
            except (OSError, RuntimeError) as error:
                raise EnvironmentFailure(f"{self.partial_path}: cannot be written ({error})") from None

    return wrapper


class DumpWriter:
    """Writes PATH.partial; `finish` renames it to PATH, `abandon` leaves it with its finished steps."""

    @_writes
    def __init__(self, path, facts, overwrite=False):
        self.path, self.partial_path = path, path + ".partial"
        if os.path.exists(path) and not overwrite:
            raise UsageError(f"{path}: exists already; give --overwrite to replace it")
        # Format v108: the library of HDF5 1.8 and later reads it, and a file that a kill left open stays readable.
        self._file = h5py.File(self.partial_path, "w", libver=("v108", "v108"))
        self._keep_metadata_in_memory()
        self._file.attrs.create("format", "h3diff-dump", dtype=_text(11))
        self._file.attrs.create("version", np.int64(VERSION))
        self._run = self._file.create_group("run")
        self._rows, self._sketches, self._columns = [], {}, []
        self._table("index", INDEX)
        self._table("steps", STEPS)
        for name, value in {**facts, "finished": 0}.items():
            self.set_fact(name, value)
        self._file.flush()

    def _keep_metadata_in_memory(self):
        """Between two flushes nothing of the file's structure reaches the disk, so that a kill leaves the last
        flushed state."""
        config = self._file.id.get_mdc_config()
        config.evictions_enabled = False
        config.incr_mode = 0
        config.decr_mode = 0
        config.flash_incr_mode = 0
        self._file.id.set_mdc_config(config)

    def _table(self, name, dtype):
        if name not in self._file:
            self._file.create_dataset(
                name, (0,), dtype=dtype, maxshape=(None,), chunks=(_CHUNK_ROWS.get(name, 64),)
            )
        return self._file[name]

    def _append(self, name, dtype, rows):
        if not rows:
            return
        array = np.zeros(len(rows), dtype)
        for i, row in enumerate(rows):
            array[i] = tuple(v.encode() if isinstance(v, str) else v for v in row)
        table = self._table(name, dtype)
        begin = table.shape[0]
        table.resize((begin + len(rows),))
        table[begin:] = array

    def set_fact(self, name, value):
        if isinstance(value, str):
            data = value.encode()
            # A fixed-length string has at least one byte.
            self._run.attrs.create(name, np.bytes_(data), dtype=_text(max(1, len(data))))
        else:
            self._run.attrs.create(name, np.float64(value) if isinstance(value, float) else np.int64(value))

    def add(self, order, row, sketch=None):
        """`row`: dict of INDEX's columns but sketch_k and sketch_row; `order`: its place among the step's rows."""
        self._rows.append((order, row, sketch))

    def add_columns(self, order, probe, columns):
        self._columns.append((order, probe, columns))

    @_writes
    def add_tensor(self, step, probe, segment, pieces, rows, cols, dtype, sampled_of=0):
        """`pieces`: contiguous torch tensors that together hold the [rows, cols] dataset."""
        kind, hand_over = _storage(dtype)
        group = self._file.require_group(f"tensors/{step}/{probe}")
        space = h5py.h5s.create_simple((rows, cols))
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        plist.set_layout(h5py.h5d.CONTIGUOUS)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        dataset = h5py.Dataset(h5py.h5d.create(group.id, segment.encode(), kind, space, plist))
        begin = 0
        for piece in pieces:
            data = piece.cpu().contiguous().view(hand_over).numpy()
            file_space = dataset.id.get_space()
            file_space.select_hyperslab((begin, 0), data.shape)
            dataset.id.write(h5py.h5s.create_simple(data.shape), file_space, data, mtype=kind)
            begin += data.shape[0]
        name = dtype_name(dtype)
        dataset.attrs.create("dtype", name, dtype=_text(len(name)))
        if sampled_of:
            dataset.attrs.create("sampled_of", np.int64(sampled_of))

    @_writes
    def end_weights(self):
        """Appends what was added for step -1, which has no row in /steps."""
        self._end()
        self._file.flush()

    @_writes
    def end_step(self, step, sigmas):
        """`sigmas`: video, audio, and both of the next step."""
        self._end()
        self._append("steps", STEPS, [(step, *sigmas)])
        self._file.flush()

    def _end(self):
        self._rows.sort(key=lambda entry: entry[0])
        index = []
        for _, row, sketch in self._rows:
            k, at = 0, -1
            if sketch is not None:
                k = len(sketch)
                held = self._sketches.setdefault(k, [])
                at = self._sketch_rows(k) + len(held)
                held.append(sketch)
            row = {**row, "sketch_k": k, "sketch_row": at}
            index.append([row[name] for name in INDEX.names])
        for k, held in self._sketches.items():
            self._append_sketches(k, held)
        self._append("index", INDEX, index)
        self._columns.sort(key=lambda entry: entry[0])
        for _, probe, columns in self._columns:
            self._append("columns", COLUMNS, [(probe, i, *column) for i, column in enumerate(columns)])
        self._rows, self._sketches, self._columns = [], {}, []

    def _sketch_rows(self, k):
        name = f"sketches/k{k}"
        return self._file[name].shape[0] if name in self._file else 0

    def _append_sketches(self, k, held):
        name = f"sketches/k{k}"
        if name not in self._file:
            self._file.create_dataset(name, (0, k), dtype="<f4", maxshape=(None, k), chunks=(64, k))
        begin = self._sketch_rows(k)
        self._file[name].resize((begin + len(held), k))
        self._file[name][begin:] = np.stack(held).astype(np.float32)

    @_writes
    def finish(self, dispatch, unobserved):
        """`dispatch`: rows (op, implementation, declared, calls, fallbacks); `unobserved`: (probe, reason)."""
        self._append("dispatch", DISPATCH, dispatch)
        self._append("unobserved", UNOBSERVED, [(probe, reason[:160]) for probe, reason in unobserved])
        self.set_fact("finished", 1)
        self._file.close()
        os.replace(self.partial_path, self.path)

    def abandon(self):
        self._rows, self._sketches, self._columns = [], {}, []
        try:
            self._file.close()
        except (OSError, RuntimeError):
            pass  # the disk is full or gone; the steps that were flushed stand
