use axum::body::{Body, to_bytes};
use axum::http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_SECURITY_POLICY, COOKIE, ETAG, HOST, IF_NONE_MATCH, LOCATION,
    ORIGIN, SET_COOKIE,
};
use axum::http::{HeaderMap, Request};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::*;

const OWN: &str = "127.0.0.1:7";

/// An API server that answers each Question with rows of this many nodes and workloads.
fn answering(count: usize) -> Client {
    let service = tower::service_fn(move |request: Request<kube::client::Body>| async move {
        let path = request.uri().path().to_owned();
        let body = request.into_body().collect_bytes().await.unwrap_or_default();
        let question: Value = serde_json::from_slice(&body).unwrap_or_default();
        let (status, body) = answer(count, &path, &question["spec"]);
        let response = axum::http::Response::builder().status(status);
        let body = kube::client::Body::from(body.to_string().into_bytes());
        Ok::<_, std::convert::Infallible>(response.body(body).expect("a response"))
    });
    Client::new(service, "default")
}

fn answer(count: usize, path: &str, spec: &Value) -> (u16, Value) {
    if path.contains("/secret/") {
        let message = r#"questions.sluice.dev is forbidden: User "dora" cannot create resource "questions""#;
        return (403, json!({"kind": "Status", "status": "Failure", "message": message, "code": 403}));
    }
    if path.contains("/without/") && (spec["report"].is_object() || spec["history"].is_object()) {
        let message = r#"admission webhook "questions.mutate.sluice.dev" denied the request: the history is off: Sluice"#;
        return (501, json!({"kind": "Status", "status": "Failure", "message": message, "code": 501}));
    }
    if path.ends_with("/events") {
        let event = |uid: &str, reason: &str| {
            json!({"reason": reason, "lastTimestamp": "2026-11-24T09:00:00Z", "reportingComponent": "sluice.dev/controller",
                "involvedObject": {"kind": "Job", "name": "job-1", "uid": uid}})
        };
        return (200, json!({"items": [event("u-1", "Waiting"), event("u-0", "OfItsNamesake")]}));
    }
    let of = |at: usize| if at.is_multiple_of(2) { "red" } else { "blue" };
    let rows: Vec<Value> = if spec["report"].is_object() {
        let begins = spec["report"]["cuts"].as_array().cloned().unwrap_or_default();
        let begins = std::iter::once(spec["report"]["from"].clone()).chain(begins);
        let usage = |(at, from)| {
            json!({"about": "Usage", "from": from, "to": spec["report"]["to"], "team": of(at), "runs": 2, "usedGpuSeconds": 900_000,
                "guaranteedGpuSeconds": 720_000, "borrowedGpuSeconds": 180_000, "lostGpuSeconds": 3_600,
                "waitedGpuSeconds": 0, "lentGpuSeconds": 7_200, "availableGpuSeconds": 1_440_000})
        };
        begins.enumerate().map(usage).collect()
    } else if spec["history"].is_object() {
        let run = json!({"kind": "Job", "namespace": "a", "name": "job-1", "uid": "1", "team": "red", "queue": "default",
            "pool": "default", "state": "Evicted", "gpus": 4, "pods": 2, "submitted": "2026-11-24T08:00:00Z",
            "admitted": "2026-11-24T08:30:00Z", "ended": "2026-11-24T10:30:00Z", "waitedSeconds": 1_800, "gpuSeconds": 28_800,
            "lostGpuSeconds": 14_400, "reason": "Reclaimed", "evictedFor": "a workload of team blue",
            "message": "Preempted for a workload of team <blue>.", "nodes": {"gpu-0000": 2}});
        if spec["history"]["name"] == "nothing" { Vec::new() } else { vec![run] }
    } else if spec["nodes"].is_object() {
        let node = |at: usize| {
            json!({"name": format!("gpu-{at:04}"), "pool": "default", "schedulable": at % 10 != 9, "allocatable": {},
            "free": {}, "gpus": 8, "gpusFree": 3, "workloads": [
                {"workload": format!("a/<job>-{at}"), "team": of(at), "pods": 4, "gpus": 4.0, "borrowed": at.is_multiple_of(3)},
                {"team": "blue", "pods": 1, "gpus": 1.0, "until": "2100-01-01T00:00:00Z"},
            ]})
        };
        (0..count.div_ceil(20)).map(node).collect()
    } else if spec["teams"].is_object() {
        let gpus = |count: usize| json!({"nvidia.com/gpu": count.to_string()});
        vec![
            json!({"about": "Team", "team": "red", "pool": "default", "guaranteed": gpus(20), "limit": {}, "shares": {"x.y/part": "0.5"},
                "used": {"nvidia.com/gpu": "28", "x.y/part": "4"},
                "borrowed": gpus(10), "lent": {}, "fairShare": gpus(25), "weight": 1}),
            json!({"about": "Team", "team": "blue", "pool": "default", "guaranteed": gpus(20), "limit": gpus(40),
                "used": gpus(10), "borrowed": {}, "lent": gpus(10), "fairShare": gpus(10), "weight": 2}),
            json!({"about": "Queue", "team": "red", "queue": "default", "pending": count, "running": 3}),
        ]
    } else if spec["explain"]["name"] == "nothing" || spec["explain"]["name"] == "deleted" {
        Vec::new()
    } else if spec["whatIf"].is_object() {
        vec![json!({"namespace": "a", "name": "x", "team": "red", "queue": "default", "state": "Running",
            "reason": "Guaranteed", "message": "Would start at once.", "eta": {"foretold": "2026-11-24T10:00:00Z"},
            "pool": "default", "outsideQuotas": true,
            "nodes": {"gpu-0001": 2}, "borrowed": false, "displaced": ["a workload of team blue"]})]
    } else {
        let most = spec["limit"].as_u64().map_or(1_000, |limit| usize::try_from(limit).unwrap_or(1));
        let row = |at: usize| {
            json!({"kind": "Job", "namespace": "a", "name": format!("job-{at}"), "uid": format!("u-{at}"), "team": of(at), "queue": "default",
            "state": if at < 3 { "Running" } else { "Pending" }, "reason": "NoRoom",
            "message": format!("Needs {at} <more> GPUs than are free in pool default."), "user": "dora", "priority": 0,
            "pods": 2, "requests": {"nvidia.com/gpu.shared": "7"}, "gpus": 3.5, "nodes": {}, "borrowed": false,
            "pool": "default",
            "submitted": "2026-11-24T10:00:00Z", "run": {"likelyEnd": "2100-01-02T00:00:00Z", "nodes": {"gpu-0000": 2}},
            "eta": {"early": "2100-01-01T00:00:00Z", "likely": "2100-01-01T00:00:00Z", "late": "2100-01-01T01:00:00Z",
                "foretold": "2026-11-24T10:00:00Z", "place": {"pool": "default", "position": at, "waiting": count,
                "inFront": [], "teamsInFront": 0}}})
        };
        let first = usize::from(spec["explain"].is_object());
        let count = if first == 1 { 2 } else { count };
        (first..count.min(most)).map(row).collect()
    };
    let cursor = (rows.len() < count && spec["queue"].is_object()).then_some("next/1");
    (201, json!({"answer": {"version": "1", "at": "2026-11-24T10:00:00Z", "rows": rows, "cursor": cursor}}))
}

