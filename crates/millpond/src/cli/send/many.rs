//! Many messages in one go: lines of a file, or the same body again and again.
//!
//! Owns batches, progress and the tally. Must never hold more than one batch in memory, nor go on after a refusal:
//! what comes after it would only be refused as well, and the order would be lost.

use super::{Send, guessed};
use crate::cli::failure::{Failure, tell};
use crate::cli::render::counted;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use millpond_api::client::Client;
use millpond_api::encoding;
use millpond_api::problem::Problem;
use millpond_api::types::{BatchAnswer, BatchMessage};
use serde::Serialize;
use std::fmt;
use std::io::{BufRead, BufReader, Read as _, Write};
use std::time::Duration;

/// Messages in one request.
const BATCH_MESSAGES: u64 = 100;
/// Bytes of bodies in one request, so that it stays below what servers take by default (1 MiB).
const BATCH_BYTES: usize = 256 << 10;

/// What became of them all; the document of `--json`.
#[derive(Debug, Default, Serialize)]
struct Tally {
    queue: String,
    sent: u64,
    accepted: u64,
    duplicates: u64,
    refused: u64,
    first_id: Option<String>,
    last_id: Option<String>,
    first_refusal: Option<Problem>,
}

/// Sends them.
pub(super) async fn run(command: &Send, client: &Client, out: &mut impl Write) -> Result<(), Failure> {
    let mut source = Source::open(command)?;
    let bar = progress(command.count);
    let mut tally = Tally { queue: command.queue.to_string(), ..Tally::default() };
    let mut wrong = None;
    while tally.refused == 0 {
        let (batch, mistake) = source.batch(command);
        wrong = mistake;
        if batch.is_empty() {
            break;
        }
        match client.enqueue_batch(command.queue.as_str(), &batch).await {
            Ok(answers) => tally.count(&answers),
            Err(error) => {
                bar.finish_and_clear();
                interrupted(&tally, command.key.is_some());
                return Err(error.into());
            }
        }
        bar.set_position(tally.sent);
        if wrong.is_some() {
            break;
        }
    }
    bar.finish_and_clear();
    tally.print(command.json, out)?;
    wrong.map_or(Ok(()), Err)
}

/// Says how far it came before the request failed.
fn interrupted(tally: &Tally, has_key: bool) {
    if tally.accepted > 0 {
        let again = if has_key {
            "repeat the same command: what is known by its key is not added again"
        } else {
            "with --key a repetition of the same command would be safe"
        };
        tell(&format!("{} accepted before this; {again}", counted(tally.accepted, "message")));
    }
}

/// A bar where the end is known, a counter where it is not; nothing where nobody watches.
fn progress(count: Option<u64>) -> ProgressBar {
    let (bar, template) = match count {
        Some(count) => {
            (ProgressBar::new(count), "{bar:30} {human_pos}/{human_len} sent, {rate}, {eta} to go")
        }
        None => (ProgressBar::no_length(), "{spinner} {human_pos} sent, {rate}"),
    };
    let rate = |state: &ProgressState, text: &mut dyn fmt::Write| {
        // A bar that cannot be drawn is no reason to stop.
        let _ = write!(text, "{:.0}/s", state.per_sec());
    };
    bar.with_style(
        ProgressStyle::with_template(template).expect("the template is a constant").with_key("rate", rate),
    )
}

impl Tally {
    fn count(&mut self, answers: &[BatchAnswer]) {
        for answer in answers {
            self.sent += 1;
            if let Some(problem) = &answer.error {
                self.refused += 1;
                self.first_refusal.get_or_insert_with(|| problem.clone());
                continue;
            }
            self.accepted += 1;
            self.duplicates += u64::from(answer.duplicate);
            self.first_id = self.first_id.take().or_else(|| answer.id.clone());
            self.last_id.clone_from(&answer.id);
        }
    }

