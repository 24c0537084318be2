# Sourced by the scripts beside it, from the repository's root: makes .venv, or brings it up to date when
# what it was made from has changed. Needs python3 (3.11 or later) with pip and venv.

redteam_python() {
    for candidate in "${PYTHON:-}" python3 python3.13 python3.12 python3.11; do
        if [ -n "$candidate" ] && command -v "$candidate" >/dev/null 2>&1 &&
            "$candidate" -c 'import sys, venv; sys.exit(not (3, 11) <= sys.version_info[:2])' 2>/dev/null; then
            command -v "$candidate"
            return 0
        fi
    done
    echo "redteam: no Python 3.11 or later with the venv module was found; install one, or name it: PYTHON=/path/to/python3 $0" >&2
    return 2
}

redteam_stamp() {
    cat pyproject.toml sdk/pyproject.toml sdk/redteam_sdk/_version.py | cksum
    pwd
}

if [ ! -x .venv/bin/python ] || [ "$(redteam_stamp)" != "$(cat .venv/redteam-stamp 2>/dev/null)" ]; then
    python=$(redteam_python) || exit 2
    echo "redteam: making .venv (once; it takes about half a minute)" >&2
    "$python" -m venv --clear .venv || {
        echo "redteam: .venv could not be made in $(pwd); is the folder writable, and is the python3-venv package installed?" >&2
        exit 2
    }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ./sdk -e '.[dev]' || {
        echo "redteam: installing into .venv failed; pip's own message is above" >&2
        exit 2
    }
    redteam_stamp >.venv/redteam-stamp
fi
