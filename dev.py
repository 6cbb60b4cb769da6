"""Set up nearfar in ./.venv and run one job there; needs nothing but Python 3.11 or newer.

python dev.py demo    learn a metric on built-in data: `nearfar fit`, with any options of it
python dev.py test    lint, then all tests but the slow ones; or lint, then pytest with any options
python dev.py test -m slow    the slow ones: scripts, browsers, clusters, and what takes seconds
python dev.py lint    ruff, mypy, codespell and the links between the pages
python dev.py docs    the links, and every example in the pages and docstrings
python dev.py site    the pages, the reference and the gallery as a site in docs/_build/html
python dev.py dist    the wheel and the source archive in dist, each tried in a clean environment
python dev.py campaign  new draws of odd data for every convex learner, 2000 or --draws N
python dev.py test --oldest    the tests alone, with the oldest packages that are supported

The first run installs the dependencies; later runs do so only when pyproject.toml has changed.
"""

from __future__ import annotations

import sys

OLDEST_PYTHON = (3, 11)
if sys.version_info < OLDEST_PYTHON:
    sys.exit(
        "nearfar needs Python {}.{} or newer; this is Python {}.{}. "
        "Install a newer one and run dev.py with it, for example: python3.13 dev.py demo".format(
            *OLDEST_PYTHON, *sys.version_info[:2]
        )
    )

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import tempfile
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent
VENV = ROOT / (".venv-oldest" if "--oldest" in sys.argv else ".venv")
SCRIPTS = VENV / ("Scripts" if os.name == "nt" else "bin")
PYTHON = SCRIPTS / ("python.exe" if os.name == "nt" else "python")
NEARFAR = SCRIPTS / ("nearfar.exe" if os.name == "nt" else "nearfar")

# What pip installs for each profile; a profile contains those before it.
PROFILES = {
    "run": ["--editable", ".[cli]"],
    "develop": ["--editable", ".[cli]", "--group", "dev"],
}

# What the user of an archive relies on beside the self-test: types, and every public name.
TRIAL = """
from importlib.resources import files
import nearfar
assert (files("nearfar") / "py.typed").is_file()
for name in nearfar.__all__:
    getattr(nearfar, name)
"""

# One process to a core, each with one thread; the order of sets, and with it that of the tests, has
# to be the same in all of them.
SINGLE_THREADED = {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}

# [text](target) and ![text](target), where the target is neither a URL nor a mail address.
LINK = re.compile(r"\]\((?![a-z]+:)([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.+?) *$", re.MULTILINE)
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def call(*command: str | Path) -> None:
    """Run a command in the repository root; end this program with its status if it fails."""
    words = [str(word) for word in command]
    environment = {**os.environ, "SCIPY_ARRAY_API": "1"}  # else scikit-learn skips checks
    status = subprocess.run(words, cwd=ROOT, env=environment, check=False).returncode
    if status != 0:
        sys.exit(f"dev.py: failed with status {status}: {' '.join(words)}")


def say(message: str) -> None:
    """Tell what happens now, before any output of the commands that do it."""
    print(f"dev.py: {message}", flush=True)


def pip_install(*arguments: str) -> None:
    """Install into the environment; pip speaks only of errors."""
    quiet = ("--quiet", "--quiet", "--disable-pip-version-check")
    call(PYTHON, "-m", "pip", "install", *quiet, *arguments)


def make_environment() -> None:
    """Create ./.venv where there is none."""
    if PYTHON.exists():
        return
    say(f"making {VENV}")
    try:
        venv.create(VENV, with_pip=True)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(
            f"dev.py: could not make {VENV}: {error}. On Debian and Ubuntu this needs a package "
            "of its own: apt-get install python3-venv. Then delete .venv and run this again."
        )


def stamp(profile: str) -> Path:
    """The file that records which pyproject.toml the profile was installed from."""
    return VENV / f"nearfar-{profile}.stamp"


def is_installed(profile: str, digest: str) -> bool:
    """Whether the profile was installed from the pyproject.toml with this digest."""
    return stamp(profile).exists() and stamp(profile).read_text() == digest


