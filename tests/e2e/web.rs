//! The web page: its viewers see what the API server lets them ask, and nothing of it without a right.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use axum::http::header::{AUTHORIZATION, COOKIE, HOST, ORIGIN, SET_COOKIE};
use axum::http::{HeaderMap, Request};
use kube::Client;
use kube::client::Body;
use sluice_harness::{User, World, eventually, patience};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use crate::support::SLUICE;

/// A running `sluice web`; it ends with this value.
struct Pages {
    _process: Child,
    client: Client,
    /// What its first line says.
    url: String,
}

/// A response.
struct Got {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Pages {
    async fn start(arguments: &[&str], kubeconfig: Option<&Path>) -> Result<Self> {
        let mut command = Command::new(SLUICE);
        command.arg("web").args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).kill_on_drop(true);
        command.env_remove("KUBECONFIG").envs(kubeconfig.map(|path| ("KUBECONFIG", path)));
        let mut process = command.spawn()?;
        let output = process.stdout.take().context("its output")?;
        let mut line = String::new();
        tokio::time::timeout(patience(), BufReader::new(output).read_line(&mut line)).await??;
        let said =
            line.trim().strip_prefix("The pages are at ").with_context(|| format!("it says {line:?}"))?;
        let url = if said.starts_with("http") { said.to_owned() } else { format!("http://{said}") };
        let base = url.split("/open").next().unwrap_or_default();
        let client = Client::try_from(kube::Config::new(base.parse()?))?;
        Ok(Self { _process: process, client, url })
    }

    async fn get(&self, path: &str, headers: &[(axum::http::HeaderName, &str)]) -> Result<Got> {
        let mut request = Request::get(path);
        for (name, value) in headers {
            request = request.header(name, *value);
        }
        self.send(request.body(Body::empty())?).await
    }

    async fn send(&self, request: Request<Body>) -> Result<Got> {
        let response = self.client.send(request).await?;
        let (status, headers) = (response.status().as_u16(), response.headers().clone());
        let text = String::from_utf8_lossy(&response.into_body().collect_bytes().await?).into_owned();
        Ok(Got { status, headers, text })
    }

    /// Waits until a page says this.
    async fn comes_to_say(
        &self,
        path: &str,
        headers: &[(axum::http::HeaderName, &str)],
        text: &str,
    ) -> Result<String> {
        eventually(&format!("{path} says {text:?}"), patience(), async || {
            match self.get(path, headers).await {
                Ok(got) if got.status == 200 && got.text.contains(text) => Ok(got.text),
                Ok(got) => Err(got.text),
                Err(error) => Err(format!("{error:#}")),
            }
        })
        .await
    }
}

/// Job `mine` of namespace a waits for Job `secret-train` of team b. `dora` may view namespace a, as may `robot` with a token.
pub async fn pages(world: &World, dora: &Path, token: &str) -> Result<()> {
    a_laptop_shows_its_user_what_it_may_see(dora).await?;
    a_page_in_the_cluster_forwards_the_token_of_each_viewer(world, token).await
}

/// The pages that a viewer of namespace a may see, with what each says.
const SEEN: [(&str, &str); 7] = [
    ("/ns/a/", "2 of 2"),
    ("/ns/a/queue", "mine"),
    ("/ns/a/plan", "Work of another namespace"),
    ("/ns/a/fairness", "Pool default"),
    ("/ns/a/team/a", "2 guaranteed"),
    ("/ns/a/reports", "the history is off"),
    ("/ns/a/workload/mine", "sluice explain job/mine -n a"),
];

async fn a_laptop_shows_its_user_what_it_may_see(dora: &Path) -> Result<()> {
    let pages = Pages::start(&["--no-open"], Some(dora)).await?;
    ensure!(pages.url.starts_with("http://127.0.0.1:"), "{}", pages.url);
    let link = &pages.url[pages.url.find("/open").context("a link")?..];
    ensure!(pages.get("/ns/a/queue", &[]).await?.status == 403, "no browser is let in without the link");
    let opened = pages.get(link, &[]).await?;
    let cookie = opened.headers.get(SET_COOKIE).context("a cookie")?.to_str()?;
    ensure!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    let cookie = cookie.split(';').next().unwrap_or_default();
    ensure!(pages.get(link, &[]).await?.status == 403, "the link works once");
    let known = [(COOKIE, cookie)];
    for (path, text) in SEEN {
        let page = pages.comes_to_say(path, &known, text).await?;
        ensure!(!page.contains("secret"), "{path} names a workload of another namespace: {page}");
        ensure!(!page.contains("http:") && !page.contains("https:"), "{path} leads to another place");
    }
    let overview = pages.comes_to_say("/ns/a/", &known, "team/b").await?;
    ensure!(overview.contains("2 of 2 GPUs used, b 2"), "the GPUs of team b are counted: {overview}");
    let story = pages.comes_to_say("/ns/a/workload/mine", &known, "sluice hold job/mine -n a").await?;
    ensure!(story.contains("Submitted") && story.contains("NoRoom"), "{story}");
    for (path, text) in [("/ns/b/queue", "dora may not ask about namespace b"), ("/all/", "sluice-manager")] {
        let refused = pages.get(path, &known).await?;
        ensure!(refused.status == 403 && refused.text.contains(text), "{path}: {}", refused.text);
    }
    for elsewhere in [(HOST, "evil.example"), (ORIGIN, "http://evil.example")] {
        let name = elsewhere.0.clone();
        let refused = pages.get("/ns/a/queue", &[known[0].clone(), elsewhere]).await?;
        ensure!(refused.status == 403 && !refused.text.contains("mine"), "{name}: {}", refused.text);
    }
    what_if(&pages, cookie).await
}

