"""The mathematics of the papers: objective, gradient, feasible set, dual bound; no I/O."""
