//! The command line: what the commands are called, in which order they are shown, and where each one leads.
//!
//! Owns the groups of the help, the runtimes and the way from a failure to an exit code. Must never hold what a
//! command does: each one has its own file.

mod alerts;
mod arguments;
mod check;
mod completions;
mod confirm;
mod connection;
mod dead;
mod demo;
mod export;
mod failure;
mod journal;
mod messages;
mod pages;
mod plan;
mod queues;
pub(crate) mod render;
mod send;
mod serve;
mod simulate;
mod targets;
mod top;
mod work;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use failure::Failure;
use std::fmt::Write as _;
use std::io::Write;
use std::process::ExitCode;

/// Widest help text, in columns.
const HELP_COLUMNS: usize = 80;

/// Holds bursts of work durably and does them at the pace the backend can stand.
#[derive(Debug, Parser)]
#[command(
    name = "millpond",
    version,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    max_term_width = HELP_COLUMNS,
    long_about = "Millpond stands between whatever produces work in bursts and whatever can only do that work at a \
                  steady rate. It accepts a message durably, answers at once with a promise of when it will be done, \
                  and hands the work on under a hard cap.",
    after_help = "See it work first:     millpond demo\n\
                  Do the arithmetic:     millpond plan --rate 3/s --spike 15/s --spike-for 2s \\\n\
                  \x20                                    --service-time 200ms --workers 1\n\
                  Start a server:        millpond serve\n\
                  Learn a command:       millpond send --help\n\n\
                  Exit codes: 0 done, 1 failed, 2 wrong usage, 3 refused by the server, 4 server not reachable."
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Check(check::Check),
    Demo(demo::Demo),
    Plan(plan::PlanCommand),
    Simulate(simulate::Simulate),
    Send(send::Send),
    Work(work::Work),
    Messages(messages::MessagesCommand),
    Queues(queues::QueuesCommand),
    Dead(dead::Dead),
    Targets(targets::TargetsCommand),
    Top(top::Top),
    Alerts(alerts::AlertsCommand),
    Export(export::Export),
    Journal(journal::Journal),
    Completions(completions::Completions),
}

/// The commands in the order in which somebody meets them.
const GROUPS: [(&str, &[&str]); 4] = [
    ("Look ahead", &["demo", "plan", "simulate"]),
    ("Run a server", &["serve", "check"]),
    ("Put work in, do it, follow it", &["send", "work", "messages"]),
    ("Operate", &["top", "queues", "targets", "dead", "alerts", "export", "journal", "completions"]),
];

/// Runs the command line of this process.
pub(crate) fn run() -> ExitCode {
    let matches = command().get_matches();
    let parsed = CommandLine::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let mut out = std::io::stdout().lock();
    let done = dispatch(parsed.command, &mut out).and_then(|()| Ok(out.flush()?));
    done.map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
}

/// The command line with its commands in groups.
fn command() -> clap::Command {
    let command = CommandLine::command();
    let heading = command.get_styles().get_header().to_owned();
    let literal = command.get_styles().get_literal().to_owned();
    let mut groups = String::new();
    for (title, names) in GROUPS {
        let _ = writeln!(groups, "\n{heading}{title}:{heading:#}");
        for name in names {
            let about = command.find_subcommand(name).and_then(clap::Command::get_about);
            let about = about.map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(groups, "  {literal}{name:<12}{literal:#} {about}");
        }
    }
    let template = format!(
        "{{before-help}}{{about-with-newline}}\n{{usage-heading}} {{usage}}\n{groups}\n\
         {heading}Options:{heading:#}\n{{options}}{{after-help}}"
    );
    command.help_template(template)
}

fn dispatch(command: Command, out: &mut impl Write) -> Result<(), Failure> {
    match command {
        Command::Plan(command) => command.run(out),
        Command::Check(command) => command.run(out),
        Command::Simulate(command) => command.run(out),
        Command::Export(command) => command.run(out),
        Command::Journal(command) => command.run(out),
        Command::Completions(command) => command.run(&mut self::command(), out),
        Command::Serve(command) => busy()?.block_on(command.run(out)),
        Command::Demo(command) => busy()?.block_on(command.run(out)),
        Command::Send(command) => quiet()?.block_on(command.run(out)),
        Command::Work(command) => quiet()?.block_on(command.run(out)),
        Command::Messages(command) => quiet()?.block_on(command.run(out)),
        Command::Queues(command) => quiet()?.block_on(command.run(out)),
        Command::Targets(command) => quiet()?.block_on(command.run(out)),
        Command::Dead(command) => quiet()?.block_on(command.run(out)),
        Command::Top(command) => quiet()?.block_on(command.run(out)),
        Command::Alerts(command) => quiet()?.block_on(command.run(out)),
    }
}

/// For a server: all processors.
fn busy() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// For a client: one thread, which starts at once.
fn quiet() -> Result<tokio::runtime::Runtime, Failure> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use super::{GROUPS, command};
    use std::collections::BTreeSet;

    #[test]
    fn the_declarations_are_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_command_is_in_exactly_one_group() {
        let command = command();
        let all: BTreeSet<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| names.iter().copied()).collect();
        grouped.sort_unstable();
        assert_eq!(grouped, all.into_iter().collect::<Vec<_>>());
    }

    #[test]
    fn every_command_teaches_with_an_explanation_and_examples() {
        fn visit(command: &clap::Command) {
            for below in command.get_subcommands() {
                let name = below.get_name();
                assert!(below.get_about().is_some(), "{name} has no short line");
                assert!(below.get_long_about().is_some(), "{name} has no explanation");
                let examples = below.get_after_help().map(ToString::to_string).unwrap_or_default();
                assert!(examples.contains("millpond "), "{name} has no examples");
                visit(below);
            }
        }
        visit(&command());
    }
}
