//! Bodies at and above every limit.

use super::*;

async fn read_text(text: &str, length: Option<usize>) -> Result<Read, Unread> {
    read(Body::from(text.to_owned()), length, &Budget::default()).await
}

fn review(object: &str) -> String {
    format!(
        r#"{{"kind":"AdmissionReview","request":{{ "uid" : "42","operation":"CREATE","object":{object}}}}}"#
    )
}

#[tokio::test]
async fn a_body_above_the_limit_is_named_by_its_request() {
    let large = review(&format!("\"{}\"", "x".repeat(BODY_LIMIT)));
    for length in [None, Some(large.len())] {
        assert_eq!(read_text(&large, length).await.err(), Some(Unread::TooLarge("42".to_owned())));
    }
    let fits = review(&format!("\"{}\"", "x".repeat(BODY_LIMIT - 200)));
    assert_eq!(read_text(&fits, None).await.expect("it fits").bytes.len(), fits.len());
}

#[tokio::test]
async fn texts_cost_their_length_and_maps_what_they_cost_decoded() {
    assert_eq!(cost(br#""{[,\"{[,""#), 10);
    assert_eq!(cost(br#"{"a":[1,2]}"#), 11 + 640 + 96 + 80);
    let maps = |many: usize| review(&format!("[{}0]", "{},".repeat(many)));
    assert!(read_text(&maps(20_000), None).await.is_ok());
    assert_eq!(read_text(&maps(25_000), None).await.err(), Some(Unread::TooComplex("42".to_owned())));
}

#[tokio::test]
async fn a_small_body_waits_for_no_large_one() {
    let budget = Budget::default();
    let all = [(&budget.text, TEXT_BUDGET), (&budget.decoded, DECODED_BUDGET)];
    let _taken = all.map(|(budget, kib)| {
        budget.try_acquire_many(u32::try_from(kib).expect("it fits")).expect("nothing is taken")
    });
    let small = review("{}");
    assert!(read(Body::from(small), None, &budget).await.is_ok());
    let large = review(&format!("\"{}\"", "x".repeat(SMALL)));
    assert_eq!(read(Body::from(large), None, &budget).await.err(), Some(Unread::Busy("42".to_owned())));
}
