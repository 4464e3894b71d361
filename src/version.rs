//! Which version of the program this is.

/// The version.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit it was built from, as the release and the image say it; empty in other builds.
pub const COMMIT: &str = match option_env!("SLUICE_COMMIT") {
    Some(commit) => commit,
    None => "",
};
