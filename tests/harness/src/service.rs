//! One address for several replicas, like a Service in a cluster.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Result;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// Forwards each connection to the first replica that accepts it, round robin.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    replicas: Arc<Mutex<Vec<SocketAddr>>>,
    task: JoinHandle<()>,
}

impl Service {
    /// Listens on a free port; connections fail as long as there are no replicas.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let replicas = Arc::new(Mutex::new(Vec::new()));
        let task = tokio::spawn(serve(listener, Arc::clone(&replicas)));
        Ok(Self { address, replicas, task })
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
}

impl Drop for Service {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, replicas: Arc<Mutex<Vec<SocketAddr>>>) {
    let mut first = 0;
    while let Ok((mut client, _)) = listener.accept().await {
        let mut order = replicas.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !order.is_empty() {
            first = (first + 1) % order.len();
            order.rotate_left(first);
        }
        tokio::spawn(async move {
            for replica in order {
                if let Ok(mut server) = TcpStream::connect(replica).await {
                    // Either side may close the connection at any time; that is no error.
                    let _ = copy_bidirectional(&mut client, &mut server).await;
                    return;
                }
            }
        });
    }
}
