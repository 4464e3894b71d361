//! The people of the walks: each has a credential, a terminal and a browser.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context as _, Result, bail, ensure};
use k8s_openapi::ByteString;
use serde_json::json;
use sluice_harness::{Authority, Cluster, User, World, eventually, patience};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use crate::browser::Browser;

/// The width of the terminals in characters.
const WIDTH: u32 = 120;

/// The most bytes of a picture.
const MOST_BYTES: usize = 100_000;

/// What is expected of a command.
#[derive(Clone, Debug, Default)]
pub struct Typed {
    /// The text that it comes to print; it is typed again until then.
    pub until: Option<String>,
    /// Whether it is refused.
    pub fails: bool,
}

/// The people of a walk.
pub struct People<'a> {
    world: &'a World,
    authority: &'a Authority,
    program: PathBuf,
    /// The folder in which they type.
    folder: PathBuf,
    /// The folder with the programs.
    path: PathBuf,
    /// The kubeconfig of each person.
    known: BTreeMap<String, PathBuf>,
    kubeconfig: PathBuf,
}

impl<'a> People<'a> {
    /// The people of a cluster; the administrator types first.
    pub fn new(
        world: &'a World,
        authority: &'a Authority,
        (program, folder): (&Path, &Path),
    ) -> Result<Self> {
        let path = world.cluster.scratch()?.join("bin");
        std::fs::create_dir_all(&path)?;
        for name in ["sluice", "kubectl-sluice"] {
            symlink(program, path.join(name))?;
        }
        let kubectl = path.join("kubectl");
        let cluster = world.cluster.program().display();
        std::fs::write(&kubectl, format!("#!/bin/sh\nexec {cluster} kubectl \"$@\"\n"))?;
        std::fs::set_permissions(&kubectl, std::fs::Permissions::from_mode(0o755))?;
        let kubeconfig = world.cluster.kubeconfig(User::Admin);
        let (program, folder) = (program.to_owned(), folder.to_owned());
        Ok(Self { world, authority, program, folder, path, known: BTreeMap::new(), kubeconfig })
    }

    /// Lets another person type: `NAME NAMESPACE` with a client certificate, `token ACCOUNT NAMESPACE` with the token of a
    /// service account, or `admin`.
    pub async fn turn_to(&mut self, person: &str) -> Result<()> {
        if let Some(kubeconfig) = self.known.get(person) {
            self.kubeconfig.clone_from(kubeconfig);
            return Ok(());
        }
        let cluster: &Cluster = &self.world.cluster;
        let kubeconfig = match person.split(' ').collect::<Vec<_>>()[..] {
            ["admin"] => cluster.kubeconfig(User::Admin),
            [name, namespace] => cluster.kubeconfig_of(name, &self.authority.credential(name)?, namespace)?,
            ["token", account, namespace] => {
                let named = format!("--namespace={namespace}");
                let token = self.world.kubectl.ok(&["create", "token", account, &named]).await?;
                cluster.kubeconfig_of(account, &format!("token: {}", token.trim()), namespace)?
            }
            _ => bail!("as {person}: no such person"),
        };
        self.known.insert(person.to_owned(), kubeconfig.clone());
        self.kubeconfig = kubeconfig;
        Ok(())
    }

    fn shell(&self, command: &str, kubeconfig: &Path) -> Command {
        let mut shell = Command::new("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        shell
            .args(["-c", command])
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.path.display()))
            .env("KUBECONFIG", kubeconfig)
            .env("KUBECACHEDIR", self.path.with_file_name("cache"))
            .env("NO_COLOR", "1")
            .env("TZ", "UTC")
            .stdin(Stdio::null())
            .kill_on_drop(true);
        shell
    }

    /// Carries out a command of an administrator.
    pub async fn set_up(&self, command: &str) -> Result<()> {
        let admin = self.world.cluster.kubeconfig(User::Admin);
        let output = self.shell(command, &admin).output().await?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "setup {command}: {said}");
        Ok(())
    }

    /// Types a command into a terminal, and returns what it prints.
    pub async fn type_in(&self, command: &str, expected: &Typed) -> Result<String> {
        let script = self.path.with_file_name("typed");
        std::fs::write(&script, format!("stty cols {WIDTH} rows 50; {command}\n"))?;
        let terminal = format!("script --quiet --return --command 'sh {}' /dev/null", script.display());
        let text = expected.until.as_deref().unwrap_or_default();
        eventually(&format!("{command} prints {text:?}"), patience(), async || {
            let output = self.shell(&terminal, &self.kubeconfig).output().await;
            let output = output.map_err(|error| error.to_string())?;
            let printed = plain(&String::from_utf8_lossy(&output.stdout));
            if output.status.success() != expected.fails && printed.contains(text) {
                Ok(printed)
            } else {
                Err(printed)
            }
        })
        .await
    }

    /// A picture of a page of `sluice web` as this person sees it.
    pub async fn picture(&self, path: &str) -> Result<Vec<u8>> {
        let mut command = Command::new(&self.program);
        let all = if path.starts_with("/all/") { "--all-namespaces" } else { "--no-open" };
        command.args(["web", "--no-open"]).args((all != "--no-open").then_some(all));
        command.env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true);
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut line = String::new();
        let output = process.stdout.take().context("its output")?;
        BufReader::new(output).read_line(&mut line).await?;
        let link = line.trim().strip_prefix("The pages are at ").context("a link")?.to_owned();
        let base = link.split("/open").next().unwrap_or_default().to_owned();
        let url = format!("{base}{path}");
        let profile = tempfile::tempdir()?;
        tokio::task::spawn_blocking(move || {
            let mut browser = Browser::start(profile.path())?;
            browser.view(1_280, false)?;
            browser.call("Page.navigate", json!({"url": link}))?;
            browser.until("document.readyState === 'complete' && location.pathname !== 'blank'")?;
            browser.open(&url)?;
            let status = browser.value("document.querySelector('main .problem') === null")?;
            ensure!(status == true, "{url} shows a problem");
            picture(&mut browser)
        })
        .await?
    }
}

/// A picture of the page, as large as fits into [`MOST_BYTES`].
fn picture(browser: &mut Browser) -> Result<Vec<u8>> {
    for percent in [100, 85, 70, 55, 40] {
        let clip =
            json!({"x": 0, "y": 0, "width": 1_280, "height": 720, "scale": f64::from(percent) / 100.0});
        let params = json!({"captureBeyondViewport": false, "clip": clip});
        let ByteString(png) =
            serde_json::from_value(browser.call("Page.captureScreenshot", params)?["data"].take())?;
        if png.len() <= MOST_BYTES {
            return Ok(png);
        }
    }
    bail!("the picture is too large")
}

/// What a terminal shows, without its control codes.
fn plain(text: &str) -> String {
    let (mut plain, mut rest) = (String::new(), text.chars());
    while let Some(letter) = rest.next() {
        match letter {
            '\r' => {}
            '\u{1b}' => {
                let _ = rest.by_ref().find(char::is_ascii_alphabetic);
            }
            letter => plain.push(letter),
        }
    }
    let lines: Vec<&str> = plain.lines().map(str::trim_end).collect();
    lines.iter().map(|line| format!("{line}\n")).collect()
}
