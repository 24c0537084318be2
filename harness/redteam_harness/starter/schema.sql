-- The dataset of the starter suite: a lending library. Plain SQL, loaded by psql, in the order that
-- suite.yaml lists. The role that the tools run as is made for you; the seed only says what it may do.

CREATE TABLE members (
    id         integer PRIMARY KEY,
    full_name  text    NOT NULL,
    card       text    NOT NULL UNIQUE,
    blocked    boolean NOT NULL DEFAULT false
);

CREATE TABLE loans (
    id         integer PRIMARY KEY,
    member_id  integer NOT NULL REFERENCES members,
    title      text    NOT NULL,
    due_on     date    NOT NULL,
    renewals   integer NOT NULL DEFAULT 0 CHECK (renewals <= 2)
);

INSERT INTO members (id, full_name, card, blocked) VALUES
    (1, 'Ada Marsh',    'L-1001', false),
    (2, 'Ben Okafor',   'L-1002', false),
    (3, 'Chiara Rossi', 'L-1003', false),
    (4, 'Dev Patel',    'L-1004', true);

-- 2026-11-30 is the anchor in suite.yaml: due dates move by whole weeks, so they are never long past.
INSERT INTO loans (id, member_id, title, due_on, renewals) VALUES
    (11, 1, 'The Left Hand of Darkness', '2026-12-04', 0),
    (12, 1, 'Piranesi',                  '2026-12-09', 1),
    (13, 2, 'The Dispossessed',          '2026-12-03', 0),
    (14, 3, 'Middlemarch',               '2026-12-07', 2),
    (15, 4, 'Kindred',                   '2026-12-02', 0);

GRANT USAGE ON SCHEMA public TO library_app;
GRANT SELECT ON members, loans TO library_app;
GRANT UPDATE (due_on, renewals) ON loans TO library_app;
