"""Leases: each shard is read by one member of a group.

    a table's rows ──▶ Lease ──▶ Keeper ──▶ Take, Renew ──▶ a conditional write of the table
                    (the rows, and their time)                   │
                              ▲                                  ▼
                              └──────── held, dropped ◀── done, refused, or nobody knows

    lease ── a row as it was seen
    balance ── the owner of a free lease, and the leases to steal: targets, as KCL 2 has them
    keeper ── one member: the leases that it holds, renews and takes
    redis, dynamodb, kcl ── how three tables spell a lease, and how it is taken from its owner there
    guard ── a thread that renews leases while the event loop is busy

A member that dies, hangs or is suspended loses its leases when they have stood still for the failover time; one that
joins steals its share; one that leaves frees its leases. There is no leader, and no list of members: every
owner of a living lease is a member.

Rules: no I/O, except in `guard`, and no clock: each call is given the time, on a monotonic clock of this process. Times
of two processes are never compared. The table keeps two owners from writing, as it compares before each write. Time
keeps two from believing that they own a lease: an owner stops when its last renewal began a failover time ago, and no
member takes a lease that it has seen change within one.
"""

from fastkcl.leases.keeper import Keeper, Renew, Rules, Take, Why
from fastkcl.leases.lease import Lease

__all__ = ["Keeper", "Lease", "Renew", "Rules", "Take", "Why"]
