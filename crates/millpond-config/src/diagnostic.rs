//! One finding about a configuration text, and how it is shown: place, line of the file, caret, what to do.
//!
//! Owns positions and rendering. Must never print what is marked as secret, nor control characters from the file.

use std::fmt;
use std::ops::Range;

/// Widest part of a line that is shown, in characters.
const SNIPPET_CHARACTERS_MAX: usize = 100;

/// How much a finding weighs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// It can be used, but probably does not do what was meant.
    Warning,
}

/// One finding. Its `Display` is several lines long, like a compiler's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// How much it weighs.
    pub severity: Severity,
    /// The file's name as it was given.
    pub file: String,
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// The dotted key, such as `queues.enrollments.lease`; empty for a syntax error.
    pub key: String,
    /// The value that is wrong, as written; `None` if there is none or it is secret.
    pub value: Option<String>,
    /// What is wrong.
    pub problem: String,
    /// What to do.
    pub help: String,
    snippet: Snippet,
}

/// The part of a line that is shown, and where the caret goes.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Snippet {
    text: String,
    caret_start: usize,
    caret_length: usize,
}

impl fmt::Display for Diagnostic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
        };
        let number = self.line.to_string();
        let gutter = " ".repeat(number.len());
        let Self { file, line, column, key, problem, help, snippet, .. } = self;
        if key.is_empty() {
            writeln!(formatter, "{kind}: {problem}")?;
        } else {
            writeln!(formatter, "{kind}: {key}: {problem}")?;
        }
        writeln!(formatter, "{gutter}--> {file}:{line}:{column}")?;
        writeln!(formatter, "{gutter} |")?;
        writeln!(formatter, "{number} | {}", snippet.text)?;
        let caret = "^".repeat(snippet.caret_length);
        writeln!(formatter, "{gutter} | {}{caret}", " ".repeat(snippet.caret_start))?;
        write!(formatter, "{gutter} = help: {help}")
    }
}

/// What a finding points at, in bytes of the text.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A value.
    Value(Range<usize>),
    /// Anything else: a key, a table, broken syntax.
    Name(Range<usize>),
}

impl Place {
    pub(crate) fn span(&self) -> Range<usize> {
        let (Self::Value(span) | Self::Name(span)) = self;
        span.clone()
    }
}

/// A finding before line and column have been worked out.
#[derive(Debug)]
struct Finding {
    severity: Severity,
    place: Place,
    key: String,
    problem: String,
    help: String,
}

/// Collects the findings about one text.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    file: &'a str,
    text: &'a str,
    findings: Vec<Finding>,
    secrets: Vec<Range<usize>>,
}

impl<'a> Report<'a> {
    pub(crate) fn new(file: &'a str, text: &'a str) -> Self {
        Self { file, text, findings: Vec::new(), secrets: Vec::new() }
    }

