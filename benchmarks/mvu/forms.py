"""The program as general solvers take it.

With a_e = e_i - e_j for an edge e = (i, j) of squared length D_e, a unit u_e for its constraint and
C = I - c 11', MVU and its dual are

    maximise <C, K>   with  K >= 0,  a_e' K a_e / u_e = D_e / u_e                              (1)
    minimise sum_e (D_e / u_e) y_e   with  S = sum_e (y_e / u_e) a_e a_e' - C >= 0             (2)

K is centred, K1 = 0, in one of two ways. The thesis has c = 0 and the constraint 1'K1 = 0, which
leaves (1) without an interior: no K that satisfies it is definite, which is hard on interior point
methods. With c = 2/n instead, <C, K> = tr PKP - 1'K1 / n where P = I - 11'/n: only differences of
points count in the constraints, so that the maximum is the same, and both (1) and (2) have an
interior.
"""

import numpy as np

ROOT2 = np.sqrt(2)


def centring(n):
    """C with c = 2/n."""
    return np.eye(n) - 2 / n


def write_sdpa(path, heads, tails, squares, n, centre):
    """(1) with u = D in SDPA's sparse format; ``centre`` is "objective" or "constraint"."""
    m = len(heads)
    everywhere = np.triu_indices(n)
    number = np.arange(1, m + 1)
    if centre == "objective":
        parts = [_entries(0, *everywhere, centring(n)[everywhere])]
    else:
        parts = [_entries(0, np.arange(n), np.arange(n), 1.0)]
    for i, j, value in ((heads, heads, 1), (tails, tails, 1), (heads, tails, -1)):
        parts.append(_entries(number, i, j, value / squares))
    right = np.ones(m)
    if centre == "constraint":
        right = np.append(right, 0.0)
        parts.append(_entries(m + 1, *everywhere, 1.0))
    with open(path, "w") as stream:
        stream.write(f"{len(right)}\n1\n{n}\n")
        np.savetxt(stream, right[None], fmt="%.17g")
        np.savetxt(stream, np.concatenate(parts), fmt=["%d", "%d", "%d", "%d", "%.17g"])


def _entries(matrix, i, j, value):
    """Rows (matrix, block, i, j, value) with i <= j, both from 1."""
    return np.column_stack(np.broadcast_arrays(matrix, 1, i + 1, j + 1, value)).astype(float)


def read_csdp(path, n, m):
    """K and y of the first m constraints from the file that CSDP writes."""
    with open(path) as stream:
        y = np.array(stream.readline().split(), dtype=float)[:m]
        entries = np.loadtxt(stream, ndmin=2)
    matrix, _, i, j = entries[:, :4].astype(int).T
    chosen = matrix == 2  # 1 is S
    K = np.zeros((n, n))
    i, j, value = i[chosen] - 1, j[chosen] - 1, entries[chosen, 4]
    K[i, j] = K[j, i] = value
    return K, y


def conic(heads, tails, squares, unit, n, lower):
    """(2) as: minimise q'y with b - Ay in the cone, whose vectors are triangles of S.

    The triangle is stacked by columns, the lower one or the upper one, with entries off the
    diagonal multiplied by the root of 2. Returns A as (values, rows, columns), b and q.
    """
    place = lower_place if lower else upper_place
    i, j = np.triu_indices(n)
    b = np.zeros(n * (n + 1) // 2)
    b[place(i, j, n)] = -centring(n)[i, j] * np.where(i == j, 1, ROOT2)
    rows = [place(heads, heads, n), place(tails, tails, n), place(heads, tails, n)]
    values = np.concatenate([-1 / unit, -1 / unit, ROOT2 / unit])
    columns = np.tile(np.arange(len(heads)), 3)
    return (values, np.concatenate(rows), columns), b, squares / unit


def upper_place(i, j, _):
    """Where the entry (i, j), i <= j, of an upper triangle stands."""
    return j * (j + 1) // 2 + i


def lower_place(i, j, n):
    """Where the entry (j, i), i <= j, of a lower triangle stands."""
    return i * n - i * (i - 1) // 2 + j - i


def matrix_of(triangle, n, lower):
    """The symmetric matrix of a stacked triangle."""
    i, j = np.triu_indices(n)
    place = lower_place if lower else upper_place
    K = np.zeros((n, n))
    K[i, j] = K[j, i] = triangle[place(i, j, n)] / np.where(i == j, 1, ROOT2)
    return K
