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
    """Create the environment and install what is pinned, unless that was done before."""
    stamp, wanted = BUILD / library / ".done", fingerprint(library)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    print(f"Installing the environment of {LIBRARIES[library]}", flush=True)
    run(sys.executable, "-m", "venv", "--clear", BUILD / library)
    install(library, "-r", REQUIREMENTS / f"{library}.txt")
    alone = REQUIREMENTS / f"{library}.no-deps.txt"
    if alone.exists():
        install(library, "--no-deps", "-r", alone)
    if library == OURS:
        install(library, ROOT)  # built as a wheel: the answers are of an installed copy
    stamp.write_text(wanted)


def fingerprint(library):
    """Hash of what is installed; for our own package that is its source, too."""
    files = sorted(REQUIREMENTS.glob(f"{library}.*txt"))
    files += sorted((ROOT / "src").rglob("*.py")) if library == OURS else []
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
