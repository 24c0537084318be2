"""`python -m redteam_sdk.serve --fd N`: see `redteam_sdk.serve`."""

from __future__ import annotations

import argparse
import signal

from redteam_sdk.serve.channel import Channel
from redteam_sdk.serve.process import Process


def main() -> None:
    """Serve on the inherited socket until its other end closes."""
    # Ctrl-C reaches the whole process group; stopping is the harness's business, and it closes the socket.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parser = argparse.ArgumentParser(prog="python -m redteam_sdk.serve", description="The agent's process.")
    parser.add_argument("--fd", type=int, required=True, help="the inherited socket to the harness")
    descriptor = parser.parse_args().fd
    try:
        channel = Channel(descriptor)
    except OSError as error:
        parser.error(f"file descriptor {descriptor} is no socket that this process inherited: {error}")
    Process(channel).run()


if __name__ == "__main__":
    main()
