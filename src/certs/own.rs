//! Sluice's own certificates, kept fresh by every replica alike: read, take the step that is due,
//! serve what is kept, announce whom to trust.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use axum_server::tls_rustls::RustlsConfig;
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
use tokio_util::sync::CancellationToken;

use super::announce::{Announcement, announce};
use super::authority::{Kept, Lifetimes, hosts, step};
use super::{Address, Certificates, Error, Options, store};
use crate::api::names;

/// The longest time between two looks, should a watch be deaf.
const EVERY: Duration = Duration::from_secs(15);
/// How long an announcement takes at most to be in effect in every API server.
const SETTLE: Duration = Duration::from_secs(30);
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(1);

/// One replica's view.
struct Keeper {
    client: Client,
    secrets: Api<Secret>,
    lifetimes: Lifetimes,
    hosts: Vec<String>,
    address: Address,
    /// The URL that was last announced.
    url: Option<String>,
    tls: Option<RustlsConfig>,
    /// The certificate that is served.
    served: String,
    /// The bundle that both configurations carry, and since when they have been seen to.
    announced: Option<(String, Instant)>,
}

/// Makes or reads the certificate, and keeps it fresh.
///
/// # Errors
/// When no certificate could be had before the token was cancelled.
pub async fn start(
    client: Client,
    namespace: &str,
    options: &Options,
    address: Address,
    token: CancellationToken,
) -> Result<Certificates, Error> {
    let mut keeper = Keeper {
        secrets: Api::namespaced(client.clone(), namespace),
        lifetimes: Lifetimes { certificate: options.cert_lifetime, authority: options.ca_lifetime },
        hosts: hosts(namespace, options.webhook_url.as_ref()),
        address,
        client,
        url: None,
        tls: None,
        served: String::new(),
        announced: None,
    };
    let tls = loop {
        let failure = match keeper.refresh().await {
            Ok(tls) => break tls,
            Err(error) => error,
        };
        tracing::warn!(error = %failure, "no certificate yet, trying again");
        if token.run_until_cancelled(tokio::time::sleep(RETRY)).await.is_none() {
            return Err(failure);
        }
    };
    let task = tokio::spawn(async move {
        token.run_until_cancelled(keeper.run()).await;
    });
    Ok(Certificates { tls, task })
}

impl Keeper {
    /// Looks at every change of the Secret and of the configurations, and now and then in any case.
    async fn run(&mut self) {
        let mutating: Api<PartialObjectMeta<MutatingWebhookConfiguration>> = Api::all(self.client.clone());
        let validating: Api<PartialObjectMeta<ValidatingWebhookConfiguration>> =
            Api::all(self.client.clone());
        let mut changes = stream::select_all([
            changes(mutating, names::NAME),
            changes(validating, names::NAME),
            changes(self.secrets.clone(), store::SECRET),
        ]);
        loop {
            let pause = match self.refresh().await {
                Ok(_) => self.pause(),
                Err(error) => {
                    tracing::warn!(%error, "the certificates could not be checked, trying again");
                    RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.address.changed(self.url.as_deref()) => {}
                Some(()) = changes.next() => {}
            }
        }
    }

    /// How long to wait for the next look: often enough for short lives too.
    fn pause(&self) -> Duration {
        let Lifetimes { certificate, authority } = self.lifetimes;
        EVERY.min(certificate / 20).min(authority / 20).min(self.settle() / 2)
    }

    fn settle(&self) -> Duration {
        SETTLE.min(self.lifetimes.certificate / 10).min(self.lifetimes.authority / 10)
    }

    /// Brings everything up to date: the Secret, what is served, what is announced.
    async fn refresh(&mut self) -> Result<RustlsConfig, Error> {
        let kept = self.keep().await?;
        let tls = self.serve(&kept).await?;
        self.url = self.address.to_announce();
        let announcement = Announcement { bundle: Some(kept.bundle()), url: self.url.clone() };
        match announce(&self.client, &announcement).await {
            Ok(true) if self.announced.as_ref().is_none_or(|(bundle, _)| *bundle != kept.bundle()) => {
                self.announced = Some((kept.bundle(), Instant::now()));
            }
            Ok(true) => {}
            Ok(false) => self.announced = None,
            Err(error) => {
                // Without an announcement nothing is switched; what is served stays good meanwhile.
                self.announced = None;
                tracing::warn!(%error, "the webhook configurations could not be checked");
            }
        }
        Ok(tls)
    }

    /// Reads what is kept and takes the step that is due; the loser of a race takes what the winner wrote.
    async fn keep(&self) -> Result<Kept, Error> {
        loop {
            let read = store::read(&self.secrets).await?;
            let announced = |kept: &Kept| {
                self.announced.as_ref().is_some_and(|(bundle, since)| {
                    *bundle == kept.bundle() && since.elapsed() >= self.settle()
                })
            };
            let in_effect = read.kept.as_ref().is_some_and(announced);
            let next = step(read.kept.as_ref(), Timestamp::now(), self.lifetimes, &self.hosts, in_effect)?;
            match (next, &read.kept) {
                (Some(next), _) => {
                    if store::write(&self.secrets, &next, &read).await? {
                        let authorities = next.public.authorities.len();
                        tracing::info!(authorities, expires = %next.public.serving.validity.expires, "certificates renewed");
                        return Ok(next);
                    }
                }
                (None, Some(kept)) => return Ok(kept.clone()),
                (None, None) => return Err(Error::Secret("no certificate was made".to_owned())),
            }
        }
    }

    async fn serve(&mut self, kept: &Kept) -> Result<RustlsConfig, Error> {
        let pair = || (kept.certificate.clone().into_bytes(), kept.key.clone().into_bytes());
        let tls = match &self.tls {
            Some(tls) if self.served == kept.certificate => return Ok(tls.clone()),
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
        self.served.clone_from(&kept.certificate);
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
