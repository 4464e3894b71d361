//! One address for several replicas, like a Service in a cluster.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Forwards each connection to the first replica that accepts it, round robin.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    cuts: watch::Sender<()>,
    task: JoinHandle<()>,
}

impl Service {
    /// Listens on a free port; connections fail as long as there are no replicas.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let replicas = Arc::new(Mutex::new(Vec::new()));
        let cuts = watch::Sender::new(());
        let task = tokio::spawn(serve(listener, Arc::clone(&replicas), cuts.clone()));
        Ok(Self { address, replicas, cuts, task })
    }

    /// The URL for the API server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Adds a replica.
    pub fn add(&self, replica: SocketAddr) {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner).push(replica);
    }

    /// Cuts all connections.
    pub fn cut(&self) {
        self.cuts.send_replace(());
    }

    /// Replaces the replicas, and returns those before. Without any, connections fail; those that are open stay.
    pub fn replace(&self, replicas: Vec<SocketAddr>) -> Vec<SocketAddr> {
        std::mem::replace(&mut *self.replicas.lock().unwrap_or_else(PoisonError::into_inner), replicas)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, replicas: Arc<Mutex<Vec<SocketAddr>>>, cuts: watch::Sender<()>) {
    let mut first = 0;
    while let Ok((mut client, _)) = listener.accept().await {
        let mut order = replicas.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !order.is_empty() {
            first = (first + 1) % order.len();
            order.rotate_left(first);
        }
        let mut cut = cuts.subscribe();
        tokio::spawn(async move {
            for replica in order {
                if let Ok(mut server) = TcpStream::connect(replica).await {
                    // As between an API server and a replica, no small packet waits for an acknowledgement.
                    let _ = (client.set_nodelay(true), server.set_nodelay(true));
                    // Either side may close the connection at any time; that is no error.
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = cut.changed() => {}
                    }
                    return;
                }
            }
        });
    }
}
