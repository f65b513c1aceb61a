//! The engine inside a program of its own: no server, no HTTP, one directory.
//!
//! Owns nothing beyond an example. Must never share its directory: one process has it at a time.
//!
//! ```sh
//! cargo run -p millpond-engine --example embedded
//! cargo run -p millpond-engine --example embedded -- ./some-directory   # to look at what is on disk
//! ```
//! It enqueues three messages, works on two, stops, opens the directory again, and finds everything as it was: what is
//! done is done, with its result, and what waited waits.

#![expect(clippy::print_stdout, reason = "an example speaks to whoever runs it")]

use millpond_core::command::{Declared, LeaseRequest, NewMessage, SettleOutcome, Settlement};
use millpond_core::identity::Seq;
use millpond_core::message::{Content, Criticality, Failure};
use millpond_core::name::Name;
use millpond_core::settings::QueueSettings;
use millpond_engine::{Delivery, Engine, EngineOptions, Handle};
use std::error::Error;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// Opens the engine on `directory` with one queue. The third part of what comes back are the calls for push targets,
/// of which there are none here.
fn open(directory: &Path) -> Outcome<(Engine, Handle)> {
    let queue = (Name::new("invoices")?, QueueSettings::default());
    let declared = Declared { queues: vec![queue], ..Declared::default() };
    let (engine, handle, _calls) = Engine::open(EngineOptions::new(directory.to_owned(), declared))?;
    Ok((engine, handle))
}

/// Enqueues; once this returns, the message is on disk.
async fn enqueue(handle: &Handle, text: &str) -> Outcome<Seq> {
    let content = Arc::new(Content {
        content_type: "text/plain; charset=utf-8".to_owned(),
        headers: Vec::new(),
        body: text.to_owned().into(),
    });
    let message = NewMessage {
        content,
        delay: Duration::ZERO,
        ttl: None,
        key: None,
        criticality: Criticality::default(),
        tenant: None,
        group: None,
        callback: None,
    };
    let mut accepted = handle.enqueue(Name::new("invoices")?, vec![message]).await?;
    Ok(accepted.pop().ok_or("one answer per message")??.seq)
}

/// Takes one message, for as long as the queue's lease. If this future is dropped, the message stays where it is.
async fn lease(handle: &Handle) -> Outcome<Option<Delivery>> {
    let request = LeaseRequest {
        queue: Name::new("invoices")?,
        max: 1,
        lease: None,
        wait: Duration::from_secs(1),
        consumer: None,
    };
    Ok(handle.lease(request).await?.pop())
}

/// Says how work on a message ended; once this returns, that is on disk.
async fn settle(handle: &Handle, delivery: &Delivery, outcome: SettleOutcome) -> Outcome<()> {
    let settlement = Settlement { receipt: delivery.leased.receipt, outcome };
    handle.settle(vec![settlement]).await?.pop().ok_or("one answer per settlement")??;
    Ok(())
}

async fn show(handle: &Handle, messages: &[Seq]) -> Outcome<()> {
    for &seq in messages {
        let message = handle.status(seq, None).await?.message;
        // Of a message that is done, the content is its result.
        let content = handle.content(seq).await?;
        let text = content.map(|content| String::from_utf8_lossy(&content.body).into_owned());
        let id = handle.keys().id(seq);
        println!("  {id}  {:?}, {} attempts: {}", message.phase, message.attempts, text.unwrap_or_default());
    }
    Ok(())
}

async fn run(directory: &Path) -> Outcome<()> {
    let (engine, handle) = open(directory)?;
    let mut messages = Vec::new();
    for text in ["invoice 7", "invoice 8", "invoice 9"] {
        messages.push(enqueue(&handle, text).await?);
    }
    let first = lease(&handle).await?.ok_or("there are three messages")?;
    let result = Content { body: "paid".into(), ..Content::clone(&first.content) };
    settle(&handle, &first, SettleOutcome::Complete { result: Some(Arc::new(result)) }).await?;
    let second = lease(&handle).await?.ok_or("there are two left")?;
    let failure = Some(Failure::new("bank", "the bank is closed", None));
    settle(&handle, &second, SettleOutcome::Retry { failure, delay: None }).await?;
    println!("before the restart:");
    show(&handle, &messages).await?;
    engine.stop();

    let (engine, handle) = open(directory)?;
    println!("after it:");
    show(&handle, &messages).await?;
    let third = lease(&handle).await?.ok_or("what waited waits")?;
    println!("next: {}", String::from_utf8_lossy(&third.content.body));
    settle(&handle, &third, SettleOutcome::Release { delay: None }).await?;
    engine.stop();
    Ok(())
}

fn main() -> Outcome<()> {
    let temporary = tempfile::tempdir()?;
    let named = std::env::args().nth(1);
    let directory = named.as_deref().map_or_else(|| temporary.path(), Path::new);
    // The engine has threads of its own and needs no particular runtime.
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(run(directory))
}
