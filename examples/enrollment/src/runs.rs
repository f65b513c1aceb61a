//! The three runs: directly, through Millpond, and through Millpond with kills.
//!
//! Owns their order of events and what is looked at meanwhile. Must never judge: the check and the report do.

use crate::callers::{Behaviour, Callers, Calls};
use crate::chaos::{Kill, Victim};
use crate::check::{Verdict, compare};
use crate::database::{Access, Database};
use crate::options::Options;
use crate::process::{Process, Recipe, free_address};
use anyhow::{Context as _, ensure};
use serde::Deserialize;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often queue and database are looked at.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is said how things stand.
const SAY_EVERY: Duration = Duration::from_secs(10);
/// How long normal load goes on after a spike that is called directly.
const DIRECT_TAIL: Duration = Duration::from_secs(10);
/// How long callers of the queue try again with the same key.
const PATIENCE: Duration = Duration::from_mins(2);
/// From a kill to the start of what was killed.
const DOWN_FOR: Duration = Duration::from_secs(1);
/// How much longer than planned the queue may take before the run is given up, and what every kill may add.
const PATIENCE_FACTOR: f64 = 4.0;
const PATIENCE_PER_KILL: Duration = Duration::from_secs(30);
const PATIENCE_MIN: Duration = Duration::from_mins(5);

/// What was seen of a run.
#[derive(Debug)]
pub(crate) struct Seen {
    /// What the callers were told.
    pub(crate) calls: Calls,
    /// What the database says.
    pub(crate) verdict: Verdict,
    /// The most connections that the database gave the service.
    pub(crate) connections_peak: i64,
    /// Of the queue, if there was one.
    pub(crate) queue: Option<QueueSeen>,
}

/// What was seen of the queue.
#[derive(Debug, Default)]
pub(crate) struct QueueSeen {
    /// The most messages that were ready.
    pub(crate) depth_peak: u64,
    /// The highest age of the oldest.
    pub(crate) age_peak_seconds: f64,
    /// At the first look after the end of the spike.
    pub(crate) at_spike_end: Stats,
    /// From the end of the spike until nothing was ready. With kills: after the last one.
    pub(crate) drain_seconds: f64,
    /// Messages given up.
    pub(crate) dead: u64,
    /// Calls that the service found done before.
    pub(crate) repetitions: i64,
    /// Who was killed, and for how long it did not serve.
    pub(crate) kills: Vec<(Kill, Duration)>,
}

/// The part of `GET /v1/queues/{queue}/stats` that is looked at.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
pub(crate) struct Stats {
    pub(crate) ready: u64,
    pub(crate) delayed: u64,
    pub(crate) leased: u64,
    pub(crate) backoff: u64,
    pub(crate) dead: u64,
    pub(crate) oldest_ready_age_seconds: f64,
    pub(crate) capacity_per_second: f64,
}

impl Stats {
    fn unfinished(&self) -> u64 {
        self.ready + self.delayed + self.leased + self.backoff
    }
}

/// Says on standard error what goes on.
#[expect(clippy::print_stderr, reason = "a program for the terminal")]
pub(crate) fn note(text: &str) {
    eprintln!("{text}");
}

fn shown(time: Duration) -> String {
    millpond_sim::text::seconds(time.as_secs_f64())
}

/// The database, the service and their directory.
struct World {
    // In the order in which they are stopped.
    millpond: Option<Process>,
    service: Process,
    database: Database,
    directory: TempDir,
    service_url: String,
}

