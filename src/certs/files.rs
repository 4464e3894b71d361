//! A certificate from files that another tool replaces.

use std::path::{Path, PathBuf};
use std::time::Duration;

use axum_server::tls_rustls::RustlsConfig;
use kube::Client;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::address::Address;
use super::announce::{Announcement, announce};
use super::call::Error;
use super::proof::Proof;

/// The interval between reads: the swap of a Secret volume causes no event on the files.
const INTERVAL: Duration = Duration::from_secs(10);

/// A certificate and its key on disk.
#[derive(Clone, Debug)]
pub struct Files {
    /// The certificate chain, in PEM.
    pub certificate: PathBuf,
    /// Its key, in PEM.
    pub key: PathBuf,
}

impl Files {
    async fn read(&self) -> Result<(Vec<u8>, Vec<u8>), Error> {
        Ok((read(&self.certificate).await?, read(&self.key).await?))
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, Error> {
    tokio::fs::read(path).await.map_err(|source| Error::Read { path: path.to_owned(), source })
}

/// Loads the files, and loads them again when they change. Returns the configuration to serve and the task that
/// updates it.
///
/// # Errors
/// If the files cannot be read or the key does not match the certificate.
pub async fn start(
    client: Client,
    files: Files,
    (address, proof): (Address, Proof),
    token: CancellationToken,
) -> Result<(RustlsConfig, JoinHandle<()>), Error> {
    let mut served = files.read().await?;
    let tls = RustlsConfig::from_pem(served.0.clone(), served.1.clone()).await.map_err(Error::Load)?;
    let config = tls.clone();
    let task = tokio::spawn(async move {
        loop {
            let url = address.to_announce();
            let announcement = Announcement { url: url.clone(), ..Announcement::of(&proof) };
            if url.is_some()
                && let Err(error) = announce(&client, &announcement).await
            {
                tracing::warn!(%error, "cannot update the webhook configurations; retrying");
            }
            tokio::select! {
                () = token.cancelled() => return,
                () = tokio::time::sleep(INTERVAL) => {}
                () = address.changed(url.as_deref()) => {}
            }
            match reload(&config, &files, &served).await {
                Ok(Some(fresh)) => {
                    tracing::info!("certificate reloaded");
                    served = fresh;
                }
                Ok(None) => {}
                // A half-replaced pair does not match; the next read sees both files.
                Err(error) => {
                    tracing::warn!(%error, "cannot reload the certificate; the old one stays in use")
                }
            }
        }
    });
    Ok((tls, task))
}

type Pair = (Vec<u8>, Vec<u8>);

async fn reload(config: &RustlsConfig, files: &Files, served: &Pair) -> Result<Option<Pair>, Error> {
    let fresh = files.read().await?;
    if fresh == *served {
        return Ok(None);
    }
    config.reload_from_pem(fresh.0.clone(), fresh.1.clone()).await.map_err(Error::Load)?;
    Ok(Some(fresh))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> Pair {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()])
            .expect("a certificate can be made");
        (made.cert.pem().into_bytes(), made.signing_key.serialize_pem().into_bytes())
    }

    #[tokio::test]
    async fn a_matching_pair_is_loaded_and_a_half_replaced_pair_is_not() {
        // Another test of this process may have installed it already.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let directory = tempfile::tempdir().expect("a directory can be made");
        let files =
            Files { certificate: directory.path().join("tls.crt"), key: directory.path().join("tls.key") };
        let (first, second) = (pair(), pair());
        let write = |certificate: &[u8], key: &[u8]| {
            std::fs::write(&files.certificate, certificate).expect("the file can be written");
            std::fs::write(&files.key, key).expect("the file can be written");
        };
        let config = RustlsConfig::from_pem(first.0.clone(), first.1.clone()).await.expect("the pair fits");
        write(&first.0, &first.1);
        assert!(matches!(reload(&config, &files, &first).await, Ok(None)));
        write(&second.0, &first.1);
        assert!(matches!(reload(&config, &files, &first).await, Err(Error::Load(_))));
        write(&second.0, &second.1);
        let before = config.get_inner();
        assert_eq!(reload(&config, &files, &first).await.ok().flatten(), Some(second));
        assert!(!std::sync::Arc::ptr_eq(&before, &config.get_inner()));
    }
}