    /// Prints the tally; a refusal among them is a refusal.
    fn print(self, json: bool, out: &mut impl Write) -> Result<(), Failure> {
        if json {
            serde_json::to_writer_pretty(&mut *out, &self)?;
            writeln!(out)?;
        } else {
            let known = match self.duplicates {
                0 => String::new(),
                known => format!(", {} of them known already by their key", millpond_sim::text::count(known)),
            };
            writeln!(out, "{} accepted into {}{known}", counted(self.accepted, "message"), self.queue)?;
            if self.refused > 0 {
                writeln!(out, "{} refused; nothing was sent after them", counted(self.refused, "message"))?;
            }
        }
        let refusal = self.first_refusal;
        refusal.map_or(Ok(()), |problem| {
            Err(millpond_api::client::ClientError::Refused(Box::new(problem)).into())
        })
    }
}

/// A line that is a body.
fn plain(line: &[u8]) -> BatchMessage {
    let (body, body_encoding) = encoding::encode(line);
    BatchMessage { body, body_encoding, ..BatchMessage::default() }
}

/// A line that is a message in JSON.
fn parsed(line: &[u8], number: u64) -> Result<BatchMessage, Failure> {
    // An array would be taken for the fields in their order.
    let is_object = line.trim_ascii_start().first() == Some(&b'{');
    let wrong = |what: String| {
        let help =
            "write an object with a body: {\"body\": \"…\", \"group\": \"order-7\", \"delay_seconds\": 60}";
        Failure::new(
            format!("line {number} is no message: {what}; neither it nor what comes after it was sent"),
            help,
        )
    };
    if !is_object {
        return Err(wrong("it is no JSON object".to_owned()));
    }
    // The line of the text is the only one that the parser sees.
    serde_json::from_slice(line)
        .map_err(|error| wrong(error.to_string().replace(" at line 1 column ", " at column ")))
}

/// The message with what the options say of all of them, where it says nothing itself.
fn completed(mut message: BatchMessage, command: &Send, number: u64) -> BatchMessage {
    let fill = |field: &mut Option<String>, option: &Option<String>| {
        *field = field.take().or_else(|| option.clone());
    };
    fill(&mut message.content_type, &command.content_type);
    if message.content_type.is_none() && message.body_encoding.is_none() {
        message.content_type = Some(guessed(message.body.as_bytes()).to_owned());
    }
    fill(&mut message.idempotency_key, &command.key.as_ref().map(|key| format!("{key}-{number}")));
    fill(&mut message.criticality, &command.criticality);
    fill(&mut message.tenant, &command.tenant);
    fill(&mut message.group, &command.group);
    let seconds = |duration: Option<Duration>| duration.map(|duration| duration.as_secs_f64());
    message.delay_seconds = message.delay_seconds.or_else(|| seconds(command.delay));
    message.ttl_seconds = message.ttl_seconds.or_else(|| seconds(command.ttl));
    message
}

/// Where the bodies come from.
enum Source {
    Lines { reader: Box<dyn BufRead>, number: u64 },
    Repeated { body: Vec<u8>, number: u64, count: u64 },
}

impl Source {
    fn open(command: &Send) -> Result<Self, Failure> {
        if let Some(count) = command.count {
            return Ok(Self::Repeated { body: command.one_body()?, number: 0, count });
        }
        let named = command.file.as_ref().filter(|path| path.as_os_str() != "-");
        let reader: Box<dyn BufRead> = match named {
            Some(path) => {
                let file = std::fs::File::open(path).map_err(|error| super::unreadable(path, &error))?;
                Box::new(BufReader::new(file))
            }
            None => Box::new(BufReader::new(std::io::stdin())),
        };
        Ok(Self::Lines { reader, number: 0 })
    }

    /// The next messages, none at the end; and what is wrong with the input after them.
    fn batch(&mut self, command: &Send) -> (Vec<BatchMessage>, Option<Failure>) {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while (batch.len() as u64) < BATCH_MESSAGES && bytes < BATCH_BYTES {
            let next = self.next().and_then(|next| {
                let Some((number, line)) = next else { return Ok(None) };
                bytes += line.len();
                let message = if command.json_lines { parsed(&line, number)? } else { plain(&line) };
                Ok(Some(completed(message, command, number)))
            });
            match next {
                Ok(Some(message)) => batch.push(message),
                Ok(None) => break,
                Err(failure) => return (batch, Some(failure)),
            }
        }
        (batch, None)
    }

