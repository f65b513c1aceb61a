//! `millpond dead replay` and `replays`: putting dead letters back to work, and watching it.
//!
//! Owns the arguments and how a replay looks. Must never take less than all for all: what is meant has to be said.

use super::filter::Filter;
use crate::cli::failure::Failure;
use crate::cli::messages::show::document;
use crate::cli::render::{Column, age, counted, line, table};
use clap::{ArgGroup, Args};
use indicatif::{ProgressBar, ProgressStyle};
use jiff::Timestamp;
use millpond_api::client::Client;
use millpond_api::replay::{Replay, ReplayRequest};
use millpond_config::quantity::{format_duration, format_rate, parse_duration, parse_rate};
use millpond_core::name::Name;
use millpond_core::rate::Rate;
use std::io::Write;
use std::time::Duration;

/// How often a watched replay is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(500);

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "each is a switch on the command line")]
#[command(group = ArgGroup::new("which").required(true).multiple(true)
    .args(["ids", "all", "reason", "error", "since", "until", "tenant"]))]
pub(super) struct ReplayArguments {
    /// The queue
    #[arg(value_parser = Name::new)]
    queue: Name,
    /// These dead letters
    #[arg(value_name = "ID", conflicts_with_all = ["all", "reason", "error", "since", "until", "tenant"])]
    ids: Vec<String>,
    /// All that are dead now
    #[arg(long, conflicts_with_all = ["reason", "error", "since", "until", "tenant"])]
    all: bool,
    #[command(flatten)]
    filter: Filter,
    /// At most so fast, such as 20/s; as fast as it goes if missing
    #[arg(long, allow_hyphen_values = true, value_parser = parse_rate)]
    rate: Option<Rate>,
    /// Give each so much time from its return on
    ///
    /// Without it, its own expiry stands while it lies ahead; one past it gets the queue's retention anew.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true, value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// Also those that died longer ago than the queue replays by itself
    #[arg(long)]
    older: bool,
    /// Only say how many it would be
    #[arg(long, conflicts_with = "watch")]
    dry_run: bool,
    /// Wait for its end and show how far it is
    #[arg(long)]
    watch: bool,
}

#[derive(Debug, Args)]
pub(super) struct ReplaysArguments {
    /// The queue
    #[arg(value_parser = Name::new)]
    queue: Name,
    /// Only the replay with this number
    number: Option<u32>,
    /// Wait for its end and show how far it is
    #[arg(long, requires = "number", conflicts_with = "cancel")]
    watch: bool,
    /// End it now; what is back stays back
    #[arg(long, requires = "number")]
    cancel: bool,
}

impl ReplayArguments {
    fn wish(&self) -> ReplayRequest {
        ReplayRequest {
            ids: (!self.ids.is_empty()).then(|| self.ids.clone()),
            filter: self.filter.is_given().then(|| self.filter.wire()),
            all: self.all.then_some(true),
            rate: self.rate.map(format_rate),
            ttl: self.ttl.map(format_duration),
            older: self.older.then_some(true),
            dry_run: self.dry_run.then_some(true),
        }
    }

    pub(super) async fn run(self, client: &Client, json: bool, out: &mut impl Write) -> Result<(), Failure> {
        let mut replay = client.replay(self.queue.as_str(), &self.wish()).await?;
        if let Some(number) = replay.number.filter(|_| self.watch) {
            replay = watch(client, &self.queue, number).await?;
        }
        if json { document(&replay, out) } else { Ok(write!(out, "{}", told(&replay))?) }
    }
}

impl ReplaysArguments {
    pub(super) async fn run(self, client: &Client, json: bool, out: &mut impl Write) -> Result<(), Failure> {
        let queue = self.queue.as_str();
        let Some(number) = self.number else {
            let replays = client.replays(queue).await?;
            return if json { document(&replays, out) } else { list(&self.queue, &replays.replays, out) };
        };
        let replay = if self.cancel {
            client.cancel_replay(queue, number).await?
        } else if self.watch {
            watch(client, &self.queue, number).await?
        } else {
            client.replay_status(queue, number).await?
        };
        if json { document(&replay, out) } else { Ok(write!(out, "{}", told(&replay))?) }
    }
}

