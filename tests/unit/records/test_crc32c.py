"""The CRC-32C of the `crc32c` package is loaded with the first batch, without the modules of the package's command."""

import subprocess
import sys
from pathlib import Path

CODE = """
import sys
from kafkalite.records import Builder, validate_batch

before = set(sys.modules)
builder = Builder()
builder.append(0, b"key", b"value", [])
batch = bytearray(builder.build(0))
print(validate_batch(batch, compacted=False, size_max=1000).error)
batch[-2] ^= 1
print(validate_batch(batch, compacted=False, size_max=1000).error)
print(sorted(set(sys.modules) - before))
from crc32c import crc32c
print(crc32c(b"123456789"))
"""
OTHER_VERSION = """
def crc32c(data, value=0, gil_release_mode=-1):
    crc = value ^ 0xFFFFFFFF
    for byte in bytes(data):
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
"""


def inspected(*path: Path) -> list[str]:
    """What a process prints that inspects a good and a bad batch; `path`: where modules are found first."""
    search_path = [str(location) for location in path]
    code = f"import sys; sys.path[:0] = {search_path}\n{CODE}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_first_batch_imports_no_package() -> None:
    assert inspected() == ["0", "2", "[]", str(0xE3069283)]


def test_crc32c_package_without_extension_module_is_imported(tmp_path: Path) -> None:
    (tmp_path / "crc32c").mkdir()
    (tmp_path / "crc32c" / "__init__.py").write_text(OTHER_VERSION)
    assert inspected(tmp_path) == ["0", "2", "['crc32c']", str(0xE3069283)]
