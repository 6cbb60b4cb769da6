"""The papers' mathematics: objective, gradient, feasible set, dual bound; no iteration, no I/O."""
