"""Where things are, the virtual environment that peers run in, and what a terminal is told."""
import importlib.metadata
import os
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "bench" / "peers"
ENVIRONMENT = ROOT / "build" / "peers"
BUILD = ROOT / "build" / "release"
DATA = pathlib.Path(os.environ.get("ONESTEP_DATA", ROOT / ".." / "shared" / "data"))
FASHION = pathlib.Path("/usr/share/datasets/fashion-mnist")
MODULES = {"scikit-learn": "sklearn"}  # that Python does not import by the name PyPI has


def shared_file(name):
    return DATA / "classification" / name


def name_of(which):
    """As bench/samples.cpp has it: with "made as" before it where the files are not there."""
    files = {"a9a": [shared_file("a9a"), shared_file("a9a.t")], "ijcnn1": [shared_file("ijcnn1.trn.bz2")],
             "Fashion-MNIST": [FASHION / "t10k-images-idx3-ubyte.gz"]}
    return which if all(file.exists() for file in files.get(which, [])) else f"made as {which}"


def make_environment(packages, with_ours=False):
    """The environment's Python, with these packages installed: names as PyPI has them; and with ours, built for JAX."""
    python = ENVIRONMENT / "bin" / "python"
    try:
        if not python.exists():
            print(f"making {ENVIRONMENT.relative_to(ROOT)}", file=sys.stderr)
            subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=True)
        names = [package.split("==")[0] for package in packages]
        script = "import importlib.util as u, sys; sys.exit(not all(u.find_spec(name) for name in sys.argv[1:]))"
        if subprocess.run([python, "-c", script, *(MODULES.get(name, name) for name in names)]).returncode != 0:
            print(f"installing {', '.join(packages)}", file=sys.stderr)
            subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
        if with_ours and subprocess.run([python, "-c", script, "onestep"]).returncode != 0:
            print("building onestep, which takes minutes", file=sys.stderr)
            subprocess.run([python, "-m", "pip", "install", "--quiet", ROOT], check=True,
                           env={**os.environ, "ONESTEP_JAX": "true"})
    except (subprocess.CalledProcessError, OSError) as problem:
        sys.exit(f"peers: {problem}; `bench/peers --help` says what is needed")
    return python


def version_of(package):
    """Of a package in the environment this runs in, or of ours."""
    if package == "onestep":
        return re.search(r"project\(onestep[^)]*VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def progress(text):
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
