//! The proof that a Question, or a review that asks for a verdict, came through the API server.
//!
//! A review proves nothing about its sender: any pod that reaches the webhook can post one with a user of its choice. A
//! policy in the API server therefore writes the token of the Secret `sluice-proof` into each Question, over whatever
//! its caller wrote. Every replica reads the Secret and accepts its two tokens.
//!
//! A policy cannot write into a Job without a trace: other webhooks, and with this webhook away the caller, would read the
//! token. So a review that asks for a verdict is proved by its path, which only the webhook configuration has, and which
//! changes with the token.
//!
//! The second token makes a rotation seamless: it is the next one until it takes the place of the first, and then the
//! last one until every API server has seen the change. So a replica always knows a token before a review carries it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{ObjectMeta, PostParams};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt as _};
use ring::hmac;
use rustls::crypto::ring::default_provider;
use subtle::ConstantTimeEq as _;
use tokio_util::sync::CancellationToken;

use super::call::{Error, within};
use crate::api::names;

/// How long a token is the one that the API server writes.
const LIFETIME: Duration = Duration::from_secs(3600);
/// How long the last token is accepted: every API server has seen the change by then.
const SETTLE: Duration = Duration::from_secs(60);
/// The longest interval between checks, in case a watch misses a change.
const INTERVAL: Duration = Duration::from_secs(15);
/// The pause after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Random bytes of a token.
const BYTES: usize = 32;

const TOKEN: &str = "token";
const OTHER: &str = "other";
const SINCE: &str = "since";
const RETIRED: &str = "retired";

/// The tokens that a review may carry.
#[derive(Clone, PartialEq, Eq)]
struct Tokens {
    /// The one that the API server writes.
    token: String,
    /// The next one, or the last one if it is retired.
    other: String,
    /// Since when `token` is written.
    since: Timestamp,
    retired: bool,
}

impl std::fmt::Debug for Tokens {
    /// Omits the tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").field("since", &self.since).finish_non_exhaustive()
    }
}

/// The tokens of the Secret as this replica knows them, shared by all clones.
#[derive(Clone, Debug, Default)]
pub struct Proof(Arc<ArcSwapOption<Tokens>>);

impl Proof {
    /// Whether this is a token of the Secret, in base64 as the API server's policies see it. The time of the answer does
    /// not depend on how much of it is right.
    #[must_use]
    pub fn accepts(&self, given: &str) -> bool {
        let tokens = self.0.load();
        let Some(tokens) = tokens.as_deref() else { return false };
        let same = |token: &String| base64(token).as_bytes().ct_eq(given.as_bytes());
        bool::from(same(&tokens.token) | same(&tokens.other))
    }

    /// Whether this is the path of a review that is asked for a verdict. It is made of a token of the Secret, and says
    /// nothing about it: more accounts may read webhook configurations than Secrets.
    #[must_use]
    pub fn accepts_path(&self, given: &str) -> bool {
        let tokens = self.0.load();
        let Some(tokens) = tokens.as_deref() else { return false };
        let same = |token: &String| path(token).as_bytes().ct_eq(given.as_bytes());
        bool::from(same(&tokens.token) | same(&tokens.other))
    }

    /// The path that the API server is to send such reviews to, where this replica knows it.
    #[must_use]
    pub fn path(&self) -> Option<String> {
        self.0.load().as_deref().map(|tokens| path(&tokens.token))
    }

    /// The token that the API server is to write, where this replica knows it.
    #[must_use]
    pub fn token(&self) -> Option<String> {
        self.0.load().as_deref().map(|tokens| tokens.token.clone())
    }

    /// Accepts this token, for tests.
    #[cfg(test)]
    pub fn of(token: &str) -> Self {
        let tokens = Tokens {
            token: token.to_owned(),
            other: fresh().expect("a token"),
            since: Timestamp::now(),
            retired: false,
        };
        Self(Arc::new(ArcSwapOption::from_pointee(tokens)))
    }
}

