//! Times from the loss of a leader until a replica renews the Lease again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};
use sluice::api::names;

/// The longest time that is waited for.
const LONGEST: Duration = Duration::from_secs(60);

/// The measured times.
pub struct TakeOvers {
    leases: Api<Lease>,
    times: Arc<Mutex<Vec<Duration>>>,
}

impl TakeOvers {
    pub fn new(client: Client) -> Self {
        Self { leases: Api::namespaced(client, names::NAMESPACE), times: Arc::default() }
    }

    /// The holder of the Lease.
    pub async fn leader(&self) -> Option<String> {
        self.leases.get(names::NAME).await.ok()?.spec?.holder_identity
    }

    /// Measures from now on until the Lease is renewed.
    pub fn watch(&self) {
        let (leases, times) = (self.leases.clone(), Arc::clone(&self.times));
        // A renewal that was on its way when the leader was lost does not count.
        let (began, lost) = (Instant::now(), Timestamp::now() + Duration::from_secs(1));
        tokio::spawn(async move {
            while began.elapsed() < LONGEST {
                tokio::time::sleep(Duration::from_millis(100)).await;
                let Ok(lease) = leases.get(names::NAME).await else { continue };
                if lease.spec.and_then(|spec| spec.renew_time).is_some_and(|renewed| renewed.0 > lost) {
                    break;
                }
            }
            times.lock().unwrap_or_else(PoisonError::into_inner).push(began.elapsed());
        });
    }

    /// The median and the longest time, and how many.
    pub fn summary(&self) -> String {
        let mut times = self.times.lock().unwrap_or_else(PoisonError::into_inner).clone();
        times.sort_unstable();
        match (times.get(times.len() / 2), times.last()) {
            (Some(median), Some(longest)) => {
                format!("{} take-overs: median {median:.1?}, longest {longest:.1?}", times.len())
            }
            _ => "no take-over".to_owned(),
        }
    }
}
