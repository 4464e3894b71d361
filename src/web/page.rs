//! From a request to a page: its scope and viewer, what it asks, and its answer.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{FromRequestParts, RawPathParams};
use axum::http::header::{ETAG, IF_NONE_MATCH, VARY};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use maud::{Markup, html};
use serde::de::DeserializeOwned;

use super::access::Viewer;
use super::answers::{Answers, Problem, Shared};
use super::layout::{self, Frame, Tab};
use crate::api::question::{QuestionSpec, TeamsFilter};
use crate::client::{Scope, is_namespace};
use crate::view::{Accelerators, Teams, TeamsRow};

/// What a page that looks for a change asks for: its main part alone.
pub const PART: HeaderName = HeaderName::from_static("sluice-part");
/// How often it should look, in milliseconds.
pub const EVERY: HeaderName = HeaderName::from_static("sluice-every");
/// Seconds after which a page is drawn again even if its rows are the same, since it says how long ago things were.
const AGES: i64 = 30;

/// What all requests share.
pub struct Web {
    /// The answers of the API server.
    pub answers: Answers,
    /// Resources that count as GPUs, besides those in quotas.
    pub accelerators: Accelerators,
    /// The scope of the first page; `None` to ask for it.
    pub first: Option<Scope>,
    /// The name of the cluster, if it has one.
    pub cluster: String,
}

/// A request for a page.
pub struct Context {
    /// What all requests share.
    pub web: Arc<Web>,
    /// The viewer.
    pub viewer: Viewer,
    /// What the page is about.
    pub scope: Scope,
    /// The present.
    pub now: Timestamp,
    part: bool,
    known: Option<String>,
    /// The versions of all that the page rests on, and the oldest time of it.
    rests_on: Mutex<(DefaultHasher, Option<Timestamp>)>,
}

impl FromRequestParts<Arc<Web>> for Context {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, web: &Arc<Web>) -> Result<Self, Response> {
        let viewer = parts.extensions.get::<Viewer>().cloned();
        let viewer = viewer.ok_or_else(|| StatusCode::FORBIDDEN.into_response())?;
        let params =
            RawPathParams::from_request_parts(parts, web).await.map_err(IntoResponse::into_response)?;
        let namespace =
            params.iter().find(|(name, _)| *name == "namespace").map(|(_, value)| value.to_owned());
        let scope = match namespace {
            Some(name) if is_namespace(&name) => Scope::Namespace(name),
            Some(name) => {
                let message = format!("{name:?} cannot be the name of a namespace");
                return Err(problem_page(
                    web,
                    None,
                    Tab::Overview,
                    &Problem::new(StatusCode::NOT_FOUND, message),
                ));
            }
            None => Scope::Cluster,
        };
        let text = |name: &HeaderName| parts.headers.get(name).and_then(|value| value.to_str().ok());
        Ok(Self {
            web: Arc::clone(web),
            viewer,
            scope,
            now: Timestamp::now(),
            part: text(&PART) == Some("main"),
            known: text(&IF_NONE_MATCH).map(ToOwned::to_owned),
            rests_on: Mutex::default(),
        })
    }
}

impl Context {
    /// The answer to a question, one page of it.
    ///
    /// # Errors
    /// [`Problem`].
    pub async fn ask(&self, spec: &QuestionSpec) -> Result<Shared, Problem> {
        let answer = self.web.answers.ask(&self.viewer, &self.scope, spec).await?;
        self.rests(&answer);
        Ok(answer)
    }

    /// The pages of an answer, at most this many; and whether there are more.
    ///
    /// # Errors
    /// [`Problem`].
    pub async fn ask_all(&self, mut spec: QuestionSpec, most: usize) -> Result<(Vec<Shared>, bool), Problem> {
        let mut pages = Vec::new();
        while pages.len() < most {
            let page = self.ask(&spec).await?;
            let cursor = page.cursor.clone();
            pages.push(page);
            match cursor {
                Some(cursor) => spec.cursor = Some(cursor),
                None => return Ok((pages, false)),
            }
        }
        Ok((pages, true))
    }

    /// The Events about an object.
    ///
    /// # Errors
    /// [`Problem`].
    pub async fn events(&self, namespace: &str, name: &str) -> Result<Shared, Problem> {
        let events = self.web.answers.events(&self.viewer, namespace, name).await?;
        self.rests(&events);
        Ok(events)
    }

    /// The teams, and what counts as a GPU.
    ///
    /// # Errors
    /// [`Problem`].
    pub async fn teams(&self) -> Result<(Teams, Accelerators), Problem> {
        let spec = QuestionSpec { teams: Some(TeamsFilter::default()), ..QuestionSpec::default() };
        let (pages, _) = self.ask_all(spec, 20).await?;
        let teams: Teams = rows::<TeamsRow>(&pages)?.into_iter().collect();
        let listed = teams.teams.iter().flat_map(|team| team.guaranteed.keys().chain(team.limit.keys()));
        let accelerators = self.web.accelerators.with_quotas(listed.map(String::as_str));
        Ok((teams, accelerators))
    }

