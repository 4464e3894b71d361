//! The connections of both ports, bounded in number and in time, so that no peer can use up the memory of Sluice or
//! keep others out by being slow.
//!
//! A connection counts from its acceptance. At the cap, further ones wait in the kernel until another ends. A
//! connection ends when its first request takes too long to arrive, headers included, and later when no request is in
//! work for too long. The handlers bound the time of a request.

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
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use tower::Service;

/// The time for a connection to end after it was told to, while the process goes on.
const FAREWELL: Duration = Duration::from_secs(1);
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
    let slots = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    loop {
        let next = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (slot, accepted(&listener).await)
        };
        let Some((slot, stream)) = stop.run_until_cancelled(next).await else { break };
        // Results of ended connections would accumulate.
        while connections.try_join_next().is_some() {}
        let (acceptor, router, stop) = (acceptor.clone(), router.clone(), stop.clone());
        connections.spawn(async move {
            let _slot = slot;
            let Ok(Ok((stream, ()))) = timeout(limits.first, acceptor.accept(stream, ())).await else {
                return;
            };
            connection(stream, router, limits, &stop).await;
        });
    }
    drop(listener);
    let _ = timeout(limits.drain, async { while connections.join_next().await.is_some() {} }).await;
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
async fn connection<S>(stream: S, router: Router, limits: Limits, stop: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (tracker, requests) = watch::channel(Requests { open: 0, any: false, since: Instant::now() });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(limits.idle.max(limits.first));
    builder.http2().timer(TokioTimer::new());
    let service = TowerToHyperService::new(Tracked { router, tracker: Arc::new(tracker) });
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
