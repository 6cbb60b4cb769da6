"""The records as Markdown: docs/results/lmnn_table1.md."""

import math
from collections import Counter
from statistics import mean, stdev

from benchmarks.papers import table1_paper
from benchmarks.papers.records import best_rows, machines
from benchmarks.papers.table1_data import NOTES
from benchmarks.papers.table1_paper import PROTOCOLS
from benchmarks.tables import markdown

INTRODUCTION = """\
# LMNN: Table 1 of the paper, measured again

`python -m benchmarks.papers.lmnn_table1` writes this page from
`benchmarks/results/lmnn_table1-*.json`; do not edit it. `benchmarks/README.md` says how to repeat
the runs. The paper is Weinberger & Saul, Distance metric learning for large margin nearest
neighbor classification, JMLR 10 (2009).

Test errors in percent: the mean over splits and its standard error, over splits where there are
several, else the binomial one. *Difference* is ours minus the paper's in standard errors of ours;
the paper prints none, and its own would be about as large. *Learning* and *predicting* are mean
seconds of one split.

k = 3, mu = 0.5 and `shrinkage=0`, the paper's program, everywhere; votes that tie are broken as in
the paper, by a smaller k. PCA is fitted to the training part alone, since the paper does not say
what it was fitted to.
"""

OVERVIEW = """\
## All rows

Ours, and the paper's in brackets. Bold: at or below the paper's. An exclamation mark: more than
two standard errors above it.
"""

TITLES = {
    "euclidean": "kNN, Euclidean",
    "pca": "kNN, PCA",
    "pca_1nn": "1-NN, PCA (not in the paper)",
    "lda": "kNN, LDA",
    "rca": "kNN, RCA",
    "mmc": "kNN, MMC",
    "nca": "kNN, NCA",
    "lmnn": "LMNN",
    "lmnn_early": "LMNN, stopped early (not in the paper)",
    "lmnn_lda": "LMNN after LDA",
    "energy": "LMNN, energy (equation 15)",
    "energy_of_program": "LMNN, energy (the authors' program)",
    "multi_pass": "LMNN, multiple passes",
    "multi_pass_energy": "LMNN, multiple passes, energy (not in the paper)",
    "multi_pass_energy_of_program": "LMNN, multiple passes, energy of the program",
    "multi_metric": "LMNN, multiple metrics",
    "multi_metric_energy": "LMNN, multiple metrics, energy (not in the paper)",
    "multi_metric_energy_of_program": "LMNN, multiple metrics, energy of the program",
    "chosen": "LMNN, k by validation",
    "chosen_energy": "LMNN, k by validation, energy of the program",
    "default": "LMNN() with shrinkage",
    "default_energy": "LMNN() with shrinkage, energy of the program",
    "default_passes": "LMNN() with shrinkage, multiple passes",
    "default_metrics": "MultiMetricLMNN() with shrinkage",
    "svm": "multiclass SVM",
}
WITH_SHRINKAGE = ("default", "default_energy", "default_passes", "default_metrics")
ROWS = """\
The rows: *LDA* and *SVM* are scikit-learn's (the SVM one against one, its kernel and constants by
cross validation on at most 2000 rows; on MNIST a polynomial of degree 4, on words linear, one
against the rest). *RCA* has every class as one chunklet, *MMC* all pairs of a class as near and all
others as far, and *NCA* starts from a multiple of the identity. *LMNN* stops early on 30 %
of the training part, from the identity, where the table says so (Yale faces, Olivetti, iris), and
elsewhere in a row of its own; all training points vote. *Multiple passes*: their number, at most
8, is the best on 30 % of the training part, and then they are made on all of it; where the table
has validation they end when the held-out error falls no more. *Multiple metrics*: one a class,
stopped early on 30 % of the training part, as section 5.2 says, and started from the single metric
of the other 70 %. *k by validation*: 1, 3, 5 or 10 target neighbours and as many votes, the best on
30 % of the training part, as the thesis says (section 2.1.6). *With shrinkage*: nearfar's defaults,
which keep some of a known distance, on all training points; several passes are stopped by 30 % of
them.
"""
REASONS = """\
## Where ours is worse, and why

- **Olivetti** by PCA and NCA: the paper's figures look like those of k = 1, not 3; its Euclidean
  error is near ours for k = 3. PCA fitted to all images gives LDA an error of 9.5 %, near the
  paper's, so that this may be what it was fitted to.
- **balance**, LMNN: the paper's figure is that of the thesis, where k was chosen by validation. The
  row *k by validation* repeats that and comes to it. With k = 3 the optimum, which is certified
  here, has 4261 active triplets, not the paper's 41522; 10 target neighbours have 37129.
- **Olivetti**, k by validation: these fits run to the optimum, where the paper's row stops early,
  and in 200 dimensions the optimum of the paper's program fits 280 images too well. The default,
  which keeps some of a known distance, errs less than either.
- **Energy**: the printed figures are not those of equation 15. The program that the authors
  published in 2006 takes the targets of a new point under the metric, and leaves the unit margin
  out of the second term (`docs/algorithms/energy.md` derives it). With that rule our certified
  metrics come close to the paper's figures or below them, and it is nearfar's default.
- **Yale**, multiple metrics: 38 metrics in 295 dimensions are too many for the 31 images of each
  subject that 30 % held out leave. With the 200 components of the paper's text instead of the 300
  of its table, three splits give 4.6 %, and 4.05 % with a tenth held out. With shrinkage, on all
  training images, the 300 components give 4.75 % (one metric 5.06 %): more than half of the gap is
  closed. On the first five splits, which are easier than the others, they give 4.5 %, and the 200
  of the text (*yale_200*) 4.3 %, less than one metric on each of the five and the paper's figure
  within a standard error. Which components that figure is of stays open: LDA is nearer to the
  paper's with 300. The faces are those of Extended Yale B, and at hand only in 32 x 32 pixels.
- **20news**, several passes and metrics: other articles, words and weights, so that the figures
  cannot be compared beyond the first digit.
- **wine**, Euclidean: 25 % is what 1-NN gives with 150 training points (24 %); with 106 of them k =
  1, 3, 5, 7 and 9 all err 28 to 32 %. The paper's NCA shares this: from the identity itself, where
  every point is sure of its nearest neighbour, scikit-learn's makes no step and errs 30.5 %; from
  a multiple that makes near ones about as likely it learns.
- **MMC**: the optimum, which is certified here, is better than the paper's figures on three sets,
  so that these may not be of the optimum. On Olivetti it is too much for 840 near pairs in 200
  dimensions; six splits with a ridge of a tenth of the variances give 22.6 %.
- **balance**, several passes: eight passes on every split give 5.8 %; held-out rows often choose
  fewer.
- **RCA** is L = C^(-1/2), as in section 2.2.3. The paper ran its authors' code, and its figures are
  close to those of LDA on every set, as after a reduction to as few dimensions.
"""


