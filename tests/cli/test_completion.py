"""Completion in shells, which click does: what it answers at TAB."""

import os
import shutil
import subprocess
import sys

import pytest

from nearfar.cli import commands
from nearfar.cli.methods import METHODS

SHELLS = ("bash", "zsh", "fish")


def completed(*words, shell="bash"):
    """What is offered for the last of the words, without its kind."""
    variables = {
        "_NEARFAR_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": " ".join(["nearfar", *words]),
        "COMP_CWORD": words[-1] if shell == "fish" else str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "nearfar"],
        env=os.environ | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    if shell == "zsh":  # kind, value and help on a line each
        return lines[1::3]
    return [line.partition(",")[2].partition("\t")[0] for line in lines]


@pytest.mark.parametrize("shell", SHELLS)
def test_commands_and_choices(shell):
    assert set(commands.nearfar.commands) == set(completed("", shell=shell))
    kernels = [method for method in METHODS if method.startswith("kernel-")]
    assert completed("fit", "--method", "kernel-", shell=shell) == kernels


def test_options():
    assert completed("fit", "--max-") == ["--max-directions", "--max-iter", "--max-seconds"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_bash_completes(tmp_path):
    """In a shell whose command `nearfar` is the one that is tested."""
    command = tmp_path / "nearfar"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nearfar "$@"\n')
    command.chmod(0o755)
    program = (
        'eval "$(_NEARFAR_COMPLETE=bash_source nearfar)"; COMP_WORDS=(nearfar doc); COMP_CWORD=1;'
        ' _nearfar_completion nearfar; echo "${COMPREPLY[@]}"'
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "--norc", "-c", program],
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.stdout == "doctor\n", done.stderr
