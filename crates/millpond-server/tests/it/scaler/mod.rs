//! KEDA's external scaler, asked over a real connection by a generated client.

#[rustfmt::skip]
#[expect(
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    unreachable_pub,
    unused_qualifications,
    reason = "generated"
)]
mod externalscaler;

use crate::harness::{Server, configuration, name, within};
use externalscaler::external_scaler_client::ExternalScalerClient;
use externalscaler::{GetMetricsRequest, IsActiveResponse, ScaledObjectRef};
use millpond_config::{Configuration, Scaler};
use millpond_core::settings::QueueSettings;
use millpond_server::{ServeError, ServerOptions, serve};
use serde_json::json;
use std::path::Path;
use std::time::Duration;
use tokio::net::TcpListener;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status, Streaming};

type Client = ExternalScalerClient<Channel>;

fn with_scaler(directory: &Path) -> Configuration {
    let mut configuration = configuration(directory);
    configuration.scaler = Some(Scaler { listen: "127.0.0.1:0".parse().unwrap() });
    let promised = QueueSettings {
        max_wait: Some(Duration::from_secs(10)),
        expected_service_time: Some(Duration::from_millis(100)),
        concurrency: Some(4),
        ..QueueSettings::default()
    };
    configuration.queues.insert(name("promised"), promised);
    configuration
}

async fn client(server: &Server) -> Client {
    let address = server.scaler.expect("it listens");
    let channel = Endpoint::from_shared(format!("http://{address}")).unwrap().connect().await.unwrap();
    ExternalScalerClient::new(channel)
}

/// A scaled object with these metadata beside those that KEDA sends.
fn object(metadata: &str) -> ScaledObjectRef {
    let ours = metadata.split_whitespace().map(|pair| pair.split_once('=').unwrap());
    let all = ours.chain([("scalerAddress", "millpond:8090")]);
    ScaledObjectRef {
        name: "worker".to_owned(),
        namespace: "shop".to_owned(),
        scaler_metadata: all.map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    }
}

async fn active(client: &mut Client, metadata: &str) -> Result<bool, Status> {
    Ok(within(client.is_active(object(metadata))).await?.into_inner().result)
}

/// The metric's value, and how much of it one replica is for.
async fn metric(client: &mut Client, metadata: &str) -> Result<(f64, f64), Status> {
    let spec = within(client.get_metric_spec(object(metadata))).await?.into_inner().metric_specs.remove(0);
    assert!(spec.target_size >= 1 && (spec.target_size as f64 - spec.target_size_float) < 1.0, "{spec:?}");
    let question = GetMetricsRequest {
        scaled_object_ref: Some(object(metadata)),
        metric_name: format!("s0-{}", spec.metric_name),
    };
    let value = within(client.get_metrics(question)).await?.into_inner().metric_values.remove(0);
    assert_eq!(value.metric_name, format!("s0-{}", spec.metric_name), "under the name it was asked for");
    assert!((value.metric_value as f64 - value.metric_value_float).abs() < 1.0, "both forms: {value:?}");
    Ok((value.metric_value_float, spec.target_size_float))
}

