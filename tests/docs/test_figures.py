"""Figures that pages quote from the records of benchmarks are those of the records."""

import json
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from benchmarks import never_worse, never_worse_page

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "benchmarks" / "results"


@cache
def record(stem):
    return json.loads((RESULTS / f"{stem}.json").read_text(encoding="utf-8"))


def row(stem, rows="runs", **query):
    """The one row of a record that has these values."""
    (found,) = (r for r in record(stem)[rows] if all(r[k] == v for k, v in query.items()))
    return found


def words_of(page):
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def quoted(page, text):
    """The numbers of a page at the places that are {} in a text, which breaks lines anywhere."""
    pattern = r"([\d.,]*\d)".join(map(re.escape, text.split("{}")))
    found = re.findall(pattern, words_of(page))
    assert len(found) == 1, f"{page} says {len(found)} times {text!r}"
    return [number.replace(",", "") for number in np.ravel(found)]


def rounded(value, like):
    """The value with as many decimals as a number that is printed."""
    return f"{value:.{len(like.partition('.')[2])}f}"


def millions(name, key, machine="nvidia-h200"):
    return row(f"millions-{machine}", name=name)[key]


def large(name, key, machine="nvidia-h200"):
    return row(f"mvu_large-{machine}", rows="rows", name=name)[key]


def exact(data, method, machine="amd-epyc-2-cores"):
    return row(f"mvu-{machine}", data=data, method=method)["seconds"]


def on_cluster(key, **query):
    """Of MNIST in Dask arrays, or in memory."""
    runs = record("dask_lmnn")["runs"]
    (found,) = (run for run in runs if query.items() <= run.items())
    return found[key]


def low_rank(data, constraints, solver):
    """Processor seconds."""
    name = f"mvu{data} {constraints} {'exact' if solver == 'interior_point' else 'low rank'}"
    return large(name, "cpu_seconds", "amd-epyc-1-cores")


def itml(library, key):
    return row("metric_learn_methods", rows="rows", method="itml", library=library)[key]


def mlkr(library):
    return row("metric_learn_methods", rows="rows", method="mlkr", library=library)["seconds"]


def speeds(program):
    """Seconds of a peer over those of nearfar are on the page of LMNN alone."""
    page = (ROOT / "docs/results/lmnn.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| \**(\w+)\** \| \**" + program + r".*?([\d.e+]+) x\**", page, re.M)
    return [float(ratio) for data, ratio in found if data not in ("iris", "wine")]


