//! The address at which the API server calls a replica's webhook.

use std::time::Duration;

use axum::http::Uri;

/// The interval between checks of leadership.
const LEADERSHIP_CHECK: Duration = Duration::from_millis(200);

/// The URL of this replica's webhook, if it is not called through its Service, and whether this replica leads.
pub struct Address {
    url: Option<String>,
    leads: Box<dyn Fn() -> bool + Send + Sync>,
}

impl Address {
    /// The address of a replica with this URL; `leads` returns whether the replica leads.
    pub fn new(url: Option<&Uri>, leads: impl Fn() -> bool + Send + Sync + 'static) -> Self {
        let url = url.map(|url| url.to_string().trim_end_matches('/').to_owned());
        Self { url, leads: Box::new(leads) }
    }

    /// The URL to announce; `None` unless this replica leads.
    pub fn to_announce(&self) -> Option<String> {
        self.url.clone().filter(|_| (self.leads)())
    }

    /// Waits until the URL to announce differs from `last`; forever if this replica has no URL.
    pub async fn changed(&self, last: Option<&str>) {
        if self.url.is_none() {
            return std::future::pending().await;
        }
        while self.to_announce().as_deref() == last {
            tokio::time::sleep(LEADERSHIP_CHECK).await;
        }
    }
}
