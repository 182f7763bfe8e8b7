"""Environments of the contestants, in ``build/peers``: pinned versions, one for each library.

``python -m benchmarks.peers.environments [library ...]`` makes those that are missing. R is not
installed here; on Debian it is ``apt-get install r-base-core r-cran-car r-cran-sandwich
r-cran-jsonlite``, which brings quantreg along.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

from benchmarks.peers.questions import LIBRARIES, OURS

ROOT = Path(__file__).parents[2]
BUILD = ROOT / "build" / "peers"
REQUIREMENTS = Path(__file__).parent / "requirements"
R_PACKAGES = ("car", "sandwich", "quantreg")
PACKAGES = {
    "implicit_delta": ("implicit-delta", "numpy", "scipy", "statsmodels", "torch"),
    "statsmodels": ("statsmodels", "numpy", "scipy"),
    "marginaleffects": ("marginaleffects", "statsmodels", "numpy"),
    "delicatessen": ("delicatessen", "numpy", "scipy"),
    "laplace": ("laplace-torch", "curvlinops-for-pytorch", "torch"),
    "curvlinops": ("curvlinops-for-pytorch", "torch"),
    "iminuit": ("iminuit", "jacobi", "numpy"),
}


def python(library):
    """Python of the environment of a library."""
    return BUILD / library / "bin" / "python"


def make(library):
    """Create the environment and install what is pinned, and our own package, where that is due."""
    files = sorted(REQUIREMENTS.glob(f"{library}.*txt"))
    if not _done(library, "pinned", files):
        print(f"Installing the environment of {LIBRARIES[library]}", flush=True)
        BUILD.mkdir(parents=True, exist_ok=True)
        run(sys.executable, "-m", "venv", "--clear", BUILD / library)
        install(library, "-r", REQUIREMENTS / f"{library}.txt")
        for alone in REQUIREMENTS.glob(f"{library}.no-deps.txt"):
            install(library, "--no-deps", "-r", alone)
        _stamp(library, "pinned", files)
    source = sorted((ROOT / "src").rglob("*.py"))
    if library == OURS and not _done(library, "source", source):
        install(library, "--force-reinstall", "--no-deps", ROOT)  # a wheel, not the source tree
        _stamp(library, "source", source)


def _done(library, what, files):
    stamp = BUILD / library / f".{what}"
    return stamp.exists() and stamp.read_text() == _hash(files)


def _stamp(library, what, files):
    (BUILD / library / f".{what}").write_text(_hash(files))


def _hash(files):
    return hashlib.sha256(b"".join(f.read_bytes() for f in files)).hexdigest()


def install(library, *what):
    pip = ("-m", "pip", "--disable-pip-version-check", "-qq", "install")
    run(python(library), *pip, *what)


def run(*command):
    subprocess.run([str(part) for part in command], check=True)


def main():
    for library in sys.argv[1:] or PACKAGES:
        make(library)


if __name__ == "__main__":
    main()