impl World {
    async fn start(options: &Options) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new().prefix("enrollment-").tempdir()?;
        let database = Database::start(Options::CONNECTIONS, options.postgres.as_deref()).await?;
        let address = free_address()?;
        let recipe = Recipe {
            name: "the service",
            program: std::env::current_exe()?,
            arguments: [
                "service",
                "--listen",
                &address.to_string(),
                "--database",
                &database.connection_string(),
            ]
            .map(Into::into)
            .to_vec(),
            log: directory.path().join("service.log"),
            ready: format!("http://{address}/livez"),
        };
        let service = Process::start(recipe).await?;
        let service_url = format!("http://{address}");
        Ok(Self { millpond: None, service, database, directory, service_url })
    }

    /// Puts Millpond in front, and returns where it serves.
    async fn put_in_front(&mut self, options: &Options) -> anyhow::Result<String> {
        let address = free_address()?;
        let configuration =
            include_str!("../millpond.toml").replace("http://127.0.0.1:9000", &self.service_url);
        let file = self.directory.path().join("millpond.toml");
        std::fs::write(&file, configuration)?;
        let data = self.directory.path().join("millpond-data");
        let recipe = Recipe {
            name: "Millpond",
            program: millpond(options)?,
            arguments: vec![
                "serve".into(),
                "--config".into(),
                file.into(),
                "--listen".into(),
                address.to_string().into(),
                "--data".into(),
                data.into(),
            ],
            log: self.directory.path().join("millpond.log"),
            ready: format!("http://{address}/readyz"),
        };
        self.millpond = Some(Process::start(recipe).await?);
        Ok(format!("http://{address}"))
    }

    /// Kills as `kills` says, and starts again what was killed.
    async fn suffer(&mut self, kills: &[Kill], begin: Instant) -> anyhow::Result<Vec<(Kill, Duration)>> {
        let mut done = Vec::new();
        for kill in kills {
            tokio::time::sleep_until((begin + kill.at).into()).await;
            let since = Instant::now();
            match kill.victim {
                Victim::Service => self.service.kill().await?,
                Victim::Database => self.database.kill().await?,
                Victim::Millpond => self.millpond()?.kill().await?,
            }
            tokio::time::sleep(DOWN_FOR).await;
            match kill.victim {
                Victim::Service => self.service.start_again().await?,
                Victim::Database => self.database.start_again().await?,
                Victim::Millpond => self.millpond()?.start_again().await?,
            }
            let (at, after) = (shown(kill.at), shown(since.elapsed()));
            note(&format!("  {at}: {:?} killed, back after {after}", kill.victim));
            done.push((*kill, since.elapsed()));
        }
        Ok(done)
    }

    fn millpond(&mut self) -> anyhow::Result<&mut Process> {
        self.millpond.as_mut().context("there is no Millpond in front")
    }

    fn runs(&mut self) -> anyhow::Result<()> {
        self.service.runs()?;
        self.millpond.as_mut().map_or(Ok(()), Process::runs)
    }

    /// Waits until the database works on nothing any more, then compares.
    async fn verdict(&self, calls: &Calls) -> anyhow::Result<(Verdict, i64)> {
        let client = self.database.superuser().await?;
        let busy = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'registrar' AND state <> 'idle'";
        let deadline = Instant::now() + PATIENCE_MIN;
        while client.query_one(busy, &[]).await?.get::<_, i64>(0) > 0 {
            ensure!(Instant::now() < deadline, "the database works on and on");
            tokio::time::sleep(LOOK_EVERY).await;
        }
        let verdict = compare(&client, &calls.accepted).await?;
        let repetitions = client.query_one("SELECT count(*) FROM repetitions", &[]).await?.get(0);
        Ok((verdict, repetitions))
    }
}

/// The program to put in front.
fn millpond(options: &Options) -> anyhow::Result<PathBuf> {
    let beside = || anyhow::Ok(std::env::current_exe()?.with_file_name("millpond"));
    let program = options.millpond.clone().map_or_else(beside, Ok)?;
    ensure!(
        program.is_file(),
        "there is no {}: build it with `cargo build --release`, or say --millpond FILE",
        program.display()
    );
    Ok(program)
}

/// The most connections that the database gives the service, watched while it lives.
struct Connections(tokio::task::JoinHandle<()>, tokio::sync::watch::Receiver<i64>);

impl Connections {
    fn watch(access: Access) -> Self {
        let (peak, seen) = tokio::sync::watch::channel(0);
        let count = "SELECT count(*) FROM pg_stat_activity WHERE usename = 'registrar'";
        let task = tokio::spawn(async move {
            loop {
                // Away while it is killed; then the next one.
                let Ok(client) = access.superuser().await else {
                    tokio::time::sleep(LOOK_EVERY).await;
                    continue;
                };
                while let Ok(row) = client.query_one(count, &[]).await {
                    peak.send_modify(|peak| *peak = row.get::<_, i64>(0).max(*peak));
                    tokio::time::sleep(LOOK_EVERY).await;
                }
            }
        });
        Self(task, seen)
    }

    fn peak(&self) -> i64 {
        *self.1.borrow()
    }
}

