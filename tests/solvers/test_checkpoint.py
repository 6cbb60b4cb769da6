"""Checkpoints: atomic, known by their fingerprint, and no way to run code."""

import errno
import json
import os
import pickle
import zipfile
from types import SimpleNamespace

import numpy as np
import pytest

from nearfar.errors import CheckpointError, CheckpointWarning
from nearfar.files import atomic_writer, fingerprint
from nearfar.solvers import checkpoint
from nearfar.solvers.checkpoint import Checkpoint

ARRAYS = {"components": np.arange(6.0).reshape(2, 3), "edge": np.array([3, 1]), "none": np.empty(0)}
VALUES = {
    "history": [{"n_iter": 1, "objective": 0.1, "residual": None, "duality_gap": None}],
    "width": 0.2,
}


@pytest.fixture
def path(tmp_path):
    return tmp_path / "fit.checkpoint"


@pytest.fixture
def saved(path):
    Checkpoint(path, "mine").save(ARRAYS, VALUES)
    return path


def test_what_is_saved_is_loaded(saved):
    arrays, values = Checkpoint(saved, "mine").load()
    assert values == VALUES
    assert arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(arrays[name], array)


def test_saving_again_replaces_the_file(saved):
    Checkpoint(saved, "mine").save({"edge": np.array([7])}, {"width": 0.1})
    arrays, values = Checkpoint(saved, "mine").load()
    assert arrays.keys() == {"edge"}
    assert values == {"width": 0.1}
    assert os.listdir(saved.parent) == [saved.name]


def test_no_file_is_no_checkpoint(path):
    assert Checkpoint(path, "mine").load() is None


def test_remove(saved):
    kept = Checkpoint(saved, "mine")
    kept.remove()
    assert not saved.exists()
    kept.remove()  # already gone


def test_due_at_first_and_then_after_a_while(path, monkeypatch):
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(checkpoint, "time", SimpleNamespace(monotonic=lambda: clock.now))
    kept = Checkpoint(path, "mine")
    assert kept.due
    kept.save({}, {})
    assert not kept.due
    clock.now += checkpoint.EVERY_SECONDS
    assert kept.due


# -- atomic ---


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EFBIG, errno.EACCES])
def test_a_write_that_fails_leaves_the_old_file_and_warns_once(saved, monkeypatch, code):
    before = saved.read_bytes()

    def fail(stream, **_):
        stream.write(b"half of a checkpoint")
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(checkpoint.np, "savez", fail)
    kept = Checkpoint(saved, "mine")
    with pytest.warns(CheckpointWarning) as warned:
        kept.save(ARRAYS, VALUES)
    (message,) = (str(warning.message) for warning in warned)
    assert f"{str(saved)!r} could not be written: {os.strerror(code)}. The fit goes on" in message
    assert not kept.due, "it would be tried at every iteration"
    kept.save(ARRAYS, VALUES)  # a second warning would be an error here
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name], "a temporary file is left"


