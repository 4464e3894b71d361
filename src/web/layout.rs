//! What all pages have in common.

use maud::{DOCTYPE, Markup, html};

use super::assets;
use crate::client::Scope;

/// The pages that the navigation lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tab {
    /// Every GPU.
    Overview,
    /// Waiting and running workloads.
    Queue,
    /// What runs until when.
    Plan,
    /// Shares of teams.
    Fairness,
    /// What was used.
    Reports,
    /// What a Job would come to.
    WhatIf,
    /// A page that is reached from others.
    Other,
}

impl Tab {
    const LISTED: [Self; 6] =
        [Self::Overview, Self::Queue, Self::Plan, Self::Fairness, Self::Reports, Self::WhatIf];

    fn name(self) -> &'static str {
        match self {
            Self::Overview => "Overview",
            Self::Queue => "Queue",
            Self::Plan => "Plan",
            Self::Fairness => "Fairness",
            Self::Reports => "Reports",
            Self::WhatIf => "What if",
            Self::Other => "",
        }
    }

    /// The path below that of the scope.
    pub fn path(self) -> &'static str {
        match self {
            Self::Overview | Self::Other => "",
            Self::Queue => "queue",
            Self::Plan => "plan",
            Self::Fairness => "fairness",
            Self::Reports => "reports",
            Self::WhatIf => "what-if",
        }
    }
}

/// The path of the pages of a scope: `/ns/vision/` or `/all/`.
pub fn base(scope: &Scope) -> String {
    match scope {
        Scope::Namespace(namespace) => format!("/ns/{namespace}/"),
        Scope::Cluster => "/all/".to_owned(),
    }
}

/// What a page consists of.
pub struct Frame<'a> {
    /// Its title.
    pub title: &'a str,
    /// Its place in the navigation.
    pub tab: Tab,
    /// What it is about; `None` before that is chosen.
    pub scope: Option<&'a Scope>,
    /// The cluster.
    pub cluster: &'a str,
    /// How often it looks for a change, in milliseconds; `None` for never.
    pub every: Option<u128>,
}

/// A whole page around its main part.
pub fn page(frame: &Frame<'_>, main: &Markup) -> Markup {
    let base = frame.scope.map(base);
    html! {
        (DOCTYPE)
        html lang="en" {
            (head(frame.title, html! {}))
            body data-every=[frame.every] {
                a.skip href="#main" { "Skip to the content" }
                header {
                    a.brand href=(base.as_deref().unwrap_or("/")) { "Sluice" }
                    @if let Some(base) = &base {
                        nav aria-label="Pages" {
                            @for tab in Tab::LISTED {
                                a href=(format!("{base}{}", tab.path()))
                                    aria-current=[(tab == frame.tab).then_some("page")] { (tab.name()) }
                            }
                        }
                    }
                    (chooser(frame))
                }
                (main)
                footer {
                    @if frame.every.is_some() { span #live role="status" { "Reload for newer numbers" } }
                    @if !frame.cluster.is_empty() { span { "Cluster " (frame.cluster) } }
                }
            }
        }
    }
}

/// The form that leads to another namespace.
fn chooser(frame: &Frame<'_>) -> Markup {
    let namespace = match frame.scope {
        Some(Scope::Namespace(namespace)) => namespace,
        _ => "",
    };
    let all = frame.scope == Some(&Scope::Cluster);
    html! {
        form.chooser action="/go" method="get" role="search" aria-label="Namespace" {
            input type="hidden" name="page" value=(frame.tab.path());
            label {
                span { "Namespace" }
                input name="namespace" value=(namespace) size="14" maxlength="63" autocomplete="off" spellcheck="false"
                    pattern="[a-z0-9\\-]+" placeholder=(if all { "all" } else { "name" });
            }
            button { "Show" }
            @if !all { a href=(format!("/all/{}", frame.tab.path())) { "All" } }
        }
    }
}

fn head(title: &str, more: Markup) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            title { (title) @if title != "Sluice" { " · Sluice" } }
            link rel="stylesheet" href=(assets::style());
            link rel="icon" href="data:,";
            script src=(assets::script()) defer {}
            (more)
        }
    }
}

/// A page without navigation, for those that may not see more. It may lead on to the first page.
pub fn bare(title: &str, leads_on: bool, body: Markup) -> Markup {
    let refresh = html! { @if leads_on { meta http-equiv="refresh" content="0; url=/"; } };
    html! {
        (DOCTYPE)
        html lang="en" { (head(title, refresh)) body { main #main { (body) } } }
    }
}
