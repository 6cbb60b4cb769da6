"""Other libraries' interfaces on nearfar's learners: change the import, keep the program.

`nearfar.compat.metric_learn` has the names of metric-learn 0.7, and `nearfar.compat.sklearn_nca`
scikit-learn's ``NeighborhoodComponentsAnalysis``. They hold no algorithm: every metric is learned
by the estimator of nearfar of the same name. See ``docs/migration.md``.
"""
