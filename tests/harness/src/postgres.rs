//! A real PostgreSQL server for tests.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::net::TcpSocket;
use tokio::process::{Child, Command};

use crate::eventually;

/// The account that runs it: the server refuses root.
const ACCOUNT: &str = "postgres";
/// The password of its user.
const PASSWORD: &str = "not-so-secret";

/// A server with a database of its own; dropping it kills it and deletes its data.
#[derive(Debug)]
pub struct Postgres {
    programs: PathBuf,
    data: PathBuf,
    port: u16,
    /// Keeps the port while the server does not run: without it another test's server, or a connection, takes it.
    _held: TcpSocket,
    child: Option<Child>,
}

impl Postgres {
    /// Starts a server on a free port, with data in a folder of this name.
    pub async fn start(name: &str) -> Result<Self> {
        let programs = programs()?;
        let data = std::env::temp_dir().join(format!("sluice-postgres-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&data);
        std::fs::create_dir_all(&data)?;
        std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777))?;
        let word = data.join("word");
        std::fs::write(&word, PASSWORD)?;
        let held = hold_free_port()?;
        let port = held.local_addr()?.port();
        let mut server = Self { programs, data, port, _held: held, child: None };
        let folder = server.data.join("db");
        let mut init = server.program("initdb");
        init.args(["--auth=scram-sha-256", "--username=sluice", "--no-sync", "--encoding=UTF8"]);
        init.arg(format!("--pwfile={}", word.display())).arg("-D").arg(&folder);
        let made = init.output().await.context("initdb")?;
        ensure!(made.status.success(), "initdb: {}", String::from_utf8_lossy(&made.stderr));
        server.resume().await?;
        Ok(server)
    }

    /// The URL of its database, with user and password.
    #[must_use]
    pub fn url(&self) -> String {
        format!("postgres://sluice:{PASSWORD}@127.0.0.1:{}/postgres", self.port)
    }

    /// Stops the server at once, as a crash would.
    pub async fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        let pid = child.id().context("it has ended")?;
        // An immediate shutdown: no connection is waited for, and the next start recovers.
        let killed = Command::new("kill").args(["-QUIT", &pid.to_string()]).status().await?;
        ensure!(killed.success(), "kill: {killed}");
        child.wait().await?;
        Ok(())
    }

    /// Starts the server again, with its data.
    pub async fn resume(&mut self) -> Result<()> {
        let mut server = self.program("postgres");
        server.arg("-D").arg(self.data.join("db")).args(["-p", &self.port.to_string()]);
        for setting in
            ["listen_addresses=127.0.0.1", "unix_socket_directories=", "fsync=off", "shared_buffers=64MB"]
        {
            server.args(["-c", setting]);
        }
        let path = self.data.join("log");
        let log = std::fs::File::options().create(true).append(true).open(&path)?;
        server.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log).kill_on_drop(true);
        self.child = Some(server.spawn().context("postgres")?);
        let (ready, port) = (self.programs.join("pg_isready"), self.port.to_string());
        eventually("PostgreSQL accepts connections", Duration::from_secs(60), async || {
            let asked = Command::new(&ready).args(["-q", "-h", "127.0.0.1", "-p", &port]).status().await;
            match asked {
                Ok(status) if status.success() => Ok(()),
                other => {
                    let log = std::fs::read_to_string(&path).unwrap_or_default();
                    Err(format!("{other:?}, its last line {:?}", log.lines().next_back().unwrap_or_default()))
                }
            }
        })
        .await
    }

    /// A program of the server, as the account that runs it.
    fn program(&self, name: &str) -> Command {
        let path = self.programs.join(name);
        if is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid", ACCOUNT, "--regid", ACCOUNT, "--clear-groups"]).arg(path);
            command.current_dir("/");
            command
        } else {
            Command::new(path)
        }
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        drop(self.child.take());
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// A socket that holds a free port of this machine. It does not listen, so a server with the same option can.
fn hold_free_port() -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).context("a free port")?;
    Ok(socket)
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// The folder with the newest server's programs.
fn programs() -> Result<PathBuf> {
    let versions = Path::new("/usr/lib/postgresql");
    let newest = std::fs::read_dir(versions).into_iter().flatten().filter_map(|entry| {
        let path = entry.ok()?.path();
        let version: u32 = path.file_name()?.to_str()?.parse().ok()?;
        path.join("bin/postgres").is_file().then_some((version, path.join("bin")))
    });
    match newest.max() {
        Some((_, path)) => Ok(path),
        None => bail!("no PostgreSQL in {}; tests/harness/packages.sh installs it", versions.display()),
    }
}
