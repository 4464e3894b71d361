//! Bodies of reviews, read and decoded within a fixed amount of memory.
//!
//! A body of 7 MiB may decode into 30 times as much, and the API server sends as many at once as there are users. So
//! the text and the decoded objects of large bodies are taken from budgets, and a body waits for its part. What an object
//! would cost decoded is estimated from its text alone, before anything is decoded.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, BodyDataStream};
use axum::extract::Request as HttpRequest;
use axum::http::header;
use futures::StreamExt;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use super::review::{Request, ReviewRequest};

/// The largest body in bytes. The API server accepts objects of 3 MiB; an update carries two, with the envelope.
pub const BODY_LIMIT: usize = 7 << 20;
/// The bytes of a body that are read first: they have everything but the objects.
const HEAD: usize = 16 << 10;
/// A body up to this size takes no part of the budgets: most are a few KiB, and must not wait behind large ones.
const SMALL: usize = 64 << 10;
/// The text of all large bodies at once, in KiB.
const TEXT_BUDGET: usize = 2 * (BODY_LIMIT >> 10);
/// What one object may cost decoded, in bytes: some 20,000 JSON maps, or 200,000 short texts.
const OBJECT_LIMIT: usize = 16 << 20;
/// All decoded large bodies at once, in KiB: the objects of one update at their limit, and the copy that is edited.
const DECODED_BUDGET: usize = 3 * (OBJECT_LIMIT >> 10);
/// How much of a body above the limit is read and dropped, so that its sender reads the answer.
const DRAIN: usize = 64 << 20;
/// The wait for the parts of the budgets; the API server waits longer.
const PATIENCE: Duration = Duration::from_millis(1500);

/// The memory that all bodies share.
#[derive(Clone, Debug)]
pub struct Budget {
    text: Arc<Semaphore>,
    decoded: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        let of = |kib| Arc::new(Semaphore::new(kib));
        Self { text: of(TEXT_BUDGET), decoded: of(DECODED_BUDGET) }
    }
}

/// A body, with its part of the budgets.
#[derive(Debug)]
pub struct Read {
    /// Its bytes.
    pub bytes: Vec<u8>,
    _text: Option<OwnedSemaphorePermit>,
    _decoded: Option<OwnedSemaphorePermit>,
}

/// Why a body is not decoded, with the identifier of its request.
#[derive(Debug, PartialEq, Eq)]
pub enum Unread {
    /// It is larger than [`BODY_LIMIT`].
    TooLarge(String),
    /// Too many large bodies are being answered.
    Busy(String),
    /// A new or growing object would take too much memory.
    TooComplex(String),
    /// An object that was as complex before is changed; the policies in the API server judge it.
    Unjudged(String),
    /// A new object cannot be decoded, for this reason: it is nested too deeply. Nor can anything then judge it.
    Undecoded(String, String),
    /// It ended early, or is no review.
    Broken(String, String),
}