    fn rests(&self, answer: &Shared) {
        let mut rests_on = self.rests_on.lock().unwrap_or_else(PoisonError::into_inner);
        rests_on.0.write(answer.version.as_bytes());
        rests_on.1 = Some(rests_on.1.map_or(answer.at, |oldest| oldest.min(answer.at)));
    }

    /// The path of a page of this scope.
    pub fn path(&self, below: &str) -> String {
        format!("{}{below}", layout::base(&self.scope))
    }

    /// The path of the page of a workload.
    pub fn workload(&self, namespace: &str, name: &str) -> String {
        match &self.scope {
            Scope::Namespace(_) => self.path(&format!("workload/{name}")),
            Scope::Cluster => self.path(&format!("workload/{namespace}/{name}")),
        }
    }

    /// The response: the page as `draw` makes it, unless its viewer has it already.
    pub fn respond<D: FnOnce(&Self) -> (String, Markup)>(
        &self,
        tab: Tab,
        drawn: Result<D, Problem>,
    ) -> Response {
        let draw = match drawn {
            Ok(draw) => draw,
            Err(problem) => return problem_page(&self.web, Some(&self.scope), tab, &problem),
        };
        let (mut digest, oldest) = self.rests_on.lock().unwrap_or_else(PoisonError::into_inner).clone();
        digest.write_i64(self.now.as_second() / AGES);
        let version = format!("\"{:016x}\"", digest.finish());
        let every = self.web.answers.valid().as_millis();
        let headers = [(ETAG, version.clone()), (EVERY, every.to_string()), (VARY, "sluice-part".to_owned())];
        if self.part && self.known.as_ref() == Some(&version) {
            return (StatusCode::NOT_MODIFIED, headers).into_response();
        }
        let (title, body) = draw(self);
        let at = oldest.unwrap_or(self.now);
        let main = html! {
            main #main tabindex="-1" data-version=[(tab != Tab::WhatIf).then_some(version)] {
                (body)
                @if tab != Tab::WhatIf { p.as-of { "As of " time datetime=(seconds(at)) { (seconds(at)) } } }
            }
        };
        if self.part {
            return (headers, main).into_response();
        }
        let cluster = &self.web.cluster;
        // What is being written there stays as it is.
        let every = (tab != Tab::WhatIf).then_some(every);
        let frame = Frame { title: &title, tab, scope: Some(&self.scope), cluster, every };
        (headers, layout::page(&frame, &main)).into_response()
    }
}

/// A time in whole seconds.
pub fn seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}

/// The rows of all pages of an answer.
///
/// # Errors
/// [`Problem`].
pub fn rows<T: DeserializeOwned>(pages: &[Shared]) -> Result<Vec<T>, Problem> {
    let mut all = Vec::new();
    for page in pages {
        all.extend(page.rows::<T>()?);
    }
    Ok(all)
}

/// A page that says what is wrong, and leads to another namespace.
pub fn problem_page(web: &Web, scope: Option<&Scope>, tab: Tab, problem: &Problem) -> Response {
    let title = match problem.status {
        StatusCode::FORBIDDEN => "Not allowed",
        StatusCode::NOT_FOUND => "Not found",
        StatusCode::UNPROCESSABLE_ENTITY | StatusCode::BAD_REQUEST => "Not understood",
        StatusCode::UNAUTHORIZED => "Not known",
        _ => "No answer",
    };
    let main = html! {
        main #main tabindex="-1" {
            h1 { (title) }
            p.problem role="alert" { (capital(&problem.message)) "." }
            p.soft { "Another namespace can be chosen above." }
        }
    };
    let frame = Frame { title, tab, scope, cluster: &web.cluster, every: None };
    let mut response = (problem.status, layout::page(&frame, &main)).into_response();
    let every = web.answers.valid().as_millis().to_string();
    if let Ok(every) = HeaderValue::from_str(&every) {
        response.headers_mut().insert(EVERY, every);
    }
    response
}

/// The text with a capital at its begin, without the dot at its end. Names of users keep their letters.
fn capital(text: &str) -> String {
    let text = text.trim_end_matches('.');
    let word = text.split(' ').next().unwrap_or_default();
    let is_word = matches!(word, "this" | "the" | "there" | "a" | "no" | "too" | "two");
    let mut letters = text.chars();
    match letters.next().filter(|_| is_word) {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => text.to_owned(),
    }
}
