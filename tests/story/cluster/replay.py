"""Prints the digest of a simulated cluster and its events: `python -m tests.story.cluster.replay DIRECTORY SEED`."""

import sys
from pathlib import Path

from tests.story.cluster.test_simulation import scenario
from tests.story.cluster.world import ClusterWorld, run


def main(directory: Path, seed: int) -> None:
    """Run a seed and print one line."""

    async def digested(world: ClusterWorld) -> str:
        counts = await scenario(world, directory / str(seed))
        return f"{world.trace.digest} {sorted(counts.items())}"

    print(run(directory, seed, digested))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
