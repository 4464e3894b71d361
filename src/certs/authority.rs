//! Sluice's own certificate authority as plain data, and the next step of its rotation.
//!
//! The order of the steps keeps the webhook trusted at every instant: a new authority is first announced
//! beside the old one, and signs the serving certificate only when the announcement is in effect.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose,
};
use serde::{Deserialize, Serialize};

/// Certificates are valid from this long before now, to allow for clock skew.
const CLOCK_SKEW: Duration = Duration::from_secs(300);

/// The lifetimes of certificates. A certificate is renewed after two thirds of its lifetime.
#[derive(Clone, Copy, Debug)]
pub struct Lifetimes {
    /// The serving certificate.
    pub certificate: Duration,
    /// The authority that signs it.
    pub authority: Duration,
}

/// A period of validity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Validity {
    /// The time of issue.
    pub issued: Timestamp,
    /// The time of expiry.
    pub expires: Timestamp,
}

impl Validity {
    fn new(now: Timestamp, lifetime: Duration) -> Self {
        Self { issued: now, expires: now.checked_add(lifetime).unwrap_or(Timestamp::MAX) }
    }

    fn due(&self, now: Timestamp) -> bool {
        let life = self.expires.duration_since(self.issued);
        now.duration_since(self.issued) >= life * 2 / 3
    }

    fn over(&self, now: Timestamp) -> bool {
        now >= self.expires
    }

    fn apply(&self, params: &mut CertificateParams) {
        let epoch = rcgen::date_time_ymd(1970, 1, 1);
        let at = |timestamp: Timestamp| {
            epoch + Duration::from_secs(u64::try_from(timestamp.as_second()).unwrap_or_default())
        };
        params.not_before = at(self.issued) - CLOCK_SKEW;
        params.not_after = at(self.expires);
    }
}

/// An authority's certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Authority {
    /// The period of validity.
    #[serde(flatten)]
    pub validity: Validity,
    /// The certificate in PEM.
    pub certificate: String,
}

/// Metadata of the serving certificate.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Serving {
    /// The period of validity.
    #[serde(flatten)]
    pub validity: Validity,
    /// The time of issue of the authority that signed it.
    pub signer: Timestamp,
    /// The host names and addresses it is valid for.
    pub hosts: Vec<String>,
}

/// The public part of the Secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Public {
    /// The authorities to trust, newest first. Only the newest signs.
    pub authorities: Vec<Authority>,
    /// The serving certificate.
    pub serving: Serving,
}

/// The whole content of the Secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Stored {
    /// The public part.
    pub public: Public,
    /// The key of the newest authority, in PEM.
    pub authority_key: String,
    /// The serving certificate, in PEM.
    pub certificate: String,
    /// The key of the serving certificate, in PEM.
    pub key: String,
}

impl std::fmt::Debug for Stored {
    /// Omits the keys.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stored").field("public", &self.public).finish_non_exhaustive()
    }
}

impl Stored {
    /// All certificates to trust, in PEM.
    #[must_use]
    pub fn bundle(&self) -> String {
        self.public.authorities.iter().map(|authority| authority.certificate.as_str()).collect()
    }
}

/// The content after the next step, if one is due. `announced`: whether the whole [`Stored::bundle`] is in
/// effect in every API server.
///
/// # Errors
/// If a key or certificate cannot be created.
pub fn step(
    stored: Option<&Stored>,
    now: Timestamp,
    lifetimes: Lifetimes,
    hosts: &[String],
    announced: bool,
) -> Result<Option<Stored>, rcgen::Error> {
    // An authority that expired while no replica ran is not trusted anyway: start over.
    let Some(stored) = stored
        .filter(|stored| stored.public.authorities.first().is_some_and(|newest| !newest.validity.over(now)))
    else {
        let (authority, authority_key) = new_authority(now, lifetimes)?;
        let (serving, certificate, key) = sign(&authority, &authority_key, now, lifetimes, hosts)?;
        let public = Public { authorities: vec![authority], serving };
        return Ok(Some(Stored { public, authority_key, certificate, key }));
    };
    let mut next = stored.clone();
    let newest = &stored.public.authorities[0];
    let serving = &stored.public.serving;
    let switch = serving.signer != newest.validity.issued;
    let announced = announced || serving.validity.over(now);
    if newest.validity.due(now) && !switch {
        let (authority, authority_key) = new_authority(now, lifetimes)?;
        next.public.authorities.insert(0, authority);
        next.authority_key = authority_key;
    } else if (switch && announced) || (!switch && (serving.validity.due(now) || serving.hosts != hosts)) {
        (next.public.serving, next.certificate, next.key) =
            sign(newest, &stored.authority_key, now, lifetimes, hosts)?;
    }
    // The newest authority always stays: it is the one that signs.
    let mut position = 0;
    next.public.authorities.retain(|authority| {
        position += 1;
        position == 1 || !authority.validity.over(now)
    });
    Ok((next != *stored).then_some(next))
}

