//! The page of commands and flags, read from the parser of the command line.

use clap::{Arg, Command};

use super::markdown::{code, codes, head, sentence, table};

const INTRODUCTION: &str = "\
`sluice` is one program: the server, the simulator and the commands that ask a running Sluice. As `kubectl-sluice`
in the `PATH` it is also the kubectl plugin `kubectl sluice`.

Every command also takes `--help`. Durations are written like `90s`, `10m` or `1h30m`. A flag goes before the
environment variable in its row, and that before the default. The exit code is 0 on success, 2 for wrong usage or an
invalid file, and 1 for any other failure.";

/// The page about a command line.
pub fn page(command: &Command) -> String {
    let mut command = command.clone();
    command.build();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set());
    let commands: String = commands
        .filter(|command| command.get_name() != "help")
        .map(|command| section(command.clone()))
        .collect();
    format!("{}{commands}", head("Commands and flags", INTRODUCTION))
}

fn section(mut command: Command) -> String {
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let usage = command.render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim();
    let arguments: Vec<&Arg> = command.get_arguments().filter(|argument| is_own(argument)).collect();
    let mut text =
        format!("\n## `sluice {}`\n\n{}\n\n```\n{usage}\n```\n", command.get_name(), sentence(&about));
    if !arguments.is_empty() {
        let rows = arguments.into_iter().map(row);
        text += &format!("\n{}", table(["flag", "default", "environment", "meaning"], rows));
    }
    text
}

/// Whether the argument is one of Sluice's own, and not `--help` or `--version`.
fn is_own(argument: &Arg) -> bool {
    !argument.is_hide_set() && !["help", "version"].contains(&argument.get_id().as_str())
}

fn row(argument: &Arg) -> [String; 4] {
    let defaults = argument.get_default_values().iter().filter(|_| takes_value(argument));
    let defaults: Vec<_> = defaults.map(|default| default.to_string_lossy()).collect();
    let environment = argument.get_env().map(|name| name.to_string_lossy());
    [
        code(&form(argument)),
        codes(defaults.iter().map(AsRef::as_ref)),
        codes(environment.as_deref()),
        meaning(argument),
    ]
}

fn takes_value(argument: &Arg) -> bool {
    argument.get_action().takes_values()
}

/// The argument as it is written: `-o, --output <OUTPUT>`.
fn form(argument: &Arg) -> String {
    let names: Vec<&str> =
        argument.get_value_names().unwrap_or_default().iter().map(clap::builder::Str::as_str).collect();
    let value = if takes_value(argument) { format!("<{}>", names.join("> <")) } else { String::new() };
    let short = argument.get_short().map(|short| format!("-{short}"));
    let long = argument.get_long().map(|long| format!("--{long}"));
    let flags: Vec<String> = short.into_iter().chain(long).collect();
    let several = argument.get_num_args().is_some_and(|range| range.max_values() > 1);
    let several = if several { "..." } else { "" };
    format!("{} {value}{several}", flags.join(", ")).trim().to_owned()
}

/// The help of the argument, then its possible values with theirs.
fn meaning(argument: &Arg) -> String {
    let help = argument.get_long_help().or(argument.get_help()).map(ToString::to_string).unwrap_or_default();
    let values: Vec<String> = argument
        .get_possible_values()
        .iter()
        .filter(|value| takes_value(argument) && !value.is_hide_set())
        .map(|value| match value.get_help() {
            Some(help) => format!("`{}` ({})", value.get_name(), uncapitalized(&help.to_string())),
            None => code(value.get_name()),
        })
        .collect();
    let values = if values.is_empty() { String::new() } else { format!(" Values: {}.", values.join(", ")) };
    format!("{}{values}", sentence(&help))
}

/// A text with its first letter in lower case.
fn uncapitalized(text: &str) -> String {
    let mut letters = text.chars();
    let is_acronym = text.chars().nth(1).is_some_and(char::is_uppercase);
    match letters.next() {
        Some(first) if !is_acronym => first.to_lowercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}