def oldest_packages() -> list[str]:
    """The oldest versions that pyproject.toml allows: `scipy>=1.13` as `scipy==1.13.*`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    lines = [*project["dependencies"], *extras["cli"], *extras["plot"]]
    # Later ones of these warn of how the oldest matplotlib and scikit-learn use them.
    quiet = ["polars<1.40", "pyparsing<3.3", "pytest<9.1"]
    return [*(f"{line.replace('>=', '==')}.*" for line in lines), *quiet]


def install(profile: str, *, with_torch: bool = False, oldest: bool = False) -> None:
    """Bring ./.venv up to date with pyproject.toml, or do nothing if it is."""
    make_environment()
    digest = hashlib.sha256((ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if not is_installed(profile, digest):
        say("installing nearfar and its dependencies; the first time takes a minute or two")
        pip_install("--upgrade", "pip>=25.1")  # the first that knows dependency groups
        pip_install(*PROFILES[profile], *(oldest_packages() if oldest else []))
        for included in PROFILES:
            stamp(included).write_text(digest)
            if included == profile:
                break
    if with_torch:
        say("installing torch")
        pip_install("--editable", ".[torch]")


def build_archives() -> None:
    """Build dist/*.tar.gz, from it dist/*.whl, and try each in a clean environment."""
    pip_install("build>=1.2", "twine>=6.1")
    shutil.rmtree(ROOT / "dist", ignore_errors=True)
    say("build")
    call(PYTHON, "-m", "build", "--outdir", "dist")
    call(PYTHON, "-m", "twine", "check", "--strict", *sorted((ROOT / "dist").iterdir()))
    with tempfile.TemporaryDirectory() as folder:
        venv.create(folder, with_pip=True)
        scripts = Path(folder) / SCRIPTS.name
        for archive in sorted((ROOT / "dist").iterdir()):
            say(f"trying {archive.name}")
            pip = (scripts / "python", "-m", "pip", "--quiet", "--disable-pip-version-check")
            call(*pip, "uninstall", "--yes", "nearfar")  # the dependencies stay
            call(*pip, "install", f"{archive}[cli]")
            call(scripts / "python", "-I", "-c", TRIAL)
            call(scripts / "nearfar", "doctor")


def anchor(heading: str) -> str:
    """The fragment that Markdown viewers give to a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def broken_links() -> list[str]:
    """Every relative link in a Markdown page whose file or heading does not exist."""
    found = []
    for page in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]):
        for target in LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8"))):
            path, _, fragment = target.partition("#")
            file = (page.parent / path) if path else page
            known = file.exists()
            if known and fragment and file.suffix == ".md":
                text = FENCED.sub("", file.read_text(encoding="utf-8"))
                known = fragment in map(anchor, HEADING.findall(text))
            if not known:
                found.append(f"{page.relative_to(ROOT)}: nothing at {target}")
    return found


def check_links() -> None:
    """End with a list of the broken links, if there are any."""
    say("links")
    broken = broken_links()
    if broken:
        sys.exit("\n".join(["dev.py: broken links, mend or remove them:", *broken]))


def lint() -> None:
    """Everything that is checked without running nearfar."""
    for name, *arguments in (
        ("ruff", "check"),
        ("ruff", "format", "--check"),
        ("mypy",),
        ("codespell_lib",),
    ):
        say(" ".join([name, *arguments]))
        call(PYTHON, "-m", name, *arguments)
    check_links()


def build_site(*, online: bool) -> None:
    """Build docs/_build/html, where every warning is an error; examples run if they changed."""
    if online:
        os.environ["NEARFAR_ONLINE"] = "1"
    output = ROOT / "docs" / "_build"
    quiet = [] if sys.stdout.isatty() else ["--quiet"]  # else a line of progress for each step
    options = ("--fail-on-warning", *quiet, "--doctree-dir", output / "doctrees")
    for builder in ["html", "linkcheck"] if online else ["html"]:
        say(f"sphinx: {builder}")
        call(PYTHON, "-m", "sphinx", "-b", builder, *options, "docs", output / builder)
    say(f"open {output / 'html' / 'index.html'}")


def run_campaign(draws: int | None, extra: list[str]) -> None:
    """Try every convex learner on new odd data; a failure is shrunk, with a line to repeat it."""
    say("campaign")
    os.environ |= {"NEARFAR_CAMPAIGN": "nightly", **SINGLE_THREADED}
    if draws is not None:
        os.environ["NEARFAR_CAMPAIGN_DRAWS"] = str(draws)
    call(PYTHON, "-m", "pytest", "-n", "auto", "tests/campaign", *extra)


def main() -> None:
    """Read the command line and do the job."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("job", choices=["demo", "test", "lint", "docs", "site", "dist", "campaign"])
    parser.add_argument("--torch", action="store_true", help="install torch too (large)")
    parser.add_argument(
        "--online", action="store_true", help="site: link to other projects' pages, and check links"
    )
    parser.add_argument("--oldest", action="store_true", help="test: the oldest packages")
    parser.add_argument("--draws", type=int, help="campaign: how many draws in all")
    options, extra = parser.parse_known_args()
    if extra and options.job in ("lint", "docs", "site", "dist"):
        parser.error(f"{options.job} takes no further arguments; got {' '.join(extra)}")

    if options.oldest and options.job != "test":
        parser.error(f"--oldest goes with test; got {options.job}")
    if options.draws is not None and (options.job != "campaign" or options.draws < 1):
        parser.error(f"--draws goes with campaign, and is at least 1; got {options.draws}")

    profile = "run" if options.job in ("demo", "dist") else "develop"
    install(profile, with_torch=options.torch, oldest=options.oldest)
    if options.job == "demo":
        call(NEARFAR, "fit", "--force", *extra)
    elif options.job == "test":
        if not options.oldest:  # what the linters say depends on the newest packages
            lint()
        say("pytest")
        os.environ |= SINGLE_THREADED
        # Else every process, and every later run, compiles all modules again.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        slowest = ["--durations=20"] if os.environ.get("CI") else []
        # Each process takes neighbouring tests, which share what is fitted once for a module.
        shared = ("-n", "auto", "--dist", "worksteal")
        chosen = extra or ([] if options.oldest else ["-m", "not slow"])
        call(PYTHON, "-m", "pytest", *shared, *slowest, *chosen)
    elif options.job == "campaign":
        run_campaign(options.draws, extra)
    elif options.job == "lint":
        lint()
    elif options.job == "site":
        build_site(online=options.online)
    elif options.job == "dist":
        build_archives()
    else:
        check_links()
        call(PYTHON, "-m", "pytest", "src", "docs", "README.md")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit("dev.py: interrupted")
