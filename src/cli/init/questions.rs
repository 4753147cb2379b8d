//! The questions of `tollgate init`. A bad answer is asked for again, with the reason.

use std::io::{self, BufRead, ErrorKind, Write};

use super::answers::{Answers, ClientKey, InitMode, default_networks, networks, rate_and_burst};
use super::files::check;

/// The maximum number of bytes of an answer.
const MAX_ANSWER: u64 = 10_000;

/// Asks for the options that are `open`.
///
/// # Errors
///
/// There is no further answer.
pub(super) fn ask(
    mut answers: Answers,
    open: &[&str],
    input: &mut impl BufRead,
    output: &mut impl Write,
) -> io::Result<Answers> {
    let is_open = |option: &str| open.contains(&option);
    if is_open("--upstream") {
        let question = "Where is your service? A URL, or `echo` for the built-in one";
        answers = asked(question, &answers.upstream.clone(), (&mut *input, &mut *output), |text| {
            Ok(Answers { upstream: text.to_owned(), ..answers.clone() })
        })?;
    }
    if is_open("--clients") {
        let question = "What tells clients apart? `ip`, `api-key` (the header x-api-key), or `proxy` (ip, behind a \
                        load balancer)";
        answers = asked(question, "ip", (&mut *input, &mut *output), |text| {
            let clients = match text {
                "ip" => ClientKey::Ip,
                "api-key" => ClientKey::ApiKey,
                "proxy" => ClientKey::Proxy(default_networks()),
                _ => return Err("write `ip`, `api-key` or `proxy`".to_owned()),
            };
            Ok(Answers { clients, ..answers.clone() })
        })?;
        if let ClientKey::Proxy(usual) = &answers.clients {
            let usual = usual.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let question = "Which networks is the load balancer in? Others are not believed";
            answers = asked(question, &usual, (&mut *input, &mut *output), |text| {
                Ok(Answers { clients: ClientKey::Proxy(networks(text)?), ..answers.clone() })
            })?;
        }
    }
    if is_open("--rate") {
        let question = "How many requests may one client send? `100/min`, or `100/min burst 20`";
        answers = asked(question, &answers.rate.clone(), (&mut *input, &mut *output), |text| {
            let (rate, burst) = rate_and_burst(text)?;
            Ok(Answers { rate, burst, ..answers.clone() })
        })?;
    }
    if is_open("--mode") {
        let question = "Refuse what is more? `no` only counts it at first (`mode = \"shadow\"`)";
        answers = asked(question, "no", (&mut *input, &mut *output), |text| {
            let mode = match text {
                "yes" | "y" => InitMode::Enforce,
                "no" | "n" => InitMode::Shadow,
                _ => return Err("write `yes` or `no`".to_owned()),
            };
            Ok(Answers { mode, ..answers.clone() })
        })?;
    }
    Ok(answers)
}

/// Asks until `read` and the configuration take the answer.
fn asked(
    question: &str,
    default: &str,
    (input, output): (&mut impl BufRead, &mut impl Write),
    read: impl Fn(&str) -> Result<Answers, String>,
) -> io::Result<Answers> {
    loop {
        write!(output, "{question}\n[{default}] > ")?;
        output.flush()?;
        let mut line = String::new();
        if io::Read::take(&mut *input, MAX_ANSWER).read_line(&mut line)? == 0 {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "there is no further answer"));
        }
        let text = line.trim();
        let text = if text.is_empty() { default } else { text };
        match read(text).and_then(|answers| check(&answers).map(|()| answers)) {
            Ok(answers) => {
                writeln!(output)?;
                return Ok(answers);
            }
            Err(reason) => writeln!(output, "error: {reason}")?,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [&str; 4] = ["--upstream", "--clients", "--rate", "--mode"];

    fn ask_all(input: &str) -> (io::Result<Answers>, String) {
        let mut output = Vec::new();
        let answers = ask(Answers::default(), &ALL, &mut input.as_bytes(), &mut output);
        (answers, String::from_utf8_lossy(&output).into_owned())
    }

    #[test]
    fn an_empty_answer_is_the_default() {
        let (answers, output) = ask_all("\n\n\n\n");
        assert_eq!(answers.unwrap(), Answers::default());
        assert_eq!(output.matches("] > ").count(), 4, "{output}");
    }

    #[test]
    fn a_bad_answer_is_asked_for_again_with_the_reason() {
        let input = "localhost\necho\nname\nproxy\n10.0.0.0/99\n10.1.0.0/16, 192.0.2.9\nten\n10/s burst 0\n10/s, burst 30\n\
                     maybe\nyes\n";
        let (answers, output) = ask_all(input);
        let clients = ClientKey::Proxy(networks("10.1.0.0/16, 192.0.2.9").unwrap());
        let (rate, burst) = ("10/s".to_owned(), Some(30));
        let expected = Answers { upstream: "echo".to_owned(), clients, rate, burst, mode: InitMode::Enforce };
        assert_eq!(answers.unwrap(), expected);
        assert_eq!(output.matches("error: ").count(), 6, "{output}");
        for reason in
            ["write `ip`, `api-key` or `proxy`", "`10.0.0.0/99` is not a network", "`ten` is not a rate"]
        {
            assert!(output.contains(reason), "{reason} is missing in {output}");
        }
    }

    #[test]
    fn an_end_of_the_input_is_an_error() {
        let (answers, _) = ask_all("\nip\n");
        assert_eq!(answers.unwrap_err().kind(), ErrorKind::UnexpectedEof);
    }
}
