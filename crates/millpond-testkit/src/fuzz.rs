//! Fuzzing on a stable compiler: seeded mutations of a committed corpus, as a plain test.
//!
//! Owns the mutations and the corpora's place, `fuzz/corpus/<target>` at the root of the repository. Must never know
//! what a target does with the bytes: it calls a check that panics when something is wrong.
//!
//! A test run tries every input of the corpus and a fixed number of mutations that are the same every time. With
//! `MILLPOND_FUZZ_SECONDS` set it goes on for so long with `MILLPOND_FUZZ_SEED` (`cargo xtask fuzz` sets both) and adds
//! what fails to the corpus: from then on every test run tries it.

use fastrand::Rng;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest input that is made.
const BYTES_MAX: usize = 64 * 1024;
/// Most changes made to one input.
const CHANGES_MAX: u32 = 6;
/// Numbers at which lengths, counts and signs break.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0x7F,
    0x80,
    0xFF,
    0x7FFF,
    0xFFFF,
    0x7FFF_FFFF,
    0x8000_0000,
    0xFFFF_FFFE,
    0xFFFF_FFFF,
    0x7FFF_FFFF_FFFF_FFFF,
    0xFFFF_FFFF_FFFF_FFFF,
];

/// Calls `check` with every input of `target`'s corpus, and with `tries` mutations of them, or with as many as there is
/// time for. `words` are pieces of the target's language that are put in here and there.
///
/// # Panics
/// If `check` panics; the message names the input. If the corpus is empty.
pub fn fuzz(target: &str, tries: u32, words: &[&str], check: &mut dyn FnMut(&[u8])) {
    let directory = corpus(target);
    let inputs = inputs(&directory);
    assert!(!inputs.is_empty(), "no corpus in {}", directory.display());
    for (path, input) in &inputs {
        run(check, input, |_| format!("the input {}", path.display()));
    }
    let until = seconds("MILLPOND_FUZZ_SECONDS").map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let seed = seconds("MILLPOND_FUZZ_SEED").unwrap_or(1);
    let mut chance = Rng::with_seed(seed);
    let inputs: Vec<Vec<u8>> = inputs.into_iter().map(|(_, input)| input).collect();
    let mut done = 0;
    while until.map_or(done < tries, |until| Instant::now() < until) {
        done += 1;
        let input = mutated(&inputs, words, &mut chance);
        run(check, &input, |input| match until {
            Some(_) => format!("the input that is now {}", keep(&directory, input).display()),
            None => format!("try {done} with seed {seed}: {:?}", String::from_utf8_lossy(input)),
        });
    }
}

/// Where a target's inputs are kept.
pub fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn seconds(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn inputs(directory: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let entries = fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok);
    let mut inputs: Vec<_> =
        entries.filter_map(|entry| Some((entry.path(), fs::read(entry.path()).ok()?))).collect();
    inputs.sort();
    inputs
}

fn run(check: &mut dyn FnMut(&[u8]), input: &[u8], name: impl FnOnce(&[u8]) -> String) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| check(input))) {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        match text {
            Some(text) => panic!("{}: {text}", name(input)),
            None => resume_unwind(panic),
        }
    }
}

/// Adds an input to the corpus, under a name that follows from its bytes.
fn keep(directory: &Path, input: &[u8]) -> PathBuf {
    // FNV-1a: a name, nothing more.
    let hash = input.iter().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let path = directory.join(format!("found-{hash:016x}"));
    fs::write(&path, input).unwrap_or_else(|error| panic!("cannot write {}: {error}", path.display()));
    path
}

fn mutated(inputs: &[Vec<u8>], words: &[&str], chance: &mut Rng) -> Vec<u8> {
    let mut input = inputs[chance.usize(..inputs.len())].clone();
    for _ in 0..chance.u32(1..=CHANGES_MAX) {
        change(&mut input, inputs, words, chance);
    }
    input.truncate(BYTES_MAX);
    input
}

fn change(input: &mut Vec<u8>, inputs: &[Vec<u8>], words: &[&str], chance: &mut Rng) {
    let at = chance.usize(..=input.len());
    let length = chance.usize(..=(input.len() - at).min(64));
    match chance.u32(..10) {
        0 if at < input.len() => input[at] ^= 1 << chance.u32(..8),
        1 if at < input.len() => input[at] = chance.u8(..),
        2 => input.truncate(at),
        3 => drop(input.drain(at..at + length)),
        4 => {
            let piece = input[at..at + length].to_vec();
            let to = chance.usize(..=input.len());
            input.splice(to..to, piece);
        }
        5 => {
            let other = &inputs[chance.usize(..inputs.len())];
            let from = chance.usize(..=other.len());
            input.truncate(at);
            input.extend_from_slice(&other[from..]);
        }
        6 => {
            let bytes = number(input.len(), chance);
            overwrite(&mut input[at..], &bytes);
        }
        7 => {
            let bytes: Vec<u8> = (0..chance.usize(1..16)).map(|_| chance.u8(..)).collect();
            input.splice(at..at, bytes);
        }
        8 if !words.is_empty() => {
            let word = words[chance.usize(..words.len())].as_bytes();
            input.splice(at..at + length.min(word.len()), word.iter().copied());
        }
        _ => {
            let digits = number(0, chance).iter().take(2).map(|byte| b'0' + byte % 10).collect::<Vec<_>>();
            input.splice(at..at, digits);
        }
    }
}

/// A number of 1, 2, 4 or 8 bytes, in either order, that a length field would not like.
fn number(length: usize, chance: &mut Rng) -> Vec<u8> {
    let value = match chance.usize(..NUMBERS.len() + 2) {
        at if at < NUMBERS.len() => NUMBERS[at],
        at => (length as u64).wrapping_add((at - NUMBERS.len()) as u64),
    };
    let width = 1 << chance.u32(..4);
    if chance.bool() {
        value.to_le_bytes()[..width].to_vec()
    } else {
        value.to_be_bytes()[8 - width..].to_vec()
    }
}

fn overwrite(input: &mut [u8], bytes: &[u8]) {
    for (place, byte) in input.iter_mut().zip(bytes) {
        *place = *byte;
    }
}

#[cfg(test)]
mod tests {
    use super::mutated;
    use fastrand::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn mutations_follow_from_the_seed_and_differ_from_each_other() {
        let inputs = vec![b"{\"a\": 1}".to_vec(), vec![0; 300], Vec::new()];
        let make = |seed| {
            let mut chance = Rng::with_seed(seed);
            (0..1_000).map(|_| mutated(&inputs, &["null", "[["], &mut chance)).collect::<Vec<_>>()
        };
        assert_eq!(make(1), make(1));
        let all = make(2);
        assert!(all.iter().collect::<BTreeSet<_>>().len() > 800);
        assert!(all.iter().any(|input| input.windows(2).any(|word| word == b"[[")));
        assert!(all.iter().any(|input| input.windows(4).any(|word| word == [0xFF; 4])));
    }
}
