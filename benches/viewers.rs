//! The pages of `sluice web`, asked for as browsers do.

use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};

/// A running `sluice web` for all namespaces, and a browser's right to it.
pub struct Pages {
    process: Child,
    /// Host and port.
    pub host: String,
    /// Name and value of the cookie.
    pub cookie: (String, String),
}

/// An answer of the pages.
#[derive(Clone, Debug)]
pub struct Got {
    /// The status of HTTP.
    pub status: u16,
    /// The length of its body as it was sent.
    pub bytes: usize,
    /// The time until its last byte.
    pub took: Duration,
    head: String,
}

impl Got {
    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines.into_iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim())
    }
}

/// What viewers saw and cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks {
    /// Whole pages and looks for changes.
    pub looks: usize,
    /// Those that brought a new page.
    pub changed: usize,
    /// Those without a page.
    pub failed: usize,
}

impl Pages {
    /// Starts the pages as the user of this kubeconfig.
    pub async fn start(program: &str, kubeconfig: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.args(["web", "--no-open", "-A"]).env("KUBECONFIG", kubeconfig).kill_on_drop(true);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().context("its output")?;
        BufReader::new(output).read_line(&mut line).await?;
        let link = line.trim().strip_prefix("The pages are at http://").context("a link")?;
        let (host, path) = link.split_once('/').context("a path")?;
        let mut pages = Self { process, host: host.to_owned(), cookie: Default::default() };
        let opened = pages.get(&format!("/{path}"), &[]).await?;
        let cookie = opened.header("set-cookie").and_then(|value| value.split(';').next());
        let (name, value) = cookie.and_then(|cookie| cookie.split_once('=')).context("a cookie")?;
        pages.cookie = (name.to_owned(), value.to_owned());
        Ok(pages)
    }

    /// The process of the pages.
    pub fn process(&self) -> Option<u32> {
        self.process.id()
    }

    /// One request, with a connection of its own.
    pub async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Got> {
        let began = Instant::now();
        let mut stream = TcpStream::connect(&self.host).await?;
        let (name, value) = &self.cookie;
        let mut request = format!(
            "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\nAccept-Encoding: gzip\r\nCookie: {name}={value}\r\n",
            self.host
        );
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        stream.write_all((request + "\r\n").as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("a header")?;
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).context("a status")?;
        Ok(Got { status, bytes: answer.len() - end - 4, took: began.elapsed(), head })
    }

    /// So many viewers of these pages look for changes, each as often as the page asks it to.
    pub async fn viewed(self: &Arc<Self>, viewers: u32, paths: &[&str], time: Duration) -> Result<Looks> {
        let end = Instant::now() + time;
        let viewer = |at: u32| {
            let (pages, path) = (Arc::clone(self), paths[at as usize % paths.len()].to_owned());
            tokio::spawn(async move {
                let (mut looks, mut known) = (Looks::default(), String::new());
                // Viewers do not come at once.
                tokio::time::sleep(Duration::from_millis(u64::from(at) * 2_000 / u64::from(viewers))).await;
                while Instant::now() < end {
                    let got = match known.as_str() {
                        "" => pages.get(&path, &[]).await?,
                        known => {
                            pages.get(&path, &[("If-None-Match", known), ("Sluice-Part", "main")]).await?
                        }
                    };
                    looks.looks += 1;
                    looks.changed += usize::from(got.status == 200);
                    looks.failed += usize::from(got.status != 200 && got.status != 304);
                    if let Some(version) = got.header("etag") {
                        version.clone_into(&mut known);
                    }
                    let every = got.header("sluice-every").and_then(|every| every.parse().ok());
                    tokio::time::sleep(Duration::from_millis(every.unwrap_or(2_000))).await;
                }
                anyhow::Ok(looks)
            })
        };
        let mut sum = Looks::default();
        for one in (0..viewers).map(viewer).collect::<Vec<_>>() {
            let Looks { looks, changed, failed } = one.await??;
            sum.looks += looks;
            sum.changed += changed;
            sum.failed += failed;
        }
        ensure!(sum.looks > 0, "no viewer has looked");
        Ok(sum)
    }
}