fn forwarding(count: usize) -> Router {
    router(Settings {
        client: answering(count),
        access: Access { hosts: vec![OWN.to_owned()], login: Login::Forwarded },
        first: Some(Scope::Namespace("a".to_owned())),
        cluster: "it".to_owned(),
        accelerators: Accelerators::default(),
    })
}

struct Got {
    status: u16,
    headers: HeaderMap,
    text: String,
    bytes: usize,
}

async fn send(router: &Router, request: Request<Body>) -> Got {
    let response = router.clone().oneshot(request).await.expect("infallible");
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let bytes = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
    Got { status, headers, text: String::from_utf8_lossy(&bytes).into_owned(), bytes: bytes.len() }
}

async fn get_page(router: &Router, path: &str) -> Got {
    let request = Request::get(path).header(HOST, OWN).header("authorization", "Bearer of-dora");
    send(router, request.body(Body::empty()).expect("a request")).await
}

const PAGES: [&str; 13] = [
    "/ns/a/",
    "/ns/a/queue",
    "/ns/a/queue?state=Pending&team=red",
    "/ns/a/plan",
    "/ns/a/fairness",
    "/ns/a/what-if",
    "/ns/a/team/red",
    "/ns/a/reports",
    "/ns/without/reports",
    "/ns/a/workload/deleted",
    "/ns/a/workload/job-1",
    "/all/workload/a/job-1",
    "/all/",
];