QUOTES = [
    (
        "README.md",
        "{} s and {} GB on two cores to a certified gap of 1 %, and {} s on one H200 to 0.1 %",
        lambda: [
            millions("mnist60000", "seconds", "amd-epyc-2-cores"),
            millions("mnist60000", "peak_gb", "amd-epyc-2-cores"),
            millions("mnist60000 1e-3", "seconds"),
        ],
    ),
    (
        "README.md",
        "There a million rows take {} s and 8.1 million six minutes",
        lambda: [millions("digits1e6", "seconds")],
    ),
    (
        "README.md",
        "LMNN was {} to {} times as fast as pylmnn",
        lambda: [min(speeds("pylmnn")), max(speeds("pylmnn"))],
    ),
    (
        "README.md",
        "roll of 2000 points takes {} s on one H200",
        lambda: [exact("roll2000k5", "nearfar", "nvidia-h200")],
    ),
    (
        "README.md",
        "in {} s on two cores, and proves that no points of any dimension are better by more than"
        " {} %. One H200 takes {} s to prove {} %, and for a million points {} s to prove {} %",
        lambda: [
            large("roll100000 gap 1e-02", "seconds", "epyc-2-cores"),
            100 * large("roll100000 gap 1e-02", "whole_gap", "epyc-2-cores"),
            large("roll100000 gap 1e-03", "seconds"),
            100 * large("roll100000 gap 1e-03", "whole_gap"),
            large("roll1000000 gap 1e-02", "seconds"),
            100 * large("roll1000000 gap 1e-02", "whole_gap"),
        ],
    ),
    (
        "docs/gpus.md",
        "| LMNN | 0.1 % | {} | {} GB |",
        lambda: [millions("mnist60000 1e-3", key) for key in ("seconds", "peak_gb")],
    ),
    (
        "docs/gpus.md",
        "| MCML | 0.1 % | {} |",
        lambda: [row("metrics-nvidia-h200", task="mcml", method="nearfar, tol 1e-3")["seconds"]],
    ),
    (
        "docs/gpus.md",
        "took {} s on one H200 under a limit of 4 GB, and {} s and {} GB without",
        lambda: [
            millions("digits1e6 in 4 GB", "seconds"),
            millions("digits1e6", "seconds"),
            millions("digits1e6", "peak_gb"),
        ],
    ),
    (
        "docs/beyond_one_machine.md",
        "takes {} times as long on two workers as in memory on the same two cores, and is {} times"
        " as fast on two workers as on one",
        lambda: [
            on_cluster("seconds", workers=2) / on_cluster("seconds", where="memory"),
            on_cluster("seconds", workers=1) / on_cluster("seconds", workers=2),
        ],
    ),
    (
        "docs/beyond_one_machine.md",
        "The busier of two workers has {} times less work",
        lambda: [
            on_cluster("processor_seconds_of_workers", workers=1)[0]
            / max(on_cluster("processor_seconds_of_workers", workers=2))
        ],
    ),
    (
        "docs/beyond_one_machine.md",
        "a worker of two [grew by {} MB]",
        lambda: [max(row("dask_lmnn", where="cluster", workers=2)["growth_megabytes"])],
    ),
    (
        "docs/beyond_one_machine.md",
        "rows [grew by {} MB]",
        lambda: [max(row("dask_memory", workers=2)["growth_megabytes"])],
    ),
    (
        "docs/algorithms/itml.md",
        "it takes {} s to an objective of {}. nearfar takes {} s to {},",
        lambda: [
            itml(library, key)
            for library in ("metric-learn", "nearfar")
            for key in ("seconds", "objective")
        ],
    ),
    (
        "docs/algorithms/mvu.md",
        "in {} and {} seconds of processor time if lengths may shrink, in {} and {} with slack, and"
        " in {} and {} with equal lengths. The [low-rank method](#many-points-few-columns) needed"
        " {} and {}, {} and {}, and {} and {} seconds",
        lambda: [
            low_rank(data, constraints, solver)
            for solver in ("interior_point", "low_rank")
            for constraints in ("shrink", "slack", "equal")
            for data in (500, 1000)
        ],
    ),
    (
        "docs/algorithms/mvu.md",
        "11558 edges) take {} s to a gap of $10^{-6}$, 5000 points {} s, 10000 points (58712 edges,"
        " 74 GB) {} s. On two cores 1000 points with 4 neighbours (4253 edges) take {} s, 2000"
        " points with 5 neighbours {} s",
        lambda: [
            *(exact(f"roll{n}k5", "nearfar", "nvidia-h200") for n in (2000, 5000, 10000)),
            exact("roll1000k4", "nearfar"),
            exact("roll2000k5", "nearfar"),
        ],
    ),
    (
        "README.md",
        "and {} s on two cores. There CSDP, the papers' solver, takes {}, {} and {} times as long",
        lambda: [
            exact("roll2000k5", "nearfar"),
            *(
                exact(f"roll{n}k4", "CSDP") / exact(f"roll{n}k4", "nearfar")
                for n in (400, 800, 1000)
            ),
        ],
    ),
    (
        "docs/algorithms/variational_mvu.md",
        "reaches 1e-2 after {} s and {} GB, and the 12,089 twos and threes of MNIST, whose factor"
        " is dense, after {} s and {} GB",
        lambda: [
            large(f"{data} gap 1e-02", key, "epyc-2-cores") / unit
            for data in ("roll100000", "digits")
            for key, unit in (("seconds", 1), ("fit_mb", 1000))
        ],
    ),
]


@pytest.mark.parametrize(
    ("page", "text", "values"), QUOTES, ids=[text[:40] for _, text, _ in QUOTES]
)
def test_a_quoted_figure_is_that_of_the_record(page, text, values):
    numbers = quoted(page, text)
    assert numbers == [rounded(v, n) for v, n in zip(values(), numbers, strict=True)]


def test_mlkr_takes_a_thirteenth_of_the_time():
    assert "in a thirteenth of the time" in words_of("docs/algorithms/mlkr.md")
    assert round(mlkr("metric-learn") / mlkr("nearfar")) == 13


# -- tables ----------------------------------------------------------------------------------------

