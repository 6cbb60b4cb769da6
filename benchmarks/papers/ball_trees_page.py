"""docs/results/ball_trees.md from the record of ``python -m benchmarks.papers.ball_trees``."""

from nearfar.kernels.search import quickest

# JMLR Fig. 13, thesis Fig. 2.17: dimensions, LMNN-R's 3-NN error in %, speed-up by ball trees
PAPER = {
    15: (2.38, 15),
    20: (2.09, 9),
    25: (1.76, 6),
    30: (1.82, 5),
    35: (1.79, 4),
    40: (1.80, 3),
    45: (1.81, 3),
    50: (1.84, 3),
}
PAPER_RAW = 2.33  # % of the raw images

INTRODUCTION = """\
# Low dimensions and trees

`python -m benchmarks.papers.ball_trees --page` writes this page from
`benchmarks/results/ball_trees.json`; do not edit it. `benchmarks/README.md` says how to repeat the
runs.

Section 6 of the LMNN paper (thesis, section 2.1.9) makes 3-NN search and the search for impostors
faster by projecting MNIST to few dimensions and by ball trees. Here are its Figs. 10, 12 and 13
(thesis: 2.13, 2.16, 2.17) measured again. What the paper calls naive is a loop over all points that
breaks off each distance as soon as it is too long. Here trees have to beat matrix products, which
are many times faster than such a loop, so that the same trees gain less.
"""

SEARCH = """\
## 3-NN search (JMLR Fig. 10, thesis Fig. 2.13)

Milliseconds to find the 3 nearest of {n} training points, and in brackets how many times faster
that is than by products in all {d} dimensions: points projected on their leading principal
components, processor time on one thread. *Chosen* is what `algorithm="auto"` takes. Building a
tree takes {build:.2g} s at most and is not counted.
"""

IMPOSTORS = """\
## Search for impostors (JMLR Fig. 12, thesis Fig. 2.16)

Seconds to find all impostors of all {n} training points, and in brackets how many times faster than
the search of all pairs by blocked products: one thread, principal components, at the map of LMNN
learned from some of the points. *Trees*: one for each class, as in the paper, building included;
timed on a sample of the points. *nearfar*: blocks of near points and the slabs between them (see
`nearfar.kernels.slabs`) where these leave few pairs, else all pairs.
"""

LOW_RANK = """\
## Errors in few dimensions (JMLR Fig. 13, thesis Fig. 2.17)

3-NN test error in % after reducing {inputs} principal components of the {n} training points: by PCA
itself; LMNN-S, the leading directions of the full metric; LMNN-R, a rectangular map learned as such
(`LMNN(n_components=r)`). The raw images have {raw:.2f} % (paper: {paper:.2f} %), the full metric
{full:.2f} %, learned in {seconds:.1f} s to a certified gap of {gap:.1e}. The paper gives numbers
for LMNN-R only. *Search*: how many times faster than by products in all dimensions, see above.
"""


def page(record):
    """The parts that have been measured."""
    parts = {"search": _search, "impostors": _impostors, "low-rank": _low_rank}
    texts = [make(record) for part, make in parts.items() if part in record]
    return "\n".join([INTRODUCTION, *texts])


def _facts(part):
    machine = part["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in part["versions"].items())
    device = f"{machine['device']}, " if "device" in machine else ""
    return (
        f"{device}{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"{machine['system']}; seed {part['seed']}; {part['date']}; commit {part['commit']}; "
        f"{versions}.\n"
    )


def _table(header, rows):
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines) + "\n"


def _search(record):
    part = record["search"]
    whole, *rows = part["measured"]
    base, queries = whole["products"], part["queries"]
    names = {"ball_tree": "ball tree", "kd_tree": "kd-tree", "products": "products"}

    def cell(row, name):
        return f"{1e3 * row[name] / queries:.3g} ({base / row[name]:.3g} x)"

    lines = [
        [
            row["dimensions"],
            *(cell(row, name) for name in names),
            quickest(part["points"], row["dimensions"]).replace("_", "-"),
        ]
        for row in rows
    ]
    lines.append([whole["dimensions"], "", "", cell(whole, "products"), ""])
    build = max(row[f"{name} built"] for row in rows for name in ("ball_tree", "kd_tree"))
    text = SEARCH.format(d=whole["dimensions"], n=part["points"], build=build)
    header = ["dimensions", *names.values(), "chosen"]
    return "\n".join([text, _facts(part), _table(header, lines)])


def _impostors(record):
    part = record["impostors"]
    names = {"ball_tree": "ball trees", "kd_tree": "kd-trees", "nearfar": "nearfar"}

    def cell(row, name):
        return f"{row[name]:.3g} ({row['all pairs'] / row[name]:.3g} x)"

    lines = [
        [
            row["dimensions"],
            row["impostors"],
            f"{row['all pairs']:.3g}",
            *(cell(row, name) for name in names),
            "blocks" if row["pruned"] else "all pairs",
        ]
        for row in part["measured"]
    ]
    header = ["dimensions", "impostors", "all pairs", *names.values(), "nearfar compares"]
    return "\n".join([IMPOSTORS.format(n=part["points"]), _facts(part), _table(header, lines)])


def _low_rank(record):
    part = record["low-rank"]
    whole, *rows = part["measured"]
    faster = {}
    if "search" in record:
        base, *found = record["search"]["measured"]
        for one in found:
            ratios = [base["products"] / one[name] for name in ("ball_tree", "products")]
            faster[one["dimensions"]] = [f"{ratio:.2g} x" for ratio in ratios]
    lines = []
    for row in rows:
        r = row["dimensions"]
        errors = [f"{row[name]:.2f}" for name in ("pca", "lmnn_s", "lmnn_r")]
        error, speed_up = (f"{PAPER[r][0]:.2f}", f"{PAPER[r][1]} x") if r in PAPER else ("", "")
        search = [*faster.get(r, ["", ""]), speed_up]
        lines.append([r, *errors, error, *search, f"{row['seconds']:.3g}"])
    text = LOW_RANK.format(
        inputs=whole["inputs"],
        n=part["points"],
        raw=whole["raw"],
        paper=PAPER_RAW,
        full=whole["lmnn"],
        seconds=whole["lmnn seconds"],
        gap=whole["gap"],
    )
    header = ["dimensions", "PCA", "LMNN-S", "LMNN-R", "paper's LMNN-R", "search by ball tree"]
    header += ["by products", "paper's ball tree", "seconds to learn LMNN-R"]
    return "\n".join([text, _facts(part), _table(header, lines)])
