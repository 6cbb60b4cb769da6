"""The comparison with metric-learn, nearfar's half of it on small data."""

import re

import numpy as np
import pytest

from benchmarks import metric_learn_methods as benchmark
from nearfar import ITML, LFDA, LSML, MLKR, SCML, SDML, Covariance, Tuples


@pytest.mark.slow
def test_nearfar_alone(capsys):
    benchmark.main(["--smoke", "--peers", "", "--methods", "gmml,itml"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [re.split(r" \| ", row)[2] for row in rows] == [
        "nearfar",
        "eigendecomposition",
        "formula",
        "nearfar",
    ]
    assert re.search(
        r"\| itml \| digits 200 x 10 \| nearfar \| [\d.]+ \| [\d.]+ \| [\de.-]+ \|", rows[3]
    )


@pytest.mark.parametrize("method", [m for m in benchmark.METHODS if m != "gmml"])
def test_objectives_are_those_that_the_models_report(method):
    data = benchmark.make_data(method, smoke=True)
    X, y = data["X"], data["y"]
    model = {
        "covariance": lambda: Covariance().fit(X),
        "lfda": lambda: LFDA(n_components=5, shrinkage=0).fit(X, y),
        "itml": lambda: ITML(bounds=data["bounds"]).fit(Tuples(X, data["indices"]), data["kinds"]),
        "lsml": lambda: LSML().fit(Tuples(X, data["indices"])),
        "scml": lambda: SCML(
            sparsity_weight=benchmark.SPARSITY
            / np.mean(np.sum((X[data["indices"][:, 0]] - X[data["indices"][:, 2]]) ** 2, axis=1))
        ).fit(Tuples(X, data["indices"])),
        "sdml": lambda: SDML(balance=float(data["balance"])).fit(
            Tuples(X, data["indices"]), data["kinds"]
        ),
        "mlkr": lambda: MLKR().fit(X, y),
    }[method]()
    value = benchmark.objective(method, np.asarray(model.components_), data)
    assert value == pytest.approx(model.objective_, rel=1e-6)


def test_the_page_compares_with_both(monkeypatch):
    seconds = {"nearfar": 1.0, "metric-learn": 20.0, "eigendecomposition": 0.5, "formula": 0.8}
    monkeypatch.setattr(
        benchmark,
        "measured",
        lambda python, library, method, data: {  # noqa: ARG005
            "components": np.eye(data["X"].shape[1]),
            "seconds": seconds[library],
            "gap": None,
        },
    )
    data = benchmark.make_data("covariance", smoke=True)
    rows = [benchmark.row_of("covariance", "digits", library, "", data) for library in seconds]
    record = {"commit": "0", "machine": {"cpu": "x"}, "time": "now", "rows": rows}
    text = benchmark.page_of(record)
    assert "| covariance | digits 200 x 10 | 0.05 | 0.0e+00 | 2.00 | 1.25 | 1.60 |" in text
    assert "| covariance | digits 200 x 10 | eigendecomposition | 0.5000 |  |  |" in text
