//! Connections that die or lie idle.
//!
//! Owns a target of HTTP/2 with short times. Must never assert how long anything took.

use super::super::connect::{Connector, Offer};
use super::super::fault::{Fault, Progress};
use super::{Care, Multiplexed, Unsent};
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use millpond_config::Target;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};

/// Longest time anything may take before a test fails.
const DEADLINE: Duration = Duration::from_secs(20);

fn pool(listener: &TcpListener, care: Care) -> (Multiplexed, Request<Full<Bytes>>) {
    let url: http::Uri = format!("http://{}/", listener.local_addr().unwrap()).parse().unwrap();
    let connector = Connector::new(&Target::new(url.clone())).unwrap().offering(Offer::Http2);
    let mut request = Request::new(Full::default());
    *request.uri_mut() = url;
    (Multiplexed::new(connector, false, false, care), request)
}

async fn accept(listener: &TcpListener) -> h2::server::Connection<TcpStream, Bytes> {
    let (stream, _) = listener.accept().await.unwrap();
    h2::server::handshake(stream).await.unwrap()
}

#[tokio::test]
async fn a_connection_on_which_no_ping_is_answered_is_dead() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (ping_interval, ping_timeout) = (Duration::from_millis(20), Duration::from_millis(50));
    let (pool, request) = pool(&listener, Care { ping_interval, ping_timeout, ..Care::default() });
    let silent = async {
        let mut connection = accept(&listener).await;
        let call = connection.accept().await;
        // From here on nobody looks at what comes.
        std::future::pending::<()>().await;
        drop((connection, call));
    };
    let progress = Progress::default();
    let ended = tokio::select! {
        ended = tokio::time::timeout(DEADLINE, pool.send(&request, &progress)) => ended.unwrap(),
        () = silent => unreachable!("it never ends"),
    };
    let Err(Unsent::Fault(Fault::Failed(failure))) = ended else { panic!("it has ended otherwise") };
    assert_eq!(failure.kind, "reset", "{failure:?}");
    assert!(failure.message.contains("keep-alive"), "{failure:?}");
}

#[tokio::test]
async fn an_idle_connection_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (pool, request) = pool(&listener, Care { idle: Duration::from_millis(10), ..Care::default() });
    let served = async {
        let mut connection = accept(&listener).await;
        while let Some(Ok((_, mut respond))) = connection.accept().await {
            respond.send_response(Response::new(()), true).unwrap();
        }
    };
    let progress = Progress::default();
    let calling = async {
        let Ok((response, place)) = pool.send(&request, &progress).await else { panic!("it is answered") };
        assert_eq!(response.status(), 200);
        place.ended();
    };
    // The target sees the end of the connection though the pool is still there.
    let both = Box::pin(async { tokio::join!(calling, served) });
    tokio::time::timeout(DEADLINE, both).await.unwrap();
    assert!(pool.free().is_none());
}