#[tokio::test]
async fn every_page_is_whole_safe_and_leads_nowhere_else() {
    let router = forwarding(60);
    for path in PAGES {
        let Got { status, headers, text, .. } = get_page(&router, path).await;
        assert_eq!(status, 200, "{path}: {text}");
        let policy = headers[CONTENT_SECURITY_POLICY].to_str().expect("a text");
        assert!(
            policy.contains("default-src 'self'") && policy.contains("frame-ancestors 'none'"),
            "{policy}"
        );
        assert_eq!(
            (&headers["x-content-type-options"], &headers["cache-control"]),
            (&"nosniff".parse().expect("a value"), &"no-store".parse().expect("a value"))
        );
        // Nothing of another origin, nothing that the policy would block, and no text of users as markup.
        for wrong in ["http:", "https:", "src=\"//", "style=\"", "onclick", "<job>", "<more>"] {
            assert!(!text.contains(wrong), "{path} has {wrong:?}");
        }
        assert_eq!(text.matches("<h1").count(), 1, "{path}");
        assert!(text.contains("<html lang=\"en\">") && text.contains("<main id=\"main\""), "{path}");
        assert!(text.contains("<title>") && text.contains("href=\"#main\""), "{path}");
        for svg in text.split("<svg").skip(1) {
            let svg = svg.split("</svg>").next().unwrap_or_default();
            assert!(
                svg.contains("role=\"img\"") && svg.contains("<title>"),
                "{path}: a picture without words"
            );
        }
        // Each field has a label around it, or one that names it.
        for field in text.split("<input").skip(1).chain(text.split("<textarea").skip(1)) {
            let tag = field.split('>').next().unwrap_or_default();
            let labelled = tag.contains("type=\"hidden\"") || tag.contains("id=\"job\"") || {
                let before = &text[..text.find(field).unwrap_or_default()];
                before.rfind("<label").unwrap_or(0) > before.rfind("</label>").unwrap_or(0)
            };
            assert!(labelled, "{path}: a field without a label: {tag}");
        }
        for link in text.split("href=\"").skip(1) {
            let link = link.split('"').next().unwrap_or_default();
            let own = link.starts_with('/') || link.starts_with('#') || link == "data:,";
            assert!(own && !link.starts_with("//"), "{path} leads to {link}");
        }
        for asset in text.split("/static/").skip(1) {
            let name = asset.split('"').next().unwrap_or_default();
            let got = get_page(&router, &format!("/static/{name}")).await;
            assert!(
                got.status == 200
                    && got.headers["cache-control"].to_str().is_ok_and(|how| how.contains("immutable"))
            );
            for wrong in ["http:", "https:", "@import", "url("] {
                assert!(!got.text.contains(wrong), "{name} has {wrong:?}");
            }
        }
    }
}

