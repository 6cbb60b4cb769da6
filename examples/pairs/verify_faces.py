"""
The same person? Faces from pairs
=================================

A door opens if two photographs show the same person. Who that is need not be known, and most people
who come have not been seen before. So the metric is learned from pairs of photographs that are said
to show one person or two, and tried on people of whom nothing was learned.

Where the environment variable ``NEARFAR_DATA`` names a folder with olivetti_faces.npz, these are
400 photographs of 40 people. Elsewhere painted balls stand in for them, each lit from ten sides.
"""

# %%
# Photographs
# -----------

import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from nearfar import LMNN, RCA, LinearMetric, PairClassifier, make_pairs
from nearfar.evaluation import equal_error_rate, true_positive_rate_at
from nearfar.plots import DistancesDisplay


def painted_balls(people=40, photographs=10, side=24):
    """Balls with blurred spots, a pattern for each person, lit from various sides."""
    random = np.random.default_rng(0)
    across, down = np.meshgrid(*2 * [np.linspace(-0.7, 0.7, side)])
    normals = np.stack([across, down, np.sqrt(1 - across**2 - down**2)])
    spots = random.uniform(-0.7, 0.7, (people, 8, 2, 1, 1))
    depths = np.exp(-((normals[:2] - spots) ** 2).sum(axis=2) / 0.03).sum(axis=1)
    lights = random.normal([0, 0, 1], 0.3, (people, photographs, 3))
    lights /= np.linalg.norm(lights, axis=2, keepdims=True)
    images = np.tensordot(lights, normals, 1).clip(0) * (1 - 0.3 * depths[:, None]).clip(0)
    images += random.normal(0, 0.1, images.shape)
    return images.reshape(people * photographs, side * side), np.repeat(range(people), photographs)


path = Path(os.environ.get("NEARFAR_DATA", "")) / "olivetti_faces.npz"
if path.is_file():
    with np.load(path, allow_pickle=False) as data:
        X, who = data["X"] / 255.0, data["y"]
    print("Olivetti faces")
else:
    X, who = painted_balls()
    print("painted balls in place of faces")
people = np.unique(who)
side = round(X.shape[1] ** 0.5)

figure, axes = plt.subplots(3, 8, figsize=(8, 3.2), layout="constrained")
for row, person in zip(axes, people, strict=False):
    for ax, image in zip(row, X[who == person], strict=False):
        ax.imshow(image.reshape(side, side), cmap="gray", vmin=0, vmax=1)
        ax.set_axis_off()
figure.suptitle("in each row the same one")

# %%
# What is known, and what is asked
# --------------------------------
#
# Of the 40 people 25 are there to learn from, as pairs: 1000 of the same and 1000 of different
# people, drawn at random. All pairs of photographs of the other 15 are the questions. A photograph
# is 80 numbers, its principal components among those of the known people.


def split(seed):
    """Pairs of known people and all pairs of new ones, each with +1 for alike and -1 for not."""
    known = np.isin(who, np.random.default_rng(seed).permutation(people)[:25])
    short = PCA(80, svd_solver="randomized", random_state=0).fit(X[known])
    pairs = make_pairs(short.transform(X[known]), who[known], 1000, random_state=seed)
    questions = make_pairs(short.transform(X[~known]), who[~known], balanced=False)
    return *pairs, *questions


pairs, alike, questions, answers = split(0)
print("known:", pairs, f"{np.mean(alike == 1):.0%} alike")
print("asked:", questions, f"{np.mean(answers == 1):.0%} alike")

# %%
# Before and after
# ----------------
#
# :class:`nearfar.RCA` looks at how photographs of one person differ, by light, pose and mood, and
# shrinks these directions. The left panel shows the distances of the new pairs as they are, the
# middle one those that were learned. The curve says what share of the right pairs passes for each
# share of the wrong ones that passes with them.

before, after = LinearMetric().fit(pairs.points), RCA().fit(pairs, alike)
DistancesDisplay.from_predictions(
    answers,
    {
        "Euclidean distance": before.pair_distance(questions),
        "learned by RCA": after.pair_distance(questions),
    },
)

# %%
# Are fifteen people enough to tell? Who is known and who is new is drawn ten times. The equal error
# rate is that of the threshold that refuses as large a share of the right pairs as it lets pass of
# the wrong ones; a strict door lets one of a hundred wrong pairs pass.
#
# If it is known who is on the photographs, :class:`nearfar.LMNN` can learn from them: it pulls
# those of one person together and pushes others away. It is a metric for known people, and yet it
# serves for people whom it has never seen.

NAMES = ("Euclidean", "RCA", "LMNN")
rates = []
for seed in range(10):
    pairs, alike, questions, answers = split(seed)
    names = who[np.isin(who, np.random.default_rng(seed).permutation(people)[:25])]
    learned = RCA().fit(pairs, alike), LMNN().fit(pairs.points, names)
    for metric in (LinearMetric().fit(pairs.points), *learned):
        distances = metric.pair_distance(questions)
        strict = true_positive_rate_at(answers, distances, 0.01)
        rates.append((equal_error_rate(answers, distances), strict))
rates = 100 * np.reshape(rates, (10, 3, 2))  # draws, metrics, measures

print("mean and deviation of ten draws")
print(f"{'':<11}{'equal error rate':>18}{'right pairs at a strict door':>31}")
for name, measures in zip(NAMES, rates.transpose(1, 2, 0), strict=True):
    cells = [f"{part.mean():.1f} ± {part.std(ddof=1):.1f} %" for part in measures]
    print(f"{name:<11}{cells[0]:>18}{cells[1]:>31}")
for i, name in enumerate(NAMES[1:], 1):
    better = np.sum(rates[:, i, 0] < rates[:, 0, 0])
    print(f"{name} has a lower equal error rate than the inputs in {better} of 10 draws")

# %%
# A door with a threshold
# -----------------------
#
# :class:`nearfar.PairClassifier` keeps a metric together with a threshold, here the one that passes
# 90 % of the right pairs. Set by the pairs that the metric was learned from, it may be too strict
# for people who were not among them. So some of the new people set it, and the others ask.

pairs, alike, questions, answers = split(0)
setting = (questions.indices < 70).all(axis=1)  # seven people of ten photographs each
asking = (questions.indices >= 70).all(axis=1)  # eight others
door = PairClassifier(RCA()).fit(pairs, alike)
examples = {
    "known people": (pairs, alike),
    "new people": (questions[setting], answers[setting]),
}
print("share of pairs that pass, with a threshold set by")
for name, example in examples.items():
    door.calibrate_threshold(*example, calibrate="true_positive_rate", rate=0.9)
    passed = door.predict(questions[asking]) == 1
    right, wrong = (np.mean(passed[answers[asking] == kind]) for kind in (1, -1))
    print(f"{name:<13} right pairs {right:.0%}, wrong pairs {wrong:.0%}")

plt.show()
