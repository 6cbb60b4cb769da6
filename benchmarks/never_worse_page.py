"""The page of ``benchmarks.never_worse``, from its records."""

import sys
from dataclasses import dataclass

import numpy as np

from benchmarks import tables

INTRODUCTION = """\
# Never worse?

Is a distance that was learned at its default ever worse than the inputs as they are? Written by
`python -m benchmarks.never_worse` from its record.

A *case* is a real data set with 5, 10, 20 or 50 labelled rows a class, or all that may be learned
from, raw or standardised. Wide sets are reduced by a PCA that is fitted to the training rows. In
every split all learners get the same rows. Errors are those of 3-NN on at most 500 other rows;
`MultiMetricLMNN` classifies by its own rule. A learner is *worse* in a case if its error exceeds
that of the same inputs by more than one standard error of the paired differences over the splits.
Where there is no difference at all, chance alone makes about one case in six worse by that measure,
and one in forty by two standard errors.

The *best linear method* of a case is the one with the least mean error. It is so partly by luck: of
methods that are all alike, one is the best of these splits, and the others seem to be worse. So a
second column compares, in each split, with the method that is best in the other splits.
"""
GOALS = """\
## What was aimed at, and what was tried

Two goals are not met. *No learner is worse than the inputs by more than one standard error on any
set*: the table above says how often each is, and the page of each that loses says so, too. LMNN,
MCML, NCA, LFDA, MMC, DMLEig, SDML, SCML, GMML, KernelLMNN and KernelMMC are worse in 1 to 5 % of
their cases, where chance makes about one in six worse if there is no difference, and by two
standard errors in at most 1 %. KernelMCML and ITML are in 4 and 5 %, and by two standard errors in
2 %. MultiMetricLMNN, LSML and RCA are in 6 or 7 %, and by two standard errors in 2 or 3 %.
KernelPOLA and POLA are in 8 and 13 %, and by two standard errors in 4 and 5 %, more than the one in
forty of chance.
Standardised features, LDA and shrunk LDA are in 22 to 33 %.

ITML, MMC, SCML and SDML at their defaults try themselves on parts of the rows and warn
(`WorseThanInputsWarning`). Small losses are not seen by so few rows: with all rows, in one split,
SCML and SDML with earlier defaults were warned of in 7 of the 21 and in 9 of the 15 cases in which
they were worse by two standard errors; and of the cases in which they were not worse, in 1 of 83
(not in the records). LMNN, KernelLMNN and MultiMetricLMNN compare on the rows that they hold out,
where they do (`validation_fraction`). The others have no such rows at hand and do not warn.

What LMNN, MultiMetricLMNN, MCML, NCA, MMC, DMLEig, SCML and SDML keep is the same distance, which
labels have shaped already, and most of what they gain is that distance: alone, it is worse than the
inputs in 5 cases by one standard error and in 1 by two, with a mean error of 23.6 % (four or five
of the splits above; not in the records). In the first four splits LMNN and NCA have 23.4 %, MCML
23.6 %, DMLEig 23.7 %, SCML 23.8 %, SDML 24.0 % and the inputs 29.6 %; in all splits it is 23.5 %,
23.5 %, 23.7 %, 23.8 %, 23.8 %, 24.0 % and 29.7 %. So only LMNN and NCA gain on what they keep. How
much of it the six that followed LMNN and MultiMetricLMNN keep was chosen on every second set (148
cases) and confirmed on the others.

ITML and LSML are near this distance as their prior, too, and their losses weigh no more than the
rows allow: with all n (n - 1) / 2 pairs at a weight of 1 any prior was lost, and the errors were
lower but ITML was worse than the inputs as often. KernelLMNN, KernelMCML and KernelMMC have this
distance inside an RBF kernel, which is wide: a narrow one hardly tells far points apart, so that
what was learned decided, however little (spambase). These rules were chosen on every second set
with two or three splits, up to 100 rows. On these sets, and on the others, they are worse now, and
were with the former defaults, in % of the cases, by one standard error and by two:

| learner | chosen on: before | now | others: before | now |
| --- | --- | --- | --- | --- |
| KernelMMC | 29, 16 | 4, 1 | 23, 12 | 5, 1 |
| KernelLMNN | 16, 9 | 1, 0 | 7, 0 | 4, 1 |
| KernelMCML | 12, 7 | 1, 1 | 6, 2 | 6, 4 |
| ITML | 12, 8 | 3, 1 | 21, 12 | 8, 4 |
| LSML | 6, 3 | 2, 1 | 6, 4 | 11, 4 |

So LSML gains in the mean (-5.7 points, before -3.1), but on the others it is worse more often. How
wide the kernel is was chosen on all sets: with a tenth of the usual gamma in place of three tenths
KernelMCML was worse in 9 and 4 % of all cases, KernelMMC in 4 and 1 % and KernelLMNN in 2 and 1 %
(not in the records).

*LMNN is the best linear method or within one standard error of it on 80 % of the sets*: it is not,
and since eight of its rivals keep the same distance it is on fewer: on 11 and 18 of the 34 sets, in
the two senses of the table above. Without these eight it would be on 22 and 23. Beside the inputs,
standardised features, LDA and shrunk LDA alone it is in four cases of five, but on 24 sets: the
mean of up to ten cases has a smaller standard error. In the cases where it is further behind, NCA
is most often the best, then LDA and shrunk LDA, mostly with few labels, which forget all directions
that do not part the means of the classes.

So two other rules for the distance that LMNN keeps were tried, which have discriminants that keep
hardly any other direction among their parts, shrunk much and little, and weights by mistakes
relative to the square root of the least: with the same share for all parts, and with half a share
for these. They were chosen on every second set (148 cases, three splits) and then measured on the
others (142 cases, five splits), the second after the first had been. *Near the best* is in the two
senses of the table above, among rivals with the defaults that they had before they kept the same
distance. These figures are not in the records.

| rule | sets | error, % | worse than the inputs | cases near the best, % | sets near it |
| --- | --- | --- | --- | --- | --- |
| the default | chosen on | 22.27 | 4 | 60, 69 | 12, 13 of 17 |
| same shares | chosen on | 21.95 | 2 | 63, 77 | 14, 14 of 17 |
| half shares | chosen on | 21.95 | 3 | 63, 76 | 14, 14 of 17 |
| the default | others | 24.94 | 6 | 49, 65 | 11, 13 of 17 |
| same shares | others | 24.84 | 10 | 55, 66 | 11, 11 of 17 |
| half shares | others | 24.85 | 9 | 55, 70 | 10, 11 of 17 |

What they gain on the sets that they were chosen on is mostly gone on the others, where they are
worse than the inputs more often (phonemes, whose classes have several pieces). The default stays.
"""
SHOWN = 8  # cases of a learner in the list
BEST = "LMNN"


