"""A C compiler that compiles the same input once: `KAFKALITE_CC="python3 -I -S tools/compile_once.py DIRECTORY gcc"`.

`.ci/run` builds the extensions in place, and a test builds them again from the source distribution. The same input is
the same compiler, the same options and the same sources, with the headers of this machine. DIRECTORY keeps the objects;
it belongs to one checkout, and `make clean` removes it with `build`.
"""

import hashlib
import os
import shutil
import sys


def main(directory: str, *command: str) -> int:
    """Run the compiler unless its output exists. Returns its exit code; a link replaces this process."""
    if "-c" not in command:
        os.execvp(command[0], command)
    at = command.index("-o")
    output = command[at + 1]
    cached = os.path.join(directory, key_of(command[:at] + command[at + 2 :]))
    if os.path.exists(cached):
        shutil.copyfile(cached, output)
        return 0
    code = os.spawnvp(os.P_WAIT, command[0], command)
    if code == 0:
        os.makedirs(directory, exist_ok=True)
        partial = f"{cached}.{os.getpid()}"
        shutil.copyfile(output, partial)
        os.replace(partial, cached)
    return code


def key_of(command: tuple[str, ...]) -> str:
    """The digest of a compiler, its options and its sources."""
    found = os.stat(shutil.which(command[0]) or command[0])
    key = hashlib.sha256("\0".join([*command, str(found.st_size), str(found.st_mtime_ns)]).encode())
    for source in command:
        if source.endswith(".c"):
            with open(source, "rb") as file:
                key.update(file.read())
    return key.hexdigest()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
