-- name: registry_first
-- Version 1 of the registry. Run once, in one transaction, by a role that owns the database.
CREATE SCHEMA forker;

CREATE TABLE forker.about (version int NOT NULL);
INSERT INTO forker.about VALUES (1);

CREATE SEQUENCE forker.launcher_ids AS int;

CREATE TABLE forker.launchers (
  id int PRIMARY KEY,                 -- also the second half of its advisory lock's key
  host text NOT NULL,
  place text NOT NULL,                -- boot and process namespace; '' where the system tells neither
  pid int NOT NULL,
  started text NOT NULL,              -- when the process began, as its system counts
  grace interval NOT NULL,            -- without a beat for so long it is silent
  beat_at timestamptz NOT NULL,
  lease_until timestamptz NOT NULL,   -- so long its conversations keep their forks, even if it is silent
  closed boolean NOT NULL DEFAULT false
);

CREATE TABLE forker.forks (
  name text PRIMARY KEY,
  launcher int REFERENCES forker.launchers,
  generation int NOT NULL DEFAULT 1,  -- one more with each change; whoever takes a fork compares it
  state text NOT NULL CHECK (state IN ('creating', 'warm', 'leased', 'closing', 'dropping', 'kept')),
  template text NOT NULL,
  label text NOT NULL DEFAULT '',
  created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
  creator_pid int NOT NULL,           -- the session that runs CREATE DATABASE: it outlives a killed launcher; 0: done
  creator_started timestamptz NOT NULL,
  CHECK ((launcher IS NULL) = (state = 'kept'))
) WITH (fillfactor = 50);             -- every change stays on its page

