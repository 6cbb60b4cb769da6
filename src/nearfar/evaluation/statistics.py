"""How sure a measured error is, and whether two methods differ by more than chance.

With w wrong of m rows, p = w / m and z = 1.96, Wilson's interval for the true error is

(1) (p + z²/2m ± z √(p(1 − p)/m + z²/4m²)) / (1 + z²/m).

Two methods on the same rows differ only in rows where one is right and the other wrong. If both
were equally good, these would be tosses of a fair coin: McNemar's exact test is the binomial one.

[wilson1927] Wilson, Probable inference, the law of succession, and statistical inference, JASA 22.
[mcnemar1947] McNemar, Note on the sampling error of the difference between correlated proportions
or percentages, Psychometrika 12.
"""

from __future__ import annotations

import math

from scipy.special import bdtr

Z = 1.959963984540054  # the quantile of the normal distribution for 95 %


def standard_error(error: float, n: int) -> float:
    """sqrt(error (1 - error) / n), the binomial standard error of a share of n points."""
    return math.sqrt(error * (1 - error) / n)


def wilson_interval(wrong: int, n: int) -> tuple[float, float]:
    """Wilson's interval (1) for the true error, with a confidence of 95 %.

    Parameters
    ----------
    wrong, n : int
        How many rows were wrong, and how many there are.

    Returns
    -------
    low, high : float
        The ends of the interval, between 0 and 1.
    """
    share, extra = wrong / n, Z * Z / n
    middle = share + extra / 2
    half = Z * math.sqrt(share * (1 - share) / n + extra / (4 * n))
    low, high = (middle - half) / (1 + extra), (middle + half) / (1 + extra)
    return max(0.0, low) if wrong else 0.0, min(1.0, high) if wrong < n else 1.0


def mcnemar(fixed: int, broken: int) -> float:
    """The p-value of McNemar's exact test of two methods on the same rows.

    Parameters
    ----------
    fixed, broken : int
        Rows that only the first method has wrong, and rows that only the second has wrong.

    Returns
    -------
    float
        The probability of counts at least as uneven, if both methods are equally good.
    """
    fewer, differing = min(fixed, broken), fixed + broken
    return min(1.0, 2 * float(bdtr(fewer, differing, 0.5)))  # both tails, equal by symmetry
