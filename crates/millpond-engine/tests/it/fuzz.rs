//! Records that no engine wrote.

use bytes::Bytes;
use millpond_core::record::Record;
use millpond_engine::codec::{decode, decode_content, encode};
use millpond_engine::survey::{Watch, survey};
use millpond_journal::ReadOnlyDirectory;
use millpond_journal::inspect::InspectedRecord;
use millpond_testkit::fuzz::{corpus, fuzz};
use std::collections::BTreeMap;
use std::path::Path;

#[test]
fn record() {
    fuzz("record", 20_000, &["{}", "null"], &mut |input| {
        if let Ok(record) = decode(input) {
            let mut bytes = Vec::new();
            let head = encode(&record, &mut bytes);
            // Where a content begins is only known with one.
            if !matches!(record, Record::Message { .. }) {
                assert_eq!(decode(&bytes[..head]), Ok(record), "written and read again");
            }
        }
        if let Ok(Some(content)) = decode_content(&Bytes::copy_from_slice(input)) {
            assert!(content.body.len() <= input.len());
        }
    });
}

/// Records of each kind, the longest of a few, from the fixture.
#[derive(Default)]
struct Collect(BTreeMap<String, Vec<u8>>);

impl Watch for Collect {
    fn record(&mut self, record: &InspectedRecord<'_>) {
        let payload = record.payload.unwrap_or(record.head);
        let parts = [("head", record.head), ("whole", payload)];
        // Only a message is more than its head.
        for (part, bytes) in &parts[..if payload.len() > record.head.len() { 2 } else { 1 }] {
            let kept = self.0.entry(format!("kind-{}-{part}", bytes[0])).or_default();
            if bytes.len() > kept.len() {
                *kept = bytes.to_vec();
            }
        }
    }
}

#[test]
#[ignore = "writes into the repository, when a record's form changes"]
fn write_the_corpus() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let current = fixtures.join(format!("format-{}/data", millpond_journal::FORMAT_VERSION));
    let mut collect = Collect::default();
    survey(&ReadOnlyDirectory::open(&current).unwrap(), &mut collect).unwrap();
    let directory = corpus("record");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, bytes) in collect.0 {
        std::fs::write(directory.join(name), bytes).unwrap();
    }
}
