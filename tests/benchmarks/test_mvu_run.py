"""The benchmark of exact MVU: its command, its programs, how solvers get them, its page."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from benchmarks.mvu import __main__ as command
from benchmarks.mvu import data, evaluate, forms, methods, page, programs
from nearfar import NeighborhoodGraph
from tests.conic import solve_conic

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run_command(monkeypatch, capsys):
    """Runs the benchmark without data files: its exit code, and what it prints and tells."""
    monkeypatch.setenv("NEARFAR_DATA", "")

    def run(*arguments):
        capsys.readouterr()
        return command.main([*arguments]), *capsys.readouterr()

    return run


def nearfar_run(**facts):
    return {
        "data": "roll400k4",
        "points": 400,
        "edges": 1670,
        "method": "nearfar",
        "program": "nearfar",
        "options": {"tol": 1e-6},
        "status": "converged",
        "seconds": 2.0,
        "fit_mb": 70.0,
        "n_iter": 25,
        "objective": 5.0,
        "reported_objective": 5.0,
        "gap": 4e-7,
        "violation": 1e-9,
        "limit": 900,
        "commit": "abc",
        "date": "today",
        "dtype": "float64",
        **facts,
    }


def csdp_run(**facts):
    said = {"method": "CSDP", "program": "csdp", "status": "lack of progress", "seconds": 17.0}
    return nearfar_run(**(said | {"fit_mb": 60.0, "n_iter": 61, "violation": 1e-3} | facts))


def record(*runs):
    machine = {"cpu": "a chip", "cores": 2, "memory_gb": 8, "system": "Linux x86_64"}
    return {"machine": machine, "threads": 2, "seed": 0, "limit": 900, "runs": list(runs)}


def program_of(n, k, folder):
    """The arrays of a roll's program."""
    data.main(f"roll{n}k{k}", folder)
    with np.load(folder / "program.npz") as program:
        return dict(program)


# -- the command ---


@pytest.mark.skipif(shutil.which("csdp") is None, reason="csdp is not installed")
def test_csdp_and_nearfar_find_the_same_variance(run_command, tmp_path):
    places = ["--results", str(tmp_path), "--page", str(tmp_path / "page.md"), "--machine", "x"]
    code, printed, told = run_command("--data", "roll50k4", "--peers", "csdp", *places)
    assert code == 0, printed + told
    runs = json.loads((tmp_path / "mvu-x.json").read_text())["runs"]
    assert [run["method"] for run in runs] == ["CSDP", "CSDP, as in the thesis", "nearfar"]
    assert runs[0]["status"] == "solved"
    assert runs[0]["objective"] == pytest.approx(runs[2]["objective"], rel=3e-6)
    assert max(runs[0]["gap"], runs[0]["violation"]) <= 1e-6
    assert runs[0]["n_iter"] > 5
    assert 0 < runs[0]["fit_mb"] < 100  # it is looked at now and then, and the roll is small
    assert runs[0]["versions"]["CSDP"].startswith("6.")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--peers", "sdpt3"], "no peer 'sdpt3'; expected some of csdp, clarabel, scs"),
        (["--data", "roll"], "no data set 'roll'; expected roll<points>k<neighbours>"),
    ],
)
def test_unknown_names_are_told(run_command, capsys, arguments, message):
    with pytest.raises(SystemExit) as ended:
        run_command(*arguments)
    assert message in f"{ended.value.code} {capsys.readouterr().err}"


def test_a_peer_that_cannot_be_had_is_told(tmp_path, monkeypatch):
    """As if csdp were not on the path: the record says why, and the command fails."""
    monkeypatch.setenv("PATH", "")
    arguments = ["--data", "roll50k4", "--results", str(tmp_path), "--page", str(tmp_path / "p.md")]
    parsed = command.parse([*arguments, "--machine", "x", "--peers", "csdp"])
    benchmark = command.Benchmark(parsed, tmp_path)
    folder = benchmark.prepare("roll50k4")
    benchmark.run("roll50k4", folder, "CSDP", "csdp", {"centre": "objective"})
    [run] = json.loads((tmp_path / "mvu-x.json").read_text())["runs"]
    assert run["reason"].startswith("failed: the program csdp is not on the path; Debian has it")
    assert "csdp is not on the path" in benchmark.failures[0]


