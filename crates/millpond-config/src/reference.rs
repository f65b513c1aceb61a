//! The reference of every key: commented TOML with the defaults, and the page of the documentation around it.
//!
//! Owns the explanation of each key. Must never state a default of its own: values are taken from the types.

use crate::callbacks::{CALLBACK_QUEUE, Callbacks};
use crate::configuration::{BODY_BYTES_MAX, Configuration, Target};
use crate::cors::Cors;
use crate::keys::TABLES;
use crate::load::FILE_BYTES_MAX;
use crate::quantity::{format_duration, format_size};
use crate::words;
use http::Uri;
use millpond_core::alert::HOLD_MAX;
use millpond_core::settings::{
    BreakerSettings, LEASE_TOTAL_MAX, QueueSettings, RAMP_RECOVERED, RETENTION_MAX, WAIT_MAX,
};

/// Collects tables, keys and their comments.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    fn table(&mut self, header: &str, comment: &str) {
        self.line("");
        self.comment(comment);
        self.line(header);
    }

    fn comment(&mut self, comment: &str) {
        comment.lines().for_each(|line| self.line(&format!("# {line}")));
    }

    /// A key with its default.
    fn key(&mut self, key: &str, default: &str, comment: &str) {
        self.line("");
        self.comment(comment);
        self.line(&format!("{key} = {default}"));
    }

    /// A key without a default: an example, commented out.
    fn optional(&mut self, key: &str, example: &str, comment: &str) {
        self.line("");
        self.comment(comment);
        self.line(&format!("#{key} = {example}"));
    }
}

fn text(value: impl std::fmt::Display) -> String {
    format!("{:?}", value.to_string())
}

/// The word for `value`, in quotes.
fn word<T: PartialEq + Copy>(value: T, choices: &[(&str, T)]) -> String {
    let known = choices.iter().find(|(_, choice)| *choice == value);
    text(known.expect("every choice has its word").0)
}

/// Every key with its default and what it means, as TOML that [`crate::parse`] accepts. Keys that have no default
/// stand there with an example behind a `#` without a blank.
pub fn reference_toml() -> String {
    let mut page = Page::default();
    server(&mut page);
    target(&mut page);
    queue(&mut page);
    failure_path(&mut page);
    queue_alerts(&mut page);
    route(&mut page);
    cors(&mut page);
    server_alerts(&mut page);
    callbacks(&mut page);
    scaler(&mut page);
    page.text.trim_start().to_owned()
}

fn server(page: &mut Page) {
    let fresh = Configuration::default();
    page.key(
        "listen",
        &text(fresh.listen),
        "Where the server listens: IP address and port. Anything but loopback needs `--insecure`, since this\nversion has no authentication.",
    );
    page.key(
        "data",
        &text(fresh.data.display()),
        "The directory of the journal. Relative to the directory in which the server is started.",
    );
    page.key(
        "external_url",
        &text(fresh.external_url.unwrap_or_default()),
        "How callers reach the server, such as \"https://millpond.example.com\". Empty: taken from the request's\n`Host`, if that is in allowed_hosts.",
    );
    page.key(
        "allowed_hosts",
        &format!("{:?}", fresh.allowed_hosts),
        "Values of `Host` that are served, without port. Others are refused, so that no web page can reach a\nserver on loopback under a name of its own.",
    );
    let most = format_size(BODY_BYTES_MAX);
    page.key(
        "max_body",
        &text(format_size(fresh.max_body_bytes)),
        &format!("Most bytes of a message's body, from 1 to {most}. Larger ones are refused with 413."),
    );
}

