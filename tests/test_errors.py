"""Hints that depend on how nearfar was installed."""

import importlib.metadata
import json

import pytest

from nearfar.errors import MissingExtraError, install_command, upgrade_command


class Installed:
    """A distribution with the note that pip leaves behind."""

    def __init__(self, note):
        self.note = note

    def read_text(self, name):
        assert name == "direct_url.json"
        return self.note


@pytest.mark.parametrize(
    ("note", "install", "upgrade"),
    [
        (None, "pip install 'nearfar[plot]'", "pip install --upgrade nearfar"),
        (
            {"url": "file:///home/a%20b/nearfar", "dir_info": {"editable": True}},
            "pip install -e '/home/a b/nearfar[plot]'",
            "update the folder, and run: pip install -e '/home/a b/nearfar'",
        ),
        (
            {"url": "file:///src/nearfar", "dir_info": {}},
            "pip install '/src/nearfar[plot]'",
            "update the folder, and run: pip install /src/nearfar",
        ),
        (
            {"url": "https://host/nearfar.git", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            "pip install 'nearfar[plot] @ git+https://host/nearfar.git'",
            "pip install --upgrade 'nearfar @ git+https://host/nearfar.git'",
        ),
        (
            {"url": "https://host/nearfar.whl", "archive_info": {}},
            "pip install 'nearfar[plot] @ https://host/nearfar.whl'",
            "pip install --upgrade 'nearfar @ https://host/nearfar.whl'",
        ),
    ],
)
def test_the_hint_is_of_how_it_was_installed(monkeypatch, note, install, upgrade):
    text = None if note is None else json.dumps(note)
    monkeypatch.setattr(importlib.metadata, "distribution", lambda _: Installed(text))
    assert install_command("plot") == install
    assert upgrade_command() == upgrade
    error = MissingExtraError.for_extra("matplotlib", "plot")
    assert str(error) == f"matplotlib is not installed; run: {install}"


def test_a_copy_that_is_not_installed(monkeypatch):
    def missing(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", missing)
    assert install_command() == "pip install nearfar"
