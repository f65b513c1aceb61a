//! Where a call goes: the target's URL, with what came by a route behind it.
//!
//! Owns the joining of the two. Pure; must never change what was stored, and never send it to another host.

use http::{Method, Uri};
use millpond_core::message::{Content, Failure};

/// Method and address of the call for `content`.
pub(super) fn address(url: &Uri, content: &Content) -> Result<(Method, Uri), Failure> {
    let method = match content.method() {
        None => Method::POST,
        Some(method) => Method::from_bytes(method.as_bytes()).map_err(|_| unusable("method"))?,
    };
    let uri = match content.path() {
        None => url.clone(),
        Some(path) => joined(url, path).ok_or_else(|| unusable("path"))?,
    };
    Ok((method, uri))
}

fn unusable(what: &str) -> Failure {
    Failure::new(
        Failure::INTERNAL,
        &format!("the {what} that is stored with the message cannot be sent"),
        None,
    )
}

/// `url` with a path, a query, or both behind it.
fn joined(url: &Uri, behind: &str) -> Option<Uri> {
    let (path, query) = behind.split_once('?').map_or((behind, None), |(path, query)| (path, Some(query)));
    let own = if path.is_empty() { url.path() } else { url.path().trim_end_matches('/') };
    let mut text = format!("{own}{path}");
    let queries = [url.query(), query].into_iter().flatten().filter(|query| !query.is_empty());
    for (at, query) in queries.enumerate() {
        text.push(if at == 0 { '?' } else { '&' });
        text.push_str(query);
    }
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(text.parse().ok()?);
    Uri::from_parts(parts).ok()
}

#[cfg(test)]
mod tests {
    use super::{address, joined};
    use http::{Method, Uri};
    use millpond_core::message::Content;

    #[test]
    fn what_came_by_a_route_stands_behind_the_targets_own() {
        for (url, behind, whole) in [
            ("http://a:1", "/b", "http://a:1/b"),
            ("http://a:1/", "/b", "http://a:1/b"),
            ("http://a:1/work", "/b/c%2Fd", "http://a:1/work/b/c%2Fd"),
            ("http://a:1/work/", "/b/", "http://a:1/work/b/"),
            ("http://a:1/work/", "?x=1", "http://a:1/work/?x=1"),
            ("http://a:1/work?k=v", "/b?x=%26", "http://a:1/work/b?k=v&x=%26"),
            ("http://a:1/work?k=v", "?", "http://a:1/work?k=v"),
            ("http://a:1/work", "/b?c?d", "http://a:1/work/b?c?d"),
        ] {
            assert_eq!(joined(&url.parse::<Uri>().unwrap(), behind).unwrap().to_string(), whole);
        }
        assert!(joined(&Uri::from_static("http://a/"), "/b c").is_none());
    }

    #[test]
    fn a_message_that_came_by_no_route_is_posted() {
        let url = Uri::from_static("http://a:1/work?k=v");
        assert_eq!(address(&url, &Content::default()), Ok((Method::POST, url.clone())));
        let headers = vec![(Content::METHOD.to_owned(), "a b".to_owned())];
        assert!(address(&url, &Content { headers, ..Content::default() }).is_err(), "it is never guessed at");
    }
}
