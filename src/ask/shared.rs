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

/// The place of a listing in the map.
#[derive(Clone, Debug, Default)]
struct Kept {
    place: Place,
    bytes: usize,
    /// Until when the listing is used; `None` while there is none yet.
    until: Option<Instant>,
}

/// The listings of a replica.
#[derive(Clone, Debug, Default)]
pub struct Shared {
    places: Arc<Mutex<HashMap<String, Kept>>>,
}

impl Shared {
    /// The listing of a question, if it is new enough, else the one that `make` makes. `make` gets the last one, if that is kept.
    ///
    /// # Errors
    /// Those of `make`.
    pub async fn get<E, F: Future<Output = Result<Made, E>>>(
        &self,
        key: String,
        make: impl FnOnce(Option<Arc<Listing>>) -> F,
    ) -> Result<Arc<Listing>, E> {
        let place = Arc::clone(&self.places().entry(key.clone()).or_default().place);
        let mut last = place.lock().await;
        if let Some((made, until)) = &*last
            && Instant::now() < *until
        {
            return Ok(Arc::clone(&made.listing));
        }
        let before = last.take().map(|(made, _)| made.listing);
        let made = match make(before).await {
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
        let place = self.places().get(key).map(|kept| Arc::clone(&kept.place))?;
        let last = place.try_lock().ok()?;
        last.as_ref().filter(|(_, until)| Instant::now() < *until).map(|(made, _)| Arc::clone(&made.listing))
    }

    fn places(&self) -> std::sync::MutexGuard<'_, HashMap<String, Kept>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a listing while it is used, and then for [`LONGEST`], so that the next one can take rows from it. Where there is no room for
    /// all, those go first that are not used any more.
    fn keep(&self, key: String, place: Place, bytes: usize, valid: Duration) {
        let (now, mut dropped) = (Instant::now(), Vec::new());
        let mut places = self.places();
        dropped.extend(places.remove(&key));
        let is_full = |places: &HashMap<String, Kept>| {
            let total: usize = places.values().map(|kept| kept.bytes).sum();
            total + bytes > MOST_BYTES || places.len() >= MOST_KEPT
        };
        if is_full(&places) {
            let expired = places.extract_if(|_, kept| kept.until.is_some_and(|until| until <= now));
            dropped.extend(expired.map(|(_, kept)| kept));
        }
        if is_full(&places) {
            dropped.extend(places.drain().map(|(_, kept)| kept));
        }
        // A listing that is dropped for want of room does not stay until its time is over.
        let weak = Arc::downgrade(&place);
        places.insert(key.clone(), Kept { place, bytes, until: Some(now + valid) });
        drop(places);
        // Large listings take long to free, so not under the lock.
        drop(dropped);
        let places = Arc::clone(&self.places);
        tokio::spawn(async move {
            sleep(valid + LONGEST).await;
            let Some(place) = weak.upgrade() else { return };
            // A newer listing of the same place has a task of its own.
            let expired = place
                .try_lock()
                .is_ok_and(|last| last.as_ref().is_none_or(|(_, until)| *until + LONGEST <= Instant::now()));
            let mut places = places.lock().unwrap_or_else(PoisonError::into_inner);
            if expired && places.get(&key).is_some_and(|kept| Arc::ptr_eq(&kept.place, &place)) {
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
        let had_last = Cell::new(false);
        let ask = async |key: &str, cost| {
            let make = |before: Option<Arc<Listing>>| {
                had_last.set(before.is_some());
                count.set(count.get() + 1);
                async move { made(cost) }
            };
            shared.get(key.to_owned(), make).await.expect("it is made");
            count.get()
        };
        assert_eq!((ask("a", 50).await, ask("a", 50).await, ask("b", 1).await), (1, 1, 2));
        assert!(!had_last.get());
        sleep(Duration::from_millis(2_400)).await;
        assert!(shared.fresh("a").is_some() && shared.fresh("b").is_none());
        assert_eq!((ask("a", 50).await, ask("b", 1).await), (2, 3));
        sleep(Duration::from_millis(200)).await;
        assert!(shared.fresh("a").is_none());
        had_last.set(false);
        assert_eq!((ask("a", 10_000).await, ask("a", 10_000).await), (4, 4));
        assert!(had_last.get(), "the next one has the last one");
        sleep(2 * LONGEST).await;
        tokio::task::yield_now().await;
        assert!(shared.places().is_empty(), "what is not used any more goes");
        ask("a", 1).await;
        assert!(!had_last.get());
    }

    #[tokio::test(start_paused = true)]
    async fn where_there_is_no_room_listings_go_that_are_not_used_any_more_and_are_freed_at_once() {
        let shared = Shared::default();
        let ask = async |key: String, cost| {
            let listing = shared.get(key, |_| async move { made(cost) }).await;
            Arc::downgrade(&listing.expect("it is made"))
        };
        let used = ask("used".to_owned(), 1_000).await;
        let expired = ask("expired".to_owned(), 1).await;
        sleep(Duration::from_millis(100)).await;
        for at in 2..MOST_KEPT {
            ask(at.to_string(), 1_000).await;
        }
        assert!(expired.upgrade().is_some(), "there is room for all");
        ask("used".to_owned(), 1_000).await;
        assert!(expired.upgrade().is_some(), "nothing more to keep");
        ask("more".to_owned(), 1_000).await;
        assert!(expired.upgrade().is_none() && used.upgrade().is_some());
        assert_eq!(shared.places().len(), MOST_KEPT);
        ask("too many".to_owned(), 1_000).await;
        assert_eq!((shared.places().len(), used.upgrade().is_some()), (1, false));
    }

    #[tokio::test(start_paused = true)]
    async fn questions_at_once_share_one_listing_and_a_refusal_is_not_kept() {
        let (shared, count) = (Shared::default(), Cell::new(0));
        let ask = || {
            shared.get("a".to_owned(), |_| async {
                count.set(count.get() + 1);
                sleep(Duration::from_millis(50)).await;
                made(50)
            })
        };
        let (one, other) = tokio::join!(ask(), ask());
        assert!(Arc::ptr_eq(&one.expect("made"), &other.expect("made")));
        assert_eq!(count.get(), 1);
        let refused = shared.get("b".to_owned(), |_| async { Err("later") }).await;
        assert_eq!(refused.expect_err("refused"), "later");
        assert!(shared.get("b".to_owned(), |_| async { made(1) }).await.is_ok());
    }
}
