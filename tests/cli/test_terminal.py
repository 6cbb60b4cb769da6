"""Nothing that a file says reaches the terminal as a command to it."""

import ast
import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import nearfar
from nearfar import cli, progress
from nearfar.cli import tell
from nearfar.cli.output import echo, print_comparison
from nearfar.cli.text import printable
from nearfar.evaluation import Comparison, Row

ESCAPE = "\x1b]0;title\x07\x1b[2Jred\u202e\x9b31m"
SHOWN = r"\x1b]0;title\x07\x1b[2Jred\u202e\x9b31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größe ± 1 %, 東京", "größe ± 1 %, 東京"),
        (ESCAPE, SHOWN),
        ("a\nb", "a\nb"),
        ("a\rb\tc\x7f", r"a\rb\tc\x7f"),
        ("\ud800 \u200b", r"\ud800 \u200b"),
        ("", ""),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown


@pytest.fixture
def points():
    rng = np.random.default_rng(0)
    return rng.normal(size=(20, 2)), np.arange(20) % 2


@pytest.mark.usefixtures("folder")
def test_names_of_features_in_a_model(fails, points):
    model = nearfar.RCA().fit(*points)
    model.feature_names_in_ = np.array([ESCAPE, "b"], dtype=object)
    nearfar.save(model, "m.nearfar")
    message = fails("transform", "m.nearfar", "iris.csv", "-o", "o.npy")
    assert r"there is no column '\x1b]0;title\x07\x1b[2Jred\u202e\x9b31m'" in message


@pytest.mark.usefixtures("folder")
def test_labels_in_a_model(fails, points):
    X, y = points
    labels = np.array([f"{ESCAPE}0", f"{ESCAPE}1"])[y]
    nearfar.save(nearfar.NearestNeighborClassifier(nearfar.RCA()).fit(X, labels), "m.nearfar")
    np.savez("t.npz", X=X, y=y.astype(str))
    message = fails("evaluate", "m.nearfar", "t.npz", "t.npz")
    assert f"which predicts {SHOWN}0, {SHOWN}1" in message


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("debug", [[], ["--debug"]])
def test_columns_of_a_table(run, debug):
    Path("t.csv").write_text(f"{ESCAPE},kind\n1,x\n", encoding="utf-8")
    done = run("fit", "t.csv", "-t", "none", *debug)
    assert done.code == 2
    assert f"there is no column 'none'. Choose from: {SHOWN}, kind" in done.err
    assert "\x1b" not in done.err


@pytest.mark.usefixtures("folder")
def test_names_of_files(run):
    assert run("fit", "iris", "-o", "\x1b[31m.nearfar").out.count(r"saved \x1b[31m.nearfar") == 1


def test_lines_and_warnings(capsys):
    echo(ESCAPE)
    tell(ESCAPE)
    assert capsys.readouterr() == (f"{SHOWN}\n", f"{SHOWN}\n")


def test_tables_show_markup_as_it_is(capsys):
    wrong = np.zeros(3, dtype=bool)
    rows = (Row("Euclidean", "unlearned", 2, wrong), Row("[bold]a\x1b[2J[/]", "model", 2, wrong))
    print_comparison(Comparison(rows), 3)
    assert capsys.readouterr().out.count(r"[bold]a\x1b[2J[/]") == 2


def test_the_bar_shows_markup_as_it_is(monkeypatch):
    stream = io.StringIO()
    monkeypatch.setattr(
        "rich.console.Console", lambda **_: Console(file=stream, width=100, force_terminal=True)
    )
    bar = progress.Bar()
    bar.start()
    bar.show("[bold]objective[/]", 0.5)
    bar.stop()
    assert "[bold]objective[/]" in stream.getvalue()


def test_there_is_one_place_that_prints():
    """`echo`, in `output`."""
    found = {
        path.name
        for path in Path(cli.__file__).parent.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("click.echo", "click.secho")
    }
    assert found == {"output.py"}
