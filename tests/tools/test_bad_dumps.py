"""Every malformed dump: one sentence that names the file, exit code 3, no crash. Through compare and inspect alike."""

import random

import h5py
import numpy as np
import pytest

import dumps
from conftest import BIN, refused


def refused_everywhere(path, good, *says):
    for words in (("inspect", path), ("compare", good, path), ("compare", path, good)):
        result = refused(*words, code=3, says=[path.name, *says])
        assert len(result.stderr.strip().splitlines()) == 1, result.stderr


def edit(dump, name, change):
    path = dumps.write(dump.with_name(name))
    with h5py.File(path, "r+") as file:
        change(file)
    return path


def replace_index(file, data, **options):
    del file["index"]
    file.create_dataset("index", data=data, **{"maxshape": (None,), "chunks": (64,), **options})


def test_truncated_at_many_places(dump):
    data = dump.read_bytes()
    for size in [0, 1, 7, 8, 100, 1000, len(data) // 2, len(data) - 4096, len(data) - 1]:
        path = dump.with_name("cut.h5")
        path.write_bytes(data[:size])
        refused_everywhere(path, dump)


def test_flipped_bits_never_crash(dump):
    import subprocess

    data = dump.read_bytes()
    chance = random.Random(1)
    path = dump.with_name("flipped.h5")
    for _ in range(60):
        broken = bytearray(data)
        at = chance.randrange(min(len(data), 30_000))
        broken[at] ^= 1 << chance.randrange(8)
        path.write_bytes(broken)
        result = subprocess.run([BIN / "h3diff", "compare", dump, path], capture_output=True, text=True, timeout=60)
        assert result.returncode in (0, 1, 2, 3, 4), (at, result.returncode, result.stderr)
        assert "bug of ours" not in result.stderr


def test_unknown_version_and_format(dump):
    def version(file):
        file.attrs["version"] = np.int64(2)

    def fmt(file):
        file.attrs["format"] = np.bytes_("something-else")

    refused_everywhere(edit(dump, "version.h5", version), dump, "version")
    refused_everywhere(edit(dump, "format.h5", fmt), dump)


@pytest.mark.parametrize("name", ["index", "steps", "run"])
def test_missing_objects(dump, name):
    def change(file):
        del file[name]

    refused_everywhere(edit(dump, "missing.h5", change), dump, name)


@pytest.mark.parametrize("column", ["digest", "rows", "row_bands", "sketch_row"])
def test_missing_column(dump, column):
    def change(file):
        table = file["index"][:]
        replace_index(file, table[[name for name in table.dtype.names if name != column]].copy())

    refused_everywhere(edit(dump, "column.h5", change), dump, column)


@pytest.mark.parametrize(
    "column, value",
    [("probe", b"blocks.99.attn.q"), ("segment", b"smell"), ("dtype", b"float7"), ("digest", b"xyz"), ("level", b"most"),
     ("rows", -1), ("rows", 2**62), ("sketch_k", 7), ("step", -7)],
)  # fmt: skip
def test_nonsense_in_the_index(dump, column, value):
    def change(file):
        table = file["index"][:]
        table[column][3] = value
        replace_index(file, table)

    refused_everywhere(edit(dump, "nonsense.h5", change), dump)


def test_repeated_row(dump):
    def change(file):
        table = file["index"][:]
        replace_index(file, np.concatenate([table, table[-1:]]))

    refused_everywhere(edit(dump, "repeated.h5", change), dump)


def test_links(dump, tmp_path):
    elsewhere = dumps.write(tmp_path / "elsewhere.h5")

    def external(file):
        del file["index"]
        file["index"] = h5py.ExternalLink(str(elsewhere), "/index")

    def soft(file):
        file["tensors/0/pred.video/video2"] = h5py.SoftLink("/index")

    refused_everywhere(edit(dump, "external.h5", external), dump)
    refused_everywhere(edit(dump, "soft.h5", soft), dump)


def test_virtual_and_external_storage(dump, tmp_path):
    name = "tensors/0/pred.video/video"

    def virtual(file):
        del file[name]
        layout = h5py.VirtualLayout((8, 96), "<f4")
        layout[:] = h5py.VirtualSource(str(dump), name, (8, 96), "<f4")
        file.create_virtual_dataset(name, layout)
        file[name].attrs["dtype"] = np.bytes_("float32")

    def external(file):
        del file[name]
        (tmp_path / "outside.bin").write_bytes(bytes(8 * 96 * 4))
        data = file.create_dataset(name, (8, 96), "<f4", external=[(str(tmp_path / "outside.bin"), 0, 8 * 96 * 4)])
        data.attrs["dtype"] = np.bytes_("float32")

    refused_everywhere(edit(dump, "virtual.h5", virtual), dump)
    refused_everywhere(edit(dump, "storage.h5", external), dump)


def test_filters(dump):
    def deflated(file):
        replace_index(file, file["index"][:], maxshape=(None,), chunks=(64,), compression="gzip", shuffle=True)

    def exotic(file):
        replace_index(file, file["index"][:], maxshape=(None,), chunks=(64,), fletcher32=True)

    accepted = edit(dump, "deflated.h5", deflated)
    from conftest import h3diff

    h3diff("compare", dump, accepted)
    refused_everywhere(edit(dump, "exotic.h5", exotic), dump, "filter")


def test_absurd_dimensions(dump):
    def tensor(file):
        name = "tensors/0/pred.video/video"
        del file[name]
        data = file.create_dataset(name, (2**40, 96), "<f4", chunks=(1024, 96))
        data.attrs["dtype"] = np.bytes_("float32")

    def table(file):
        row = file["index"].dtype
        del file["index"]
        file.create_dataset("index", (2**40,), row, maxshape=(None,), chunks=(1024,))

    refused_everywhere(edit(dump, "tensor.h5", tensor), dump)
    refused_everywhere(edit(dump, "table.h5", table), dump)


def test_a_tensor_of_another_shape_than_its_row(dump):
    def change(file):
        name = "tensors/0/pred.video/video"
        del file[name]
        data = file.create_dataset(name, data=np.zeros((8, 95), "<f4"))
        data.attrs["dtype"] = np.bytes_("float32")

    refused_everywhere(edit(dump, "shape.h5", change), dump)
