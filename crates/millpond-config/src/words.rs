//! The words that stand for a choice, for the file and for the HTTP API alike.
//!
//! Owns their spelling. Must never decide what a choice does.

use millpond_core::settings::{OnExpiry, Order, Overflow, Priority};

/// `overflow`.
pub(crate) const OVERFLOWS: [(&str, Overflow); 3] =
    [("reject", Overflow::Reject), ("block", Overflow::Block), ("drop-oldest", Overflow::DropOldest)];
/// `order`.
pub(crate) const ORDERS: [(&str, Order); 3] =
    [("fifo", Order::Fifo), ("lifo", Order::Lifo), ("adaptive", Order::Adaptive)];
/// `priority`.
pub(crate) const PRIORITIES: [(&str, Priority); 2] =
    [("weighted", Priority::Weighted), ("strict", Priority::Strict)];
/// `on_expiry`.
pub(crate) const EXPIRIES: [(&str, OnExpiry); 2] =
    [("dead-letter", OnExpiry::DeadLetter), ("drop", OnExpiry::Drop)];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn every_word_is_the_one_that_is_written_back() {
        let pairs = [
            OVERFLOWS.map(|(word, choice)| (word, json!(choice))).to_vec(),
            ORDERS.map(|(word, choice)| (word, json!(choice))).to_vec(),
            PRIORITIES.map(|(word, choice)| (word, json!(choice))).to_vec(),
            EXPIRIES.map(|(word, choice)| (word, json!(choice))).to_vec(),
        ];
        for (word, written) in pairs.concat() {
            assert_eq!(written, word);
        }
    }
}
