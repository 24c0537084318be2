"""Every shape of table that Postgres has, for searches: what each can hold, and how to write to it.

`zoo.py` is the small one, whose rows other tests spell out.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

__all__ = ["APP", "SHAPES", "Shape", "wide_zoo"]

# Whoever makes the zoo makes this role first; it owns nothing.
APP = "zoo_app"
_SQL = Path(__file__).with_suffix(".sql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One table, and what statements need to know to write to it.

    Attributes:
        table: its name, as SQL says it.
        columns: what an insert names; empty for a table that takes only `DEFAULT VALUES`.
        values: an expression for each of them; `{n}` stands for a number.
        sets: assignments, each of which changes a row, or only its text, or nothing.
        key: columns that an upsert can name; empty where there are none.
    """

    table: str
    columns: tuple[str, ...]
    values: tuple[str, ...]
    sets: tuple[str, ...] = ()
    key: str = ""

    def __str__(self) -> str:
        return self.table

    @property
    def bare(self) -> str:
        """Without `ONLY`, which an insert does not know."""
        return self.table.removeprefix("ONLY ")


def wide_zoo(version_num: int, *, extensions: frozenset[str], xml: bool) -> str:
    """The SQL that makes it, as a superuser, on a server of that version; `APP` must be a role there."""
    there = {"always", *extensions}
    if version_num >= 180000:
        there.add("virtual")
    if xml:
        there.add("xml")
    _, *parts = _SQL.read_text(encoding="utf-8").split("-- only where: ")
    return "".join(sql for name, sql in (part.split("\n", 1) for part in parts) if name in there)


def _shape(table: str, columns: str, *values: str, sets: tuple[str, ...] = (), key: str = "") -> Shape:
    return Shape(
        table=table,
        columns=tuple(name.strip() for name in columns.split(",") if name.strip()),
        values=values,
        sets=sets,
        key=key,
    )


_V = ("v = v || 'x'", "v = v", "v = NULL", "v = ''")

