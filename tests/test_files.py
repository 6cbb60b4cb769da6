"""Reading within limits, and writing whole or not at all, to nothing but regular files."""

import errno
import os
import socket
import stat
import zipfile
from io import BytesIO

import numpy as np
import pytest

from nearfar.errors import InvalidInputError
from nearfar.files import (
    MIB,
    STORED,
    Archive,
    Limit,
    UnsafeFileError,
    atomic_writer,
    check_target,
    read_array,
)

posix = pytest.mark.skipif(os.name != "posix", reason="needs modes, pipes and devices")


def npy(array):
    stream = BytesIO()
    np.save(stream, array, allow_pickle=True)
    return stream.getvalue()


def header(shape, descr="<f8"):
    """An array of so many rows, without its numbers."""
    stream = BytesIO()
    given = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, given)
    return stream.getvalue()


def read(content, most=MIB):
    return read_array(BytesIO(content), len(content), most)


# -- arrays ---


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6.0).reshape(2, 3),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.array(3),
        np.zeros((0, 3)),
        np.array(["a", "größe"]),
        np.array(["a"], dtype=">U3"),
        np.array([], dtype="U1"),
        np.array(["2020-01-01"], dtype="M8[D]"),
        np.arange(3, dtype=">i2"),
        np.arange(400_000.0),
    ],
    ids=repr,
)
def test_arrays_are_read_as_numpy_reads_them(array):
    found = read(npy(array), 8 * MIB)
    assert found.dtype == array.dtype
    assert found.flags.f_contiguous == array.flags.f_contiguous
    assert found.flags.writeable
    np.testing.assert_array_equal(found, array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            header((50_000_000, 0)),
            r"shape \(50000000, 0\), which needs 400,000,000 bytes:",
        ),
        (header((10**6, 10**6, 0)), "expected at most 1,048,576 in a file of this size"),
        (header((10**9,), "<U0"), "which needs 8,000,000,000 bytes"),
        (npy(np.array([object()])), "dtype object, which may carry code: expected numbers or text"),
        (npy(np.zeros(1, "f8,i4")), "may carry code"),
    ],
)
def test_what_an_array_may_not_ask_for(content, message):
    with pytest.raises(UnsafeFileError, match=message):
        read(content)


@pytest.mark.parametrize(
    "content",
    [
        header((10**12,)),
        header((2,)) + bytes(8),
        header((2,)) + bytes(24),
        header((-1, -2)) + bytes(16),
        npy(np.eye(2))[:-1],
        npy(np.eye(2)).replace(b"(2, 2)", b"(2, 2 "),
        npy(np.eye(2)).replace(b"{'descr", b"\n  'descr"),
        npy(np.eye(2)).replace(b"(2, 2)", b"((((((") + b"(" * 100,
        npy(np.eye(2)).replace(b"'<f8'", b"'<q9'"),
        npy(np.array(["ab"])).replace(b"b\0\0\0", b"\xff\xff\xff\xff"),
        npy(np.eye(2)).replace(b"NUMPY\x01", b"NUMPY\x03"),
        b"",
    ],
)
def test_arrays_that_are_damaged(content):
    with pytest.raises((ValueError, EOFError)):
        read(content)


def test_a_header_of_python_2_is_read_without_a_warning():
    content = npy(np.eye(2)).replace(b"(2, 2), }  ", b"(2L, 2L), }")
    assert b"2L" in content
    np.testing.assert_array_equal(read(content), np.eye(2))


# -- archives ---


def archive(method=zipfile.ZIP_STORED, **arrays):
    stream = BytesIO()
    with zipfile.ZipFile(stream, "w", method) as file:
        for name, array in arrays.items():
            file.writestr(f"{name}.npy", npy(array))
    return stream


def test_only_what_is_asked_for_is_read(monkeypatch):
    opened = []
    original = zipfile.ZipFile.open

    def noted(self, name, *given, **options):
        opened.append(getattr(name, "filename", name))
        return original(self, name, *given, **options)

    found = Archive(archive(X=np.eye(2), other=np.zeros(9)), STORED, compressed=False)
    monkeypatch.setattr(zipfile.ZipFile, "open", noted)
    assert found.names == ["X", "other"]
    np.testing.assert_array_equal(found.array("X"), np.eye(2))
    assert opened == ["X.npy"]


