//! The explanation as text, for operators.

use std::fmt::{self, Display, Formatter};

use http::StatusCode;

use super::{
    DescriptorExplanation, ExplainedAction, ExplainedAnswer, ExplainedConsumer, ExplainedShadow, Explanation,
    LimitExplanation, LimitStatus, MatchedRoute, MirrorExplanation,
};
use crate::plan::Mode;

impl Display for ExplainedShadow {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let Self { auth, answer } = self;
        write!(f, "`{auth}` would answer {}: {}", answer.status.as_u16(), answer.reason)
    }
}

impl Display for Explanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}\n", self.request)?;
        if let Some(descriptors) = &self.descriptors {
            descriptors.iter().try_for_each(|descriptor| descriptor.fmt(f))?;
            return self.answer.as_ref().map_or(Ok(()), |answer| line(f, "answer", &answer.reason));
        }
        line(f, "client", format_args!("{}: {}", self.client.address, self.identified))?;
        if self.client.network != self.client.address {
            detail(f, "network", format_args!("{} stands for it in keys", self.client.network))?;
        }
        if let Some(ExplainedConsumer { name, tier, auth }) = &self.consumer {
            let tier = tier.as_ref().map_or_else(|| "no tier".to_owned(), |tier| format!("tier `{tier}`"));
            line(f, "consumer", format_args!("`{name}`, {tier}: named by `{auth}`"))?;
        }
        if let Some(shadow) = &self.shadow {
            line(f, "shadow", format_args!("{shadow}"))?;
        }
        match &self.route {
            Some(route) => {
                route.fmt(f)?;
                if route.limits.is_empty() && self.answer.is_none() && self.unverified.is_none() {
                    line(f, "limits", "none: every request passes")?;
                }
            }
            None if self.is_unrouted() => line(f, "route", "none matches: answered 404")?,
            None => {}
        }
        if let Some(reason) = self.unverified {
            line(f, "credential", format_args!("not verified: {reason}"))?;
        }
        if let Some(ExplainedAnswer { status, reason }) = self.answer.as_ref().filter(|_| !self.is_unrouted())
        {
            line(f, "answer", format_args!("{}: {reason}; no limit is asked", status.as_str()))?;
        }
        let others = self.others.iter().map(|(name, why)| (&**name, &**why));
        write_others(f, others, self.untold)
    }
}

impl Explanation {
    /// Whether the request could be read, and no route matches.
    fn is_unrouted(&self) -> bool {
        self.route.is_none()
            && self.answer.as_ref().is_some_and(|answer| answer.status == StatusCode::NOT_FOUND)
    }
}

impl Display for DescriptorExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (status, hits) = self.status();
        write_descriptor(f, &self.text, (status, hits), self.rule.as_deref())?;
        self.limits.iter().try_for_each(|limit| limit.fmt(f))?;
        let others = self.others.iter().map(|(name, why)| (&**name, &**why));
        write_other_rules(f, others, self.untold)
    }
}

impl Display for MatchedRoute {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        line(f, "route", format_args!("`{}`", self.name))?;
        for (name, why) in &self.conditions {
            detail(f, name, why)?;
        }
        if !self.sets.is_empty() {
            detail(f, "sets", format_args!("with the keys of `{}`", self.sets.join("`, `")))?;
        }
        if let Some(location) = &self.redirect {
            line(f, "redirect", format_args!("without TLS 308 to `{location}`, and nothing below"))?;
        }
        self.action.fmt(f)?;
        self.limits.iter().try_for_each(|limit| limit.fmt(f))
    }
}

impl Display for ExplainedAction {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forward { upstream, edits, target, mirror } => {
                if !edits.is_empty() {
                    line(f, "rewritten", format_args!("to `{target}` by {}", edits.join(" and ")))?;
                }
                line(f, "upstream", format_args!("{upstream} gets `{target}`"))?;
                mirror.iter().try_for_each(|mirror| {
                    let this_one = if mirror.is_copied { "this one" } else { "not of this one" };
                    let MirrorExplanation { words, percent, .. } = mirror;
                    line(
                        f,
                        "mirror",
                        format_args!("{words} gets copies for {percent} of the callers, {this_one}"),
                    )
                })
            }
            Self::Redirect { status, location } => line(
                f,
                "answer",
                format_args!("{} to `{location}`, once the limits admit it", status.as_str()),
            ),
            Self::Respond { status, content_type } => {
                let body = content_type
                    .as_ref()
                    .map_or_else(|| "without a body".into(), |one| format!("with `{one}`"));
                line(f, "answer", format_args!("{} {body}, once the limits admit it", status.as_str()))
            }
        }
    }
}