    /// The text that is reported on.
    pub(crate) fn text(&self) -> &'a str {
        self.text
    }

    /// The line that a place is on, from 1.
    pub(crate) fn line_of(&self, place: &Place) -> usize {
        self.text[..place.span().start.min(self.text.len())].matches('\n').count() + 1
    }

    /// Never shows what stands in `span`.
    pub(crate) fn conceal(&mut self, span: Range<usize>) {
        self.secrets.push(span);
    }

    /// Something is wrong there.
    pub(crate) fn error(&mut self, place: Place, key: &str, problem: String, help: String) {
        self.add(Severity::Error, place, key, problem, help);
    }

    /// What stands there can be used but is probably not what was meant.
    pub(crate) fn warning(&mut self, place: Place, key: &str, problem: String, help: String) {
        self.add(Severity::Warning, place, key, problem, help);
    }

    /// One finding of either weight.
    pub(crate) fn add(&mut self, severity: Severity, place: Place, key: &str, problem: String, help: String) {
        self.findings.push(Finding { severity, place, key: key.to_owned(), problem, help });
    }

    /// Whether an error was reported for `key` itself or for one below it.
    pub(crate) fn has_error(&self, key: &str) -> bool {
        let concerns = |other: &str| {
            other.strip_prefix(key).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        };
        self.findings.iter().any(|finding| finding.severity == Severity::Error && concerns(&finding.key))
    }

    /// The findings with their places, in the order of the text.
    pub(crate) fn finish(mut self) -> Vec<Diagnostic> {
        self.findings.sort_by_key(|finding| (finding.place.span().start, finding.severity));
        self.findings.iter().map(|finding| self.diagnostic(finding)).collect()
    }

    fn diagnostic(&self, finding: &Finding) -> Diagnostic {
        let span = finding.place.span();
        let start = span.start.min(self.text.len());
        let line_start = self.text[..start].rfind('\n').map_or(0, |newline| newline + 1);
        let line_end = self.text[start..].find('\n').map_or(self.text.len(), |newline| start + newline);
        let column =
            self.text[line_start..start].chars().filter(|character| *character != '\u{feff}').count();
        let secret = |at: usize| self.secrets.iter().any(|span| span.contains(&at));
        let value = match &finding.place {
            Place::Value(span) if !span.clone().any(secret) => self.text.get(span.clone()),
            _ => None,
        };
        Diagnostic {
            severity: finding.severity,
            file: self.file.to_owned(),
            line: self.text[..line_start].matches('\n').count() + 1,
            column: column + 1,
            key: finding.key.clone(),
            value: value.map(str::to_owned),
            problem: finding.problem.clone(),
            help: finding.help.clone(),
            snippet: self.snippet(line_start..line_end, start..span.end),
        }
    }

    /// The line with secrets starred out and control characters replaced, cut around the caret.
    fn snippet(&self, line: Range<usize>, caret: Range<usize>) -> Snippet {
        let secret = |at: usize| self.secrets.iter().any(|span| span.contains(&at));
        let shown = |(at, character): (usize, char)| match character {
            _ if secret(line.start + at) => '*',
            '\t' => ' ',
            other if other.is_control() => '\u{fffd}',
            other => other,
        };
        let content = self.text[line.clone()].trim_start_matches('\u{feff}').trim_end_matches('\r');
        let skipped =
            self.text[line.clone()].len() - self.text[line.clone()].trim_start_matches('\u{feff}').len();
        let characters: Vec<char> =
            content.char_indices().map(|(at, character)| shown((at + skipped, character))).collect();
        let before =
            self.text[line.start..caret.start].chars().filter(|character| *character != '\u{feff}').count();
        let inside = self.text.get(caret.start..caret.end.clamp(caret.start, line.end.max(caret.start)));
        let first = before.saturating_sub(SNIPPET_CHARACTERS_MAX / 2);
        let text: String = characters.iter().skip(first).take(SNIPPET_CHARACTERS_MAX).collect();
        let caret_start = before - first;
        let room = SNIPPET_CHARACTERS_MAX.saturating_sub(caret_start).max(1);
        let caret_length = inside.map_or(1, |text| text.trim_end().chars().count()).clamp(1, room);
        Snippet { text: text.trim_end().to_owned(), caret_start, caret_length }
    }
}

#[cfg(test)]
mod tests {
    use super::{Place, Report};

    fn shown(text: &str, span: std::ops::Range<usize>, secret: Option<std::ops::Range<usize>>) -> String {
        let mut report = Report::new("a.toml", text);
        if let Some(secret) = secret {
            report.conceal(secret);
        }
        report.error(Place::Value(span), "a.b", "is wrong".to_owned(), "put it right".to_owned());
        report.finish()[0].to_string()
    }

    #[test]
    fn the_caret_stands_under_the_value_counted_in_characters() {
        let text = "x = 1\nä = \"ü\" # 日本\n";
        let at = text.find("\"ü\"").unwrap();
        assert_eq!(
            shown(text, at..at + 4, None),
            "error: a.b: is wrong\n --> a.toml:2:5\n  |\n2 | ä = \"ü\" # 日本\n  |     ^^^\n  = help: put it right"
        );
    }

    #[test]
    fn secrets_and_control_characters_are_not_shown() {
        let text = "token = \"abc\"\u{1b}[31m";
        let rendered = shown(text, 8..13, Some(9..12));
        assert!(rendered.contains("token = \"***\"\u{fffd}[31m"), "{rendered}");
        let mut report = Report::new("a.toml", text);
        report.conceal(9..12);
        report.error(Place::Value(8..13), "a", String::new(), String::new());
        assert_eq!(report.finish()[0].value, None);
    }

    #[test]
    fn long_lines_are_cut_around_the_caret() {
        let text = format!("{}!{}", "a".repeat(500), "b".repeat(500));
        let rendered = shown(&text, 500..501, None);
        assert!(rendered.lines().all(|line| line.chars().count() < 120), "{rendered}");
        let lines: Vec<&str> = rendered.lines().collect();
        assert_eq!(lines[3].find('!'), lines[4].find('^'));
    }

    #[test]
    fn a_place_at_the_end_of_the_text_is_shown() {
        assert!(shown("a = ", 4..4, None).contains("a.toml:1:5"));
        assert!(shown("", 0..0, None).contains("a.toml:1:1"));
        assert!(shown("\u{feff}a", 3..4, None).contains("a.toml:1:1"));
    }
}
