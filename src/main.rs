//! The `sluice` command.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use sluice::cli::{Cli, Invalid};

/// Views, rows and events are made of many short texts. The allocator of the static binaries' C library takes one lock for all
/// threads, and that of glibc keeps what one burst has needed.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    if rustls::crypto::ring::default_provider().install_default().is_err() {
        eprintln!("sluice: the TLS crypto provider was installed twice");
        return ExitCode::FAILURE;
    }
    sluice::cli::complete();
    let cli = Cli::parse();
    match cli.run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice: {error:#}");
            if error.is::<Invalid>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}