#[tokio::test]
async fn pages_show_what_the_answers_say() {
    let router = forwarding(60);
    for (path, texts) in [
        ("/ns/a/", &["15 of 24", "Pool default", "5 of 8 GPUs used, blue 1, red 4", "9 × 1 GPU"][..]),
        (
            "/ns/a/queue",
            &[
                "job-1",
                "NoRoom",
                "<td class=\"number\" data-label=\"GPUs\">3.5</td>",
                "1 of 60",
                "Needs 1 &lt;more&gt; GPUs",
            ],
        ),
        (
            "/ns/a/plan",
            &["Expected: a/job-5", "a/&lt;job&gt;-1 (team blue): 4 GPUs", "Work of another namespace"],
        ),
        ("/ns/a/fairness", &["Pool default", "next", "+5", "30 used, of it 10 borrowed; fair share 25\""]),
        ("/ns/a/team/red", &["It borrows", "30 GPUs used of 20 guaranteed", "guarantee 20\"", "dora"]),
        (
            "/ns/a/workload/job-1",
            &[
                "Submitted by dora",
                "sluice explain job/job-1 -n a",
                "Reclaimed",
                "team &lt;blue&gt;",
                "(3.5 GPUs together)",
                "default, within the guarantee",
            ],
        ),
        ("/ns/a/workload/deleted", &["has been deleted", "30m", "Preempted for", "gpu-0000"]),
        ("/ns/without/workload/job-1", &["Submitted by dora", "the history is off"]),
        ("/ns/without/team/red", &["It borrows", "the history is off"]),
        ("/ns/without/reports", &["the history is off", "About"]),
        ("/ns/a/team/red?past=24h", &["GPUs used against the guarantee", "on borrowed capacity", "past=90d"]),
        (
            "/ns/a/reports?about=teams&from=7d",
            &["GPU-hours of each period", "250", "50 %", "reports.csv?about=teams&amp;from=7d"],
        ),
        ("/ns/a/reports?from=soon", &["expected a day (2026-11-01)"]),
    ] {
        let Got { text, .. } = get_page(&router, path).await;
        for expected in texts {
            assert!(text.contains(expected), "{path} does not say {expected:?}: {text}");
        }
    }
}

#[tokio::test]
async fn the_page_of_a_workload_leaves_out_events_of_an_earlier_one_of_its_name() {
    let Got { text, .. } = get_page(&forwarding(3), "/ns/a/workload/job-1").await;
    assert!(text.contains("<strong>Waiting</strong>") && !text.contains("OfItsNamesake"), "{text}");
}

#[tokio::test]
async fn a_report_comes_as_csv() {
    let router = forwarding(3);
    let Got { status, headers, text, .. } =
        get_page(&router, "/ns/a/reports.csv?from=2026-01-01&to=2026-01-02&by=none").await;
    assert_eq!(
        (status, &headers["content-type"]),
        (200, &"text/csv; charset=utf-8".parse().expect("a value"))
    );
    assert!(headers["content-disposition"].to_str().is_ok_and(|how| how.contains("sluice-teams.csv")));
    let lines: Vec<&str> = text.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("from,to,team,") && lines[1].contains(",250.0000,"),
        "{text}"
    );
    assert_eq!(get_page(&router, "/ns/a/reports.csv?from=soon").await.status, 400);
    assert_eq!(get_page(&router, "/ns/without/reports.csv").await.status, 501);
}

#[tokio::test]
async fn requests_without_a_right_get_none_of_it() {
    let router = forwarding(3);
    let request = |host: &str, token: bool| {
        let request = Request::get("/ns/a/").header(HOST, host);
        let request = if token { request.header("authorization", "Bearer of-dora") } else { request };
        request.body(Body::empty()).expect("a request")
    };
    assert_eq!(send(&router, request("evil.example", true)).await.status, 403);
    assert_eq!(send(&router, request(OWN, false)).await.status, 401);
    for origin in [None, Some("http://evil.example"), Some("null")] {
        let mut request =
            Request::post("/ns/a/what-if").header(HOST, OWN).header("authorization", "Bearer of-dora");
        if let Some(origin) = origin {
            request = request.header(ORIGIN, origin);
        }
        let got = send(&router, request.body(Body::from("job=x")).expect("a request")).await;
        assert_eq!(got.status, 403, "{origin:?}");
    }
    let denied = get_page(&router, "/ns/secret/queue").await;
    assert_eq!(denied.status, 403);
    assert!(denied.text.contains("dora may not ask about namespace secret"), "{}", denied.text);
    assert!(denied.text.contains("action=\"/go\""), "it leads to another namespace");
    assert_eq!(get_page(&router, "/ns/a/workload/nothing").await.status, 404);
    assert_eq!(get_page(&router, "/ns/a%2Fb/").await.status, 404);
    assert_eq!(get_page(&router, "/ns/a/none").await.status, 404);
    let probe =
        Request::get("/healthz").header(HOST, "10.0.0.7:8080").body(Body::empty()).expect("a request");
    assert_eq!(send(&router, probe).await.text, "ok");
}