def page(records):
    """The page from the records of all machines."""
    rows = best_rows(records)
    parts = [INTRODUCTION, ROWS]
    if rows:
        parts += [_overview(rows), _with_shrinkage(rows), REASONS]
        parts += [_section(data, rows) for data in PROTOCOLS if any(data == d for d, _ in rows)]
        parts.append(machines(records))
    return "\n".join(parts)


def error_of(row):
    """Mean error and its standard error, both in percent."""
    errors = [100 * error for _, error, *_ in row["splits"]]
    if len(errors) > 1:
        return mean(errors), stdev(errors) / math.sqrt(len(errors))
    share = errors[0] / 100
    n = PROTOCOLS[row["data"]].test
    return errors[0], 100 * math.sqrt(share * (1 - share) / n)


def difference(row):
    """Ours minus the paper's error in standard errors of ours, or None where there is no such."""
    theirs = table1_paper.error(row["method"], row["data"])
    if theirs is None:
        return None
    ours, spread = error_of(row)
    return (ours - theirs) / spread if spread > 0 else None


def _overview(rows):
    data = [name for name in PROTOCOLS if any(name == d for d, _ in rows)]
    lines = []
    for method, title in TITLES.items():
        cells = [_cell(rows.get((name, method)), method, name) for name in data]
        if any(cells):
            lines.append([title, *cells])
    return OVERVIEW + "\n" + markdown(["", *data], lines)


def _with_shrinkage(rows):
    """How many figures of the defaults are at or below the paper's, and which are not."""
    met, above, missing = 0, [], []
    for method in WITH_SHRINKAGE:
        for data in PROTOCOLS:
            theirs = table1_paper.error(method, data)
            if theirs is None or data in table1_paper.SAME:
                continue
            title = f"{data}, {TITLES[method]}"
            row = rows.get((data, method))
            if row is None:
                missing.append(title)
            elif round(error_of(row)[0], 2) <= theirs:
                met += 1
            else:
                ours, spread = error_of(row)
                above.append(f"{title}: {ours:.2f} ± {spread:.2f} ({theirs:.2f})")
    if met + len(above) == 0:
        return ""
    lines = [
        "## The defaults against the paper\n",
        "The goal is all figures of the LMNN family with shrinkage at or below the paper's."
        f" {met} of {met + len(above)} are.",
    ]
    lines += [f" Above it: {'; '.join(above)}."] if above else []
    lines += [f" Not measured: {'; '.join(missing)}."] if missing else []
    return lines[0] + "\n" + "".join(lines[1:]) + "\n"


def _cell(row, method, data):
    theirs = table1_paper.error(method, data)
    bracket = "" if theirs is None else f" ({theirs:.2f})"
    if row is None:
        return bracket.strip()
    ours, _ = error_of(row)
    gap = difference(row)
    text = f"{ours:.2f}"
    if theirs is not None and round(ours, 2) <= theirs:
        text = f"**{text}**"
    return text + bracket + ("!" if gap is not None and gap > 2 else "")


def _section(data, rows):
    protocol = PROTOCOLS[data]
    sizes = f"{protocol.train} training and {protocol.test} test points"
    facts = " ".join([sizes, f"in {protocol.classes} classes.", *NOTES[data].split()])
    lines = [_line(rows[data, method], method, data) for method in TITLES if (data, method) in rows]
    header = ["method", "paper", "ours", "difference", "splits", "learning", "predicting", ""]
    return f"## {data}\n\n{facts}\n\n" + markdown(header, lines)


def _line(row, method, data):
    theirs, gap = table1_paper.error(method, data), difference(row)
    ours, spread = error_of(row)
    learning, predicting = (mean(split[i] for split in row["splits"]) for i in (2, 3))
    paper = table1_paper.seconds(method, data)
    return [
        TITLES[method],
        "" if theirs is None else f"{theirs:.2f}",
        f"{ours:.2f} ± {spread:.2f}",
        "" if gap is None else f"{gap:+.1f}",
        str(len(row["splits"])),
        f"{learning:.3g}" + ("" if paper is None else f" (paper: {paper})"),
        f"{predicting:.3g}",
        _remarks(row),
    ]


def _remarks(row):
    """The remarks of the splits, the most frequent ones first."""
    counts = Counter(remark for *_, remark in row["splits"] if remark)
    total = len(row["splits"])
    parts = [text if n == total else f"{text} ({n})" for text, n in counts.most_common(4)]
    return "; ".join(parts)