fn target(page: &mut Page) {
    let fresh = Target::new(Uri::from_static("http://127.0.0.1:9000/tasks"));
    let settings = &fresh.settings;
    page.table(
        "[targets.example]",
        "A target: something with a fixed capacity that messages are pushed to. Queues may share one.",
    );
    page.key(
        "url",
        &text(&fresh.url),
        "Where messages are sent, by POST: http or https. Must be given. Redirects are never followed.",
    );
    page.key(
        "concurrency",
        &settings.concurrency.to_string(),
        "The hard cap: never more calls occupy the target, whoever sends them. From 1 to 1000000. Take it from what\nthe target can stand (connections of its database, its workers), never from how fast messages arrive.\nLeft out: one at a time, with a warning.",
    );
    page.optional(
        "rate",
        "\"500/s\"",
        "The most calls started per unit of time. Default: only concurrency bounds.",
    );
    page.key(
        "timeout",
        &text(format_duration(settings.timeout)),
        "How long one call may take, from 1ms to 1h.",
    );
    page.optional(
        "hold_after_timeout",
        &text(format_duration(settings.hold())),
        "How long a call that timed out is taken to occupy the target still, at most 12h.\nDefault: as long as timeout.",
    );
    page.key(
        "headers",
        "{}",
        "Sent with every call, such as { authorization = { file = \"token\" } }. A value is text, or is read from a file or\nthe environment ({ env = \"TOKEN\" }) at the start. None is ever printed or logged.",
    );
    page.key(
        "outcomes",
        "{}",
        "What a status code means where that differs from the usual: { \"404\" = \"dead\" }. Codes from 200 to 599;\n\"complete\", \"retry\", \"dead\" (a dead letter at once) or \"release\" (not now, no attempt counted). The usual:\n2xx complete; 429, and 503 with Retry-After, release; 400, 410, 413, 415, 422 dead; anything else retry.",
    );
    page.key(
        "adaptive",
        "false",
        "Whether a limit below concurrency is found by how the target does: as many calls as it can work on without\nqueueing them. It begins with 1, doubles every second, and now and then halves for a moment to measure anew\nwhat a call takes unloaded. docs/guide/dispatch.md says when that is better than a fixed cap.",
    );
    page.optional(
        "latency_objective",
        "\"150ms\"",
        "With adaptive = true: the limit is instead the one at which nine in ten calls take no longer than this.\nShorter than timeout. Default: no objective.",
    );
    transport(page, &fresh);
    page.optional(
        "ramp",
        "\"30s\"",
        &format!(
            "How long a cold target takes to get the whole of its concurrency and rate: a tenth, a fifth, two and four fifths for a\nquarter of it each, then all. Cold is one that had no call for 30s, after a start most of all, or whose breaker has\njust closed. \"0s\": all at once, always. At most 1h. Default: {} after its breaker has closed, else all at once.",
            format_duration(RAMP_RECOVERED)
        ),
    );
    breaker(page);
}

fn transport(page: &mut Page, fresh: &Target) {
    page.optional(
        "connect_timeout",
        &text(format_duration(fresh.connect_timeout())),
        "How long it may take until there is a connection: name, TCP and TLS together. From 1ms to timeout, of which it is\na part. A call that fails so never reached the target, and hold_after_timeout is not for it.\nDefault: 5s, or timeout if that is shorter.",
    );
    page.optional(
        "http2",
        "true",
        "true: HTTP/2 only; over http by prior knowledge. false: HTTP/1.1 only. Default: over https whichever the target\nprefers, over http HTTP/1.1.",
    );
    page.optional(
        "tls",
        "{ ca = \"ca.pem\", certificate = \"client.pem\", key = \"client.key\", server_name = \"backend.internal\" }",
        "Where url is https. ca: authorities that are trusted beside those of the operating system; a certificate that\nnobody has signed is its own. certificate and key: shown to a target that asks who calls. server_name: the name\nthat the target's certificate must be for; default: the host of url. Files in PEM, relative to the directory of\nthis one, read at the start. Nothing turns the verification off: name the authority in ca.",
    );
    page.optional(
        "signature",
        "{ secret = { file = \"signing.key\" } }",
        "Signs every call as Standard Webhooks describes (webhook-id, webhook-timestamp, webhook-signature). The secret is\nwhsec_ and base64 of 24 to 64 bytes, in a file or the environment ({ env = \"KEY\" }). A list of secrets signs with\neach, so that the receiver can change from one to the next. Default: calls are not signed.",
    );
}