impl Display for LimitExplanation {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mode = match (self.mode, self.trial) {
            (Mode::Enforce, None) => String::new(),
            (Mode::Shadow, None) => " (shadow: only counted, never refuses)".to_owned(),
            (Mode::Enforce, Some(trial)) => {
                format!(" (trial: enforced for {} of the keys, also for this one)", trial.percent())
            }
            (Mode::Shadow, Some(trial)) => {
                format!(" (trial: enforced for {} of the keys, not for this one)", trial.percent())
            }
        };
        let status = match &self.status {
            LimitStatus::Charged(cost) => {
                charges(cost.units().into(), self.measured.as_deref(), self.settled_by.as_deref())
            }
            LimitStatus::Free if self.measured.is_some() => charges(0, self.measured.as_deref(), None),
            status => status.to_string(),
        };
        line(f, "limit", format_args!("`{}`{mode} {status}", self.name))?;
        for (part, value) in &self.key {
            match value {
                Some(value) => detail(f, "key", format_args!("{part} = {value}"))?,
                None => detail(f, "key", part)?,
            }
        }
        if let Some(missing) = self.missing {
            detail(f, "absent", missing)?;
        }
        if let Some(tier) = &self.tier_name {
            detail(f, "tier", format_args!("`{tier}`"))?;
        }
        if self.is_overridden {
            detail(f, "numbers", "those of an override of this key")?;
        }
        self.policies.iter().try_for_each(|policy| detail(f, "allows", policy))?;
        self.share.iter().try_for_each(|share| detail(f, "share", share))?;
        self.ban.iter().try_for_each(|ban| detail(f, "ban", ban))
    }
}

impl Display for LimitStatus {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Charged(cost) => write!(f, "charges {}", cost.units()),
            Self::Free => f.write_str("charges nothing: the route costs 0 there"),
            Self::Exempt(exemption) => write!(f, "charges nothing: exempt by `{exemption}`"),
            Self::Skipped => f.write_str("does not apply: a part of its key is missing"),
            Self::Missing => f.write_str("refuses: a part of its key is missing"),
            Self::Repeated => f.write_str("refuses with 400: a part of its key has several values"),
        }
    }
}

/// The units that a limit charges on admission, and where they come from: `charges 2000 now, settled by …`.
pub(crate) fn charges(units: u64, measured: Option<&str>, settled_by: Option<&str>) -> String {
    let units = if units == 0 { "nothing".to_owned() } else { units.to_string() };
    match (measured, settled_by) {
        (_, Some(by)) => format!("charges {units} now, settled by {by}"),
        (Some(measured), None) => format!("charges {units} ({measured})"),
        (None, None) => format!("charges {units}"),
    }
}

/// Writes the other routes: name and reason each, and how many are left out.
pub(crate) fn write_others<'a>(
    f: &mut Formatter<'_>,
    mut others: impl ExactSizeIterator<Item = (&'a str, &'a str)>,
    untold: usize,
) -> fmt::Result {
    let none = others.len() == 0;
    if !none {
        writeln!(f, "\nother routes")?;
    }
    others.try_for_each(|(name, why)| writeln!(f, "  `{name}`: {why}"))?;
    match (untold, none) {
        (0, _) => Ok(()),
        (untold, true) => writeln!(f, "\n{untold} other routes, none for this path"),
        (untold, false) => writeln!(f, "  and {untold} more"),
    }
}

/// Writes a descriptor with its effect, and its rule.
pub(crate) fn write_descriptor(
    f: &mut Formatter<'_>,
    entries: &str,
    (status, hits): (&str, u64),
    rule: Option<&str>,
) -> fmt::Result {
    let hits = match hits {
        1 => "1 hit".to_owned(),
        hits => format!("{hits} hits"),
    };
    line(f, "entries", entries)?;
    match status {
        "asked" => detail(f, "hits", "none: asks whether one more would pass")?,
        "reported" => detail(f, "hits", format_args!("{hits}, spent already: charged even into debt"))?,
        _ => detail(f, "hits", hits)?,
    }
    match rule {
        Some(rule) => line(f, "rule", format_args!("`{rule}`")),
        None => line(f, "rule", "none matches: no limit applies"),
    }
}

/// Writes the other rules for descriptors: name and reason each, and how many are left out.
pub(crate) fn write_other_rules<'a>(
    f: &mut Formatter<'_>,
    mut others: impl Iterator<Item = (&'a str, &'a str)>,
    untold: usize,
) -> fmt::Result {
    others.try_for_each(|(name, why)| line(f, "other", format_args!("`{name}`: {why}")))?;
    match untold {
        0 => Ok(()),
        untold => line(f, "other", format_args!("{untold} more rules")),
    }
}

/// Writes a line under its name.
pub(crate) fn line(f: &mut Formatter<'_>, name: &str, words: impl Display) -> fmt::Result {
    writeln!(f, "{name:<10}{words}")
}

/// Writes a line about the one before.
pub(crate) fn detail(f: &mut Formatter<'_>, name: &str, words: impl Display) -> fmt::Result {
    writeln!(f, "  {name:<8}{words}")
}
