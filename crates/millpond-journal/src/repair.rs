//! Putting a new log in the place of a damaged one.
//!
//! Owns the files' way: a new log is built in a directory of its own, then the old files go aside and the new ones take
//! their place. Must never delete a file of the old log, never leave a state in which [`open`](crate::open) finds half of
//! each, and may be killed anywhere: [`finish`] goes on where it was.

use crate::format::{FORMAT_FILE, index_number, segment_number, spare_number};
use std::{
    fs::{self, DirBuilder, File},
    io::{self, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

/// While this file exists, old and new files are changing places: it says where the old ones go and how far it is.
pub(crate) const MARKER: &str = "repairing";
/// Where the new log is built, inside the data directory: moving its files is then renaming them.
const WORKSHOP: &str = "repair";
const ASIDE: &str = "damaged-";
const LOCK: &str = "lock";

/// Called before every change of the directory; an error stops there, as a kill would.
type Before<'a> = &'a mut dyn FnMut() -> io::Result<()>;

/// An empty directory in which to build the new log of the data directory `data`, whose lock the caller holds. What an
/// earlier attempt left there is removed.
///
/// # Errors
/// Also [`io::ErrorKind::ResourceBusy`] while an earlier replacement waits for [`finish`].
pub fn workshop(data: &Path) -> io::Result<PathBuf> {
    if data.join(MARKER).exists() {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "an earlier repair has to be finished first",
        ));
    }
    clear_workshop(data)?;
    let workshop = data.join(WORKSHOP);
    DirBuilder::new().mode(0o700).create(&workshop)?;
    Ok(workshop)
}

