"""kafkalite's own SDK record by record, in the rows of columns."""

from perf.clients.base import Job, Sample
from perf.clients.sdk import Sdk


class SdkRecords(Sdk):
    name = "kafkalite-records"
    title = "kafkalite SDK, records"

    async def columns(self, job: Job) -> Sample:
        """`poll`, each value read."""
        return await self.poll(job)

    async def send_columns(self, job: Job) -> Sample:
        """`send`, each awaitable kept."""
        return await self.produce(job)


CLIENT = SdkRecords()
