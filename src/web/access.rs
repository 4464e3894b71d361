//! Which requests reach the page: those for its own address, from its own origin, of a known viewer.

use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Path, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, HeaderName, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use maud::html;
use ring::digest::{SHA256, digest};
use ring::rand::{SecureRandom, SystemRandom};
use subtle::ConstantTimeEq;

use super::layout;

/// The length of a token in bytes.
const BYTES: usize = 32;

/// Everything comes from the page's own origin, and no other page may show it in a frame.
const POLICY: &str = "default-src 'self'; img-src 'self' data:; object-src 'none'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'";

/// How the page knows a viewer.
#[derive(Debug)]
pub enum Login {
    /// All viewers are the user of the kubeconfig; a link that works once lets in one browser.
    Link(Link),
    /// Each request carries the viewer's own token, which a proxy in front of the page has put there.
    Forwarded,
}

/// A link that works once.
#[derive(Debug)]
pub struct Link {
    /// The token in the link, until it is used.
    token: Mutex<Option<String>>,
    /// What the cookie of the browser says.
    session: String,
    cookie: String,
}

impl Link {
    /// A new link to a page on this port, with its token.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn new(port: u16) -> Result<(Self, String), ring::error::Unspecified> {
        let (token, session) = (random()?, random()?);
        // The cookies of all ports of an address are sent to each of them.
        let link = Self { token: Mutex::new(Some(token.clone())), session, cookie: format!("sluice-{port}") };
        Ok((link, token))
    }

    /// The cookie for the browser that comes with the token; nothing for any other, and for any second time.
    fn exchange(&self, given: &str) -> Option<String> {
        let mut token = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        let right = token.as_ref().is_some_and(|token| bool::from(token.as_bytes().ct_eq(given.as_bytes())));
        if !right {
            return None;
        }
        *token = None;
        Some(format!("{}={}; Path=/; HttpOnly; SameSite=Strict", self.cookie, self.session))
    }

    fn knows(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
        let cookies = cookies.flat_map(|line| line.split(';')).filter_map(|pair| pair.trim().split_once('='));
        cookies.into_iter().any(|(name, value)| {
            name == self.cookie && bool::from(value.as_bytes().ct_eq(self.session.as_bytes()))
        })
    }
}

