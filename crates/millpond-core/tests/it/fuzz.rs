//! Ids, receipts and tokens that nobody gave out.

use millpond_core::identity::{Keys, MessageId, Receipt, Seq};
use millpond_testkit::fuzz::fuzz;

#[test]
fn identity() {
    let keys = Keys::new(&[7; 32]);
    fuzz("identity", 30_000, &["-", "%", "=", "é"], &mut |input| {
        let text = String::from_utf8_lossy(input);
        // Whatever is accepted is exactly what was given out.
        if let Ok(receipt) = keys.open_receipt(&text) {
            assert_eq!(keys.seal(receipt), text);
        }
        if let Ok(id) = text.parse::<MessageId>()
            && let Ok(seq) = keys.open_id(id)
        {
            assert_eq!(keys.id(seq), id);
        }
        for seq in [0, 1, 77].map(Seq) {
            assert_eq!(keys.token_fits(seq, &text), keys.token(seq) == text);
        }
    });
}

#[test]
#[ignore = "writes into the repository, when the form of an id changes"]
fn write_the_corpus() {
    let keys = Keys::new(&[7; 32]);
    let receipt = Receipt { seq: Seq(77), epoch: 3, delivery: 2 };
    let texts = [
        ("receipt", keys.seal(receipt)),
        ("id", keys.id(Seq(77)).to_string()),
        ("token", keys.token(Seq(77))),
    ];
    let directory = millpond_testkit::fuzz::corpus("identity");
    std::fs::create_dir_all(&directory).unwrap();
    for (name, text) in texts {
        std::fs::write(directory.join(name), text).unwrap();
    }
}