def test_what_nearfar_says_of_itself_is_checked():
    benchmark = command.Benchmark.__new__(command.Benchmark)
    benchmark.failures, benchmark.arguments = [], command.parse(["--smoke"])
    benchmark._check(nearfar_run())
    assert benchmark.failures == []
    benchmark._check(nearfar_run(reported_objective=5.1))
    benchmark._check(nearfar_run(gap=2e-6))
    benchmark._check(nearfar_run(gap=None))
    benchmark._check(nearfar_run(violation=1e-4))
    benchmark._check(nearfar_run(status="max_seconds"))
    told = benchmark.failures
    assert len(told) == 5
    assert "objective_ is 5.1, the evaluator finds 5" in told[0]
    assert "converged, but the evaluator's gap is 2e-06" in told[1]
    assert "converged, but the evaluator's gap is None" in told[2]
    assert "violation 0.0001; expected 'converged' and at most 1e-06" in told[3]
    assert "status 'max_seconds'" in told[4]


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="only Linux has taskset")
def test_the_record_counts_the_cores_that_may_be_used():
    one = min(os.sched_getaffinity(0))
    code = f"import os; os.sched_setaffinity(0, [{one}])\n"
    code += "from benchmarks import common; print(common.machine()['cores'])"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert answer.stdout == "1\n", answer.stderr


def test_a_roll_in_pieces_is_drawn_again():
    """The first seed leaves five of 800 points apart."""
    pieces = data.swiss_roll(800, data.SEED)
    assert not data.is_connected(800, *data.edges(pieces, 4))
    X, *edges = data.connected_roll(800, 4)
    assert data.is_connected(800, *edges)
    assert not np.array_equal(X, pieces)
    np.testing.assert_array_equal(data.connected_roll(400, 4)[0], data.swiss_roll(400))


def test_general_solvers_get_what_they_can_do():
    def solvers(name, peers=programs.PEERS):
        return {program for _, program, _ in programs.methods_of(name, peers)}

    assert solvers("roll100k4") == {"csdp", "clarabel", "scs", "nearfar"}
    assert solvers("roll1000k4") == {"csdp", "nearfar"}
    methods = [method for method, *_ in programs.methods_of("roll800k4", programs.PEERS)]
    assert methods == ["CSDP", "nearfar"]
    assert solvers("roll2000k5") == {"nearfar"}
    assert solvers("roll100k4", ["scs"]) == {"scs", "nearfar"}
    assert programs.data_of(command.parse(["--device", "cuda"])) == programs.DEVICE
    assert command.parse(["--device", "cuda"]).peers == []


def test_every_program_is_known():
    used = {program for _, program, _ in programs.METHODS}
    assert used == set(methods.PROGRAMS) == set(methods.PACKAGES) == {"nearfar", *programs.PEERS}


# -- the programs ---


def test_the_graph_is_nearfars(tmp_path):
    program = program_of(80, 4, tmp_path)
    graph = NeighborhoodGraph.from_points(program["X"], 4)
    np.testing.assert_array_equal(program["heads"], graph.heads)
    np.testing.assert_array_equal(program["tails"], graph.tails)
    np.testing.assert_allclose(program["squares"], graph.lengths**2)
    assert json.loads((tmp_path / "shape.json").read_text()) == [80, len(graph.heads)]
    assert program["X"].shape == (80, 8)
    assert 0.03 < program["X"][:, 3:].std() < 0.07


@pytest.fixture
def small(tmp_path):
    program = program_of(12, 4, tmp_path)
    return program["heads"], program["tails"], program["squares"]


def matrices_of(path):
    """Right sides and matrices of an SDPA file, by its rules: symmetric, numbered from 1."""
    lines = path.read_text().splitlines()
    count, blocks, n = (int(line) for line in lines[:3])
    assert blocks == 1
    right = np.array(lines[3].split(), dtype=float)
    assert len(right) == count
    matrices = np.zeros((count + 1, n, n))
    for line in lines[4:]:
        number, block, i, j, value = line.split()
        assert block == "1"
        assert int(i) <= int(j)
        matrices[int(number), int(i) - 1, int(j) - 1] = float(value)
        matrices[int(number), int(j) - 1, int(i) - 1] = float(value)
    return right, matrices


@pytest.mark.parametrize("centre", ["objective", "constraint"])
def test_the_file_for_csdp_states_the_program(tmp_path, rng, small, centre):
    """For centred K: <C, K> = tr K, and every constraint is a relative squared length of 1."""
    heads, tails, squares = small
    forms.write_sdpa(tmp_path / "p.dat-s", *small, 12, centre)
    right, (C, *constraints) = matrices_of(tmp_path / "p.dat-s")
    Y = rng.normal(size=(12, 3))
    Y -= Y.mean(0)
    lengths = ((Y[heads] - Y[tails]) ** 2).sum(1) / squares
    assert (C * (Y @ Y.T)).sum() == pytest.approx((Y**2).sum())
    found = [(A * (Y @ Y.T)).sum() for A in constraints]
    np.testing.assert_allclose(found[: len(heads)], lengths)
    np.testing.assert_array_equal(right[: len(heads)], 1)
    moved = (Y + 3) @ (Y + 3).T
    if centre == "objective":
        assert len(right) == len(heads)
        assert (C * moved).sum() < (Y**2).sum()
    else:
        assert right[-1] == 0
        assert found[-1] == pytest.approx(0, abs=1e-9)
        assert (constraints[-1] * moved).sum() > 1


