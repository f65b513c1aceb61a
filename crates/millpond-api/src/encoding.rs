//! Bytes in JSON: a plain string where they are UTF-8, base64 where they are not.
//!
//! Owns that one rule, for bodies and results, in both directions. Must never guess: base64 is only what is
//! marked as base64.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// How the text beside it stands for bytes. Absent: the text is the bytes, in UTF-8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    /// RFC 4648 base64 with padding.
    Base64,
}

/// The text is marked as base64 but is not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is not base64: {0}; write RFC 4648 base64 with padding, or leave the encoding out for plain text"
)]
pub struct EncodingError(
    /// What the decoder found, and where.
    pub String,
);

/// The text that stands for `bytes`.
pub fn encode(bytes: &[u8]) -> (String, Option<Encoding>) {
    std::str::from_utf8(bytes)
        .map_or_else(|_| (STANDARD.encode(bytes), Some(Encoding::Base64)), |text| (text.to_owned(), None))
}

/// The bytes that `text` stands for.
pub fn decode(text: String, encoding: Option<Encoding>) -> Result<Bytes, EncodingError> {
    match encoding {
        None => Ok(Bytes::from(text)),
        Some(Encoding::Base64) => {
            STANDARD.decode(text).map(Bytes::from).map_err(|error| EncodingError(error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Encoding, decode, encode};

    #[test]
    fn text_travels_as_itself_and_other_bytes_as_base64() {
        assert_eq!(encode("grüße\0".as_bytes()), ("grüße\0".to_owned(), None));
        assert_eq!(encode(&[0xff, 0xfe]), ("//4=".to_owned(), Some(Encoding::Base64)));
    }

    #[test]
    fn every_encoding_decodes_to_the_same_bytes() {
        for bytes in [&b""[..], b"text", &[0, 159, 146, 150], &[0xff; 100]] {
            let (text, encoding) = encode(bytes);
            assert_eq!(decode(text, encoding).unwrap(), bytes);
        }
    }

    #[test]
    fn what_only_looks_like_base64_stays_text_and_bad_base64_is_refused() {
        assert_eq!(decode("//4=".to_owned(), None).unwrap(), &b"//4="[..]);
        for bad in ["//4", "a b=", "=", "é"] {
            assert!(decode(bad.to_owned(), Some(Encoding::Base64)).is_err(), "{bad}");
        }
    }
}
