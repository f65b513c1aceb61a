//! The metrics of alerts.
//!
//! Owns their names. Must never say of a rule that is not followed that it does not fire.

use super::Written;
use millpond_core::alert::{Rule, Subject};
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;

/// What is known of alerts at one moment.
#[derive(Debug, Default)]
pub(super) struct AlertNumbers {
    /// Every rule that is followed, where, and whether its alert fires.
    pub(super) followed: Vec<(Subject, Rule, bool)>,
    /// How often each rule's alerts have fired, and cleared.
    pub(super) changes: Vec<(Rule, [u64; 2])>,
}

impl AlertNumbers {
    pub(super) fn encode(&self, encoder: &mut DescriptorEncoder<'_>) -> Written {
        let help = "1 while the alert fires; absent where its rule is switched off";
        let mut metric = encoder.encode_descriptor("millpond_alerts", help, None, MetricType::Gauge)?;
        for (subject, rule, firing) in &self.followed {
            let alert = ("alert", rule.as_str());
            let value = f64::from(u8::from(*firing));
            match subject {
                Subject::Server => metric.encode_family(&[alert])?.encode_gauge(&value)?,
                Subject::Queue(queue) => {
                    metric.encode_family(&[("queue", queue.as_str()), alert])?.encode_gauge(&value)?;
                }
                Subject::Target(target) => {
                    metric.encode_family(&[("target", target.as_str()), alert])?.encode_gauge(&value)?;
                }
            }
        }
        let help = "Alerts that have fired, or cleared, since the start";
        let mut metric =
            encoder.encode_descriptor("millpond_alert_changes", help, None, MetricType::Counter)?;
        for (rule, counts) in &self.changes {
            for (state, count) in ["firing", "cleared"].into_iter().zip(counts) {
                metric
                    .encode_family(&[("alert", rule.as_str()), ("state", state)])?
                    .encode_counter::<NoLabelSet, _, u64>(count, None)?;
            }
        }
        Ok(())
    }
}
