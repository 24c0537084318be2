"""The configuration of a throwaway cluster: what each setting is, and why it is not the default."""

from __future__ import annotations

import hashlib
import json

__all__ = [
    "ADMIN",
    "CONNECTIONS",
    "CONTAINER_HBA",
    "HBA",
    "INITDB",
    "PORT",
    "command_flags",
    "fingerprint",
    "postgresql_conf",
]

# Not `postgres`: a dump that names its owner so gets an ordinary role of that name, not our superuser.
ADMIN = "rt_admin"
PORT = 5432
CONNECTIONS = 300
_RESERVED = 10

# No collation of the operating system: it changes with the machine and would make two runs differ (P18).
INITDB = (
    f"--username={ADMIN}",
    "--auth=scram-sha-256",
    "--encoding=UTF8",
    "--locale-provider=builtin",
    "--builtin-locale=C.UTF-8",
    "--locale=C",
    "--no-data-checksums",
    "--set=scram_iterations=1",  # stretching protects guessable passwords; ours are random
    "--no-instructions",
    "--no-sync",
)

# A role may enter the database that bears its own name. This holds even where a grant is wrong (P44).
HBA = f"""\
local all      {ADMIN} scram-sha-256
local sameuser all     scram-sha-256
local all      all     reject
"""

# The same in a container, where the network is the way in; only its own first start uses the socket.
CONTAINER_HBA = f"""\
local all      {ADMIN} scram-sha-256
host  all      {ADMIN} all scram-sha-256
host  sameuser all     all scram-sha-256
"""

_SETTINGS: dict[str, str | int] = {
    # The data is disposable: nothing is flushed for its own sake. After the machine crashed, it is never
    # started again.
    "fsync": "off",
    "full_page_writes": "off",
    "synchronous_commit": "off",
    "wal_level": "minimal",  # also shuts out replication slots and subscriptions
    "max_wal_senders": 0,
    "max_wal_size": "2GB",
    "wal_init_zero": "off",
    "wal_recycle": "off",
    "checkpoint_timeout": "30min",
    "autovacuum": "off",  # it would rewrite pages of a fork in the middle of a conversation
    "max_prepared_transactions": 0,  # a fork with one cannot be dropped (P33)
    "max_connections": CONNECTIONS + _RESERVED,
    "superuser_reserved_connections": _RESERVED,  # a drop must always get in
    "shared_buffers": "128MB",  # creating and dropping a database scans them
    "huge_pages": "off",
    "io_method": "sync",
    "jit": "off",
    "max_worker_processes": 4,
    "max_parallel_workers": 0,
    "max_parallel_workers_per_gather": 0,
    "max_logical_replication_workers": 0,
    "shared_preload_libraries": "",  # a background worker can hold a template open (P05)
    "password_encryption": "scram-sha-256",
    "temp_file_limit": "1GB",
    "max_notify_queue_pages": 32768,  # 256 MB: one session that listens and sits could fill 8 GB (P53)
    "idle_in_transaction_session_timeout": "5min",
    "TimeZone": "UTC",
    "log_timezone": "UTC",
    "DateStyle": "ISO, MDY",
    "lc_messages": "C",
    "default_text_search_config": "pg_catalog.english",
    # Statements of a seed or an agent, which may hold rows and passwords, stay out of the log.
    "log_min_messages": "log",
    "log_min_error_statement": "panic",
    "log_statement": "none",
    "log_parameter_max_length": 0,
    "log_parameter_max_length_on_error": 0,
    "log_checkpoints": "off",
    "update_process_title": "off",
    "listen_addresses": "",  # no TCP: whoever can reach the socket's directory is the same user or root
    "port": PORT,
}


# A cluster that is kept is started again after its processes were killed: maybe in the middle of a page, and
# without a commit lost that somebody was told of. Neither costs a flush to the disk.
_KEPT: dict[str, str | int] = {"full_page_writes": "on", "synchronous_commit": "on"}

# What a container's own image decides, or what not every version from 15 on knows.
_NOT_IN_CONTAINERS = frozenset({"io_method", "listen_addresses", "max_notify_queue_pages", "port"})


def fingerprint() -> str:
    """A name for all of this: data made under another is not used again."""
    parts = [INITDB, HBA, _SETTINGS, _KEPT]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


def command_flags() -> list[str]:
    """The settings as arguments of `postgres`, for a container of any version from 15 on."""
    flags = []
    for name, value in _SETTINGS.items():
        if name not in _NOT_IN_CONTAINERS:
            flags += ["-c", f"{name}={value}"]
    return flags


def postgresql_conf(*, sockets: str, clones: bool, small_shared_memory: bool, kept: bool = False) -> str:
    """The text of postgresql.conf.

    Args:
        sockets: the socket's directory.
        clones: whether files on the data's file system can be cloned.
        small_shared_memory: whether /dev/shm is too small for the server's shared segments (P91).
        kept: whether the cluster outlives its processes.
    """
    settings = {
        **_SETTINGS,
        **(_KEPT if kept else {}),
        "unix_socket_directories": sockets,
        "file_copy_method": "clone" if clones else "copy",
        "dynamic_shared_memory_type": "mmap" if small_shared_memory else "posix",
    }
    return "".join(f"{name} = {_value(value)}\n" for name, value in settings.items())


def _value(value: str | int) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"
