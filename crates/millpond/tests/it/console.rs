//! Runs the examples of the documentation as a reader would, and compares what is printed with what is written.
//!
//! Owns the reading of `console` and `toml` blocks. Commands are `millpond …` and `curl …`, at the beginning of a line
//! after `$ `; what follows up to the next one is what they print, where `…` stands for anything on its line, and alone
//! on a line for any lines; how many blanks part two words does not matter, since columns are as wide as what is in them.
//! Must never need a shell or curl: the few forms that the documentation uses are understood
//! here.

use crate::process::{Done, Server};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

/// The address that the documentation uses.
const ADDRESS: &str = "localhost:8080";
/// What stands for anything.
const ANYTHING: &str = "…";

/// A command with what it prints.
#[derive(Debug)]
struct Example {
    line: usize,
    command: String,
    printed: Vec<String>,
}

/// The blocks of `language` in `markdown`, each with the number of the line before it.
fn blocks<'a>(markdown: &'a str, language: &str) -> Vec<(usize, Vec<&'a str>)> {
    let mut blocks = Vec::new();
    let mut open: Option<(usize, Vec<&str>)> = None;
    let fence = format!("```{language}");
    for (index, line) in markdown.lines().enumerate() {
        match &mut open {
            None if line == fence => open = Some((index + 1, Vec::new())),
            None => {}
            Some(_) if line == "```" => blocks.extend(open.take()),
            Some((_, lines)) => lines.push(line),
        }
    }
    assert!(open.is_none(), "a block of {language} has no end");
    blocks
}

/// The `toml` blocks as one configuration.
pub(crate) fn configuration(markdown: &str) -> String {
    blocks(markdown, "toml").into_iter().map(|(_, lines)| lines.join("\n") + "\n").collect()
}

fn examples(markdown: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    for (before, lines) in blocks(markdown, "console") {
        let mut goes_on = false;
        for (index, line) in lines.into_iter().enumerate() {
            if let Some(command) = line.strip_prefix("$ ") {
                let command = command.trim_end_matches('\\').to_owned();
                examples.push(Example { line: before + index + 1, command, printed: Vec::new() });
            } else {
                let last = examples.last_mut().expect("a block begins with a command");
                if goes_on {
                    last.command.push_str(line.trim_start().trim_end_matches('\\'));
                } else {
                    last.printed.push(line.to_owned());
                }
            }
            goes_on = (line.starts_with("$ ") || goes_on) && line.ends_with('\\');
        }
    }
    examples
}

/// The words of a command, as a shell splits them: quotes of both kinds, no escapes.
fn words(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for character in command.chars() {
        match (quote, character) {
            (None, ' ') => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(character);
                word.get_or_insert_default();
            }
            (Some(open), _) if open == character => quote = None,
            _ => word.get_or_insert_default().push(character),
        }
    }
    assert_eq!(quote, None, "a quote has no end: {command}");
    words.extend(word);
    words
}