fn breaker(page: &mut Page) {
    let fresh = BreakerSettings::default();
    page.table(
        "[targets.example.breaker]",
        "When calls stop because the target is down: what waits goes on waiting and burns no attempt, and single messages try the\ntarget until it answers. breaker = false: never. docs/guide/dispatch.md explains it.",
    );
    page.key(
        "failures",
        &fresh.failures.to_string(),
        "So many failures in a row open it; as many as calls are in flight, if those are more. A failure is a 5xx or 408,\na connection that fails, a time-out. Other answers show that the target is up. From 1 to 1000000.",
    );
    page.key(
        "failure_rate",
        &fresh.failure_rate.to_string(),
        "So large a share of failures within window opens it, too, once twice as many calls have ended. Above 0, at most 1.",
    );
    page.key("window", &text(format_duration(fresh.window)), "What that share is taken of. From 1s to 1h.");
    page.key(
        "probe_after",
        &text(format_duration(fresh.probe_after)),
        "The first pause before the target is tried again, at least 100ms. It doubles with each failed probe; up to a half\nof it is left to chance.",
    );
    page.key("probe_max", &text(format_duration(fresh.probe_max)), "The longest such pause, at most 1h.");
}

fn queue(page: &mut Page) {
    let fresh = QueueSettings::default();
    page.table("[queues.example]", "A queue. Every key has a default.");
    page.optional(
        "target",
        "\"example\"",
        "The target its messages are pushed to. Default: none, the queue is for pull workers only.",
    );
    page.optional(
        "concurrency",
        "1",
        "The most messages in work at once, over push and pull together. Default: the target's; without a\ntarget, no cap.",
    );
    page.optional(
        "max_wait",
        "\"45m\"",
        "The promise: work that would probably start later than this is refused with 503. Default: no such bound.",
    );
    page.optional(
        "max_messages",
        "2000000",
        "The most messages that are not finished, dead or expired. Default: only max_bytes bounds.",
    );
    page.key(
        "max_bytes",
        &text(format_size(fresh.max_bytes)),
        "The most bytes of such messages. There is always this bound.",
    );
    page.key(
        "overflow",
        &word(fresh.overflow, &words::OVERFLOWS),
        "What happens to work beyond a bound. \"reject\": it is refused with 503 and a Retry-After. \"block\": its caller\nwaits for room, up to block_for, and is refused then. \"drop-oldest\": the oldest waiting message that is not\nmore critical gives way; its status says \"dropped\". Sheddable work may use half of each bound,\nsheddable-plus three quarters.",
    );
    page.key(
        "block_for",
        &text(format_duration(fresh.block_for)),
        &format!(
            "How long a caller waits for room where overflow is \"block\". Longer than 0s, at most {}.",
            format_duration(WAIT_MAX)
        ),
    );
    order(page, &fresh);
    times(page, &fresh);
}

fn times(page: &mut Page, fresh: &QueueSettings) {
    let longest = format_duration(LEASE_TOTAL_MAX);
    page.key(
        "lease",
        &text(format_duration(fresh.lease)),
        &format!("How long a worker has a message to itself, from 1s to {longest}; it can extend that. Not shorter than the\ntarget's timeout."),
    );
    let kept = format_duration(RETENTION_MAX);
    page.key(
        "retention",
        &text(format_duration(fresh.retention)),
        &format!("A message not done this long after its acceptance expires. From 1s to {kept}."),
    );
    page.key(
        "on_expiry",
        &word(fresh.on_expiry, &words::EXPIRIES),
        "What expiry does: \"dead-letter\", or \"drop\" (a status is kept, no dead letter).",
    );
    page.key(
        "result_retention",
        &text(format_duration(fresh.result_retention)),
        "How long status, result and Idempotency-Key live after a message's end.",
    );
    page.key(
        "result_max",
        &text(format_size(fresh.result_max_bytes)),
        "Most bytes of a result that are kept, at most 16MiB. A longer one is cut.",
    );
    page.optional(
        "expected_service_time",
        "\"80ms\"",
        "Work per message, until it has been measured; forecasts start from it. Default: unknown, nothing is\npromised before the first measurements.",
    );
}

