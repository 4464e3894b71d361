//! The web page: what Sluice decides, for people, drawn on the server.
//!
//! It asks Questions with the right of its viewer and has none of its own. `sluice web` on a laptop serves the user of the
//! kubeconfig; in a cluster it passes on the token of each viewer, which a proxy in front of it sends along. Pages work
//! without their script, which only looks for changes.

mod access;
mod answers;
mod assets;
mod fairness;
mod layout;
mod overview;
mod page;
mod past;
mod plan;
mod query;
mod queue;
mod reports;
mod shared;
mod show;
mod team;
#[cfg(test)]
mod tests;
mod what_if;
mod workload;

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, RawQuery, State};
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use axum_server::accept::DefaultAcceptor;
use kube::Client;
use maud::html;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower_http::compression::CompressionLayer;
use tower_http::timeout::TimeoutLayer;

pub use self::access::{Access, Link, Login};
use self::answers::{Answers, Problem};
use self::layout::{Frame, Tab};
use self::page::{Web, problem_page};
use crate::client::{Scope, is_namespace};
use crate::listener::{self, Limits};
use crate::view::Accelerators;

/// The longest time for a page; a what-if result takes seconds.
const TIMEOUT: Duration = Duration::from_secs(45);
/// The largest Job that is asked about.
const MOST_BYTES: usize = 256 << 10;
/// Browsers open up to six connections each, and keep them.
const LIMITS: Limits = Limits {
    connections: 2_048,
    first: Duration::from_secs(10),
    idle: Duration::from_secs(120),
    drain: Duration::from_secs(5),
};

/// What the page is made for.
pub struct Settings {
    /// The API server: as the user of the kubeconfig, or without a user where viewers bring their tokens.
    pub client: Client,
    /// Which requests are answered.
    pub access: Access,
    /// What the first page is about; `None` to let the viewer choose.
    pub first: Option<Scope>,
    /// The name of the cluster, if it has one.
    pub cluster: String,
    /// Resources that count as GPUs, besides those in quotas.
    pub accelerators: Accelerators,
}

/// Serves the page until `stop`.
pub async fn serve(listener: TcpListener, settings: Settings, stop: CancellationToken) {
    listener::serve(listener, DefaultAcceptor::new(), router(settings), LIMITS, stop).await;
}

/// All routes.
fn router(settings: Settings) -> Router {
    let Settings { client, access, first, cluster, accelerators } = settings;
    let web = Arc::new(Web { answers: Answers::new(client), accelerators, first, cluster });
    let access = Arc::new(access);
    let opened = Router::new().route("/open/{token}", get(access::open)).with_state(Arc::clone(&access));
    Router::new()
        .route("/", get(first_page))
        .route("/go", get(go))
        .nest("/ns/{namespace}/", pages("/workload/{name}"))
        .nest("/all/", pages("/workload/{in}/{name}"))
        .route("/static/{name}", get(assets::asset))
        .route("/healthz", get(async || "ok"))
        .fallback(get(nothing))
        .with_state(web)
        .merge(opened)
        .layer(CompressionLayer::new())
        .layer(from_fn_with_state(Arc::new(shared::Pages::default()), shared::share))
        .layer(from_fn_with_state(access, access::guard))
        .layer(DefaultBodyLimit::max(MOST_BYTES))
        .layer(TimeoutLayer::with_status_code(StatusCode::GATEWAY_TIMEOUT, TIMEOUT))
}

/// The pages of one scope.
fn pages(workload: &str) -> Router<Arc<Web>> {
    Router::new()
        .route("/", get(overview::page))
        .route("/queue", get(queue::page))
        .route("/plan", get(plan::page))
        .route("/fairness", get(fairness::page))
        .route("/reports", get(reports::page))
        .route("/reports.csv", get(reports::file))
        .route("/what-if", get(what_if::page).post(what_if::asked))
        .route("/team/{team}", get(team::page))
        .route(workload, get(workload::page))
}

/// `GET /`.
async fn first_page(State(web): State<Arc<Web>>) -> Response {
    match &web.first {
        Some(scope) => Redirect::to(&layout::base(scope)).into_response(),
        None => {
            let main = html! {
                main #main tabindex="-1" {
                    h1 { "Sluice" }
                    p { "Choose a namespace above. The page shows its work by name, and other teams as numbers." }
                }
            };
            let frame = Frame {
                title: "Sluice",
                tab: Tab::Overview,
                scope: None,
                cluster: &web.cluster,
                every: None,
            };
            layout::page(&frame, &main).into_response()
        }
    }
}

/// `GET /go?namespace=…&page=…`: the form that chooses a namespace.
async fn go(State(web): State<Arc<Web>>, RawQuery(query): RawQuery) -> Response {
    let pairs = query::pairs(&query.unwrap_or_default());
    let value = |key: &str| pairs.iter().find(|(name, _)| name == key).map(|(_, value)| value.trim());
    let page = value("page").filter(|page| page.chars().all(|c| c.is_ascii_lowercase() || c == '-'));
    let scope = match value("namespace") {
        None | Some("") => Scope::Cluster,
        Some(name) if is_namespace(name) => Scope::Namespace(name.to_owned()),
        Some(name) => {
            let message = format!("{name:?} cannot be the name of a namespace");
            return problem_page(&web, None, Tab::Overview, &Problem::new(StatusCode::NOT_FOUND, message));
        }
    };
    Redirect::to(&format!("{}{}", layout::base(&scope), page.unwrap_or_default())).into_response()
}

async fn nothing(State(web): State<Arc<Web>>) -> Response {
    problem_page(&web, None, Tab::Overview, &Problem::new(StatusCode::NOT_FOUND, "there is no such page"))
}
