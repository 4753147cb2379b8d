//! One snapshot as plain text.

use super::display::{clock, maybe, plain, rate, span};
use super::draw::totals;
use super::findings::findings;
use super::snapshot::GatewaySnapshot;
use super::views::TopView;

/// All views as text, without colours.
pub(super) fn text(address: &str, snapshot: &GatewaySnapshot) -> String {
    let (status, all) = (&snapshot.status, &snapshot.samples.all);
    let mut lines = vec![format!(
        "tollgate {} at {address}: {}, up {}, {} workers, file {} since {} UTC; {} UTC",
        plain(&status.version),
        plain(&status.life),
        span(status.time - status.started),
        status.workers,
        plain(&status.config.version),
        clock(status.config.loaded),
        clock(status.time)
    )];
    lines.extend(findings(snapshot).into_iter().map(|(_, text)| format!("  {text}")));
    lines.push(format!(
        "requests: admitted {}/s, delayed {}/s, refused {}/s, failed {}/s; p50 {} ms, p99 {} ms",
        rate(all.lately("admitted")),
        rate(all.lately("delayed")),
        rate(all.lately("refused")),
        rate(all.lately("failed")),
        maybe(all.last_known("p50_ms")),
        maybe(all.last_known("p99_ms"))
    ));
    lines.push(totals(snapshot));
    let views = TopView::ALL.into_iter().filter(|view| *view != TopView::Overview);
    let tables = views.map(|view| format!("\n{}", view.table(snapshot).to_text()));
    format!("{}\n{}", lines.join("\n"), tables.collect::<String>())
}