def test_what_csdp_writes_is_read(tmp_path):
    """First y, then S (matrix 1) and K (matrix 2), each entry once."""
    text = "0.5 -1.5 9\n1 1 1 1 7.0\n2 1 1 1 2.0\n2 1 1 3 -1e-3\n2 1 2 2 4.0\n"
    (tmp_path / "solution").write_text(text)
    K, y = forms.read_csdp(tmp_path / "solution", 3, 2)
    np.testing.assert_array_equal(K, [[2, 0, -1e-3], [0, 4, 0], [-1e-3, 0, 0]])
    np.testing.assert_array_equal(y, [0.5, -1.5])


@pytest.mark.parametrize("lower", [False, True])
def test_triangles(rng, lower):
    """Stacked by columns: the rows of the other triangle, one after the other."""
    A = rng.normal(size=(5, 5))
    A = A + A.T
    i, j = np.triu_indices(5) if lower else np.tril_indices(5)
    stacked = A[i, j] * np.where(i == j, 1, np.sqrt(2))
    np.testing.assert_allclose(forms.matrix_of(stacked, 5, lower), A)


@pytest.mark.parametrize("unit", ["own", "mean"])
def test_clarabel_solves_the_conic_form(small, unit):
    clarabel = pytest.importorskip("clarabel")
    heads, tails, squares = small
    units = squares if unit == "own" else np.full_like(squares, squares.mean())
    (values, rows, columns), b, q = forms.conic(heads, tails, squares, units, 12, lower=False)
    m = len(heads)
    A = sparse.csc_array((values, (rows, columns)), shape=(len(b), m))
    found = solve_conic(q, A, b, [clarabel.PSDTriangleConeT(12)])
    K = forms.matrix_of(np.array(found.z), 12, lower=False)
    judged = evaluate.evaluate(heads, tails, squares, K, np.array(found.x) * q)
    assert judged["gap"] < 1e-4
    assert judged["violation"] < 1e-4


def test_names_of_endings_are_words():
    assert methods.spaced("AlmostSolved") == "almost solved"
    assert methods.spaced("MaxTime") == "max time"


# -- the page ---


def test_page_from_a_record():
    """17 s against 2: 8.5 times. In bold what has the accuracy that is asked for."""
    over = {"status": "killed", "method": "CSDP, as in the thesis", "seconds": 900.0}
    killed = {key: value for key, value in csdp_run(**over).items() if key not in ("gap", "n_iter")}
    missing = {"reason": "failed: no such luck", "method": "Clarabel", "program": "clarabel"}
    text = page.page([json.loads(json.dumps(record(csdp_run(), killed, missing_run(missing))))])
    assert "| roll400k4 | 1670 | CSDP | 17 | 61 | 60 | 5 | 4.0e-07 | 1.0e-03 | lack of prog" in text
    assert "| Clarabel | failed: no such luck |" in text
    assert "Seconds of CSDP" not in text
    text = page.page([record(csdp_run(), killed, nearfar_run())])
    cells = ("nearfar", "2", "25", "70", "5", "4.0e-07", "1.0e-09", "converged")
    assert "| roll400k4 | 1670 | " + " | ".join(f"**{cell}**" for cell in cells) + " |" in text
    assert "| roll400k4 | CSDP | 17 | 2 | 8.5 x |" in text
    assert "| roll400k4 | CSDP, as in the thesis | over 900 | 2 | over 450 x |" in text


def missing_run(facts):
    kept = ("data", "points", "edges", "limit", "commit", "date")
    return {key: value for key, value in nearfar_run().items() if key in kept} | facts


@pytest.mark.parametrize(
    ("facts", "accurate"),
    [
        ({}, True),
        ({"gap": 2e-6}, False),
        ({"violation": 2e-6}, False),
        ({"gap": None}, False),
    ],
)
def test_accuracy_is_gap_and_violation(facts, accurate):
    assert page.accurate(nearfar_run(**facts)) is accurate


def test_a_note_of_a_record_is_on_the_page():
    text = page.page([record(nearfar_run()) | {"note": "Measured at night."}])
    assert "\nMeasured at night.\n" in text