fn order(page: &mut Page, fresh: &QueueSettings) {
    let kept = format_duration(RETENTION_MAX);
    page.key(
        "order",
        &word(fresh.order, &words::ORDERS),
        "Which waiting message goes out next. \"fifo\": first in, first out. \"lifo\": last in, first out. \"adaptive\":\nfifo while the oldest is younger than fresh_within, then the newest first and the old ones at a side share.\nGroups need \"fifo\": with the others, a message with a group is refused.",
    );
    page.key(
        "fresh_within",
        &text(format_duration(fresh.fresh_within)),
        &format!(
            "In an adaptive order: how old the oldest waiting message may be before the newest go first. Longer than\n0s, at most {kept}."
        ),
    );
    page.key(
        "priority",
        &word(fresh.priority, &words::PRIORITIES),
        "How the classes of criticality share the hand-outs. \"weighted\": 8 : 4 : 2 : 1 from critical-plus to sheddable,\nso that each keeps a share. \"strict\": a class only while nothing more critical waits.",
    );
    page.key(
        "prefetch",
        &fresh.prefetch.to_string(),
        "The most messages that one consumer holds at once, over all its leases, and the most in one lease. From 1 to\n1000. Low keeps work spread over the workers; a worker that says no consumer is bounded per lease only.",
    );
    page.key(
        "max_keys",
        &fresh.max_keys.to_string(),
        "The most idempotency keys remembered. Beyond it those of finished messages are forgotten, oldest first; if there\nare none, a message with a new key is refused with 503.",
    );
    page.key(
        "dead_burst",
        &fresh.dead_burst.to_string(),
        "So many messages given up in a row, without one success, pause the queue: a missing route must not empty it into\nits dead letters. 0: never.",
    );
}

fn failure_path(page: &mut Page) {
    let fresh = QueueSettings::default();
    page.table("[queues.example.retry]", "How failed attempts are repeated.");
    page.key(
        "max_attempts",
        &fresh.retry.max_attempts.to_string(),
        "Failed attempts before the message becomes a dead letter; the first one counts. From 1 to 1000.",
    );
    page.optional(
        "max_deliveries",
        &fresh.retry.deliveries_max().to_string(),
        "Hand-outs of any kind, throttled and released ones too, before it becomes a dead letter.\nDefault: ten times max_attempts.",
    );
    let backoff = format!(
        "{{ min = {}, max = {} }}",
        text(format_duration(fresh.retry.backoff_min)),
        text(format_duration(fresh.retry.backoff_max))
    );
    page.key(
        "backoff",
        &backoff,
        "The wait before a repetition doubles from min to max, with full jitter above min. At most 30d.",
    );
    page.key(
        "budget",
        &fresh.retry.budget.to_string(),
        "While fresh work waits, retries are at most this share of the hand-outs, plus one a second. From 0 to 1, which\nis no bound. A retry beyond the budget waits its turn; that costs it no attempt.",
    );
    page.table("[queues.example.dead_letter]", "What is kept of messages that could not be done.");
    page.key(
        "retention",
        &text(format_duration(fresh.dead_letter.retention)),
        "How long a dead letter is kept. Longer than the queue's retention, at most 366d.",
    );
    page.key(
        "max_messages",
        &fresh.dead_letter.max_messages.to_string(),
        "How many are kept. When full, the queue hands out nothing more until there is room: nothing is trimmed\nin silence.",
    );
    page.key(
        "replayable_for",
        &text(format_duration(fresh.dead_letter.replayable_for)),
        &format!(
            "Dead letters older than this are replayed only if that is asked for explicitly. Longer than 0s, at most {}.",
            format_duration(RETENTION_MAX)
        ),
    );
    page.optional("owner", "\"team-example\"", "Who looks after them. Default: nobody.");
}

fn queue_alerts(page: &mut Page) {
    let fresh = QueueSettings::default().alerts;
    page.table(
        "[queues.example.alerts]",
        "When somebody must look: logged, counted, shown at /v1/alerts. docs/guide/alerts.md says what to do about each.",
    );
    page.optional(
        "oldest_age",
        "\"10m\"",
        "An alert once the oldest unfinished message is so old. Longer than 0s, at most 366d. Default: no such alert.",
    );
    page.optional(
        "depth",
        "500000",
        "An alert once so many messages wait, ready and in backoff. Default: no such alert.",
    );
    page.key("dead", &fresh.dead.to_string(), "An alert once there are so many dead letters. 0: never.");
    page.key(
        "refusals",
        &fresh.refusals.to_string(),
        "An alert once such a share of what arrives is refused, over two minutes and at least ten. From 0, which is never,\nto 1.",
    );
    page.key(
        "insurmountable",
        &fresh.insurmountable.to_string(),
        "An alert once more has arrived than can be done for longer than max_wait; without one, for a minute.",
    );
    page.key(
        "held",
        &fresh.held.to_string(),
        "An alert while the queue hands out nothing since too many messages were given up in a row, or since there is no room\nfor more dead letters. An operator's pause is none.",
    );
    page.key(
        "for",
        &text(format_duration(fresh.hold)),
        &format!(
            "How long age, depth or refusals must be too high before the alert fires, and anything be well below (four fifths)\nbefore it clears. At most {}.",
            format_duration(HOLD_MAX)
        ),
    );
}

