//! The configuration of Millpond: parse, defaults, validation, explanation.
//!
//! Owns the TOML file, its units as text (durations, sizes, rates), the JSON shape of a queue's settings, and the
//! checks between settings. Must never start anything, and never ignore a key in silence: what this version does
//! not know or not support is an error that says what to do.
//!
//! ```
//! let text = "
//!     [targets.registrar]
//!     url = 'http://127.0.0.1:9000/registrations'
//!     concurrency = 40
//!     [queues.enrollments]
//!     target = 'registrar'
//!     max_wait = '45m'
//! ";
//! let loaded = millpond_config::parse(text, "millpond.toml")?;
//! assert_eq!(loaded.configuration.queues["enrollments"].max_wait, Some(std::time::Duration::from_secs(2_700)));
//!
//! let error = millpond_config::parse("[queues.enrollments]\nmaxwait = '45m'", "millpond.toml").unwrap_err();
//! assert!(error.to_string().contains("did you mean `max_wait`?"));
//! # Ok::<(), millpond_config::Invalid>(())
//! ```

mod address;
mod alerts;
mod callbacks;
mod check;
mod configuration;
mod cors;
mod diagnostic;
mod files;
mod keys;
mod load;
pub mod quantity;
mod read;
mod reference;
mod route;
mod routes;
mod scaler;
mod schema;
mod secret;
mod section;
pub mod settings_json;
mod template;
mod tls;
mod transport;
mod words;

pub use address::{AddressError, parse_allowed_host, parse_external_url, parse_listen, parse_target_url};
pub use alerts::AlertWebhook;
pub use callbacks::{AllowedHost, CALLBACK_DELAYS, CALLBACK_QUEUE, Callbacks};
pub use check::{Finding, check_queue, check_surroundings};
pub use configuration::{
    BODY_BYTES_MAX, Configuration, ExposureError, PushOutcome, Target, check_exposure, is_reserved_header,
};
pub use cors::Cors;
pub use diagnostic::{Diagnostic, Severity};
pub use keys::nearest;
pub use load::{ConfigurationError, FILE_BYTES_MAX, Invalid, Loaded, load, parse, parse_with};
pub use reference::{reference_markdown, reference_toml};
pub use route::{KeptHeaders, ROUTE_METHODS, Route, RoutePath, RoutePathError, is_own_path, is_traversal};
pub use scaler::Scaler;
pub use schema::{Misfit, SCHEMA_BYTES_MAX, Schema, SchemaError};
pub use secret::{Secret, SigningKey, SigningKeyError};
pub use template::{Part, Source, Template, TemplateError};
pub use tls::{Identity, Tls};