/// Looks at a replay until it has ended. The bar is on standard error, and only on a terminal.
async fn watch(client: &Client, queue: &Name, number: u32) -> Result<Replay, Failure> {
    let style = ProgressStyle::with_template("{bar:30} {human_pos}/{human_len} back at work, {eta} to go")
        .expect("the template is a constant");
    let bar = ProgressBar::new(0).with_style(style);
    loop {
        let replay = client.replay_status(queue.as_str(), number).await?;
        bar.set_length(replay.selected);
        bar.set_position(replay.replayed);
        if replay.status != "running" {
            bar.finish_and_clear();
            return Ok(replay);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What a replay did, does or would do, in sentences.
fn told(replay: &Replay) -> String {
    let queue = line(&replay.queue);
    let number = replay.number.unwrap_or_default();
    let back = counted(replay.replayed, "dead letter");
    let selected = counted(replay.selected, "dead letter");
    let dry = replay.status == "dry-run";
    let mut lines = vec![match replay.status.as_str() {
        "dry-run" => format!("{selected} of {queue} would go back to work; nothing was changed"),
        "running" => {
            let pace =
                replay.rate.as_deref().map_or_else(String::new, |rate| format!(", at most {}", line(rate)));
            let replays = format!("millpond dead replays {queue} {number}");
            let waits = match replay.waits_for.as_deref() {
                Some("room") => "\nit waits for room in the queue",
                Some("disk") => "\nit waits for room on the disk",
                _ => "",
            };
            format!(
                "replay {number} of {queue} runs: {} of {selected} back at work{pace}{waits}\n\
                 watch it:  {replays} --watch\nend it:    {replays} --cancel",
                replay.replayed
            )
        }
        "cancelled" => format!(
            "replay {number} of {queue} was cancelled: {back} went back to work, {} did not",
            replay.remaining
        ),
        _ => format!("{back} of {queue} went back to work; watch them: millpond queues show {queue}"),
    }];
    if replay.too_old > 0 {
        let old = counted(replay.too_old, "dead letter");
        lines.push(format!(
            "left alone, older than the queue's dead_letter.replayable_for: {old}; --older takes them too"
        ));
    }
    let gone = replay.skipped.saturating_sub(replay.too_old);
    if gone > 0 {
        lines.push(format!("gone before their turn: {}", counted(gone, "dead letter")));
    }
    if dry {
        lines.extend(replay.samples.iter().map(|id| format!("  {}", line(id))));
        if replay.selected > replay.samples.len() as u64 {
            lines.push("  …".to_owned());
        }
    }
    lines.push(String::new());
    lines.join("\n")
}

fn list(queue: &Name, replays: &[Replay], out: &mut impl Write) -> Result<(), Failure> {
    if replays.is_empty() {
        writeln!(out, "{queue} has no replays; start one: millpond dead replay {queue} --all --dry-run")?;
        return Ok(());
    }
    let now = Timestamp::now();
    let columns = [
        Column::Number("REPLAY"),
        Column::Whole("STATUS"),
        Column::Number("BACK"),
        Column::Number("OF"),
        Column::Number("SKIPPED"),
        Column::Whole("RATE"),
        Column::Whole("STARTED"),
    ];
    let row = |replay: &Replay| {
        vec![
            replay.number.unwrap_or_default().to_string(),
            line(&replay.status),
            millpond_sim::text::count(replay.replayed),
            millpond_sim::text::count(replay.selected),
            millpond_sim::text::count(replay.skipped),
            replay.rate.as_deref().map_or_else(|| "–".to_owned(), line),
            replay.created_at.as_deref().map_or_else(|| "–".to_owned(), |at| age(at, now)),
        ]
    };
    write!(out, "{}", table(&columns, replays.iter().map(row).collect()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{list, told};
    use millpond_api::replay::Replay;
    use millpond_core::name::Name;
    use serde_json::json;

    fn replay(status: &str) -> Replay {
        serde_json::from_value(json!({
            "queue": "jobs", "number": 3, "url": "/v1/queues/jobs/dead/replays/3", "status": status, "selected": 5000,
            "replayed": 1200, "remaining": 3800, "skipped": 7, "too_old": 6, "rate": "20/s",
            "created_at": "2026-11-30T10:00:00.000Z", "finished_at": null
        }))
        .unwrap()
    }

    #[test]
    fn a_dry_run_says_that_nothing_was_changed_and_shows_some() {
        let dry = Replay { number: None, samples: vec!["0197f3a2".to_owned()], ..replay("dry-run") };
        let text = told(&dry);
        assert!(
            text.contains("5,000 dead letters of jobs would") && text.contains("nothing was changed"),
            "{text}"
        );
        assert!(text.contains("0197f3a2\n  …"), "{text}");
        assert!(text.contains("6 dead letters; --older"), "{text}");
    }

    #[test]
    fn each_state_says_how_far_it_came_and_what_can_be_done() {
        let running = told(&replay("running"));
        assert!(
            running.contains("1200 of 5,000") && running.contains("20/s") && running.contains("--cancel"),
            "{running}"
        );
        let cancelled = told(&replay("cancelled"));
        assert!(
            cancelled.contains("1,200 dead letters went back") && cancelled.contains("3800 did not"),
            "{cancelled}"
        );
        assert!(told(&replay("done")).contains("gone before their turn: 1 dead letter\n"));
    }

    #[test]
    fn the_list_fits_eighty_columns() {
        let mut out = Vec::new();
        list(&Name::new("jobs").unwrap(), &[replay("cancelled"), replay("running")], &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("running") && text.contains("5,000"), "{text}");
    }
}