@dataclass(frozen=True)
class Comparison:
    """Errors of a learner minus those of another in one case, in points, over the splits."""

    case: dict
    mean: float
    deviation: float  # standard error of the mean
    errors: tuple[float, float]

    @property
    def worse(self):
        return self.mean > 0 and self.mean > self.deviation

    @property
    def clearly_worse(self):
        return self.mean > 0 and self.mean > 2 * self.deviation


def errors(case, learner):
    """{split: error in %} of the splits that did not fail."""
    found = {number: split.get(learner) for number, split in case["splits"].items()}
    return {n: 100 * value[0] for n, value in found.items() if isinstance(value, list)}


def compare(case, learner, other):
    """The two learners on the splits that both have; None if there are fewer than two."""
    ours, theirs = errors(case, learner), errors(case, other)
    both = [number for number in ours if number in theirs]
    if len(both) < 2:
        return None
    a, b = (np.array([found[number] for number in both]) for found in (ours, theirs))
    difference = a - b
    deviation = difference.std(ddof=1) / np.sqrt(len(both))
    return Comparison(case, difference.mean(), deviation, (a.mean(), b.mean()))


def table_of(case, learner, linear):
    """Errors (methods, splits) of the linear methods that have all splits of the learner.

    The learner comes first; None if it has fewer than two splits.
    """
    found = {name: errors(case, name) for name in (learner, *linear)}
    numbers = list(found[learner])
    if len(numbers) < 2:
        return None
    complete = [name for name in found if all(number in found[name] for number in numbers)]
    return np.array([[found[name][number] for number in numbers] for name in complete])