/// The path that a token makes.
fn path(token: &str) -> String {
    let key = hmac::Key::new(hmac::HMAC_SHA256, token.as_bytes());
    hex(hmac::sign(&key, b"verdict").as_ref())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A token as a policy reads it from the data of the Secret.
#[must_use]
pub fn base64(token: &str) -> String {
    serde_json::to_value(ByteString(token.as_bytes().to_vec()))
        .ok()
        .and_then(|value| value.as_str().map(ToOwned::to_owned))
        .unwrap_or_default()
}

/// Keeps the Secret and this replica's knowledge of it up to date until the token is cancelled.
pub async fn keep(client: Client, namespace: &str, proof: Proof, stop: CancellationToken) {
    let secrets: Api<Secret> = Api::namespaced(client, namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={}", names::PROOF));
    let changes = watcher(secrets.clone(), config).default_backoff();
    let mut changes = Box::pin(futures::StreamExt::filter_map(changes, |event| {
        std::future::ready(matches!(event, Ok(Event::Apply(_) | Event::Delete(_))).then_some(()))
    }));
    // The API server names the path of a call that failed, to its caller, and so perhaps the token. Calls fail while no
    // replica runs, so the first check replaces it.
    let mut at_start = true;
    let rounds = async {
        loop {
            let pause = match refresh(&secrets, &proof, at_start).await {
                Ok(()) => {
                    at_start = false;
                    INTERVAL
                }
                Err(error) => {
                    tracing::warn!(%error, secret = names::PROOF, "cannot check the token of Questions; retrying");
                    RETRY
                }
            };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                Some(()) = futures::StreamExt::next(&mut changes) => {}
            }
        }
    };
    stop.run_until_cancelled(rounds).await;
}

/// Reads the Secret and takes the step that is due. The loser of a race reads the winner's Secret after its change.
async fn refresh(secrets: &Api<Secret>, proof: &Proof, at_start: bool) -> Result<(), Error> {
    let secret = within(secrets.get_opt(names::PROOF)).await?;
    let stored = secret.as_ref().and_then(parse);
    let Some(next) = step(stored.as_ref(), Timestamp::now(), at_start)? else {
        proof.0.store(stored.map(Arc::new));
        return Ok(());
    };
    // The step that puts a token first takes one that every replica accepts already.
    let version = secret.and_then(|secret| secret.resource_version());
    if write(secrets, &next, version).await? {
        proof.0.store(Some(Arc::new(next)));
    }
    Ok(())
}

/// The tokens after the next step, if one is due. `early` replaces the token before its time, unless that was just done.
fn step(stored: Option<&Tokens>, now: Timestamp, early: bool) -> Result<Option<Tokens>, Error> {
    let Some(stored) = stored else {
        return Ok(Some(Tokens { token: fresh()?, other: fresh()?, since: now, retired: false }));
    };
    let age = now.duration_since(stored.since);
    let after =
        |time: Duration| age >= jiff::SignedDuration::try_from(time).unwrap_or(jiff::SignedDuration::MAX);
    Ok(if stored.retired {
        after(SETTLE).then_some(Tokens { other: fresh()?, retired: false, ..stored.clone() })
    } else {
        (early || after(LIFETIME)).then(|| Tokens {
            token: stored.other.clone(),
            other: stored.token.clone(),
            since: now,
            retired: true,
        })
    })
}

/// A new token.
fn fresh() -> Result<String, Error> {
    let mut bytes = [0_u8; BYTES];
    let filled = default_provider().secure_random.fill(&mut bytes);
    filled.map_err(|_| Error::Secret("the system has no random numbers".to_owned()))?;
    Ok(hex(&bytes))
}

fn parse(secret: &Secret) -> Option<Tokens> {
    let data = secret.data.as_ref()?;
    let text = |key: &str| String::from_utf8(data.get(key)?.0.clone()).ok();
    let long = |token: &String| token.len() >= BYTES;
    Some(Tokens {
        token: text(TOKEN).filter(long)?,
        other: text(OTHER).filter(long)?,
        since: text(SINCE)?.parse().ok()?,
        retired: text(RETIRED)? == "true",
    })
}

/// Writes the Secret unless it has changed since it was read; returns true if it was written.
async fn write(secrets: &Api<Secret>, tokens: &Tokens, version: Option<String>) -> Result<bool, Error> {
    let data = [
        (TOKEN, tokens.token.clone()),
        (OTHER, tokens.other.clone()),
        (SINCE, tokens.since.to_string()),
        (RETIRED, tokens.retired.to_string()),
    ];
    let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
    let metadata = ObjectMeta {
        name: Some(names::PROOF.to_owned()),
        resource_version: version.clone(),
        ..ObjectMeta::default()
    };
    let secret = Secret { metadata, data: Some(BTreeMap::from(data)), ..Secret::default() };
    let params = PostParams { field_manager: Some(names::FIELD_MANAGER.to_owned()), ..PostParams::default() };
    let written = match version {
        Some(_) => within(secrets.replace(names::PROOF, &params, &secret)).await,
        None => within(secrets.create(&params, &secret)).await,
    };
    match written {
        Ok(_) => Ok(true),
        Err(Error::Api(kube::Error::Api(status))) if status.is_conflict() || status.is_already_exists() => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_accepted_before_it_is_written_and_for_a_while_after() {
        let start = Timestamp::from_second(1_800_000_000).expect("a time");
        let at = |time: Duration| start.checked_add(time).expect("a time");
        let first = step(None, start, false).expect("random numbers").expect("nothing is stored");
        assert_eq!(step(Some(&first), at(LIFETIME / 2), false).expect("random numbers"), None);
        let second = step(Some(&first), at(LIFETIME), false).expect("random numbers").expect("it is due");
        assert_eq!((&second.token, &second.other), (&first.other, &first.token));
        let early = step(Some(&first), start, true).expect("random numbers").expect("it is asked for");
        assert_eq!(early.token, first.other);
        assert_eq!(step(Some(&early), start, true).expect("random numbers"), None, "once is enough");
        assert_eq!(step(Some(&second), at(LIFETIME + SETTLE / 2), false).expect("random numbers"), None);
        let third =
            step(Some(&second), at(LIFETIME + SETTLE), false).expect("random numbers").expect("it is due");
        assert_eq!(third.token, second.token);
        assert!(![&first.token, &first.other].contains(&&third.other), "the next one is new");
        for (known, written) in [(&first, &first), (&first, &second), (&second, &first), (&second, &third)] {
            let proof = Proof(Arc::new(ArcSwapOption::from_pointee(known.clone())));
            assert!(proof.accepts(&base64(&written.token)));
            assert!(proof.accepts_path(&path(&written.token)));
            assert!(!proof.accepts_path(&written.token) && !proof.accepts(&path(&written.token)));
        }
        let proof = Proof(Arc::new(ArcSwapOption::from_pointee(third)));
        assert!(!proof.accepts(&base64(&first.token)), "a rotated token is worth nothing");
        assert!(!proof.accepts_path(&path(&first.token)), "nor is its path");
        assert!(!proof.accepts("") && !Proof::default().accepts(""));
        assert!(!proof.accepts_path("") && !Proof::default().accepts_path(""));
    }

    #[test]
    fn a_secret_of_another_form_is_replaced() {
        let secret = |token: &str| Secret {
            data: Some(
                [(TOKEN, token), (OTHER, token), (SINCE, "2026-11-24T10:00:00Z"), (RETIRED, "false")]
                    .map(|(key, text)| (key.to_owned(), ByteString(text.as_bytes().to_vec())))
                    .into(),
            ),
            ..Secret::default()
        };
        assert!(parse(&secret(&fresh().expect("random numbers"))).is_some());
        assert!(parse(&secret("")).is_none(), "an empty token would let every review in");
        assert!(parse(&Secret::default()).is_none());
    }
}