/// Reads the body of a request.
///
/// # Errors
/// Why it is not to be decoded.
pub async fn of(request: HttpRequest, budget: &Budget) -> Result<Read, Unread> {
    let length = request.headers().get(header::CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    read(request.into_body(), length, budget).await
}

/// Reads and decodes the review in a request. Its share of the budget is held with the text.
///
/// # Errors
/// Why there is none.
pub async fn review(request: HttpRequest, budget: &Budget) -> Result<(Request, Read), Unread> {
    let read = of(request, budget).await?;
    match serde_json::from_slice::<ReviewRequest>(&read.bytes) {
        Ok(review) => Ok((review.request, read)),
        Err(error) => Err(undecoded(&read.bytes, &error)),
    }
}

/// Reads a body of this length, if it states one.
///
/// # Errors
/// Why it is not to be decoded.
pub async fn read(body: Body, length: Option<usize>, budget: &Budget) -> Result<Read, Unread> {
    let until = Instant::now() + PATIENCE;
    let mut stream = body.into_data_stream();
    let mut bytes = Vec::new();
    let ended = append(&mut stream, &mut bytes, HEAD).await?;
    let length = if ended { bytes.len() } else { length.unwrap_or(BODY_LIMIT).max(bytes.len()) };

    if length > BODY_LIMIT {
        drain(&mut stream).await;
        return Err(Unread::TooLarge(uid(&bytes)));
    }
    let text = part(&budget.text, if length > SMALL { length } else { 0 }, until)
        .await
        .ok_or_else(|| Unread::Busy(uid(&bytes)))?;
    if !ended {
        bytes.reserve_exact(length.saturating_sub(bytes.len()));
        if !append(&mut stream, &mut bytes, BODY_LIMIT).await? {
            drain(&mut stream).await;
            return Err(Unread::TooLarge(uid(&bytes)));
        }
    }
    let decoded = if bytes.len() > SMALL { judge(&bytes)? } else { 0 };
    let decoded = part(&budget.decoded, decoded, until).await.ok_or_else(|| Unread::Busy(uid(&bytes)))?;
    Ok(Read { bytes, _text: text, _decoded: decoded })
}

/// A part of a budget, in bytes; `None` inside if nothing is needed, outside if none is free for too long.
async fn part(budget: &Arc<Semaphore>, bytes: usize, until: Instant) -> Option<Option<OwnedSemaphorePermit>> {
    if bytes == 0 {
        return Some(None);
    }
    let kib = u32::try_from(bytes.div_ceil(1 << 10)).ok()?;
    timeout_at(until, Arc::clone(budget).acquire_many_owned(kib)).await.ok()?.ok().map(Some)
}

/// Appends until the body ends, which is true, or more than `most` bytes are there.
async fn append(stream: &mut BodyDataStream, bytes: &mut Vec<u8>, most: usize) -> Result<bool, Unread> {
    while bytes.len() <= most {
        match stream.next().await {
            None => return Ok(true),
            Some(Ok(chunk)) => bytes.extend_from_slice(&chunk),
            Some(Err(error)) => {
                return Err(Unread::Broken(uid(bytes), format!("the review ended early: {error}")));
            }
        }
    }
    Ok(false)
}

async fn drain(stream: &mut BodyDataStream) {
    let mut dropped = 0;
    while let Some(Ok(chunk)) = stream.next().await {
        dropped += chunk.len();
        if dropped > DRAIN {
            return;
        }
    }
}

/// A review with objects that stay text.
#[derive(Deserialize)]
struct Outline<'a> {
    #[serde(borrow)]
    request: OutlineRequest<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct OutlineRequest<'a> {
    uid: String,
    #[serde(borrow)]
    object: Option<&'a RawValue>,
    #[serde(borrow)]
    old_object: Option<&'a RawValue>,
}

/// What a large body costs decoded.
fn judge(bytes: &[u8]) -> Result<usize, Unread> {
    // A malformed body costs no more than its decoding up to the mistake, and gets its answer there.
    let Ok(Outline { request }) = serde_json::from_slice::<Outline<'_>>(bytes) else {
        return Ok(cost(bytes).min(2 * OBJECT_LIMIT));
    };
    let of = |object: Option<&RawValue>| object.map_or(0, |text| cost(text.get().as_bytes()));
    let (new, old) = (of(request.object), of(request.old_object));
    match new.max(old) > OBJECT_LIMIT {
        true if new > old => Err(Unread::TooComplex(request.uid)),
        true => Err(Unread::Unjudged(request.uid)),
        // Edits are made on a copy of the new object.
        false => Ok(new + new + old),
    }
}

/// Why a body is not decoded after all. The API server takes an answer for another request as none, and then lets the
/// object pass.
pub fn undecoded(bytes: &[u8], error: &serde_json::Error) -> Unread {
    let broken = || Unread::Broken(uid(bytes), format!("not an admission review: {error}"));
    let Ok(Outline { request }) = serde_json::from_slice::<Outline<'_>>(bytes) else { return broken() };
    let problem = |object: Option<&RawValue>| serde_json::from_str::<serde_json::Value>(object?.get()).err();
    match (problem(request.object), problem(request.old_object)) {
        (_, Some(_)) => Unread::Unjudged(request.uid),
        (Some(problem), None) => Unread::Undecoded(request.uid, problem.to_string()),
        (None, None) => broken(),
    }
}

/// An estimate of the memory that JSON takes decoded: a map has a node of a tree for up to 11 fields.
fn cost(text: &[u8]) -> usize {
    let (mut inside, mut escaped, mut total) = (false, false, text.len());
    for byte in text {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if inside => escaped = true,
            b'"' => inside = !inside,
            _ if inside => {}
            b'{' => total += 640,
            b'[' => total += 96,
            b',' => total += 80,
            _ => {}
        }
    }
    total
}

/// The identifier of a request, from the start of its review; the API server writes it first.
fn uid(head: &[u8]) -> String {
    let text = String::from_utf8_lossy(&head[..head.len().min(HEAD)]);
    let request = text.split_once("\"request\"").map_or("", |(_, rest)| rest);
    let value = request.split_once("\"uid\"").map_or("", |(_, rest)| rest).trim_start();
    let quoted =
        value.strip_prefix(':').unwrap_or_default().trim_start().strip_prefix('"').unwrap_or_default();
    quoted.split_once('"').map_or(String::new(), |(uid, _)| uid.to_owned())
}

#[cfg(test)]
mod tests;