fn authority_params(issued: Timestamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    // Each authority has its own name, so a bundle of two is unambiguous.
    params.distinguished_name.push(DnType::CommonName, format!("sluice authority of {issued}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn new_authority(now: Timestamp, lifetimes: Lifetimes) -> Result<(Authority, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let validity = Validity::new(now, lifetimes.authority);
    let mut params = authority_params(now);
    validity.apply(&mut params);
    let certificate = params.self_signed(&key)?.pem();
    Ok((Authority { validity, certificate }, key.serialize_pem()))
}

fn sign(
    authority: &Authority,
    authority_key: &str,
    now: Timestamp,
    lifetimes: Lifetimes,
    hosts: &[String],
) -> Result<(Serving, String, String), rcgen::Error> {
    let key = KeyPair::generate()?;
    let mut validity = Validity::new(now, lifetimes.certificate);
    validity.expires = validity.expires.min(authority.validity.expires);
    let mut params = CertificateParams::new(hosts.to_vec())?;
    params.distinguished_name.push(DnType::CommonName, crate::api::names::NAME);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.use_authority_key_identifier_extension = true;
    validity.apply(&mut params);
    let issuer = Issuer::new(authority_params(authority.validity.issued), KeyPair::from_pem(authority_key)?);
    let certificate = params.signed_by(&key, &issuer)?.pem();
    let serving = Serving { validity, signer: authority.validity.issued, hosts: hosts.to_vec() };
    Ok((serving, certificate, key.serialize_pem()))
}

/// The names and addresses of the webhook: its Service, this machine, and the host of its URL.
#[must_use]
pub fn hosts(namespace: &str, webhook_url: Option<&axum::http::Uri>) -> Vec<String> {
    let name = crate::api::names::NAME;
    let mut hosts = vec![
        format!("{name}.{namespace}.svc"),
        format!("{name}.{namespace}.svc.cluster.local"),
        "localhost".to_owned(),
        "127.0.0.1".to_owned(),
    ];
    let host = webhook_url.and_then(axum::http::Uri::host).map(|host| host.trim_matches(['[', ']']));
    if let Some(host) = host.filter(|host| !hosts.iter().any(|known| known == host)) {
        // A host that is neither an address nor a DNS name cannot be reached.
        if host.parse::<IpAddr>().is_ok() || host.is_ascii() {
            hosts.push(host.to_owned());
        }
    }
    hosts
}

#[cfg(test)]
mod tests {
    use rustls::RootCertStore;
    use rustls::client::WebPkiServerVerifier;
    use rustls::client::danger::ServerCertVerifier;
    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

    use super::*;

    const LIFETIMES: Lifetimes =
        Lifetimes { certificate: Duration::from_secs(90), authority: Duration::from_secs(1000) };

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + seconds).expect("the time is in range")
    }

    /// Whether a client that trusts `bundle` accepts the certificate for `host` at that time.
    fn trusted(bundle: &str, certificate: &str, host: &str, seconds: i64) -> bool {
        let mut roots = RootCertStore::empty();
        for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
            roots.add(root.expect("the bundle is PEM")).expect("the root can be used");
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), provider)
            .build()
            .expect("there are roots");
        let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).expect("the certificate is PEM");
        let now = UnixTime::since_unix_epoch(Duration::from_secs(at(seconds).as_second().unsigned_abs()));
        let host = ServerName::try_from(host.to_owned()).expect("the host is well-formed");
        verifier.verify_server_cert(&leaf, &[], &host, &[], now).is_ok()
    }

    fn next(stored: &Stored, seconds: i64, announced: bool) -> Option<Stored> {
        step(Some(stored), at(seconds), LIFETIMES, &hosts("sluice-system", None), announced)
            .expect("keys can be made")
    }

    fn first() -> Stored {
        step(None, at(0), LIFETIMES, &hosts("sluice-system", None), false)
            .expect("keys can be made")
            .expect("the first step is due")
    }

    #[test]
    fn the_first_certificate_is_trusted_for_its_names() {
        let stored = first();
        for host in
            ["sluice.sluice-system.svc", "sluice.sluice-system.svc.cluster.local", "localhost", "127.0.0.1"]
        {
            assert!(trusted(&stored.bundle(), &stored.certificate, host, 1), "{host}");
        }
        assert!(!trusted(&stored.bundle(), &stored.certificate, "example.com", 1));
        assert!(!trusted(&stored.bundle(), &stored.certificate, "localhost", 91));
        assert_eq!(next(&stored, 59, true), None);
    }

    #[test]
    fn the_serving_certificate_is_renewed_after_two_thirds() {
        let stored = first();
        let renewed = next(&stored, 60, false).expect("the renewal is due");
        assert_eq!(renewed.bundle(), stored.bundle());
        assert!(trusted(&stored.bundle(), &renewed.certificate, "localhost", 140));
    }

    #[test]
    fn the_announced_bundle_trusts_the_served_certificate_at_every_instant_of_a_rotation() {
        let mut stored = first();
        let mut announced_bundle = stored.bundle();
        let mut rotations = 0;
        for second in 1..5000 {
            // The announcement lags behind the Secret, and is in effect some seconds later.
            let announced = announced_bundle == stored.bundle() && second % 7 == 0;
            if let Some(next) = next(&stored, second, announced) {
                rotations += i32::from(next.public.serving.signer != stored.public.serving.signer);
                stored = next;
            }
            assert!(trusted(&announced_bundle, &stored.certificate, "localhost", second), "at {second}");
            if second % 5 == 0 {
                announced_bundle = stored.bundle();
            }
            assert!(stored.public.authorities.len() <= 2, "at {second}");
        }
        assert!(rotations >= 6, "{rotations}");
    }

    #[test]
    fn a_new_authority_signs_nothing_before_it_is_announced() {
        let mut stored = first();
        for second in (60..=667).step_by(20) {
            stored = next(&stored, second, true).unwrap_or(stored);
        }
        stored.public.authorities.truncate(1);
        let rotated = next(&stored, 700, true).expect("the authority is due");
        assert_eq!(rotated.public.authorities.len(), 2);
        assert_eq!(rotated.certificate, stored.certificate);
        assert_eq!(next(&rotated, 701, false), None);
        let switched = next(&rotated, 702, true).expect("the switch is due");
        assert_ne!(switched.certificate, stored.certificate);
    }

    #[test]
    fn certificates_that_expired_while_no_replica_ran_are_replaced_at_once() {
        let stored = first();
        let mut rotating = stored.clone();
        for second in 1..700 {
            rotating = next(&rotating, second, second < 666).unwrap_or(rotating);
        }
        assert_ne!(rotating.public.serving.signer, rotating.public.authorities[0].validity.issued);
        for (stored, later) in [(&stored, 500), (&stored, 2000), (&rotating, 900), (&rotating, 5000)] {
            let renewed = next(stored, later, false).expect("the renewal is due");
            let renewed = next(&renewed, later, true).unwrap_or(renewed);
            assert!(trusted(&renewed.bundle(), &renewed.certificate, "localhost", later), "{later}");
        }
    }

    #[test]
    fn a_new_host_needs_a_new_certificate() {
        let stored = first();
        let url = "https://192.0.2.7:9443".parse().expect("the URL is well-formed");
        let hosts = hosts("sluice-system", Some(&url));
        let renewed = step(Some(&stored), at(1), LIFETIMES, &hosts, false)
            .expect("keys can be made")
            .expect("the host is missing");
        assert!(trusted(&stored.bundle(), &renewed.certificate, "192.0.2.7", 2));
    }

    #[test]
    fn keys_are_not_printed() {
        assert!(!format!("{:?}", first()).contains("PRIVATE KEY"));
    }
}
