"""Damaged and hostile files: each loads or is refused, within its memory, in one line.

`tests.mutations` damages real files, seeded: their bytes, the members of their archives, and the
values of their documents, with correct checksums.
"""

import json
import os
import subprocess
import sys
import zipfile
from io import BytesIO

import numpy as np
import pandas
import pytest

import nearfar
from nearfar.cli import main
from nearfar.datasets import load_table
from nearfar.errors import InvalidInputError, ModelFileError
from tests.mutations import ODD_VALUES, mutate_archive, mutate_bytes, mutate_document

pytestmark = pytest.mark.filterwarnings("ignore::nearfar.errors.NearfarWarning")
RNG = np.random.default_rng(0)
Y = np.arange(36) % 3
X = RNG.normal(size=(36, 3)) + 1.5 * np.eye(3)[Y]
QUICK = {"max_iter": 3, "tol": 10.0}
MODELS = {
    "LMNN": lambda: nearfar.LMNN(**QUICK).fit(pandas.DataFrame(X, columns=list("abc")), Y),
    "RCA": lambda: nearfar.RCA().fit(X, Y),
    "KernelMMC": lambda: nearfar.KernelMMC(**QUICK).fit(X, Y),
    "MultiMetricLMNN": lambda: nearfar.MultiMetricLMNN(**QUICK).fit(X, Y),
    "EnergyClassifier": lambda: nearfar.EnergyClassifier(nearfar.RCA()).fit(X, Y),
    "MVU": lambda: nearfar.MVU(n_neighbors=5, tol=1e-2).fit(X),
    "ClassicalMDS": lambda: nearfar.ClassicalMDS().fit(X),
    "MetricMDS": lambda: nearfar.MetricMDS(**QUICK).fit(X),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """The bytes of a model file of each kind."""
    path = tmp_path_factory.mktemp("models") / "model.nearfar"
    contents = {}
    for name, make in MODELS.items():
        nearfar.save(make(), path)
        contents[name] = path.read_bytes()
    return contents


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
    """The suffix and the bytes of a table of each kind."""
    folder = tmp_path_factory.mktemp("tables")
    labels = np.array(["x", "y", "z"])[Y]
    frame = pandas.DataFrame(X, columns=list("abc")).assign(kind=labels)
    frame.to_csv(folder / "table.csv", index=False)
    np.save(folder / "table.npy", np.column_stack([X, Y]))
    np.savez(folder / "stored.npz", X=X, y=Y)
    np.savez_compressed(folder / "small.npz", X=X, y=labels)
    if pyarrow_is_there():
        frame.to_parquet(folder / "table.parquet")
        frame.astype({"kind": "category"}).to_parquet(folder / "codes.parquet", compression=None)
    return [(path.suffix, path.read_bytes()) for path in sorted(folder.iterdir())]


def pyarrow_is_there():
    try:
        import pyarrow.parquet  # noqa: F401 (whether it is there is the question)
    except ImportError:
        return False
    return True


def mutated_model(content, rng):
    change = (mutate_bytes, mutate_archive, mutate_document, mutate_document)[rng.integers(4)]
    return change(content, rng)


@pytest.fixture
def ends_well(capsys):
    """Run a command; it must succeed, or end with 2 and one line, and show nothing raw."""

    def ends_well(*arguments):
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        assert code in (0, 2), err
        lines = [line for line in err.splitlines() if not line.startswith("warning: ")]
        assert len(lines) == (code == 2), err
        assert all(line.startswith("nearfar: ") for line in lines)
        assert "\x1b" not in out + err
        return code

    return ends_well


@pytest.mark.parametrize("name", MODELS)
def test_a_mutated_model_loads_or_is_refused(tmp_path, models, name):
    rng = np.random.default_rng(1)
    path = tmp_path / "model.nearfar"
    ends = {"loaded": 0, "refused": 0}
    for _ in range(80):
        path.write_bytes(mutated_model(models[name], rng))
        try:
            nearfar.load(path)
            ends["loaded"] += 1
        except ModelFileError:
            ends["refused"] += 1
    assert min(ends.values()) > 5, "the mutations are too mild or too strong to tell anything"


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_the_command_ends_well_on_a_mutated_model(tmp_path, monkeypatch, models, ends_well, name):
    pytest.importorskip("jinja2", reason="needs the report extra")
    monkeypatch.chdir(tmp_path)
    np.savez("table.npz", X=X, y=Y)
    commands = [
        ("transform", "model.nearfar", "table.npz", "-o", "mapped.csv", "--force"),
        ("report", "model.nearfar", "table.npz", "--force"),
        ("report", "model.nearfar", "--force"),
    ]
    if "MDS" not in name and name != "MVU":
        commands.append(("evaluate", "model.nearfar", "table.npz", "table.npz"))
    rng = np.random.default_rng(2)
    for _ in range(25):
        (tmp_path / "model.nearfar").write_bytes(mutated_model(models[name], rng))
        ends_well(*commands[rng.integers(len(commands))])


@pytest.mark.parametrize("kind", range(6))
def test_a_mutated_table_is_read_or_refused(tmp_path, tables, kind):
    if kind >= len(tables):
        pytest.skip("needs the cli extra")
    suffix, content = tables[kind]
    rng = np.random.default_rng(3)
    path = tmp_path / f"table{suffix}"
    refused = 0
    for _ in range(100):
        mutate = mutate_archive if suffix == ".npz" and rng.random() < 0.5 else mutate_bytes
        path.write_bytes(mutate(content, rng))
        try:
            load_table(path, "kind" if suffix in (".csv", ".parquet") else None)
        except InvalidInputError:
            refused += 1
    assert refused > 20


@pytest.mark.slow
def test_the_command_ends_well_on_a_mutated_table(tmp_path, monkeypatch, tables, ends_well):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(4)
    for number in range(90):
        suffix, content = tables[number % len(tables)]
        path = tmp_path / f"table{suffix}"
        path.write_bytes(mutate_bytes(content, rng))
        target = ["-t", "kind"] if suffix in (".csv", ".parquet") else []
        ends_well("fit", path, *target, "--max-iter", "2", "--force")


def test_headers_of_arrays_that_break_pythons_parser(tmp_path, models):
    """They raise TokenError, IndentationError or SyntaxError there."""
    path = tmp_path / "model.nearfar"
    for broken in (b"((((((((", b"\n  \n 3  ", b"'''     ", b"\\       ", b"9" * 8, b"\0" * 8):
        with zipfile.ZipFile(BytesIO(models["RCA"])) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        content = members["components_.npy"]
        start = content.index(b"'shape'")
        members["components_.npy"] = content[:start] + broken + content[start + 8 :]
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        with pytest.raises(ModelFileError, match="is a damaged model file"):
            nearfar.load(path)


# -- memory ---

MEASURED = """
import resource, sys
from nearfar.cli import main
code = main(sys.argv[1:])
print(code, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


def measured(folder, *arguments):
    """Exit code, largest memory in MiB and the error of a command in a process of its own."""
    pytest.importorskip("resource", reason="needs a POSIX system")
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    code, peak = map(int, done.stdout.split()[-2:])
    return code, peak, done.stderr


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The memory of a command that reads a small file and fits it."""
    folder = tmp_path_factory.mktemp("usual")
    np.savez(folder / "table.npz", X=X, y=Y)
    code, peak, error = measured(folder, "fit", "table.npz", "--max-iter", "2")
    assert code == 0, error
    return peak


def declare(shape, descr="<f8"):
    stream = BytesIO()
    given = {"descr": descr, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(stream, given)
    return stream.getvalue()


@pytest.mark.slow
def test_many_rows_of_nothing(tmp_path, models, usual):
    """50,000,000 rows without columns take no bytes in the file, and took gigabytes to report."""
    rewrite(tmp_path / "model.nearfar", models["MetricMDS"], declare((50_000_000, 0)))
    code, peak, error = measured(tmp_path, "report", "model.nearfar")
    assert code == 2
    assert "declares an array of shape (50000000, 0), which needs 400,000,000 bytes" in error
    assert peak < usual + 100


def rewrite(path, content, embedding):
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            new.writestr(name, embedding if name == "embedding_.npy" else old.read(name))


@pytest.mark.slow
def test_a_compressed_array_that_is_not_used(tmp_path, usual):
    """300 MB of zeros in 0.3 MB, beside X and y."""
    path = tmp_path / "table.npz"
    np.savez(path, X=X, y=Y)
    zeros = bytes(10**6)
    with (
        zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive,
        archive.open("unused.npy", "w") as stream,
    ):
        stream.write(declare((300 * 10**6 // 8,)))
        for _ in range(300):
            stream.write(zeros)
    code, peak, error = measured(tmp_path, "fit", "table.npz", "--max-iter", "2")
    assert code == 0, error
    assert peak < usual + 100


def test_a_compressed_array_that_is_used(tmp_path):
    path = tmp_path / "table.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("X.npy", "w") as stream:
            stream.write(declare((10**6, 50)))
            for _ in range(400):
                stream.write(bytes(10**6))
        archive.writestr("y.npy", declare((10**6,), "|i1") + bytes(10**6))
    with pytest.raises(InvalidInputError, match=r"needs 400,000,000 bytes: expected at most 268"):
        load_table(path)


def test_one_long_label_among_many_short_ones(tmp_path):
    """In an array of strings each takes as much as the longest: 100 kB of text, 4 GB of memory."""
    path = tmp_path / "table.csv"
    path.write_text("a,kind\n" + "1,x\n" * 10_000 + f"1,{'y' * 100_000}\n")
    with pytest.raises(InvalidInputError, match=r"row 10001 of target 'kind' has 100,000 char.*Sh"):
        load_table(path, "kind")


def test_parquet_that_repeats_itself(tmp_path):
    """A column of one value takes next to nothing in the file, however many rows there are."""
    pyarrow = pytest.importorskip("pyarrow", reason="needs the cli extra")
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs the cli extra")
    path = tmp_path / "table.parquet"
    few = pyarrow.table({"a": np.zeros(20_000_000, np.int8), "kind": np.zeros(20_000_000, np.int8)})
    parquet.write_table(few, path)
    assert path.stat().st_size < 10**6
    with pytest.raises(InvalidInputError, match=r"the table needs 320,000,000 bytes: expected at"):
        load_table(path, "kind")
    long = pyarrow.array(["y" * 100_000]).dictionary_encode().take([0] * 10_000)
    parquet.write_table(pyarrow.table({"a": np.zeros(10_000), "kind": long}), path)
    with pytest.raises(InvalidInputError, match=r"has 100,000 characters, and 10,000 labels of"):
        load_table(path, "kind")


# -- what a model file may say ---


def change(path, content, changes):
    """The attributes of a model file replaced."""
    with zipfile.ZipFile(BytesIO(content)) as old, zipfile.ZipFile(path, "w") as new:
        for name in old.namelist():
            data = old.read(name)
            if name == "model.json":
                document = json.loads(data)
                document["attributes"] |= changes
                data = json.dumps(document).encode()
            new.writestr(name, data)


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("LMNN", {"history_": [1]}, "as history_; expected a list of iterations"),
        ("LMNN", {"history_": [{"n_iter": 1}]}, "as history_; expected a list of iterations"),
        ("LMNN", {"status_": "ready"}, "holds 'ready' as status_; expected one of converged,"),
        ("LMNN", {"objective_": "\x1b[2J"}, r"holds '\\x1b\[2J' as objective_; expected a number"),
        ("LMNN", {"n_iter_": -1}, "as n_iter_; expected a number of iterations"),
        ("LMNN", {"feature_names_in_": {"$objects": [1, 2, 3], "shape": [3]}}, "array of names"),
        ("LMNN", {"extra_": {"$objects": [], "shape": [10**8, 0]}}, "needs 800,000,000 bytes"),
        ("MVU", {"graph_": 200_000_000}, "a graph of 200000000 nodes; expected 36, one for each"),
        ("EnergyClassifier", {"n_neighbors_": 10**9}, "expected at most 1000 or the 36 points"),
    ],
)
def test_values_that_no_fit_gives(tmp_path, models, name, changes, message):
    path = tmp_path / "model.nearfar"
    if "graph_" in changes:
        with zipfile.ZipFile(BytesIO(models[name])) as archive:
            graph = json.loads(archive.read("model.json"))["attributes"]["graph_"]["$graph"]
        changes = {"graph_": {"$graph": {**graph, "n_nodes": changes["graph_"]}}}
    change(path, models[name], changes)
    with pytest.raises(ModelFileError, match=message):
        nearfar.load(path)


def test_a_document_beyond_its_limit_is_neither_read_nor_written(tmp_path, models, monkeypatch):
    path = tmp_path / "model.nearfar"
    path.write_bytes(models["RCA"])
    model = nearfar.load(path)
    monkeypatch.setattr("nearfar.io.archive.MOST_DOCUMENT", 100)
    with pytest.raises(ModelFileError, match=r"holds model\.json of .*: expected at most 100"):
        nearfar.load(path)
    with pytest.raises(ModelFileError, match="a RCA cannot be saved: its plain values take"):
        nearfar.save(model, path)
    assert path.read_bytes() == models["RCA"]


@pytest.mark.parametrize("value", [value for value in ODD_VALUES if value != 10**12], ids=repr)
def test_a_model_that_cannot_be_used_is_an_error_of_its_file(
    tmp_path, monkeypatch, models, ends_well, value
):
    """Whatever an attribute that only one class has is replaced by."""
    monkeypatch.chdir(tmp_path)
    np.savez("table.npz", X=X)
    change(tmp_path / "model.nearfar", models["ClassicalMDS"], {"mean_": value, "norms_": value})
    ends_well("transform", "model.nearfar", "table.npz", "-o", "mapped.npy", "--force")
