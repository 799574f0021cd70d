"""The attempts of a table whose format keeps its data files where workers write them: Delta, Iceberg.

Dead letters are no part of such a table: they are renamed into a directory of their own after the commit.
"""

from pathlib import Path

from pyspark_kafkalite.tables.disk import Disk
from pyspark_kafkalite.tables.errors import DamagedTableError
from pyspark_kafkalite.tables.model import DEAD_LETTERS, Batch, Commit, DataFile


class AttemptFiles:
    """The files of attempts, and the dead letters of commits.

    Arguments:
        root: directory of both.
        location: of the table, for errors.
    """

    def __init__(self, root: Path, location: str) -> None:
        self._root = root
        self._location = location
        self._disk = Disk()

    def path(self, file: DataFile) -> Path:
        """Where an attempt is."""
        return self._root / Path(file.name).name

    def check(self, file: DataFile) -> None:
        """Raise DamagedTableError: an attempt is missing, or has another size."""
        path = self.path(file)
        size = path.stat().st_size if path.exists() else None
        if size != file.bytes:
            found = "no file" if size is None else f"{size} bytes"
            raise DamagedTableError(
                f"table {self._location}: attempt {file.name} has {found}, expected {file.bytes} bytes; "
                "nothing was committed"
            )

    def discard(self, batch: Batch, earlier: Commit) -> None:
        """Remove the attempts of a repeated batch, unless its first commit has them."""
        needed = {each.name for each in earlier.attempts}
        for each in batch.attempts:
            if each.name not in needed:
                self.path(each).unlink(missing_ok=True)

    def publish_dead_letters(self, commit: Commit) -> int:
        """Rename the dead letters of a commit, unless that was done; returns how many it has renamed."""
        renamed = 0
        for each in commit.dead_letters:
            path, target = self._dead_letter_path(each), self._root / each.name
            if path != target:
                self._disk.make_directory(target.parent)
                path.rename(target)
                renamed += 1
        if renamed:
            self._disk.flush_directory(self._root / DEAD_LETTERS)
            self._disk.flush_directory(self._root)
        return renamed

    def dead_letters(self, last: Commit | None) -> list[str]:
        """Paths of all committed dead letters; `last` is the last commit, whose files may not be renamed yet."""
        found = set((self._root / DEAD_LETTERS).glob("*.parquet"))
        found |= set() if last is None else {self._dead_letter_path(each) for each in last.dead_letters}
        return [str(each) for each in sorted(found)]

    def _dead_letter_path(self, file: DataFile) -> Path:
        """Where committed dead letters are: among the attempts until they are published."""
        attempt = self.path(file)
        return attempt if attempt.exists() else self._root / file.name
