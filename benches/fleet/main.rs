//! A fleet of gateways that share counters, in virtual time: exactly, with leases, and each with its part of the limit.
//!
//! `cargo bench --bench fleet`: about a minute of one processor. `-- --quick`: a few seconds, with rough figures.
//! `-- --write` writes the tables into docs/fleet-simulation.md and the pictures beside it. Gateways and the store decide
//! by the code of the gateway (`limit::lease`, `limit::lease::ledger`); only messages and time are simulated. The same
//! build gives the same figures. A run that admits more than the contract allows ends with an error.
#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of a simulation are small"
)]
#![expect(clippy::expect_used, reason = "a benchmark that cannot be set up should stop")]

mod chart;
mod fleet;
mod gateway;
mod grid;
mod measures;
mod scenario;
mod table;
mod traffic;

use std::path::Path;

use clap::Parser;

use grid::Grid;
use scenario::Flow;
use table::Table;

const PAGE: &str = "docs/fleet-simulation.md";
const PICTURES: &str = "docs/pictures";

#[derive(Parser)]
struct Options {
    /// Short runs with few gateways.
    #[arg(long)]
    quick: bool,
    /// Writes the tables and the pictures into the documentation.
    #[arg(long, conflicts_with_all = ["quick", "table"])]
    write: bool,
    /// Only this table.
    #[arg(long)]
    table: Option<String>,
    /// A request that waited for units and got none waits for the next ones.
    #[arg(long)]
    wait_again: bool,
    /// A gateway that got fewer units than it wanted makes a pause.
    #[arg(long)]
    pause: bool,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() {
    let options = Options::parse();
    let flow = Flow { waits_again: options.wait_again, pauses: options.pause };
    let grid = Grid { is_quick: options.quick, flow };
    let tables = grid.tables(options.table.as_deref());
    for table in &tables {
        println!("{}\n\n{}", table.name, table.markdown());
    }
    if !options.write {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    for chart in grid.charts() {
        std::fs::write(root.join(PICTURES).join(chart.file), chart.svg())
            .expect("the picture can be written");
    }
    let page = root.join(PAGE);
    let text = std::fs::read_to_string(&page).expect("the page is there");
    std::fs::write(page, tables.iter().fold(text, with_table)).expect("the page can be written");
}

/// The page with this table between its comments, if it has them.
fn with_table(page: String, table: &Table) -> String {
    let (begin, end) =
        (format!("<!-- fleet {} -->\n", table.name), format!("<!-- /fleet {} -->", table.name));
    let around = page.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let Some((before, after)) = around else { return page };
    format!("{before}{begin}{}{end}{after}", table.markdown())
}