async fn what_if(pages: &Pages, cookie: &str) -> Result<()> {
    let origin = pages.url.split("/open").next().unwrap_or_default();
    let job = "kind%3A+Job%0AapiVersion%3A+batch%2Fv1%0Ametadata%3A+%7Bname%3A+asked%7D%0Aspec%3A+%7Btemplate%3A+%7Bspec\
               %3A+%7BrestartPolicy%3A+Never%2C+containers%3A+%5B%7Bname%3A+main%2C+image%3A+x%7D%5D%7D%7D%7D";
    let post = |origin: Option<&str>| {
        let mut request = Request::post("/ns/a/what-if").header(COOKIE, cookie);
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        request.body(Body::from(format!("job={job}").into_bytes()))
    };
    for wrong in [None, Some("http://evil.example")] {
        ensure!(pages.send(post(wrong)?).await?.status == 403, "a form of another page: {wrong:?}");
    }
    let answer = pages.send(post(Some(origin))?).await?;
    ensure!(answer.status == 200 && answer.text.contains("It would be"), "{}", answer.text);
    ensure!(answer.text.contains("Running"), "a Job without GPUs starts at once: {}", answer.text);
    Ok(())
}

async fn a_page_in_the_cluster_forwards_the_token_of_each_viewer(world: &World, token: &str) -> Result<()> {
    let admin = kube::config::Kubeconfig::read_from(world.cluster.kubeconfig(User::Admin))?;
    let cluster = admin.clusters.first().and_then(|named| named.cluster.clone()).context("a cluster")?;
    let server = cluster.server.context("an address")?;
    let authority = world.cluster.scratch()?.join("authority.crt");
    let config =
        kube::Config::from_custom_kubeconfig(admin, &kube::config::KubeConfigOptions::default()).await?;
    let mut pem = String::new();
    for certificate in config.root_cert.unwrap_or_default() {
        let lines = base64(&certificate);
        pem += &format!("-----BEGIN CERTIFICATE-----\n{lines}\n-----END CERTIFICATE-----\n");
    }
    std::fs::write(&authority, pem)?;
    let authority = authority.display().to_string();
    let arguments = [
        "--forward-token",
        "--host=sluice.example.com",
        "--address=127.0.0.1:0",
        "--server",
        &server,
        "--certificate-authority",
        &authority,
    ];
    // It has no kubeconfig, and so no rights of its own.
    let pages = Pages::start(&arguments, None).await?;
    let host = (HOST, "sluice.example.com");
    ensure!(pages.get("/ns/a/queue", std::slice::from_ref(&host)).await?.status == 401, "no token");
    let forged = [host.clone(), (AUTHORIZATION, "Bearer forged")];
    let refused = pages.get("/ns/a/queue", &forged).await?;
    ensure!(refused.status == 401 && !refused.text.contains("mine"), "{}: {}", refused.status, refused.text);
    let bearer = format!("Bearer {}", token.trim());
    let robot = [host, (AUTHORIZATION, bearer.as_str())];
    for (path, text) in SEEN {
        let page = pages.comes_to_say(path, &robot, text).await?;
        ensure!(!page.contains("secret"), "{path} names a workload of another namespace: {page}");
    }
    ensure!(pages.get("/ns/b/queue", &robot).await?.status == 403, "it may not ask there");
    ensure!(pages.get("/ns/a/queue", &robot[1..]).await?.status == 403, "another name of the page");
    Ok(())
}

/// The text of PEM.
fn base64(bytes: &[u8]) -> String {
    let value = serde_json::to_value(k8s_openapi::ByteString(bytes.to_vec())).unwrap_or_default();
    value.as_str().unwrap_or_default().to_owned()
}