def behind_best(table):
    """What the first row of `table_of` lacks of the best row in each split, chosen by all."""
    return table[0] - table[table.mean(axis=1).argmin()]


def behind_best_of_others(table):
    """The same, the best row of each split chosen by the other splits."""
    sums = table.sum(axis=1, keepdims=True) - table
    return table[0] - table[sums.argmin(axis=0), np.arange(table.shape[1])]


SENSES = (behind_best, behind_best_of_others)


def within_one(difference):
    """Whether differences over the splits have a mean of at most their standard error, or zero."""
    return difference.mean() <= max(difference.std(ddof=1) / np.sqrt(len(difference)), 0)


def page(records, learners, linear, most_rows, baselines=()):
    cases = merged(records)
    if not cases:
        return INTRODUCTION
    parts = [INTRODUCTION, _data(records, cases), "## Worse than the inputs\n"]
    parts.append(_summary(cases, learners, linear, most_rows))
    parts += [_by_size(cases, linear), _by_set(cases, linear)]
    parts += [_beside_baselines(cases, baselines), GOALS]
    parts += [_errors(cases, learners), _worse(cases, learners)]
    parts += [_failures(cases), _machines(records)]
    return "\n".join(part for part in parts if part)


def merged(records):
    """The cases of all records; a split of a case has the learners of all of them.

    A split without the inputs is left out: some learners alone were measured in it, and whoever
    took part in more splits than others would be compared with few of them.
    """
    cases = {}
    for record in records:
        for case in record["cases"]:
            key = case["data"], case["size"], case["inputs"]
            splits = cases.setdefault(key, {**case, "splits": {}})["splits"]
            for number, found in case["splits"].items():
                splits[number] = splits.get(number, {}) | found
    for case in cases.values():
        case["splits"] = {n: split for n, split in case["splits"].items() if "inputs" in split}
    return list(cases.values())


def title(case):
    size = case["size"] if case["size"] == "all" else f"{case['size']} a class"
    return f"{case['data']}, {size}, {case['inputs']}"


def _data(records, cases):
    sets = {case["data"]: case for case in cases}
    splits = sorted({len(case["splits"]) for case in cases})
    number = f"{splits[0]}" if len(splits) == 1 else f"{splits[0]} to {splits[-1]}"
    rows = max(record["max_rows"] for record in records)
    return (
        f"{len(sets)} sets, {len(cases)} cases, {number} splits, at most {rows} rows to learn"
        f" from: {', '.join(sets)}.\n"
    )


def _share(part, whole):
    return f"{part} ({100 * part / whole:.0f} %)"


def _summary(cases, learners, linear, most_rows):
    rows = []
    for learner in learners:
        found = [c for case in cases if (c := compare(case, learner, "inputs"))]
        if learner == "inputs" or not found:
            continue
        worst = max(found, key=lambda c: c.mean)
        limit = most_rows(learner)
        rows.append(
            [
                learner + (f", up to {limit} rows" if limit < sys.maxsize else ""),
                str(len(found)),
                _share(sum(c.worse for c in found), len(found)),
                _share(sum(c.clearly_worse for c in found), len(found)),
                f"{np.mean([c.mean for c in found]):+.1f}",
                f"{worst.mean:+.1f} ({title(worst.case)})" if worst.mean > 0 else "none",
                *(near_best(cases, learner, linear) if learner in linear else ("", "")),
            ]
        )
    header = ["learner", "cases", "worse", "worse by two standard errors", "mean change, points"]
    header += ["worst case, points", "best linear method or within one standard error"]
    header += ["the same, the best chosen by other splits"]
    return tables.markdown(header, rows)


