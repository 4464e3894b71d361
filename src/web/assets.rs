//! Style and script, under names that change with what is in them.

use std::hash::{DefaultHasher, Hasher as _};
use std::sync::LazyLock;

use axum::extract::Path;
use axum::http::StatusCode;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};

use crate::chart;

/// An asset under its name.
struct Asset {
    name: String,
    kind: &'static str,
    text: String,
}

impl Asset {
    fn new(name: &str, ending: &str, kind: &'static str, text: String) -> Self {
        let mut digest = DefaultHasher::new();
        digest.write(text.as_bytes());
        Self { name: format!("{name}.{:016x}.{ending}", digest.finish()), kind, text }
    }
}

static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = format!("{}{}", chart::STYLE, include_str!("style.css"));
    Asset::new("style", "css", "text/css; charset=utf-8", text)
});
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("live", "js", "text/javascript; charset=utf-8", include_str!("live.js").to_owned())
});

/// The path of the style.
pub fn style() -> String {
    format!("/static/{}", STYLE.name)
}

/// The path of the script.
pub fn script() -> String {
    format!("/static/{}", SCRIPT.name)
}

/// `GET /static/{name}`.
pub async fn asset(Path(name): Path<String>) -> Response {
    match [&*STYLE, &*SCRIPT].into_iter().find(|asset| asset.name == name) {
        Some(asset) => {
            let headers =
                [(CONTENT_TYPE, asset.kind), (CACHE_CONTROL, "public, max-age=31536000, immutable")];
            (headers, asset.text.as_str()).into_response()
        }
        None => StatusCode::NOT_FOUND.into_response(),
    }
}
