"""`redteam forks`: the forks of a server, by hand. Heavy imports happen inside the commands."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(
    name="forks",
    help="The forks of a server: list them, look inside, keep, drop, and clear what nobody uses any more.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Server = Annotated[
    str | None,
    typer.Option("--server", metavar="DSN", help="The forks' server; default: this user's embedded one."),
]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A fork's name or its label, as `list` shows it.")]


@app.command("list")
def list_(
    server: Server = None,
    json: Annotated[bool, typer.Option("--json", help="As JSON, with all that is known.")] = False,
) -> None:
    """List the forks of a server: whose they are, and whether their launcher still lives."""
    from redteam_harness.cli.forking import list_forks

    list_forks(server, as_json=json)


@app.command(context_settings={"ignore_unknown_options": True})
def psql(
    name: Name,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGUMENT]...", help="Passed on to psql: -c SQL."),
    ] = None,
    server: Server = None,
) -> None:
    """Open psql in a fork, as the administration role.

    A superuser comes in past login triggers and row-level security. What you write there, the fork keeps.
    """
    from redteam_harness.cli.forking import open_psql

    raise typer.Exit(open_psql(server, name, arguments or []))


@app.command()
def keep(name: Name, server: Server = None) -> None:
    """Keep a fork until it is dropped by name: its launcher and `gc` leave it alone."""
    from redteam_harness.cli.forking import keep_fork

    keep_fork(server, name)


@app.command()
def drop(
    name: Name,
    server: Server = None,
    force: Annotated[bool, typer.Option("--force", help="Even if a launcher that lives uses it.")] = False,
) -> None:
    """Drop a fork, a kept one too."""
    from redteam_harness.cli.forking import drop_fork

    drop_fork(server, name, force=force)


@app.command()
def gc(
    server: Server = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be dropped.")] = False,
    unregistered: Annotated[
        bool,
        typer.Option("--unregistered", help="Also drop what bears a fork's name and is in no registry."),
    ] = False,
) -> None:
    """Drop the forks of launchers that are gone, and templates that nobody is building any more.

    Exit code: 0, or 3 if something could not be dropped.
    """
    from redteam_harness.cli.forking import collect_garbage

    raise typer.Exit(collect_garbage(server, dry_run=dry_run, unregistered=unregistered))