fn server_alerts(page: &mut Page) {
    let fresh = Configuration::default().alerts;
    page.table("[alerts]", "Alerts that are not a queue's.");
    page.key(
        "storage_full",
        &fresh.storage_full.to_string(),
        "An alert while the disk has no room for new work.",
    );
    page.key(
        "breaker_open",
        &fresh.breaker_open.to_string(),
        "An alert for each target that does not answer: its breaker has not been closed for as long as for says.",
    );
    page.key(
        "slow_commits",
        &text(format_duration(fresh.slow_commits)),
        "An alert once a commit to the disk takes so long on average over two minutes. 0s: never; at most 1m.",
    );
    page.key("for", &text(format_duration(fresh.hold)), "The same as for a queue.");
    page.optional(
        "webhook",
        "\"https://pager.example/hook\"",
        "Where each alert that fires or clears is told, as an event (docs/guide/alerts.md); it may be any address. Durable,\nand tried again like a callback. Default: nobody is told.",
    );
    page.optional(
        "secret",
        "{ file = \"signing.key\" }",
        "What that is signed with, as in [callbacks]. Must be given with webhook.",
    );
}

fn route(page: &mut Page) {
    page.table(
        "[[routes]]",
        "A route: requests of clients that know nothing of Millpond go to a queue. One [[routes]] each.",
    );
    page.key(
        "path",
        "\"/example/{*rest}\"",
        "Which paths: {name} stands for one segment, {*name} for all that follow, at least one. Must be given. Compared with\nwhat was sent, percent signs and all. Millpond's own paths (/v1, /metrics, /livez, /readyz, /problems,\n/openapi.json) are never taken.",
    );
    page.key("queue", "\"example\"", "The queue; declared in this file. Must be given.");
    page.key(
        "methods",
        "[\"POST\"]",
        "Which methods: some of GET, POST, PUT, PATCH, DELETE; \"*\" for all of them. HEAD and OPTIONS are never queued.",
    );
    page.key(
        "keep_headers",
        "[]",
        "Headers that are stored and handed on beside content type and trace context. \"x-*\" keeps all that begin so, \"*\"\nall that are not the connection's or Millpond's; authorization and cookie only where they are listed by name.",
    );
    page.optional(
        "forward",
        "\"/v2/{rest}\"",
        "What is appended to the target's URL, with {name} for parameters of the path. The query follows, unless there is\na question mark in it. Default: what follows the fixed beginning of the path. Percent signs stay as they came;\nempty segments, . and .. are refused with 400.",
    );
    page.optional(
        "tenant",
        "\"{header.x-customer}\"",
        "The tenant of requests without Millpond-Tenant: {name} of the path, {header.NAME}, {query.NAME}, fixed text. If a\npart is missing or empty, there is none. Default: none.",
    );
    page.optional("group", "\"{query.order}\"", "The same for Millpond-Group.");
    page.optional("idempotency_key", "\"{header.x-request-id}\"", "The same for Idempotency-Key.");
    page.optional(
        "criticality",
        "\"sheddable\"",
        "The same for Millpond-Criticality; what comes out must be one of its words.",
    );
    page.optional(
        "wait",
        "\"2s\"",
        &format!(
            "Callers without a Prefer of their own get the target's own answer if it is there in time, as with\nPrefer: wait=2. From 1ms to {}. Default: a 202 at once.",
            format_duration(WAIT_MAX)
        ),
    );
    page.optional(
        "schema",
        "\"schemas/example.json\"",
        "What bodies must look like: a file with a JSON Schema, relative to the directory of this one. It may refer to\nitself only, and its patterns have no look-around and no back-references. A body that is not JSON is refused\nwith 415 or 422, one that does not fit with 422. Default: any body.",
    );
}

