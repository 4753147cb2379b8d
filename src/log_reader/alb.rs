//! The access logs of AWS' Application Load Balancer
//! (<https://docs.aws.amazon.com/elasticloadbalancing/latest/application/load-balancer-access-logs.html>).

use super::columns::{blanks, column, quoted, word};
use super::fields::{LineFields, number, status};
use super::problems::ProblemKind;
use super::time::{client_with_port, rfc3339, span};
use crate::limit::units::{Micros, Timestamp};

/// The first column of a line.
const KINDS: [&[u8]; 6] = [b"http", b"https", b"h2", b"grpcs", b"ws", b"wss"];
/// The columns between the user agent and the arrival of the request: cipher, protocol, target group, trace, domain,
/// certificate, priority of the rule.
const BEFORE_ARRIVAL: usize = 7;

/// Reads a line.
pub(super) fn read<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Result<(), ProblemKind> {
    read_columns(line, fields).ok_or(ProblemKind::NotReadable)
}

/// `kind end balancer client:port target:port seconds seconds seconds status status bytes bytes "request" "agent" …`.
fn read_columns<'l>(line: &'l [u8], fields: &mut LineFields<'l>) -> Option<()> {
    let mut rest = line;
    KINDS.contains(&word(&mut rest).raw()).then_some(())?;
    let end = rfc3339(word(&mut rest).raw())?;
    let _balancer = word(&mut rest);
    fields.client = client_with_port(word(&mut rest).raw());
    let _target = word(&mut rest);
    let spans = [word(&mut rest), word(&mut rest), word(&mut rest)].map(|seconds| span(seconds.raw(), 6));
    fields.status = status(word(&mut rest));
    let _of_target = word(&mut rest);
    // The size of a request includes its head, so it is not that of a body.
    let _received = word(&mut rest);
    fields.bytes_out = number(word(&mut rest));
    let (request, after) = quoted(blanks(rest))?;
    fields.set_request_line(request);
    fields.split_absolute_target();
    let (agent, after) = quoted(blanks(after))?;
    fields.user_agent = Some(agent);
    rest = after;
    for _ in 0..BEFORE_ARRIVAL {
        column(&mut rest);
    }
    set_times(end, rfc3339(column(&mut rest).raw()), spans, fields);
    Some(())
}