SHAPES: tuple[Shape, ...] = (
    _shape(
        "single",
        "id, v, n",
        "{n}",
        "'n{n}'",
        "{n}.10",
        sets=(*_V, "n = n + 0.00", "n = n + 1", "id = id + 200"),
        key="id",
    ),
    _shape(
        "composite",
        "a, b, v",
        "{n} % 7",
        "'b{n}'",
        "{n}",
        sets=("v = v + 1", "v = v", "a = a + 7"),
        key="b, a",
    ),
    _shape(
        "keyless",
        "a, b, n",
        "{n} % 4",
        "'b' || {n} % 3",
        "{n} % 2",
        sets=("a = a + 1", "b = b", "b = NULL", "n = n * 1.0", "n = n + 1"),
    ),
    _shape(
        "coded",
        "id, code, loose, v",
        "{n}",
        "'c{n}'",
        "'l{n}'",
        "{n} % 9",
        sets=("v = v + 1", "code = code || 'x'", "loose = NULL"),
        key="code",
    ),
    _shape(
        "halfkeyed",
        "id, v, w",
        "{n} % 3",
        "'v{n}'",
        "-100 * {n}",
        sets=("w = w - 1", "v = v || 'x'", "id = id + 1"),
    ),
    _shape("numeric_key", "k, v", "{n}.0", "'n{n}'", sets=(*_V, "k = k * 1.0", "k = k + 100"), key="k"),
    _shape("text_key", "k, v", "'k{n}'", "'\\N'", sets=(*_V, "k = k || ','"), key="k"),
    _shape(
        "odd_keys",
        "b, d, f, m, v",
        "'\\xbeef'",
        "date '2026-01-01' + {n}",
        "{n} / 10.0",
        "'ok'",
        "'o{n}'",
        sets=(*_V, "d = d + 60", "f = -f", "m = 'happy'"),
        key="b, d, f, m",
    ),
    _shape(
        "ranked",
        "place, name",
        "{n}",
        "'n{n}'",
        sets=("name = name || 'x'", "place = 9 - place", "place = place + 1"),
        key="",
    ),
    _shape("void", ""),
    _shape("only_text", "v", "'t{n}'", sets=_V),
    _shape("nothing", "id, v", "{n}", "'n{n}'", sets=_V, key="id"),
    _shape(
        "many", "id, v, n", "{n} + 1480", "'m{n}'", "{n}", sets=(*_V, "n = n + 1", "id = id + 5000"), key="id"
    ),
    _shape(
        "hot",
        "id, v, hits",
        "{n} + 60",
        "'h{n}'",
        "0",
        sets=("hits = hits + 1", "hits = hits", "v = rpad(v, 400, 'y')"),
        key="id",
    ),
    _shape("paged", "id, body", "{n}", "'p{n}'", sets=("body = 'other'", "body = body"), key="id"),
    _shape("unlogged", "id, v", "{n}", "'u{n}'", sets=_V, key="id"),
    _shape("dropped", "id, v", "{n}", "'d{n}'", sets=_V, key="id"),
    _shape(
        "grown",
        "id, v, extra, more, blank",
        "{n}",
        "'g{n}'",
        "7",
        "'m'",
        "{n}.0",
        sets=(*_V, "extra = 7", "extra = 8", "blank = 1.0"),
        key="id",
    ),
    _shape(
        "booked",
        "room, during",
        "{n}",
        "int4range({n} * 10, {n} * 10 + 5)",
        sets=("room = room + 1", "during = during"),
    ),
    _shape(
        '"Ev""il; --"."ta ble\'; $$"',
        '"select", "a""b", "zz"',
        "{n}",
        "'\"{n}'",
        "{n}",
        sets=('"a""b" = "a""b" || \'"\'', '"zz" = "zz" + 1', "\"image\" = '('", '"$1" = NULL'),
        key='"select"',
    ),
    _shape(
        "public.pg_class",
        "oid, relname",
        "{n}",
        "'n{n}'",
        sets=("relname = relname || 'x'", "relname = relname"),
        key="oid",
    ),
    _shape(
        "ranged",
        "id, at, v",
        "{n}",
        "date '2024-06-01' + 20 * {n}",
        "'r{n}'",
        sets=(*_V, "at = at + 365", "at = at - 400", "id = id + 1"),
        key="id, at",
    ),
    _shape("hashed", "id, v", "{n}", "'h{n}'", sets=(*_V, "id = id + 1000"), key="id"),
    _shape(
        "listed",
        "id, part, v, n",
        "{n}",
        "{n} % 4",
        "'l{n}'",
        "{n}.0",
        sets=(*_V, "part = 3 - part", "n = n * 1.0", "n = n + 1"),
    ),
    _shape("listed_1", "id, part, v, n", "{n}", "1", "'l{n}'", "{n}.0", sets=(*_V, "n = n + 1")),
    _shape("listed_spare", "id, part, v, n", "{n}", "9", "'l{n}'", "{n}.0", sets=_V),
    _shape("parent", "id, v", "{n}", "'p{n}'", sets=(*_V, "id = id + 300"), key="id"),
    _shape("ONLY parent", "id, v", "{n}", "'p{n}'", sets=_V),
    _shape("child", "id, v, extra", "{n}", "'c{n}'", "{n}", sets=(*_V, "extra = extra + 1"), key="id"),
    _shape(
        "grandchild",
        "id, v, extra, deep",
        "{n} % 3",
        "'g{n}'",
        "{n}",
        "{n}",
        sets=(*_V, "deep = deep * 1.0", "deep = deep + 1"),
    ),
    _shape("orphan", "id, v", "{n}", "'o{n}'", sets=_V),
    _shape(
        "toasted",
        "id, body, kept, note",
        "{n}",
        "repeat(md5('{n}'), 200)",
        "repeat('k{n}', 500)",
        "'n{n}'",
        sets=(
            "note = note || 'x'",
            "body = body || 'x'",
            "body = body",
            "body = repeat('z', 100000)",
            "kept = repeat('y', 9000)",
            "body = NULL",
        ),
        key="id",
    ),
    _shape(
        "toasted_bag",
        "body, small",
        "(SELECT string_agg(md5({n} || '.' || i), '') FROM generate_series(1, 300) i)",
        "{n}",
        sets=("body = body || ''", "body = reverse(body)", "small = small + 1"),
    ),
    _shape("made", "a", "{n}", sets=("a = a + 1", "a = a", "a = NULL")),
    _shape("served", "v", "'s{n}'", sets=(*_V, "again = again + 1", "id = DEFAULT")),
    _shape(
        "docs",
        "id, j, jb, d",
        "{n}",
        "'{{\"n\": {n}}}'",
        "'{{\"n\": {n}.0}}'",
        "'[{n}]'",
        sets=(
            'j = \'{{"b": [1], "a": 1.0}}\'',
            "j = j::jsonb::json",
            "jb = jb || '{{\"n\": 1.0}}'",
            "jb = jsonb_set(jb, '{{n}}', '{n}')",
            "d = '{{\"n\": 1.00}}'",
            "j = NULL",
            "j = 'null'",
            'j = \'{{"a": 1, "a": 2}}\'',
        ),
        key="id",
    ),
    _shape(
        "doc_bag",
        "j, n",
        "'{{\"a\": {n}}}'",
        "{n}.0",
        sets=("j = '{{\"a\": 1.00}}'", "n = n * 1.0", "n = n + 1", "j = NULL"),
    ),
    _shape(
        "lists",
        "id, ints, nums, docs",
        "{n}",
        "ARRAY[{n}]",
        "ARRAY[{n}.0, NULL]",
        "ARRAY['{n}.0'::jsonb]",
        sets=(
            "ints = ints || {n}",
            "nums = '{{1.00,2}}'",
            "nums = ARRAY(SELECT x * 1.0 FROM unnest(nums) x)",
            "grid = '{{{{1,2.00}},{{3.0,4}}}}'",
            "grid = '{{1,2.0,3,4}}'",
            "nums = '[0:1]={{1.0,2}}'",
            "words = '{{}}'",
            "words[1] = 'NULL'",
            "docs = ARRAY['{{\"a\": 1}}'::jsonb]",
            "moods = '{{ok}}'",
        ),
        key="id",
    ),
    _shape(
        "spans",
        "id, n, mi",
        "{n}",
        "numrange({n}, NULL)",
        "'{{}}'",
        sets=(
            "n = '[1,2.5)'",
            "n = '[1.0,2.50]'",
            "n = 'empty'",
            "mn = '{{[1,2),[3.0,4.0)}}'",
            "mn = '{{[1,5)}}'",
            "i = i * '[2,90)'",
            "t = NULL",
            "f = f",
            "mi = mi + '{{[7,9)}}'",
        ),
        key="id",
    ),
    _shape(
        "places",
        "id, at, stops",
        "{n}",
        "ROW('n{n}', {n}.0, 'ok')::spot",
        "ARRAY[ROW('s', {n}, NULL)::spot]",
        sets=(
            "at.weight = 1",
            "at.weight = 1.000",
            "at.street = (zz.at).street || ')'",
            "stops = stops || ROW('y', 1, 'sad')::spot",
            "stops = ARRAY[ROW('x', 2.5, NULL)::spot, NULL]",
            "trip = ROW('t', ARRAY[ROW('(', 1, 'sad')::spot], '[1,4]')::trip",
            "at = NULL",
            "at = ROW(NULL, NULL, NULL)",
        ),
        key="id",
    ),
    _shape(
        "moods",
        "feeling, price, cost",
        "'happy'",
        "{n}",
        "{n}",
        sets=("feeling = 'ok'", "price = price + 1", "cost = cost * 1.00", "moods = moods || 'sad'::mood"),
    ),
    _shape(
        "scalars",
        "id, yes",
        "('00000000-0000-0000-0000-0000000000' || lpad('{n}', 2, '0'))::uuid",
        "true",
        sets=(
            "yes = NOT yes",
            "padded = 'ab'",
            "padded = 'x'",
            "at = at + '1 h'::interval",
            "at = at",
            "span = '26 h'",
            "span = '1 day 2 h'",
            "bytes = bytes || '\\x00'",
            "bits = ~bits",
            "cash = cash * 2",
            "real = real * 3",
            "ratio = ratio + 0.2",
            "host = host + 1",
            "spot = '(1,3)'",
            "area = area",
            "ring = '<(0,0),2>'",
            "words = 'a cat'",
            "query = 'cat & fat'",
            "letter = 'y'",
            "rel = 'text'",
            "large = large * 2",
            "zoned = '09:00+00'",
            "lsn = lsn + 1",
        ),
        key="id",
    ),
    _shape(
        "extremes",
        "id, n, f",
        "{n}",
        "'-Infinity'",
        "'-0'",
        sets=(
            "n = 'NaN'",
            "n = n",
            "f = f * -1",
            "f = 0",
            "r = r * 1",
            "t = '-infinity'",
            "s = 'NULL'",
            "s = NULL",
            "n = 1e-30 * 1.0",
        ),
        key="id",
    ),
    _shape("fk_parent", "id, v", "{n}", "'p{n}'", sets=(*_V, "id = id + 100"), key="id"),
    _shape("fk_child", "id, up, v", "{n}", "{n} % 9", "'c{n}'", sets=(*_V, "up = 1"), key="id"),
    _shape("fk_weak", "id, up", "{n}", "{n} % 9", sets=("up = NULL", "up = 2"), key="id"),
    _shape("audited", "id, v", "{n}", "'a{n}'", sets=_V, key="id"),
    _shape("ruled", "id, v", "{n}", "'r{n}'", sets=_V),
    _shape("secret", "id, who, v", "{n}", "current_user", "'s{n}'", sets=_V, key="id"),
    _shape("virtual", "id, a", "{n}", "{n}.0", sets=("a = a + 1", "a = a * 1.0"), key="id"),
    _shape("marked", "id, x", "{n}", "'<b/>'", sets=("x = '<a  n=\"1\">x</a>'", "x = x"), key="id"),
    _shape("mixed_near", "id, part, v", "{n}", "{n} % 2", "'m{n}'", sets=(*_V, "part = 1 - part")),
)
