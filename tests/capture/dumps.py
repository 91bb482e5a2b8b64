"""Reads a dump with h5py alone."""

import h5py


def text(value):
    return value.decode() if isinstance(value, bytes) else str(value)


def rows(path):
    """{(step, probe, segment): row} in the file's order."""
    with h5py.File(path) as file:
        return {(int(r["step"]), text(r["probe"]), text(r["segment"])): r for r in file["index"][:]}


def digests(path):
    return {key: text(row["digest"]) for key, row in rows(path).items()}


def facts(path):
    with h5py.File(path) as file:
        return {k: text(v) if isinstance(v, bytes) else v for k, v in file["run"].attrs.items()}


def table(path, name):
    with h5py.File(path) as file:
        return [tuple(text(v) if isinstance(v, bytes) else v for v in row.tolist()) for row in file[name][:]] if name in file else []
