//! A PostgreSQL of our own in a temporary directory, reached over a Unix socket only.
//!
//! Owns its processes and its files, and removes both. Must never touch a database that was there before.

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, getuid, kill_process};
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::{Client, Config, NoTls};

/// Where Debian and its kin put it, by version.
const INSTALLED: &str = "/usr/lib/postgresql";
/// Connections that only the superuser gets: PostgreSQL refuses everybody else unless so many stay free …
const RESERVED: u32 = 3;
/// … so that those which this program looks through, as the superuser, must be there on top of them, or the service would
/// get fewer than it is allowed.
const LOOKING: u32 = 5;
/// How long it may take to come up: after a kill it replays its log first.
const START_WITHIN: Duration = Duration::from_mins(1);
/// How long it may take to stop.
const STOP_WITHIN: Duration = Duration::from_secs(10);
/// The role of the service.
const ROLE: &str = "registrar";
/// The database.
const NAME: &str = "enrollment";

/// A running server. Dropping it stops it and removes its files.
pub(crate) struct Database {
    binaries: PathBuf,
    directory: TempDir,
    connections: u32,
    server: Child,
}

/// Where its socket is.
#[derive(Debug, Clone)]
pub(crate) struct Access(PathBuf);

impl Access {
    /// A connection that is none of the service's.
    pub(crate) async fn superuser(&self) -> anyhow::Result<Client> {
        self.connect("postgres", NAME).await
    }

    async fn connect(&self, user: &str, name: &str) -> anyhow::Result<Client> {
        let mut config = Config::new();
        config.host_path(&self.0).user(user).dbname(name).connect_timeout(START_WITHIN);
        let (client, connection) = config.connect(NoTls).await?;
        // What goes wrong shows in the calls.
        tokio::spawn(async move { drop(connection.await) });
        Ok(client)
    }
}

/// The newest PostgreSQL of this machine, or the one in `chosen`.
fn binaries(chosen: Option<&Path>) -> anyhow::Result<PathBuf> {
    let has_both =
        |directory: &PathBuf| ["initdb", "postgres"].iter().all(|binary| directory.join(binary).is_file());
    if let Some(chosen) = chosen {
        let chosen = chosen.to_owned();
        ensure!(has_both(&chosen), "there is no initdb and postgres in {}", chosen.display());
        return Ok(chosen);
    }
    let versions = fs::read_dir(INSTALLED).into_iter().flatten().filter_map(Result::ok);
    let newest = versions
        .filter_map(|entry| {
            Some((entry.file_name().to_str()?.parse::<u32>().ok()?, entry.path().join("bin")))
        })
        .filter(|(_, directory)| has_both(directory))
        .max();
    newest.map(|(_, directory)| directory).context(
        "PostgreSQL is not installed: `apt-get install postgresql`, or examples/enrollment/run --install, which \
         needs no root; or say --postgres DIR, where initdb and postgres are",
    )
}

/// Whom the server runs as, if this is root: PostgreSQL refuses to.
fn unprivileged() -> anyhow::Result<Option<(u32, u32)>> {
    if !getuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").context("cannot read /etc/passwd")?;
    let ids = ["postgres", "nobody"].iter().find_map(|name| ids_of(&users, name));
    Ok(Some(ids.context("neither a user postgres nor nobody: run this as somebody else than root")?))
}

