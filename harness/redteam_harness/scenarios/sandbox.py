"""Takes away from this process whatever it could reach: files, network, other processes. Linux, for good.

Landlock leaves it the files that it is given to read, and none to write. Seccomp refuses the calls that open
sockets, start programs, and touch other processes or a file's attributes. Its capabilities are dropped, so
that root is nobody in particular. None of it can be undone, also not by native code. Standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import resource
import struct
import sys
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Unconfined", "enter"]


class Unconfined(Exception):
    """This system cannot confine a process as it is needed."""


_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_LANDLOCK_CREATE, _LANDLOCK_ADD, _LANDLOCK_RESTRICT = 444, 445, 446
_PATH_BENEATH = 1
_CAPABILITY_VERSION = 0x20080522

# Landlock's rights to files, by the version that knows them: number of bits.
_FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
_READ_FILE, _READ_DIR = 1 << 2, 1 << 3
_NET_RIGHTS, _SCOPES = 0b11, 0b11

_CPU_S = 600
_MEMORY_BYTES = 2 * 2**30
_OPEN_FILES = 128


class _Numbers(NamedTuple):
    """System calls of one architecture."""

    audit: int
    capset: int
    clone: int
    clone3: int
    prlimit: int
    refused: tuple[int, ...]


# Refused: socket; execve, execveat, fork, vfork; ptrace, process_vm_*, kill, tkill, tgkill, pidfd_*;
# io_uring_*; unshare, setns, mount, bpf; keyctl, add_key, request_key; perf_event_open, userfaultfd,
# open_by_handle_at; memfd_create, shmget, msgget, semget, mq_open; chmod, chown, utime in all forms;
# *setxattr, *removexattr; setpriority, sched_set*, ioprio_set.
_CALLS = {
    "x86_64": _Numbers(
        audit=0xC000003E,
        capset=126,
        clone=56,
        clone3=435,
        prlimit=302,
        refused=(
            *(41, 59, 322, 57, 58, 101, 310, 311, 62, 200, 234, 434, 424, 438, 425, 426, 427, 272, 308, 165),
            *(321, 250, 248, 249, 298, 323, 304, 319, 29, 68, 64, 240, 90, 91, 268, 452, 92, 93, 94, 260),
            *(188, 189, 190, 197, 198, 199, 132, 235, 261, 280, 141, 203, 144, 314, 251),
        ),
    ),
    "aarch64": _Numbers(
        audit=0xC00000B7,
        capset=91,
        clone=220,
        clone3=435,
        prlimit=261,
        refused=(
            *(198, 221, 281, 117, 270, 271, 129, 130, 131, 434, 424, 438, 425, 426, 427, 97, 268, 40, 280),
            *(219, 217, 218, 241, 282, 265, 279, 194, 186, 190, 180, 52, 53, 452, 55, 54, 5, 6, 7, 14, 15),
            *(16, 88, 140, 122, 119, 274, 30),
        ),
    ),
}
_CLONE_THREAD = 0x10000
_X32 = 0x40000000


def enter(trees: Iterable[Path], files: Iterable[Path]) -> dict[str, int]:
    """Confine this process, which must have one thread only.

    Args:
        trees: folders that it may read, with all that is below them.
        files: files, and folders to list, that it may read, without what is below them.

    Returns:
        What holds it: the version of `landlock`, and how many system calls `seccomp` refuses.

    Raises:
        Unconfined: the system cannot do it; says what it lacks.
    """
    numbers = _CALLS.get(platform.machine())
    if sys.platform != "linux" or numbers is None:
        raise Unconfined(f"{sys.platform} on {platform.machine()} has no Landlock and seccomp that we know")
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    _limit()
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    version = _landlock(libc, trees, files)
    header = ctypes.create_string_buffer(struct.pack("Ii", _CAPABILITY_VERSION, 0))
    _check(libc.syscall(numbers.capset, header, ctypes.create_string_buffer(24)), "dropping capabilities")
    _seccomp(libc, numbers)
    return {"landlock": version, "seccomp": len(numbers.refused) + 2}


def _limit() -> None:
    for limit, most in (
        (resource.RLIMIT_CPU, _CPU_S),
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, _OPEN_FILES),
        (resource.RLIMIT_CORE, 0),
    ):
        hard = resource.getrlimit(limit)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (most, most))


def _landlock(libc: ctypes.CDLL, trees: Iterable[Path], files: Iterable[Path]) -> int:
    version = int(libc.syscall(_LANDLOCK_CREATE, None, 0, 1))
    if version < 1:
        raise Unconfined(
            "Landlock is not there or not allowed (Linux 5.13, and a container whose seccomp profile lets it)"
        )
    handled = (1 << _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))]) - 1
    rules = struct.pack("Q", handled)
    rules += struct.pack("Q", _NET_RIGHTS) if version >= 4 else b""
    rules += struct.pack("Q", _SCOPES) if version >= 6 else b""
    attributes = ctypes.create_string_buffer(rules, len(rules))
    ruleset = _check(libc.syscall(_LANDLOCK_CREATE, attributes, len(rules), 0), "a Landlock ruleset")
    for path in trees:
        _allow(libc, ruleset, path, _READ_FILE | _READ_DIR)
    for path in files:
        _allow(libc, ruleset, path, _READ_DIR if path.is_dir() else _READ_FILE)
    _check(libc.syscall(_LANDLOCK_RESTRICT, ruleset, 0), "Landlock")
    os.close(ruleset)
    return version


def _allow(libc: ctypes.CDLL, ruleset: int, path: Path, rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return  # what is not there cannot be read
    try:
        rights = rights if path.is_dir() else _READ_FILE
        rule = ctypes.create_string_buffer(struct.pack("=Qi", rights, opened), 12)
        _check(libc.syscall(_LANDLOCK_ADD, ruleset, _PATH_BENEATH, rule, 0), f"Landlock for {path}")
    finally:
        os.close(opened)


def _seccomp(libc: ctypes.CDLL, numbers: _Numbers) -> None:
    """A program of the kernel's packet filter over (number, architecture, arguments) of each system call."""
    load, equal, at_least, some_bit, give = 0x20, 0x15, 0x35, 0x45, 0x06
    allow, kill = 0x7FFF0000, 0x80000000
    refuse, unknown = 0x00050000 | errno.EPERM, 0x00050000 | errno.ENOSYS
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, numbers.audit),
        (give, 0, 0, kill),
        (load, 0, 0, 0),
        (at_least, 0, 1, _X32),
        (give, 0, 0, unknown),
    ]
    for number in numbers.refused:
        program += [(equal, 0, 1, number), (give, 0, 0, refuse)]
    # The C library falls back to clone, whose flags can be looked at: threads are let, processes are not.
    program += [(equal, 0, 1, numbers.clone3), (give, 0, 0, unknown)]
    program += [
        (equal, 0, 3, numbers.clone),
        (load, 0, 0, 16),
        (some_bit, 6, 0, _CLONE_THREAD),
        (give, 0, 0, refuse),
        # One's own limits can be read; those of another process are not ours to set.
        (equal, 0, 4, numbers.prlimit),
        (load, 0, 0, 16),
        (equal, 1, 0, 0),
        (give, 0, 0, refuse),
        (give, 0, 0, allow),
        (give, 0, 0, allow),
    ]
    code = b"".join(struct.pack("HBBI", *line) for line in program)
    buffer = ctypes.create_string_buffer(code, len(code))

    class Program(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))

    filtered = Program(len(program), ctypes.cast(buffer, ctypes.c_void_p))
    _check(libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filtered), 0, 0), "seccomp")


def _check(result: int, what: str) -> int:
    if result < 0:
        raise Unconfined(f"{what} was refused by the system: {os.strerror(ctypes.get_errno())}")
    return result
