//! `sluice web`: serves the pages, and opens them in the browser.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::Context as _;
use kube::{Client, Config};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::cluster::{self, Cluster};
use super::{Invalid, print};
use crate::client::Scope;
use crate::options::AcceleratorOptions;
use crate::web::{self, Access, Link, Login, Settings};

/// Options of `sluice web`.
#[derive(Clone, Debug, clap::Args)]
#[group(skip)]
pub struct Options {
    /// Cluster, user and namespace of the first page.
    #[command(flatten)]
    cluster: cluster::Options,
    /// Port on this computer; 0 takes a free one.
    #[arg(long, value_name = "PORT", default_value_t = 0)]
    port: u16,
    /// Print the link without opening it.
    #[arg(long)]
    no_open: bool,
    /// Ask with the token that each request carries as `Authorization: Bearer`, instead of as the user of the kubeconfig.
    /// For a page in the cluster, behind a proxy where users log in.
    #[arg(long, requires = "host")]
    forward_token: bool,
    /// Name under which browsers reach the page, with its port if that is not the usual one; can be repeated. With
    /// --forward-token.
    #[arg(long, value_name = "HOST", requires = "forward_token")]
    host: Vec<String>,
    /// Listen address with --forward-token.
    #[arg(long, value_name = "ADDRESS", default_value = "0.0.0.0:8080", requires = "forward_token")]
    address: SocketAddr,
    /// URL of the API server with --forward-token; by default that of the cluster in which the page runs.
    #[arg(long, value_name = "URL", requires = "forward_token")]
    server: Option<String>,
    /// File with the certificates of the API server's authority, with --forward-token.
    #[arg(long, value_name = "FILE", requires = "forward_token")]
    certificate_authority: Option<PathBuf>,
    /// Resources that count as GPUs.
    #[command(flatten)]
    accelerators: AcceleratorOptions,
}

/// Serves the pages until it is stopped.
///
/// # Errors
/// When there is no usable kubeconfig, or no port to listen on.
pub fn run(options: &Options) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime
        .block_on(async { if options.forward_token { forward(options).await } else { local(options).await } })
}

/// Serves the user of the kubeconfig, on this computer alone.
async fn local(options: &Options) -> anyhow::Result<()> {
    let cluster = Cluster::connect(&options.cluster).await?;
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), options.port);
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|error| Invalid(format!("--port {}: {error}", options.port)))?;
    let port = listener.local_addr()?.port();
    let (link, token) = Link::new(port).ok().context("the system has no random numbers")?;
    let url = format!("http://127.0.0.1:{port}/open/{token}");
    let hosts = ["127.0.0.1", "localhost", "[::1]"].map(|host| format!("{host}:{port}")).into();
    let scope = if cluster.all { Scope::Cluster } else { Scope::Namespace(cluster.namespace.clone()) };
    let settings = Settings {
        client: cluster.client(),
        access: Access { hosts, login: Login::Link(link) },
        first: Some(scope),
        cluster: options.cluster.context_name().unwrap_or_default(),
        accelerators: options.accelerators.accelerators(),
    };
    print::text(&format!("The pages are at {url}\nThe link works once. Ctrl-C ends the pages.\n"))?;
    let file = if options.no_open { None } else { Redirect::open(&url) };
    serve(listener, settings).await;
    drop(file);
    Ok(())
}

/// Serves users by the tokens of their requests.
async fn forward(options: &Options) -> anyhow::Result<()> {
    let server = match &options.server {
        Some(server) => server.clone(),
        None => in_cluster().ok_or_else(|| Invalid("--server is needed outside of a cluster".to_owned()))?,
    };
    let mut config =
        Config::new(server.parse().map_err(|error| Invalid(format!("--server {server}: {error}")))?);
    if !matches!(config.cluster_url.scheme_str(), Some("http" | "https")) {
        return Err(Invalid(format!("--server {server}: not a URL such as https://10.0.0.1:6443")).into());
    }
    if let Some(file) = &options.certificate_authority {
        let wrong = |error: &dyn std::fmt::Display| {
            Invalid(format!("--certificate-authority {}: {error}", file.display()))
        };
        let pem = std::fs::read(file).map_err(|error| wrong(&error))?;
        let certificates = certificates(&pem);
        if certificates.is_empty() {
            return Err(wrong(&"it has no certificate").into());
        }
        config.root_cert = Some(certificates);
    }
    let config = cluster::bounded(config);
    let settings = Settings {
        client: Client::try_from(config).context("cannot set up the connection to the cluster")?,
        access: Access { hosts: options.host.clone(), login: Login::Forwarded },
        first: options.cluster.namespace().map(|namespace| Scope::Namespace(namespace.to_owned())),
        cluster: String::new(),
        accelerators: options.accelerators.accelerators(),
    };
    let listener = TcpListener::bind(options.address).await;
    let listener = listener.map_err(|error| Invalid(format!("--address {}: {error}", options.address)))?;
    print::text(&format!("The pages are at {}\n", listener.local_addr()?))?;
    serve(listener, settings).await;
    Ok(())
}

/// The API server of the cluster in which this process runs.
fn in_cluster() -> Option<String> {
    let value = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let (host, port) = (value("KUBERNETES_SERVICE_HOST")?, value("KUBERNETES_SERVICE_PORT")?);
    Some(if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    })
}

/// The certificates in a PEM file, as DER.
fn certificates(pem: &[u8]) -> Vec<Vec<u8>> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::pem_slice_iter(pem).filter_map(|found| Some(found.ok()?.to_vec())).collect()
}

async fn serve(listener: TcpListener, settings: Settings) {
    use tokio::signal::unix::{SignalKind, signal};
    let stop = CancellationToken::new();
    let on_signal = stop.clone();
    tokio::spawn(async move {
        let terminate = async {
            match signal(SignalKind::terminate()) {
                Ok(mut signals) => drop(signals.recv().await),
                Err(_) => std::future::pending().await,
            }
        };
        tokio::select! {
            () = terminate => {}
            _ = tokio::signal::ctrl_c() => {}
        }
        on_signal.cancel();
    });
    web::serve(listener, settings, stop).await;
}

/// A file that leads the browser to the link. Other users of the computer see the arguments of every process, so the link
/// must not be among them.
struct Redirect(PathBuf);

impl Redirect {
    /// Opens the link in the browser. `None` if there is none: the link has been printed.
    fn open(url: &str) -> Option<Self> {
        let folder = std::env::var_os("XDG_RUNTIME_DIR").map_or_else(std::env::temp_dir, PathBuf::from);
        let path = folder.join(format!("sluice-web-{}.html", std::process::id()));
        // Not over a file that is there, nor through a link.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path).ok()?;
        let redirect = Self(path);
        write(&mut file, url).ok()?;
        let program = if cfg!(target_os = "macos") { "open" } else { "xdg-open" };
        browse(program, &redirect.0).then_some(redirect)
    }
}

fn write(file: &mut File, url: &str) -> std::io::Result<()> {
    writeln!(
        file,
        "<!DOCTYPE html><meta http-equiv=\"refresh\" content=\"0; url={url}\"><a href=\"{url}\">Go on to Sluice</a>"
    )
}

fn browse(program: &str, file: &Path) -> bool {
    let mut command = Command::new(program);
    command.arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().is_ok()
}

impl Drop for Redirect {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}