/// Removes the workshop with everything in it: nothing there is the only copy of anything.
pub fn clear_workshop(data: &Path) -> io::Result<()> {
    match fs::remove_dir_all(data.join(WORKSHOP)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Puts the log in the workshop, whole and synced, in the place of the one in `data`. Returns the directory that the
/// old files are in from now on.
pub fn replace(data: &Path) -> io::Result<PathBuf> {
    replace_stepwise(data, &mut || Ok(()))
}

/// Goes on with a replacement that was interrupted; `None` if there is none.
pub fn finish(data: &Path) -> io::Result<Option<PathBuf>> {
    finish_stepwise(data, &mut || Ok(()))
}

fn replace_stepwise(data: &Path, before: Before<'_>) -> io::Result<PathBuf> {
    let aside =
        (1..=u32::MAX).map(|number| format!("{ASIDE}{number}")).find(|name| !data.join(name).exists());
    let aside = aside.expect("one of four thousand million names is free");
    File::open(data.join(WORKSHOP))?.sync_all()?;
    mark(data, &aside, Phase::Out, before)?;
    let finished = finish_stepwise(data, before)?;
    Ok(finished.unwrap_or_else(|| data.join(aside)))
}

/// What is going on.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The old files go aside.
    Out,
    /// All of them have; the new ones come in.
    In,
}

fn mark(data: &Path, aside: &str, phase: Phase, before: Before<'_>) -> io::Result<()> {
    let word = if phase == Phase::Out { "out" } else { "in" };
    let temporary = data.join(format!("{MARKER}.tmp"));
    before()?;
    let mut file = File::create(&temporary)?;
    writeln!(file, "{aside} {word}")?;
    file.sync_all()?;
    before()?;
    fs::rename(&temporary, data.join(MARKER))?;
    sync(data)
}

fn marked(data: &Path) -> io::Result<Option<(String, Phase)>> {
    let text = match fs::read_to_string(data.join(MARKER)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let parsed = text.trim_end().split_once(' ').and_then(|(aside, word)| {
        let number = aside.strip_prefix(ASIDE)?.parse::<u32>().ok()?;
        let phase = match word {
            "out" => Phase::Out,
            "in" => Phase::In,
            _ => return None,
        };
        Some((format!("{ASIDE}{number}"), phase))
    });
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, format!("the file `{MARKER}` is damaged"));
    parsed.ok_or_else(unreadable).map(Some)
}

fn finish_stepwise(data: &Path, before: Before<'_>) -> io::Result<Option<PathBuf>> {
    let Some((aside, phase)) = marked(data)? else { return Ok(None) };
    let (workshop, aside_path) = (data.join(WORKSHOP), data.join(&aside));
    if phase == Phase::Out {
        if !aside_path.exists() {
            before()?;
            DirBuilder::new().mode(0o700).create(&aside_path)?;
            sync(data)?;
        }
        let new = names(&workshop)?;
        for name in names(data)? {
            if belongs_to_log(&name) || new.contains(&name) {
                before()?;
                fs::rename(data.join(&name), aside_path.join(&name))?;
            }
        }
        sync(&aside_path)?;
        sync(data)?;
        mark(data, &aside, Phase::In, before)?;
    }
    if workshop.exists() {
        for name in names(&workshop)? {
            before()?;
            fs::rename(workshop.join(&name), data.join(&name))?;
        }
        sync(data)?;
        before()?;
        clear_workshop(data)?;
    }
    before()?;
    fs::remove_file(data.join(MARKER))?;
    sync(data)?;
    Ok(Some(aside_path))
}

/// Whether a file is the journal's, and so is replaced with it.
fn belongs_to_log(name: &str) -> bool {
    name == FORMAT_FILE
        || segment_number(name).is_some()
        || index_number(name).is_some()
        || spare_number(name).is_some()
}

/// Files in `directory`, but for the lock.
fn names(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string()
            && entry.file_type()?.is_file()
            && name != LOCK
            && !name.starts_with(MARKER)
        {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::{finish, finish_stepwise, replace_stepwise, workshop};
    use std::collections::BTreeMap;
    use std::fs;
    use std::io;
    use std::path::Path;

    const OLD: [&str; 6] =
        ["format", "00000003.log", "00000003.index", "00000004.log", "00000002.spare", "secret"];
    const NEW: [&str; 5] = ["format", "00000001.log", "00000001.index", "00000003.log", "secret"];

    fn put(directory: &Path, names: &[&str], content: &str) {
        for name in names {
            fs::write(directory.join(name), format!("{content} {name}")).unwrap();
        }
    }

    /// Every file with its content, paths relative to `directory`.
    fn files(directory: &Path) -> BTreeMap<String, String> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            if path.is_dir() {
                files.extend(
                    self::files(&path).into_iter().map(|(below, text)| (format!("{name}/{below}"), text)),
                );
            } else {
                files.insert(name, fs::read_to_string(&path).unwrap());
            }
        }
        files
    }

    #[test]
    fn killed_anywhere_it_comes_to_the_same_end() {
        let expected = |number: u32| {
            let old = OLD.map(|name| (format!("damaged-{number}/{name}"), format!("old {name}")));
            let new = NEW.map(|name| (name.to_owned(), format!("new {name}")));
            let other = ["lock", "notes.txt"].map(|name| (name.to_owned(), format!("other {name}")));
            old.into_iter().chain(new).chain(other).collect::<BTreeMap<_, _>>()
        };
        for kill_at in 0.. {
            let directory = tempfile::tempdir().unwrap();
            let data = directory.path();
            put(data, &OLD, "old");
            put(data, &["lock", "notes.txt"], "other");
            let place = workshop(data).unwrap();
            put(&place, &NEW, "new");
            put(&place, &["lock"], "the workshop's");
            let mut steps = 0;
            let mut countdown = || {
                steps += 1;
                if steps > kill_at { Err(io::Error::other("killed")) } else { Ok(()) }
            };
            let done = replace_stepwise(data, &mut countdown).is_ok();
            let has_begun = data.join("repairing").exists();
            if !done && !has_begun {
                // Nothing has happened to the old files: the next attempt begins anew.
                let old: BTreeMap<_, _> = OLD.iter().map(|name| (*name, format!("old {name}"))).collect();
                assert!(old.iter().all(|(name, text)| files(data).get(*name) == Some(text)));
                continue;
            }
            if !done {
                // Killed again and again, each time after two steps: fewer are no progress, for the marker takes two.
                loop {
                    let mut once = 0;
                    let mut two_steps = || {
                        once += 1;
                        if once > 2 { Err(io::Error::other("killed")) } else { Ok(()) }
                    };
                    if finish_stepwise(data, &mut two_steps).is_ok() {
                        break;
                    }
                }
            }
            assert_eq!(files(data), expected(1), "killed at step {kill_at}");
            assert_eq!(finish(data).unwrap(), None);
            if done {
                assert!(kill_at > 12, "too few steps: {kill_at}");
                return;
            }
        }
    }

    #[test]
    fn a_second_repair_keeps_the_first_ones_files() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        for round in 1..=2 {
            put(data, &OLD, "old");
            put(&workshop(data).unwrap(), &NEW, "new");
            let aside = super::replace(data).unwrap();
            assert_eq!(aside, data.join(format!("damaged-{round}")));
        }
        assert!(data.join("damaged-1/00000003.log").exists() && data.join("damaged-2/00000003.log").exists());
    }

    #[test]
    fn a_workshop_is_not_cleared_while_its_files_are_on_their_way() {
        let directory = tempfile::tempdir().unwrap();
        let data = directory.path();
        put(data, &["repairing"], "damaged-1 out");
        assert_eq!(workshop(data).unwrap_err().kind(), io::ErrorKind::ResourceBusy);
        fs::write(data.join("repairing"), "../elsewhere out").unwrap();
        assert_eq!(finish(data).unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
