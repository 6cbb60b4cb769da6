"""How the site is built; ``python dev.py site`` does it, into docs/_build/html."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path
from typing import Any

import nearfar

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
ONLINE = "NEARFAR_ONLINE" in os.environ  # may fetch what other projects' pages are called

project = "nearfar"
author = "The nearfar developers"
copyright = author
version = release = nearfar.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "repository",
    "formulas",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_extensions", "_static", "_templates", "gallery/**/*.ipynb"]
templates_path = ["_templates"]
highlight_language = "text"
nitpicky = True
smartquotes = False  # "auto" is what one types
toc_object_entries_show_parents = "hide"
suppress_warnings = ["config.cache"]  # sphinx_gallery_conf holds functions

# -- Markdown pages, which a code host shows, too ----------------------------------------------

myst_enable_extensions = ["amsmath", "attrs_inline", "dollarmath"]
myst_heading_anchors = 4
# The pages whose lists of links are the navigation; see _extensions/repository.py
index_pages = ["index", "guide", "algorithms/index", "results/index", "development"]
# What lies outside docs/ and is a page all the same
shown_files = {
    "changelog": "CHANGELOG.md",
    "contributing": "CONTRIBUTING.md",
    "security": "SECURITY.md",
    "benchmarks": "benchmarks/README.md",
}

# -- the reference -----------------------------------------------------------------------------

autosummary_generate = True
autosummary_imported_members = True
autodoc_typehints = "none"  # numpydoc's sections have them, in words
autodoc_default_options = {"member-order": "groupwise"}
numpydoc_show_class_members = False  # the template lists them
numpydoc_class_members_toctree = False

if ONLINE:
    extensions.append("sphinx.ext.intersphinx")
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
    }
else:
    nitpick_ignore_regex = [(r"py:.*", r"(matplotlib|numpy|scipy|sklearn|torch)\..*")]

# -- the gallery -------------------------------------------------------------------------------


def use_style(_settings: dict[str, Any], _file: str) -> None:
    """Give the pictures of an example the style of all others."""
    import matplotlib.pyplot as plt

    plt.style.use(HERE / "images" / "style.mplstyle")


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": "",  # run all of them
    "ignore_pattern": "readme_picture",  # draws a picture for the README
    "abort_on_example_error": True,
    "backreferences_dir": "gallery/backreferences",
    "capture_repr": (),  # show what is printed, and no more
    "doc_module": ("nearfar",),
    "reference_url": {"nearfar": None},
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "min_reported_time": float("inf"),  # of seconds, which say more about the machine
    "subsection_order": [f"../examples/{group}" for group in ("maps", "search", "pairs")],
    "within_subsection_order": "FileNameSortKey",
    "nested_sections": False,
    "image_srcset": ["2x"],
    "thumbnail_size": (640, 448),
    "reset_modules": ("matplotlib", use_style),
    "write_computation_times": False,
    "remove_config_comments": True,
    "image_scrapers": ("matplotlib",),
    "matplotlib_animations": False,
    "plot_gallery": "NEARFAR_NO_EXAMPLES" not in os.environ,
}
warnings.filterwarnings("ignore", message=".*non-interactive.*cannot be shown")

# -- what it looks like ------------------------------------------------------------------------

html_theme = "pydata_sphinx_theme"
html_title = "nearfar"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_logo = html_favicon = "_static/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_context = {"default_mode": "auto"}  # light or dark, as the reader's system is
html_sidebars = {"index": [], "get_started": [], "changelog": []}
html_theme_options = {
    "logo": {"text": "nearfar"},
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

# -- links to elsewhere: `python dev.py site --online` -----------------------------------------

linkcheck_anchors = False
linkcheck_ignore = [r".*listings/.*"]
