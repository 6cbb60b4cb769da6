"""Pictures of the pages: panels in one style, saved as small files of high resolution."""

import io

COLOURS = 128  # of a saved picture
CLASSES = (  # ten colours that can be told apart
    *("#4477AA", "#EE6677", "#228833", "#CCBB44", "#66CCEE"),
    *("#AA3377", "#222222", "#EE7733", "#999933", "#BBBBBB"),
)


def panels(rows, columns, size=1.55):
    """A figure with so many panels, and these as an array (rows, columns); ``size`` in inches."""
    from matplotlib.figure import Figure

    sizes = size if isinstance(size, tuple) else (size, size)
    figure = Figure((sizes[0] * columns, sizes[1] * rows), dpi=160, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False)


def scatter(axes, Y, values, *, classes=False, cyclic=False, s=3.0):
    """Points without axes, coloured by class or by a number."""
    if classes:
        colours = {"c": [CLASSES[int(value) % len(CLASSES)] for value in values]}
    else:
        colours = {"c": values, "cmap": "hsv" if cyclic else "viridis"}
    axes.scatter(Y[:, 0], Y[:, 1], s=s, linewidths=0, **colours)
    axes.set_aspect("equal", "datalim")
    bare(axes)


def bare(axes):
    """No ticks and a light frame."""
    axes.set(xticks=[], yticks=[])
    axes.spines[:].set(color="#dddddd")


def lines(axes, title="", x="", y=""):
    """The usual frame of a panel with curves."""
    axes.set_title(title, loc="left", fontsize=9, fontweight="bold")
    axes.set_xlabel(x, fontsize=8)
    axes.set_ylabel(y, fontsize=8)
    axes.tick_params(labelsize=7)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure, target):
    """Write a PNG of few colours."""
    from PIL import Image

    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})
    image = Image.open(buffer).convert("RGB")
    image.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
