//! Pages as they are sent, shared for a moment among viewers with the same rights: however many look at a page, it is drawn
//! and compressed once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{ACCEPT_ENCODING, ETAG, IF_NONE_MATCH};
use axum::http::response::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use tokio::time::Instant;

use super::access::Viewer;
use super::page::{EVERY, PART};

/// The most bytes of kept pages, and of one page.
const MOST_BYTES: usize = 64 << 20;
/// The most pages that are kept.
const MOST_KEPT: usize = 1_024;
/// How long a page is used at least.
const SHORTEST: Duration = Duration::from_secs(1);

/// Viewer, address, and the headers on which a page depends.
type Key = ([u8; 32], String, [Option<HeaderValue>; 2]);

/// A page as it was sent.
struct Kept {
    version: HeaderValue,
    headers: HeaderMap,
    body: Bytes,
    until: Instant,
}

/// The place of one page. Its lock is held while the page is drawn, so that it is drawn once.
type Place = Arc<tokio::sync::Mutex<Option<Kept>>>;

/// The pages.
#[derive(Default)]
pub struct Pages {
    places: Mutex<HashMap<Key, (Place, usize)>>,
}

impl Pages {
    fn place(&self, key: Key) -> Place {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes: usize = places.values().map(|(_, bytes)| bytes).sum();
        if bytes > MOST_BYTES || places.len() >= MOST_KEPT {
            places.clear();
        }
        Arc::clone(&places.entry(key).or_default().0)
    }

    fn weigh(&self, key: &Key, bytes: usize) {
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, weight)) = places.get_mut(key) {
            *weight = bytes;
        }
    }
}

/// Answers with the page that was sent a moment ago, else draws it.
pub async fn share(State(pages): State<Arc<Pages>>, request: Request, next: Next) -> Response {
    let viewer = request.extensions().get::<Viewer>().map(|viewer| viewer.key);
    let Some(viewer) = viewer.filter(|_| *request.method() == Method::GET) else {
        return next.run(request).await;
    };
    let [part, known, encoding] =
        [PART, IF_NONE_MATCH, ACCEPT_ENCODING].map(|name| request.headers().get(name).cloned());
    let key = (viewer, request.uri().to_string(), [part.clone(), encoding]);
    let place = pages.place(key.clone());
    let mut kept = place.lock().await;
    if let Some(page) = kept.as_ref().filter(|page| Instant::now() < page.until) {
        if part.is_some() && known.as_ref() == Some(&page.version) {
            let headers = [ETAG, EVERY].into_iter().filter_map(|name| {
                let value = page.headers.get(&name)?.clone();
                Some((name, value))
            });
            return (StatusCode::NOT_MODIFIED, headers.collect::<HeaderMap>()).into_response();
        }
        return (page.headers.clone(), page.body.clone()).into_response();
    }
    let (Parts { status, headers, .. }, body) = next.run(request).await.into_parts();
    let every = headers.get(&EVERY).and_then(|every| every.to_str().ok()?.parse().ok());
    let until = Instant::now() + (Duration::from_millis(every.unwrap_or(0)) / 2).max(SHORTEST);
    let version = headers.get(ETAG).cloned();
    match (status, version, kept.as_mut()) {
        (StatusCode::OK, Some(version), _) => {
            let Ok(body) = to_bytes(body, MOST_BYTES).await else {
                return StatusCode::INTERNAL_SERVER_ERROR.into_response();
            };
            *kept = Some(Kept { version, headers: headers.clone(), body: body.clone(), until });
            drop(kept);
            pages.weigh(&key, body.len());
            (headers, body).into_response()
        }
        (StatusCode::NOT_MODIFIED, Some(version), Some(page)) if page.version == version => {
            page.until = until;
            (status, headers).into_response()
        }
        _ => {
            *kept = None;
            (status, headers, Body::new(body)).into_response()
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::Router;
    use axum::middleware::{from_fn, from_fn_with_state};
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::*;

    /// Puts the viewer of a header into the request.
    async fn known(mut request: Request, next: Next) -> Response {
        let key = request.headers().get("viewer").map_or(0, |viewer| viewer.as_bytes()[0]);
        request.extensions_mut().insert(Viewer { bearer: None, key: [key; 32] });
        next.run(request).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_is_drawn_once_for_all_viewers_with_the_same_rights() {
        let drawn = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&drawn);
        let page = move || async move {
            let number = count.fetch_add(1, Ordering::Relaxed);
            ([(ETAG, "\"1\"".to_owned()), (EVERY, "4000".to_owned())], format!("page {number}"))
        };
        let router = Router::new()
            .route("/all/", get(page))
            .layer(from_fn_with_state(Arc::new(Pages::default()), share))
            .layer(from_fn(known));
        let ask = async |viewer: &str, version: &str| {
            let request = axum::http::Request::get("/all/").header("viewer", viewer);
            let request = request.header(PART, "main").header(IF_NONE_MATCH, version);
            let response = router.clone().oneshot(request.body(Body::empty()).expect("a request")).await;
            let response = response.expect("infallible");
            let status = response.status().as_u16();
            let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            (status, String::from_utf8_lossy(&body).into_owned())
        };
        for _ in 0..200 {
            assert_eq!(ask("a", "").await, (200, "page 0".to_owned()));
        }
        assert_eq!(ask("a", "\"1\"").await, (304, String::new()));
        assert_eq!(ask("b", "").await, (200, "page 1".to_owned()), "other rights");
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(
            ask("a", "\"0\"").await,
            (200, "page 2".to_owned()),
            "after half of the time between looks"
        );
        assert_eq!(drawn.load(Ordering::Relaxed), 3);
    }
}
