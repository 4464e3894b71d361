//! Sluice's own certificates. Every replica reads the Secret, takes the step that is due, serves the
//! certificate and announces the authorities to trust.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use axum_server::tls_rustls::RustlsConfig;
use backon::{BackoffBuilder, ExponentialBuilder};
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, ValidatingWebhookConfiguration,
};
use k8s_openapi::api::core::v1::Secret;
use kube::core::PartialObjectMeta;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::address::Address;
use super::announce::{Announcement, announce};
use super::authority::{Lifetimes, Stored, step};
use super::call::Error;
use super::proof::Proof;
use super::store;
use crate::api::names;

/// The longest interval between checks, in case a watch misses a change.
const INTERVAL: Duration = Duration::from_secs(15);
/// The longest time until an announcement is in effect in every API server.
const SETTLE: Duration = Duration::from_secs(30);
/// The pause after the first failure.
const RETRY: Duration = Duration::from_secs(1);
/// The longest pause after failures in a row.
const LONGEST_RETRY: Duration = Duration::from_secs(5);
/// The shortest time between two checks. A tool that writes the same field would otherwise be answered without end.
const LEAST_INTERVAL: Duration = Duration::from_secs(1);
/// How often the writing of the Secret is tried at once while others write it.
const RACES: usize = 5;

/// The pauses after failures in a row. Replicas that fail together do not come back together.
fn pauses() -> impl Iterator<Item = Duration> {
    let pauses = ExponentialBuilder::default().with_min_delay(RETRY).with_max_delay(LONGEST_RETRY);
    pauses.with_jitter().without_max_times().build()
}

/// The state of one replica.
struct Renewal {
    client: Client,
    secrets: Api<Secret>,
    lifetimes: Lifetimes,
    hosts: Vec<String>,
    address: Address,
    proof: Proof,
    /// The last announced URL.
    url: Option<String>,
    tls: Option<RustlsConfig>,
    /// The served certificate, in PEM.
    served: String,
    /// The bundle in both configurations, and since when.
    announced: Option<(String, Instant)>,
}

/// Reads or creates the certificate, and renews it until the token is cancelled. Returns the configuration to
/// serve and the task that renews it.
///
/// # Errors
/// If the token is cancelled before there is a certificate.
pub async fn start(
    client: Client,
    namespace: &str,
    (lifetimes, hosts): (Lifetimes, Vec<String>),
    (address, proof): (Address, Proof),
    token: CancellationToken,
) -> Result<(RustlsConfig, JoinHandle<()>), Error> {
    let mut renewal = Renewal {
        secrets: Api::namespaced(client.clone(), namespace),
        lifetimes,
        hosts,
        address,
        proof,
        client,
        url: None,
        tls: None,
        served: String::new(),
        announced: None,
    };
    let mut failures = pauses();
    let tls = loop {
        let failure = match renewal.refresh().await {
            Ok(tls) => break tls,
            Err(error) => error,
        };
        tracing::warn!(error = %failure, "no certificate yet; retrying");
        let pause = failures.next().unwrap_or(LONGEST_RETRY);
        if token.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
            return Err(failure);
        }
    };
    let task = tokio::spawn(async move {
        token.run_until_cancelled(renewal.run()).await;
    });
    Ok((tls, task))
}

impl Renewal {
    /// Checks after every change of the Secret or the configurations, and at least every [`INTERVAL`].
    async fn run(&mut self) {
        let mutating: Api<PartialObjectMeta<MutatingWebhookConfiguration>> = Api::all(self.client.clone());
        let validating: Api<PartialObjectMeta<ValidatingWebhookConfiguration>> =
            Api::all(self.client.clone());
        let mut changes = stream::select_all([
            changes(mutating, names::NAME),
            changes(validating, names::NAME),
            changes(self.secrets.clone(), store::SECRET),
        ]);
        let mut failures = pauses();
        loop {
            let began = tokio::time::Instant::now();
            if let Err(error) = self.refresh().await {
                tracing::warn!(%error, "cannot check the certificates; retrying");
                // Nothing cuts this pause short: what there is to announce may differ until a refresh succeeds.
                tokio::time::sleep(failures.next().unwrap_or(LONGEST_RETRY)).await;
                continue;
            }
            failures = pauses();
            tokio::select! {
                () = tokio::time::sleep(self.pause()) => {}
                () = self.address.changed(self.url.as_deref()) => {}
                Some(()) = changes.next() => {}
            }
            tokio::time::sleep_until(began + LEAST_INTERVAL).await;
        }
    }

    /// The pause before the next check; shorter for short lifetimes.
    fn pause(&self) -> Duration {
        let Lifetimes { certificate, authority } = self.lifetimes;
        INTERVAL.min(certificate / 20).min(authority / 20).min(self.settle() / 2)
    }

