"""``nearfar verify``."""

import pytest

from nearfar.io import load, save

pytestmark = pytest.mark.usefixtures("folder")


@pytest.fixture
def fit(run):
    def fit(*options):
        done = run("fit", "train.csv", "-t", "species", *options)
        assert done.code == 0, done.err

    return fit


def test_the_table_of_the_fit(run, fit):
    """The rows that were kept for testing are left out, and the target is known."""
    fit("--test-share", 0.3)
    done = run("verify", "model.nearfar", "train.csv")
    model = load("model.nearfar")
    n_train = len(model.proof_["targets"])
    bound = model.objective_ - model.duality_gap_ * max(model.objective_, 1.0)
    assert (done.code, done.err) == (0, "")
    assert done.out == (
        f"proved: within {model.duality_gap_:.1e} of the optimum\n"
        f"objective {model.objective_:.8g}, bound {bound:.8g}, {n_train} rows\n"
    )


def test_rows_that_were_drawn(run, fit):
    """Of the training rows those that ``--rows`` took are found again."""
    fit("--rows", 60)
    done = run("verify", "model.nearfar", "train.csv")
    assert done.code == 0, done.out
    assert done.out.endswith(", 60 rows\n")


@pytest.mark.parametrize("method", ["mcml", "mmc", "dml-eig", "multi-metric-lmnn"])
def test_methods(run, fit, method):
    fit("--method", method, "--test-share", 0)
    done = run("verify", "model.nearfar", "train.csv", "-t", "species")
    assert done.code == 0, done.out
    assert done.out.startswith("proved: within ")


def test_built_in_sets(run):
    assert run("fit", "wine").code == 0
    assert run("verify", "model.nearfar", "wine").code == 0
    done = run("verify", "model.nearfar", "wine", "-t", "class")
    assert done.code == 2
    assert "the built-in set wine has its own" in done.err


def test_what_does_not_hold(run, fit):
    fit("--test-share", 0)
    model = load("model.nearfar")
    model.components_[0] *= 1.1
    save(model, "changed.nearfar")
    done = run("verify", "changed.nearfar", "train.csv", "-t", "species")
    assert done.code == 1
    assert done.out.startswith("not proved: the objective of this model on this table is ")
    done = run("verify", "model.nearfar", "test.csv", "-t", "species")
    assert done.code == 1
    assert "not proved: the table is not the training table: " in done.out


def test_a_changed_table(run, fit, folder):
    """The split is still found, and then the change."""
    fit()
    lines = (folder / "train.csv").read_text().splitlines()
    lines[1::2] = [f"9{line}" for line in lines[1::2]]
    (folder / "changed.csv").write_text("\n".join([*lines, ""]))
    done = run("verify", "model.nearfar", "changed.csv")
    assert done.code == 1
    assert "not proved: the table is not the training table: the target neighbours" in done.out


def test_bad_input(run, fit):
    fit()
    assert run("verify", "model.nearfar", "nothing.csv").code == 2
    assert run("verify", "nothing.nearfar", "train.csv").code == 2
    done = run("verify", "model.nearfar", "wine")
    assert done.code == 2
    assert "the model has 4 features, the table has 13" in done.err
