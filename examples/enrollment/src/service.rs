//! The service: `POST /registrations`, one transaction each.
//!
//! Owns the pool and what a caller is told. Must never queue what the database cannot take: a service that hides the
//! wait only moves the time-out.

use crate::register::{Registered, Registration, register};
use anyhow::Context as _;
use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use deadpool_postgres::{Manager, ManagerConfig, Pool, PoolError, RecyclingMethod, Runtime};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;
use std::time::Duration;
use tokio_postgres::NoTls;
use tokio_postgres::error::SqlState;

/// What the service would open if the database let it: 2,000 registrations a second of 80 ms each are 160 at once. One
/// process stands here for the four instances with a pool of 40 each that such a load has a stateless service scaled
/// out to; it is their sum that meets the database.
const POOL_MAX: usize = 160;
/// How long a request waits for a connection: a pool that lets requests wait for long is a queue without a bound.
const CONNECTION_WITHIN: Duration = Duration::from_secs(1);

/// Why there was no registration, as the answer says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Refusal {
    /// The database has as many connections as it allows.
    TooManyConnections,
    /// No connection of the pool came free in time.
    PoolTimeout,
    /// The database is not there, starts or stops, or went away in the middle.
    DatabaseAway,
    /// The database took longer than it allows itself.
    TooSlow,
    /// The database says that the registration cannot be right.
    Invalid,
    /// Anything else.
    Failed,
}

impl Refusal {
    /// What an error of the pool, or of the transaction, means for the caller.
    fn of_pool(error: &PoolError) -> Self {
        match error {
            PoolError::Timeout(_) => Self::PoolTimeout,
            PoolError::Backend(error) => Self::of(error),
            PoolError::Closed | PoolError::NoRuntimeSpecified | PoolError::PostCreateHook(_) => Self::Failed,
        }
    }

    fn of(error: &tokio_postgres::Error) -> Self {
        // Without a code the connection broke, or there was none.
        error.code().map_or(Self::DatabaseAway, Self::of_code)
    }

    fn of_code(code: &SqlState) -> Self {
        if *code == SqlState::TOO_MANY_CONNECTIONS {
            return Self::TooManyConnections;
        }
        if *code == SqlState::QUERY_CANCELED {
            return Self::TooSlow;
        }
        match code.code().get(..2) {
            Some("08" | "57") => Self::DatabaseAway,
            Some("22" | "23") => Self::Invalid,
            _ => Self::Failed,
        }
    }

    /// 503 with a `Retry-After` says that it was not the registration's fault: a queue in front of the service pauses
    /// and counts no attempt. 422 says that no repetition will help, anything else that one may.
    fn status(self) -> StatusCode {
        match self {
            Self::TooManyConnections | Self::PoolTimeout | Self::DatabaseAway => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Self::TooSlow => StatusCode::GATEWAY_TIMEOUT,
            Self::Invalid => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Failed => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status(), Json(Refused { error: self })).into_response();
        if self.status() == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from_static("1"));
        }
        response
    }
}

/// The body of an answer that is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Refused {
    /// Why.
    pub(crate) error: Refusal,
}

/// Serves until it is killed. `database` is a connection string.
pub(crate) async fn serve(listen: SocketAddr, database: &str) -> anyhow::Result<()> {
    let config = database.parse().context("the database's connection string")?;
    let recycling = ManagerConfig { recycling_method: RecyclingMethod::Fast };
    let pool = Pool::builder(Manager::from_config(config, NoTls, recycling))
        .max_size(POOL_MAX)
        .wait_timeout(Some(CONNECTION_WITHIN))
        .create_timeout(Some(CONNECTION_WITHIN))
        .runtime(Runtime::Tokio1)
        .build()?;
    let router = Router::new()
        .route("/registrations", post(registrations))
        .route("/livez", get(async || StatusCode::NO_CONTENT))
        .with_state(pool);
    let listener = tokio::net::TcpListener::bind(listen).await.context("cannot listen")?;
    Ok(axum::serve(listener, router).await?)
}

async fn registrations(
    State(pool): State<Pool>,
    headers: HeaderMap,
    body: Result<Json<Registration>, JsonRejection>,
) -> Response {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "an Idempotency-Key is needed").into_response();
    };
    match body {
        Err(rejection) => rejection.into_response(),
        Ok(Json(new)) => match perform(&pool, key, &new).await {
            Ok(Registered::New) => StatusCode::CREATED.into_response(),
            // Done is done: to a queue, a repetition that finds it so has succeeded.
            Ok(Registered::Before) => StatusCode::OK.into_response(),
            Err(refusal) => refusal.into_response(),
        },
    }
}

async fn perform(pool: &Pool, key: &str, new: &Registration) -> Result<Registered, Refusal> {
    let mut client = pool.get().await.map_err(|error| Refusal::of_pool(&error))?;
    let registered = register(&mut client, key, new).await.map_err(|error| Refusal::of(&error))?;
    if registered == Registered::Before {
        // For the report of the example: a real service would count this in a metric.
        let _ = client.execute("INSERT INTO repetitions DEFAULT VALUES", &[]).await;
    }
    Ok(registered)
}

#[cfg(test)]
mod tests {
    use super::Refusal;
    use axum::http::header::RETRY_AFTER;
    use axum::response::IntoResponse as _;
    use tokio_postgres::error::SqlState;

    #[test]
    fn what_is_not_the_registration_s_fault_is_answered_so_that_no_attempt_counts() {
        for code in ["53300", "57P01", "57P02", "57P03", "08006"] {
            let response = Refusal::of_code(&SqlState::from_code(code)).into_response();
            assert_eq!(response.status(), 503, "{code}");
            assert_eq!(response.headers().get(RETRY_AFTER).unwrap(), "1", "{code}");
        }
    }

    #[test]
    fn what_no_repetition_can_help_is_dead_at_once_and_the_rest_is_tried_again() {
        for (code, status) in [("23514", 422), ("22001", 422), ("57014", 504), ("40001", 500), ("XX000", 500)]
        {
            let response = Refusal::of_code(&SqlState::from_code(code)).into_response();
            assert_eq!(response.status(), status, "{code}");
            assert_eq!(response.headers().get(RETRY_AFTER), None, "{code}");
        }
    }
}