impl Drop for Connections {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The callers call the service.
pub(crate) async fn direct(options: &Options) -> anyhow::Result<Seen> {
    note("called directly …");
    let mut world = World::start(options).await?;
    let connections = Connections::watch(world.database.access());
    let behaviour = Behaviour {
        url: format!("{}/registrations", world.service_url),
        timeout: Options::CALLER_TIMEOUT,
        patience: None,
        begin: Instant::now(),
        until: options.spike_end() + DIRECT_TAIL,
    };
    let calls = Callers::start(options.schedule(), behaviour)?.finish().await;
    world.runs()?;
    let (verdict, _) = world.verdict(&calls).await?;
    Ok(Seen { calls, verdict, connections_peak: connections.peak(), queue: None })
}

/// The callers call Millpond, which calls the service; `kills` happen meanwhile.
pub(crate) async fn queued(options: &Options, kills: &[Kill]) -> anyhow::Result<Seen> {
    note(if kills.is_empty() { "through Millpond …" } else { "through Millpond, with kills …" });
    let mut world = World::start(options).await?;
    let url = world.put_in_front(options).await?;
    let connections = Connections::watch(world.database.access());
    let planned = millpond_sim::plan::plan(&options.plan_input())?.drain_seconds.unwrap_or_default();
    let patience = Duration::from_secs_f64(planned * PATIENCE_FACTOR).max(PATIENCE_MIN);
    let deadline = options.spike_end() + patience + PATIENCE_PER_KILL * u32::try_from(kills.len())?;
    let begin = Instant::now();
    let behaviour = Behaviour {
        url: format!("{url}/registrations"),
        timeout: Options::CALLER_TIMEOUT,
        patience: Some(PATIENCE),
        begin,
        until: deadline,
    };
    let callers = Callers::start(options.schedule(), behaviour)?;
    let kills_end = kills.last().map_or(Duration::ZERO, |kill| kill.at + DOWN_FOR);
    let looks = Looks::new(&url, begin, options.spike_end(), options.spike_end().max(kills_end), deadline)?;
    let (killed, mut queue) = tokio::try_join!(world.suffer(kills, begin), looks.until_drained())?;
    queue.kills = killed;
    callers.stop();
    let calls = callers.finish().await;
    queue.dead = looks.until_finished().await?.dead;
    world.runs()?;
    let (verdict, repetitions) = world.verdict(&calls).await?;
    queue.repetitions = repetitions;
    Ok(Seen { calls, verdict, connections_peak: connections.peak(), queue: Some(queue) })
}

/// Looks at the queue.
struct Looks {
    client: reqwest::Client,
    url: String,
    begin: Instant,
    spike_end: Duration,
    quiet_from: Duration,
    deadline: Duration,
}

impl Looks {
    fn new(
        url: &str,
        begin: Instant,
        spike_end: Duration,
        quiet_from: Duration,
        deadline: Duration,
    ) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
        let url = format!("{url}/v1/queues/enrollments/stats");
        Ok(Self { client, url, begin, spike_end, quiet_from, deadline })
    }

    async fn look(&self) -> reqwest::Result<Stats> {
        self.client.get(&self.url).send().await?.error_for_status()?.json().await
    }

    /// Looks until nothing is ready any more once the spike and the kills are over.
    async fn until_drained(&self) -> anyhow::Result<QueueSeen> {
        let mut seen = QueueSeen::default();
        let mut ticks = tokio::time::interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
        let mut at_spike_end = None;
        let (mut latest, mut said) = (Stats::default(), Duration::ZERO);
        loop {
            ticks.tick().await;
            let at = self.begin.elapsed();
            ensure!(at < self.deadline, "the queue is not drained after {}: {latest:?}", shown(at));
            // While Millpond is away nobody can be asked.
            let Ok(stats) = self.look().await else { continue };
            latest = stats;
            if at >= said + SAY_EVERY {
                said = at;
                note(&format!("  {}: {} waiting, {} back later", shown(at), stats.ready, stats.backoff));
            }
            seen.depth_peak = seen.depth_peak.max(stats.ready);
            seen.age_peak_seconds = seen.age_peak_seconds.max(stats.oldest_ready_age_seconds);
            if at >= self.spike_end {
                seen.at_spike_end = *at_spike_end.get_or_insert(stats);
            }
            if at >= self.quiet_from && stats.ready == 0 {
                seen.drain_seconds = at.saturating_sub(self.spike_end).as_secs_f64();
                return Ok(seen);
            }
        }
    }

    /// Looks until nothing is unfinished, once no more calls come.
    async fn until_finished(&self) -> anyhow::Result<Stats> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let stats = self.look().await?;
            if stats.unfinished() == 0 {
                return Ok(stats);
            }
            ensure!(Instant::now() < deadline, "{} messages are not finished", stats.unfinished());
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }
}
