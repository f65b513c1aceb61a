//! What a message, a hand-out and a reader's permission are called outside.
//!
//! Owns message numbers and the sealed forms of ids, receipts and status tokens. A sealed form carries a MAC
//! (BLAKE3 in keyed mode, one derived key per purpose), so it needs no index and cannot be guessed into
//! existence. Must never compare a MAC in variable time.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use std::fmt;
use subtle::ConstantTimeEq as _;

/// A message's number: dense, in the order of acceptance, never used twice for acknowledged messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Seq(pub u64);

/// Largest number that fits an id: 48 bits, enough for 100,000 messages/s over 89 years.
pub const SEQ_MAX: u64 = (1 << 48) - 1;

/// A message's public id, printed as a UUID (version 8). It is no secret.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(uuid::Uuid);

impl fmt::Display for MessageId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::str::FromStr for MessageId {
    type Err = IdentityError;

    /// Accepts the hyphenated form only: one message has one spelling, apart from the case of its letters.
    fn from_str(text: &str) -> Result<Self, IdentityError> {
        if text.len() != 36 {
            return Err(IdentityError::Malformed);
        }
        uuid::Uuid::try_parse(text).map(Self).map_err(|_| IdentityError::Malformed)
    }
}

/// One hand-out of one message: proof of the right to settle it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Receipt {
    /// The message.
    pub seq: Seq,
    /// The boot of the engine that handed it out.
    pub epoch: u32,
    /// Which hand-out of the message this is, from 1.
    pub delivery: u32,
}

/// Why a sealed form is not ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// It has not the shape.
    #[error("it does not have the right form")]
    Malformed,
    /// It has the shape, but this server never issued it.
    #[error("it was not issued by this server")]
    NotIssued,
}

/// The keys that seal and open ids, receipts and tokens. Made from one secret per data directory.
#[derive(Clone)]
pub struct Keys {
    id: [u8; 32],
    receipt: [u8; 32],
    token: [u8; 32],
    dedup: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Keys(secret)")
    }
}

fn mac(key: &[u8; 32], parts: &[&[u8]]) -> [u8; 16] {
    let mut hasher = blake3::Hasher::new_keyed(key);
    for part in parts {
        hasher.update(part);
    }
    let mut out = [0; 16];
    out.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    out
}

impl Keys {
    /// Derives one key per purpose from `secret`.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self {
            id: blake3::derive_key("millpond 2026 message id", secret),
            receipt: blake3::derive_key("millpond 2026 receipt", secret),
            token: blake3::derive_key("millpond 2026 status token", secret),
            dedup: blake3::derive_key("millpond 2026 idempotency key", secret),
        }
    }

    /// The public id of `seq`: 48 bits of number, 74 bits of MAC.
    ///
    /// # Panics
    /// Beyond [`SEQ_MAX`].
    pub fn id(&self, seq: Seq) -> MessageId {
        assert!(seq.0 <= SEQ_MAX, "message numbers are exhausted");
        let number = seq.0.to_be_bytes();
        let mut bytes = [0; 16];
        bytes[..6].copy_from_slice(&number[2..]);
        bytes[6..].copy_from_slice(&mac(&self.id, &[&number])[..10]);
        MessageId(uuid::Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The number behind `id`, if this server issued it.
    pub fn open_id(&self, id: MessageId) -> Result<Seq, IdentityError> {
        let mut number = [0; 8];
        number[2..].copy_from_slice(&id.0.as_bytes()[..6]);
        let seq = Seq(u64::from_be_bytes(number));
        let issued = self.id(seq).0.as_bytes().ct_eq(id.0.as_bytes());
        if bool::from(issued) { Ok(seq) } else { Err(IdentityError::NotIssued) }
    }

    /// The secret that lets its bearer read the status of `seq`.
    pub fn token(&self, seq: Seq) -> String {
        URL_SAFE_NO_PAD.encode(mac(&self.token, &[&seq.0.to_be_bytes()]))
    }

    /// Whether `token` is the one of `seq`, in constant time.
    pub fn token_fits(&self, seq: Seq, token: &str) -> bool {
        self.token(seq).as_bytes().ct_eq(token.as_bytes()).into()
    }

    /// The sealed form of `receipt`: 32 bytes in base64url.
    pub fn seal(&self, receipt: Receipt) -> String {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&receipt.seq.0.to_be_bytes());
        bytes[8..12].copy_from_slice(&receipt.epoch.to_be_bytes());
        bytes[12..16].copy_from_slice(&receipt.delivery.to_be_bytes());
        let seal = mac(&self.receipt, &[&bytes[..16]]);
        bytes[16..].copy_from_slice(&seal);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Opens a sealed receipt.
    pub fn open_receipt(&self, text: &str) -> Result<Receipt, IdentityError> {
        let mut bytes = [0; 32];
        let decoded = URL_SAFE_NO_PAD.decode_slice(text, &mut bytes);
        if text.len() != 43 || decoded != Ok(32) {
            return Err(IdentityError::Malformed);
        }
        if !bool::from(mac(&self.receipt, &[&bytes[..16]]).ct_eq(&bytes[16..])) {
            return Err(IdentityError::NotIssued);
        }
        let word = |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Ok(Receipt {
            seq: Seq(u64::from(word(0)) << 32 | u64::from(word(4))),
            epoch: word(8),
            delivery: word(12),
        })
    }

    /// A 128-bit digest of an idempotency key or a payload that an outsider cannot find collisions for.
    pub fn digest(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = blake3::Hasher::new_keyed(&self.dedup);
        for part in parts {
            // The length goes first, so that no two lists of parts digest alike.
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        let mut out = [0; 16];
        out.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
        u128::from_le_bytes(out)
    }
}

#[cfg(test)]
mod tests {
    use super::{IdentityError, Keys, Receipt, Seq};

    fn keys() -> Keys {
        Keys::new(&[7; 32])
    }

    #[test]
    fn an_id_opens_to_its_number_and_to_no_other() {
        for number in [0, 1, 255, 1 << 20, super::SEQ_MAX] {
            let id = keys().id(Seq(number));
            assert_eq!(keys().open_id(id), Ok(Seq(number)));
            assert_eq!(id.to_string().parse(), Ok(id));
        }
    }

    #[test]
    fn a_guessed_or_foreign_id_is_not_issued() {
        let mut text = keys().id(Seq(5)).to_string();
        text.replace_range(35..36, if text.ends_with('0') { "1" } else { "0" });
        assert_eq!(keys().open_id(text.parse().unwrap()), Err(IdentityError::NotIssued));
        let foreign = Keys::new(&[8; 32]).id(Seq(5));
        assert_eq!(keys().open_id(foreign), Err(IdentityError::NotIssued));
    }

    #[test]
    fn a_receipt_survives_sealing_and_no_changed_bit() {
        let receipt = Receipt { seq: Seq(1 << 40), epoch: 3, delivery: 9 };
        let sealed = keys().seal(receipt);
        assert_eq!(keys().open_receipt(&sealed), Ok(receipt));
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            let other = if &sealed[at..=at] == "A" { "B" } else { "A" };
            changed.replace_range(at..=at, other);
            assert!(keys().open_receipt(&changed).is_err(), "character {at}");
        }
        for bad in ["", "x", &"A".repeat(43), &"é".repeat(22), &"A".repeat(500)] {
            assert!(keys().open_receipt(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_token_fits_its_message_only() {
        let token = keys().token(Seq(1));
        assert!(keys().token_fits(Seq(1), &token));
        assert!(!keys().token_fits(Seq(2), &token));
        assert!(!keys().token_fits(Seq(1), ""));
    }
}
