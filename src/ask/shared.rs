//! Rows of answers, shared for a moment among questions that ask for the same.
//!
//! What one listing costs bounds how often it is made: the decision loop and the processor have a small part of their time
//! to give, however many questions there are. Pages of one listing fit each other.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Mutex as AsyncMutex;
use tokio::time::{Instant, sleep};

use super::page::Listing;

/// How long a listing is used as a multiple of its cost.
const VALIDITY: u32 = 50;
/// The longest use of a listing.
const LONGEST: Duration = Duration::from_secs(5);
/// The most bytes of listings that are kept; the newest is kept in any case.
const MOST_BYTES: usize = 64 << 20;
/// The most listings that are kept.
const MOST_KEPT: usize = 256;

/// A listing with what it cost to make.
#[derive(Clone, Debug)]
pub struct Made {
    /// The listing.
    pub listing: Arc<Listing>,
    /// The time of loop and threads for it.
    pub cost: Duration,
}

/// The listing of one question. Its lock is held while it is made, so that it is made once.
type Place = Arc<AsyncMutex<Option<(Made, Instant)>>>;

/// The listings of a replica.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    places: Arc<Mutex<HashMap<String, (Place, usize)>>>,
}

impl Shared {
    /// The listing of a question, if it is new enough, else the one that `make` makes.
    ///
    /// # Errors
    /// Those of `make`.
    pub async fn get<E>(
        &self,
        key: String,
        make: impl Future<Output = Result<Made, E>>,
    ) -> Result<Arc<Listing>, E> {
        let place = Arc::clone(&self.places().entry(key.clone()).or_default().0);
        let mut last = place.lock().await;
        if let Some((made, until)) = &*last
            && Instant::now() < *until
        {
            return Ok(Arc::clone(&made.listing));
        }
        *last = None;
        let made = match make.await {
            Ok(made) => made,
            Err(error) => {
                self.places().remove(&key);
                return Err(error);
            }
        };
        let valid = made.cost.saturating_mul(VALIDITY).min(LONGEST);
        let listing = Arc::clone(&made.listing);
        *last = Some((made, Instant::now() + valid));
        drop(last);
        self.keep(key, place, listing.bytes(), valid);
        Ok(listing)
    }

    /// The listing of a question, if there is one that is new enough.
    pub fn fresh(&self, key: &str) -> Option<Arc<Listing>> {
        let place = self.places().get(key).map(|(place, _)| Arc::clone(place))?;
        let last = place.try_lock().ok()?;
        last.as_ref().filter(|(_, until)| Instant::now() < *until).map(|(made, _)| Arc::clone(&made.listing))
    }

    /// The last listing of a question, however old, if it is kept: the next one takes most of its rows from there.
    pub fn last(&self, key: &str) -> Option<Arc<Listing>> {
        let place = self.places().get(key).map(|(place, _)| Arc::clone(place))?;
        let last = place.try_lock().ok()?;
        last.as_ref().map(|(made, _)| Arc::clone(&made.listing))
    }

    fn places(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Place, usize)>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a listing while it is valid, and then for [`LONGEST`], so that the next one can take rows from it; and as few others as
    /// there is room for.
    fn keep(&self, key: String, place: Place, bytes: usize, valid: Duration) {
        let mut places = self.places();
        let total: usize = places.values().map(|(_, bytes)| bytes).sum();
        if total + bytes > MOST_BYTES || places.len() > MOST_KEPT {
            places.clear();
        }
        places.insert(key.clone(), (Arc::clone(&place), bytes));
        drop(places);
        let places = Arc::clone(&self.places);
        tokio::spawn(async move {
            sleep(valid + LONGEST).await;
            // A newer listing of the same place has a task of its own.
            let expired = place
                .try_lock()
                .is_ok_and(|last| last.as_ref().is_none_or(|(_, until)| *until + LONGEST <= Instant::now()));
            let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
            if expired && places.get(&key).is_some_and(|(kept, _)| Arc::ptr_eq(kept, &place)) {
                places.remove(&key);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::ask::page::Keyed;

    fn made(cost: u64) -> Result<Made, &'static str> {
        let rows = vec![Keyed { key: "1".to_owned(), row: "x" }];
        let listing = Listing::new(rows).expect("JSON");
        Ok(Made { listing: Arc::new(listing), cost: Duration::from_millis(cost) })
    }

    #[tokio::test(start_paused = true)]
    async fn the_more_a_listing_costs_the_longer_it_is_used() {
        let (shared, count) = (Shared::default(), Cell::new(0));
        let ask = async |key: &str, cost| {
            let make = async {
                count.set(count.get() + 1);
                made(cost)
            };
            shared.get(key.to_owned(), make).await.expect("it is made");
            count.get()
        };
        assert_eq!((ask("a", 100).await, ask("a", 100).await, ask("b", 1).await), (1, 1, 2));
        sleep(Duration::from_millis(4_900)).await;
        assert!(shared.fresh("a").is_some() && shared.fresh("b").is_none() && shared.fresh("c").is_none());
        assert_eq!((ask("a", 100).await, ask("b", 1).await), (2, 3));
        sleep(Duration::from_millis(200)).await;
        assert!(shared.fresh("a").is_none());
        assert!(shared.last("a").is_some() && shared.last("c").is_none(), "for the next one");
        assert_eq!((ask("a", 10_000).await, ask("a", 10_000).await), (4, 4));
        sleep(2 * LONGEST).await;
        tokio::task::yield_now().await;
        assert!(shared.places().is_empty(), "what is not used any more goes");
    }

    #[tokio::test(start_paused = true)]
    async fn questions_at_once_share_one_listing_and_a_refusal_is_not_kept() {
        let (shared, count) = (Shared::default(), Cell::new(0));
        let ask = || {
            shared.get("a".to_owned(), async {
                count.set(count.get() + 1);
                sleep(Duration::from_millis(50)).await;
                made(50)
            })
        };
        let (one, other) = tokio::join!(ask(), ask());
        assert!(Arc::ptr_eq(&one.expect("made"), &other.expect("made")));
        assert_eq!(count.get(), 1);
        let refused = shared.get("b".to_owned(), async { Err("later") }).await;
        assert_eq!(refused.expect_err("refused"), "later");
        assert!(shared.get("b".to_owned(), async { made(1) }).await.is_ok());
    }
}