async fn next(stream: &mut Streaming<IsActiveResponse>) -> Result<Option<bool>, Status> {
    Ok(within(stream.message()).await?.map(|event| event.result))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_is_active_while_it_has_work_and_its_metric_is_the_stats() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(with_scaler(directory.path())).await;
    let mut client = client(&server).await;
    assert!(!active(&mut client, "queue=promised").await.unwrap());
    assert_eq!(metric(&mut client, "queue=promised").await.unwrap(), (0.0, 1.0));
    for _ in 0..30 {
        server.enqueue("promised", "work").await;
    }
    assert!(active(&mut client, "queue=promised").await.unwrap());
    let (value, _) = metric(&mut client, "queue=promised workersPerReplica=2").await.unwrap();
    assert!((value - server.stats("promised").await["workers_wanted"].as_f64().unwrap()).abs() < 1e-9);
    let (hurried, _) = metric(&mut client, "queue=promised targetWait=100ms").await.unwrap();
    assert!((hurried - 4.0).abs() < 1e-9, "the ceiling: {hurried}");
    let leased = server.lease("promised", &json!({"max": 3})).await;
    assert_eq!(leased.len(), 3);
    let backlog = metric(&mut client, "queue=promised metric=backlog").await.unwrap();
    assert_eq!(backlog, (30.0, 100.0), "27 wait and 3 are at work; 10 s ÷ 0.1 s = 100");
    assert!(!active(&mut client, "queue=promised metric=backlog activation=30").await.unwrap());
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_that_cannot_be_answered_say_what_to_do() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(with_scaler(directory.path())).await;
    let mut client = client(&server).await;
    for (metadata, code, told) in [
        ("queue=nowhere", Code::NotFound, "there is no queue nowhere"),
        ("metric=workers", Code::InvalidArgument, "shop/worker: the metadata name no queue"),
        ("queue=q metric=lag", Code::InvalidArgument, "write workers or backlog"),
        ("queue=q metrics=backlog", Code::InvalidArgument, "did you mean \"metric\"?"),
    ] {
        let status = active(&mut client, metadata).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
        assert!(status.message().contains(told), "{status:?}");
        let status = client.stream_is_active(object(metadata)).await.unwrap_err();
        assert_eq!(status.code(), code, "{status:?}");
    }
    let status = metric(&mut client, "queue=q metric=backlog").await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition);
    assert!(status.message().contains("add backlogPerReplica"), "{status:?}");
    let nobody = GetMetricsRequest { scaled_object_ref: None, metric_name: String::new() };
    assert_eq!(client.get_metrics(nobody).await.unwrap_err().code(), Code::InvalidArgument);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_tells_of_work_as_soon_as_it_comes_and_again_when_it_is_done() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(with_scaler(directory.path())).await;
    let mut client = client(&server).await;
    let mut stream = client.stream_is_active(object("queue=q")).await.unwrap().into_inner();
    let mut other = client.stream_is_active(object("queue=promised")).await.unwrap().into_inner();
    assert_eq!(next(&mut stream).await.unwrap(), Some(false));
    assert_eq!(next(&mut other).await.unwrap(), Some(false));
    for _ in 0..3 {
        server.enqueue("q", "work").await;
        assert_eq!(next(&mut stream).await.unwrap(), Some(true));
        let leased = server.lease("q", &json!({"max": 1})).await;
        server.settle(json!({"outcome": "complete"}), &leased[0]["receipt"]).await;
        assert_eq!(next(&mut stream).await.unwrap(), Some(false));
    }
    assert!(
        tokio::time::timeout(Duration::ZERO, other.message()).await.is_err(),
        "nothing came to the other one"
    );
    let deleted = server.send("PUT", "/v1/queues/short", &[("content-type", "application/json")], "{}").await;
    assert_eq!(deleted.status, 201, "{deleted:?}");
    let mut short = client.stream_is_active(object("queue=short")).await.unwrap().into_inner();
    assert_eq!(next(&mut short).await.unwrap(), Some(false));
    assert_eq!(server.send("DELETE", "/v1/queues/short", &[], "").await.status, 204);
    assert_eq!(next(&mut short).await.unwrap_err().code(), Code::NotFound);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_end_with_the_server_and_do_not_hold_it_up() {
    let directory = tempfile::tempdir().unwrap();
    let mut server = Server::start(with_scaler(directory.path())).await;
    let mut client = client(&server).await;
    let mut streams = Vec::new();
    for _ in 0..50 {
        let mut stream = client.stream_is_active(object("queue=q")).await.unwrap().into_inner();
        assert_eq!(next(&mut stream).await.unwrap(), Some(false));
        streams.push(stream);
    }
    server.begin_to_stop();
    for mut stream in streams {
        // An orderly end, or the end of the connection: not silence.
        let _ended: Result<Option<bool>, Status> = next(&mut stream).await;
    }
    server.ended().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_scaler_listens_only_where_it_may() {
    let directory = tempfile::tempdir().unwrap();
    let [http, scaler] = [TcpListener::bind("127.0.0.1:0").await, TcpListener::bind("0.0.0.0:0").await];
    let listeners = millpond_server::Listeners { http: http.unwrap(), scaler: Some(scaler.unwrap()) };
    let options =
        ServerOptions { configuration: configuration(directory.path()), ..ServerOptions::default() };
    let refused = serve(options, listeners, std::future::pending()).await;
    assert!(matches!(refused, Err(ServeError::Exposure(_))), "{refused:?}");
    let server = Server::start(configuration(directory.path())).await;
    assert_eq!(server.scaler, None, "not unless it is configured");
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_stats_are_what_keda_s_metrics_api_reads_and_the_metrics_what_its_prometheus_does() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(with_scaler(directory.path())).await;
    for _ in 0..30 {
        server.enqueue("promised", "work").await;
    }
    let answer = server.get("/v1/queues/promised/stats").await;
    // 200 and nothing else, flat, and numbers: `valueLocation: workers_wanted` is a path of one part.
    assert_eq!((answer.status, answer.header("content-type")), (200, "application/json"));
    let stats = answer.json();
    for field in
        ["workers_wanted", "workers_ceiling", "backlog_per_worker", "ready", "leased", "oldest_age_seconds"]
    {
        assert!(stats[field].is_number(), "{field}: {stats}");
    }
    assert_eq!((&stats["workers_ceiling"], &stats["backlog_per_worker"]), (&json!(4), &json!(30.0)));
    let metrics = String::from_utf8(server.get("/metrics").await.body.to_vec()).unwrap();
    let wanted = format!(
        "millpond_queue_workers_wanted{{queue=\"promised\"}} {:.1}",
        stats["workers_wanted"].as_f64().unwrap()
    );
    assert!(metrics.lines().any(|line| line == wanted), "{wanted} is not in\n{metrics}");
    assert!(!metrics.contains("workers_ceiling{queue=\"q\"}"), "no cap is no ceiling of none");
    server.stop().await;
}