/// Lines of 2018 and before have no arrival: there the request took the sum of its `spans`, of which one is -1 if no
/// target answered.
fn set_times(
    end: Timestamp,
    arrival: Option<Timestamp>,
    spans: [Option<Micros>; 3],
    fields: &mut LineFields<'_>,
) {
    fields.is_end = arrival.is_none();
    fields.time = Some(arrival.unwrap_or(end));
    fields.duration = match arrival {
        Some(arrival) => Some(end.since(arrival)),
        None => spans.iter().try_fold(Micros(0), |sum, span| Some(Micros(sum.0.saturating_add((*span)?.0)))),
    };
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::log_reader::text::LoggedText;

    const LINE: &str = r#"https 2018-07-02T22:23:00.186641Z app/my-loadbalancer/50dc6c495c0c9188 192.168.131.39:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b=%22 HTTP/1.1" "curl/7.46.0" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2 arn:aws:elasticloadbalancing:us-east-2:123456789012:targetgroup/my-targets/73e2d6bc24d8a067 "Root=1-58337281-1d84f3d73c47ec4e58577259" "www.example.com" "arn:aws:acm:us-east-2:123456789012:certificate/12345678-1234-1234-1234-123456789012" 1 2018-07-02T22:22:48.364000Z "authenticate,forward" "-" "-" "10.0.0.1:80" "200" "-" "-" TID_1234abcd5678ef90"#;

    fn read_line(line: &str) -> Result<LineFields<'_>, ProblemKind> {
        let mut fields = LineFields::default();
        read(line.as_bytes(), &mut fields).map(|()| fields)
    }

    fn text(text: Option<LoggedText<'_>>) -> Option<String> {
        let mut string = String::new();
        text?.assign_to(&mut string);
        Some(string)
    }

    #[test]
    fn a_line_is_read() {
        let fields = read_line(LINE).unwrap();
        assert_eq!(fields.arrival(), Ok(Timestamp(1_530_570_168_364_000)));
        assert_eq!(fields.duration, Some(Micros(11_822_641)));
        assert_eq!(fields.client, "192.168.131.39".parse().ok());
        assert_eq!((fields.status, fields.bytes_in, fields.bytes_out), (Some(200), None, Some(57)));
        assert_eq!(text(fields.host).as_deref(), Some("www.example.com"));
        assert_eq!(text(fields.target).as_deref(), Some("/a?b=%22"));
        assert_eq!(text(fields.user_agent).as_deref(), Some("curl/7.46.0"));
    }

    #[test]
    fn a_line_without_an_arrival_ended_at_its_time() {
        let (line, _) = LINE.split_once(" ECDHE").unwrap();
        let fields = read_line(line).unwrap();
        assert_eq!(fields.duration, Some(Micros(171_000)));
        assert_eq!(fields.arrival(), Ok(Timestamp(1_530_570_180_186_641 - 171_000)));
        let line = line.replace("0.086 0.048 0.037", "-1 -1 -1");
        let fields = read_line(&line).unwrap();
        assert_eq!((fields.duration, fields.arrival()), (None, Ok(Timestamp(1_530_570_180_186_641))));
    }

    #[test]
    fn every_kind_is_read() {
        for kind in ["http", "h2", "grpcs", "ws", "wss"] {
            assert!(read_line(&LINE.replacen("https", kind, 1)).is_ok(), "{kind}");
        }
        assert!(read_line(&LINE.replacen("https", "tls", 1)).is_err());
    }

    #[test]
    fn clients_of_ipv6_are_read_with_and_without_brackets() {
        for client in
            ["2001:db8:4538:1:bcf4:5264:e01c:f215:50718", "[2001:db8:4538:1:bcf4:5264:e01c:f215]:50718"]
        {
            let line = LINE.replace("192.168.131.39:2817", client);
            let expected = "2001:db8:4538:1:bcf4:5264:e01c:f215".parse().ok();
            assert_eq!(read_line(&line).unwrap().client, expected, "{client}");
        }
    }

    #[test]
    fn a_request_without_a_target_has_dashes() {
        let line = r#"http 2018-11-30T22:23:00.186641Z app/lb/50dc 192.0.2.7:2817 - -1 -1 -1 400 - 172 370 "GET http://[::ffff:a9fe:a9fe]:443/ HTTP/1.1" "a \"b\" \x22c\x22" - - - "-" "-" "-" - 2018-11-30T22:22:59.000000Z "-" "-" "-" "-" "-" "-" "-""#;
        let fields = read_line(line).unwrap();
        assert_eq!(fields.duration, Some(Micros(1_186_641)));
        assert_eq!(text(fields.host).as_deref(), Some("[::ffff:a9fe:a9fe]:443"));
        assert_eq!(text(fields.user_agent).as_deref(), Some(r#"a "b" "c""#));
        let line = line.replace("GET http://[::ffff:a9fe:a9fe]:443/ HTTP/1.1", "- http://lb.example:80- -");
        assert_eq!(text(read_line(&line).unwrap().method).as_deref(), Some("-"));
    }

    #[test]
    fn a_clock_that_was_set_makes_no_negative_duration() {
        let line = LINE.replace("2018-07-02T22:22:48", "2018-07-02T22:59:00");
        let fields = read_line(&line).unwrap();
        assert_eq!(fields.duration, Some(Micros(0)));
    }

    #[test]
    fn a_line_that_is_cut_before_its_user_agent_ends_is_none() {
        let end = LINE.find(" ECDHE").unwrap();
        for cut in 0..end {
            assert_eq!(read_line(&LINE[..cut]).err(), Some(ProblemKind::NotReadable), "{cut}");
        }
    }

    proptest! {
        #[test]
        fn any_cut_and_mutation_is_read_without_panic(cut in 0..LINE.len(), at in 0..LINE.len(), byte: u8) {
            let mut bytes = LINE.as_bytes().to_vec();
            bytes[at] = byte;
            for line in [&bytes, bytes.get(..cut).unwrap()] {
                let _ = read(line, &mut LineFields::default());
            }
        }
    }
}
