//! A worker: turns the text of each message into capitals, and says so as the result.
//!
//! Owns nothing beyond an example. Must never grow into a program of its own: `millpond work` is one.
//!
//! ```sh
//! millpond serve & millpond queues create jobs
//! cargo run -p millpond-api --example worker -- http://127.0.0.1:8080 jobs
//! ```
//! Ctrl-C stops it: no new messages, those in work end, then it ends. With a third argument it stops after so many.

#![expect(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use millpond_api::client::Client;
use millpond_api::worker::{Event, Message, Outcome, Worker};
use std::time::Duration;

async fn handle(message: Message) -> Outcome {
    let Ok(text) = std::str::from_utf8(&message.body) else {
        // It would fail in every attempt: a dead letter, for somebody to look at.
        return Outcome::dead("the body is no UTF-8");
    };
    if message.attempt == 1 && text.contains("moody") {
        // What may go better later is a retry; an `Err` would be one too.
        return Outcome::retry("not in the mood");
    }
    let work = tokio::time::sleep(Duration::from_millis(20));
    tokio::select! {
        () = work => Outcome::result("text/plain; charset=utf-8", text.to_uppercase()),
        // The lease is over although it was extended: somebody else may be at it by now.
        () = message.lost() => Outcome::release(),
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let queue = arguments.next().unwrap_or_else(|| "jobs".to_owned());
    let mut worker = Worker::new(Client::new(&url)?, queue).concurrency(16).observe(|event| match event {
        Event::Settled { id, outcome, took } => println!("{id} {} after {took:?}", outcome.as_str()),
        Event::Failed { request, error, pause } => println!("{request} failed ({error}); again in {pause:?}"),
        _ => {}
    });
    if let Some(limit) = arguments.next() {
        worker = worker.limit(limit.parse()?);
    }
    let stop = async { drop(tokio::signal::ctrl_c().await) };
    let summary = worker.run(handle, stop).await?;
    println!("{} done, {} to be retried, {} dead", summary.completed, summary.retried, summary.dead);
    Ok(())
}
