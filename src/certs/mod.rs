//! The webhook's certificate: made by Sluice itself, or read from files that another tool renews.
//!
//! `certs/README.md` says what is kept where, and in which order it is replaced.

mod announce;
mod authority;
mod files;
mod own;
mod store;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use axum_server::tls_rustls::RustlsConfig;
use kube::Client;
use thiserror::Error;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// No call to the API server takes longer.
const DEADLINE: Duration = Duration::from_secs(10);

/// How often to look whether this replica leads.
const LOOK: Duration = Duration::from_millis(200);

/// Where the webhook's certificate comes from and where the webhook is reached.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Outside of a cluster: the URL the API server reaches the webhook at, e.g. <https://127.0.0.1:9443>.
    /// Without it the webhook configurations keep the address they have (the Service)
    #[arg(long, value_name = "URL", value_parser = https_url)]
    pub webhook_url: Option<Uri>,
    /// Serve this certificate (PEM), re-read when it changes, instead of one of Sluice's own
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// The key of --tls-cert-file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// How long Sluice's own serving certificate lives; it is renewed after two thirds of that
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = lifetime)]
    pub cert_lifetime: Duration,
    /// How long Sluice's own certificate authority lives; it is renewed after two thirds of that
    #[arg(long, value_name = "DURATION", default_value = "43800h", value_parser = lifetime)]
    pub ca_lifetime: Duration,
}

fn https_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("{error}"))?;
    if url.scheme_str() != Some("https") || url.host().is_none() || url.query().is_some() {
        return Err("must look like https://host:port".to_owned());
    }
    Ok(url)
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = crate::api::values::duration(text)?;
    // Whole seconds are the finest step of a certificate, and a renewal needs some of them.
    if lifetime < Duration::from_secs(6) { Err("must be at least 6s".to_owned()) } else { Ok(lifetime) }
}

/// Why there is no certificate, or why it could not be renewed.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("asking the API server: {0}")]
    Api(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Silent,
    /// A certificate could not be made.
    #[error("making a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate and its key cannot be served.
    #[error("loading the certificate: {0}")]
    Load(#[source] std::io::Error),
    /// A file cannot be read.
    #[error("reading {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// An object could not be written down.
    #[error("writing the certificates down: {0}")]
    Secret(String),
}

/// A certificate that is served and kept fresh.
#[derive(Debug)]
pub struct Certificates {
    /// What the HTTPS listener serves; it changes under the listener's hands.
    pub tls: RustlsConfig,
    /// Keeps it fresh until the token is cancelled; it does not end before.
    pub task: JoinHandle<()>,
}

impl Certificates {
    /// Loads or makes the certificate, and keeps it and the webhook configurations true from then on.
    /// Waits, trying again, for as long as the API server cannot be asked.
    ///
    /// `leads` says whether this replica leads now. The URL, which each replica has its own of, is the
    /// leader's; the rest is the same for all, and all of them keep it.
    ///
    /// # Errors
    /// When the certificate files cannot be loaded.
    pub async fn start(
        client: Client,
        namespace: &str,
        options: Options,
        leads: impl Fn() -> bool + Send + Sync + 'static,
        token: CancellationToken,
    ) -> Result<Self, Error> {
        let address = Address { url: options.webhook_url.as_ref().map(base), leads: Box::new(leads) };
        match (&options.tls_cert_file, &options.tls_key_file) {
            (Some(certificate), Some(key)) => {
                let files = files::Files { certificate: certificate.clone(), key: key.clone() };
                files::start(client, files, address, token).await
            }
            _ => own::start(client, namespace, &options, address, token).await,
        }
    }
}

/// Where this replica's webhook is reached, if not by its Service, and whether it is the one to call.
struct Address {
    url: Option<String>,
    leads: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Address {
    /// The URL to announce now.
    fn to_announce(&self) -> Option<String> {
        self.url.clone().filter(|_| (self.leads)())
    }

    /// Waits until the URL to announce is another than `last`; for ever where there is none.
    async fn changed(&self, last: Option<&str>) {
        if self.url.is_none() {
            return std::future::pending().await;
        }
        while self.to_announce().as_deref() == last {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// A call to the API server with a deadline.
async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    tokio::time::timeout(DEADLINE, call).await.map_err(|_| Error::Silent)?.map_err(Error::Api)
}

/// The announced form of `--webhook-url`.
fn base(url: &Uri) -> String {
    url.to_string().trim_end_matches('/').to_owned()
}
