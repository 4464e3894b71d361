//! Peers that are slow, silent, or too many.

use std::net::SocketAddr;

use axum::routing::get;
use axum_server::accept::DefaultAcceptor;
use axum_server::tls_rustls::{RustlsAcceptor, RustlsConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::*;

/// Far above every bound of these tests.
const LONG: Duration = Duration::from_secs(30);
/// A bound that a test waits for.
const SHORT: Duration = Duration::from_secs(1);

const LIMITS: Limits = Limits { connections: 64, first: LONG, idle: LONG, drain: LONG };

/// A server on a free port; it ends when this value is dropped.
struct Server {
    address: SocketAddr,
    stop: CancellationToken,
    ended: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start(limits: Limits) -> Self {
        Self::start_with(DefaultAcceptor::new(), limits).await
    }

    async fn start_with<A>(acceptor: A, limits: Limits) -> Self
    where
        A: Accept<TcpStream, (), Service = ()> + Clone + Send + Sync + 'static,
        A::Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static,
        A::Future: Send,
    {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await.expect("a free port");
        let address = listener.local_addr().expect("an address");
        let router = Router::new().route("/", get(|| async { "hello" })).route(
            "/slow",
            get(|| async {
                sleep(3 * SHORT).await;
                "at last"
            }),
        );
        let stop = CancellationToken::new();
        let ended = tokio::spawn(serve(listener, acceptor, router, limits, stop.clone()));
        Self { address, stop, ended }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.expect("a connection")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// Sends a request on an open connection and returns the answer as far as it is there.
async fn ask(stream: &mut TcpStream, path: &str) -> String {
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("the connection is open");
    let mut answer = vec![0; 1024];
    let read = timeout(LONG, stream.read(&mut answer)).await.expect("an answer").expect("it can be read");
    String::from_utf8_lossy(&answer[..read]).into_owned()
}

/// Waits until the server closes the connection, and returns how long that took.
async fn closed(stream: &mut TcpStream) -> Duration {
    let began = Instant::now();
    let mut rest = Vec::new();
    // A reset is an end as well.
    let _ = timeout(LONG, stream.read_to_end(&mut rest)).await.expect("the connection is closed");
    began.elapsed()
}

#[tokio::test]
async fn a_peer_that_sends_no_complete_header_is_cut() {
    let server = Server::start(Limits { first: SHORT, ..LIMITS }).await;
    for sent in ["", "G", "GET / HTTP/1.1\r\nX: ", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
        let mut stream = server.connect().await;
        stream.write_all(sent.as_bytes()).await.expect("the connection is open");
        assert!(closed(&mut stream).await < LONG / 2, "after {sent:?}");
    }
}

#[tokio::test]
async fn headers_that_arrive_byte_by_byte_gain_no_time() {
    let server = Server::start(Limits { first: SHORT, ..LIMITS }).await;
    let stream = server.connect().await;
    let (mut reader, mut writer) = stream.into_split();
    let drip = tokio::spawn(async move {
        let _ = writer.write_all(b"GET / HTTP/1.1\r\nX: ").await;
        while writer.write_all(b"a").await.is_ok() {
            sleep(SHORT / 10).await;
        }
    });
    let mut rest = Vec::new();
    let _ = timeout(LONG / 2, reader.read_to_end(&mut rest)).await.expect("the connection is closed");
    drip.abort();
}

#[tokio::test]
async fn an_idle_connection_is_closed_and_one_in_work_is_not() {
    let server = Server::start(Limits { idle: SHORT, ..LIMITS }).await;
    let mut stream = server.connect().await;
    assert!(ask(&mut stream, "/").await.ends_with("hello"));
    assert!(ask(&mut stream, "/slow").await.ends_with("at last"), "a request in work is no idleness");
    assert!(ask(&mut stream, "/").await.ends_with("hello"), "the connection is kept between requests");
    assert!(closed(&mut stream).await < LONG / 2);
}

#[tokio::test]
async fn at_the_cap_a_connection_without_a_request_gives_way() {
    let server = Server::start(Limits { connections: 2, ..LIMITS }).await;
    let (mut kept, mut silent) = (server.connect().await, server.connect().await);
    assert!(ask(&mut kept, "/").await.ends_with("hello"));
    let mut third = server.connect().await;
    assert!(ask(&mut third, "/").await.ends_with("hello"));
    assert!(closed(&mut silent).await < LONG / 2, "it never sent a request");
    assert!(ask(&mut kept, "/").await.ends_with("hello"), "it is older, but of use");
    let mut fourth = server.connect().await;
    assert!(ask(&mut fourth, "/").await.ends_with("hello"));
    assert!(closed(&mut kept).await < LONG / 2, "the oldest of those that are idle");
    assert!(ask(&mut third, "/").await.ends_with("hello"));
}

#[tokio::test]
async fn beyond_the_cap_a_connection_waits_while_requests_are_in_work() {
    let server = Server::start(Limits { connections: 1, ..LIMITS }).await;
    let mut first = server.connect().await;
    first.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("the connection is open");
    sleep(SHORT).await;
    let mut second = server.connect().await;
    second.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("the kernel takes it");
    let mut answer = vec![0; 1024];
    assert!(timeout(SHORT, second.read(&mut answer)).await.is_err(), "the only place is taken");
    let read = timeout(LONG, first.read(&mut answer)).await.expect("an answer").expect("it is not cut");
    assert!(String::from_utf8_lossy(&answer[..read]).ends_with("at last"));
    let read = timeout(LONG, second.read(&mut answer)).await.expect("its turn").expect("an answer");
    assert!(String::from_utf8_lossy(&answer[..read]).ends_with("hello"));
}

#[tokio::test]
async fn silent_peers_do_not_keep_others_out() {
    let server = Server::start(Limits { connections: 8, ..LIMITS }).await;
    let mut silent = Vec::new();
    for _ in 0..100 {
        silent.push(server.connect().await);
    }
    let mut late = server.connect().await;
    assert!(ask(&mut late, "/").await.ends_with("hello"));
    let ends = silent.iter_mut().take(90).map(closed);
    assert!(futures::future::join_all(ends).await.iter().all(|after| *after < LONG / 2));
}

#[tokio::test]
async fn a_handshake_that_does_not_end_is_cut() {
    let pair = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).expect("a certificate");
    let _ = rustls::crypto::ring::default_provider().install_default();
    let (certificate, key) = (pair.cert.pem().into_bytes(), pair.signing_key.serialize_pem().into_bytes());
    let tls = RustlsConfig::from_pem(certificate, key).await.expect("the pair matches");
    let server = Server::start_with(RustlsAcceptor::new(tls), Limits { first: SHORT, ..LIMITS }).await;
    let mut stream = server.connect().await;
    stream.write_all(&[22, 3, 1]).await.expect("the connection is open");
    assert!(closed(&mut stream).await < LONG / 2);
}

#[tokio::test]
async fn open_requests_finish_at_shutdown_and_idle_connections_end() {
    let mut server = Server::start(LIMITS).await;
    let (mut idle, mut busy) = (server.connect().await, server.connect().await);
    assert!(ask(&mut idle, "/").await.ends_with("hello"));
    assert!(ask(&mut busy, "/").await.ends_with("hello"));
    busy.write_all(b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n").await.expect("the connection is open");
    sleep(SHORT).await;
    server.stop.cancel();
    let mut answer = Vec::new();
    let read = timeout(LONG, busy.read_to_end(&mut answer)).await.expect("the connection ends");
    read.expect("a whole answer");
    assert!(String::from_utf8_lossy(&answer).ends_with("at last"));
    closed(&mut idle).await;
    timeout(LONG, &mut server.ended).await.expect("the server ends").expect("without a panic");
}
