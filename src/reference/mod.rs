//! The reference pages under `docs/reference`, generated from the code that they describe.

mod answers;
mod codes;
mod flags;
mod keys;
mod kinds;
mod markdown;
mod metrics;

/// A page of the reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The name of its file.
    pub file: &'static str,
    /// Its content: Markdown, or JSON for other programs.
    pub text: String,
}

/// Every page; `command` is the command line that the page of flags describes.
///
/// # Errors
/// When the metrics or the schemas cannot be read.
pub fn pages(command: &clap::Command) -> anyhow::Result<Vec<Page>> {
    Ok(vec![
        Page { file: "flags.md", text: flags::page(command) },
        Page { file: "reasons.md", text: codes::page() },
        Page { file: "labels-and-annotations.md", text: keys::page() },
        Page { file: "metrics.md", text: metrics::page()? },
        Page { file: "team.md", text: kinds::team()? },
        Page { file: "nodepool.md", text: kinds::node_pool()? },
        Page { file: "questions.md", text: answers::page() },
        Page { file: "answers.schema.json", text: answers::schema()? },
    ])
}