def test_a_compressed_array_beyond_the_limit_is_not_decompressed(monkeypatch):
    """8 MB of zeros in 8 kB: more than the floor of 1 MiB, and more than 100 times the file."""
    stream = archive(zipfile.ZIP_DEFLATED, X=np.zeros(10**6))
    monkeypatch.setattr(zipfile.ZipExtFile, "MIN_READ_SIZE", 64)
    found = Archive(stream, Limit(MIB, 100), compressed=True)
    with pytest.raises(UnsafeFileError, match="needs 8,000,000 bytes: expected at most 1,048,576"):
        found.array("X")
    loose = Archive(stream, Limit(8 * MIB, 100), compressed=True)
    assert loose.array("X").sum() == 0


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_methods_whose_expansion_python_does_not_bound(method):
    found = Archive(archive(method, X=np.eye(2)), STORED, compressed=True)
    with pytest.raises(UnsafeFileError, match=f"compressed by method {method}: expected one"):
        found.array("X")


def test_a_member_that_is_no_array_has_a_limit():
    found = Archive(archive(X=np.eye(2)), STORED, compressed=False)
    with pytest.raises(UnsafeFileError, match=r"holds X\.npy of 160 bytes: expected at most 100"):
        found.read("X.npy", 100)


# -- writing ---


def write(path, content=b"new"):
    with atomic_writer(path) as stream:
        stream.write(content)


@posix
@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o755])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "file"
    path.write_bytes(b"old")
    path.chmod(mode)
    write(path)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == mode


@posix
def test_nobody_else_can_read_a_private_file_while_it_is_written(tmp_path):
    path = tmp_path / "file"
    path.touch(0o600)
    with atomic_writer(path):
        (temporary,) = (name for name in tmp_path.iterdir() if name != path)
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600


@posix
@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_has_the_mode_of_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write(tmp_path / "file")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == mode


@posix
def test_a_link_is_written_through_and_the_mode_is_that_of_the_file(tmp_path):
    (tmp_path / "far").mkdir()
    path, link = tmp_path / "far" / "file", tmp_path / "link"
    link.symlink_to(path)
    write(link)  # nothing is there yet
    path.chmod(0o600)
    write(link, b"newer")
    assert link.is_symlink()
    assert path.read_bytes() == b"newer"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path / "far") == ["file"]


@posix
@pytest.mark.parametrize("kind", ["pipe", "socket", "folder", "device", "link to a device"])
def test_nothing_but_a_regular_file_is_replaced(tmp_path, kind):
    path = tmp_path / "p"
    expected = kind.split()[-1]
    match kind:
        case "pipe":
            os.mkfifo(path)
        case "folder":
            path.mkdir()
        case "device":
            path = os.devnull
        case "link to a device":
            path.symlink_to(os.devnull)
        case "socket":
            with socket.socket(socket.AF_UNIX) as server:
                before = os.getcwd()
                os.chdir(tmp_path)  # the name of a socket must be short
                try:
                    server.bind("p")
                finally:
                    os.chdir(before)
    found = os.lstat(path)
    for attempt in (check_target, write):
        with pytest.raises(InvalidInputError, match=rf"^{path} is a {expected}.*\. Name a file"):
            attempt(path)
    assert os.path.samestat(os.lstat(path), found)
    assert len(os.listdir(tmp_path)) == (kind != "device")


def test_a_full_disk_is_told_with_the_name_of_the_file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def fill():
        with atomic_writer(path):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(OSError, match="No space left on device") as caught:
        fill()
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


@posix
def test_a_folder_that_is_not_there_is_told_with_the_name_of_the_file(tmp_path):
    path = tmp_path / "nothing" / "file"
    with pytest.raises(FileNotFoundError) as caught:
        write(path)
    assert caught.value.filename == str(path)
