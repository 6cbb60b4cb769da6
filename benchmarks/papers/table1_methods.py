"""The rows of Table 1: each method learns from one split and answers with its test error."""

import time
import warnings
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from scipy import sparse
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.model_selection import GridSearchCV, StratifiedShuffleSplit, train_test_split
from sklearn.svm import SVC, LinearSVC

from benchmarks.papers import table1_data, table1_paper
from benchmarks.papers.table1_data import LARGE, Task
from benchmarks.papers.table1_paper import PROTOCOLS
from nearfar import (
    LMNN,
    MMC,
    NCA,
    RCA,
    EnergyClassifier,
    MultiMetricLMNN,
    NearestNeighborClassifier,
)
from nearfar.evaluation import choose_targets, knn_error
from nearfar.supervision import class_order, target_table

N_NEIGHBORS = 3
PUSH_WEIGHT = 0.5
VALIDATION = 0.3  # of the training part, wherever the paper holds rows out
MOST_PASSES = 8
TARGETS = (1, 3, 5, 10)  # target neighbours among which held-out rows choose

# The SVM's kernel and constants are chosen by cross validation on at most so many training rows.
SVM_ROWS = 2000
SVM_COSTS = [0.1, 1, 10, 100]
SVM_GRID = [
    {"kernel": ["linear"], "C": SVM_COSTS},
    {"kernel": ["poly"], "degree": [2, 3], "coef0": [1], "gamma": [1], "C": SVM_COSTS},
    {"kernel": ["rbf"], "gamma": [0.1, 0.3, 1, 3], "C": SVM_COSTS},
]
SVM_STEPS = 10**6  # of libsvm, which on features of different scales may never end


@dataclass(frozen=True)
class Result:
    """The test error, the seconds of learning and of predicting, and a remark."""

    error: float
    learning: float
    predicting: float
    remark: str = ""


class Learners:
    """The learners of one split; those that several rows need are fitted once."""

    def __init__(
        self, task: Task, device: str, n_neighbors: int = N_NEIGHBORS, *, stops: bool | None = None
    ):
        """``stops``: whether one metric is stopped early; None as in the paper."""
        self.task, self.device = task, device if task.data in LARGE else "cpu"
        self.n_neighbors = n_neighbors
        self.train, self.test = (self.placed(part) for part in task.reduced)
        self.y_train, self.y_test = task.labels
        # shrinkage=0 is the program of the paper
        self.options = {"n_neighbors": n_neighbors, "push_weight": PUSH_WEIGHT, "shrinkage": 0}
        # Where learning is stopped early its path matters: the paper's begins at the identity.
        self.early = {"validation_fraction": VALIDATION, "random_state": task.split}
        self.single = self.options
        if PROTOCOLS[task.data].validation is not None if stops is None else stops:
            self.single = self.options | self.early | {"init": "identity"}

    def placed(self, points):
        """The points where nearfar computes: a tensor on the device, or an array."""
        points = np.asarray(points, dtype=np.float32 if self.task.data in LARGE else np.float64)
        if self.device == "cpu":
            return points
        import torch

        return torch.from_numpy(points).to(self.device)

    def fitted(self, learner, points=None):
        """The learner after ``fit``, and the seconds that it took."""
        begin = time.perf_counter()
        learner.fit(self.train if points is None else points, self.y_train)
        self.wait()
        return learner, time.perf_counter() - begin

    def wait(self):
        if self.device != "cpu":
            import torch

            torch.cuda.synchronize()

    @cached_property
    def lmnn(self):
        return self.fitted(LMNN(**self.single))

    @cached_property
    def multi_pass(self):
        """As many passes as are best on held-out rows, made on all rows."""
        if self.single is not self.options:
            return self.fitted(LMNN(n_passes=MOST_PASSES, **self.single))
        begin = time.perf_counter()
        n_passes = 1 + int(np.argmin(self.pass_errors()))
        choosing = time.perf_counter() - begin
        learner, seconds = self.fitted(LMNN(n_passes=n_passes, **self.options))
        return learner, choosing + seconds

    def pass_errors(self, **options):
        """The errors on 30 % of the training part after one pass, two passes and so on."""
        y, shares = self.y_train, {"test_size": VALIDATION, "random_state": self.task.split}
        rows, held_out = train_test_split(np.arange(len(y)), stratify=y, **shares)
        X, new = self.train[rows], self.train[held_out]
        options = self.options | options
        metric, errors = LMNN(**options).fit(X, y[rows]), []
        while True:
            vote = self.vote(metric).fit(X, y[rows])
            errors.append(float(np.mean(vote.predict(new) != y[held_out])))
            if len(errors) == MOST_PASSES:
                return errors
            labels = class_order(y[rows], "LMNN")
            targets = target_table(metric.transform(X), labels, self.n_neighbors)
            following = LMNN(init=metric.components_, **options)
            metric = following.fit(X, y[rows], target_neighbors=targets)

    @cached_property
    def multi_metric(self):
        """From the single metric, which is learned from the same rows."""
        init = None if self.single is self.options else self.lmnn[0]
        learner, seconds = self.fitted(MultiMetricLMNN(init=init, **self.options, **self.early))
        return learner, seconds + (0 if init is None else self.lmnn[1])

    @cached_property
    def chosen(self):
        """k by 30 % of the training part, as in the thesis, and the metric of all of it."""
        begin = time.perf_counter()
        learner, shares = LMNN(**self.options), {"validation_fraction": VALIDATION}
        choice = choose_targets(
            *(self.train, self.y_train, learner, TARGETS), **shares, random_state=self.task.split
        )
        self.wait()
        return choice.learner, time.perf_counter() - begin

    @cached_property
    def default(self):
        """LMNN as it is by default: all rows, and some of a known distance kept."""
        return self.fitted(LMNN())

    @cached_property
    def default_passes(self):
        return self.fitted(LMNN(n_passes=MOST_PASSES, **self.early))

    @cached_property
    def default_metrics(self):
        return self.fitted(MultiMetricLMNN())

    def vote(self, metric):
        return NearestNeighborClassifier(metric, n_neighbors=self.n_neighbors)

    def judged(self, classifier, learned, points=None):
        """The result of a classifier around a metric that is learned already."""
        metric, seconds = learned
        train, test = (self.train, self.test) if points is None else points
        begin = time.perf_counter()
        predicted = classifier.fit(train, self.y_train).predict(test)
        predicting = time.perf_counter() - begin
        error = float(np.mean(predicted != self.y_test))
        chosen = learned is vars(self).get("multi_pass")
        return Result(error, seconds, predicting, _remark(metric, chosen))