/// Whether `line` is what `pattern` describes.
fn line_fits(pattern: &str, line: &str) -> bool {
    let [pattern, line] = [pattern, line].map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
    let mut parts = pattern.split(ANYTHING);
    let first = parts.next().expect("there is always a first part");
    let Some(mut rest) = line.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// Whether `lines` are what `patterns` describe.
fn fits(patterns: &[String], lines: &[&str]) -> bool {
    match (patterns.split_first(), lines.split_first()) {
        (None, found) => found.is_none(),
        (Some((pattern, after)), found) if pattern == ANYTHING => {
            fits(after, lines) || found.is_some_and(|(_, rest)| fits(patterns, rest))
        }
        (Some(_), None) => false,
        (Some((pattern, after)), Some((line, rest))) => line_fits(pattern, line) && fits(after, rest),
    }
}

/// What a later command may refer to: the latest value of a field in an answer.
#[derive(Debug, Default)]
struct Seen {
    id: Option<String>,
    receipt: Option<String>,
}

impl Seen {
    fn note(&mut self, printed: &str) {
        for (field, value) in [("\"id\":\"", &mut self.id), ("\"receipt\":\"", &mut self.receipt)] {
            if let Some((_, rest)) = printed.split_once(field) {
                *value = rest.split('"').next().map(str::to_owned);
            }
        }
        // What a person sees of an acceptance.
        if let Some(rest) = printed.strip_prefix("accepted ") {
            self.id = rest.split_whitespace().next().map(str::to_owned);
        }
    }

    fn put_into(&self, command: &str) -> String {
        let mut command = command.to_owned();
        for (name, value) in [("$ID", &self.id), ("$RECEIPT", &self.receipt)] {
            if command.contains(name) {
                command = command.replace(name, value.as_deref().expect("an answer before had one"));
            }
        }
        command
    }
}

/// Does what `curl` does with the options that the documentation uses.
fn curl(address: &str, words: &[String]) -> String {
    let (mut head, mut method, mut url, mut data) = (String::new(), None, "", None);
    let mut shows_head = false;
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().expect("an option has a value");
        match word {
            "-i" => shows_head = true,
            "-X" => method = Some(value()),
            "-d" => data = Some(value()),
            "-H" => head = head + value() + "\r\n",
            option if option.starts_with('-') => panic!("{option} is not understood here"),
            other => url = other,
        }
    }
    let path = url.strip_prefix(ADDRESS).unwrap_or_else(|| panic!("{url} is not at {ADDRESS}"));
    let method = method.unwrap_or_else(|| if data.is_some() { "POST" } else { "GET" });
    let body = data.unwrap_or_default();
    if !head.to_ascii_lowercase().contains("content-type:") && data.is_some() {
        head.push_str("content-type: application/x-www-form-urlencoded\r\n");
    }
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n{head}content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (answer_head, body) = answer.split_once("\r\n\r\n").expect("an answer has a head");
    if shows_head { format!("{}\n\n{body}", answer_head.replace("\r\n", "\n")) } else { body.to_owned() }
}

/// Runs every `console` example of `markdown` against `server`, in their order.
pub(crate) fn run_all(server: &Server, markdown: &str) -> usize {
    let address = server.url.strip_prefix("http://").expect("no TLS");
    let examples = examples(markdown);
    let (mut seen, mut wrong) = (Seen::default(), Vec::new());
    for Example { line, command, printed } in &examples {
        let command = seen.put_into(command);
        let words = words(&command);
        let (program, arguments) = words.split_first().expect("a command has a name");
        let output = match program.as_str() {
            "millpond" => {
                let Done { stdout, stderr, .. } =
                    server.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>());
                stdout + &stderr
            }
            "curl" => curl(address, arguments),
            other => panic!("line {line}: {other} is not understood here"),
        };
        let output = output.replace(address, ADDRESS);
        seen.note(&output);
        let lines: Vec<&str> = output.lines().collect();
        let printed = printed.join("\n");
        let patterns: Vec<String> = printed.trim_end().lines().map(str::to_owned).collect();
        if !fits(&patterns, &lines) {
            wrong.push(format!(
                "line {line}: {command}\n--- written ---\n{printed}\n--- printed ---\n{output}"
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    examples.len()
}

#[test]
fn what_is_written_fits_only_what_it_describes() {
    let pattern = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let fits = |written: &str, printed: &str| fits(&pattern(written), &printed.lines().collect::<Vec<_>>());
    for (written, printed) in [
        ("a\nb", "a\nb"),
        ("a…c", "abc"),
        ("a…c…", "abcd"),
        ("…", ""),
        ("…\nb\n…", "a\nb\nc"),
        ("{\"a\":…}", "{\"a\":[1,2]}"),
        ("a   … c", "a 1  c"),
    ] {
        assert!(fits(written, printed), "{written} | {printed}");
    }
    for (written, printed) in
        [("a", "b"), ("a", "a\nb"), ("a…c", "ab"), ("a…b…c", "acb"), ("…\nb", "a"), ("", "a")]
    {
        assert!(!fits(written, printed), "{written} | {printed}");
    }
}

#[test]
fn a_command_is_read_as_a_shell_reads_it() {
    assert_eq!(words("curl -d '{\"a\": 1}' x"), ["curl", "-d", "{\"a\": 1}", "x"]);
    assert_eq!(words("a 'b'\"c d\" ''"), ["a", "bc d", ""]);
    let read = examples("x\n```console\n$ a \\\n    b\nout\n\nmore\n$ c\n```\n```sh\n$ d\n```\n");
    let read: Vec<_> =
        read.iter().map(|one| (one.line, one.command.as_str(), one.printed.join("|"))).collect();
    assert_eq!(read, [(3, "a b", "out||more".to_owned()), (8, "c", String::new())]);
}
