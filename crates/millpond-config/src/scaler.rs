//! `[scaler]`: where autoscalers ask over gRPC.
//!
//! Owns its keys. Must never open a door by default.

use crate::address;
use crate::configuration::check_exposure;
use crate::diagnostic::Report;
use crate::keys;
use crate::section::Section;
use std::net::SocketAddr;

/// Where autoscalers ask: KEDA's external scaler over gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scaler {
    /// Where it listens; see [`check_exposure`].
    pub listen: SocketAddr,
}

/// Reads `[scaler]`; without an address nobody is let in.
pub(crate) fn scaler(report: &mut Report<'_>, top: &Section<'_>, server: SocketAddr) -> Option<Scaler> {
    let section = top.section(report, "scaler")?;
    section.check_keys(report, &keys::SCALER);
    let text = section.text(report, "listen", "an address in quotes such as \"127.0.0.1:8090\"")?;
    let listen = match address::parse_listen(text) {
        Ok(listen) => listen,
        Err(error) => {
            section.wrong(report, "listen", error.problem, error.advice);
            return None;
        }
    };
    if listen == server && listen.port() != 0 {
        let help = "take another port, such as 8090".to_owned();
        section.wrong(report, "listen", "is the address of the server itself".to_owned(), help);
    } else if check_exposure(listen, false).is_err() {
        let problem = "other machines can reach this address, and this version asks nobody who they are";
        let help = "start with --insecure if the network is trusted, or listen on 127.0.0.1 or [::1]";
        report.warning(
            section.locate("listen"),
            &section.path_of("listen"),
            problem.to_owned(),
            help.to_owned(),
        );
    }
    Some(Scaler { listen })
}

#[cfg(test)]
mod tests {
    use super::Scaler;
    use crate::{Loaded, parse};

    fn scaler(text: &str) -> (Option<Scaler>, usize) {
        let Loaded { configuration, warnings } = parse(text, "millpond.toml").unwrap();
        (configuration.scaler, warnings.len())
    }

    #[test]
    fn there_is_no_scaler_unless_it_has_an_address() {
        assert_eq!(scaler(""), (None, 0));
        assert_eq!(scaler("[scaler]"), (None, 0));
        let listens = |text: &str| Some(Scaler { listen: text.parse().unwrap() });
        assert_eq!(scaler("[scaler]\nlisten = '127.0.0.1:8090'"), (listens("127.0.0.1:8090"), 0));
        assert_eq!(scaler("[scaler]\nlisten = '0.0.0.0:8090'"), (listens("0.0.0.0:8090"), 1), "a warning");
    }

    #[test]
    fn what_is_wrong_with_it_is_told_with_what_to_do() {
        for (text, told) in [
            ("[scaler]\nlisten = 8090", "scaler.listen"),
            ("[scaler]\nlisten = '8090'", "write \"127.0.0.1:8090\""),
            ("[scaler]\nlistn = '127.0.0.1:8090'", "did you mean `listen`?"),
            ("[scaler]\nlisten = '127.0.0.1:8080'", "the server itself"),
        ] {
            let error = parse(text, "millpond.toml").unwrap_err().to_string();
            assert!(error.contains(told), "{text}: {error}");
        }
    }
}