FEW = "docs/results/few_labels.md"
SUSPICIOUS = "docs/results/suspicious_labels.md"
UNLABELED = "docs/results/semi_supervised.md"
ROWS = [  # of a page, and of the results that it shortens: their columns, or one of several tables
    ("docs/adapt_embeddings.md", "embeddings as they are", FEW, "as they are", [0, 2, 3, 5]),
    ("docs/adapt_embeddings.md", "shrunk LDA", FEW, "shrunk LDA", [0, 2, 3, 5]),
    (
        "docs/adapt_embeddings.md",
        "[embeddings and discriminants, then LMNN](#few-labels)",
        FEW,
        "LMNN that keeps both",
        [0, 2, 3, 5],
    ),
    ("docs/report.md", "dual weights alone", SUSPICIOUS, "dual weights", range(5)),
    (
        "docs/report.md",
        "ten nearest rows of the inputs",
        SUSPICIOUS,
        "10 nearest, inputs",
        range(5),
    ),
    ("docs/report.md", "`suspicious_labels`", SUSPICIOUS, "`suspicious_labels`", range(5)),
    ("docs/algorithms/lmnn.md", "inputs", UNLABELED, "inputs", 3),
    ("docs/algorithms/lmnn.md", "`LMNN()`, labelled rows", UNLABELED, "LMNN(), labelled rows", 3),
    (
        "docs/algorithms/lmnn.md",
        "`LMNN(unlabeled_weight=1)`",
        UNLABELED,
        "LMNN(unlabeled_weight=1)",
        3,
    ),
]


def cells(page, label):
    """The first number of each cell, or the word, of all rows with this label in a page."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    rows = [line.strip("|").split("|")[1:] for line in lines if line.startswith(f"| {label} |")]
    return [[cell.replace("*", "").split()[0] for cell in row] for row in rows]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row[0]}-{row[1]}"[:60] for row in ROWS])
def test_a_row_is_that_of_the_results(row):
    page, label, results, its_label, columns = row
    (said, *_), found = cells(page, label), cells(results, its_label)
    if isinstance(columns, int):
        expected = [some[columns] for some in found[: len(said)]]
    else:
        expected = [found[0][column] for column in columns]
    assert said == [
        value if value == word else rounded(float(value), word)
        for value, word in zip(expected, said, strict=True)
    ]


# -- never worse -----------------------------------------------------------------------------------

NEVER_WORSE = {
    "lmnn": "LMNN",
    "kernel_lmnn": "KernelLMNN",
    "mcml": "MCML",
    "kernel_mcml": "KernelMCML",
    "nca": "NCA",
    "mmc": "MMC",
    "kernel_mmc": "KernelMMC",
    "dml_eig": "DMLEig",
    "pola": "POLA",
    "itml": "ITML",
    "sdml": "SDML",
    "lsml": "LSML",
    "scml": "SCML",
}
WORSE = re.compile(
    r"in (\d+) of (\d+) cases.{0,150}?(?:by more than two in (\d+)|in (\d+) by more than two)"
)


@cache
def cases():
    paths = sorted(RESULTS.glob("never_worse*.json"))
    return never_worse_page.merged([record(path.stem) for path in paths])


@pytest.mark.parametrize(("stem", "learner"), NEVER_WORSE.items())
def test_how_often_a_learner_is_worse_than_the_inputs(stem, learner):
    found = [c for case in cases() if (c := never_worse_page.compare(case, learner, "inputs"))]
    worse, clearly = sum(c.worse for c in found), sum(c.clearly_worse for c in found)
    (said,) = WORSE.findall(words_of(f"docs/algorithms/{stem}.md"))
    assert [int(n) for n in said if n] == [worse, len(found), clearly]


def test_how_often_lmnn_is_near_the_best():
    """Of all linear methods, and of those that keep another distance."""
    sets = {}
    for case in cases():
        sets.setdefault(case["data"], []).append(case)
    same = {"MCML", "NCA", "MMC", "DMLEig", "SDML", "SCML", "ITML", "LSML"}
    expected = []
    for rivals in (never_worse.LINEAR, [n for n in never_worse.LINEAR if n not in same]):
        wholes = [never_worse_page.mean_case(some) for some in sets.values()]
        tables = [never_worse_page.table_of(whole, "LMNN", rivals) for whole in wholes]
        expected += [
            sum(never_worse_page.within_one(behind(t)) for t in tables)
            for behind in (never_worse_page.behind_best, never_worse_page.behind_best_of_others)
        ]
    for page, text in (
        (
            "docs/algorithms/lmnn.md",
            "of the best on {} of the 34 sets, and on {} if the best is chosen on other splits than"
            " it is compared on. It would be {} and {} without the eight",
        ),
        (
            "docs/results/never_worse.md",
            "on fewer: on {} and {} of the 34 sets, in the two senses of the table above. Without"
            " these eight it would be on {} and {}.",
        ),
    ):
        assert quoted(page, text) == [str(count) for count in expected]