def test_a_file_that_cannot_be_deleted_is_told(saved, monkeypatch):
    def fail(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(checkpoint.Path, "unlink", fail)
    with pytest.warns(CheckpointWarning, match="could not be deleted: Permission denied"):
        Checkpoint(saved, "mine").remove()


def test_a_replacement_that_is_interrupted_leaves_the_old_file(saved, monkeypatch):
    before = saved.read_bytes()

    def fail(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint.os, "replace", fail)
    with pytest.raises(KeyboardInterrupt):
        Checkpoint(saved, "mine").save({}, {})
    assert saved.read_bytes() == before
    assert os.listdir(saved.parent) == [saved.name]


def test_the_new_content_is_on_the_disk_before_it_takes_the_place_of_the_old(path, monkeypatch):
    order = []
    for name in ("fsync", "replace"):
        original = getattr(os, name)

        def noted(*given, name=name, original=original):
            order.append(name)
            return original(*given)

        monkeypatch.setattr(checkpoint.os, name, noted)
    with atomic_writer(path) as stream:
        stream.write(b"new")
    assert order == ["fsync", "replace"]
    assert path.read_bytes() == b"new"


def test_a_link_is_kept(saved, tmp_path):
    link = tmp_path / "link"
    try:
        link.symlink_to(saved)
    except OSError:
        pytest.skip("no symbolic links here")
    Checkpoint(link, "mine").save({}, {"width": 0.7})
    assert link.is_symlink()
    assert Checkpoint(saved, "mine").load() == ({}, {"width": 0.7})


# -- refused ---


def test_the_checkpoint_of_another_fit(saved):
    with pytest.raises(CheckpointError, match="belongs to other data or other parameters"):
        Checkpoint(saved, "another").load()


def test_the_checkpoint_of_another_format(path, monkeypatch):
    """Format 1 had no residuals in its records."""
    with monkeypatch.context() as earlier:
        earlier.setattr(checkpoint, "FORMAT", "nearfar-checkpoint-1")
        Checkpoint(path, "mine").save({}, VALUES)
    message = "was written by another version of nearfar, and cannot be continued. Delete it or"
    with pytest.raises(CheckpointError, match=message):
        Checkpoint(path, "mine").load()


def test_a_folder_is_not_a_checkpoint(tmp_path):
    with pytest.raises(CheckpointError, match=r"is a folder. Name a file in it"):
        Checkpoint(tmp_path, "mine")


def test_a_folder_that_does_not_exist(tmp_path):
    with pytest.raises(CheckpointError, match=r"folder of checkpoint .* does not exist. Create it"):
        Checkpoint(tmp_path / "missing" / "file", "mine")


def truncated(path):
    path.write_bytes(path.read_bytes()[:-40])


def flipped(path):
    """One bit of the first array."""
    content = bytearray(path.read_bytes())
    content[content.index(np.float64(5.0).tobytes())] ^= 1
    path.write_bytes(content)


def encrypted(path):
    """A bit that says that a password is needed."""
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(content)


def an_array(path):
    with path.open("wb") as stream:
        np.save(stream, np.ones(3))


def another_archive(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


def values(text):
    def write(path):
        with path.open("wb") as stream:
            np.savez(stream, values=np.array(text))

    return write


@pytest.mark.parametrize(
    "spoil",
    [
        truncated,
        flipped,
        encrypted,
        an_array,
        another_archive,
        values("not json"),
        values("[1, 2]"),
        values('"text"'),
        values("{}"),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_text("hello"),
    ],
    ids=[
        "truncated",
        "flipped",
        "encrypted",
        "array",
        "another archive",
        "not json",
        "json list",
        "json text",
        "no format",
        "empty",
        "text",
    ],
)
def test_what_is_not_a_checkpoint(saved, spoil):
    spoil(saved)
    with pytest.raises(CheckpointError, match=r"is not a checkpoint of nearfar\. Delete it or"):
        Checkpoint(saved, "mine").load()


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def as_pickle(path, payload):
    path.write_bytes(pickle.dumps(payload))


def as_values(path, payload):
    with path.open("wb") as stream:
        np.savez(stream, values=np.array([payload], dtype=object))


def as_array(path, payload):
    text = json.dumps({"format": checkpoint.FORMAT, "fingerprint": "mine"})
    with path.open("wb") as stream:
        np.savez(stream, values=np.array(text), edge=np.array([payload], dtype=object))


@pytest.mark.parametrize("write", [as_pickle, as_values, as_array])
def test_a_pickle_is_refused_and_not_run(path, tmp_path, write):
    write(path, Payload(tmp_path / "proof"))
    with pytest.raises(CheckpointError, match="is not a checkpoint of nearfar"):
        Checkpoint(path, "mine").load()
    assert not (tmp_path / "proof").exists()
    if write is as_pickle:  # the payload does what it should, if it is run
        pickle.loads(path.read_bytes())
        assert (tmp_path / "proof").exists()


# -- fingerprints ---


def test_equal_content_has_an_equal_fingerprint(rng):
    X = rng.normal(size=(4, 3))
    given = (X, "learn", None, 3)
    assert fingerprint(*given) == fingerprint(np.asfortranarray(X), "learn", None, 3)
    assert fingerprint(X[::2]) == fingerprint(X[::2].copy())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ([np.zeros(4)], [np.zeros((2, 2))]),
        ([np.zeros(4)], [np.zeros(4, np.int64)]),
        ([np.zeros(4)], [np.array([0, 0, 0, 1e-300])]),
        ([np.zeros(2), np.ones(2)], [np.ones(2), np.zeros(2)]),
        ([np.zeros(2), np.zeros(2)], [np.zeros(4)]),
        ([0.5], [0.25]),
        ([None], ["None"]),
        ([0.5, 12], [0.51, 2]),
    ],
    ids=[
        "shape",
        "dtype",
        "content",
        "order",
        "number of arrays",
        "value",
        "type",
        "where a value ends",
    ],
)
def test_other_content_has_another_fingerprint(one, other):
    assert fingerprint(*one) != fingerprint(*other)


@pytest.mark.skipif(os.name != "posix", reason="makes a pipe")
def test_a_pipe_is_not_a_checkpoint(path):
    os.mkfifo(path)
    with pytest.raises(CheckpointError, match=r"is a pipe, and only a file is replaced\. Name a"):
        Checkpoint(path, "mine")


def test_the_arrays_of_another_fit_are_not_read(saved, monkeypatch):
    read = []
    original = checkpoint.Archive.array

    def noted(self, name):
        read.append(name)
        return original(self, name)

    monkeypatch.setattr(checkpoint.Archive, "array", noted)
    with pytest.raises(CheckpointError, match="belongs to other data"):
        Checkpoint(saved, "another").load()
    assert read == ["values"]


def test_a_checkpoint_that_expands_is_not_read(path):
    with path.open("wb") as stream:
        np.savez_compressed(stream, values=np.array("{}"), bomb=np.zeros(10**6))
    with pytest.raises(CheckpointError, match="is not a checkpoint of nearfar"):
        Checkpoint(path, "mine").load()
