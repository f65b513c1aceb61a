//! A list as the user asked for it, whatever pages the server makes of it.
//!
//! Owns when a list has come to its end, and how options are repeated in a command for the next part. Must never take
//! a page for the whole: a server looks at so many messages for one page, and an empty one can have others behind it.

use millpond_api::client::ClientError;
use millpond_api::types::Messages;
use std::fmt::Write as _;

/// What a list shows unless told otherwise.
pub(super) const LIMIT_DEFAULT: u32 = 20;

/// Asks for pages, each with where it begins and how many it may have, until there are `limit` messages or no page
/// follows. `next` is that of the last one.
pub(super) async fn gather(
    limit: u32,
    mut after: Option<String>,
    mut page: impl AsyncFnMut(Option<String>, u32) -> Result<Messages, ClientError>,
) -> Result<Messages, ClientError> {
    let mut gathered = Vec::new();
    loop {
        let found = u32::try_from(gathered.len()).unwrap_or(u32::MAX);
        let Messages { messages, next } = page(after, limit.saturating_sub(found)).await?;
        gathered.extend(messages);
        if next.is_none() || gathered.len() as u64 >= u64::from(limit) {
            return Ok(Messages { messages: gathered, next });
        }
        after = next;
    }
}

/// ` --name value` for each option that is given, as a shell takes it.
pub(super) fn options(given: &[(&str, Option<&str>)]) -> String {
    let mut text = String::new();
    for (name, value) in given {
        if let Some(value) = value {
            let _ = write!(text, " --{name} {}", word(value));
        }
    }
    text
}

/// `--limit`, where it is not the usual one.
pub(super) fn limit_option(limit: u32) -> String {
    let limit = (limit != LIMIT_DEFAULT).then(|| limit.to_string());
    options(&[("limit", limit.as_deref())])
}

/// One word for a shell.
fn word(value: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_.:/@%+=,".contains(character);
    if !value.is_empty() && !value.starts_with('-') && value.chars().all(is_plain) {
        return value.to_owned();
    }
    format!("'{}'", value.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::{gather, options, word};
    use millpond_api::types::{MessageStatus, Messages};
    use serde_json::json;

    fn message(number: u32) -> MessageStatus {
        serde_json::from_value(json!({
            "id": number.to_string(), "queue": "jobs", "status": "ready", "status_url": "/x", "position": null,
            "expected_start_seconds": null, "accepted_at": "2026-11-30T10:00:00.000Z", "attempts": 0,
            "deliveries": 0, "due_at": null, "first_started_at": null, "finished_at": null,
            "expires_at": "2026-12-04T10:00:00.000Z", "criticality": "critical", "history": []
        }))
        .unwrap()
    }

    /// A server that looks at ten messages for one page; those in `fitting` are what is asked for, of `total`.
    async fn asked(
        limit: u32,
        after: Option<&str>,
        total: u32,
        fitting: &[u32],
    ) -> (Vec<String>, Option<String>, u32) {
        let mut pages = 0;
        let gathered = gather(limit, after.map(str::to_owned), async |after, limit| {
            pages += 1;
            let from = after.map_or(0, |after| after.parse::<u32>().unwrap() + 1);
            let mut page = Messages::default();
            for number in from..total {
                if number == from + 10 || page.messages.len() == limit as usize {
                    page.next = Some((number - 1).to_string());
                    break;
                }
                page.messages.extend(fitting.contains(&number).then(|| message(number)));
            }
            Ok(page)
        })
        .await
        .unwrap();
        (gathered.messages.into_iter().map(|message| message.id).collect(), gathered.next, pages)
    }

    #[tokio::test]
    async fn an_empty_page_is_not_the_end_while_another_follows() {
        assert_eq!(asked(20, None, 35, &[34]).await, (vec!["34".to_owned()], None, 4));
        assert_eq!(asked(20, None, 35, &[]).await, (vec![], None, 4));
        assert_eq!(asked(20, Some("30"), 35, &[1, 34]).await, (vec!["34".to_owned()], None, 1));
    }

    #[tokio::test]
    async fn a_list_is_filled_up_to_its_limit_and_no_further() {
        let (ids, next, pages) = asked(3, None, 100, &[5, 15, 25, 26, 27]).await;
        assert_eq!(
            (ids, next.as_deref(), pages),
            (vec!["5".into(), "15".into(), "25".into()], Some("25"), 3)
        );
    }

    #[tokio::test]
    async fn a_list_that_breaks_off_is_an_error_and_not_a_shorter_list() {
        let broken = gather(5, None, async |after, _| match after {
            None => Ok(Messages { messages: Vec::new(), next: Some("a".to_owned()) }),
            Some(_) => Err(millpond_api::client::ClientError::Interrupted {
                address: String::new(),
                reason: String::new(),
            }),
        });
        assert!(broken.await.is_err());
    }

    #[test]
    fn options_are_repeated_as_a_shell_takes_them() {
        assert_eq!(
            options(&[("a", Some("x")), ("b", None), ("c", Some("it's 1"))]),
            r" --a x --c 'it'\''s 1'"
        );
        for (value, written) in [
            ("", "''"),
            ("-x", "'-x'"),
            ("$HOME", "'$HOME'"),
            ("2026-11-30T10:00:00Z", "2026-11-30T10:00:00Z"),
        ] {
            assert_eq!(word(value), written);
        }
    }
}