def near_best(cases, learner, linear):
    """In how many of its cases a method is not worse than the best linear one, in two senses."""
    tables_ = [t for case in cases if (t := table_of(case, learner, linear)) is not None]
    return [
        _share(sum(within_one(behind(t)) for t in tables_), len(tables_)) if tables_ else ""
        for behind in SENSES
    ]


def mean_case(cases):
    """One case with the mean errors of several, of learners that have a split in all of them."""
    splits = {}
    for number in cases[0]["splits"]:
        found = [case["splits"].get(number, {}) for case in cases]
        errors_of = {name: [each.get(name) for each in found] for name in found[0]}
        splits[number] = {
            name: [np.mean([value[0] for value in values]), 0.0]
            for name, values in errors_of.items()
            if all(isinstance(value, list) for value in values)
        }
    return {**cases[0], "splits": splits}


def _by_set(cases, linear):
    sets = {}
    for case in cases:
        sets.setdefault(case["data"], []).append(case)
    rows, near = [], np.zeros(2, dtype=int)
    for data, some in sets.items():
        whole = mean_case(some)
        table = table_of(whole, BEST, linear)
        if table is None:
            continue
        verdicts = [within_one(f(table)) for f in SENSES]
        near += verdicts
        found = {name: compare(whole, BEST, name) for name in linear if errors(whole, name)}
        name, best = max(
            ((name, c) for name, c in found.items() if c), key=lambda item: item[1].mean
        )
        behind = f"{best.mean:.2f} ± {best.deviation:.2f}" if best.mean > 0 else ""
        rows.append([data, f"{best.errors[0]:.1f}", name, f"{best.errors[1]:.1f}", behind])
        rows[-1] += ["yes" if verdict else "no" for verdict in verdicts]
    if not rows:
        return ""
    header = ["data", BEST, "best linear method", "its error", f"{BEST} behind it, points"]
    header += ["within one standard error", "the same, the best chosen by other splits"]
    shares = " and ".join(_share(count, len(rows)) for count in near)
    return (
        f"## {BEST} by data set\n\nMean errors in % over the cases of a set, of methods that were"
        f" measured in all of them. {BEST} is the best or within one standard error of the best in"
        f" {shares} of {len(rows)} sets, in the two senses.\n\n{tables.markdown(header, rows)}"
    )


def _beside_baselines(cases, baselines):
    """How often the learner is near the best of the methods that are none of nearfar's."""
    found = [(n, t) for n in ("cases", "sets") if (t := _tables(cases, baselines, n))]
    if not found:
        return ""
    shares = [
        " and ".join(_share(sum(within_one(f(t)) for t in some), len(some)) for f in SENSES)
        + f" of {len(some)} {name}"
        for name, some in found
    ]
    others = f"{', '.join(baselines[:-1])} and {baselines[-1]}"
    return (
        f"Beside {others} alone, {BEST} is the best or within one standard error of the best in"
        f" {', and in '.join(shares)}, in the two senses.\n"
    )


def _tables(cases, linear, name):
    """`table_of` of all cases, or of the mean cases of all sets."""
    if name == "sets":
        sets = {}
        for case in cases:
            sets.setdefault(case["data"], []).append(case)
        cases = list(map(mean_case, sets.values()))
    return [t for case in cases if (t := table_of(case, BEST, linear)) is not None]


