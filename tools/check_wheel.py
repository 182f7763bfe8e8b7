"""Check that a wheel holds the package, its style and types, its metadata, and nothing else."""

import sys
from pathlib import Path
from zipfile import ZipFile

if __name__ == "__main__":
    names = {Path(name) for name in ZipFile(sys.argv[1]).namelist()}
    package = {name for name in names if name.parts[0] == "implicit_delta"}
    metadata = {name for name in names if name.parts[0].endswith(".dist-info")}
    source = Path(__file__).parents[1] / "src"
    expected = {path.relative_to(source) for path in source.glob("implicit_delta/**/*.py")}
    expected |= {path.relative_to(source) for path in source.glob("implicit_delta/**/*.css")}
    expected.add(Path("implicit_delta", "py.typed"))
    assert package == expected, f"Not as in src: {sorted(map(str, package ^ expected))}"
    assert names == package | metadata, sorted(map(str, names - package - metadata))
    assert any(name.name == "LICENSE" for name in metadata), "The license is missing."
    print(f"{sys.argv[1]}: {len(package)} files of the package, {len(metadata)} of metadata")
