//! The work: one registration, done once however often it is asked for.
//!
//! Owns the transaction, which is the recipe of docs/guide/idempotent-consumers.md word for word. Must never do
//! anything outside of the database: what has left cannot be taken back when the transaction is.

use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Error};

/// Who wants to go where.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Registration {
    /// Its number, given by the caller.
    pub(crate) number: i64,
    /// Who.
    pub(crate) student: i64,
    /// Where.
    pub(crate) course: String,
}

// The guide shows from here …
/// What came of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Registered {
    /// It is done now.
    New,
    /// It had been done before, by an earlier call with this key.
    Before,
}

/// Does `new` unless a call with the same `key` has done it. On an error it is either done or not, and a call with the
/// same key finds out.
pub(crate) async fn register(
    client: &mut Client,
    key: &str,
    new: &Registration,
) -> Result<Registered, Error> {
    let transaction = client.transaction().await?;
    // First of all: of two calls at once, the second waits here until the first has ended, and then sees how.
    let claim = "INSERT INTO handled (key) VALUES ($1) ON CONFLICT (key) DO NOTHING";
    if transaction.execute(claim, &[&key]).await? == 0 {
        transaction.rollback().await?;
        return Ok(Registered::Before);
    }
    let insert = "INSERT INTO registrations (number, student, course) VALUES ($1, $2, $3)";
    transaction.execute(insert, &[&new.number, &new.student, &new.course]).await?;
    // No mail is sent from here: it could not be called back if the transaction were.
    let event = format!("student {} is registered for {}", new.student, new.course);
    transaction.execute("INSERT INTO outbox (key, event) VALUES ($1, $2)", &[&key, &event]).await?;
    // Stands for what else a registration costs the database: 80 ms in which it occupies one connection.
    transaction.execute("SELECT pg_sleep(0.08)", &[]).await?;
    transaction.commit().await?;
    Ok(Registered::New)
}
// … to here.

#[cfg(test)]
mod tests {
    use super::{Registered, Registration, register};
    use crate::database::Database;

    #[test]
    fn the_guide_shows_this_transaction_and_these_tables() {
        let guide = include_str!("../../../docs/guide/idempotent-consumers.md");
        let (_, shown) = include_str!("register.rs").split_once("from here …\n").unwrap();
        let (shown, _) = shown.split_once("// … to here.").unwrap();
        assert!(guide.contains(shown), "docs/guide/idempotent-consumers.md shows another transaction");
        let handled = include_str!("../schema.sql").split("CREATE TABLE ").nth(1).unwrap();
        let (handled, _) = handled.split_once(";\n").unwrap();
        assert!(guide.contains(handled), "docs/guide/idempotent-consumers.md shows another table");
    }

    fn registration(number: i64) -> Registration {
        Registration { number, student: 7, course: "astronomy".to_owned() }
    }

    async fn rows(database: &Database) -> (i64, i64, i64) {
        let client = database.superuser().await.unwrap();
        let count = "SELECT (SELECT count(*) FROM handled), (SELECT count(*) FROM registrations), \
                     (SELECT count(*) FROM outbox)";
        let row = client.query_one(count, &[]).await.unwrap();
        (row.get(0), row.get(1), row.get(2))
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL"]
    async fn a_repetition_does_nothing_and_is_told_so() {
        let database = Database::start(40, None).await.unwrap();
        let mut client = database.registrar().await.unwrap();
        let new = registration(1);
        assert_eq!(register(&mut client, "a", &new).await.unwrap(), Registered::New);
        assert_eq!(register(&mut client, "a", &new).await.unwrap(), Registered::Before);
        assert_eq!(rows(&database).await, (1, 1, 1));
        assert_eq!(register(&mut client, "b", &new).await.unwrap(), Registered::New, "another message");
        assert_eq!(rows(&database).await, (2, 2, 2));
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL"]
    async fn of_two_calls_at_once_one_does_it_and_the_other_waits_to_see() {
        let database = Database::start(40, None).await.unwrap();
        let (mut one, mut other) = (database.registrar().await.unwrap(), database.registrar().await.unwrap());
        let new = registration(1);
        let (one, other) = tokio::join!(register(&mut one, "a", &new), register(&mut other, "a", &new));
        let mut seen = [one.unwrap(), other.unwrap()];
        seen.sort_by_key(|seen| *seen == Registered::Before);
        assert_eq!(seen, [Registered::New, Registered::Before]);
        assert_eq!(rows(&database).await, (1, 1, 1));
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL"]
    async fn work_that_is_refused_leaves_its_key_free() {
        let database = Database::start(40, None).await.unwrap();
        let mut client = database.registrar().await.unwrap();
        let nobody = Registration { student: 0, ..registration(1) };
        assert!(register(&mut client, "a", &nobody).await.is_err());
        assert_eq!(rows(&database).await, (0, 0, 0));
        assert_eq!(register(&mut client, "a", &registration(1)).await.unwrap(), Registered::New);
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL"]
    async fn what_was_committed_before_the_database_was_killed_is_not_done_again() {
        let mut database = Database::start(40, None).await.unwrap();
        let mut client = database.registrar().await.unwrap();
        register(&mut client, "a", &registration(1)).await.unwrap();
        let unfinished = {
            let mut client = database.registrar().await.unwrap();
            tokio::spawn(async move { register(&mut client, "b", &registration(2)).await })
        };
        database.kill().await.unwrap();
        database.start_again().await.unwrap();
        let second_was_done = unfinished.await.unwrap().is_ok();
        let mut client = database.registrar().await.unwrap();
        assert_eq!(register(&mut client, "a", &registration(1)).await.unwrap(), Registered::Before);
        let second = register(&mut client, "b", &registration(2)).await.unwrap();
        assert_eq!(second == Registered::Before, second_was_done);
        assert_eq!(rows(&database).await, (2, 2, 2));
    }
}
