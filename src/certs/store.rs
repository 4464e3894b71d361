//! The Secret with the certificates, shared by all replicas.
//!
//! Every write carries the resource version it is based on. Of two replicas that renew at once, one
//! loses, reads the other's Secret and serves that.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, ResourceExt};
use rcgen::KeyPair;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::authority::{Public, Stored};
use super::call::{Error, within};

/// The name of the Secret.
pub const SECRET: &str = "sluice-certs";

const STATE: &str = "state.json";
const AUTHORITY: &str = "ca.crt";
const AUTHORITY_KEY: &str = "ca.key";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";

/// The content and version of the Secret.
#[derive(Debug, Default)]
pub struct Read {
    /// The content, if it is valid.
    pub stored: Option<Stored>,
    /// The resource version; `None` if the Secret does not exist.
    version: Option<String>,
}

/// Reads the Secret.
///
/// # Errors
/// If the API server cannot be reached.
pub async fn read(api: &Api<Secret>) -> Result<Read, Error> {
    let Some(secret) = within(api.get_opt(SECRET)).await? else { return Ok(Read::default()) };
    let stored = parse(&secret);
    if stored.is_none() {
        tracing::warn!(secret = SECRET, "the Secret has no valid certificates; creating new ones");
    }
    Ok(Read { stored, version: secret.resource_version() })
}

/// Writes the Secret unless it has changed since it was read; returns true if it was written.
///
/// # Errors
/// If the API server refuses for a reason other than a lost race.
pub async fn write(api: &Api<Secret>, stored: &Stored, read: &Read) -> Result<bool, Error> {
    let public = serde_json::to_vec(&stored.public).map_err(|error| Error::Secret(error.to_string()))?;
    let data = BTreeMap::from([
        (STATE.to_owned(), ByteString(public)),
        (AUTHORITY.to_owned(), ByteString(stored.bundle().into_bytes())),
        (AUTHORITY_KEY.to_owned(), ByteString(stored.authority_key.clone().into_bytes())),
        (CERTIFICATE.to_owned(), ByteString(stored.certificate.clone().into_bytes())),
        (KEY.to_owned(), ByteString(stored.key.clone().into_bytes())),
    ]);
    let metadata = ObjectMeta {
        name: Some(SECRET.to_owned()),
        resource_version: read.version.clone(),
        ..ObjectMeta::default()
    };
    let secret = Secret { metadata, data: Some(data), ..Secret::default() };
    let params = PostParams {
        field_manager: Some(crate::api::names::FIELD_MANAGER.to_owned()),
        ..PostParams::default()
    };
    let written = match read.version {
        Some(_) => within(api.replace(SECRET, &params, &secret)).await,
        None => within(api.create(&params, &secret)).await,
    };
    match written {
        Ok(_) => Ok(true),
        Err(Error::Api(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

fn parse(secret: &Secret) -> Option<Stored> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let public: Public = serde_json::from_slice(&data.get(STATE)?.0).ok()?;
    let stored = Stored {
        public,
        authority_key: text(AUTHORITY_KEY)?,
        certificate: text(CERTIFICATE)?,
        key: text(KEY)?,
    };
    usable(&stored).then_some(stored)
}

/// Whether the keys are valid and the certificate matches its key. A Secret that cannot be served would otherwise
/// be retried forever.
fn usable(stored: &Stored) -> bool {
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(stored.certificate.as_bytes()).collect();
    let key = PrivateKeyDer::from_pem_slice(stored.key.as_bytes());
    let (Ok(chain), Ok(key)) = (chain, key) else { return false };
    KeyPair::from_pem(&stored.authority_key).is_ok()
        && !chain.is_empty()
        && CertifiedKey::from_der(chain, key, &default_provider()).is_ok()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::authority::{Lifetimes, step};
    use super::*;

    #[test]
    fn a_pair_that_cannot_be_served_is_unusable() {
        let lifetimes =
            Lifetimes { certificate: Duration::from_secs(90), authority: Duration::from_secs(900) };
        let make = || {
            let made = step(None, jiff::Timestamp::now(), lifetimes, &["localhost".to_owned()], false);
            made.expect("keys can be made").expect("nothing is stored yet")
        };
        let (stored, other) = (make(), make());
        assert!(usable(&stored));
        for broken in [
            Stored { authority_key: "no key".into(), ..stored.clone() },
            Stored { key: String::new(), ..stored.clone() },
            Stored { key: other.key.clone(), ..stored.clone() },
            Stored { certificate: other.certificate.clone(), ..stored.clone() },
            Stored { certificate: String::new(), ..stored.clone() },
        ] {
            assert!(!usable(&broken));
        }
    }
}