    fn settle(&self) -> Duration {
        SETTLE.min(self.lifetimes.certificate / 10).min(self.lifetimes.authority / 10)
    }

    /// Updates the Secret, the served certificate and the announcement.
    async fn refresh(&mut self) -> Result<RustlsConfig, Error> {
        let stored = self.update_secret().await?;
        let tls = self.serve(&stored).await?;
        self.url = self.address.to_announce();
        let announcement = Announcement {
            bundle: Some(stored.bundle()),
            url: self.url.clone(),
            ..Announcement::of(&self.proof)
        };
        match announce(&self.client, &announcement).await {
            Ok(true) if self.announced.as_ref().is_none_or(|(bundle, _)| *bundle != stored.bundle()) => {
                self.announced = Some((stored.bundle(), Instant::now()));
            }
            Ok(true) => {}
            Ok(false) => self.announced = None,
            Err(error) => {
                // Without an announcement the signer is not switched; the served certificate stays valid.
                self.announced = None;
                tracing::warn!(%error, "cannot update the webhook configurations");
            }
        }
        Ok(tls)
    }

    /// Reads the Secret and takes the step that is due. The loser of a race uses the winner's Secret.
    async fn update_secret(&self) -> Result<Stored, Error> {
        for _ in 0..RACES {
            let read = store::read(&self.secrets).await?;
            let announced = |stored: &Stored| {
                self.announced.as_ref().is_some_and(|(bundle, since)| {
                    *bundle == stored.bundle() && since.elapsed() >= self.settle()
                })
            };
            let in_effect = read.stored.as_ref().is_some_and(announced);
            let next = step(read.stored.as_ref(), Timestamp::now(), self.lifetimes, &self.hosts, in_effect)?;
            match (next, &read.stored) {
                (Some(next), _) => {
                    if store::write(&self.secrets, &next, &read).await? {
                        let authorities = next.public.authorities.len();
                        tracing::info!(authorities, expires = %next.public.serving.validity.expires, "certificates renewed");
                        return Ok(next);
                    }
                }
                (None, Some(stored)) => return Ok(stored.clone()),
                (None, None) => return Err(Error::Secret("no certificate was created".to_owned())),
            }
        }
        Err(Error::Secret("another program writes the Secret all the time".to_owned()))
    }

    async fn serve(&mut self, stored: &Stored) -> Result<RustlsConfig, Error> {
        let pair = || (stored.certificate.clone().into_bytes(), stored.key.clone().into_bytes());
        let tls = match &self.tls {
            Some(tls) if self.served == stored.certificate => return Ok(tls.clone()),
            Some(tls) => {
                let (certificate, key) = pair();
                tls.reload_from_pem(certificate, key).await.map_err(Error::Load)?;
                tls.clone()
            }
            None => {
                let (certificate, key) = pair();
                RustlsConfig::from_pem(certificate, key).await.map_err(Error::Load)?
            }
        };
        self.served.clone_from(&stored.certificate);
        self.tls = Some(tls.clone());
        Ok(tls)
    }
}

/// One item for every change of the object `name`.
fn changes<K>(api: Api<K>, name: &str) -> BoxStream<'static, ()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    watcher(api, config)
        .default_backoff()
        .filter_map(|event| {
            std::future::ready(matches!(event, Ok(Event::Apply(_) | Event::Delete(_))).then_some(()))
        })
        .boxed()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn an_api_server_that_is_away_is_asked_once_a_second() {
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let away = tower::service_fn(move |request: axum::http::Request<Body>| {
            if request.uri().path().ends_with(store::SECRET) {
                counted.fetch_add(1, Ordering::Relaxed);
            }
            async { Err::<axum::http::Response<Body>, _>(std::io::Error::other("connection refused")) }
        });
        let client = Client::new(away, "ns");
        // The former leader: it has announced its URL, and would take that back at once.
        let url = "https://127.0.0.1:9443".parse().expect("a URL");
        let mut renewal = Renewal {
            secrets: Api::namespaced(client.clone(), "ns"),
            lifetimes: Lifetimes { certificate: SETTLE * 100, authority: SETTLE * 1000 },
            hosts: vec!["localhost".to_owned()],
            address: Address::new(Some(&url), || false),
            proof: Proof::default(),
            client,
            url: Some(url.to_string()),
            tls: None,
            served: String::new(),
            announced: None,
        };
        let time = RETRY * 5 / 2;
        assert!(tokio::time::timeout(time, renewal.run()).await.is_err(), "it goes on");
        let attempts = asked.load(Ordering::Relaxed);
        assert!((1..=3).contains(&attempts), "{attempts} attempts in {time:?}");
    }
}