/// User and group of `name` in a file like `/etc/passwd`.
fn ids_of(users: &str, name: &str) -> Option<(u32, u32)> {
    let fields: Vec<&str> = users
        .lines()
        .map(|line| line.split(':').collect())
        .find(|fields: &Vec<_>| fields.first() == Some(&name))?;
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

impl Database {
    /// Makes one that gives the service at most `connections`, and starts it.
    pub(crate) async fn start(connections: u32, chosen: Option<&Path>) -> anyhow::Result<Self> {
        let binaries = binaries(chosen)?;
        let directory = tempfile::Builder::new().prefix("enrollment-pg-").tempdir()?;
        if let Some((user, group)) = unprivileged()? {
            std::os::unix::fs::chown(directory.path(), Some(user), Some(group))?;
        }
        initialise(&binaries, directory.path()).await?;
        let server = launch(&binaries, directory.path(), connections)?;
        let mut database = Self { binaries, directory, connections, server };
        database.answers().await?;
        database.prepare().await?;
        Ok(database)
    }

    /// What the service connects with.
    pub(crate) fn connection_string(&self) -> String {
        format!("host={} user={ROLE} dbname={NAME}", self.directory.path().display())
    }

    /// A connection as the service has them.
    #[cfg(test)]
    pub(crate) async fn registrar(&self) -> anyhow::Result<Client> {
        self.connect(ROLE, NAME).await
    }

    /// A connection that is none of the service's.
    pub(crate) async fn superuser(&self) -> anyhow::Result<Client> {
        self.access().superuser().await
    }

    /// The way to it for somebody who goes on looking while it is killed.
    pub(crate) fn access(&self) -> Access {
        Access(self.directory.path().to_owned())
    }

    async fn connect(&self, user: &str, name: &str) -> anyhow::Result<Client> {
        self.access().connect(user, name).await
    }

    /// Kills it without a word, as the kernel does when memory runs out. Its other processes notice at once.
    pub(crate) async fn kill(&mut self) -> anyhow::Result<()> {
        self.server.kill()?;
        self.gone().await
    }

    /// Starts it again after a kill: it recovers what was committed.
    pub(crate) async fn start_again(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_WITHIN;
        loop {
            self.server = launch(&self.binaries, self.directory.path(), self.connections)?;
            match self.answers().await {
                // The last of the old processes holds the shared memory for a moment.
                Err(_) if Instant::now() < deadline => tokio::time::sleep(Duration::from_millis(100)).await,
                answers => return answers,
            }
        }
    }

    async fn gone(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + STOP_WITHIN;
        while self.server.try_wait()?.is_none() {
            ensure!(Instant::now() < deadline, "PostgreSQL does not end");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Waits until it answers.
    async fn answers(&mut self) -> anyhow::Result<()> {
        let deadline = Instant::now() + START_WITHIN;
        while let Err(error) = self.connect("postgres", "postgres").await {
            if let Some(status) = self.server.try_wait()? {
                let log = fs::read_to_string(log_of(self.directory.path())).unwrap_or_default();
                bail!("PostgreSQL ended ({status}):\n{log}");
            }
            ensure!(Instant::now() < deadline, "PostgreSQL does not answer: {error}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(())
    }

    /// The role with its limit, the database, and the tables as the service's own.
    async fn prepare(&self) -> anyhow::Result<()> {
        let connections = self.connections;
        let anybody = self.connect("postgres", "postgres").await?;
        anybody.batch_execute(&format!("CREATE ROLE {ROLE} LOGIN CONNECTION LIMIT {connections}")).await?;
        // Sooner than its callers give up, so that what they have left does not go on for long.
        anybody.batch_execute(&format!("ALTER ROLE {ROLE} SET statement_timeout = '1s'")).await?;
        anybody.batch_execute(&format!("CREATE DATABASE {NAME} OWNER {ROLE}")).await?;
        let service = self.connect(ROLE, NAME).await?;
        service.batch_execute(include_str!("../schema.sql")).await?;
        service.batch_execute("CREATE TABLE repetitions (at timestamptz NOT NULL DEFAULT now())").await?;
        Ok(())
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // SIGINT: a fast, orderly stop, which frees the shared memory. Then the files can go.
        if let Some(pid) = Pid::from_raw(self.server.id().cast_signed()) {
            let _ = kill_process(pid, Signal::INT);
        }
        let deadline = Instant::now() + STOP_WITHIN;
        while matches!(self.server.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

fn log_of(directory: &Path) -> PathBuf {
    directory.join("postgresql.log")
}

fn command(binaries: &Path, name: &str, directory: &Path) -> anyhow::Result<Command> {
    let log = File::options().create(true).append(true).open(log_of(directory))?;
    let mut command = Command::new(binaries.join(name));
    command.current_dir(directory).arg("-D").arg(directory.join("data"));
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    if let Some((user, group)) = unprivileged()? {
        command.uid(user).gid(group);
    }
    // Its own group: an interrupt of this program's terminal is for this program to pass on.
    command.process_group(0);
    Ok(command)
}

async fn initialise(binaries: &Path, directory: &Path) -> anyhow::Result<()> {
    let mut command = command(binaries, "initdb", directory)?;
    // Trust: the directory is ours alone, and nobody else can reach the socket in it.
    command.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync"]);
    let status =
        tokio::task::spawn_blocking(move || command.status()).await?.context("cannot start initdb")?;
    ensure!(status.success(), "initdb: {}", fs::read_to_string(log_of(directory)).unwrap_or_default());
    Ok(())
}

fn launch(binaries: &Path, directory: &Path, connections: u32) -> anyhow::Result<Child> {
    let mut command = command(binaries, "postgres", directory)?;
    let settings = [
        "listen_addresses=".to_owned(),
        format!("unix_socket_directories={}", directory.display()),
        format!("max_connections={}", connections + RESERVED + LOOKING),
        format!("superuser_reserved_connections={RESERVED}"),
    ];
    command.args(settings.iter().flat_map(|setting| ["-c", setting]));
    command.spawn().context("cannot start postgres")
}

#[cfg(test)]
mod tests {
    use super::{Database, binaries, ids_of};
    use std::path::Path;

    #[test]
    fn user_and_group_are_read_from_the_list_of_users() {
        let users = "root:x:0:0:root:/:/bin/sh\npostgres:x:101:104:PostgreSQL:/:/bin/bash\nbroken:x\n";
        assert_eq!(ids_of(users, "postgres"), Some((101, 104)));
        assert_eq!(ids_of(users, "broken"), None);
        assert_eq!(ids_of(users, "nobody"), None);
    }

    #[tokio::test]
    #[ignore = "needs PostgreSQL"]
    async fn the_service_gets_all_of_its_connections_and_not_one_more_while_others_look() {
        let database = Database::start(3, None).await.unwrap();
        let _looks = (database.superuser().await.unwrap(), database.superuser().await.unwrap());
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(database.registrar().await.unwrap());
        }
        let error = database.registrar().await.unwrap_err();
        assert!(format!("{error:?}").contains("too many connections for role"), "{error:?}");
    }

    #[test]
    fn a_directory_without_postgresql_is_named() {
        let error = binaries(Some(Path::new("/nowhere"))).unwrap_err().to_string();
        assert!(error.contains("/nowhere"), "{error}");
    }
}
