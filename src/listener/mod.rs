//! The connections of both ports, bounded in number and in time, so that no peer can use up the memory of Sluice or
//! keep others out by being slow.
//!
//! A connection ends when its first request takes too long to arrive, headers included, and later when no request is in
//! work for too long. The handlers bound the time of a request. At the cap, a new connection takes the place of the
//! oldest one without a request in work, those that never had one first: peers that only hold connections keep neither
//! the API server nor the probes of the kubelet out.

use std::collections::VecDeque;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum_server::accept::Accept;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tower::Service;

/// The time for a connection to end after the decision, while the process goes on.
const FAREWELL: Duration = Duration::from_secs(1);
/// The time between two looks for a place while every connection has a request in work.
const CROWDED: Duration = Duration::from_millis(50);
/// The pause after a failure to accept, such as a lack of file descriptors.
const RETRY: Duration = Duration::from_millis(200);

/// The bounds of a port.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The most open connections.
    pub connections: usize,
    /// The longest time from the acceptance of a connection to its first complete request header.
    pub first: Duration,
    /// The longest time without a request in work.
    pub idle: Duration,
    /// The longest time for open requests to finish at shutdown.
    pub drain: Duration,
}

/// Serves the routes on the connections of this listener until the token is cancelled, then lets open requests finish.
///
/// `acceptor` makes the stream of a connection: TLS or plain.
pub async fn serve<A>(
    listener: TcpListener,
    acceptor: A,
    router: Router,
    limits: Limits,
    stop: CancellationToken,
) where
    A: Accept<TcpStream, (), Service = ()> + Clone + Send + Sync + 'static,
    A::Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    A::Future: Send,
{
    let mut places = Places::new(limits.connections);
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let stream = accepted(&listener).await;
            (stream, places.take().await)
        };
        let Some((stream, place)) = stop.run_until_cancelled(next).await else { break };
        // Results of ended connections would accumulate.
        while connections.try_join_next().is_some() {}
        let (tracker, requests) = watch::channel(Requests { open: 0, any: false, since: Instant::now() });
        let cut = CancellationToken::new();
        places.held.push_back(Held { requests: requests.clone(), cut: cut.clone() });
        let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
        connections.spawn(async move {
            let _place = place;
            let serve = async {
                let handshake = timeout(limits.first, acceptor.accept(stream, ())).await;
                let Ok(Ok((stream, ()))) = handshake else { return };
                let service = Tracked { router, tracker: Arc::new(tracker) };
                connection(stream, service, requests, limits, &stop).await;
            };
            cut.run_until_cancelled(serve).await;
        });
    }
    drop(listener);
    let _ = timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await;
}

/// The places of a port.
struct Places {
    free: Arc<Semaphore>,
    most: usize,
    /// The connections in the order of their acceptance; some may have ended.
    held: VecDeque<Held>,
}

/// A connection as the others see it.
struct Held {
    requests: watch::Receiver<Requests>,
    /// Ends it.
    cut: CancellationToken,
}

impl Places {
    fn new(most: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(most)), most, held: VecDeque::new() }
    }

    /// A free place, if need be that of a connection without a request in work.
    async fn take(&mut self) -> Option<OwnedSemaphorePermit> {
        if self.held.len() >= self.most.saturating_mul(2) {
            self.forget_ended();
        }
        loop {
            if let Ok(place) = Arc::clone(&self.free).try_acquire_owned() {
                return Some(place);
            }
            self.make_room();
            let freed = Arc::clone(&self.free).acquire_owned();
            // If every connection had a request in work, one may be idle a moment later.
            if let Ok(place) = timeout(CROWDED, freed).await {
                return place.ok();
            }
        }
    }

    fn make_room(&mut self) {
        self.forget_ended();
        let unused = |held: &Held| held.requests.borrow().open == 0;
        let never_used = |held: &Held| unused(held) && !held.requests.borrow().any;
        let oldest = self.held.iter().position(never_used).or_else(|| self.held.iter().position(unused));
        if let Some(held) = oldest.and_then(|oldest| self.held.remove(oldest)) {
            held.cut.cancel();
        }
    }

    fn forget_ended(&mut self) {
        self.held.retain(|held| held.requests.has_changed().is_ok());
    }
}

/// The next connection. Failures to accept are retried: they end by themselves, or with the process.
async fn accepted(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are small, and the API server waits for each.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; retrying");
                sleep(RETRY).await;
            }
        }
    }
}

/// Serves one connection until its peer closes it, a bound is reached, or the process stops.
async fn connection<S>(
    stream: S,
    service: Tracked,
    requests: watch::Receiver<Requests>,
    limits: Limits,
    stop: &CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle.max(limits.first));
    builder.http2().timer(TokioTimer::new());
    let service = TowerToHyperService::new(service);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let patience = tokio::select! {
        _ = connection.as_mut() => return,
        () = unused(requests, limits) => FAREWELL,
        () = stop.cancelled() => limits.drain,
    };
    connection.as_mut().graceful_shutdown();
    let _ = timeout(patience, connection).await;
}

/// The requests of one connection.
#[derive(Clone, Copy, Debug)]
struct Requests {
    open: usize,
    /// Whether there has been one.
    any: bool,
    /// When `open` last changed.
    since: Instant,
}

/// Returns when the connection has had no request in work for longer than it may.
async fn unused(mut requests: watch::Receiver<Requests>, limits: Limits) {
    loop {
        let Requests { open, any, since } = *requests.borrow_and_update();
        let until = since + if any { limits.idle } else { limits.first };
        tokio::select! {
            changed = requests.changed() => if changed.is_err() { return },
            () = sleep_until(until), if open == 0 => return,
        }
    }
}

/// Routes that note the requests in work.
#[derive(Clone)]
struct Tracked {
    router: Router,
    tracker: Arc<watch::Sender<Requests>>,
}

impl<B> Service<axum::http::Request<B>> for Tracked
where
    Router: Service<axum::http::Request<B>>,
    <Router as Service<axum::http::Request<B>>>::Future: Send + 'static,
{
    type Response = <Router as Service<axum::http::Request<B>>>::Response;
    type Error = <Router as Service<axum::http::Request<B>>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.router.poll_ready(context)
    }

    fn call(&mut self, request: axum::http::Request<B>) -> Self::Future {
        let work = InWork::new(&self.tracker);
        let answer = self.router.call(request);
        Box::pin(async move {
            let _work = work;
            answer.await
        })
    }
}

/// A request in work, also if its future is dropped.
struct InWork(Arc<watch::Sender<Requests>>);

impl InWork {
    fn new(tracker: &Arc<watch::Sender<Requests>>) -> Self {
        tracker.send_modify(|requests| {
            *requests = Requests { open: requests.open + 1, any: true, since: Instant::now() };
        });
        Self(Arc::clone(tracker))
    }
}

impl Drop for InWork {
    fn drop(&mut self) {
        self.0.send_modify(|requests| {
            *requests =
                Requests { open: requests.open.saturating_sub(1), since: Instant::now(), ..*requests };
        });
    }
}

#[cfg(test)]
mod tests;
