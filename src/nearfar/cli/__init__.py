"""The command ``nearfar``: its entry point, and how failures are reported.

A user's error is one line on stderr and exit code 2; an interruption is 130; a fault of nearfar is
one line and 1, and so is a reader of stdout that has gone. Where stdout or stderr are closed, what
they would show is lost and the work is done. ``--debug`` adds the traceback. This module, `text`
and `commands` load nothing but click, so that ``--help`` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
import traceback
from collections.abc import Sequence
from typing import TextIO

from nearfar.cli.text import printable

OK, FAULT, USER_ERROR, INTERRUPTED = 0, 1, 2, 130
REFUTED = 1  # of `nearfar verify`


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code; `arguments` are the shell's by default."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # an ASCII terminal shows ± as ?
    try:
        from nearfar.cli.commands import nearfar

        code = nearfar.main(
            arguments or ["--help"], prog_name="nearfar", standalone_mode=False, obj=arguments
        )
        sys.stdout.flush()
        return int(code or OK)
    except BrokenPipeError:
        mute(sys.stdout)  # the reader, such as `head`, has gone
        return FAULT
    except (Exception, KeyboardInterrupt) as error:
        if "--debug" in arguments:
            tell(traceback.format_exc().rstrip())
        code, message = explain(error)
        tell(f"nearfar: {' '.join(message.split())}")
        return code


def tell(line: str) -> None:
    """Write a line to stderr of which a terminal obeys nothing; if it is closed, go on without."""
    try:
        sys.stderr.write(f"{printable(line)}\n")
        sys.stderr.flush()
    except OSError:
        mute(sys.stderr)


def mute(stream: TextIO) -> None:
    """Discard what is written to a stream, so that flushing it at exit cannot fail."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _open_closed_streams() -> None:
    """Give Python the streams that the shell has closed: `>&-`.

    They are the lowest numbers that are free, which the first files to be opened would take.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115 - to the end


def explain(error: BaseException) -> tuple[int, str]:
    """The exit code and the line for an exception that ended a command."""
    if isinstance(error, ModuleNotFoundError) and error.name in ("click", "rich"):
        from nearfar.errors import MissingExtraError

        return USER_ERROR, str(MissingExtraError.for_extra(error.name, "cli"))

    import click

    match error:
        case KeyboardInterrupt() | click.Abort():
            return INTERRUPTED, "interrupted"
        case click.ClickException():
            return USER_ERROR, error.format_message()

    from nearfar.errors import NearfarError  # loads scikit-learn, which no wrong option waits for

    match error:
        case FileNotFoundError() if error.filename is not None:
            return USER_ERROR, f"{error.filename}: {error.strerror}. Check the path."
        case OSError() if error.filename is not None:
            return USER_ERROR, f"{error.filename}: {error.strerror}"
        case NearfarError() | OSError() | ValueError():
            return USER_ERROR, str(error)
        case MemoryError():
            return USER_ERROR, f"not enough memory: {error}. Give fewer rows or columns."
    return FAULT, f"unexpected {type(error).__name__}: {error}. --debug shows where"