    /// The next body with its number, which is that of its line.
    fn next(&mut self) -> Result<Option<(u64, Vec<u8>)>, Failure> {
        match self {
            Self::Repeated { body, number, count } => {
                *number += 1;
                Ok((*number <= *count).then(|| (*number, body.clone())))
            }
            Self::Lines { reader, number } => loop {
                *number += 1;
                let mut line = Vec::new();
                let read = reader.take(super::BODY_BYTES_MAX).read_until(b'\n', &mut line)?;
                if read == 0 {
                    return Ok(None);
                }
                if !line.trim_ascii().is_empty() {
                    for end in [b'\n', b'\r'] {
                        line.pop_if(|last| *last == end);
                    }
                    return Ok(Some((*number, line)));
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Source, Tally, parsed};
    use millpond_api::problem::{Problem, Slug};
    use millpond_api::types::BatchAnswer;

    fn answer(id: &str, duplicate: bool, error: Option<Problem>) -> BatchAnswer {
        let status = error.as_ref().map_or(202, |problem| problem.status);
        let id = error.is_none().then(|| id.to_owned());
        BatchAnswer { status, id, status_url: None, position: None, duplicate, error }
    }

    #[test]
    fn lines_keep_their_numbers_and_their_spaces_and_blank_ones_are_skipped() {
        let mut source = Source::Lines { reader: Box::new(&b"a\r\n\n  b \n \t\nc\t"[..]), number: 0 };
        let mut seen = Vec::new();
        while let Some((number, body)) = source.next().unwrap() {
            seen.push((number, String::from_utf8(body).unwrap()));
        }
        let expected = [(1, "a"), (3, "  b "), (5, "c\t")].map(|(number, body)| (number, body.to_owned()));
        assert_eq!(seen, expected);
    }

    #[test]
    fn a_line_that_is_no_message_is_named_by_its_number() {
        assert_eq!(parsed(br#" {"body": "x", "group": "g"}"#, 1).unwrap().group.as_deref(), Some("g"));
        for (line, said) in [
            (r#"["x"]"#, "it is no JSON object"),
            (r#"{"group": "g"}"#, "missing field `body`"),
            (r#"{"body": "x", "grup": "g"}"#, "unknown field `grup`"),
            (r#"{"body": "x""#, "EOF"),
        ] {
            let text = parsed(line.as_bytes(), 7).unwrap_err().to_string();
            assert!(text.contains("line 7 ") && text.contains(said), "{line}: {text}");
        }
    }

    #[test]
    fn a_body_is_repeated_as_often_as_asked() {
        let mut source = Source::Repeated { body: b"x".to_vec(), number: 0, count: 2 };
        assert_eq!(source.next().unwrap(), Some((1, b"x".to_vec())));
        assert_eq!(source.next().unwrap(), Some((2, b"x".to_vec())));
        assert_eq!(source.next().unwrap(), None);
    }

    #[test]
    fn the_tally_counts_each_answer_and_ends_in_the_first_refusal() {
        let mut tally = Tally { queue: "q".to_owned(), ..Tally::default() };
        let full = || Some(Problem::new(Slug::QueueFull, "full"));
        tally.count(&[answer("a", false, None), answer("b", true, None), answer("", false, full())]);
        assert_eq!((tally.sent, tally.accepted, tally.duplicates, tally.refused), (3, 2, 1, 1));
        assert_eq!((tally.first_id.as_deref(), tally.last_id.as_deref()), (Some("a"), Some("b")));
        let mut out = Vec::new();
        let failure = tally.print(false, &mut out).unwrap_err();
        assert!(failure.to_string().contains("queue-full"), "{failure}");
        assert!(String::from_utf8(out).unwrap().contains("2 messages accepted into q, 1 of them known"));
    }
}
