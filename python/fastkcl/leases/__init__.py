"""Leases: which member of a group reads which shard.

    a table's rows ──▶ Lease ──▶ Keeper ──▶ Take, Renew ──▶ a conditional write of the table
                    (what was seen, and when)                    │
                              ▲                                  ▼
                              └──────── held, dropped ◀── done, refused, or nobody knows

    lease ── a row as it was seen
    balance ── whom a free lease belongs to, and what is stolen: targets, as KCL 2 has them
    keeper ── one member: what it holds, what is due, what it takes
    redis, dynamodb, kcl ── how three tables spell a lease, and how it is taken from its owner there
    guard ── a thread that renews what a busy event loop does not

A member that dies, hangs or is suspended loses its leases when they have stood still for the failover time; one that
joins steals its share; one that leaves frees what it has. There is no leader, and no list of members: a member is
whoever owns a lease that lives.

Rules: no I/O, but for `guard`, and no clock: each call is given the time, on a monotonic clock of this process. Times
of two processes are never compared. What keeps two owners from writing is the table, which compares before each write;
what keeps them from believing is time: an owner stops when its last renewal began a failover time ago, and nobody takes
what it has seen move within one.
"""

from fastkcl.leases.keeper import Keeper, Renew, Rules, Take, Why
from fastkcl.leases.lease import Lease

__all__ = ["Keeper", "Lease", "Renew", "Rules", "Take", "Why"]
