//! `make walks`: walks through the pages of docs/walks on a real control plane, each on a cluster of its own, and writes what
//! the commands print and the pages show. Every command of a page is typed into a terminal by the person of the page.
//!
//! A page says by comments what belongs to the walk and is not typed: `as NAME` the person at the terminal, `setup COMMAND` what an
//! administrator has done before, `until N TEXT` what the command N of the next block must come to print, `fails N` that it is refused,
//! and `picture NAME PATH` a page of `sluice web`.

#[path = "../../tests/web/browser.rs"]
#[expect(dead_code, reason = "shared with the test of the pages")]
mod browser;
mod page;
mod people;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use sluice_harness::{Authority, Cluster, Options, World};

use page::{Line, lines};
use people::{People, Typed};

/// The pages, in the order in which one reads them.
const PAGES: [&str; 4] = ["new-user", "evicted", "team-lead", "owner"];

#[tokio::main]
async fn main() -> ExitCode {
    let chosen: Vec<String> = std::env::args().skip(1).collect();
    let pages = PAGES.iter().filter(|page| chosen.is_empty() || chosen.iter().any(|one| one == *page));
    for page in pages {
        println!("walks: {page}");
        if let Err(error) = walk(page).await {
            eprintln!("walks: {page}: {error:#}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn project() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The `sluice` binary built together with this program.
fn program() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let program = this.ancestors().nth(2).map(|target| target.join("sluice"));
    program.filter(|program| program.is_file()).context("the program `sluice` is not built; run `make walks`")
}

/// Walks through one page, and writes it again.
async fn walk(name: &str) -> Result<()> {
    let folder = project().join("docs/walks");
    let file = folder.join(format!("{name}.md"));
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let keys = tempfile::tempdir()?;
    let authority = Authority::new(keys.path())?;
    let flag = authority.flag();
    let cluster = Cluster::up_with(&format!("walk-{name}"), &["--apiserver-flag", &flag]).await?;
    let world = World::up_on(cluster, Options::new(program()?), 1).await?;
    let files = project().join("examples/walks");
    let setting = std::fs::read_to_string(files.join("cluster.yaml"))?;
    world.apply(&setting).await?;
    let mut people = People::new(&world, &authority, (&program()?, &files))?;
    let (mut written, mut expected, mut number) = (String::new(), BTreeMap::<usize, Typed>::new(), 0);
    for line in lines(&text) {
        match line {
            Line::Prose(line) => {
                if line == "```" {
                    (expected, number) = (BTreeMap::new(), 0);
                }
                written.push_str(&format!("{line}\n"));
            }
            Line::As(person) => people.turn_to(person).await?,
            Line::Setup(command) => people.set_up(command).await?,
            Line::Until(at, text) => expected.entry(at).or_default().until = Some(text.to_owned()),
            Line::Fails(at) => expected.entry(at).or_default().fails = true,
            Line::Picture(picture, path) => {
                let png = people.picture(path).await?;
                std::fs::write(folder.join(format!("{picture}.png")), png)?;
            }
            Line::Command(ref command) => {
                number += 1;
                let output = people.type_in(command, &expected.remove(&number).unwrap_or_default()).await;
                let output = output.with_context(|| format!("$ {command}"))?;
                written.push_str(&format!("$ {command}\n{output}"));
            }
        }
        // Comments stay in the page.
        if let Some(comment) = line.comment() {
            written.push_str(&format!("{comment}\n"));
        }
    }
    std::fs::write(&file, written)?;
    Ok(())
}
