"""Model files: written whole or not at all, and read without trust."""

from __future__ import annotations

import copy
import json
import math
import os
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from nearfar import __version__
from nearfar.errors import InvalidInputError, ModelFileError, upgrade_command
from nearfar.files import (
    DAMAGE,
    MIB,
    STORED,
    Archive,
    UnsafeFileError,
    atomic_writer,
    check_target,
)
from nearfar.io.classes import MODEL_CLASSES, UnusableFile, is_ours
from nearfar.io.models import Arrays, decode_model, encode_model
from nearfar.io.pipelines import check_steps, decode_pipeline, encode_pipeline

FORMAT = "nearfar-model"
FORMAT_VERSION = 1
MOST_DOCUMENT = 16 * MIB  # bytes of model.json; as Python values they take up to sixty times that
PROOF_BYTES = 1 << 24  # of a proof that is stored by default
_DOCUMENT = "model.json"
_ZIP_START = b"PK\x03\x04"
_FOREIGN = (
    "is not a model file: expected a file written by nearfar.save, found {}. "
    "Check the path; nearfar does not open pickles or files of other libraries."
)


def save(
    model: Any,
    path: str | os.PathLike[str],
    *,
    proof: bool | str = "auto",
    provenance: dict[str, Any] | None = None,
) -> None:
    """Write a fitted estimator to a file, completely or not at all.

    Parameters
    ----------
    model : estimator
        A fitted estimator of nearfar, or a pipeline of StandardScaler, MinMaxScaler, MaxAbsScaler,
        RobustScaler, PCA, TruncatedSVD or Normalizer, and an estimator of nearfar at the end.
        Torch tensors are stored as arrays and come back as NumPy. Callbacks, metadata requests and
        output settings are not stored.
    path : path-like
        The file to write, by custom ``*.nearfar``; one that exists is replaced and keeps its mode.
    proof : {"auto", True, False}, default="auto"
        Whether to store ``proof_``, by which `nearfar.verify` checks the model; "auto" stores it
        where it takes at most 16 MB.
    provenance : dict or None, default=None
        How the model came about, as plain JSON values; it belongs to the file, and
        `read_provenance` returns it.

    Raises
    ------
    ModelFileError
        The estimator is not one of nearfar's, or it holds a value that is not plain data.
    InvalidInputError
        The path is not a regular file but a folder, a pipe or a device.
    """
    check_target(path)
    name = type(model).__name__
    if isinstance(model, Pipeline):
        check_steps(model)
    elif not is_ours(model):
        raise ModelFileError(
            f"a {name} cannot be saved. A model file holds one of {', '.join(MODEL_CLASSES)}, or a "
            "pipeline that ends in one, not a subclass or another estimator. Save the fitted "
            "nearfar estimator itself, any other with skops (docs/persistence.md)."
        )
    check_is_fitted(model)
    if not (isinstance(proof, bool) or proof == "auto"):
        raise InvalidInputError(f"proof must be 'auto', True or False; got {proof!r}.")
    limit = {True: math.inf, False: -1, "auto": PROOF_BYTES}[proof]
    model = _with_proof_up_to(limit, model)
    arrays: dict[str, np.ndarray] = {}
    document = {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "nearfar_version": __version__,
        "sklearn_version": sklearn.__version__,
        **({} if provenance is None else {"provenance": provenance}),
        **(encode_pipeline if isinstance(model, Pipeline) else encode_model)(model, "", arrays),
    }
    text = json.dumps(document, indent=1, allow_nan=False)
    if len(text) > MOST_DOCUMENT:
        raise ModelFileError(
            f"a {name} cannot be saved: its plain values take {len(text):,} bytes, and a model "
            f"file holds at most {MOST_DOCUMENT:,} besides its arrays. Store long lists as arrays."
        )
    with atomic_writer(path) as stream, zipfile.ZipFile(stream, "w") as archive:
        archive.writestr(zipfile.ZipInfo(_DOCUMENT), text)
        for attribute, array in arrays.items():
            member = BytesIO()
            np.lib.format.write_array(member, array, version=(1, 0), allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{attribute}.npy"), member.getvalue())


def _with_proof_up_to(limit: float, model: Any) -> Any:
    """The model, or a copy without a ``proof_`` of more bytes; also of one inside another model."""
    if isinstance(model, Pipeline):
        return Pipeline([(name, _with_proof_up_to(limit, step)) for name, step in model.steps])
    proof = getattr(model, "proof_", None)
    if proof is not None and sum(array.nbytes for array in proof.values()) > limit:
        model = copy.copy(model)
        del model.proof_
    metric = getattr(model, "metric_", None)
    inner = metric if metric is None else _with_proof_up_to(limit, metric)
    if inner is not metric:
        model = copy.copy(model)
        model.metric_ = inner
    return model


def load(path: str | os.PathLike[str]) -> Any:
    """Read the fitted estimator that `save` wrote.

    Parameters
    ----------
    path : path-like
        The model file. It is data only: no pickle is read, no code runs, and no class outside
        nearfar can be named.

    Returns
    -------
    model : estimator
        Its arrays are NumPy arrays.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is corrupt, foreign, or written by a newer version of nearfar.
    """
    return _opened(path, _restore)


def read_provenance(path: str | os.PathLike[str]) -> dict[str, Any] | None:
    """How the model in a file was made, if `save` was given that.

    Parameters
    ----------
    path : path-like
        The model file.

    Returns
    -------
    dict or None
        What ``nearfar fit`` writes: command, table, target, digest (of points and labels),
        test_share, seed, n_rows, n_train, n_learned (of the training rows, fewer with ``--rows``),
        learned_rows (hashes of some of these, by which they are known again) and versions.
        Like everything in a file it is a claim of whoever wrote it.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    ModelFileError
        The file is corrupt, foreign, or written by a newer version of nearfar.
    """
    found = _opened(path, lambda document, _: document.get("provenance"))
    return found if isinstance(found, dict) else None


def _opened(path: str | os.PathLike[str], take: Callable[[dict[str, Any], Arrays], Any]) -> Any:
    """What is taken from the document and the arrays of a file."""
    path = Path(path)
    if path.is_dir():
        raise ModelFileError(
            f"{path} is a folder: expected a file that nearfar.save wrote. Name the file in it."
        )
    with open(path, "rb") as stream:
        start = stream.read(len(_ZIP_START))
        content = start + stream.read() if start == _ZIP_START else b""
    try:
        if not content:
            raise UnusableFile(_FOREIGN.format("one that is not a zip archive"))
        return take(*_read_members(content))
    except UnusableFile as error:
        raise ModelFileError(f"{path} {error}") from None
    except UnsafeFileError as error:
        raise ModelFileError(
            f"{path} {error} Do not use a file from this source; ask for one written by "
            "nearfar.save."
        ) from None
    except MemoryError as error:
        raise ModelFileError(
            f"{path} needs more memory than there is, for a file of {len(content):,} bytes. Load "
            "it on a machine with more memory, if you trust where it comes from."
        ) from error
    except DAMAGE as error:
        raise ModelFileError(
            f"{path} is a damaged model file: expected what nearfar.save wrote, found a "
            f"{type(error).__name__} ({error}). Copy the file again, or fit and save again."
        ) from error


def _read_members(content: bytes) -> tuple[dict[str, Any], Arrays]:
    """The JSON document and the arrays of a model file."""
    archive = Archive(BytesIO(content), STORED, compressed=False)
    if _DOCUMENT not in archive:
        raise UnusableFile(_FOREIGN.format(f"an archive without {_DOCUMENT}"))
    text = archive.read(_DOCUMENT, MOST_DOCUMENT)
    document = json.loads(text, parse_constant=_refuse_constant)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnusableFile(_FOREIGN.format("another format"))
    _check_version(document)
    return document, Arrays(archive)


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


def _check_version(document: dict[str, Any]) -> None:
    if int(document["format_version"]) > FORMAT_VERSION:
        raise UnusableFile(
            f"was written by nearfar {document['nearfar_version']} in format "
            f"{document['format_version']}; nearfar {__version__} reads up to format "
            f"{FORMAT_VERSION}. Upgrade: {upgrade_command()}"
        )


def _restore(document: dict[str, Any], arrays: Arrays) -> Any:
    writer = f"that wrote it ({document['nearfar_version']})"
    decode = decode_pipeline if document["class"] == "Pipeline" else decode_model
    model = decode(document, arrays, writer)
    check_is_fitted(model)
    return model
