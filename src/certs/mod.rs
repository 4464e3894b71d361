//! The webhook's certificate: created by Sluice itself, or read from files that another tool renews.
//!
//! `certs/README.md` describes the Secret and the order of a rotation.

mod address;
mod announce;
mod authority;
mod call;
mod files;
mod own;
pub mod proof;
mod store;

use std::path::PathBuf;
use std::time::Duration;

use axum::http::Uri;
use axum_server::tls_rustls::RustlsConfig;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use self::address::Address;
use self::authority::Lifetimes;
pub use self::call::Error;
use self::proof::Proof;

/// Options of the webhook's certificate and address.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// URL of the webhook for an API server outside the cluster network, e.g. `https://127.0.0.1:9443`.
    /// Without it, the webhook configurations keep their Service reference
    #[arg(long, value_name = "URL", value_parser = https_url)]
    pub webhook_url: Option<Uri>,
    /// Certificate to serve (PEM), reloaded when it changes; by default Sluice creates its own
    #[arg(long, value_name = "FILE", requires = "tls_key_file")]
    pub tls_cert_file: Option<PathBuf>,
    /// Key of --tls-cert-file (PEM)
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub tls_key_file: Option<PathBuf>,
    /// Lifetime of Sluice's own serving certificate; renewed after two thirds of it
    #[arg(long, value_name = "DURATION", default_value = "2160h", value_parser = lifetime)]
    pub cert_lifetime: Duration,
    /// Lifetime of Sluice's own certificate authority; renewed after two thirds of it
    #[arg(long, value_name = "DURATION", default_value = "43800h", value_parser = lifetime)]
    pub ca_lifetime: Duration,
}

fn https_url(text: &str) -> Result<Uri, String> {
    let url: Uri = text.parse().map_err(|error| format!("{error}"))?;
    if url.scheme_str() != Some("https") || url.host().is_none() || url.query().is_some() {
        return Err("must have the form https://host:port".to_owned());
    }
    Ok(url)
}

fn lifetime(text: &str) -> Result<Duration, String> {
    let lifetime = crate::api::values::duration(text)?;
    // Certificates have a resolution of one second, and a renewal takes a few seconds.
    if lifetime < Duration::from_secs(6) { Err("must be at least 6s".to_owned()) } else { Ok(lifetime) }
}

/// A served certificate that is renewed in the background.
#[derive(Debug)]
pub struct Certificates {
    /// The configuration of the HTTPS listener; a renewal replaces its certificate.
    pub tls: RustlsConfig,
    /// The task that renews the certificate until the token is cancelled.
    pub task: JoinHandle<()>,
}

impl Certificates {
    /// Loads or creates the certificate, then keeps it and the webhook configurations up to date. Retries while
    /// the API server cannot be reached.
    ///
    /// `leads` returns whether this replica leads. Each replica has its own URL, and only the leader announces it;
    /// the rest is the same on every replica, and each one writes it. `proof` is announced where the configuration asks
    /// for it.
    ///
    /// # Errors
    /// If the certificate files cannot be loaded.
    pub async fn start(
        client: Client,
        namespace: &str,
        options: Options,
        (leads, proof): (impl Fn() -> bool + Send + Sync + 'static, Proof),
        token: CancellationToken,
    ) -> Result<Self, Error> {
        let address = (Address::new(options.webhook_url.as_ref(), leads), proof);
        let (tls, task) = match (&options.tls_cert_file, &options.tls_key_file) {
            (Some(certificate), Some(key)) => {
                let files = files::Files { certificate: certificate.clone(), key: key.clone() };
                files::start(client, files, address, token).await?
            }
            _ => {
                let lifetimes =
                    Lifetimes { certificate: options.cert_lifetime, authority: options.ca_lifetime };
                let hosts = authority::hosts(namespace, options.webhook_url.as_ref());
                own::start(client, namespace, (lifetimes, hosts), address, token).await?
            }
        };
        Ok(Self { tls, task })
    }
}
