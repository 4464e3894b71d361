//! One POST to an endpoint: HTTPS only, verified, no redirect is followed, nothing of the answer but its status is read.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use axum::http::{HeaderValue, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::{GaiResolver, Name as Host};
use hyper_util::rt::TokioExecutor;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::time::timeout;
use tower::Service;

use super::Options;
use super::message::Message;
use crate::api::notify::Endpoint;
use crate::engine::types::Name;

/// The time limit of a request.
const DEADLINE: Duration = Duration::from_secs(10);
/// The largest secret, in bytes.
const SECRET: u64 = 4096;

/// Why notifications cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum Unusable {
    /// The file of authorities cannot be used.
    #[error("--notify-ca {0}: {1}")]
    Authorities(PathBuf, String),
    /// The metric exists already.
    #[error(transparent)]
    Metric(#[from] prometheus::Error),
    /// The TLS library refuses the configuration.
    #[error(transparent)]
    Tls(#[from] rustls::Error),
}

/// Why a notification was not accepted. The text holds neither URL nor secret.
#[derive(Debug, PartialEq, Eq)]
pub enum Failure {
    /// It may be accepted later.
    Passing {
        /// The problem.
        problem: String,
        /// The pause that the endpoint asks for.
        after: Duration,
    },
    /// It will not.
    Final(String),
}

impl Failure {
    fn passing(problem: impl fmt::Display) -> Self {
        Self::Passing { problem: problem.to_string(), after: Duration::ZERO }
    }
}

/// Sends requests.
pub struct Poster {
    client: Client<HttpsConnector<HttpConnector<Guarded>>, Body>,
    secrets: PathBuf,
}

impl Poster {
    pub fn new(options: &Options) -> Result<Self, Unusable> {
        let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
        if let Some(file) = &options.notify_ca {
            let unusable =
                |problem: &dyn fmt::Display| Unusable::Authorities(file.clone(), problem.to_string());
            let certificates = CertificateDer::pem_file_iter(file).map_err(|error| unusable(&error))?;
            for certificate in certificates {
                let certificate = certificate.map_err(|error| unusable(&error))?;
                roots.add(certificate).map_err(|error| unusable(&error))?;
            }
        }
        let provider = rustls::crypto::ring::default_provider();
        let tls = ClientConfig::builder_with_provider(provider.into())
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut connector = HttpConnector::new_with_resolver(Guarded(GaiResolver::new()));
        connector.enforce_http(false);
        connector.set_connect_timeout(Some(DEADLINE));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_only()
            .enable_http1()
            .wrap_connector(connector);
        let client = Client::builder(TokioExecutor::new()).build(connector);
        Ok(Self { client, secrets: options.notify_secrets.clone() })
    }

    /// Sends a message to an endpoint of a team.
    pub async fn post(&self, team: &Name, endpoint: &Endpoint, message: &Message) -> Result<(), Failure> {
        let secret = match &endpoint.secret_ref {
            Some(name) => Some(secret(&self.secrets, team, name).await?),
            None => None,
        };
        let (url, token) = match (&endpoint.url, &secret) {
            (Some(url), token) => (url.as_str(), token.as_deref()),
            (None, Some(url)) => (url.as_str(), None),
            (None, None) => {
                return Err(Failure::Final("the endpoint has neither url nor secretRef".to_owned()));
            }
        };
        let mut request = Request::post(target(url)?)
            .header(CONTENT_TYPE, message.content_type)
            .header(USER_AGENT, concat!("sluice/", env!("CARGO_PKG_VERSION")));
        if let Some(token) = token {
            let value = HeaderValue::try_from(format!("Bearer {token}"));
            let mut value =
                value.map_err(|_| Failure::Final("the token is not a header's value".to_owned()))?;
            value.set_sensitive(true);
            request = request.header(AUTHORIZATION, value);
        }
        let body = Body::from(Bytes::copy_from_slice(message.body.as_bytes()));
        let request =
            request.body(body).map_err(|_| Failure::Final("the URL makes no request".to_owned()))?;
        match timeout(DEADLINE, self.client.request(request)).await {
            Ok(Ok(answer)) => judge(&answer),
            Ok(Err(error)) => Err(Failure::passing(chain(&error))),
            Err(_) => Err(Failure::passing(format_args!("no answer within {DEADLINE:?}"))),
        }
    }
}

/// The address of a URL, unless Sluice sends nothing there.
fn target(url: &str) -> Result<Uri, Failure> {
    let unusable = |problem: &str| Failure::Final(format!("the URL {problem}"));
    let uri: Uri = url.parse().map_err(|_| unusable("cannot be read"))?;
    if uri.scheme_str() != Some("https") {
        return Err(unusable("is not https"));
    }
    let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(address) if is_forbidden(address) => {
            Err(unusable("has an address of the link, of no host or of many"))
        }
        _ => Ok(uri),
    }
}

/// Whether an address is none of an endpoint: those of the link, where clouds answer with the credentials of a node, and those
/// of no single host. Addresses inside the cluster or the company are allowed: only TLS that verifies reaches them.
fn is_forbidden(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => v4.is_link_local() || v4.is_unspecified() || v4.is_multicast() || v4.is_broadcast(),
        IpAddr::V6(v6) => {
            let metadata = v6.segments() == [0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254];
            v6.is_unicast_link_local() || v6.is_unspecified() || v6.is_multicast() || metadata
        }
    }
}

