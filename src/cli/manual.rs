//! What the program says of itself: schemas, completion, manual pages and its version.

use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use clap_complete::env::Shells;
use serde_json::{Value, json};

use super::Invalid;
use super::print::{self, Output};
use crate::version::{COMMIT, VERSION};
use crate::view::answers::{Kind, Version, schemas};

/// The variable by which the script of a shell asks for candidates.
pub const COMPLETE: &str = "SLUICE_COMPLETE";

/// Parses a kind of document.
///
/// # Errors
/// When there is no such kind.
pub fn kind(text: &str) -> Result<Kind, String> {
    let found = Kind::ALL.into_iter().find(|kind| kind.name().eq_ignore_ascii_case(text));
    let names = || Kind::ALL.map(Kind::name).join(", ");
    found.ok_or_else(|| format!("there is no such kind; there are {}", names()))
}

/// `sluice schema`.
pub fn schema(kind: Option<Kind>) -> anyhow::Result<()> {
    let schema: Value = kind.map_or_else(schemas, Kind::schema);
    print::text(&format!("{}\n", serde_json::to_string_pretty(&schema)?))
}

/// What kubectl runs for `kubectl sluice …<TAB>`: the candidates, then what to do with them (4: they are no files).
const OF_KUBECTL: &str = "#!/bin/sh
# Completes `kubectl sluice`: an executable file of the name kubectl_complete-sluice in the PATH, beside kubectl-sluice.
SLUICE_COMPLETE=bash _CLAP_COMPLETE_INDEX=$# _CLAP_COMPLETE_COMP_TYPE=9 _CLAP_COMPLETE_SPACE=true _CLAP_IFS='
' kubectl-sluice -- kubectl-sluice \"$@\" | sed 's/ *$//'
echo
echo ':4'
";

/// `sluice completion`.
pub fn completion(shell: &str) -> anyhow::Result<()> {
    if shell == "kubectl" {
        return print::text(OF_KUBECTL);
    }
    let shells = Shells::builtins();
    let completer = shells.completer(shell).context("a shell that the program knows")?;
    let program = std::env::args_os().next().unwrap_or_default();
    let program = Path::new(&program).file_name().and_then(|name| name.to_str()).unwrap_or("sluice");
    let mut script = Vec::new();
    completer.write_registration(COMPLETE, program, program, program, &mut script)?;
    print::text(&String::from_utf8(script)?)
}

/// `sluice man`.
pub fn pages(command: Command, folder: Option<&Path>) -> anyhow::Result<()> {
    match folder {
        Some(folder) => {
            if folder.exists() && !folder.is_dir() {
                return Err(Invalid(format!("{}: not a directory", folder.display())).into());
            }
            std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
            clap_mangen::generate_to(command, folder).with_context(|| folder.display().to_string())
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            print::text(&String::from_utf8(page)?)
        }
    }
}

/// `sluice version`.
pub fn version(output: Output) -> anyhow::Result<()> {
    let commit = Some(COMMIT.to_owned()).filter(|commit| !commit.is_empty());
    let version = Version { command: VERSION.to_owned(), commit };
    match output {
        Output::Table => {
            let commit = version.commit.as_ref().map(|commit| format!(" ({commit})")).unwrap_or_default();
            print::text(&format!("sluice {VERSION}{commit}\n"))
        }
        output => {
            print::answer(output, &Kind::Version.document(&version)?, |_: &Value| json!(null).to_string())
        }
    }
}
