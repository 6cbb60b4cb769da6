"""Data sets of `benchmarks.lmnn.millions`: torch tensors on a device, and made from a seed.

Digits are deformed as in infinite MNIST [Loosli, Canu & Bottou, Training invariant support vector
machines using selective sampling, 2007]: each is an image of MNIST's training part, turned by up to
12 degrees, scaled by up to 12 %, shifted by up to two pixels and bent by a smooth random field,
then projected on the principal components of the first deformed images. They are made on the
device, a block at a time, and never stored as images.
"""

import numpy as np
import torch

from benchmarks import common

SEED = 0
TEST_ROWS = 10_000  # of covertype
BLOCK = 1 << 15  # images that are deformed at a time
FIRST = 60_000  # deformed images that give the principal components
SIDE = 28  # pixels
ANGLE, STRETCH, SHIFT = 12 * np.pi / 180, 0.12, 2.0
KNOTS, BEND = 5, 1.2  # knots a side of a field, and the standard deviation there, in pixels


def load(name, rows, columns, device, place=None):
    """X, y, X_test, y_test, in float32 on the device; labels are on the host.

    X is on another ``place``, such as "cpu", if one is given. Digits go there a block at a time.
    """
    if name == "digits":
        return digits(rows, columns, device, place or device)
    if name in ("covertype", "mnist", "made"):
        made_of = {"covertype": covertype, "mnist": mnist, "made": made}[name]
        X, *others = made_of(rows, columns, device)
        return X.to(place or device), *others
    raise SystemExit(f"no data set {name!r}; expected digits, covertype, mnist or made")


def made(rows, columns, device):
    """Four classes of normal points, for which no file is needed."""
    random = np.random.default_rng(SEED)
    y = np.arange(2 * rows) % 4
    X = random.normal(size=(2 * rows, columns)) + 2 * np.eye(4, columns)[y]
    X = torch.as_tensor(X, dtype=torch.float32, device=device)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def archive(name):
    try:
        return np.load(common.data_file(name), allow_pickle=False)
    except common.UnavailableError as error:
        raise SystemExit(str(error)) from error


def images(device):
    """The images of MNIST, (n, 28, 28) in [0, 1], and labels: training part, then test part."""
    found = archive("mnist")
    for part in ("train", "test"):
        pixels = torch.as_tensor(found["X"][found[part]], device=device)
        yield pixels.view(-1, SIDE, SIDE).float() / 255, found["y"][found[part]]


def deformed(sources, generator):
    """The sources (m, 28, 28) under random maps and fields of displacements: (m, 784)."""
    m, device = len(sources), sources.device

    def uniform(reach):
        draws = torch.rand(m, generator=generator, device=device)
        return reach * (2 * draws - 1)

    angle, scale = uniform(ANGLE), 1 + uniform(STRETCH)
    cosine, sine = angle.cos() * scale, angle.sin() * scale
    shifts = [uniform(SHIFT * 2 / SIDE) for _ in range(2)]
    rows = [torch.stack([cosine, -sine, shifts[0]], 1), torch.stack([sine, cosine, shifts[1]], 1)]
    functional = torch.nn.functional
    grid = functional.affine_grid(torch.stack(rows, 1), (m, 1, SIDE, SIDE), align_corners=False)
    knots = torch.randn((m, 2, KNOTS, KNOTS), generator=generator, device=device)
    field = functional.interpolate(
        knots * (BEND * 2 / SIDE), size=(SIDE, SIDE), mode="bicubic", align_corners=True
    )
    grid = grid + field.permute(0, 2, 3, 1)
    found = functional.grid_sample(sources[:, None], grid, align_corners=False)
    return found.view(m, -1)


def principal_axes(pixels, columns):
    """The mean of images and their leading principal components (784, columns)."""
    mean = pixels.double().mean(0)
    centred = pixels.double() - mean
    axes = torch.linalg.eigh(centred.T @ centred)[1].flip(1)[:, :columns]
    return mean.float(), axes.float()


def digits(rows, columns, device, place):
    """Deformed digits, at a place, and the test part of MNIST as it is."""
    (sources, labels), (test, y_test) = images(device)
    generator = torch.Generator(device).manual_seed(SEED)
    X, mean, axes = torch.empty((rows, columns), device=place), None, None
    held = []  # the first blocks, until there are enough of them for the components
    for start in range(0, max(rows, FIRST), BLOCK):
        stop = min(start + BLOCK, max(rows, FIRST))
        chosen = torch.arange(start, stop, device=device) % len(sources)
        block = deformed(sources[chosen], generator)
        if axes is not None:
            X[start:stop] = (block - mean) @ axes
            continue
        held.append(block)
        if stop >= FIRST:
            pixels, held = torch.cat(held), []
            mean, axes = principal_axes(pixels, columns)
            X[:stop] = ((pixels - mean) @ axes)[:rows]
    order = np.arange(rows) % len(labels)
    return X, labels[order], (test.reshape(len(test), -1) - mean) @ axes, y_test


def mnist(rows, columns, device):
    """The first rows of a shuffled MNIST on its principal components, and its test part."""
    (train, y), (test, y_test) = images(device)
    pixels = train.view(len(train), -1)
    mean, axes = principal_axes(pixels, columns)
    order = np.random.default_rng(SEED).permutation(len(y))[:rows]
    X = (pixels - mean) @ axes
    return (
        X[torch.as_tensor(order, device=device)],
        y[order],
        (test.flatten(1) - mean) @ axes,
        y_test,
    )


def covertype(rows, _, device):
    """Rows of covertype, all features at one scale, and 10000 other rows to test on."""
    found = archive("covertype")
    X, y = torch.as_tensor(found["X"], device=device).double(), found["y"]
    X = ((X - X.mean(0)) / X.std(0).clamp(min=1e-12)).float()
    order = np.random.default_rng(SEED).permutation(len(y))
    test, train = order[:TEST_ROWS], order[TEST_ROWS:][:rows]
    take = [torch.as_tensor(part, device=device) for part in (train, test)]
    return X[take[0]], y[train], X[take[1]], y[test]
