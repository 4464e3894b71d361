//! The metrics of Questions.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, Registry};

/// Durations of the answers.
#[derive(Clone, Debug)]
pub struct AskMetrics {
    duration: HistogramVec,
}

impl AskMetrics {
    /// Registers the metrics.
    ///
    /// # Errors
    /// If the registry already has a metric of that name.
    pub fn new(registry: &Registry) -> prometheus::Result<Self> {
        let options = HistogramOpts::new(
            "sluice_question_duration_seconds",
            "Time from the arrival of a Question to its answer.",
        )
        .buckets(vec![1e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0]);
        let duration = HistogramVec::new(options, &["question", "outcome"])?;
        for question in ["queue", "explain", "teams", "nodes", "history", "report", "whatIf", "none"] {
            for outcome in ["answered", "refused"] {
                // A labelled series exists only after its first use.
                let _ = duration.with_label_values(&[question, outcome]);
            }
        }
        registry.register(Box::new(duration.clone()))?;
        Ok(Self { duration })
    }

    /// Counts an answer.
    pub fn observe(&self, question: &str, outcome: &str, took: Duration) {
        self.duration.with_label_values(&[question, outcome]).observe(took.as_secs_f64());
    }
}
