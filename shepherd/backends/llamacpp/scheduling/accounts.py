"""Fair shares of the engine: whose jobs go on next, by the seconds that their tenants have used.

Each tenant has an account of seconds, divided by its share. Whose account is the lowest comes first
(start-time fair queueing): so a tenant with many jobs gets no more than one with few. What the
cache has costs nothing. A job that has to wait for others is parked: its cells stay, and so do its
tokens.
"""

from collections.abc import Callable, Sequence
from math import inf

from shepherd.backends.llamacpp.scheduling.job import Account, Job

CREDIT = 5.0
"""Seconds that a tenant may be behind the others when it comes back: time without requests is not
saved up."""

READING_SLICE = 1.0
"""Seconds by which the account of a prompt's tenant must be lower for others to be parked."""

SEQUENCE_SLICE = 4.0
"""The same for a job that waits for a sequence: the state of the other one leaves memory."""

WRITING_SLICE = 10.0
"""The same for answers, which share the weights that a batch reads: parking some costs speed."""


MAX_ACCOUNTS = 256
"""Accounts that are kept, as long as they have no jobs."""


class Accounts:
    """The accounts of all tenants. Owner thread only."""

    def __init__(self) -> None:
        self._accounts: dict[str, Account] = {}
        self._busy: list[Account] = []
        """Those with jobs."""

    @property
    def seconds(self) -> dict[str, float]:
        """The seconds that each tenant has used lately; any thread may read it."""
        return {name: account.seconds for name, account in [*self._accounts.items()]}

    @property
    def several(self) -> bool:
        """Whether jobs of several tenants are there."""
        return len(self._busy) > 1

    def open(self, job: Job) -> None:
        """Note a job that comes, whose account is a new one."""
        tenant = job.account.tenant
        account = self._accounts.setdefault(tenant.name, job.account)
        account.tenant = tenant  # its share may have changed
        if not account.jobs:
            others = self._busy or self._accounts.values()
            least = min if self._busy else max  # once the engine was idle, all begin alike
            account.used = max(account.used, least(a.used for a in others) - CREDIT)
            self._busy.append(account)
            self._forget_idle()
        account.jobs += 1
        job.account = account

    def close(self, job: Job) -> None:
        """Note a job that is done."""
        job.account.jobs -= 1
        if not job.account.jobs:
            self._busy.remove(job.account)

    def entitled(self, active: Sequence[Job]) -> Sequence[Job]:
        """The jobs that may go on now; the others are parked."""
        if not self.several:
            return active
        running = [job for job in active if job.runnable]
        reading = min((job.account.turn for job in running if not job.prompt_done), default=inf)
        least = min((job.account.used for job in running), default=0.0)
        return [
            job
            for job in active
            if job.account.turn <= reading + READING_SLICE
            and job.account.used <= least + WRITING_SLICE
        ]

    def preempted(
        self, waiting: Sequence[Job], active: Sequence[Job], loss: Callable[[Job], float]
    ) -> Job | None:
        """The job whose sequence belongs to a tenant that waits; None if there is none.

        `loss` gives the seconds that reading its tokens again would take.
        """
        if not self.several or not waiting:
            return None
        last = max(reversed(active), key=turn, default=None)
        if last is None or last.measures:  # measuring would begin again
            return None
        # Half of what it gets is lost at most, so that all go on.
        until = turn(last) - SEQUENCE_SLICE - 2 * loss(last)
        return last if min(map(turn, waiting)) < until else None

    def _forget_idle(self) -> None:
        """Forget the account that was opened first and has no jobs, if there are too many."""
        if len(self._accounts) > MAX_ACCOUNTS:
            idle = (name for name, account in self._accounts.items() if account not in self._busy)
            self._accounts.pop(next(idle, ""), None)


def turn(job: Job) -> float:
    """Low for jobs of tenants that come first."""
    return job.account.turn