#[tokio::test]
async fn a_link_lets_one_browser_in() {
    let (link, token) = Link::new(7).expect("random numbers");
    let access = Access { hosts: vec![OWN.to_owned()], login: Login::Link(link) };
    let settings = Settings {
        client: answering(3),
        access,
        first: Some(Scope::Namespace("a".to_owned())),
        cluster: String::new(),
        accelerators: Accelerators::default(),
    };
    let router = router(settings);
    let get = |path: String, cookie: Option<String>| {
        let mut request = Request::get(path).header(HOST, OWN);
        if let Some(cookie) = cookie {
            request = request.header(COOKIE, cookie);
        }
        send(&router, request.body(Body::empty()).expect("a request"))
    };
    assert_eq!(get("/ns/a/".to_owned(), None).await.status, 403);
    assert_eq!(get("/open/guess".to_owned(), None).await.status, 403);
    let opened = get(format!("/open/{token}"), None).await;
    let cookie = opened.headers[SET_COOKIE].to_str().expect("a text");
    let cookie = cookie.split(';').next().expect("a pair").to_owned();
    assert!(opened.status == 200 && opened.text.contains("content=\"0; url=/\""), "{}", opened.text);
    assert_eq!(get(format!("/open/{token}"), None).await.status, 403, "it works once");
    let first = get("/".to_owned(), Some(cookie.clone())).await;
    assert_eq!((first.status, &first.headers[LOCATION]), (303, &"/ns/a/".parse().expect("a value")));
    assert_eq!(get("/ns/a/".to_owned(), Some(cookie)).await.status, 200);
}

#[tokio::test]
async fn a_page_that_has_not_changed_is_not_sent_again() {
    let router = forwarding(3);
    let part = |version: Option<String>| {
        let mut request = Request::get("/ns/a/queue")
            .header(HOST, OWN)
            .header("authorization", "Bearer of-dora")
            .header("sluice-part", "main");
        if let Some(version) = version {
            request = request.header(IF_NONE_MATCH, version);
        }
        send(&router, request.body(Body::empty()).expect("a request"))
    };
    let first = part(None).await;
    assert!(first.text.starts_with("<main"), "the main part alone: {}", first.text);
    let version = first.headers[ETAG].to_str().expect("a text").to_owned();
    // The ages on a page are drawn again each half minute, which may fall between the two.
    let mut again = part(Some(version.clone())).await;
    if again.status == 200 {
        again = part(again.headers[ETAG].to_str().ok().map(ToOwned::to_owned)).await;
    }
    assert_eq!((again.status, again.bytes), (304, 0));
    assert!(again.headers.contains_key("sluice-every"));
    assert_eq!(part(Some("\"other\"".to_owned())).await.status, 200);
}

#[tokio::test]
async fn large_clusters_make_small_pages() {
    let router = forwarding(10_000);
    for path in ["/ns/a/", "/ns/a/queue", "/ns/a/plan", "/ns/a/fairness", "/ns/a/team/red"] {
        let request = Request::get(path)
            .header(HOST, OWN)
            .header("authorization", "Bearer of-dora")
            .header(ACCEPT_ENCODING, "gzip");
        let got = send(&router, request.body(Body::empty()).expect("a request")).await;
        assert_eq!((got.status, got.headers[CONTENT_ENCODING].as_bytes()), (200, &b"gzip"[..]), "{path}");
        assert!(got.bytes < 300_000, "{path} has {} bytes", got.bytes);
    }
}

#[tokio::test]
async fn what_would_become_of_a_job_is_shown_and_its_mistakes_named() {
    let router = forwarding(3);
    let post = |job: &str| {
        let request = Request::post("/ns/a/what-if")
            .header(HOST, OWN)
            .header(ORIGIN, format!("http://{OWN}"))
            .header("authorization", "Bearer of-dora");
        let body = format!("job={}", query::escaped(job));
        send(&router, request.body(Body::from(body)).expect("a request"))
    };
    let got = post("kind: Job\nmetadata: {name: x}\n").await;
    for expected in [
        "It would be",
        "gpu-0001: 2",
        "default, outside all quotas",
        "a workload of team blue",
        "metadata: {name: x}",
    ] {
        assert!(got.text.contains(expected), "{expected}: {}", got.text);
    }
    let wrong = post("kind: Job\n---\nkind: <b>\n").await;
    assert!(wrong.text.contains("expected exactly one Job") && !wrong.text.contains("<b>"), "{}", wrong.text);
}