/// What the status of an answer says. No redirect is followed: it would lead the secret elsewhere.
fn judge<B>(answer: &Response<B>) -> Result<(), Failure> {
    let status = answer.status();
    let problem = format!("status {}", status.as_u16());
    match status {
        _ if status.is_success() => Ok(()),
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
            let after = answer.headers().get(RETRY_AFTER).and_then(|after| after.to_str().ok()?.parse().ok());
            Err(Failure::Passing { problem, after: Duration::from_secs(after.unwrap_or(0)) })
        }
        _ if status.is_server_error() => Err(Failure::passing(problem)),
        _ => Err(Failure::Final(problem)),
    }
}

/// The secret of a team's endpoint. It may be mounted a minute after it is written, so its absence may pass.
async fn secret(directory: &Path, team: &str, name: &str) -> Result<String, Failure> {
    // A team has no dot in its name, so no team reaches the secret of another.
    let is_label = |text: &str| crate::api::values::is_dns_label(text);
    if !is_label(team) || !is_label(name) {
        return Err(Failure::Final(format!("secretRef {name:?} is not a name")));
    }
    let key = format!("{team}.{name}");
    let file = directory.join(&key);
    let unread = |error: &io::Error| Failure::passing(format_args!("secret {key}: {}", error.kind()));
    let length = tokio::fs::metadata(&file).await.map_err(|error| unread(&error))?.len();
    if length > SECRET {
        return Err(Failure::Final(format!("secret {key} is longer than {SECRET} bytes")));
    }
    let text = tokio::fs::read_to_string(&file).await.map_err(|error| unread(&error))?;
    Ok(text.trim().to_owned())
}

/// An error with its causes. Those of the client name no URL.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// Resolves the names of hosts to the addresses that are not forbidden.
#[derive(Clone, Debug)]
struct Guarded(GaiResolver);

impl Service<Host> for Guarded {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, host: Host) -> Self::Future {
        let found = self.0.call(host);
        Box::pin(async move {
            let allowed: Vec<SocketAddr> =
                found.await?.filter(|address| !is_forbidden(address.ip())).collect();
            if allowed.is_empty() {
                return Err(io::Error::other(
                    "the host has only addresses of the link, of no host or of many",
                ));
            }
            Ok(allowed.into_iter())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_sent_in_plain_or_to_addresses_of_the_link() {
        for url in [
            "http://example.com/x",
            "https://169.254.169.254/latest",
            "https://[fe80::1]/",
            "https://[::ffff:169.254.169.254]/",
            "https://[fd00:ec2::254]/",
            "https://0.0.0.0/",
            "ftp://example.com",
            "example.com",
            "",
        ] {
            assert!(matches!(target(url), Err(Failure::Final(_))), "{url}");
        }
        for url in ["https://example.com/x", "https://10.0.0.1:8443/x", "https://[2001:db8::1]/"] {
            assert!(target(url).is_ok(), "{url}");
        }
    }

    #[tokio::test]
    async fn names_that_lead_to_the_link_are_not_resolved() {
        // Another way to write an address: no address for the parser, but for the resolver.
        for host in ["0xa9fea9fe", "2852039166"] {
            let resolved = Guarded(GaiResolver::new()).call(host.parse().expect("a host")).await;
            assert!(resolved.is_err(), "{host}: {resolved:?}");
        }
        let local = Guarded(GaiResolver::new()).call("localhost".parse().expect("a host")).await;
        assert!(local.is_ok(), "{local:?}");
    }

    #[test]
    fn a_status_says_whether_to_try_again() {
        let judged = |status: u16, after: Option<&str>| {
            let mut answer = Response::builder().status(status);
            if let Some(after) = after {
                answer = answer.header(RETRY_AFTER, after);
            }
            judge(&answer.body(()).expect("an answer"))
        };
        assert_eq!(judged(202, None), Ok(()));
        for status in [301, 307, 400, 401, 404, 410] {
            assert!(matches!(judged(status, None), Err(Failure::Final(_))), "{status}");
        }
        for (status, after, seconds) in
            [(500, None, 0), (503, Some("9"), 0), (429, Some("7"), 7), (429, Some("soon"), 0)]
        {
            let problem = format!("status {status}");
            let passing = Failure::Passing { problem, after: Duration::from_secs(seconds) };
            assert_eq!(judged(status, after), Err(passing));
        }
    }

    #[tokio::test]
    async fn a_team_reads_only_its_own_secrets() {
        let directory = tempfile::tempdir().expect("a directory");
        for (key, text) in [("a.hook", " https://x/y\n"), ("b.hook", "secret")] {
            std::fs::write(directory.path().join(key), text).expect("a file");
        }
        let read = async |team: &str, name: &str| secret(directory.path(), team, name).await;
        assert_eq!(read("a", "hook").await, Ok("https://x/y".to_owned()));
        for name in ["../b.hook", "b.hook", "", "..", "a/../b.hook"] {
            assert!(matches!(read("a", name).await, Err(Failure::Final(_))), "{name}");
        }
        assert!(matches!(read("a", "none").await, Err(Failure::Passing { .. })));
    }
}
