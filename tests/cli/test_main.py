"""The entry point: help without waiting, and one line for every failure."""

import os
import shlex
import subprocess
import sys

import pytest

import nearfar.cli.commands
import nearfar.cli.fit
from nearfar import __version__
from nearfar.cli import explain
from nearfar.errors import install_command
from nearfar.io import load
from tests.processes import run_program


def python(*arguments, **options):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=60, **options
    )


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(["--help"], "transform"), (["fit", "--neighbors", "0"], "0 is not in the range x>=1")],
)
def test_help_and_wrong_usage_load_little(arguments, answer):
    """What is loaded decides how long the answer takes, and is the same on a busy machine."""
    program = f"import sys; from nearfar.cli import main; main({arguments}); print(*sys.modules)"
    done = python("-c", program)
    assert answer in done.stdout + done.stderr
    loaded = set(done.stdout.split())
    assert "click" in loaded
    assert loaded.isdisjoint({"numpy", "scipy", "sklearn", "rich", "pyarrow", "torch"})
    own = {name for name in loaded if name.startswith("nearfar.")}
    assert own == {
        "nearfar.cli",
        "nearfar.cli.commands",
        "nearfar.cli.methods",
        "nearfar.cli.text",
        "nearfar.cli.values",
        "nearfar.registry",
    }


@pytest.mark.parametrize("command", sorted(nearfar.cli.commands.nearfar.commands))
def test_every_command_has_help(run, command):
    done = run(command, "--help")
    assert done.code == 0
    assert "--debug" in done.out


def test_no_arguments_mean_help(run, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["nearfar"])
    assert run().out == run("--help").out


def test_version(run):
    assert run("--version").out == f"nearfar {__version__}\n"


@pytest.mark.parametrize("package", ["click", "rich"])
def test_without_the_extra_one_line_names_it(package, tmp_path):
    program = (
        f"import sys; sys.modules[{package!r}] = None\n"
        "from nearfar.cli import main; sys.exit(main(['fit', 'iris']))"
    )
    done = run_program(program, cwd=tmp_path)
    assert done.returncode == 2
    line = f"nearfar: {package} is not installed; run: {install_command('cli')}\n"
    assert done.stderr == line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fitting"], "No such command 'fitting'"),
        (["fit", "--fast"], "No such option"),
        (["fit", "--neighbors", "0"], "0 is not in the range x>=1"),
        (["fit", "--neighbors", "few"], "'few' is not a valid integer"),
        (["fit", "--push-weight", "1"], "1.0 is not in the range 0<x<1"),
        (["fit", "--test-share", "1"], "1.0 is not in the range 0<=x<1"),
        (["fit", "--reduce", "cut"], "'cut' is not one of 'learn', 'project'"),
        (["transform"], "Missing argument 'MODEL'"),
        (["transform", "m", "t"], "Missing option '-o' / '--output'"),
        (["evaluate", "m", "t"], "Missing argument 'TEST'"),
    ],
)
def test_wrong_usage_is_one_line(fails, arguments, message):
    assert message in fails(*arguments)


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ValueError("X\n  is odd"), 2, "X is odd"),
        (FileNotFoundError(2, "No such file", "a.csv"), 2, "a.csv: No such file. Check the path."),
        (OSError("disk full"), 2, "disk full"),
        (MemoryError("8 TB"), 2, "not enough memory: 8 TB. Give fewer rows or columns."),
        (KeyboardInterrupt(), 130, "interrupted"),
        (TypeError("oops"), 1, "unexpected TypeError: oops. --debug shows where"),
    ],
)
def test_every_exception_has_a_code_and_a_line(run, monkeypatch, tmp_path, error, code, message):
    def fail(*_):
        raise error

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(nearfar.cli.fit, "load_builtin", fail)
    done = run("fit")
    # click moves to a new line after the ^C that the terminal shows.
    assert (done.code, done.err.removeprefix("\n")) == (code, f"nearfar: {message}\n")
    assert explain(error)[0] == code
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("arguments", [["fit", "no.csv", "--debug"], ["--debug", "fit", "no.csv"]])
def test_debug_adds_the_traceback(run, arguments):
    done = run(*arguments)
    assert done.code == 2
    assert done.err.startswith("Traceback")
    assert done.err.endswith("nearfar: no.csv: No such file or directory. Check the path.\n")


def test_the_module_is_the_command(tmp_path):
    done = python("-m", "nearfar", "fit", "--neighbors", "0", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("nearfar: Invalid value for '-k' / '--neighbors': ")
    assert "0 is not in the range x>=1" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.usefixtures("folder")
def test_a_reader_that_leaves_is_no_error():
    command = [sys.executable, "-m", "nearfar", "fit", "--help"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert process.stderr.read() == b""
        process.wait(timeout=60)
    assert process.returncode == 1


@pytest.mark.usefixtures("folder")
def test_an_ascii_terminal_is_no_error():
    environment = {"PYTHONIOENCODING": "ascii", "PYTHONPATH": ":".join(sys.path)}
    done = python("-m", "nearfar", "fit", "iris", env=environment)
    assert done.returncode == 0, done.stderr
    assert " ? " in done.stdout


# -- closed streams --------------------------------------------------------------------------


def shell(redirection, *arguments, cwd):
    """Run the command in a shell, with the redirection after it."""
    command = shlex.join([sys.executable, "-m", "nearfar", *arguments])
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command} {redirection}"],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=cwd,
    )


@pytest.mark.parametrize("redirection", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_streams_lose_what_they_would_show_and_no_more(tmp_path, redirection):
    done = shell(redirection, "fit", "iris", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert ("saved model.nearfar" in done.stdout) == (redirection == "2>&-")
    assert type(load(tmp_path / "model.nearfar")).__name__ == "LMNN"


@pytest.mark.parametrize(
    ("redirection", "options"),
    [("2>&-", []), (">&- 2>&-", ["--debug"]), ("2>/dev/full", []), ("2>/dev/full", ["--debug"])],
)
def test_an_error_that_nobody_reads_has_its_exit_code(tmp_path, redirection, options):
    """A wrong option is told in the same way as any error, and before anything large is loaded."""
    if "full" in redirection and not os.path.exists("/dev/full"):
        pytest.skip("this system has no /dev/full")
    done = shell(redirection, "fit", "--neighbors", "0", *options, cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


def test_a_reader_that_has_gone_ends_the_command_without_a_word(tmp_path):
    done = shell("| head -c 0", "fit", "iris", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")
    assert (tmp_path / "model.nearfar").exists()


def test_a_warning_that_nobody_reads_stops_no_fit(tmp_path):
    rows = [f"1,{i % 2}" for i in range(20)]
    (tmp_path / "t.csv").write_text("\n".join(["a,label", *rows, ""]))
    done = shell("2> >(head -c 0)", "fit", "t.csv", "-t", "label", cwd=tmp_path)
    assert done.returncode == 0
    assert "saved model.nearfar" in done.stdout


def test_summaries_of_commands_are_not_cut(run):
    done = run("--help")
    summaries = done.out.partition("Commands:")[2]
    assert "  evaluate " in summaries
    assert "..." not in summaries
