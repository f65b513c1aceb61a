-- What was done, by the Idempotency-Key of the message that asked for it. The primary key is what keeps it single.
CREATE TABLE handled (
    key        text        PRIMARY KEY,
    handled_at timestamptz NOT NULL DEFAULT now()
);

-- The work itself. Nothing here is unique on purpose: a registration done twice would show.
CREATE TABLE registrations (
    number  bigint NOT NULL,
    student bigint NOT NULL CHECK (student > 0),
    course  text   NOT NULL
);

-- What the world outside is to be told, by a sender of its own that reads this table.
CREATE TABLE outbox (
    key   text PRIMARY KEY,
    event text NOT NULL
);
