//! Headers and signatures that nobody else may see.
//!
//! Owns what the target gets of them, and the search for them everywhere else. Must never put one into an assertion's
//! message.

use super::{Bench, Nasty, request, target};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use millpond_config::SigningKey;
use ring::hmac;
use serde_json::json;
use std::sync::{Arc, Mutex};
use tokio::io::AsyncWriteExt as _;

const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

/// A target that keeps what it got and answers so.
async fn keeping(answer: &'static str) -> (Nasty, Arc<Mutex<Vec<String>>>) {
    let seen: Arc<Mutex<Vec<String>>> = Arc::default();
    let kept = Arc::clone(&seen);
    let nasty = Nasty::start(move |_, mut stream| {
        let kept = Arc::clone(&kept);
        async move {
            while let Some(request) = request(&mut stream).await {
                kept.lock().unwrap().push(request);
                if stream.write_all(answer.as_bytes()).await.is_err() {
                    return;
                }
            }
        }
    })
    .await;
    (nasty, seen)
}

fn header<'a>(request: &'a str, name: &str) -> Vec<&'a str> {
    let wanted = format!("{name}: ");
    request.lines().filter_map(|line| line.strip_prefix(wanted.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn the_target_gets_the_secret_and_nobody_else_sees_it() {
    let (nasty, seen) = keeping("HTTP/1.1 500 Oops\r\ncontent-length: 4\r\n\r\nsorry").await;
    let bench = Bench::start(nasty.address, |configuration| {
        let mut value = http::HeaderValue::from_static("Bearer hunter2");
        value.set_sensitive(true);
        let target = target(configuration);
        target.headers.insert("authorization", value);
        target.signature = vec![SigningKey::parse(KEY).unwrap()];
        assert!(
            !format!("{configuration:?}").contains("hunter2")
                && !format!("{configuration:?}").contains("MfKQ")
        );
    })
    .await;
    let accepted = bench.server.enqueue("push", "x").await;
    let outcome = bench.server.outcome(&accepted).await;
    assert_eq!(outcome["status"], "dead");
    assert_eq!(header(&seen.lock().unwrap()[0], "authorization"), ["Bearer hunter2"]);
    let dead = format!("/v1/queues/push/dead/{}", accepted["id"].as_str().unwrap());
    for path in
        ["/v1/queues", "/v1/queues/push", "/v1/queues/push/stats", "/v1/queues/push/dead", &dead, "/metrics"]
    {
        let body = bench.server.get(path).await.body;
        let body = String::from_utf8_lossy(&body);
        assert!(!body.contains("hunter2") && !body.contains("MfKQ"), "{path} tells a secret");
    }
    assert!(!outcome.to_string().contains("hunter2"));
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_attempt_is_signed_anew_under_the_messages_id() {
    let (nasty, seen) = keeping("HTTP/1.1 500 Oops\r\ncontent-length: 0\r\n\r\n").await;
    let other = BASE64_STANDARD.encode([7; 32]);
    let bench = Bench::start(nasty.address, |configuration| {
        configuration.queues.get_mut(&crate::harness::name("push")).unwrap().retry.max_attempts = 2;
        let target = target(configuration);
        target.signature = [other.as_str(), KEY].map(|key| SigningKey::parse(key).unwrap()).to_vec();
    })
    .await;
    let outcome = bench.push("the body").await;
    let seen = seen.lock().unwrap().clone();
    assert_eq!(seen.len(), 2);
    for request in &seen {
        let id = header(request, "webhook-id")[0];
        assert_eq!(json!(id), outcome["id"]);
        let seconds = header(request, "webhook-timestamp")[0];
        let now = jiff::Timestamp::now().as_second();
        assert!((now - 60..=now).contains(&seconds.parse().unwrap()));
        let signatures: Vec<_> = header(request, "webhook-signature")[0].split(' ').collect();
        let signed = format!("{id}.{seconds}.the body");
        let right = [other.as_str(), KEY].map(|key| {
            let key = SigningKey::parse(key).unwrap();
            let key = hmac::Key::new(hmac::HMAC_SHA256, key.expose());
            format!("v1,{}", BASE64_STANDARD.encode(hmac::sign(&key, signed.as_bytes())))
        });
        assert_eq!(signatures, right);
    }
    bench.end(&nasty).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_cannot_sign_in_the_targets_place() {
    let (nasty, seen) = keeping("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    let bench = Bench::start(nasty.address, |configuration| {
        target(configuration).signature = vec![SigningKey::parse(KEY).unwrap()];
        let queue = configuration.queues[&crate::harness::name("push")].clone();
        let text = "[targets.target]\nurl = 'http://a'\nconcurrency = 1\n[queues.push]\ntarget = 'target'\n\
                    [[routes]]\npath = '/in'\nqueue = 'push'\nkeep_headers = ['*']";
        configuration.routes = millpond_config::parse(text, "test").unwrap().configuration.routes;
        configuration.queues.insert(crate::harness::name("push"), queue);
    })
    .await;
    let forged = [("webhook-id", "forged"), ("webhook-signature", "v1,forged"), ("webhook-timestamp", "0")];
    let accepted = bench.server.send("POST", "/in", &forged, "x").await;
    assert_eq!(accepted.status, 202);
    bench.server.outcome(&accepted.json()).await;
    let request = seen.lock().unwrap()[0].clone();
    assert!(!request.contains("forged"));
    for name in ["webhook-id", "webhook-signature", "webhook-timestamp"] {
        assert_eq!(header(&request, name).len(), 1, "{name}");
    }
    bench.end(&nasty).await;
}