fn scaler(page: &mut Page) {
    page.table(
        "[scaler]",
        "Where autoscalers ask: KEDA's external scaler over gRPC. docs/guide/scaling.md has examples.",
    );
    page.optional(
        "listen",
        "\"127.0.0.1:8090\"",
        "IP address and port. Anything but loopback needs `--insecure`. Default: nobody can ask.",
    );
}

fn cors(page: &mut Page) {
    let fresh = Cors::default();
    let names = |names: &[http::HeaderName]| {
        format!("{:?}", names.iter().map(http::HeaderName::as_str).collect::<Vec<_>>())
    };
    page.table(
        "[cors]",
        "Which web pages of other sites may call routes, POST /v1/queues/{queue}/messages and /v1/messages/{id}…;\nnever the calls of operators and workers.",
    );
    page.key(
        "origins",
        "[]",
        "Their origins, such as \"https://app.example.com\", exactly as browsers send them; \"*\": any. Empty: no page of\nanother site is let in.",
    );
    page.key("headers", &names(&fresh.headers), "Request headers that they may set.");
    page.key("expose", &names(&fresh.expose), "Response headers that they may read.");
    page.key(
        "max_age",
        &text(format_duration(fresh.max_age)),
        "How long a browser may remember what it was told before a call. At most 24h.",
    );
    page.key(
        "credentials",
        &fresh.credentials.to_string(),
        "Whether cookies and the like may come along. Not together with \"*\".",
    );
}

fn callbacks(page: &mut Page) {
    let fresh = Callbacks::default();
    page.line("");
    page.comment(&format!(
        "Who may be told of the end of a message: producers ask for it with Millpond-Callback. Without this table nobody\nis told. What waits to be told lies in the queue {CALLBACK_QUEUE}."
    ));
    page.line("#[callbacks]");
    let mut key = |key: &str, default: &str, comment: &str| page.optional(key, default, comment);
    key(
        "secret",
        "{ file = \"signing.key\" }",
        "What every callback is signed with, as Standard Webhooks describes: whsec_ and base64 of 24 to 64 bytes, in a\nfile or the environment ({ env = \"KEY\" }). A list of secrets signs with each, so that receivers can change from\none to the next. Must be given.",
    );
    key(
        "allow",
        "[]",
        "Hosts that may be told: \"example.com\", or \"*.example.com\" for all below it. Empty: any host with public\naddresses.",
    );
    key("allow_http", &fresh.allow_http.to_string(), "Whether http will do as well as https.");
    key(
        "allow_private",
        "[]",
        "Networks that may be told though they are not public, such as \"10.0.0.0/8\". Loopback, private, link-local and\nother special addresses are refused otherwise, at every try, whatever a name leads to.",
    );
    key("ports", "[443]", "Ports that may be used. Default: 443, with allow_http 80 too.");
    key("timeout", &text(format_duration(fresh.timeout)), "How long one try may take. From 1s to 1m.");
    key("concurrency", &fresh.concurrency.to_string(), "Most tries at once.");
    key(
        "concurrency_per_host",
        &fresh.concurrency_per_host.to_string(),
        "Most tries at once to one host, so that a slow one does not hold up the others.",
    );
    key(
        "max_messages",
        &fresh.max_messages.to_string(),
        "Most callbacks that wait. Beyond it queues with messages whose end is to be told hand out nothing, and take in\nno more of them, until some have been delivered or given up.",
    );
    key(
        "max_bytes",
        &text(format_size(fresh.max_bytes)),
        "Most bytes of callbacks that wait; the same beyond it.",
    );
    key(
        "retention",
        &text(format_duration(fresh.retention)),
        "How long a callback is tried: ten times over 75 hours, longer where a receiver asks for pauses. At least 4d.",
    );
    key(
        "owner",
        "\"team-callbacks\"",
        "Who looks after those that could not be delivered; shown with every alert.",
    );
    key("tls", "{ ca = \"ca.pem\" }", "Whom to trust, as in [targets.*.tls], without server_name.");
}

