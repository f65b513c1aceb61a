//! Signatures of requests, as Standard Webhooks describes them.
//!
//! Owns the three headers and what is signed. Must never print a key.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use millpond_config::SigningKey;
use ring::hmac;

const ID: HeaderName = HeaderName::from_static("webhook-id");
const TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Signs requests with every one of its keys, so that a receiver who knows one of them can check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signer {
    keys: Vec<hmac::Key>,
}

impl Signer {
    /// A signer with these keys; without any it signs nothing.
    pub(crate) fn new(keys: &[SigningKey]) -> Self {
        let keys = keys.iter().map(|key| hmac::Key::new(hmac::HMAC_SHA256, key.expose())).collect();
        Self { keys }
    }

    /// Sets the three headers of a request that is sent at `seconds` since 1970, in place of any of these names. `id`
    /// stays the same when the request is repeated, and has no dot.
    pub(crate) fn sign(&self, headers: &mut HeaderMap, id: HeaderValue, seconds: i64, body: &[u8]) {
        if self.keys.is_empty() {
            return;
        }
        let mut signatures = String::new();
        for key in &self.keys {
            let mut context = hmac::Context::with_key(key);
            for part in [id.as_bytes(), b".", seconds.to_string().as_bytes(), b".", body] {
                context.update(part);
            }
            let separator = if signatures.is_empty() { "v1," } else { " v1," };
            signatures.push_str(separator);
            BASE64_STANDARD.encode_string(context.sign(), &mut signatures);
        }
        let signatures = HeaderValue::from_maybe_shared(Bytes::from(signatures));
        headers.insert(ID, id);
        headers.insert(TIMESTAMP, HeaderValue::from(seconds));
        headers.insert(SIGNATURE, signatures.expect("base64 is visible ASCII"));
    }
}

#[cfg(test)]
mod tests {
    use super::Signer;
    use base64::Engine as _;
    use base64::prelude::BASE64_STANDARD;
    use http::{HeaderMap, HeaderValue};
    use millpond_config::SigningKey;

    /// The worked example of Standard Webhooks.
    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const ID: &str = "msg_p5jXN8AQM9LWM0D4loKWxJek";
    const SECONDS: i64 = 1_614_265_330;
    const BODY: &[u8] = br#"{"test": 2432232314}"#;
    const SIGNED: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    fn signed(keys: &[&str], id: &'static str, seconds: i64, body: &[u8]) -> HeaderMap {
        let keys: Vec<_> = keys.iter().map(|key| SigningKey::parse(key).unwrap()).collect();
        let mut headers = HeaderMap::new();
        headers.insert("webhook-signature", HeaderValue::from_static("v1,forged"));
        Signer::new(&keys).sign(&mut headers, HeaderValue::from_static(id), seconds, body);
        headers
    }

    #[test]
    fn the_example_of_the_specification_comes_out() {
        let headers = signed(&[KEY], ID, SECONDS, BODY);
        assert_eq!(headers["webhook-id"], ID);
        assert_eq!(headers["webhook-timestamp"], "1614265330");
        assert_eq!(headers.get_all("webhook-signature").iter().collect::<Vec<_>>(), [SIGNED]);
    }

    #[test]
    fn id_time_body_and_key_are_all_signed() {
        let other = BASE64_STANDARD.encode([7; 32]);
        for headers in [
            signed(&[KEY], "msg_other", SECONDS, BODY),
            signed(&[KEY], ID, SECONDS + 1, BODY),
            signed(&[KEY], ID, SECONDS, b"{}"),
            signed(&[&other], ID, SECONDS, BODY),
        ] {
            assert_ne!(headers["webhook-signature"], SIGNED);
        }
    }

    #[test]
    fn each_of_several_keys_signs() {
        let other = BASE64_STANDARD.encode([7; 64]);
        let alone = signed(&[&other], ID, SECONDS, BODY)["webhook-signature"].to_str().unwrap().to_owned();
        let both = signed(&[&other, KEY], ID, SECONDS, BODY);
        assert_eq!(both["webhook-signature"], format!("{alone} {SIGNED}"));
    }

    #[test]
    fn without_a_key_nothing_is_touched() {
        let headers = signed(&[], ID, SECONDS, BODY);
        assert_eq!(
            (headers.len(), &headers["webhook-signature"]),
            (1, &HeaderValue::from_static("v1,forged"))
        );
    }
}