def _remark(metric, chosen):
    """How a fit ended, if not as it should, and the passes if their number was chosen."""
    parts = [] if metric.status_ in ("converged", "early_stopped") else [metric.status_]
    if chosen:
        parts.append("1 pass" if metric.n_passes_ == 1 else f"{metric.n_passes_} passes")
    return ", ".join(parts)


def _neighbors(learners, points, learning=0.0, n_neighbors=N_NEIGHBORS):
    """The k-nearest-neighbour error among points that are mapped already."""
    begin = time.perf_counter()
    (train, test), (y_train, y_test) = points, learners.task.labels
    error = knn_error(None, train, y_train, test, y_test, n_neighbors)
    return Result(error, learning, time.perf_counter() - begin)


def euclidean(learners):
    return _neighbors(learners, learners.task.raw)


def pca(learners):
    return _neighbors(learners, learners.task.reduced)


def pca_1nn(learners):
    return _neighbors(learners, learners.task.reduced, n_neighbors=1)


def discriminants(learners):
    train, test = learners.task.reduced
    begin = time.perf_counter()
    lda = LinearDiscriminantAnalysis().fit(train, learners.y_train)
    mapped = lda.transform(train), lda.transform(test)
    return mapped, time.perf_counter() - begin


def lda(learners):
    return _neighbors(learners, *discriminants(learners))


def rca(learners):
    """Relevant components, each class one chunklet."""
    return _learned(learners, RCA(shrinkage=0))


def mmc(learners):
    """All pairs of a class are near, all others far."""
    return _learned(learners, MMC(shrinkage=0))


def nca(learners):
    return _learned(learners, NCA(init="identity", shrinkage=0))


def _learned(learners, learner):
    learned = learners.fitted(learner)
    return learners.judged(learners.vote(learner), learned)


def lmnn(learners):
    return learners.judged(learners.vote(learners.lmnn[0]), learners.lmnn)


def lmnn_early(learners):
    learned = learners.fitted(LMNN(init="identity", **learners.options, **learners.early))
    return learners.judged(learners.vote(learned[0]), learned)


def lmnn_lda(learners):
    mapped, seconds = discriminants(learners)
    points = tuple(map(learners.placed, mapped))
    metric, more = learners.fitted(LMNN(**learners.single), points[0])
    return learners.judged(learners.vote(metric), (metric, seconds + more), points)


def _energy(learners, learned):
    """By equation 15 of the paper."""
    rule = EnergyClassifier(learned[0], targets="input", query_margin=1)
    return learners.judged(rule, learned)


def _energy_of_program(learners, learned):
    """As in the program that the paper's authors published, which is nearfar's default."""
    return learners.judged(EnergyClassifier(learned[0]), learned)


def energy(learners):
    return _energy(learners, learners.lmnn)


def energy_of_program(learners):
    return _energy_of_program(learners, learners.lmnn)