/// The page `docs/reference/configuration.md`.
pub fn reference_markdown() -> String {
    let later: Vec<String> = TABLES
        .iter()
        .flat_map(|table| table.unsupported.iter().map(|key| (table.title, key)))
        .map(|(title, key)| if title.is_empty() { format!("`{key}`") } else { format!("`{title}.{key}`") })
        .collect();
    format!(
        "# Configuration

One TOML file, at most {size}, read at the start: `millpond serve --config millpond.toml`. Without a file every
default below holds and there are no queues; queues can also be made over HTTP.

- Everything wrong in the file is reported in one run, each with line, column, key and what to do. Nothing is started
  and nothing is ignored: an unknown key is an error that names the nearest known one.
- **Durations** are whole numbers with `us`, `ms`, `s`, `m`, `h` or `d`: `\"80ms\"`, `\"30s\"`, `\"1h30m\"`.
- **Sizes** are whole numbers with `KiB`, `MiB`, `GiB` or `TiB` (powers of 1024), or plain bytes: `\"64KiB\"`, `65536`.
- **Rates** are whole numbers per `s`, `m`, `h` or `d`: `\"500/s\"`, `\"30/m\"`.
- **Names** of queues and targets have 1 to 80 of `A-Z a-z 0-9 _ . -` and begin with a letter, a digit or an underscore.
- Known but not supported by this version, and therefore refused: {later}.

Every key with its default. A key behind `#` has none; what stands there is an example, except where the comment
says what the default follows.

```toml
{toml}```

This page is made by `cargo run -p millpond-config --example reference > docs/reference/configuration.md`; a test fails
when it is out of date.
",
        size = format_size(FILE_BYTES_MAX),
        later = later.join(", "),
        toml = reference_toml()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Loaded, Route, RoutePath, parse, parse_with};
    use millpond_core::name::Name;

    #[test]
    fn the_reference_is_the_default_configuration() {
        let Loaded { configuration, warnings } = parse(&reference_toml(), "reference").unwrap();
        assert_eq!(warnings, []);
        let mut expected = Configuration::default();
        let target = Target::new(Uri::from_static("http://127.0.0.1:9000/tasks"));
        expected.targets.insert("example".to_owned().try_into().unwrap(), target);
        let queue: Name = "example".to_owned().try_into().unwrap();
        expected.queues.insert(queue.clone(), QueueSettings::default());
        expected.routes.push(Route::new(RoutePath::parse("/example/{*rest}").unwrap(), queue));
        assert_eq!(configuration, expected);
    }

    #[test]
    fn every_example_in_the_reference_is_accepted() {
        let uncommented: String = reference_toml()
            .lines()
            .map(|line| line.strip_prefix('#').filter(|rest| !rest.starts_with(' ')).unwrap_or(line))
            .fold(String::new(), |text, line| text + line + "\n")
            // What an objective is for, and what TLS is.
            .replace("adaptive = false", "adaptive = true")
            .replace("url = \"http://", "url = \"https://");
        let files = |path: &std::path::Path| {
            Ok(match path.to_str().unwrap() {
                "ca.pem" | "client.pem" => {
                    b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_vec()
                }
                "client.key" => b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n".to_vec(),
                "signing.key" => b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n".to_vec(),
                _ => b"{}".to_vec(),
            })
        };
        let Loaded { configuration, warnings } = parse_with(&uncommented, "reference", &files).unwrap();
        assert_eq!(warnings, []);
        assert!(configuration.queues["example"].target.is_some(), "the examples were uncommented");
    }

    #[test]
    fn every_supported_key_is_documented() {
        let documented = reference_toml();
        for table in TABLES {
            for key in table.supported {
                let line = |line: &str| {
                    let line = line.trim_start_matches('#');
                    line.starts_with(&format!("{key} = "))
                        || line.starts_with(&format!("[{key}."))
                        || line == format!("[[{key}]]")
                        || line == format!("[{key}]")
                        || line.ends_with(&format!(".{key}]"))
                        || (["backoff", "tls", "signature"].iter().any(|table| line.starts_with(table))
                            && line.contains(&format!("{key} = ")))
                };
                assert!(documented.lines().any(line), "{}.{key}", table.title);
            }
        }
    }
}
