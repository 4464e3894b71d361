#![allow(missing_docs, clippy::unwrap_used)]
use arc_swap::ArcSwap;
use clap::Parser;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client, ResourceExt, api::ListParams};
use sluice::{
    api::{names, node_pool::NodePool, team::Team},
    certs,
    directory::*,
    engine::model,
    webhook,
};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
#[derive(Parser)]
struct Args {
    #[command(flatten)]
    certs: certs::Options,
    #[arg(long, default_value = "0.0.0.0:9443")]
    https: std::net::SocketAddr,
}
#[tokio::main]
async fn main() {
    tracing_subscriber::fmt().with_writer(std::io::stderr).init();
    rustls::crypto::ring::default_provider().install_default().unwrap();
    let args = Args::parse();
    let client = Client::try_default().await.unwrap();
    let token = CancellationToken::new();
    let directory: SharedDirectory = Arc::new(ArcSwap::from_pointee(Directory::default()));
    let registry = prometheus::Registry::new();
    let metrics = webhook::WebhookMetrics::new(&registry).unwrap();
    let shared = directory.clone();
    let c = client.clone();
    tokio::spawn(async move {
        loop {
            let mut d = Directory { complete: true, ..Directory::default() };
            let p = ListParams::default();
            let (Ok(ns), Ok(teams), Ok(pools)) = (
                Api::<Namespace>::all(c.clone()).list(&p).await,
                Api::<Team>::all(c.clone()).list(&p).await,
                Api::<NodePool>::all(c.clone()).list(&p).await,
            ) else {
                tokio::time::sleep(Duration::from_millis(300)).await;
                continue;
            };
            for n in ns {
                if let Some(t) = n.labels().get(names::TEAM) {
                    d.namespaces.insert(
                        n.name_any().as_str().into(),
                        Membership {
                            team: t.as_str().into(),
                            queue: n.labels().get(names::QUEUE).map(|q| q.as_str().into()),
                        },
                    );
                }
            }
            for t in teams {
                let m = model::Team::try_from(&t).unwrap();
                for q in &t.spec.queues {
                    if let Some(pc) = &q.priority_class_name {
                        d.queue_priority_classes
                            .insert((m.name.clone(), q.name.as_str().into()), pc.as_str().into());
                    }
                }
                d.teams.insert(m.name.clone(), m);
            }
            for p in pools {
                d.pools.insert(p.name_any().as_str().into());
            }
            shared.store(Arc::new(d));
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
    });
    let certs = certs::Certificates::start(client, "sluice-system", args.certs, || true, token.clone())
        .await
        .unwrap();
    let router = webhook::router(webhook::WebhookState { directory, metrics });
    let t = token.clone();
    tokio::spawn(async move {
        let mut s = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).unwrap();
        s.recv().await;
        t.cancel();
    });
    webhook::serve(args.https, certs.tls, router, token).await.unwrap();
    println!("{}", prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap());
}