def chosen(learners):
    metric = learners.chosen[0]
    rule = NearestNeighborClassifier(metric, n_neighbors=metric.n_neighbors)
    result = learners.judged(rule, learners.chosen)
    return replace(result, remark=f"k = {metric.n_neighbors}")


def chosen_energy(learners):
    return _energy_of_program(learners, learners.chosen)


def default(learners):
    return learners.judged(learners.vote(learners.default[0]), learners.default)


def default_energy(learners):
    return _energy_of_program(learners, learners.default)


def default_passes(learners):
    return learners.judged(learners.vote(learners.default_passes[0]), learners.default_passes)


def default_metrics(learners):
    return learners.judged(learners.vote(learners.default_metrics[0]), learners.default_metrics)


def multi_pass(learners):
    return learners.judged(learners.vote(learners.multi_pass[0]), learners.multi_pass)


def multi_pass_energy(learners):
    return _energy(learners, learners.multi_pass)


def multi_pass_energy_of_program(learners):
    return _energy_of_program(learners, learners.multi_pass)


def multi_metric(learners):
    return learners.judged(learners.vote(learners.multi_metric[0]), learners.multi_metric)


def multi_metric_energy(learners):
    return _energy(learners, learners.multi_metric)


def multi_metric_energy_of_program(learners):
    return _energy_of_program(learners, learners.multi_metric)


def svm(learners):
    """The kernel by cross validation, but for MNIST's polynomial of degree four and for words.

    All features are divided by one number, so that the constants mean the same everywhere.
    """
    task = learners.task
    (train, test), (y_train, y_test) = task.words or task.reduced, task.labels
    begin = time.perf_counter()
    if sparse.issparse(train):
        model, remark = LinearSVC(), "linear"
    else:
        scale = np.sqrt(np.square(train - train.mean(axis=0)).sum(axis=1).mean())
        train, test = train / scale, test / scale
        if task.data.startswith("mnist"):
            model = SVC(kernel="poly", degree=4, coef0=1, gamma=1, C=10, cache_size=4000)
        else:
            model = _chosen_svm(train, y_train)
        remark = f"{model.kernel} C={model.C:g}"
    model.fit(train, y_train)
    learning = time.perf_counter() - begin
    begin = time.perf_counter()
    error = float(np.mean(model.predict(test) != y_test))
    return Result(error, learning, time.perf_counter() - begin, remark)


def _chosen_svm(X, y):
    rows = np.random.default_rng(0).permutation(len(X))[:SVM_ROWS]
    folds = StratifiedShuffleSplit(5, test_size=0.3, random_state=0)
    search = GridSearchCV(SVC(max_iter=SVM_STEPS), SVM_GRID, cv=folds, refit=False)
    search.fit(X[rows], y[rows])
    return SVC(max_iter=SVM_STEPS, cache_size=1000, **search.best_params_)


METHODS = {
    "euclidean": euclidean,
    "pca": pca,
    "pca_1nn": pca_1nn,
    "lda": lda,
    "rca": rca,
    "mmc": mmc,
    "nca": nca,
    "lmnn": lmnn,
    "lmnn_early": lmnn_early,
    "lmnn_lda": lmnn_lda,
    "energy": energy,
    "energy_of_program": energy_of_program,
    "multi_pass": multi_pass,
    "multi_pass_energy": multi_pass_energy,
    "multi_pass_energy_of_program": multi_pass_energy_of_program,
    "multi_metric": multi_metric,
    "multi_metric_energy": multi_metric_energy,
    "multi_metric_energy_of_program": multi_metric_energy_of_program,
    "chosen": chosen,
    "chosen_energy": chosen_energy,
    "default": default,
    "default_energy": default_energy,
    "default_passes": default_passes,
    "default_metrics": default_metrics,
    "svm": svm,
}
BASELINES = ("euclidean", "pca", "pca_1nn", "lda", "rca", "mmc", "nca", "svm")
GROUPS = {
    "baselines": BASELINES,
    "nearfar": tuple(name for name in METHODS if name not in BASELINES),
}


def applies(method, data):
    """Whether a row is measured: some where the paper has it, early stopping where it has not."""
    if method in ("mmc", "nca"):
        return table1_paper.error(method, data) is not None
    return method != "lmnn_early" or PROTOCOLS[data].validation is None


def measure(data, split, methods, device, deadline):
    """Yield (method, Result or the error's text) for one split; nothing new after the deadline."""
    warnings.simplefilter("ignore")  # what they say stands in the remarks
    learners = Learners(table1_data.load(data, split), device)
    for method in methods:
        if time.time() > deadline:
            return
        try:
            yield method, METHODS[method](learners)
        except Exception as error:
            yield method, f"{type(error).__name__}: {error}"
