//! `tollgate completions` and `tollgate man`.

use std::io;
use std::process::ExitCode;

use clap_complete::Shell;
use clap_mangen::Man;

use super::output::{fault, show};
use super::{FAILED, command};

/// Prints the completions of a shell.
pub(super) fn completions(shell: Shell) -> ExitCode {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "tollgate", &mut script);
    show(&String::from_utf8_lossy(&script))
}

/// Prints the manual page.
pub(super) fn manual() -> ExitCode {
    match page() {
        Ok(page) => show(&page),
        Err(error) => fault(FAILED, format_args!("cannot write the manual page: {error}")),
    }
}

/// One page: the program, then a section for each command.
fn page() -> io::Result<String> {
    let mut command = command();
    // Gives each command its whole name and the options of all.
    command.build();
    let man = Man::new(command.clone());
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    let mut page = String::from_utf8_lossy(&page).into_owned();
    for one in command.get_subcommands().filter(|one| one.get_name() != "help") {
        page.push_str(&section(one)?);
    }
    page.push_str(".SH \"EXAMPLES AND SIGNALS\"\n");
    page.push_str(&examples(&man)?);
    Ok(page)
}

/// The section of a command, with subsections.
fn section(command: &clap::Command) -> io::Result<String> {
    let title = format!("tollgate {}", command.get_name());
    // The options of all commands are listed once, in the program's own section.
    let own: Vec<_> = command.get_arguments().filter(|argument| argument.is_global_set()).collect();
    let ids: Vec<_> = own.iter().map(|argument| argument.get_id().clone()).collect();
    let command = ids
        .into_iter()
        .fold(command.clone(), |command, id| command.mut_arg(id, |argument| argument.hide(true)));
    let man = Man::new(command.clone());
    let mut body = Vec::new();
    man.render_synopsis_section(&mut body)?;
    man.render_description_section(&mut body)?;
    if command.get_arguments().any(|argument| !argument.is_hide_set()) {
        man.render_options_section(&mut body)?;
    }
    let body = String::from_utf8_lossy(&body).replace(".SH ", ".SS ");
    Ok(format!(".SH \"{}\"\n{body}.SS EXAMPLES\n{}", title.to_uppercase(), examples(&man)?))
}

/// The examples, whose lines are kept as they are.
fn examples(man: &Man) -> io::Result<String> {
    let mut extra = Vec::new();
    man.render_extra_section(&mut extra)?;
    let extra = String::from_utf8_lossy(&extra);
    // The section has no name of its own to give, and comes after definitions for the formatter.
    let lines = extra.split_once(".SH EXTRA\n").map_or(&*extra, |(_, lines)| lines);
    let lines = lines.trim_start_matches("Examples:\n");
    Ok(format!(".nf\n{}\n.fi\n", lines.trim_end_matches('\n')))
}
