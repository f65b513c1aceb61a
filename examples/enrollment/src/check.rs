//! The check: what is in the table, held against the list of what was accepted.
//!
//! Owns the question, in SQL, and the judgement. Must never trust what a server says of itself: the database is asked.

use serde::Serialize;
use tokio_postgres::{Client, Row};

/// The list of what was accepted: the answers that the callers have.
const ACCEPTED: &str = "CREATE TABLE accepted (number bigint NOT NULL, message text NOT NULL)";
const FILL: &str = "INSERT INTO accepted SELECT * FROM unnest($1::bigint[], $2::text[])";
/// Both sides of the comparison, so that neither a missing nor a superfluous row is overlooked.
const COMPARE: &str = "
    WITH done AS (SELECT number, count(*) AS times FROM registrations GROUP BY number),
         asked AS (SELECT number, count(DISTINCT message) AS messages FROM accepted GROUP BY number)
    SELECT count(asked.number)                                                          AS accepted,
           count(*) FILTER (WHERE asked.number IS NOT NULL AND done.times = 1)          AS once,
           count(*) FILTER (WHERE asked.number IS NOT NULL AND done.times IS NULL)      AS missing,
           count(*) FILTER (WHERE done.times > 1)                                       AS double,
           count(*) FILTER (WHERE asked.number IS NULL)                                 AS unanswered,
           count(*) FILTER (WHERE asked.messages > 1)                                   AS split,
           (SELECT count(*) FROM registrations)                                         AS rows,
           (SELECT count(*) FROM outbox)                                                AS events
    FROM asked FULL JOIN done USING (number)";

/// A registration that its caller was told of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Its number.
    pub(crate) number: i64,
    /// The message it became; empty where there was no queue.
    pub(crate) message: String,
}

/// What the comparison found, in registrations.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Their callers were told that they are accepted.
    pub(crate) accepted: i64,
    /// … and they are in the table, once.
    pub(crate) once: i64,
    /// … and they are not.
    pub(crate) missing: i64,
    /// In the table more than once.
    pub(crate) double: i64,
    /// In the table, though the caller was told otherwise or had left.
    pub(crate) unanswered: i64,
    /// Accepted as more than one message, though the caller named the same key.
    pub(crate) split: i64,
    /// Rows in the table.
    pub(crate) rows: i64,
    /// What the world outside will be told.
    pub(crate) events: i64,
}

impl Verdict {
    fn of(row: &Row) -> Self {
        let count = |name| row.get::<&str, i64>(name);
        Self {
            accepted: count("accepted"),
            once: count("once"),
            missing: count("missing"),
            double: count("double"),
            unanswered: count("unanswered"),
            split: count("split"),
            rows: count("rows"),
            events: count("events"),
        }
    }

    /// What must not be, in words. That a caller was told of a failure and the row is there all the same is the lot of
    /// those who call directly, and no fault of the database.
    pub(crate) fn faults(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut fault = |count: i64, what: &str| {
            if count != 0 {
                faults.push(format!("{count} {what}"));
            }
        };
        fault(self.missing, "accepted registrations are not in the table");
        fault(self.double, "registrations are in the table more than once");
        fault(self.split, "registrations became more than one message");
        fault(self.accepted - self.once - self.missing - self.double, "registrations are not accounted for");
        fault(self.rows - self.events, "registrations have no event in the outbox");
        faults
    }
}

/// Compares `accepted` with the table.
pub(crate) async fn compare(
    client: &Client,
    accepted: &[Accepted],
) -> Result<Verdict, tokio_postgres::Error> {
    let (numbers, messages): (Vec<i64>, Vec<&str>) =
        accepted.iter().map(|accepted| (accepted.number, accepted.message.as_str())).unzip();
    client.batch_execute(ACCEPTED).await?;
    client.execute(FILL, &[&numbers, &messages]).await?;
    Ok(Verdict::of(&client.query_one(COMPARE, &[]).await?))
}

#[cfg(test)]
mod tests {
    use super::{Accepted, Verdict, compare};
    use crate::database::Database;

    #[test]
    fn a_missing_a_double_and_a_split_registration_are_faults_and_an_unanswered_one_is_not() {
        let good =
            Verdict { accepted: 9, once: 9, unanswered: 4, rows: 13, events: 13, ..Verdict::default() };
        assert_eq!(good.faults(), Vec::<String>::new());
        let missing = Verdict { accepted: 9, once: 8, missing: 1, ..Verdict::default() };
        assert_eq!(missing.faults(), ["1 accepted registrations are not in the table"]);
        let double = Verdict { accepted: 9, once: 7, double: 2, ..Verdict::default() };
        assert_eq!(double.faults(), ["2 registrations are in the table more than once"]);
        let split = Verdict { accepted: 9, once: 9, split: 3, ..Verdict::default() };
        assert_eq!(split.faults(), ["3 registrations became more than one message"]);
        let lost = Verdict { accepted: 9, once: 8, ..Verdict::default() };
        assert_eq!(lost.faults(), ["1 registrations are not accounted for"]);
        let silent = Verdict { events: 12, ..good };
        assert_eq!(silent.faults(), ["1 registrations have no event in the outbox"]);
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL"]
    async fn every_kind_of_difference_is_found_in_the_table() {
        let database = Database::start(40, None).await.unwrap();
        let client = database.superuser().await.unwrap();
        let rows = "INSERT INTO registrations SELECT unnest('{1, 3, 3, 4, 5}'::bigint[]), 1, 'c'";
        client.batch_execute(rows).await.unwrap();
        let accepted = [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (4, "e")]
            .map(|(number, message)| Accepted { number, message: message.to_owned() });
        let expected = Verdict {
            accepted: 4,
            once: 2,
            missing: 1,
            double: 1,
            unanswered: 1,
            split: 1,
            rows: 5,
            events: 0,
        };
        assert_eq!(compare(&client, &accepted).await.unwrap(), expected);
    }
}
