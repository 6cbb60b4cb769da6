"""Messages of errors and warnings, as a set: each says what is wrong and what to do.

The checker reads the syntax tree of every module, so that it also sees what no test raises. What is
computed stands in braces. It wants a sentence on what to do, after the one on what is wrong; where
that one already says what is expected and what was got, it is enough.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "nearfar"
KINDS = {
    "CheckpointError",
    "ClusterError",
    "DisconnectedGraphError",
    "InvalidInputError",
    "MemoryLimitError",
    "ModelFileError",
    "NotFittedError",
    "TimeLimitError",
    "UnusableFile",  # io's, which becomes a ModelFileError
    "warn",
}
# Built-in kinds are for what a user cannot cause, for what is caught again, and for Python's own
# protocols.
BUILTIN = {
    # As LAPACK's, which their callers catch: a matrix is not positive definite.
    "graphs/front_proof.py": {"np.linalg.LinAlgError"},
    "kernels/batched.py": {"np.linalg.LinAlgError"},
    "kernels/gram_numpy.py": {"linalg.LinAlgError"},
    # What nothing calls: all points are in no one place.
    "problems/lmnn_shards.py": {"AssertionError"},
    # The texts of other libraries, which programs may match; InvalidInputError under them.
    "compat/metric_learn/__init__.py": {"PeerError"},
    "compat/metric_learn/_base.py": {"AttributeError", "PeerError"},
    "compat/metric_learn/_input.py": {"PeerError", "PreprocessorError", "SingularMatrixError"},
    "compat/metric_learn/constraints.py": {"PeerError"},
    "compat/sklearn_nca.py": {"PeerError"},
    "cli/doctor.py": {"ArithmeticError"},  # shown as a line of its report
    "estimators/_deploy.py": {"TypeError"},  # numba hides a ValueError
    "estimators/energy.py": {"AttributeError"},  # for hasattr
    "estimators/pola.py": {"AttributeError"},
    "estimators/multi_metric_lmnn.py": {"AttributeError"},
    "registry.py": {"AttributeError"},
    # A damaged or unsafe file, told as ModelFileError, CheckpointError or InvalidInputError.
    "files.py": {"EOFError", "UnsafeFileError", "ValueError"},
    "io/archive.py": {"ValueError"},
    "io/models.py": {"ValueError"},
    "problems/mvu.py": {"UnboundedError"},  # told by the estimator, which knows the parameter
    "solvers/covering.py": {"linalg.LinAlgError"},  # ends the run
    "solvers/predictor_corrector.py": {"linalg.LinAlgError"},
    "solvers/projections.py": {"linalg.LinAlgError"},
    "supervision/tuples.py": {"ValueError"},  # numpy's protocol __array__
}
WHOLE = re.compile(r"\b(must|needs?)\b.*; .*\b(got|is|are|has|have)\b.*\.$")
SENTENCE = re.compile(r"(?<=[.:)}])\s+(?=[A-Z{])")


class Message(NamedTuple):
    """Where it is raised, as what, and its text; None where it is not written there."""

    where: str
    kind: str
    text: str | None


def text_of(node: ast.expr, constants: dict[str, str]) -> str | None:
    """A literal text, with braces around what is computed."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(
                f"{{{ast.unparse(part.value)}}}"
                if isinstance(part, ast.FormattedValue)
                else str(part.value)
                for part in parts
            )
        case ast.Name(id=name) if name in constants:
            return constants[name]
        case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="format")):
            return constants.get(name)
    return None


def messages_in(source: str, where: str) -> Iterator[Message]:
    """All that a module raises or warns of."""
    tree = ast.parse(source)
    constants = {
        node.targets[0].id: text
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and (text := text_of(node.value, {})) is not None
    }
    for node in ast.walk(tree):
        match node:
            case ast.Raise(exc=ast.Call(func=function, args=[first, *_])):
                pass
            case ast.Call(func=ast.Name(id="warn") as function, args=[first, *_]):
                pass
            case _:
                continue
        yield Message(f"{where}:{node.lineno}", ast.unparse(function), text_of(first, constants))


def fault(text: str) -> str | None:
    """What a message lacks."""
    if "\n" in text or "  " in text:
        return "must be one line without runs of blanks"
    if not re.search(r"[.}]$|pip install .*$", text):
        return "must end with a full stop"
    if len(SENTENCE.split(text)) < 2 and not WHOLE.search(text):
        return "must say what to do"
    return None


@pytest.fixture(scope="module")
def messages() -> list[Message]:
    """Of all modules; not read when tests are collected, which every process does."""
    return [
        message
        for path in sorted(SOURCE.rglob("*.py"))
        for message in messages_in(
            path.read_text(encoding="utf-8"), path.relative_to(SOURCE).as_posix()
        )
    ]


def test_there_are_messages(messages):
    assert len([message for message in messages if message.kind == "InvalidInputError"]) > 150


def test_every_message_says_what_to_do(messages):
    faults = [
        f"{where} {found}: {text}"
        for where, kind, text in messages
        if kind in KINDS and text is not None and (found := fault(text))
    ]
    assert faults == []


def test_every_error_is_of_a_kind_of_ours(messages):
    """So that ``except NearfarError`` catches whatever a user can cause."""
    strange = [
        f"{where} raises {kind}"
        for where, kind, _ in messages
        if kind.endswith("Error")
        and kind not in KINDS
        and kind not in BUILTIN.get(where.partition(":")[0], ())
    ]
    assert strange == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("tol must be positive; got {tol}.", None),
        ("all points are equal. Check X.", None),
        ("{path} exists. Give another name.", None),
        ("it is too new. Upgrade: pip install --upgrade nearfar", None),
        ("all points are equal.", "must say what to do"),
        ("tol is wrong: got {tol}.", "must say what to do"),
        ("tol must be positive; got {tol}", "must say what to do"),
        ("all points are equal. Check X", "must end with a full stop"),
        ("all  points are equal. Check X.", "must be one line without runs of blanks"),
    ],
)
def test_the_checker(text, found):
    assert fault(text) == found


def test_the_checker_reads_texts():
    source = (
        'TEXT = "a"\n'
        "def f(x):\n"
        "    raise InvalidInputError(f'{x} is'\n        ' odd')\n"
        "    raise InvalidInputError(TEXT)\n"
        "    warn('b', DataWarning)\n"
        "    raise g(x)\n"
    )
    assert [message[1:] for message in messages_in(source, "m.py")] == [
        ("InvalidInputError", "{x} is odd"),
        ("InvalidInputError", "a"),
        ("g", None),
        ("warn", "b"),
    ]