def _by_size(cases, linear):
    groups = {}
    for case in cases:
        groups.setdefault((case["size"], case["inputs"]), []).append(case)
    rows = []
    for (size, inputs), some in groups.items():
        found = [c for case in some if (c := compare(case, BEST, "inputs"))]
        if found:
            worse = _share(sum(c.worse for c in found), len(found))
            rows.append([size, inputs, str(len(found)), worse, *near_best(some, BEST, linear)])
    if not rows:
        return ""
    rows.sort(key=lambda row: (row[0] == "all", row[0].zfill(3), row[1]))
    header = ["labels a class", "inputs", "cases", "worse", "best or within one standard error"]
    header += ["the same, the best chosen by other splits"]
    return f"## {BEST} by the number of labels\n\n{tables.markdown(header, rows)}"


def _errors(cases, learners):
    """Mean errors where all rows are learned from, and with five a class."""
    parts = []
    for size, name in (("all", "all rows"), ("5", "five labels a class")):
        some = [case for case in cases if case["size"] == size]
        present = [n for n in learners if any(errors(case, n) for case in some)]
        rows = []
        for case in some:
            means = {n: np.mean(list(e.values())) for n in present if (e := errors(case, n))}
            best = min(means.values())
            cells = [
                "" if n not in means else f"**{v:.1f}**" if (v := means[n]) == best else f"{v:.1f}"
                for n in present
            ]
            shape = f"{case['rows']} × {case['columns']}, {case['classes']}"
            rows.append([f"{case['data']}, {case['inputs']}", shape, *cells])
        if rows:
            header = ["data", "rows × columns, classes", *present]
            parts.append(f"## 3-NN test errors in %, {name}\n\n{tables.markdown(header, rows)}")
    return "\n".join(parts)


def _worse(cases, learners):
    """The cases in which each learner is worse, the largest differences first."""
    lines = []
    for learner in learners:
        found = [c for case in cases if (c := compare(case, learner, "inputs")) and c.worse]
        if learner == "inputs" or not found:
            continue
        found.sort(key=lambda c: -c.mean)
        some = found if learner == BEST else found[:SHOWN]
        shown = "; ".join(f"{title(c.case)}: {c.mean:+.1f} ± {c.deviation:.1f}" for c in some)
        rest = f"; and {len(found) - len(some)} more" if len(found) > len(some) else ""
        lines.append(f"- **{learner}**, {len(found)}: {shown}{rest}.")
    if not lines:
        return ""
    return (
        "## Which cases\n\nPoints of error above the inputs, with their standard error; of each"
        f" learner the {SHOWN} largest, of {BEST} all.\n\n" + "\n".join(lines) + "\n"
    )


def _failures(cases):
    """Fits that raised: how many, in which cases, and the first message."""
    found = {}
    for case in cases:
        for split in case["splits"].values():
            for learner, value in split.items():
                if isinstance(value, str):
                    key = learner, value.partition(":")[0]
                    found.setdefault(key, []).append((title(case), value))
    if not found:
        return "## Failures\n\nNo fit failed.\n"
    rows = []
    for (learner, kind), entries in found.items():
        places = sorted({place for place, _ in entries})
        rest = f" and {len(places) - 3} more cases" if len(places) > 3 else ""
        message = " ".join(entries[0][1].split()).replace("|", "\\|")
        rows.append([learner, kind, str(len(entries)), "; ".join(places[:3]) + rest, message])
    header = ["learner", "error", "fits", "cases", "the first message"]
    return f"## Failures\n\n{tables.markdown(header, rows)}"


def _machines(records):
    lines = ["## Machines\n"]
    for record in records:
        machine, versions = record["machine"], record["versions"]
        note = f"; {record['note']}" if "note" in record else ""
        seconds = sum(
            value[1]
            for case in record["cases"]
            for split in case["splits"].values()
            for value in split.values()
            if isinstance(value, list)
        )
        lines.append(
            f"- {machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB,"
            f" {machine['system']}; {', '.join(f'{name} {v}' for name, v in versions.items())};"
            f" {seconds / 60:.0f} minutes of processor time; commits and dates:"
            f" {'; '.join(record['stamps'])}{note}."
        )
    return "\n".join(lines) + "\n"