CREATE FUNCTION forker.move(fork text, mine int, target text, froms text[], tag text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  UPDATE forker.forks
  SET state = target, generation = generation + 1, label = coalesce(tag, label),
      creator_pid = CASE WHEN target = 'dropping' THEN creator_pid ELSE 0 END,
      launcher = CASE WHEN target <> 'kept' THEN launcher END
  WHERE name = fork AND launcher = mine AND state = ANY (froms);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'it is not ours to use: it is %',
      coalesce((SELECT state || ' and of launcher ' || coalesce(launcher::text, 'nobody')
                FROM forker.forks WHERE name = fork), 'not registered any more')
      USING ERRCODE = 'RTF01';
  END IF;
  IF target = 'leased' AND NOT EXISTS (
    SELECT FROM pg_database WHERE datname = fork AND datallowconn AND datconnlimit <> -2) THEN
    RAISE EXCEPTION 'its database is gone, closed or invalid' USING ERRCODE = 'RTF02';
  END IF;
END $$;

-- name: registry_second
-- Version 2 keeps what a later comparison of a fork needs. A launcher of version 1 goes on as before.
ALTER TABLE forker.forks
  ADD COLUMN watermark bigint,  -- every transaction of the fork has a 64-bit id from this one on; null: not known
  ADD COLUMN template_oid oid;  -- of its template: one that is built later under the same name has another

CREATE OR REPLACE FUNCTION forker.move(fork text, mine int, target text, froms text[], tag text) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS $$
BEGIN
  -- A fork that becomes warm or leased is whole, and closed until this transaction is over.
  UPDATE forker.forks f
  SET state = target, generation = generation + 1, label = coalesce(tag, label),
      creator_pid = CASE WHEN target = 'dropping' THEN creator_pid ELSE 0 END,
      launcher = CASE WHEN target <> 'kept' THEN launcher END,
      watermark = coalesce(watermark, CASE WHEN state = 'creating' AND target IN ('warm', 'leased')
                                           THEN pg_snapshot_xmax(pg_current_snapshot())::text::bigint END),
      template_oid = coalesce(template_oid, (SELECT d.oid FROM pg_database d WHERE d.datname = f.template))
  WHERE name = fork AND launcher = mine AND state = ANY (froms);
  IF NOT FOUND THEN
    RAISE EXCEPTION 'it is not ours to use: it is %',
      coalesce((SELECT state || ' and of launcher ' || coalesce(launcher::text, 'nobody')
                FROM forker.forks WHERE name = fork), 'not registered any more')
      USING ERRCODE = 'RTF01';
  END IF;
  IF target = 'leased' AND NOT EXISTS (
    SELECT FROM pg_database WHERE datname = fork AND datallowconn AND datconnlimit <> -2) THEN
    RAISE EXCEPTION 'its database is gone, closed or invalid' USING ERRCODE = 'RTF02';
  END IF;
END $$;

-- name: launcher_lock
-- $1: a launcher's id. Whether its lock was free, and is this session's now.
SELECT pg_try_advisory_lock(29300, $1);

-- name: launcher_enter
-- $1: id; $2: host; $3: place; $4: pid; $5: start; $6: grace in seconds; $7: lease in seconds.
INSERT INTO forker.launchers (id, host, place, pid, started, grace, beat_at, lease_until)
VALUES ($1, $2, $3, $4, $5, make_interval(secs => $6), clock_timestamp(),
        clock_timestamp() + make_interval(secs => $7));

-- name: launcher_beat
-- $1: id; $2: lease in seconds. Renews, and says whether this session still holds the lock (a transaction pooler would
-- have taken it away). No row: the launcher was given up, or never was.
UPDATE forker.launchers l
SET beat_at = clock_timestamp(), lease_until = clock_timestamp() + make_interval(secs => $2)
WHERE l.id = $1 AND NOT l.closed
RETURNING EXISTS (SELECT FROM pg_locks k
                  WHERE k.locktype = 'advisory' AND k.classid = 29300 AND k.objid::bigint = $1 AND k.objsubid = 2
                    AND k.pid = pg_backend_pid()) AS locked;

-- name: template_used
-- $1: a template's name. As long as this session lives, it is in use; shared with whoever else uses it.
SELECT pg_advisory_lock_shared(29301, hashtext($1));

-- name: template_is_idle
-- $1: a template's name; in a session in the registry's database. Whether no launcher that lives uses it.
SELECT NOT EXISTS (SELECT FROM pg_locks k
                   WHERE k.locktype = 'advisory' AND k.classid = 29301 AND k.objid = hashtext($1)::oid
                     AND k.objsubid = 2
                     AND k.database = (SELECT d.oid FROM pg_database d WHERE d.datname = 'rt_registry'));

-- name: launcher_names
-- $1: id. The forks that are a launcher's.
SELECT name FROM forker.forks WHERE launcher = $1;

-- name: launcher_close
-- $1: id. Says that a launcher is over, so that what it left is garbage at once.
UPDATE forker.launchers SET closed = true WHERE id = $1;

-- name: launcher_forget
-- $1: id. Nothing is left of a launcher that is over.
DELETE FROM forker.launchers l WHERE l.id = $1 AND NOT EXISTS (SELECT FROM forker.forks f WHERE f.launcher = l.id);

-- name: launchers
-- All launchers, and what shows whether they live.
SELECT l.id, l.host, l.place, l.pid, l.started, l.closed,
       l.beat_at + l.grace < clock_timestamp() AS silent,
       l.lease_until,
       l.lease_until < clock_timestamp() AS lapsed,
       extract(epoch FROM l.lease_until - clock_timestamp())::float8 AS lease_s,
       EXISTS (SELECT FROM pg_locks k JOIN pg_database d ON d.oid = k.database AND d.datname = current_database()
               WHERE k.locktype = 'advisory' AND k.classid = 29300 AND k.objid::bigint = l.id AND k.objsubid = 2
                 AND k.granted) AS locked
FROM forker.launchers l;

-- name: entries
-- All registered forks; age by the server's clock. What version 1 has no columns for is null there.
SELECT f.name, f.launcher, f.generation, f.state, f.template, f.label, f.created_at, f.creator_pid, f.creator_started,
       extract(epoch FROM clock_timestamp() - f.created_at)::float8 AS age_s,
       EXISTS (SELECT FROM pg_database d WHERE d.datname = f.name) AS there,
       (to_jsonb(f) ->> 'watermark')::bigint AS watermark,
       EXISTS (SELECT FROM pg_database d
               WHERE d.datname = f.template AND d.oid::text = to_jsonb(f) ->> 'template_oid') AS template_there
FROM forker.forks f
ORDER BY f.created_at, f.name;

-- name: fork_intended
-- $1: name; $2: launcher; $3: template; $4: label. Before CREATE DATABASE, in the session that will run it.
INSERT INTO forker.forks (name, launcher, state, template, label, creator_pid, creator_started)
SELECT $1, $2, 'creating', $3, $4, pid, backend_start FROM pg_stat_activity WHERE pid = pg_backend_pid()
RETURNING creator_pid AS pid, creator_started AS started;

-- name: fork_adopted
-- $1: name; $2: template; $3: label. Keeps a fork that nobody registered.
INSERT INTO forker.forks (name, state, template, label, creator_pid, creator_started)
VALUES ($1, 'kept', $2, $3, 0, '-infinity')
ON CONFLICT DO NOTHING;

-- name: fork_state
-- $1: name; $2: launcher. The state of a registered fork and whether it is this launcher's; no row: not registered.
SELECT state, launcher IS NOT DISTINCT FROM $2 AS mine FROM forker.forks WHERE name = $1;

-- name: fork_claimed
-- $1: name; $2: launcher; $3: generation; $4: whose it is from now on. No row: it has changed meanwhile.
UPDATE forker.forks SET state = 'dropping', launcher = $4, generation = generation + 1
WHERE name = $1 AND launcher IS NOT DISTINCT FROM $2 AND generation = $3
RETURNING generation;

-- name: fork_kept
-- $1: name; $2: generation. Takes a fork out of its launcher's hands. No row: it has changed meanwhile.
UPDATE forker.forks SET state = 'kept', launcher = NULL, generation = generation + 1
WHERE name = $1 AND generation = $2 AND state IN ('warm', 'leased', 'closing', 'kept')
RETURNING generation;

-- name: fork_forgotten
-- $1: name; $2: launcher. Last of all, when the catalog shows nothing of it any more.
DELETE FROM forker.forks WHERE name = $1 AND launcher IS NOT DISTINCT FROM $2;
