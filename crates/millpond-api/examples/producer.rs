//! A producer: enqueues a message so that repeating it cannot do the work twice, and waits for the result.
//!
//! Owns nothing beyond an example. Must never hide a refusal: a full queue says when to come back.
//!
//! ```sh
//! cargo run -p millpond-api --example producer -- http://127.0.0.1:8080 jobs "some text"
//! ```

#![expect(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use millpond_api::client::{Client, ClientError, Enqueue};
use millpond_api::types::{Accepted, State};
use std::time::Duration;

/// Most times that a refused enqueue is repeated.
const ATTEMPTS: u32 = 5;

/// Enqueues; comes back when a queue without room says so. The key makes that safe: if an answer was lost, the
/// repetition leads to the same message.
async fn enqueue(client: &Client, queue: &str, message: Enqueue) -> Result<Accepted, ClientError> {
    for _ in 1..ATTEMPTS {
        match client.enqueue(queue, message.clone()).await {
            Ok(accepted) => return Ok(accepted),
            Err(error) => {
                let Some(pause) = error.retry_after() else { return Err(error) };
                println!("refused ({error}); again in {pause:?}");
                tokio::time::sleep(pause).await;
            }
        }
    }
    client.enqueue(queue, message).await
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let url = arguments.next().unwrap_or_else(|| "http://127.0.0.1:8080".to_owned());
    let queue = arguments.next().unwrap_or_else(|| "jobs".to_owned());
    let text = arguments.next().unwrap_or_else(|| "some text".to_owned());
    let client = Client::new(&url)?;
    let message = Enqueue {
        content_type: Some("text/plain; charset=utf-8".to_owned()),
        idempotency_key: Some(format!("example-{text}")),
        ..Enqueue::new(text)
    };
    let accepted = enqueue(&client, &queue, message).await?;
    match accepted.expected_start_seconds {
        Some(start) => println!("{}: starts in about {:.1}s", accepted.id, start.p50),
        None => println!("{}: nothing can be promised yet", accepted.id),
    }
    let status = client.status(&accepted.status_url, Some(Duration::from_secs(30))).await?;
    if status.status == State::Succeeded && status.result.is_some() {
        let result = client.result(&accepted.status_url).await?;
        println!("{}", String::from_utf8_lossy(&result.body));
    } else {
        println!("it is {:?}; ask again: {url}{}", status.status, accepted.status_url);
    }
    Ok(())
}
