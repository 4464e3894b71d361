//! The `sluice` command.

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;
use sluice::cli::{Cli, Invalid};

/// Views, rows and events are made of many short texts. The allocator of musl, with which releases are linked, has one lock for all
/// threads, and with that of glibc a process that answers many Questions held twice the memory.
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
