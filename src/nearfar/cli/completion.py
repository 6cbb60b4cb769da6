"""Completion of the command in shells, at each press of TAB: nothing is loaded but click."""

from __future__ import annotations

from glob import glob

import click
from click.shell_completion import CompletionItem, get_completion_class

SHELLS = ("bash", "zsh", "fish")
BUILTIN_TABLES = ("breast_cancer", "digits", "iris", "wine")  # a test compares with `datasets`


def script(command: click.Command, shell: str) -> str:
    """What the shell has to evaluate."""
    completes = get_completion_class(shell)
    assert completes is not None, f"click does not know {shell}"
    return completes(command, {}, "nearfar", "_NEARFAR_COMPLETE").source()


def complete_table(_: click.Context, __: click.Parameter, typed: str) -> list[CompletionItem]:
    """Files; or the names of built-in sets, where they and no file begin like that.

    bash shows either its own completion of files or a list of names, not both.
    """
    names = [CompletionItem(name) for name in BUILTIN_TABLES if name.startswith(typed)]
    if typed and names and not glob(f"{typed}*"):
        return names
    return [CompletionItem(typed, type="file")]
