//! A server whose wall clock steps forwards and back by an hour while it works, and while it is down.
//!
//! Owns the steps: a small library, compiled by the machine's C compiler and loaded into the server, shifts its wall
//! clock by what a file says. Must never judge a history itself: the history checker does.

use crate::load::{Load, QUEUE, run};
use crate::process::Server;
use millpond_api::client::{Client, Enqueue};
use millpond_testkit::history::Event;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

const HOUR_SECONDS: i64 = 3_600;
const SEED: u64 = 11;

/// The wall clock of a server.
struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    fn new(directory: &Path) -> Self {
        let library = directory.join("clock_offset.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/clock_offset.c");
        let compiled = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .arg("-ldl")
            .output()
            .expect("this test needs a C compiler");
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let offset = directory.join("clock_offset");
        std::fs::write(&offset, [0; 8]).unwrap();
        Self { library, offset }
    }

    fn wind(&self, command: &mut Command) {
        command.env("LD_PRELOAD", &self.library).env("MILLPOND_CLOCK_OFFSET", &self.offset);
    }

    /// Sets it to so many seconds off the real one.
    fn set(&self, seconds: i64) {
        let file = std::fs::File::options().write(true).open(&self.offset).unwrap();
        file.write_all_at(&(seconds * 1_000_000_000).to_le_bytes(), 0).unwrap();
    }
}

fn start(load: &Load, clock: &WallClock) -> Server {
    let mut command = load.command();
    clock.wind(&mut command);
    Server::await_start(command)
}

/// By how many seconds the server's stamps are off the real time, once it says the same as the clock is set to.
async fn assert_follows(client: &Client, seconds: i64) {
    let id = loop {
        // Under load, a message more may find no room.
        if let Ok(accepted) = client.enqueue("stamps", Enqueue::new("")).await {
            break accepted.id;
        }
    };
    let stamped: jiff::Timestamp = client.status(&id, None).await.unwrap().accepted_at.parse().unwrap();
    let off = stamped.as_second() - jiff::Timestamp::now().as_second();
    assert!((off - seconds).abs() < 300, "the clock is {seconds} s off, a stamp {off} s");
}

#[test]
fn an_hour_forwards_or_back_loses_and_stalls_nothing_at_work_or_across_a_kill() {
    run(async {
        let mut load = Load::start(SEED, 24, 8);
        let clock = WallClock::new(load.directory());
        let mut server = start(&load, &clock);
        let mut client = Client::new(&server.url).unwrap();
        client.put_queue("stamps", &serde_json::json!({})).await.unwrap();
        load.serve(&server);
        for (round, hours) in [1, 0, -1, 1, -1, 0, 1, -1].into_iter().enumerate() {
            load.answers(150).await;
            if round % 2 == 1 {
                drop(server);
                load.history.note(Event::Death { at: load.history.now() });
                clock.set(hours * HOUR_SECONDS);
                server = start(&load, &clock);
                client = Client::new(&server.url).unwrap();
                load.serve(&server);
            } else {
                clock.set(hours * HOUR_SECONDS);
            }
            load.answers(150).await;
            assert_follows(&client, hours * HOUR_SECONDS).await;
            let stats = client.stats(QUEUE).await.unwrap();
            assert_eq!(stats.expired_total, 0, "{stats:?}");
        }
        load.judge(server).await;
    });
}