fn random() -> Result<String, ring::error::Unspecified> {
    let mut bytes = [0_u8; BYTES];
    SystemRandom::new().fill(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The rules of access.
#[derive(Debug)]
pub struct Access {
    /// What the header `Host` may say.
    pub hosts: Vec<String>,
    /// How viewers are known.
    pub login: Login,
}

/// A viewer, as the API server is asked for it.
#[derive(Clone, Debug)]
pub struct Viewer {
    /// Its `Authorization`; without one the page asks as the user of the kubeconfig.
    pub bearer: Option<HeaderValue>,
    /// What tells it from other viewers.
    pub key: [u8; 32],
}

impl Access {
    fn viewer(&self, headers: &HeaderMap) -> Result<Viewer, (StatusCode, &'static str)> {
        match &self.login {
            Login::Link(link) if link.knows(headers) => Ok(Viewer { bearer: None, key: [0; 32] }),
            Login::Link(_) => Err((
                StatusCode::FORBIDDEN,
                "This page needs the link that `sluice web` printed. It works once: start `sluice web` again for a new one.",
            )),
            Login::Forwarded => {
                let bearer = headers.get(AUTHORIZATION).filter(|value| {
                    let bytes = value.as_bytes();
                    bytes.len() > 7 && bytes[..7].eq_ignore_ascii_case(b"bearer ")
                });
                let Some(bearer) = bearer else {
                    return Err((
                        StatusCode::UNAUTHORIZED,
                        "This page needs a proxy in front of it that sends the token of its user as Authorization: Bearer.",
                    ));
                };
                let mut key = [0; 32];
                key.copy_from_slice(digest(&SHA256, bearer.as_bytes()).as_ref());
                let mut bearer = bearer.clone();
                bearer.set_sensitive(true);
                Ok(Viewer { bearer: Some(bearer), key })
            }
        }
    }

    /// Whether the request is for the page's own address, and from no other page.
    fn is_own(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> bool {
        let text = |name: &HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or("?"));
        let own = |host: &str| self.hosts.iter().any(|own| own.eq_ignore_ascii_case(host));
        // Where HTTP/2 brings the request, its address is in the URI.
        if !text(&HOST).or(uri.authority().map(Authority::as_str)).is_some_and(own) {
            return false;
        }
        let reads = *method == Method::GET || *method == Method::HEAD;
        match text(&ORIGIN) {
            Some(origin) => origin.split_once("://").is_some_and(|(_, host)| own(host)),
            None => reads,
        }
    }
}

/// Lets a request through, with its viewer, and puts the headers of safety on every response.
pub async fn guard(State(access): State<Arc<Access>>, mut request: Request, next: Next) -> Response {
    let path = request.uri().path();
    // The first has nothing to hide, and comes from the kubelet by the address of the pod. The assets are the same for
    // all; whether the link is right, its own route says.
    let (probe, open) = (path == "/healthz", path.starts_with("/static/") || path.starts_with("/open/"));
    let mut response = if probe {
        next.run(request).await
    } else if !access.is_own(request.method(), request.uri(), request.headers()) {
        refused(
            StatusCode::FORBIDDEN,
            "This page answers its own address alone, and no requests of other pages.",
        )
    } else if open {
        next.run(request).await
    } else {
        match access.viewer(request.headers()) {
            Ok(viewer) => {
                request.extensions_mut().insert(viewer);
                next.run(request).await
            }
            Err((status, message)) => refused(status, message),
        }
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    // Assets say otherwise.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// `GET /open/{token}`: the link. The page that follows comes from here, so that the browser sends the cookie with it.
pub async fn open(State(access): State<Arc<Access>>, Path(token): Path<String>) -> Response {
    let cookie = match &access.login {
        Login::Link(link) => link.exchange(&token),
        Login::Forwarded => None,
    };
    let Some(cookie) = cookie else {
        return refused(
            StatusCode::FORBIDDEN,
            "This link has been used, or is none. Start `sluice web` again for a new one.",
        );
    };
    let page = layout::bare("Sluice", true, html! { p { a href="/" { "Go on to the page" } } });
    ([(SET_COOKIE, cookie)], page).into_response()
}

fn refused(status: StatusCode, message: &str) -> Response {
    let body = html! { h1 { (status.as_u16()) " " (status.canonical_reason().unwrap_or_default()) } p { (message) } };
    (status, layout::bare("Sluice", false, body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(HeaderName, &str)]) -> HeaderMap {
        let pairs = pairs.iter().map(|(name, value)| (name.clone(), value.parse().expect("a value")));
        pairs.collect()
    }

    #[test]
    fn only_requests_for_its_own_address_and_from_its_own_pages_are_answered() {
        let access = Access { hosts: vec!["127.0.0.1:7".to_owned()], login: Login::Forwarded };
        let own = |method: &Method, pairs: &[(HeaderName, &str)]| {
            access.is_own(method, &Uri::from_static("/"), &headers(pairs))
        };
        let [named, other] = ["http://127.0.0.1:7/", "http://evil.example/"].map(Uri::from_static);
        assert!(access.is_own(&Method::GET, &named, &HeaderMap::new()), "HTTP/2 has no Host");
        assert!(!access.is_own(&Method::GET, &other, &HeaderMap::new()));
        assert!(
            !access.is_own(&Method::GET, &named, &headers(&[(HOST, "evil.example")])),
            "both must be right"
        );
        assert!(own(&Method::GET, &[(HOST, "127.0.0.1:7")]));
        assert!(!own(&Method::GET, &[]), "no address");
        assert!(!own(&Method::GET, &[(HOST, "evil.example:7")]), "a name that leads here");
        assert!(!own(&Method::GET, &[(HOST, "127.0.0.1:8")]), "another port");
        assert!(!own(&Method::GET, &[(HOST, "127.0.0.1:7"), (ORIGIN, "http://evil.example")]));
        assert!(!own(&Method::POST, &[(HOST, "127.0.0.1:7")]), "a write of no page");
        assert!(!own(&Method::POST, &[(HOST, "127.0.0.1:7"), (ORIGIN, "null")]), "a hidden page");
        assert!(own(&Method::POST, &[(HOST, "127.0.0.1:7"), (ORIGIN, "http://127.0.0.1:7")]));
    }

    #[test]
    fn a_link_works_once_and_its_cookie_is_needed() {
        let (link, token) = Link::new(7).expect("random numbers");
        assert_eq!(link.exchange("another"), None);
        let cookie = link.exchange(&token).expect("the first time");
        assert!(cookie.ends_with("; Path=/; HttpOnly; SameSite=Strict"), "{cookie}");
        assert_eq!(link.exchange(&token), None, "the second time");
        let pair = cookie.split(';').next().expect("a pair");
        assert!(link.knows(&headers(&[(COOKIE, &format!("x=1; {pair}"))])));
        let other = format!("sluice-7={token}");
        for cookie in ["", "sluice-7=", other.as_str()] {
            assert!(!link.knows(&headers(&[(COOKIE, cookie)])), "{cookie}");
        }
    }

    #[test]
    fn viewers_with_different_tokens_are_different() {
        let access = Access { hosts: Vec::new(), login: Login::Forwarded };
        let viewer = |token: &str| access.viewer(&headers(&[(AUTHORIZATION, token)]));
        let [one, two] = ["Bearer one", "bearer two"].map(|token| viewer(token).expect("a viewer"));
        assert_ne!(one.key, two.key);
        assert!(one.bearer.is_some_and(|bearer| bearer.is_sensitive()));
        for token in ["", "Bearer ", "Basic YTpi"] {
            assert!(viewer(token).is_err(), "{token}");
        }
    }
}
