//! Calls to the API server with a deadline, and their errors.

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;

/// The time limit of one call to the API server.
const DEADLINE: Duration = Duration::from_secs(10);

/// Why a certificate is missing or could not be renewed.
#[derive(Debug, Error)]
pub enum Error {
    /// The API server refused or could not be reached.
    #[error("cannot reach the API server: {0}")]
    Api(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("the API server did not answer within {} s", DEADLINE.as_secs())]
    Silent,
    /// A certificate could not be created.
    #[error("cannot create a certificate: {0}")]
    Make(#[from] rcgen::Error),
    /// A certificate and its key cannot be served.
    #[error("cannot load the certificate: {0}")]
    Load(#[source] std::io::Error),
    /// A file cannot be read.
    #[error("cannot read {path}: {source}", path = path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: std::io::Error,
    },
    /// The Secret's content could not be encoded, or is missing.
    #[error("cannot store the certificates: {0}")]
    Secret(String),
}

/// Runs a call to the API server with a deadline.
pub async fn within<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, Error> {
    tokio::time::timeout(DEADLINE, call).await.map_err(|_| Error::Silent)?.map_err(Error::Api)
}
